#include "traces/dispatching.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/json_reader.h"
#include "base/text.h"

namespace moesim::traces {
namespace {

constexpr std::int64_t kMaxLayer = 99'999;
constexpr std::int64_t kMaxMicrobatch = 999'999;

// Reads the parts of one table and holds them against each other: every row of the matrix may come from
// per_rank_results, from num_global_tokens_per_expert and from the top-k indices, and all must agree.
class TableReader {
 public:
  TableReader(std::int64_t ep, std::int64_t experts) : ep_(ep), experts_(experts), local_(experts / ep) {}

  // `object` holds the table's keys among others; nullopt when it has none of them.
  std::optional<DispatchingTable> read(JsonObject& object) {
    const auto per_rank = object.find("per_rank_results");
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
    return combine(object.node());
  }

 private:
  struct Counts {
    std::optional<JsonNode> node;  // where they were read first, for messages
    std::vector<std::int64_t> values;
    bool empty() const { return !node; }
  };

  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

  // The values of an object whose keys are EP ranks.
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

  // Keeps the row of `rank`, or compares it with what another part of the file said.
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
    for (std::int64_t rank = 0; rank < ep_; ++rank)
      if ((any_sent ? sent_ : received_)[size(rank)].empty())
        node.fail("no counts of EP rank " + std::to_string(rank),
                  "counts of all " + std::to_string(ep_) + " ranks");
    table.received.assign(size(experts_), 0);
    if (any_sent) {
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
  std::vector<Counts> sent_;
  std::vector<Counts> received_;
  std::vector<std::optional<TopkIndices>> topk_;
};

auto key_of(const DispatchingEntry& entry) { return std::tie(entry.layer, entry.microbatch); }

Dispatching dispatching_of(const JsonNode& root) {
  JsonObject object(root);
  Dispatching out;
  if (const auto schema = object.find("schema"); schema && schema->string() != "moesim.dispatching/1")
    schema->fail(schema->describe(), "'moesim.dispatching/1'");
  object.find("about");
  out.ep = object.at("ep").integer(1, 1 << 20);
  out.experts = object.at("experts").integer(1, 1 << 20);
  if (out.experts % out.ep != 0)
    object.at("experts").fail(std::to_string(out.experts), "a multiple of ep = " + std::to_string(out.ep));
  if (out.ep * out.experts > kMaxMatrixEntries)
    object.at("ep").fail(std::to_string(out.ep) + " ranks x " + std::to_string(out.experts) + " experts",
                         "at most 2^26 entries");
  if (auto table = TableReader(out.ep, out.experts).read(object))
    out.entries.push_back({std::nullopt, std::nullopt, std::move(*table)});
  if (const auto tables = object.find("tables")) {
    for (const JsonNode& item : tables->items()) {
      JsonObject entry(item);
      DispatchingEntry made;
      if (const auto layer = entry.find("layer")) made.layer = layer->integer(0, kMaxLayer);
      if (const auto microbatch = entry.find("microbatch"))
        made.microbatch = microbatch->integer(0, kMaxMicrobatch);
      if (!made.layer && !made.microbatch) item.fail("neither layer nor microbatch", "one or both");
      auto table = TableReader(out.ep, out.experts).read(entry);
      if (!table) item.fail("no counts", "per_rank_results, num_global_tokens_per_expert or topk_indices");
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
    root.fail("no counts", "per_rank_results, num_global_tokens_per_expert, topk_indices or tables");
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
  return dispatching_of(JsonNode::read(path));
}

Dispatching parse_dispatching(std::string_view text, const std::string& file) {
  return dispatching_of(JsonNode::parse(text, file));
}

}  // namespace moesim::traces
