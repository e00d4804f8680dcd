#include "models/routing/expert_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"

namespace moesim::models {

ExpertPlacement balanced_placement(const std::vector<std::int64_t>& totals, int ranks, int slots) {
  const auto experts = static_cast<int>(totals.size());
  if (ranks < 1 || slots < experts || slots % ranks != 0 || slots > kMostSlots)
    throw InputError(
        fmt::format("placement: found {} slots on {} ranks for {} experts, expected a multiple of the ranks, "
                    "at least a slot per expert and at most {}",
                    slots, ranks, experts, kMostSlots));
  std::vector<int> replicas(totals.size(), 1);
  // Second copies come after all first ones, so that copies of equal load go to different ranks.
  std::vector<std::int32_t> copies(totals.size());
  std::iota(copies.begin(), copies.end(), 0);
  const auto load = [&](std::size_t e) { return static_cast<double>(totals[e]) / replicas[e]; };
  for (int extra = experts; extra < slots; ++extra) {
    std::size_t heaviest = 0;
    for (std::size_t e = 1; e < totals.size(); ++e)
      if (load(e) > load(heaviest)) heaviest = e;
    ++replicas[heaviest];
    copies.push_back(static_cast<std::int32_t>(heaviest));
  }
  std::stable_sort(copies.begin(), copies.end(),
                   [&](std::int32_t a, std::int32_t b) { return load(a) > load(b); });
  const int per_rank = slots / ranks;
  std::vector<std::vector<std::int32_t>> held(static_cast<std::size_t>(ranks));
  std::vector<double> carried(static_cast<std::size_t>(ranks), 0);
  for (const std::int32_t e : copies) {
    std::size_t best = held.size();
    for (std::size_t r = 0; r < held.size(); ++r)
      if (static_cast<int>(held[r].size()) < per_rank && (best == held.size() || carried[r] < carried[best]))
        best = r;
    held[best].push_back(e);
    carried[best] += load(static_cast<std::size_t>(e));
  }
  ExpertPlacement placement;
  for (const auto& rank : held)
    placement.expert_of.insert(placement.expert_of.end(), rank.begin(), rank.end());
  return placement;
}

ExpertPlacement hierarchical_placement(const std::vector<std::int64_t>& totals, int ranks, int slots,
                                       int groups, int nodes) {
  const auto experts = static_cast<int>(totals.size());
  if (nodes <= 1 || groups < nodes || groups % nodes != 0 || experts % groups != 0 || ranks % nodes != 0 ||
      slots % ranks != 0)
    return balanced_placement(totals, ranks, slots);
  const auto size = static_cast<std::size_t>(experts / groups),
             at_most = static_cast<std::size_t>(groups / nodes);
  std::vector<std::int64_t> load(static_cast<std::size_t>(groups), 0);
  for (std::size_t e = 0; e < totals.size(); ++e) load[e / size] += totals[e];
  std::vector<std::size_t> order(load.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return load[a] > load[b]; });
  std::vector<std::vector<std::size_t>> held(static_cast<std::size_t>(nodes));
  std::vector<std::int64_t> carried(held.size(), 0);
  for (const std::size_t group : order) {
    std::size_t best = held.size();
    for (std::size_t m = 0; m < held.size(); ++m)
      if (held[m].size() < at_most && (best == held.size() || carried[m] < carried[best])) best = m;
    held[best].push_back(group);
    carried[best] += load[group];
  }
  ExpertPlacement placement;
  for (const std::vector<std::size_t>& node : held) {
    std::vector<std::int32_t> own;
    std::vector<std::int64_t> rows;
    for (const std::size_t group : node)
      for (std::size_t e = group * size; e < (group + 1) * size; ++e) {
        own.push_back(static_cast<std::int32_t>(e));
        rows.push_back(totals[e]);
      }
    for (const std::int32_t e : balanced_placement(rows, ranks / nodes, slots / nodes).expert_of)
      placement.expert_of.push_back(own[static_cast<std::size_t>(e)]);
  }
  return placement;
}

