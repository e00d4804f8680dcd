#!/bin/sh
# Fits every shipped profile from the published measurements: tools/fit_profiles.sh DATA_FOLDER [BUILD_FOLDER]
# DATA_FOLDER holds published/ and echo/ (benchmarks and recordings). About three minutes on one core. Then rebuild: the profiles are
# compiled in.
set -eu
data=${1:?usage: tools/fit_profiles.sh DATA_FOLDER [BUILD_FOLDER]}
build=${2:-build}
root=$(cd "$(dirname "$0")/.." && pwd)
published=$data/published
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Transfers of the real runs of 1,024 tokens: those of 4,096 are large only and test the law. NCCL version and machine as
# the logs beside the benchmarks tell (SOURCES.md there).
"$build/moesim" calibrate import recording "$data"/echo/pp*_sl1024/realistic --gpu h800-sxm --quiet \
  --source "fwyc0573/moe_mg (8 H800 of a 16-GPU run)" --library "NCCL 2.18.6" --out "$scratch/recordings.json"
"$build/moesim" calibrate fit \
  "$published/collectives_intranode.csv" "$published/collectives_multinode.csv" \
  "$published/gemm_dense.csv" "$published/grouped_gemm.csv" \
  "$published/collectives_multinode_3.csv" \
  "$published"/ep_dispatch_combine_sweeps*.csv "$published/ep_dispatch_combine_tables.csv" \
  "$published/ep_dispatch_combine_tables_3.csv" \
  "$published"/moe_ffn_*.csv "$data"/echo/comm_bench/h800_*/*.csv "$scratch/recordings.json" \
  --constants "$root/calibration/constants.json" --all --out "$root/calibration/profiles/gpu" \
  --provenance "Published measurements (data set of 2026-08-21 and 2026-11-25, sources at each law) and the benchmarks and recordings of the Echo data set; fitted $(date -u +%Y-%m-%d) by tools/fit_profiles.sh; no GPU of our own was used."
# Laws between nodes (echo-h800 stays: one machine's own rows), with this binary's profiles for the inside of nodes.
"$build/moesim" calibrate fit "$published"/collectives_multinode*.csv \
  "$published"/ep_dispatch_combine_sweeps*.csv "$published"/ep_dispatch_combine_tables*.csv "$data/decisions/awslabs_ep_kernels.csv" \
  --networks "$root/calibration/profiles/network" \
  --provenance "Published measurements (data set of 2026-08-21 and 2026-11-25, sources at each law), and the decisions data set; fitted by tools/fit_profiles.sh; no network of our own was used."
