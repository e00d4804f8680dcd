#include "traces/router_trace.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"

namespace moesim::traces {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytes = std::uint64_t{4} << 30;  // of a file
constexpr std::int64_t kMostExperts = 1 << 16, kMostTokens = 1 << 24, kMostTopk = 1 << 10;
// More choices than this are kept as counts: a dispatching file of them could not be read back.
constexpr std::int64_t kMostChoices = 4'000'000;

bool is_trace_file(const fs::path& path) { return path.filename().string().ends_with(".jsonl"); }

struct Record {
  std::string place;  // file:line
  TopkIndices choices;
};

// Records of one rank: by layer, those of the step in order.
using Layers = std::map<std::int64_t, std::vector<Record>>;

class Reader {
 public:
  explicit Reader(const RouterTraceOptions& options) : options_(options) {}

  RouterTrace run(const fs::path& path) {
    std::vector<fs::path> files;
    if (!is_folder(path)) {
      files.push_back(path);
    } else {
      for (fs::path& entry : entries_of(path))
        if (is_trace_file(entry)) files.push_back(std::move(entry));
    }
    if (files.empty())
      throw InputError({path.string()}, "no *.jsonl files", "router_trace_rank<N>.jsonl, one per rank");
    find_step(files);
    for (const fs::path& file : files) read(file);
    write(path.string());
    return std::move(out_);
  }

 private:
  template <class Act>
  static void each_line(const fs::path& path, const Act& act) {
    const std::string text = read_file(path, kMostBytes);
    std::string_view rest = text;
    for (std::size_t number = 1; !rest.empty(); ++number) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view line = trim(rest.substr(0, end));
      rest.remove_prefix(std::min(rest.size(), end + 1));
      if (line.empty()) continue;
      const std::string place = path.string() + ":" + std::to_string(number);
      const JsonNode node = JsonNode::parse(line, place);
      if (!node.is_object() || !node.find("top_indices") || !node.find("layer"))
        throw InputError(
            {place}, "no top_indices of a layer",
            "a record of Megatron-Core's router trace (\"step\", \"layer\", \"rank\", \"top_indices\")");
      act(node, place);
    }
  }

  static std::int64_t integer(const JsonNode& record, const char* key, std::int64_t fallback,
                              std::int64_t most) {
    const auto node = record.find(key);
    return node ? node->integer(0, most) : fallback;
  }

  // Finds the number of the requested step: steps of a trace need not begin at 0.
  void find_step(const std::vector<fs::path>& files) {
    std::set<std::int64_t> steps;
    for (const fs::path& file : files)
      each_line(file, [&](const JsonNode& record, const std::string&) {
        steps.insert(integer(record, "step", 0, std::int64_t{1} << 40));
      });
    if (options_.step >= steps.size())
      throw InputError(
          {files.front().string()}, std::to_string(steps.size()) + " recorded steps",
          "more than " + std::to_string(options_.step) + ", to take number " + std::to_string(options_.step));
    step_ = *std::next(steps.begin(), static_cast<std::ptrdiff_t>(options_.step));
    if (steps.size() > 1)
      out_.warnings.push_back("the trace holds " + std::to_string(steps.size()) + " steps; this is number " +
                              std::to_string(options_.step));
  }