PlacementSpec PlacementSpec::parse(const std::string& text) {
  PlacementSpec spec;
  spec.text = text;
  const std::vector<std::string_view> parts = split(text, ':');
  const std::string_view name = trim(parts.front());
  if (name != "balanced")
    throw InputError(
        fmt::format("placement: found {}, expected balanced or balanced:slots=N", in_quotes(name)));
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string_view part = trim(parts[i]);
    constexpr std::string_view kSlots = "slots=";
    const std::string_view number = part.substr(std::min(part.size(), kSlots.size()));
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), spec.slots);
    if (part.substr(0, kSlots.size()) != kSlots || error != std::errc() ||
        end != number.data() + number.size() || spec.slots < 1 || spec.slots > kMostSlots)
      throw InputError(
          fmt::format("placement: found {}, expected slots=N, from 1 to {}", in_quotes(part), kMostSlots));
  }
  return spec;
}

PlacementSpec PlacementSpec::parse(const JsonNode& node) {
  if (!node.is_array()) {
    try {
      return parse(node.string());
    } catch (const InputError& error) {
      if (!error.place().file.empty()) throw;
      throw InputError(node.place(), error.what());
    }
  }
  PlacementSpec spec;
  for (const std::int64_t e : node.integers(0, (1 << 20) - 1))
    spec.expert_of.push_back(static_cast<std::int32_t>(e));
  if (spec.expert_of.empty()) node.fail("an empty list", "the expert of each slot");
  spec.slots = static_cast<std::int64_t>(spec.expert_of.size());
  spec.text = fmt::format("list of {} slots", spec.slots);
  return spec;
}

ExpertPlacement PlacementSpec::make(const Routing& routing, int ranks) const {
  const int wanted = slots > 0 ? static_cast<int>(slots) : routing.experts();
  if (expert_of.empty()) return balanced_placement(routing.expert_totals(), ranks, wanted);
  if (wanted % ranks != 0)
    throw InputError(fmt::format(
        "placement: found {} slots, expected a multiple of the {} expert-parallel ranks", wanted, ranks));
  return ExpertPlacement{expert_of};
}

Routing placed(const Routing& routing, const ExpertPlacement& placement) {
  const auto slots = static_cast<int>(placement.expert_of.size());
  std::vector<std::vector<std::int32_t>> slots_of(static_cast<std::size_t>(routing.experts()));
  for (std::int32_t s = 0; s < slots; ++s) {
    const std::int32_t e = placement.expert_of[static_cast<std::size_t>(s)];
    if (e < 0 || e >= routing.experts())
      throw InputError(fmt::format("placement: found expert {} in slot {}, expected 0 to {}", e, s,
                                   routing.experts() - 1));
    slots_of[static_cast<std::size_t>(e)].push_back(s);
  }
  for (std::size_t e = 0; e < slots_of.size(); ++e)
    if (slots_of[e].empty())
      throw InputError(fmt::format("placement: found no slot for expert {}, expected at least one", e));
  if (routing.has_choices()) {
    std::vector<std::vector<std::int32_t>> choices;
    for (int r = 0; r < routing.ranks(); ++r) {
      std::vector<std::size_t> turn(slots_of.size(), static_cast<std::size_t>(r));
      std::vector<std::int32_t> mapped(routing.choices(r).begin(), routing.choices(r).end());
      for (std::int32_t& e : mapped) {
        if (e < 0) continue;
        const auto& own = slots_of[static_cast<std::size_t>(e)];
        e = own[turn[static_cast<std::size_t>(e)]++ % own.size()];
      }
      choices.push_back(std::move(mapped));
    }
    return Routing::from_choices(slots, routing.topk(), std::move(choices));
  }
  std::vector<std::int64_t> tokens, counts(static_cast<std::size_t>(routing.ranks()) * slots, 0);
  for (int r = 0; r < routing.ranks(); ++r) {
    tokens.push_back(routing.tokens(r));
    for (int e = 0; e < routing.experts(); ++e) {
      const auto& own = slots_of[static_cast<std::size_t>(e)];
      const auto n = static_cast<std::int64_t>(own.size()), rows = routing.count(r, e);
      for (std::int64_t i = 0; i < n; ++i)
        counts[static_cast<std::size_t>(r) * slots + own[static_cast<std::size_t>((i + r) % n)]] +=
            rows / n + (i < rows % n ? 1 : 0);
    }
  }
  return Routing::from_counts(routing.ranks(), slots, routing.topk(), std::move(tokens), std::move(counts));
}

}  // namespace moesim::models
