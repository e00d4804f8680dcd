#!/usr/bin/env bash
# The tests under sanitizers: all of C++ under address and undefined behaviour (clang where there is one, else the asan
# preset), and what runs threads under thread. Left out are tests that start no moesim or compile other projects.
#   tools/sanitize.sh [address] [thread]      default: both
# The whole suite under one of them: cmake --preset tsan && cmake --build --preset tsan && ctest --preset tsan
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/clang_build.sh

run_tests() { ctest --test-dir "$1" --output-on-failure -j "$(nproc)" --timeout 900 "${@:2}"; }

launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
mkdir -p build
for sanitizer in "${@:-address thread}"; do
  for name in $sanitizer; do
    printf '== sanitizer: %s\n' "$name"
    case $name in
      address)
        if clang=$(find_clang); then
          configure_clang_build "$clang"
          folder=build/fuzz
        else
          cmake --preset asan "${launcher[@]}" >build/asan.configure.log 2>&1
          folder=build/asan
        fi
        cmake --build $folder
        run_tests $folder -E '^(report|capture|install|arrows)\.|bench_builds'
        ;;
      thread)
        cmake --preset tsan "${launcher[@]}" >build/tsan.configure.log 2>&1
        cmake --build build/tsan --target sim_tests tools_tests moesim
        run_tests build/tsan -R '^sim\.|^tools\..*(Sweep|Thread|Map|Best)'
        ;;
      *)
        echo "sanitize.sh: found '$name', expected address or thread" >&2
        exit 2
        ;;
    esac
  done
done
