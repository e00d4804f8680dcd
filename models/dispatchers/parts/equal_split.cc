#include "models/dispatchers/parts/equal_split.h"

#include <algorithm>
#include <array>
#include <limits>

namespace moesim::models {

Padding padding_option(DispatcherOptions& options) {
  static constexpr std::array<std::string_view, 2> kWays{"pad", "cat"};
  return static_cast<Padding>(options.choice("pad_with", 0, kWays));
}

EqualSplit::EqualSplit(const LayerSizes& f) {
  m = f.splits.empty() ? 0 : *std::max_element(f.splits.begin(), f.splits.end());
  for (int r = 0; r < f.R; ++r) {
    const std::int64_t real = f.sent[r] + f.arrived[r];
    overheads.push_back(real == 0 ? std::numeric_limits<double>::infinity()
                                  : static_cast<double>(2 * f.ep * m - real) / static_cast<double>(real));
  }
}

double EqualSplit::worst() const { return *std::max_element(overheads.begin(), overheads.end()); }

void EqualSplit::exchange(ProgramBuilder& b, std::string_view name, Category category, DType dtype,
                          const LayerSizes& f, bool there, Padding padding) const {
  const std::vector<std::int64_t>&from = there ? f.sent : f.arrived, &to = there ? f.arrived : f.sent;
  const PerRank padded = b.uniform(f.ep * m * f.w);
  b.allocate("padded rows", padded);
  if (padding == Padding::kPad) {
    b.kernel("pad chunks", category, KernelClass::kCopy, b.scaled(from, f.w), padded, f.ep);
  } else {
    const PerRank zeros = b.scaled(from, -f.w, f.ep * m * f.w);
    b.kernel("rows of zeros", category, KernelClass::kElementwise, b.uniform(0), zeros, f.ep);
    b.kernel("chunks with their zeros", category, KernelClass::kCopy, padded, padded, f.ep);
  }
  b.kernel("join chunks", category, KernelClass::kCopy, padded, padded);
  b.allocate("received padded rows", padded);
  b.all_to_all(GroupKind::kEp, name, category, dtype, f.ep * m * f.w);
  gather_rows(b, "compact chunks", category, to, f.w);
  b.free("received padded rows", padded);
  b.free("padded rows", padded);
}

}  // namespace moesim::models
