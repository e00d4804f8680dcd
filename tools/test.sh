#!/usr/bin/env bash
# Usage: tools/test.sh [REGEX]
# Installs what is missing (apt, as root or with sudo), builds everything and runs every test, or only those whose names
# match the regular expression: tools/test.sh '^replay\.'
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/arguments.sh
at_most_arguments 1 "$@"

tools/setup.sh -DMOESIM_BUILD_TESTS=ON
printf '== building\n'
cmake --build build
printf '== testing\n'
ctest --test-dir build --output-on-failure --no-tests=error -j "$(nproc)" ${1:+-R "$1"}
