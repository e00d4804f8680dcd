#include <span>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_text.h"
#include "traces/dispatching.h"

namespace moesim::traces {
namespace {

template <typename Number>
std::string list(std::span<const Number> values) {
  std::string out = "[";
  for (std::size_t i = 0; i < values.size(); ++i)
    out.append(i == 0 ? "" : ", ").append(std::to_string(values[i]));
  return out + "]";
}

std::string topk_list(const TopkIndices& indices, const std::string& indent) {
  std::string out = "[";
  const auto topk = static_cast<std::size_t>(indices.topk);
  for (std::size_t token = 0; token < static_cast<std::size_t>(indices.tokens); ++token) {
    out.append(token == 0 ? "\n" : ",\n").append(indent);
    out += list(std::span(indices.experts).subspan(token * topk, topk));
  }
  return out + "]";
}

// One line per rank, so that people can read and compare the file.
std::string per_rank_results(const Dispatching& dispatching, const DispatchingTable& table,
                             const std::string& indent) {
  const auto experts = static_cast<std::size_t>(dispatching.experts);
  const auto ranks = static_cast<std::size_t>(dispatching.ep);
  const std::size_t local = experts / ranks;
  check(table.received.size() == experts && (table.sent.empty() || table.sent.size() == ranks * experts) &&
            (table.topk.empty() || table.topk.size() == ranks),
        "a dispatching table fits its ranks and experts");
  std::string out = indent + "\"per_rank_results\": {";
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    out.append(rank == 0 ? "\n" : ",\n")
        .append(indent)
        .append("  \"")
        .append(std::to_string(rank))
        .append("\": {");
    if (!table.sent.empty())
      out +=
          "\"num_local_tokens_per_expert\": " + list(std::span(table.sent).subspan(rank * experts, experts)) +
          ", ";
    out += "\"tokens_per_local_expert\": " + list(std::span(table.received).subspan(rank * local, local));
    if (!table.topk.empty()) out += ", \"topk_indices\": " + topk_list(table.topk[rank], indent + "    ");
    out += "}";
  }
  out += "}";
  if (!table.not_representative.empty())
    out += ",\n" + indent + "\"not_representative\": " + json_line(table.not_representative);
  return out;
}

// Loads of experts name no ranks: the plain array of the input, one layer per line.
std::string loads(const Dispatching& dispatching) {
  const std::vector<DispatchingEntry>& entries = dispatching.entries;
  check(!entries.empty() && (entries.size() == 1 || entries.front().layer), "loads of layers name them");
  if (!entries.front().layer) return list(std::span(entries.front().table.received)) + "\n";
  std::string out = "[";
  for (const DispatchingEntry& entry : entries) {
    check(entry.layer == &entry - entries.data(), "loads are of every layer");
    out.append(entry.layer == 0 ? "\n" : ",\n").append("  ").append(list(std::span(entry.table.received)));
  }
  return out + "\n]\n";
}

}  // namespace

std::string write_dispatching(const Dispatching& dispatching) {
  if (dispatching.loads) return loads(dispatching);
  std::string out =
      "{\n  \"schema\": \"moesim.dispatching/1\",\n  \"ep\": " + std::to_string(dispatching.ep) +
      ",\n  \"experts\": " + std::to_string(dispatching.experts);
  if (const auto& scaling = dispatching.scaling) {
    out += ",\n  \"config\": {\"is_scaling_mode\": true, \"fake_tp\": " + std::to_string(scaling->fake_tp);
    if (scaling->exp_rank) out += ", \"exp_rank\": " + std::to_string(*scaling->exp_rank);
    if (scaling->topk) out += ", \"moe_router_topk\": " + std::to_string(*scaling->topk);
    out += "}";
  }
  std::string tables;
  for (const DispatchingEntry& entry : dispatching.entries) {
    if (!entry.layer && !entry.microbatch) {
      out += ",\n" + per_rank_results(dispatching, entry.table, "  ");
      continue;
    }
    tables += tables.empty() ? "\n    {" : ",\n    {";
    if (entry.layer) tables += "\"layer\": " + std::to_string(*entry.layer) + ", ";
    if (entry.microbatch) tables += "\"microbatch\": " + std::to_string(*entry.microbatch) + ", ";
    tables += "\n" + per_rank_results(dispatching, entry.table, "      ") + "}";
  }
  if (!tables.empty()) out += ",\n  \"tables\": [" + tables + "]";
  return out + "\n}\n";
}

}  // namespace moesim::traces
