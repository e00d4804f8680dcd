#!/usr/bin/env bash
# Installs what is missing, builds everything and runs every test. With arguments: only tests whose names match the
# first one (a regular expression).
set -euo pipefail
cd "$(dirname "$0")/.."

tools/setup.sh -DMOESIM_BUILD_TESTS=ON
printf '== building\n'
cmake --build build
printf '== testing\n'
ctest --test-dir build --output-on-failure -j "$(nproc)" ${1:+-R "$1"}
