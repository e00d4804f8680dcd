#include "models/dispatchers/parts/capacity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace moesim::models {

std::int64_t capacity(std::int64_t tokens, std::int64_t topk, std::int64_t experts, double factor) {
  const double rows =
      static_cast<double>(tokens) * static_cast<double>(topk) / static_cast<double>(experts) * factor;
  // A product that is integral up to rounding (T*K/E * 1.1) must not gain a row.
  const double nearest = std::round(rows);
  return static_cast<std::int64_t>(std::abs(rows - nearest) <= 1e-9 * std::max(1.0, rows) ? nearest
                                                                                          : std::ceil(rows));
}

std::vector<std::int64_t> capacities(const Routing& routing, double factor) {
  std::vector<std::int64_t> c(routing.ranks());
  for (int r = 0; r < routing.ranks(); ++r)
    c[r] = capacity(routing.tokens(r), routing.topk(), routing.experts(), factor);
  return c;
}

std::int64_t total_dropped(const Routing& before, const Routing& after) {
  if (&before == &after) return 0;
  std::int64_t dropped = 0;
  for (int r = 0; r < before.ranks(); ++r)
    for (int e = 0; e < before.experts(); ++e)
      dropped += std::max(std::int64_t{0}, before.count(r, e) - after.count(r, e));
  return dropped;
}

FixedCapacity::FixedCapacity(const MoeLayer& layer, std::int64_t rows_per_expert)
    : sizes(layer),
      C(rows_per_expert),
      rows(checked_product("dispatcher: rows of its fixed capacity", {sizes.E, C, sizes.w}) / sizes.w) {
  LayerSizes& f = sizes;
  f.sent.assign(f.sent.size(), rows);
  f.arrived = f.sent;
  f.computed = f.sent;
  f.experts.assign(f.experts.size(), f.ep * C);
  dropped = total_dropped(
      *layer.routing, layer.routing->limited_to(std::vector<std::int64_t>(static_cast<std::size_t>(f.R), C)));
}

std::optional<std::string> FixedCapacity::illegal(const MoeLayer& layer) {
  if (layer.etp > 1) return "it does not split experts over etp where every rank holds its own tokens";
  if (!layer.routing->equal_tokens())
    return "every rank must hold the same number of tokens: all must agree on the capacity";
  return std::nullopt;
}

std::int64_t FixedCapacity::largest_count(const Routing& routing) {
  std::int64_t most = 0;
  for (int r = 0; r < routing.ranks(); ++r)
    for (const std::int64_t n : routing.counts(r)) most = std::max(most, n);
  return most;
}

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
