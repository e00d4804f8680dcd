#include "base/checked.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/input_error.h"

namespace moesim {

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
