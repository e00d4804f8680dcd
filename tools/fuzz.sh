#!/usr/bin/env bash
# Builds the fuzz targets with clang, address and undefined-behaviour sanitizers, and runs them.
#   tools/fuzz.sh [SECONDS each, default 60] [TARGET ...]
# Prints a table of what was run; exits 1 when an input made a reader crash, hang or answer twice differently. Such
# inputs are left in build/fuzz/findings/TARGET; put them into tests/fuzz/regressions/TARGET with the correction.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
[[ $seconds =~ ^[0-9]+$ ]] || { echo "fuzz.sh: found '$seconds', expected seconds" >&2; exit 2; }
shift || true

clang=
for candidate in clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14 clang++; do
  if command -v "$candidate" >/dev/null && echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
      "$candidate" -x c++ -fsanitize=fuzzer,address - -o /dev/null 2>/dev/null; then
    clang=$candidate
    break
  fi
done
if [[ -z $clang ]]; then
  echo "fuzz.sh: SKIPPED: no clang with libFuzzer here (Debian: apt-get install clang-16 libclang-rt-16-dev)"
  exit 0
fi

cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER="$clang" -DMOESIM_FUZZ=ON \
  -DMOESIM_SANITIZE=fuzzer-no-link,address,undefined -DMOESIM_BUILD_BENCH=OFF -DMOESIM_HOST_BENCH=OFF \
  >build/fuzz.configure.log 2>&1 || { cat build/fuzz.configure.log >&2; exit 2; }
targets=("$@")
((${#targets[@]})) || mapfile -t targets < <(cut -f1 build/fuzz/fuzz_targets.txt)
cmake --build build/fuzz -j "$(nproc)" --target "${targets[@]/%/_fuzz}"

run_one() {
  local name=$1 seconds=$2 seeds work=build/fuzz/work/$1 findings=build/fuzz/findings/$1
  seeds=$(awk -F'\t' -v name="$name" '$1 == name { print $2 }' build/fuzz/fuzz_targets.txt)
  mkdir -p "$work" "$findings"
  # 20 s for one input is a hang, 2 GB is an allocation that nobody checked.
  build/fuzz/tests/fuzz/"${name}"_fuzz -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    -max_len=16384 -artifact_prefix="$findings/" "$work" ${seeds//;/ } >"$work.log" 2>&1
  local status=$?
  printf '%-14s %12s inputs %8s edges  %s\n' "$name" \
    "$(awk '/stat::number_of_executed_units/ { print $2 }' "$work.log")" \
    "$(grep -o 'cov: [0-9]*' "$work.log" | tail -1 | cut -d' ' -f2)" \
    "$([[ $status == 0 ]] && echo "no findings" || echo "FOUND: $(grep -m1 -E 'ERROR|SUMMARY|runtime error|check failed' "$work.log" | cut -c1-140)")"
  return $status
}
export -f run_one
# As many at a time as there are cores.
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_one {} '"$seconds" || exit 1
