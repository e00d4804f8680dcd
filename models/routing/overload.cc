#include "models/routing/overload.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/input_error.h"

namespace moesim::models {

namespace {

constexpr double kEpsilon = 1e-8;

// Returns the divisor of this entry's balanced count in the log.
double divisor(const OverloadEntry& entry, const OverloadOptions& options) {
  const double quirk = options.allgather_quirk ? static_cast<double>(entry.actual.size()) : 1;
  return quirk * static_cast<double>(options.etp);
}

}  // namespace

double overload_factor(const OverloadEntry& entry, const OverloadOptions& options) {
  check(!entry.actual.empty() && entry.actual.size() == entry.balanced.size(),
        "an entry has both counts per rank");
  const auto R = static_cast<double>(entry.actual.size());
  double balanced = 0;
  for (const std::int64_t u : entry.balanced) balanced += static_cast<double>(u);
  balanced /= divisor(entry, options);
  const auto busiest = static_cast<double>(*std::max_element(entry.actual.begin(), entry.actual.end()));
  return busiest / (balanced / R + kEpsilon);
}

std::vector<Overload> overload_of(std::span<const OverloadStage> stages, const OverloadOptions& options) {
  std::vector<Overload> result(stages.size());
  Overload highest;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const OverloadStage& stage = stages[s];
    const std::size_t entries = stage.replicas.empty() ? 0 : stage.replicas.front().size();
    for (const auto& replica : stage.replicas)
      if (replica.size() != entries)
        throw InputError(
            fmt::format("overload: found {} and {} entries on replicas of one stage, expected the same",
                        entries, replica.size()));
    for (std::size_t x = 0; x < entries; ++x) {
      double sum = 0, most = 0;
      for (const auto& replica : stage.replicas) {
        const double f = overload_factor(replica[x], options);
        sum += f;
        most = std::max(most, f);
      }
      result[s].avg += sum / static_cast<double>(stage.replicas.size()) / static_cast<double>(entries);
      highest.max = std::max(highest.max, most);
    }
    for (const auto& replica : stage.replicas) {
      if (entries == 0) break;
      for (std::size_t r = 0; r < replica.front().actual.size(); ++r) {
        std::int64_t actual = 0, balanced = 0, actual_peak = 0, balanced_peak = 0;
        for (const OverloadEvent& event : stage.order) {
          if (event.entry < 0 || static_cast<std::size_t>(event.entry) >= entries)
            throw InputError(fmt::format("overload: found an event of entry {}, expected 0 to {}",
                                         event.entry, entries - 1));
          const OverloadEntry& x = replica[event.entry];
          actual += event.forward ? x.actual[r] : -x.actual[r];
          balanced += event.forward ? x.balanced[r] : -x.balanced[r];
          actual_peak = std::max(actual_peak, actual);
          balanced_peak = std::max(balanced_peak, balanced);
        }
        if (balanced_peak > 0)
          highest.max_cum = std::max(
              highest.max_cum,
              static_cast<double>(actual_peak) /
                  (static_cast<double>(balanced_peak) / divisor(replica.front(), options) + kEpsilon));
      }
    }
  }
  for (Overload& stage : result) stage.max = highest.max, stage.max_cum = highest.max_cum;
  return result;
}

Overload overload_of(const OverloadEntry& entry, const OverloadOptions& options) {
  const OverloadStage stage{{{entry}}, {{0, true}, {0, false}}};
  return overload_of({&stage, 1}, options).front();
}

std::int64_t balanced_peak(const OverloadStage& stage) {
  if (stage.replicas.empty() || stage.replicas.front().empty()) return 0;
  std::int64_t most = 0;
  for (std::size_t r = 0; r < stage.replicas.front().front().balanced.size(); ++r) {
    std::int64_t held = 0;
    for (const OverloadEvent& event : stage.order) {
      const std::int64_t rows = stage.replicas.front()[static_cast<std::size_t>(event.entry)].balanced[r];
      most = std::max(most, held += event.forward ? rows : -rows);
    }
  }
  return most;
}

OverloadBuffers buffers_from(const Overload& overload, double balanced_rows, double balanced_peak_rows) {
  return {overload.max * balanced_rows, overload.max_cum * balanced_peak_rows};
}

}  // namespace moesim::models
