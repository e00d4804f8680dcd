#include "traces/dispatching.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/text.h"

namespace moesim::traces {
namespace {

constexpr std::int64_t kMaxLayer = 99'999;
constexpr std::int64_t kMaxMicrobatch = 999'999;

// Reads the parts of one table and compares them: a row of the matrix may come from per_rank_results, from
// num_global_tokens_per_expert and from the top-k indices, and all must agree.
constexpr const char *kOwnKey = "per_rank_results", *kRecordersKey = "per_rank_dispatching_results";

class TableReader {
 public:
  // `imitated`: the EP rank imitated by a recorder in scaling mode, if known.
  TableReader(std::int64_t ep, std::int64_t experts, std::optional<std::int64_t> imitated)
      : ep_(ep), experts_(experts), local_(experts / ep), imitated_(imitated) {}

  // `object` contains the table's keys among others; returns nullopt when it has none of them.
  std::optional<DispatchingTable> read(JsonObject& object) {
    auto per_rank = object.find(kOwnKey);
    const auto recorded = object.find(kRecordersKey);
    if (per_rank && recorded) recorded->fail("both " + std::string(kOwnKey) + " and this", "one of them");
    if (recorded) per_rank = recorded;
    const auto global = object.find("num_global_tokens_per_expert");
    const auto indices = object.find("topk_indices");
    if (!per_rank && !global && !indices) return std::nullopt;
    sent_.resize(size(ep_));
    received_.resize(size(ep_));
    topk_.resize(size(ep_));
    if (per_rank) read_per_rank(*per_rank);
    if (global) read_global(*global);
    if (indices) {
      for (const auto& [rank, node] : by_rank(*indices)) take_indices(rank, node);
    }
    const auto doubt = object.find("not_representative");
    DispatchingTable table = combine(object.node());
    if (doubt) table.not_representative = doubt->string();
    if (const auto missing = object.find("missing")) table.missing = missing->integers(0, ep_ - 1);
    return table;
  }

 private:
  struct Counts {
    std::optional<JsonNode> node;  // first place of the values, for messages
    std::vector<std::int64_t> values;
    bool empty() const { return !node; }
  };

  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

  // Returns the values of an object whose keys are EP ranks.
  std::vector<std::pair<std::int64_t, JsonNode>> by_rank(const JsonNode& node) const {
    std::vector<std::pair<std::int64_t, JsonNode>> out;
    for (const std::string& key : node.keys()) {
      const std::optional<long long> rank = parse_int(key);
      const JsonNode value = *node.find(key);
      if (!rank || std::to_string(*rank) != key || *rank < 0 || *rank >= ep_)
        throw InputError(value.place(), node.path() + " key " + in_quotes(key),
                         "an EP rank from 0 to " + std::to_string(ep_ - 1));
      out.emplace_back(*rank, value);
    }
    return out;
  }

  std::vector<std::int64_t> counts(const JsonNode& node, std::int64_t length, std::int64_t most) const {
    if (node.is_array() && node.size() != size(length))
      node.fail(std::to_string(node.size()) + " counts", std::to_string(length));
    std::vector<std::int64_t> values = node.integers(0, most);
    return values;
  }

  std::vector<std::int64_t> sent_counts(const JsonNode& node) const {
    std::vector<std::int64_t> values = counts(node, experts_, kMaxRowsPerRank);
    std::int64_t total = 0;
    for (std::int64_t value : values) total += value;
    if (total > kMaxRowsPerRank)
      node.fail(std::to_string(total) + " rows",
                "at most " + std::to_string(kMaxRowsPerRank) + " from one rank");
    return values;
  }

  void read_per_rank(const JsonNode& node) {
    for (const auto& [rank, entry] : by_rank(node)) {
      JsonObject object(entry);
      const auto sent = object.find("num_local_tokens_per_expert");
      const auto received = object.find("tokens_per_local_expert");
      const auto indices = object.find("topk_indices");
      object.finish();
      if (!sent && !received && !indices)
        entry.fail("no counts", "num_local_tokens_per_expert, tokens_per_local_expert or topk_indices");
      if (sent) take_sent(rank, *sent, sent_counts(*sent));
      if (received) received_[size(rank)] = {*received, counts(*received, local_, kMaxRowsPerRank * ep_)};
      if (indices) take_indices(rank, *indices);
    }
  }

