# Sourced by fuzz.sh and sanitize.sh: one clang build, build/fuzz, with the address and undefined-behaviour sanitizers,
# whose fuzz targets are libFuzzer programs.

# Prints the newest clang that has libFuzzer; fails where there is none.
find_clang() {
  local candidate
  for candidate in clang++-{22,21,20,19,18,17,16} clang++; do
    if command -v "$candidate" >/dev/null &&
        echo '#include <ranges>
              extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long n) {
                return static_cast<int>(*(std::views::iota(0ul, n + 1) | std::views::reverse).begin()) < 0; }' |
        "$candidate" -std=c++20 -x c++ -fsanitize=fuzzer,address - -o /dev/null 2>/dev/null; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}

# configure_clang_build CLANG
configure_clang_build() {
  source tools/compiler_cache.sh
  mkdir -p build
  cmake --preset fuzz -DCMAKE_CXX_COMPILER="$1" >build/fuzz.configure.log 2>&1 ||
    { cat build/fuzz.configure.log >&2; return 2; }
}
