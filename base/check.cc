#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace moesim {

void check_failed(std::string_view what, std::source_location where) {
  std::fprintf(stderr, "moesim: internal error at %s:%u: %.*s\n", where.file_name(),
               static_cast<unsigned>(where.line()), static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace moesim
