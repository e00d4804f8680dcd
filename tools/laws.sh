#!/usr/bin/env bash
# Usage: tools/laws.sh [CASES] [SEED]
# Holds the laws of tests/laws against so many drawn cases [300000]. Each run draws others and prints its seed.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ "${1:-1}${2:-1}" =~ ^[0-9]+$ ]] || { echo "laws.sh: found '$*', expected [CASES] [SEED], two numbers" >&2; exit 2; }
cmake --build build --target laws_tests
MOESIM_LAW_CASES=${1:-300000} MOESIM_LAW_SEED=${2:-$RANDOM$RANDOM} build/tests/laws/laws_tests --gtest_filter='Laws.*Hold'
