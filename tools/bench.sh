#!/bin/sh
# Builds and runs all benchmarks, writes build/bench.json and prints the table of docs/reliability.md.
# Options are those of tests/bench/collect.py; --docs docs/reliability.md also puts the table there.
set -eu
cd "$(dirname "$0")/.."
# A build by quickstart.sh has no benchmarks.
tools/setup.sh -DMOESIM_BUILD_TESTS=ON -DMOESIM_BUILD_BENCH=ON
cmake --build build --target moesim sim_bench answer_bench read_cmd_bench
cmake --build build --target simgrid_reference || echo "bench.sh: no ratios to SimGrid: apt-get install libsimgrid-dev" >&2
exec python3 tests/bench/collect.py build "$@"
