#include "base/check.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "base/input_error.h"

namespace moesim {

void check_failed(std::string_view what, const char* file, int line) {
  std::fprintf(stderr, "moesim: internal error at %s:%d: %.*s\n", file, line, static_cast<int>(what.size()),
               what.data());
  std::abort();
}

std::int64_t checked_product(std::string_view what, std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  double shown = 1;
  for (const std::int64_t factor : factors) {
    check(factor >= 0, "a size is not negative");
    shown *= static_cast<double>(factor);
    if (__builtin_mul_overflow(product, factor, &product)) product = 0;
  }
  if (!(shown <= static_cast<double>(kMostSize)))
    throw InputError(fmt::format("{}: found a size of {:.3g}, expected at most 2^56", what, shown));
  return product;
}

}  // namespace moesim