  void read(const fs::path& file) {
    each_line(file, [&](const JsonNode& record, const std::string& place) {
      if (integer(record, "step", 0, std::int64_t{1} << 40) != step_) return;
      const auto block = record.find("block");
      if (block && block->string() != "decoder") {
        ++others_;
        return;
      }
      const std::int64_t rank = integer(record, "rank", 0, 1 << 22);
      const auto node = record.find("top_indices");
      Record made{place, {}};
      for (const JsonNode& token : node->items()) {
        const std::vector<std::int64_t> chosen = token.integers(0, kMostExperts - 1);
        if (made.choices.topk == 0) made.choices.topk = static_cast<std::int64_t>(chosen.size());
        if (chosen.empty() || std::cmp_not_equal(chosen.size(), made.choices.topk) ||
            made.choices.topk > kMostTopk)
          throw InputError({place}, std::to_string(chosen.size()) + " experts of a token",
                           std::to_string(std::max<std::int64_t>(1, made.choices.topk)) + " as of the first");
        for (const std::int64_t expert : chosen) {
          made.choices.experts.push_back(static_cast<std::int32_t>(expert));
          largest_ = std::max(largest_, expert);
        }
        if (++made.choices.tokens > kMostTokens)
          throw InputError({place}, "more than " + std::to_string(kMostTokens) + " tokens", "fewer");
      }
      const std::int64_t said = integer(record, "num_tokens", made.choices.tokens, kMostTokens);
      if (said != made.choices.tokens || made.choices.tokens == 0)
        throw InputError({place}, std::to_string(made.choices.tokens) + " tokens in top_indices",
                         said == 0 ? "at least one" : "num_tokens " + std::to_string(said));
      if (topk_ == 0) topk_ = made.choices.topk;
      if (made.choices.topk != topk_)
        throw InputError({place}, "top-" + std::to_string(made.choices.topk) + " choices",
                         "top-" + std::to_string(topk_) + " as of the other records");
      ranks_[rank][integer(record, "layer", 0, 99'999)].push_back(std::move(made));
    });
  }

  void write(const std::string& source) {
    if (ranks_.empty()) throw InputError({source}, "no records of decoder layers in the step", "some");
    std::map<std::int64_t, std::vector<std::int64_t>> recorded;  // ranks by layer
    for (const auto& [rank, layers] : ranks_)
      for (const auto& [layer, records] : layers) recorded[layer].push_back(rank);
    std::size_t fewest = recorded.begin()->second.size();
    for (const auto& [layer, ranks] : recorded) fewest = std::min(fewest, ranks.size());
    Dispatching& out = out_.dispatching;
    out.ep = options_.ep.value_or(static_cast<std::int64_t>(fewest));
    if (std::cmp_less(fewest, out.ep))
      throw InputError({source}, "a layer that " + std::to_string(fewest) + " ranks recorded",
                       "the " + std::to_string(out.ep) + " ranks of --ep");
    out.experts = options_.experts.value_or(largest_ + 1);
    if (largest_ >= out.experts)
      throw InputError({source}, "expert " + std::to_string(largest_),
                       "one of the " + std::to_string(out.experts) + " of --experts");
    if (!options_.experts)
      out_.warnings.push_back(std::to_string(out.experts) +
                              " experts, as the largest that was chosen tells; --experts says it");
    if (out.experts % out.ep != 0)
      throw InputError({source},
                       std::to_string(out.experts) + " experts on " + std::to_string(out.ep) + " ranks",
                       "a multiple: --experts and --ep tell what the job had");
    if (others_ > 0)
      out_.warnings.push_back(std::to_string(others_) +
                              " records of other blocks than the decoder are left out");
    std::int64_t choices = 0;
    for (const auto& [layer, ranks] : recorded) choices += add_layer(layer, ranks);
    if (choices > kMostChoices) {
      for (DispatchingEntry& entry : out.entries) entry.table.topk.clear();
      out_.warnings.push_back(std::to_string(choices) +
                              " choices are kept as counts per rank and expert; which experts a token had "
                              "together is left out");
    }
  }

  // Returns the choices of the layer.
  std::int64_t add_layer(std::int64_t layer, const std::vector<std::int64_t>& ranks) {
    Dispatching& out = out_.dispatching;
    const std::vector<Record>& first = ranks_.at(ranks.front()).at(layer);
    std::int64_t choices = 0;
    for (std::size_t m = 0; m < first.size(); ++m) {
      DispatchingEntry entry;
      entry.layer = layer;
      if (first.size() > 1) entry.microbatch = static_cast<std::int64_t>(m);
      entry.table.sent.assign(static_cast<std::size_t>(out.ep * out.experts), 0);
      entry.table.received.assign(static_cast<std::size_t>(out.experts), 0);
      for (std::int64_t r = 0; r < out.ep; ++r) {
        const std::vector<Record>& mine = ranks_.at(ranks[static_cast<std::size_t>(r)]).at(layer);
        if (mine.size() != first.size())
          throw InputError({mine.front().place},
                           std::to_string(mine.size()) + " records of layer " + std::to_string(layer),
                           std::to_string(first.size()) + " as in " + first.front().place);
        for (const std::int32_t expert : mine[m].choices.experts) {
          ++entry.table.sent[static_cast<std::size_t>(r * out.experts + expert)];
          ++entry.table.received[static_cast<std::size_t>(expert)];
        }
        choices += static_cast<std::int64_t>(mine[m].choices.experts.size());
        entry.table.topk.push_back(mine[m].choices);
      }
      out.entries.push_back(std::move(entry));
    }
    return choices;
  }

  RouterTraceOptions options_;
  RouterTrace out_;
  std::map<std::int64_t, Layers> ranks_;
  std::int64_t step_ = 0, largest_ = 0, topk_ = 0;
  std::size_t others_ = 0;
};

}  // namespace

RouterTrace read_router_trace(const fs::path& path, const RouterTraceOptions& options) {
  return Reader(options).run(path);
}

bool is_router_trace(const fs::path& path) {
  if (!is_folder(path)) return is_trace_file(path);
  for (const fs::path& entry : entries_of(path))
    if (is_trace_file(entry)) return true;
  return false;
}

}  // namespace moesim::traces
