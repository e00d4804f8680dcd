#include "models/workload/parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/input_error.h"
#include "base/text.h"

namespace moesim::models {

namespace {

constexpr std::int64_t kMaxRanks = std::int64_t{1} << 31;

// Returns the product, or throws once it exceeds the largest number of ranks.
std::int64_t product(std::initializer_list<std::int64_t> sizes) {
  std::int64_t p = 1;
  for (const std::int64_t s : sizes) {
    if (s > kMaxRanks / p)
      throw InputError("parallel: found sizes whose product exceeds 2^31, expected fewer ranks");
    p *= s;
  }
  return p;
}

}  // namespace

void Parallel::validate(std::int64_t experts) const {
  const std::array<std::pair<const char*, std::int64_t>, 10> sizes{{{"tp", tp},
                                                                    {"cp", cp},
                                                                    {"ep", ep},
                                                                    {"etp", etp},
                                                                    {"dp", dp},
                                                                    {"pp", pp},
                                                                    {"vpp", vpp},
                                                                    {"microbatches", microbatches},
                                                                    {"micro_batch", micro_batch},
                                                                    {"seq", seq}}};
  for (const auto& [name, size] : sizes)
    if (size < 1 || size > kMaxRanks)
      throw InputError(fmt::format("parallel.{}: found {}, expected 1 to 2^31", name, size));
  const std::int64_t stage = product({tp, cp, dp});
  product({stage, pp});
  const std::int64_t group = product({etp, ep});
  if (micro_batch > (std::int64_t{1} << 40) / seq)
    throw InputError(fmt::format("parallel: found micro_batch {} x seq {}, expected at most 2^40 tokens",
                                 micro_batch, seq));
  if (stage % group != 0)
    throw InputError(
        fmt::format("parallel: found etp {} x ep {} = {}, expected a divisor of tp x cp x dp = {} (ranks of "
                    "one pipeline stage)",
                    etp, ep, group, stage));
  if (experts % ep != 0 && ep % experts != 0)
    throw InputError(fmt::format(
        "parallel.ep: found {}, expected a divisor (or, for MegaBlocks, a multiple) of the {} experts", ep,
        experts));
}

RankGrid RankGrid::fastest_first(std::vector<Axis> axes) {
  RankGrid grid;
  grid.axes_ = std::move(axes);
  std::int64_t size = 1;
  for (const Axis& axis : grid.axes_) {
    if (axis.size < 1 || axis.size > kMaxRanks / size)
      throw InputError(
          fmt::format("rank grid: found size {} of axis {}, expected at least 1 and at most 2^31 ranks",
                      axis.size, in_quotes(axis.name)));
    size *= axis.size;
  }
  return grid;
}

RankGrid RankGrid::fastest_last(std::vector<Axis> axes) {
  std::reverse(axes.begin(), axes.end());
  return fastest_first(std::move(axes));
}

std::int64_t RankGrid::size() const {
  std::int64_t size = 1;
  for (const Axis& axis : axes_) size *= axis.size;
  return size;
}

namespace {

// Marks the `axes` named in the dash-separated list.
std::vector<char> chosen_axes(std::span<const Axis> axes, std::string_view list) {
  std::vector<char> chosen(axes.size(), 0);
  for (const std::string_view name : split(list, '-')) {
    const auto axis = std::find_if(axes.begin(), axes.end(), [&](const Axis& a) { return a.name == name; });
    if (axis == axes.end()) {
      std::vector<std::string> known;
      for (const Axis& a : axes) known.push_back(a.name);
      throw InputError(
          fmt::format("rank grid: found axis {}, expected one of {}", in_quotes(name), join(known, ", ")));
    }
    chosen[axis - axes.begin()] = 1;
  }
  return chosen;
}

// Ranks reached by moving along the axes with the given mark from `base`, in grid order.
std::vector<std::int32_t> span_of(std::span<const Axis> axes, const std::vector<char>& chosen, char mark,
                                  std::int64_t base) {
  std::vector<std::int32_t> ranks{static_cast<std::int32_t>(base)};
  std::int64_t stride = 1;
  for (std::size_t a = 0; a < axes.size(); stride *= axes[a].size, ++a) {
    if (chosen[a] != mark) continue;
    const std::size_t before = ranks.size();
    for (std::int64_t i = 1; i < axes[a].size; ++i)
      for (std::size_t r = 0; r < before; ++r)
        ranks.push_back(static_cast<std::int32_t>(ranks[r] + i * stride));
  }
  return ranks;
}

}  // namespace

std::vector<std::vector<std::int32_t>> RankGrid::groups(std::string_view list) const {
  const std::vector<char> chosen = chosen_axes(axes_, list);
  std::vector<std::int32_t> bases = span_of(axes_, chosen, 0, 0);
  std::sort(bases.begin(), bases.end());
  std::vector<std::vector<std::int32_t>> groups;
  groups.reserve(bases.size());
  for (const std::int32_t base : bases) groups.push_back(span_of(axes_, chosen, 1, base));
  return groups;
}

std::vector<std::int32_t> RankGrid::group_of(std::int64_t rank, std::string_view list) const {
  const std::vector<char> chosen = chosen_axes(axes_, list);
  std::int64_t base = 0, stride = 1;
  for (std::size_t a = 0; a < axes_.size(); stride *= axes_[a].size, ++a)
    if (!chosen[a]) base += rank / stride % axes_[a].size * stride;
  return span_of(axes_, chosen, 1, base);
}

}  // namespace moesim::models