  void read_global(const JsonNode& node) {
    const std::vector<JsonNode> rows = node.items();
    if (rows.size() != size(ep_))
      node.fail(std::to_string(rows.size()) + " rows", std::to_string(ep_) + ", one per EP rank");
    for (std::int64_t rank = 0; rank < ep_; ++rank)
      take_sent(rank, rows[size(rank)], sent_counts(rows[size(rank)]));
  }

  void take_indices(std::int64_t rank, const JsonNode& node) {
    const std::vector<JsonNode> tokens = node.items();
    TopkIndices indices;
    indices.tokens = static_cast<std::int64_t>(tokens.size());
    std::vector<std::int64_t> histogram(size(experts_), 0);
    for (const JsonNode& token : tokens) {
      const std::vector<std::int64_t> chosen = token.integers(0, experts_ - 1);
      if (indices.topk == 0) indices.topk = static_cast<std::int64_t>(chosen.size());
      if (chosen.empty() || chosen.size() != size(indices.topk))
        token.fail(
            std::to_string(chosen.size()) + " experts",
            indices.topk == 0 ? "one or more" : std::to_string(indices.topk) + " as for the first token");
      for (std::int64_t expert : chosen) {
        ++histogram[size(expert)];
        indices.experts.push_back(static_cast<std::int32_t>(expert));
      }
    }
    if (topk_[size(rank)] && *topk_[size(rank)] != indices)
      node.fail("top-k indices other than those in per_rank_results", "the same");
    take_sent(rank, node, std::move(histogram));
    topk_[size(rank)] = std::move(indices);
  }

  // Stores the row of `rank`, or compares it with another part of the file.
  void take_sent(std::int64_t rank, const JsonNode& node, std::vector<std::int64_t> row) {
    Counts& known = sent_[size(rank)];
    if (known.empty()) {
      known = {node, std::move(row)};
      return;
    }
    for (std::int64_t expert = 0; expert < experts_; ++expert) {
      const std::int64_t a = row[size(expert)];
      const std::int64_t b = known.values[size(expert)];
      if (a == b) continue;
      node.fail(std::to_string(a) + " rows from rank " + std::to_string(rank) + " to expert " +
                    std::to_string(expert),
                std::to_string(b) + " as " + known.node->path() + " says on line " +
                    std::to_string(known.node->place().line));
    }
  }

  DispatchingTable combine(const JsonNode& node) {
    DispatchingTable table;
    const bool any_sent =
        std::any_of(sent_.begin(), sent_.end(), [](const Counts& row) { return !row.empty(); });
    const bool all_sent =
        std::none_of(sent_.begin(), sent_.end(), [](const Counts& row) { return row.empty(); });
    const bool all_received =
        std::none_of(received_.begin(), received_.end(), [](const Counts& row) { return row.empty(); });
    table.received.assign(size(experts_), 0);
    if (!all_sent && !(all_received && !any_sent)) {
      fall_back(node, table);
      return table;
    }
    if (all_sent) {
      table.sent.reserve(size(ep_ * experts_));
      for (const Counts& row : sent_) {
        table.sent.insert(table.sent.end(), row.values.begin(), row.values.end());
        for (std::size_t expert = 0; expert < size(experts_); ++expert)
          table.received[expert] += row.values[expert];
      }
      for (std::int64_t rank = 0; rank < ep_; ++rank) compare_received(rank, table);
    } else {
      for (std::int64_t rank = 0; rank < ep_; ++rank)
        std::copy(received_[size(rank)].values.begin(), received_[size(rank)].values.end(),
                  table.received.begin() + rank * local_);
    }
    take_topk(node, table);
    return table;
  }

