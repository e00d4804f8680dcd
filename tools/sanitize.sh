#!/usr/bin/env bash
# Usage: tools/sanitize.sh [address] [thread] [verbs]
# Under address and undefined behaviour (clang where there is one, else the asan preset) the tests of all libraries and
# every reader on its seeds; under thread the simulator's tests. verbs: the command line under both, which needs all of
# moesim built twice more. Without a name what CI runs: address and thread.
# The whole suite under one of them: cmake --preset tsan && cmake --build --preset tsan && ctest --preset tsan
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/arguments.sh
source tools/clang_build.sh
help_if_asked "$@"
for name in "$@"; do
  [[ $name == address || $name == thread || $name == verbs ]] || refuse_argument "$name"
done

source tools/compiler_cache.sh
mkdir -p build

# A third of the random cases. Left out: scripts (names without a suite), which need more than the test programs, and tests
# that take minutes here for asking what others ask of smaller inputs.
too_long='SweepMpi|WhatIfBest.CountsEvery|WhatIf.TheScopeIs|StayBelowTwentyMegabytes'
too_long+='|Answer.Seeds|OneAnswer|NextRows.ChosenRows|OwnRows.Twelve|PlanLaws|PlanSearch.BranchAndBoundFinds|PlanChoice.WithoutGpus'
too_long+='|Fields.WhatIsWritten|RecordedMachine.(Public|Times)|Uncertainty.AJob|RescaleEcho.(Long|Larger|OneExpertRank)|SizeLimits.AllowTheLongest'
too_long+='|Refine.(TheBase|IsReadBack|RowsThatAgree)'

# test_address LIBRARY...: the tests of their programs, LIBRARY.Suite.Test.
test_address() {
  RC_PARAMS="max_success=33" ctest --test-dir "$folder" --output-on-failure -j "$(nproc)" \
    -R "^($(IFS='|'; echo "$*"))\.[^.]+\." -E "$too_long"
}

configure_address() {
  folder=build/asan
  if clang=$(find_clang); then
    configure_clang_build "$clang"
    folder=build/fuzz
  else
    cmake --preset asan >build/asan.configure.log 2>&1
  fi
}

run_address() {
  configure_address
  local libraries=(base sim traces models calibration replay)
  cmake --build "$folder" --target "${libraries[@]/%/_tests}"
  test_address "${libraries[@]}"
}

run_thread() {
  cmake --preset tsan >build/tsan.configure.log 2>&1
  cmake --build build/tsan --target sim_tests
  build/tsan/tests/sim/sim_tests --gtest_brief=1
}

run_verbs() {
  configure_address
  cmake --build "$folder" --target tools_tests
  test_address tools
  cmake --preset tsan >build/tsan.configure.log 2>&1
  cmake --build build/tsan --target moesim
  local moesim="build/tsan/moesim" questions=(
    "sweep docs/examples/scenario.json --grid topk=1..4 --grid routing.gini=0..0.6:0.2"
    "whatif docs/examples/scenario.json --map topk=1..4 parallel.ep=4,8,16"
    "whatif docs/examples/tutorial.json --set scope=step --best parallel --under memory --most 100")
  for question in "${questions[@]}"; do
    echo "$moesim $question"
    # The race detector ends with 66; the answer is that of one thread.
    diff <($moesim $question --quiet --threads 1) <($moesim $question --quiet --threads 4 || echo "exit $?")
  done
}

for name in ${*:-address thread}; do
  printf '== sanitizer: %s\n' "$name"
  "run_$name"
done
