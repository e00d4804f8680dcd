#include "calibration/rows/row_laws.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>

#include "base/input_error.h"
#include "base/random.h"
#include "base/text.h"
#include "calibration/rows/devices.h"

namespace moesim::calibration {
namespace {

using Counts = std::vector<std::int64_t>;

Counts balanced(const FfnRow& row) {
  const std::int64_t experts = row.experts, tokens = row.tokens, topk = row.topk;
  const std::int64_t stride = (experts + topk - 1) / topk;
  Counts counts(static_cast<std::size_t>(experts), 0);
  // Every `experts` consecutive tokens load all experts equally.
  const std::int64_t turns = tokens >= stride ? tokens / experts : 0;
  std::fill(counts.begin(), counts.end(), turns * topk);
  for (std::int64_t t = turns * experts; t < tokens; ++t)
    for (std::int64_t i = 0; i < topk; ++i) {
      const std::int64_t first = tokens >= stride ? t : t * stride / tokens;
      ++counts[static_cast<std::size_t>((first + i * stride) % experts)];
    }
  return counts;
}

double power_law(double u, double alpha, double low, double high) {
  const double a = std::pow(low, 1 - alpha), b = std::pow(high, 1 - alpha);
  return std::pow((b - a) * u + a, 1 / (1 - alpha));
}

Counts drawn(const FfnRow& row, double alpha, Random& random) {
  const auto n = static_cast<std::size_t>(row.experts);
  const double tokens = static_cast<double>(row.tokens);
  const double target = tokens * row.topk;
  const bool many = target > row.experts;
  std::vector<double> weight(n);
  for (double& w : weight)
    w = many ? power_law(random.uniform(), alpha, 1, std::max(tokens * 0.8, 1.0))
             : power_law(random.uniform(), alpha, 0.01, 2);
  const double sum = std::accumulate(weight.begin(), weight.end(), 0.0);
  Counts counts(n);
  for (std::size_t e = 0; e < n; ++e)
    counts[e] = std::min(static_cast<std::int64_t>(std::llround(weight[e] / sum * target)),
                         static_cast<std::int64_t>(row.tokens));
  // The remainder after cap and rounding goes to the fullest experts below the cap.
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return counts[a] != counts[b] ? counts[a] > counts[b] : a < b;
  });
  std::int64_t missing =
      row.tokens * row.topk - std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  for (const std::size_t e : order) {
    const std::int64_t change = missing > 0 ? std::min(missing, row.tokens - counts[e]) : 0;
    counts[e] += change;
    missing -= change;
  }
  for (auto e = order.rbegin(); e != order.rend() && missing < 0; ++e) {
    const std::int64_t change = std::min(-missing, counts[*e]);
    counts[*e] -= change;
    missing += change;
  }
  return counts;
}

// Returns the local experts of the EP rank with most rows (the first one of a tie).
Counts heaviest(const Counts& counts, int ep) {
  const std::size_t local = counts.size() / static_cast<std::size_t>(ep);
  std::size_t best = 0;
  std::int64_t most = -1;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ep); ++rank) {
    const auto begin = counts.begin() + static_cast<std::ptrdiff_t>(rank * local);
    const std::int64_t rows =
        std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(local), std::int64_t{0});
    if (rows > most) {
      most = rows;
      best = rank;
    }
  }
  const auto begin = counts.begin() + static_cast<std::ptrdiff_t>(best * local);
  return {begin, begin + static_cast<std::ptrdiff_t>(local)};
}

}  // namespace

models::DType dtype_of(const std::string& text) {
  return models::dtype_named(text.substr(0, text.find(' ')));
}

