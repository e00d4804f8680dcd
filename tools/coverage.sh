#!/usr/bin/env bash
# Line coverage of the five folders that forecasts come from, by the tests that start or link moesim; needs gcovr
# (Debian: apt-get install gcovr). Builds build/coverage unoptimised, prints a line per folder and the total.
#   tools/coverage.sh [LEAST]      exit 1 where a folder has less than LEAST percent (default 85)
set -euo pipefail
cd "$(dirname "$0")/.."
least=${1:-85}
[[ $least =~ ^[0-9]+$ ]] || { echo "coverage.sh: found '$least', expected a percentage" >&2; exit 2; }
command -v gcovr >/dev/null || { echo "coverage.sh: found no gcovr (Debian: apt-get install gcovr)" >&2; exit 2; }

source tools/compiler_cache.sh
mkdir -p build
cmake --preset coverage >build/coverage.configure.log 2>&1 || { cat build/coverage.configure.log >&2; exit 2; }
cmake --build build/coverage
find build/coverage -name '*.gcda' -delete
export GCOV_ERROR_FILE=/dev/null  # tests compare what moesim says on stderr
# Programs that a signal ends leave no counts, so what only such a test reaches counts as not reached.
ctest --test-dir build/coverage -j "$(nproc)" --timeout 900 -E '^(report|capture|install|arrows)\.|bench_builds|docs.calibration' \
  --output-on-failure -Q || echo "coverage.sh: some tests failed (build/coverage/Testing/Temporary/LastTest.log)" >&2

status=0
for folder in sim models traces replay calibration; do
  gcovr --root . --object-directory build/coverage --filter "$folder/" --exclude-throw-branches --gcov-ignore-parse-errors --print-summary \
    --txt build/coverage/$folder.txt build/coverage/$folder | awk -v folder=$folder -v least="$least" '
      /^lines:/ { printf "%-12s %s %s %s %s\n", folder, $2, $3, $4, $5 $6; if ($2 + 0 < least) exit 1 }' || status=1
done
exit $status
