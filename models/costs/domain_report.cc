#include "models/costs/domain_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "base/text.h"
#include "base/units.h"

namespace moesim::models {

namespace {

constexpr double kLeastShare = 0.01;
constexpr double kNear = 0.1;  // octaves: 7 % beyond a range does not count as extrapolation

}  // namespace

double octaves_outside(const DomainRange& range, double value) {
  if (value <= 0) return 0;
  if (value < range.low) return std::log2(range.low / value);
  if (value > range.high) return std::log2(value / range.high);
  return 0;
}

OutsideDomain OutsideDomain::derived(std::string price, const std::string& source) {
  OutsideDomain outside;
  outside.price = std::move(price);
  outside.why = source.starts_with("derived") ? "is " + source : "is derived (" + source + ")";
  outside.drawn = true;
  return outside;
}

std::string OutsideDomain::text() const {
  if (!why.empty()) return one_line(price + " " + why);
  const bool bytes = measured.quantity == "bytes";
  const auto text = [&](double one) { return bytes ? format_bytes(one) : fmt::format("{:.0f}", one); };
  // Formats "16 ranks", but "n = 128".
  const std::string what = bytes ? text(value)
                           : measured.quantity.size() == 1
                               ? fmt::format("{} = {}", measured.quantity, text(value))
                               : fmt::format("{} {}", text(value), measured.quantity);
  return one_line(fmt::format("{} extrapolates to {} (measured {} to {})", price, what, text(measured.low),
                              text(measured.high)));
}

void FarthestOutside::try_range(const DomainRange* range, double value) {
  if (!range) return;
  const double octaves = octaves_outside(*range, value);
  if (octaves <= std::max(octaves_, kNear)) return;
  range_ = *range;
  value_ = value;
  octaves_ = octaves;
}

std::optional<OutsideDomain> FarthestOutside::of(std::string price) const {
  if (octaves_ <= 0) return std::nullopt;
  OutsideDomain outside;
  outside.price = std::move(price);
  outside.measured = range_;
  outside.value = value_;
  return outside;
}

void DomainReport::add(double seconds, const std::optional<OutsideDomain>& outside) {
  total_ += seconds;
  if (!outside) return;
  outside_ += seconds;
  const auto same = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return e.longest.price == outside->price && e.longest.why == outside->why &&
           e.longest.measured.quantity == outside->measured.quantity;
  });
  if (same == entries_.end()) {
    entries_.push_back({*outside, seconds, seconds});
    return;
  }
  same->seconds += seconds;
  if (seconds > same->longest_seconds) {
    same->longest = *outside;
    same->longest_seconds = seconds;
  }
}

std::vector<std::string> DomainReport::lines() const {
  std::vector<const Entry*> longest_first;
  for (const Entry& entry : entries_)
    if (entry.seconds >= kLeastShare * total_) longest_first.push_back(&entry);
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [](const Entry* a, const Entry* b) { return a->seconds > b->seconds; });
  std::vector<std::string> all;
  all.reserve(longest_first.size());
  for (const Entry* entry : longest_first) all.push_back(entry->longest.text());
  return all;
}

std::vector<DomainReport::Unmeasured> DomainReport::unmeasured() const {
  std::vector<Unmeasured> all;
  for (const Entry& entry : entries_)
    if (!entry.longest.why.empty() && (entry.longest.exchange || entry.seconds >= kLeastShare * total_))
      all.push_back({entry.longest.text(), entry.seconds / total_, entry.longest.drawn,
                     entry.longest.exchange, entry.longest.no_rows});
  return all;
}

double unmeasured_factor(std::string_view part, std::size_t d, double sigma) {
  // The seed is the part's name (FNV-1a).
  std::uint64_t seed = 0xcbf29ce484222325;
  for (const char c : part) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return std::exp(sigma * Random::for_item(seed, d).normal());
}

constexpr double kLeastOfDraw = 0.05;

void doubt_unmeasured(std::span<const DomainReport::Unmeasured> parts, double us,
                      std::vector<double>& draws_us, double sigma) {
  for (const DomainReport::Unmeasured& one : parts) {
    if (one.drawn) continue;
    // Several parts that get much faster at once leave a positive time.
    for (std::size_t d = 0; d < draws_us.size(); ++d) {
      const double factor = unmeasured_factor(one.part, d, sigma);
      draws_us[d] = std::max(draws_us[d] + us * one.share * (factor - 1), kLeastOfDraw * draws_us[d]);
    }
  }
}

}  // namespace moesim::models