bool known_dtype(const std::string& text) {
  try {
    dtype_of(text);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

std::string collective_key(sim::CollectiveOp op, bool network) {
  return "collective/" + std::string(sim::name(op)) + (network ? "/network" : "/scaleup");
}

bool integer_reduction(const CollectiveRow& row) {
  return (row.op == sim::CollectiveOp::all_reduce || row.op == sim::CollectiveOp::reduce_scatter) &&
         row.datatype.starts_with("int");
}

double call_bytes(const CollectiveRow& row) {
  const bool piece = row.op == sim::CollectiveOp::all_gather || row.op == sim::CollectiveOp::reduce_scatter;
  return piece ? row.bytes / row.ranks() : row.bytes;
}

std::string sources_of(const std::set<std::string>& sources, std::size_t most, bool whole) {
  std::vector<std::string> list;
  for (const std::string& source : sources)
    if (list.size() < most) list.push_back(whole ? source : source.substr(0, source.find(',')));
  if (sources.size() > most) list.push_back(std::to_string(sources.size() - most) + " more");
  return join(list, "; ");
}

bool inside_domain(const CollectiveRow& row, const models::Profile& profile) {
  return !shape_of(row, profile.device()).across_domains();
}

models::GroupShape shape_of(const CollectiveRow& row, const models::DeviceLimits& device) {
  if (row.nodes == 1) return models::GroupShape::uniform(1, row.ranks());
  if (device.scaleup_domain <= device.gpus_per_node)
    return models::GroupShape::uniform(row.nodes, row.gpus_per_node);
  int racks = (row.ranks() + device.scaleup_domain - 1) / device.scaleup_domain;
  while (row.nodes % racks != 0) ++racks;
  models::GroupShape shape = models::GroupShape::uniform(racks, row.ranks() / racks);
  shape.nodes = row.nodes;
  shape.max_per_node = row.gpus_per_node;
  return shape;
}

std::vector<CollectiveRow> fastest_algorithms(const std::vector<CollectiveRow>& rows) {
  std::map<std::tuple<std::string, int, int, double>, CollectiveRow> forced;
  std::vector<CollectiveRow> result;
  for (const CollectiveRow& row : rows) {
    const auto at = row.origin.source.find("; algorithm ");
    if (at == std::string::npos) {
      result.push_back(row);
      continue;
    }
    const std::tuple key(row.origin.source.substr(0, at), row.nodes, row.gpus_per_node, row.bytes);
    const auto [entry, added] = forced.try_emplace(key, row);
    if (!added && row.seconds < entry->second.seconds) entry->second = row;
  }
  for (const auto& [key, row] : forced) result.push_back(row);
  return result;
}

std::vector<std::string> law_keys(const CollectiveRow& row, bool network) {
  const std::string key = collective_key(row.op, network);
  if (network) {
    const Machine* machine = machine_of(row.origin);
    if (machine) return {key + "@" + std::string(machine->name), key};
    return {key};
  }
  if (integer_reduction(row))
    return {key + "@" + row.library + ",int", key + "@int", key + "@" + row.library, key};
  return {key + "@" + row.library, key};
}

std::vector<std::string> law_keys(const GemmRow& row) {
  const std::string key = "gemm/" + std::string(models::name_of(dtype_of(row.dtype)));
  if (row.sustained) return {key + "@sustained", key};
  return {key + "@" + row.kernel, key};
}

std::vector<std::string> law_keys(const FfnRow& row) {
  const std::string key = "ffn/" + std::string(models::name_of(dtype_of(row.dtype)));
  return {key + "@" + row.kernel, key};
}

models::GemmPass pass_of(const GroupedGemmRow& row) {
  const auto has = [&](std::string_view word) { return row.kind.find(word) != std::string::npos; };
  return has("wgrad")   ? models::GemmPass::kWgrad
         : has("dgrad") ? models::GemmPass::kDgrad
                        : models::GemmPass::kForward;
}

models::GemmBackend backend_of(const GroupedGemmRow& row) {
  return row.kind.starts_with("loop")      ? models::GemmBackend::kLoop
         : row.kind.starts_with("batched") ? models::GemmBackend::kBatched
                                           : models::GemmBackend::kGrouped;
}

std::string grouped_law_key(const GroupedGemmRow& row) {
  return (backend_of(row) == models::GemmBackend::kGrouped ? "grouped_gemm/" : "gemm/") +
         std::string(models::name_of(dtype_of(row.dtype)));
}

std::vector<std::int64_t> experts_of(const GroupedGemmRow& row) {
  const auto mean = static_cast<std::int64_t>(row.m_per_group);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(row.groups), mean);
  if (!row.kind.ends_with(" half")) return rows;
  std::int64_t left = row.groups * mean;
  for (std::int64_t& one : rows) {
    one = left / 2;
    left -= one;
  }
  rows.front() += left;
  return rows;
}

std::vector<Counts> expert_rows(const FfnRow& row) {
  if (row.routing == "balanced") return {heaviest(balanced(row), row.ep)};
  constexpr std::string_view kPrefix = "power_law_";
  const auto alpha = row.routing.starts_with(kPrefix)
                         ? parse_number(std::string_view(row.routing).substr(kPrefix.size()))
                         : std::nullopt;
  if (!alpha || *alpha <= 0 || *alpha == 1)
    throw InputError(row.origin.place, "the routing " + in_quotes(row.routing),
                     "balanced or power_law_<exponent>");
  Random random = Random::for_item(
      static_cast<std::uint64_t>(row.tokens) * 1315423911u + static_cast<std::uint64_t>(row.experts),
      static_cast<std::uint64_t>(row.ep) * 64 + static_cast<std::uint64_t>(row.topk));
  std::vector<Counts> result;
  result.reserve(kRoutingDraws);
  for (int i = 0; i < kRoutingDraws; ++i) result.push_back(heaviest(drawn(row, *alpha, random), row.ep));
  return result;
}

models::FfnShape ffn_shape(const FfnRow& row, const std::vector<Counts>& draws) {
  models::FfnShape shape{row.tokens, row.hidden, std::max(row.inter / row.tp, 1), row.topk, 0};
  for (const Counts& rows : draws) {
    const std::int64_t local = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    shape.remote_rows += static_cast<double>(std::min(local, row.tokens) * row.topk - local);
  }
  shape.remote_rows = row.ep > 1 ? std::max(shape.remote_rows, 0.0) / static_cast<double>(draws.size()) : 0;
  return shape;
}

}  // namespace moesim::calibration
