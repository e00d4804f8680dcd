#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace moesim {

void check_failed(std::string_view what, const char* file, int line) {
  std::fprintf(stderr, "moesim: internal error at %s:%d: %.*s\n", file, line, static_cast<int>(what.size()),
               what.data());
  std::abort();
}

}  // namespace moesim
