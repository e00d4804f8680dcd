#!/bin/sh
# The tables of docs/calibration.md: errors on rows left out of the fits, and of the shipped profiles.
#   tools/calibration_errors.sh DATA_FOLDER [BUILD_FOLDER]        (two minutes of one core, most of it for the FFNs)
set -eu
data=${1:?usage: tools/calibration_errors.sh DATA_FOLDER [BUILD_FOLDER]}
build=${2:-build}
published=$data/published
moesim="$build/moesim"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
section() { printf '\n## %s\n\n' "$1"; }

intra=$published/collectives_intranode.csv multi=$published/collectives_multinode.csv
# left_out TITLE TABLES... --leave-out WORD
left_out() { section "$1"; shift; "$moesim" calibrate fit "$@" -q; }

left_out "One message size left out, collectives inside a node" "$intra" "$multi" --leave-out sizes
left_out "One decade of message sizes left out" "$intra" "$multi" --leave-out decades
left_out "Four GPUs from two and eight (of a machine with the same links and no three measured counts)" "$intra" --leave-out between
left_out "A whole rank count left out, with only the other one to fit" "$intra" "$multi" --leave-out ranks
# nodes: one node count of a network; far: all but the two smallest; clusters: one of several with the same network.
for left in nodes far clusters networks; do
  left_out "Between domains, left out: $left" "$published"/collectives_multinode*.csv "$published"/ep_dispatch_combine_*.csv \
    "$data/decisions/awslabs_ep_kernels.csv" --leave-out "$left"
done
left_out "One (n, k) left out, dense products" "$published/gemm_dense.csv" --leave-out shapes
left_out "A whole GPU left out: its data sheet and its relative's rows" "$intra" "$published/gemm_dense.csv" --leave-out gpus

section "One recording left out, H800 all-to-all (12 us and the links' rate fitted to the other four)"
if [ -d "$data/echo" ]; then
  for left in "$data"/echo/pp*_sl1024/realistic; do
    others=
    for other in "$data"/echo/pp*_sl1024/realistic; do [ "$other" = "$left" ] || others="$others $other"; done
    # shellcheck disable=SC2086  # a list of folders without blanks
    "$moesim" calibrate import recording $others --gpu h800-sxm --library "NCCL 2.18.6" -q --out "$scratch/others.json"
    "$moesim" calibrate import recording "$left" --gpu h800-sxm --library "NCCL 2.18.6" -q --out "$scratch/left.json"
    "$moesim" calibrate fit "$scratch/others.json" "$data"/echo/comm_bench/h800_*/*.csv --gpu h800-sxm --complete --quick -q \
      --out "$scratch/profile.json"
    printf '%s: ' "$(basename "$(dirname "$left")")"
    "$moesim" calibrate check "$scratch/profile.json" --against "$scratch/left.json" | tail -1
  done
fi

section "Shipped profiles on the rows that they were fitted to"
"$moesim" calibrate check --all --against "$published"/collectives_*.csv "$published"/gemm_dense.csv \
  "$published"/grouped_gemm.csv "$published"/ep_dispatch_combine_*.csv "$published"/moe_ffn_*.csv | grep -A3 "rows: mean"

for left in tokens ep; do
  left_out "Dispatch and combine kernels, left out: $left (tokens: a decade of counts)" "$published"/ep_dispatch_combine_*.csv \
    --leave-out "$left"
done
for left in shapes tokens routing; do
  left_out "Expert FFN, left out: one of the $left (shapes: hidden, inner size, experts; tokens: a decade of counts)" \
    "$published"/moe_ffn_*.csv --leave-out "$left"
done
