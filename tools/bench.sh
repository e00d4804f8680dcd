#!/bin/sh
# Builds and runs all benchmarks, writes build/bench.json and prints the table of docs/reliability.md.
# Options are those of tests/bench/collect.py; --docs docs/reliability.md also puts the table there.
set -eu
cd "$(dirname "$0")/.."
build=build
if [ ! -f "$build/CMakeCache.txt" ]; then
  cmake --preset release
fi
cmake --build "$build"
exec python3 tests/bench/collect.py "$build" "$@"