  // Some ranks have no entry. The recorder's fallback is the histogram of the imitated rank's choices,
  // gathered from all ranks, which in scaling mode are that rank's own, repeated: every rank is assumed to
  // route like it. Without a histogram, unknown experts get the average of the others.
  void fall_back(const JsonNode& node, DispatchingTable& table) const {
    const Counts* own = imitated_ && !sent_[size(*imitated_)].empty() ? &sent_[size(*imitated_)] : nullptr;
    for (std::size_t rank = 0; own == nullptr && rank < sent_.size(); ++rank)
      if (!sent_[rank].empty()) own = &sent_[rank];
    std::int64_t known = 0, rows = 0;
    std::vector<std::string> missing;
    for (std::int64_t rank = 0; rank < ep_; ++rank) {
      const Counts& given = received_[size(rank)];
      if (given.empty()) {
        missing.push_back(std::to_string(rank));
        table.missing.push_back(rank);
        continue;
      }
      refuse_own_slice(rank);
      ++known;
      for (std::int64_t e = 0; e < local_; ++e)
        rows += table.received[size(rank * local_ + e)] = given.values[size(e)];
    }
    for (std::int64_t rank = 0; rank < ep_ && (own || known > 0); ++rank) {
      if (!received_[size(rank)].empty()) continue;
      for (std::int64_t e = rank * local_; e < (rank + 1) * local_; ++e) {
        // The remainder of the mean goes to the first experts, so that rows are integers.
        const std::int64_t share = known * local_;
        table.received[size(e)] =
            own ? ep_ * own->values[size(e)] : rows / share + (e % local_ < rows % share ? 1 : 0);
      }
    }
    if (known == 0 && own == nullptr)
      node.fail("no counts of any EP rank", "counts of all " + std::to_string(ep_) + " ranks");
    if (missing.empty()) return;
    table.not_representative =
        fmt::format("no dispatching results of EP rank{} {}: {} is taken; routing not representative",
                    missing.size() == 1 ? "" : "s", join(missing, ", "),
                    own ? "a histogram of one rank's own choices" : "the mean of the other ranks' experts");
  }

  // The rows that a rank sends to its own experts are not the rows that they receive; the two keys are easily
  // confused.
  void refuse_own_slice(std::int64_t rank) const {
    const Counts &given = received_[size(rank)], &sent = sent_[size(rank)];
    if (sent.empty() || ep_ == 1 ||
        std::all_of(given.values.begin(), given.values.end(), [](std::int64_t n) { return n == 0; }))
      return;
    if (std::equal(given.values.begin(), given.values.end(), sent.values.begin() + rank * local_))
      given.node->fail("the rows that rank " + std::to_string(rank) + " sends to its own experts",
                       "the rows that its experts receive from all ranks");
  }

  void compare_received(std::int64_t rank, const DispatchingTable& table) const {
    const Counts& given = received_[size(rank)];
    if (given.empty()) return;
    const auto first = table.received.begin() + rank * local_;
    if (std::equal(given.values.begin(), given.values.end(), first)) return;
    const auto own = sent_[size(rank)].values.begin() + rank * local_;
    if (std::equal(given.values.begin(), given.values.end(), own))
      given.node->fail("the rows that rank " + std::to_string(rank) + " sends to its own experts",
                       "the rows that its experts receive from all ranks, " + std::to_string(*first) +
                           " for expert " + std::to_string(rank * local_));
    const auto at = std::mismatch(given.values.begin(), given.values.end(), first);
    given.node->fail(std::to_string(*at.first) + " rows received by expert " +
                         std::to_string(at.second - table.received.begin()),
                     std::to_string(*at.second) + ", the sum of what the ranks send");
  }

  void take_topk(const JsonNode& node, DispatchingTable& table) {
    const auto given =
        std::count_if(topk_.begin(), topk_.end(), [](const auto& one) { return one.has_value(); });
    if (given == 0) return;
    std::int64_t topk = 0;
    for (std::int64_t rank = 0; rank < ep_; ++rank) {
      std::optional<TopkIndices>& indices = topk_[size(rank)];
      if (!indices)
        node.fail("no top-k indices of EP rank " + std::to_string(rank), "those of all ranks, or of none");
      if (indices->tokens > 0 && topk > 0 && indices->topk != topk)
        node.fail(std::to_string(indices->topk) + " experts per token on EP rank " + std::to_string(rank),
                  std::to_string(topk) + " as on the ranks before");
      if (indices->tokens > 0) topk = indices->topk;
      table.topk.push_back(std::move(*indices));
    }
  }

