#!/usr/bin/env bash
# Builds the fuzz targets with clang, address and undefined-behaviour sanitizers, and runs them.
#   tools/fuzz.sh [SECONDS each, default 60] [TARGET ...]
# Prints a table of what was run; exits 1 when an input made a reader crash, hang or answer twice differently. Such
# inputs are printed and left in build/fuzz/findings/TARGET; put them into tests/fuzz/regressions/TARGET with the correction.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
[[ $seconds =~ ^[0-9]+$ ]] || { echo "fuzz.sh: found '$seconds', expected seconds" >&2; exit 2; }
shift || true

source tools/clang_build.sh
if ! clang=$(find_clang); then
  echo "fuzz.sh: SKIPPED: no clang with libFuzzer here (Debian: apt-get install clang-16 libclang-rt-16-dev)"
  exit 0
fi
configure_clang_build "$clang"
targets=("$@")
((${#targets[@]})) || mapfile -t targets < <(cut -f1 build/fuzz/fuzz_targets.txt)
cmake --build build/fuzz -j "$(nproc)" --target "${targets[@]/%/_fuzz}"

run_one() {
  local name=$1 seconds=$2 seeds work=build/fuzz/work/$1 findings=build/fuzz/findings/$1
  seeds=$(awk -F'\t' -v name="$name" '$1 == name { print $2 }' build/fuzz/fuzz_targets.txt)
  mkdir -p "$work" "$findings"
  # Runs of a minute try nearly the same inputs every time (how many, is a matter of the clock); longer ones try others.
  local seed=0
  ((seconds <= 60)) && seed=1
  # Longer runs try inputs up to 1 MiB, which need time to grow.
  local longest=16384
  ((seconds > 60)) && longest=1048576
  # A minute for one input is a hang (sanitizers take 10 to 20 times as long), 2 GB is an unchecked allocation.
  build/fuzz/tests/fuzz/"${name}"_fuzz -seed=$seed -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 \
    -max_len="$longest" -artifact_prefix="$findings/" "$work" ${seeds//;/ } >"$work.log" 2>&1
  local status=$?
  printf '%-16s %12s inputs %8s edges  %s\n' "$name" \
    "$(awk '/stat::number_of_executed_units/ { print $2 }' "$work.log")" \
    "$(grep -o 'cov: [0-9]*' "$work.log" | tail -1 | cut -d' ' -f2)" \
    "$([[ $status == 0 ]] && echo "no findings" || echo "FOUND: $(grep -m1 -E 'internal error|runtime error|ERROR|SUMMARY' "$work.log" | cut -c1-140)")"
  # A machine that is thrown away, as CI's, takes its files with it.
  local input
  input=$(sed -n 's/.*Test unit written to //p' "$work.log")
  [[ -z $input ]] || printf '  %s begins in base64: %s\n' "$input" "$(head -c 3072 "$input" | base64 -w0)"
  return $status
}
export -f run_one
# As many at a time as there are cores.
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_one {} '"$seconds" || exit 1
