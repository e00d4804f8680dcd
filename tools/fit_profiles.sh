#!/bin/sh
# Fits every shipped profile from the published measurements: tools/fit_profiles.sh DATA_FOLDER [BUILD_FOLDER]
# DATA_FOLDER holds published/ and echo/comm_bench/. About three minutes on one core. Then rebuild: the profiles are
# compiled in.
set -eu
data=${1:?usage: tools/fit_profiles.sh DATA_FOLDER [BUILD_FOLDER]}
build=${2:-build}
root=$(cd "$(dirname "$0")/.." && pwd)
published=$data/published
"$build/moesim" calibrate fit \
  "$published/collectives_intranode.csv" "$published/collectives_multinode.csv" \
  "$published/gemm_dense.csv" "$published/grouped_gemm.csv" \
  "$published/ep_dispatch_combine_sweeps.csv" "$published/ep_dispatch_combine_tables.csv" \
  "$published"/moe_ffn_*.csv "$data"/echo/comm_bench/h800_*/*.csv \
  --all --out "$root/calibration/profiles" \
  --provenance "Published measurements (data set snapshot 2026-08-21, sources at each law) and the benchmarks beside the Echo traces; fitted $(date -u +%Y-%m-%d) by tools/fit_profiles.sh; no GPU of our own was used."