  std::int64_t ep_;
  std::int64_t experts_;
  std::int64_t local_;
  std::optional<std::int64_t> imitated_;
  std::vector<Counts> sent_;
  std::vector<Counts> received_;
  std::vector<std::optional<TopkIndices>> topk_;
};

auto key_of(const DispatchingEntry& entry) { return std::tie(entry.layer, entry.microbatch); }

// Sizes in the settings of a recorder, under the names of its configuration.
struct Settings {
  std::optional<std::int64_t> ep, experts;
  std::optional<ScalingMode> scaling;
};

void read_settings(JsonObject& object, Settings& out) {
  const auto number = [&](const char* key, std::optional<std::int64_t>& into) {
    if (const auto node = object.find(key)) into = node->integer(1, 1 << 20);
  };
  number("expert_model_parallel_size", out.ep);
  number("num_moe_experts", out.experts);
  ScalingMode scaling;
  std::optional<std::int64_t> tp, fake_tp, pp;
  number("tensor_model_parallel_size", tp);
  number("pipeline_model_parallel_size", pp);
  number("fake_tp", fake_tp);
  number("moe_router_topk", scaling.topk);
  const auto exp_rank = object.find("exp_rank");
  if (exp_rank) scaling.exp_rank = exp_rank->integer(0, (1 << 20) - 1);
  // Settings of the recorder that do not change a routing.
  if (const auto grouped = object.find("moe_grouped_gemm")) grouped->boolean();
  if (const auto dispatcher = object.find("moe_token_dispatcher_type")) dispatcher->string();
  const auto on = object.find("is_scaling_mode");
  if (on && !on->boolean())
    on->fail("false",
             "true: a run that is not in scaling mode counts what its router chose, and uses no "
             "dispatching results");
  if (!on && !fake_tp && !exp_rank && !tp && !scaling.topk) return;
  // In scaling mode the real group has one rank; fake_tp is the relevant size.
  scaling.fake_tp = fake_tp.value_or(on ? 1 : tp.value_or(1));
  out.scaling = scaling;
}

// For a file without sizes: a rank for every key, and as many experts as its lists have.
void sizes_from_lists(const JsonNode& per_rank, Settings& out) {
  const std::vector<std::string> ranks = per_rank.keys();
  if (ranks.empty()) return;
  if (!out.ep) {
    std::int64_t highest = -1;
    for (const std::string& key : ranks)
      highest = std::max<std::int64_t>(highest, parse_int(key).value_or(-1));
    if (highest >= 0 && highest < (1 << 20)) out.ep = highest + 1;
  }
  const JsonNode first = *per_rank.find(ranks.front());
  if (out.experts || !out.ep || !first.is_object()) return;
  if (const auto received = first.find("tokens_per_local_expert"); received && received->is_array())
    out.experts = static_cast<std::int64_t>(received->size()) * *out.ep;
  else if (const auto sent = first.find("num_local_tokens_per_expert"); sent && sent->is_array())
    out.experts = static_cast<std::int64_t>(sent->size());
}

// Reads loads of experts: tables [layers][experts], which are summed, or one list for all layers. Shares
// become integer counts. `dense`: layers of zeros have no experts and are left out.
Dispatching loads_of(const JsonNode& root, const std::vector<std::vector<JsonNode>>& tables, bool dense) {
  Dispatching out;
  out.ep = 1;
  out.loads = true;
  const std::vector<JsonNode>& layers = tables.front();
  if (layers.empty() || std::cmp_greater(layers.size(), kMaxLayer))
    root.fail(std::to_string(layers.size()) + " layers", "loads of experts, [layers][experts]");
  for (std::size_t l = 0; l < layers.size(); ++l) {
    std::vector<double> loads;
    bool whole = true;
    for (const std::vector<JsonNode>& table : tables) {
      if (table.size() != layers.size())
        root.fail(std::to_string(table.size()) + " layers",
                  std::to_string(layers.size()) + " as in the first table");
      const JsonNode& layer = table[l];
      if (!layer.is_array()) layer.fail(layer.describe(), "an array of the loads of a layer's experts");
      const std::vector<JsonNode> items = layer.items();
      if (out.experts == 0) out.experts = static_cast<std::int64_t>(items.size());
      if (items.empty() || std::cmp_not_equal(items.size(), out.experts) || out.experts > kMaxMatrixEntries)
        layer.fail(std::to_string(items.size()) + " loads",
                   std::to_string(out.experts) + " as of the first layer");
      loads.resize(items.size());
      for (std::size_t e = 0; e < items.size(); ++e) {
        loads[e] += items[e].number(0, 9e15);
        whole = whole && items[e].is_integer();
      }
    }
    const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
    if (sum <= 0 && dense) continue;
    if (sum <= 0) layers[l].fail("no load on any expert", "a positive one");
    constexpr double kWhole = 1e9;  // of shares
    DispatchingEntry entry;
    entry.layer = std::ssize(out.entries);
    for (const double load : loads)
      entry.table.received.push_back(std::llround(whole ? load : kWhole * load / sum));
    out.entries.push_back(std::move(entry));
  }
  if (out.entries.empty()) root.fail("no load on any expert", "a positive one");
  return out;
}

Dispatching loads_of(const JsonNode& root) {
  const std::vector<JsonNode> layers = root.items();
  if (layers.empty() || !layers.front().is_number()) return loads_of(root, {layers}, false);
  Dispatching out = loads_of(root, {std::vector<JsonNode>{root}}, false);
  out.entries.front().layer.reset();
  return out;
}

// Reads dumps of SGLang and vLLM: {"logical_count": [layers][experts], or one such table per step}, beside
// statistics of the same counts.
Dispatching logical_counts(JsonObject& object, const JsonNode& counts) {
  for (const std::string& key : object.node().keys())
    if (key == "rank" || key.starts_with("average_utilization_rate")) object.find(key);
  object.finish();
  std::vector<std::vector<JsonNode>> tables;
  for (const JsonNode& step : counts.items()) {
    if (!step.is_array()) step.fail(step.describe(), "counts, [layers][experts]");
    const std::vector<JsonNode> layers = step.items();
    if (layers.empty() || !layers.front().is_array()) return loads_of(counts, {counts.items()}, true);
    tables.push_back(layers);
  }
  if (tables.empty()) counts.fail("no layers", "counts, [layers][experts]");
  return loads_of(counts, tables, true);
}

// Reads what trainers write of a step: {"layer_0": [loads], "layer_1": ...} in any order, or that or a plain
// array under one key. Returns nullopt for another object.
std::optional<Dispatching> loads_by_layer(const JsonNode& root) {
  const std::vector<std::string> keys = root.keys();
  if (keys.empty()) return std::nullopt;
  std::map<std::int64_t, JsonNode> layers;
  for (const std::string& key : keys) {
    const std::size_t digits = key.find_last_not_of("0123456789") + 1;
    const auto layer = parse_int(std::string_view(key).substr(digits));
    const JsonNode value = *root.find(key);
    if (!layer || !value.is_array() || value.size() == 0 || !value.items().front().is_number()) break;
    layers.emplace(*layer, value);
  }
  if (layers.size() == keys.size()) {
    std::vector<JsonNode> table;
    for (const auto& [layer, loads] : layers) table.push_back(loads);
    return loads_of(root, {table}, true);
  }
  constexpr std::array<std::string_view, 5> kOwn{"per_rank_results", "num_global_tokens_per_expert",
                                                 "topk_indices", "tables", kRecordersKey};
  if (keys.size() != 1 || std::ranges::count(kOwn, keys.front()) > 0) return std::nullopt;
  const JsonNode only = *root.find(keys.front());
  if (only.is_object()) return loads_by_layer(only);
  return only.is_array() ? std::optional(loads_of(only)) : std::nullopt;
}

Dispatching dispatching_of(const JsonNode& root) {
  if (root.is_array()) return loads_of(root);
  JsonObject object(root);
  if (const auto counts = object.find("logical_count")) return logical_counts(object, *counts);
  if (auto loads = loads_by_layer(root)) return *loads;
  Dispatching out;
  Settings settings;
  read_settings(object, settings);
  if (const auto config = object.find("config")) {
    JsonObject inside(*config);
    read_settings(inside, settings);
    inside.finish();
  }
  if (const auto recorded = object.find(kRecordersKey)) sizes_from_lists(*recorded, settings);
  if (const auto schema = object.find("schema"); schema && schema->string() != "moesim.dispatching/1")
    schema->fail(schema->describe(), "'moesim.dispatching/1'");
  object.find("about");
  const auto size = [&](const char* key, const std::optional<std::int64_t>& known) {
    const auto given = object.find(key);
    if (!given && known) return *known;
    return object.at(key).integer(1, 1 << 20);
  };
  out.ep = size("ep", settings.ep);
  out.experts = size("experts", settings.experts);
  out.scaling = settings.scaling;
  if (out.experts % out.ep != 0)
    root.fail(std::to_string(out.experts) + " experts", "a multiple of ep = " + std::to_string(out.ep));
  if (out.scaling && out.scaling->exp_rank.value_or(0) >= out.ep)
    root.fail("exp_rank " + std::to_string(*out.scaling->exp_rank),
              "an EP rank below " + std::to_string(out.ep));
  const std::optional<std::int64_t> imitated = out.scaling ? out.scaling->exp_rank : std::nullopt;
  if (out.ep * out.experts > kMaxMatrixEntries)
    root.fail(std::to_string(out.ep) + " ranks x " + std::to_string(out.experts) + " experts",
              "at most 2^26 entries");
  if (auto table = TableReader(out.ep, out.experts, imitated).read(object))
    out.entries.push_back({std::nullopt, std::nullopt, std::move(*table)});
  if (const auto tables = object.find("tables")) {
    for (const JsonNode& item : tables->items()) {
      JsonObject entry(item);
      DispatchingEntry made;
      if (const auto layer = entry.find("layer")) made.layer = layer->integer(0, kMaxLayer);
      if (const auto microbatch = entry.find("microbatch"))
        made.microbatch = microbatch->integer(0, kMaxMicrobatch);
      if (!made.layer && !made.microbatch) item.fail("neither layer nor microbatch", "one or both");
      auto table = TableReader(out.ep, out.experts, imitated).read(entry);
      if (!table)
        item.fail(
            "no counts",
            "per_rank_results, per_rank_dispatching_results, num_global_tokens_per_expert or topk_indices");
      entry.finish();
      made.table = std::move(*table);
      out.entries.push_back(std::move(made));
    }
    std::stable_sort(out.entries.begin(), out.entries.end(),
                     [](const auto& a, const auto& b) { return key_of(a) < key_of(b); });
    const auto twice =
        std::adjacent_find(out.entries.begin(), out.entries.end(),
                           [](const auto& a, const auto& b) { return key_of(a) == key_of(b); });
    if (twice != out.entries.end())
      tables->fail("two tables for layer " + (twice->layer ? std::to_string(*twice->layer) : "any") +
                       ", microbatch " + (twice->microbatch ? std::to_string(*twice->microbatch) : "any"),
                   "one");
  }
  object.finish();
  if (out.entries.empty())
    root.fail("no counts",
              "per_rank_results, per_rank_dispatching_results, num_global_tokens_per_expert, topk_indices or "
              "tables");
  return out;
}

}  // namespace

const DispatchingTable* Dispatching::find(std::int64_t layer, std::int64_t microbatch) const {
  using Key = std::optional<std::int64_t>;
  const std::pair<Key, Key> wanted[] = {
      {layer, microbatch}, {layer, std::nullopt}, {std::nullopt, microbatch}, {std::nullopt, std::nullopt}};
  for (const auto& key : wanted) {
    const auto found = std::lower_bound(entries.begin(), entries.end(), key,
                                        [](const DispatchingEntry& entry, const std::pair<Key, Key>& k) {
                                          return key_of(entry) < std::tie(k.first, k.second);
                                        });
    if (found != entries.end() && key_of(*found) == std::tie(key.first, key.second)) return &found->table;
  }
  return nullptr;
}

Dispatching read_dispatching(const std::filesystem::path& path) {
  if (const auto ending = path.extension(); ending == ".pt" || ending == ".pth")
    throw InputError(SourcePlace{path.string()}, "a file of PyTorch",
                     fmt::format("JSON: python3 -c \"import json, torch; json.dump({{'logical_count': "
                                 "torch.load('{}')['logical_count'].tolist()}}, open('counts.json', 'w'))\"",
                                 path.string()));
  return dispatching_of(JsonNode::read(path));
}

Dispatching parse_dispatching(std::string_view text, const std::string& file) {
  return dispatching_of(JsonNode::parse(text, file));
}

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
  if (!table.missing.empty())
    out += ",\n" + indent + "\"missing\": " + list(std::span<const std::int64_t>(table.missing));
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
