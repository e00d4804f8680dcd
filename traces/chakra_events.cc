#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "traces/gzip_stream.h"
#include "traces/kineto_events.h"

namespace moesim::traces {

namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
constexpr std::int64_t kMostMicros = std::int64_t{1} << 40;  // of one node; twelve days
constexpr std::int64_t kMostRank = (1 << 20) - 1;
constexpr std::int64_t kNsPerMicro = 1000;
// Streams of nodes that name none.
constexpr std::int64_t kComputeStream = 7, kCommStream = 20;

enum class Kind : std::uint8_t { kOther, kMetadata, kMemory, kCompute, kSend, kReceive, kCollective };

// NodeType and CollectiveCommType of et_def.proto, by their numbers.
constexpr std::array<std::pair<std::string_view, Kind>, 11> kNodeTypes{{{"INVALID_NODE", Kind::kOther},
                                                                        {"METADATA_NODE", Kind::kMetadata},
                                                                        {"MEM_LOAD_NODE", Kind::kMemory},
                                                                        {"MEM_STORE_NODE", Kind::kMemory},
                                                                        {"COMP_NODE", Kind::kCompute},
                                                                        {"COMM_SEND_NODE", Kind::kSend},
                                                                        {"COMM_RECV_NODE", Kind::kReceive},
                                                                        {"COMM_COLL_NODE", Kind::kCollective},
                                                                        {"STORAGE_NODE", Kind::kMemory},
                                                                        {"BATCH_NODE", Kind::kMetadata},
                                                                        {"CHECKPOINT_NODE", Kind::kMemory}}};
constexpr std::array<std::string_view, 10> kCollectives{
    "allreduce", "reduce",   "allgather",      "gather",         "scatter",
    "broadcast", "alltoall", "reduce_scatter", "reduce_scatter", "barrier"};

struct Node {
  std::int64_t id = 0;
  std::string name;
  Kind kind = Kind::kOther;
  bool on_gpu = false;
  std::int64_t start_us = 0, duration_us = 0;  // as written; 0: missing
  std::vector<std::int64_t> callers, waits_for;
  std::optional<std::int64_t> stream, thread, comm_type, bytes, source, destination;
  bool computes = false;  // names floating-point operations, which other tools price
  std::string group, description, dtype;
  std::int64_t begin_ns = 0, end_ns = 0;  // as laid out
  long line = 0;
};

// Returns a whole file as one JSON array with the same lines: consecutive objects get commas.
std::string as_array(const std::filesystem::path& path) {
  GzipStream stream(path);
  std::string text = "[";
  std::array<char, 1 << 16> buffer{};
  int depth = 0;
  bool quoted = false, escaped = false, more = false;
  for (;;) {
    const auto got =
        static_cast<std::size_t>(stream.sgetn(buffer.data(), static_cast<std::streamsize>(buffer.size())));
    if (got == 0) break;
    if (text.size() + got > kMostBytes)
      throw InputError(SourcePlace{path.string()}, "more than 1 GiB of JSON",
                       "one rank's steps, not a whole run");
    for (const char c : std::string_view(buffer.data(), got)) {
      if (quoted) {
        quoted = escaped || c != '"';
        escaped = !escaped && c == '\\';
      } else if (c == '"') {
        quoted = true;
      } else if (c == '{' || c == '[') {
        if (depth++ == 0 && std::exchange(more, true)) text += ',';
      } else if (c == '}' || c == ']') {
        --depth;
      }
      text += c;
    }
  }
  if (!stream.problem().empty())
    throw InputError(SourcePlace{path.string()}, stream.problem(), "a whole file");
  return text + "]";
}

// Returns the first of several spellings: protobuf's JSON, its own names, the feeder's.
std::optional<JsonNode> said(const JsonNode& node, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (auto value = node.find(key); value && !value->is_null()) return value;
  return std::nullopt;
}

// Protobuf writes 64-bit numbers as texts.
std::int64_t whole(const JsonNode& value, std::int64_t low, std::int64_t high) {
  if (!value.is_string()) return value.integer(low, high);
  const auto number = parse_int(value.string());
  if (!number || *number < low || *number > high)
    value.fail(value.describe(), fmt::format("a whole number, {} to {}", low, high));
  return *number;
}

std::vector<std::int64_t> identifiers(const std::optional<JsonNode>& list) {
  std::vector<std::int64_t> all;
  if (!list) return all;
  if (!list->is_array()) list->fail(list->describe(), "a list of nodes");
  for (const JsonNode& one : list->items()) all.push_back(whole(one, 0, INT64_MAX));
  return all;
}

Kind kind_of(const JsonNode& node) {
  const auto type = said(node, {"type", "NodeType", "node_type"});
  if (!type) return Kind::kOther;
  if (type->is_string()) {
    const std::string name = type->string();
    const auto at = std::ranges::find(kNodeTypes, name, &std::pair<std::string_view, Kind>::first);
    if (at == kNodeTypes.end())
      type->fail(type->describe(), "a NodeType of et_def.proto, e.g. \"COMP_NODE\"");
    return at->second;
  }
  return kNodeTypes[static_cast<std::size_t>(type->integer(0, kNodeTypes.size() - 1))].second;
}

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : file_(path.string()) { name_rank(path); }

  KinetoFacts run(const std::function<void(const KinetoEvent&)>& event) {
    read(JsonNode::parse(as_array(file_), file_));
    require_times();
    link();
    lay_out();
    tell(event);
    return std::move(facts_);
  }

 private:
  [[noreturn]] void refuse(const Node& node, const std::string& found, const std::string& expected) const {
    throw InputError(SourcePlace{file_, static_cast<decltype(SourcePlace::line)>(node.line), 0},
                     fmt::format("node {} ({}) {}", node.id, in_quotes(node.name), found), expected);
  }

  // "trace.3.json", as every tool of Chakra names a rank's file.
  void name_rank(const std::filesystem::path& path) {
    std::string name = path.filename().string();
    for (const std::string_view ending : {".gz", ".json"})
      if (name.ends_with(ending)) name.resize(name.size() - ending.size());
    const std::size_t point = name.rfind('.');
    const auto number = parse_int(point == std::string::npos ? name : name.substr(point + 1));
    if (number && *number >= 0 && *number <= kMostRank) facts_.rank = *number;
  }

  void read(const JsonNode& all) {
    for (const JsonNode& item : all.items()) {
      if (!item.is_object()) item.fail(item.describe(), "Chakra nodes");
      if (const auto graph = item.find("workload_graph")) {
        if (!graph->is_array()) graph->fail(graph->describe(), "a list of nodes");
        for (const JsonNode& node : graph->items()) read_node(node);
      } else if (item.find("name") || item.find("type") || item.find("id")) {
        read_node(item);
      }  // else facts about the file itself: a version, times
    }
  }

  void read_node(const JsonNode& from) {
    if (!from.is_object()) from.fail(from.describe(), "a Chakra node");
    Node node;
    node.line = static_cast<long>(from.place().line);
    if (const auto id = said(from, {"id", "Id"})) node.id = whole(*id, 0, INT64_MAX);
    if (const auto name = said(from, {"name", "Name"}); name && name->is_string()) node.name = name->string();
    node.kind = kind_of(from);
    if (const auto start = said(from, {"startTimeMicros", "start_time_micros"}))
      node.start_us = whole(*start, 0, INT64_MAX / (2 * kNsPerMicro));
    if (const auto duration = said(from, {"durationMicros", "duration_micros", "runtime"}))
      node.duration_us = whole(*duration, 0, kMostMicros);
    node.callers = identifiers(said(from, {"ctrlDeps", "ctrl_deps"}));
    node.waits_for = identifiers(said(from, {"dataDeps", "data_deps"}));
    bool host = false;
    const auto take = [&](const std::string& key, const JsonNode& value) {
      const auto number = [&] { return whole(value, INT64_MIN + 1, INT64_MAX); };
      const auto text = [&] { return value.is_string() ? value.string() : std::to_string(number()); };
      if (key == "is_cpu_op") host = value.is_boolean() ? value.boolean() : number() != 0;
      if (key == "stream") node.stream = number();
      if (key == "tid") node.thread = number();
      if (key == "comm_type") node.comm_type = whole(value, 0, kCollectives.size() - 1);
      if (key == "comm_size") node.bytes = whole(value, 0, INT64_MAX);
      if (key == "comm_src") node.source = whole(value, 0, kMostRank);
      if (key == "comm_dst") node.destination = whole(value, 0, kMostRank);
      if (key == "num_ops") node.computes = number() > 0;
      if (key == "pg_name" || key == "comm_group") node.group = text();
      if (key == "pg_desc") node.description = text();
    };
    for (const char* key :
         {"is_cpu_op", "comm_type", "comm_size", "comm_src", "comm_dst", "stream", "tid", "pg_name"})
      if (const auto value = from.find(key); value && !value->is_null()) take(key, *value);
    if (const auto list = from.find("attr"); list && list->is_array())
      for (const JsonNode& one : list->items()) {
        const auto name = one.find("name");
        if (!name || !name->is_string()) continue;
        for (const std::string& key : one.keys())
          if (key.ends_with("Val") || key.ends_with("_val")) take(name->string(), *one.find(key));
      }
    if (const auto inputs = from.find("inputs"); inputs && inputs->is_object())
      if (const auto types = inputs->find("types"); types && types->is_string()) node.dtype = types->string();
    const bool works = node.kind == Kind::kCompute || node.kind == Kind::kSend ||
                       node.kind == Kind::kReceive || node.kind == Kind::kCollective;
    node.on_gpu = works && !host;
    if (node.kind == Kind::kMemory) ++memory_;
    if (node.on_gpu && node.kind == Kind::kSend && !node.destination)
      refuse(node, "is a send without \"comm_dst\"", "the rank that receives");
    if (node.on_gpu && node.kind == Kind::kReceive && !node.source)
      refuse(node, "is a receive without \"comm_src\"", "the rank that sends");
    if (!places_.try_emplace(node.id, nodes_.size()).second)
      refuse(node, "stands there twice", "one node of a number");
    nodes_.push_back(std::move(node));
  }

  void require_times() {
    bool gpu = false, lasts = false, computes = false;
    linked_ = true;
    for (const Node& n : nodes_) {
      if (!n.on_gpu) continue;
      gpu = true;
      lasts = lasts || n.duration_us > 0;
      computes = computes || n.computes;
      linked_ = linked_ && n.start_us > 0;
    }
    if (!gpu)
      throw InputError(
          SourcePlace{file_}, "a Chakra trace without work of a GPU",
          "host and device traces linked (chakra_trace_link, chakra_converter, chakra_jsonizer)");
    if (!lasts)
      throw InputError(SourcePlace{file_},
                       computes ? "Chakra nodes with operations to price and no durations"
                                : "Chakra nodes without durations",
                       "a measured trace: a recording holds times");
  }

  void link() {
    waiting_.assign(nodes_.size(), 0);
    followers_.resize(nodes_.size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const auto after = [&](std::int64_t id, bool must) {
        const auto at = places_.find(id);
        if (at == places_.end() && must)
          refuse(nodes_[i], fmt::format("depends on node {}, which is not there", id), "a whole graph");
        if (at == places_.end() || (at->second == i && !must)) return;
        followers_[at->second].push_back(i);
        ++waiting_[i];
      };
      // Callers that were cut away at the top are not work.
      for (const std::int64_t id : nodes_[i].callers) after(id, false);
      for (const std::int64_t id : nodes_[i].waits_for) after(id, true);
    }
  }

  // Returns a stream of the GPU or a thread of the host, which run work in sequence.
  std::pair<bool, std::int64_t> lane_of(const Node& n) const {
    if (!n.on_gpu) return {false, n.thread.value_or(0)};
    return {true, n.stream.value_or(n.kind == Kind::kCompute ? kComputeStream : kCommStream)};
  }

  void lay_out() {
    std::map<std::pair<bool, std::int64_t>, std::int64_t> free;
    std::vector<std::int64_t> ready(nodes_.size(), kFirstNs);
    using Item = std::pair<std::int64_t, std::size_t>;
    std::priority_queue<Item, std::vector<Item>, std::greater<>> queue;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (waiting_[i] == 0) queue.push({kFirstNs, i});
    std::size_t done = 0;
    for (; !queue.empty(); ++done) {
      const auto [at, i] = queue.top();
      queue.pop();
      Node& n = nodes_[i];
      // A node without a duration still exists: a collective may be awaited.
      const std::int64_t lasts = n.duration_us > 0 ? n.duration_us * kNsPerMicro : n.on_gpu ? 1 : 0;
      std::int64_t& lane = free.try_emplace(lane_of(n), kFirstNs).first->second;
      n.begin_ns = linked_ && n.start_us > 0 ? n.start_us * kNsPerMicro : std::max(at, lane);
      n.end_ns = n.begin_ns + lasts;
      if (n.end_ns > kMostNs) refuse(n, "ends after 146 years", "durations in microseconds");
      lane = n.end_ns;
      for (const std::size_t next : followers_[i]) {
        ready[next] = std::max(ready[next], n.end_ns);
        if (--waiting_[next] == 0) queue.push({ready[next], next});
      }
    }
    if (done == nodes_.size()) return;
    const auto stuck = std::ranges::find_if(waiting_, [](int left) { return left > 0; });
    refuse(nodes_[static_cast<std::size_t>(stuck - waiting_.begin())], "waits for itself in a circle",
           "dependencies without circles");
  }

  void tell(const std::function<void(const KinetoEvent&)>& event) {
    // A caller's time contains that of its callees on the host.
    std::vector<std::int64_t> until(nodes_.size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) until[i] = nodes_[i].end_ns;
    std::vector<std::size_t> order(nodes_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return nodes_[i].begin_ns; });
    for (auto i = order.rbegin(); i != order.rend(); ++i)
      for (const std::int64_t caller : nodes_[*i].callers)
        if (const auto at = places_.find(caller); at != places_.end() && !nodes_[*i].on_gpu)
          until[at->second] = std::max(until[at->second], until[*i]);
    std::size_t timeless = 0;
    for (const std::size_t i : order) {
      const Node& n = nodes_[i];
      if (n.kind == Kind::kMetadata || n.kind == Kind::kMemory) continue;
      if (n.on_gpu) tell_launch(n, event);
      KinetoEvent made = n.on_gpu ? kernel_of(n) : KinetoEvent{};
      if (!n.on_gpu) {
        made.category = "cpu_op";
        made.name = n.name;
        made.thread = std::to_string(n.thread.value_or(0));
      }
      made.start_ns = n.begin_ns;
      made.duration_ns = (n.on_gpu ? n.end_ns : until[i]) - n.begin_ns;
      event(made);
      ++facts_.events;
      timeless += n.on_gpu && n.kind != Kind::kCompute && n.duration_us == 0;
    }
    facts_.backend = "chakra";
    if (!linked_)
      facts_.notes.emplace_back(
          "the trace names no times: its nodes stand where their dependencies let them");
    if (timeless > 0)
      facts_.notes.push_back(fmt::format(
          "{} transfers without a duration: priced anew they count, as recorded they take no time",
          timeless));
    if (memory_ > 0)
      facts_.notes.push_back(fmt::format(
          "{} nodes of memory or storage are left out, which a recording has no words for", memory_));
  }

  // Position of the host at the launch: in the node that calls it.
  void tell_launch(const Node& n, const std::function<void(const KinetoEvent&)>& event) {
    for (const std::int64_t caller : n.callers) {
      const auto at = places_.find(caller);
      if (at == places_.end() || nodes_[at->second].on_gpu) continue;
      KinetoEvent launch;
      launch.category = "cuda_runtime";
      launch.name = "cudaLaunchKernel";
      launch.thread = std::to_string(nodes_[at->second].thread.value_or(0));
      launch.start_ns = nodes_[at->second].begin_ns;
      launch.correlation = n.id;
      event(launch);
      return;
    }
  }

  KinetoEvent kernel_of(const Node& n) const {
    KinetoEvent e;
    e.category = "kernel";
    e.name = n.name;
    e.correlation = n.id;
    e.stream = lane_of(n).second;
    if (n.kind == Kind::kCompute) return e;
    e.name = "nccl " + n.name;
    e.collective = n.kind == Kind::kSend      ? "send"
                   : n.kind == Kind::kReceive ? "recv"
                   : n.comm_type ? std::string(kCollectives[static_cast<std::size_t>(*n.comm_type)])
                                 : n.name;
    // Input bytes, in elements where the inputs give the type.
    e.dtype = n.dtype.empty() ? "byte" : n.dtype;
    if (n.bytes) e.bytes = *n.bytes;
    e.group_name = n.group;
    e.group_description = n.description;
    e.source_rank = n.source;
    e.destination_rank = n.destination;
    return e;
  }

  static constexpr std::int64_t kFirstNs = 1'000'000'000, kMostNs = std::int64_t{1} << 62;

  std::string file_;
  KinetoFacts facts_;
  std::vector<Node> nodes_;
  std::unordered_map<std::int64_t, std::size_t> places_;
  std::vector<std::vector<std::size_t>> followers_;
  std::vector<int> waiting_;
  std::size_t memory_ = 0;
  bool linked_ = false;
};

}  // namespace

bool is_chakra(const std::filesystem::path& path) {
  std::string beginning(64 * 1024, '\0');
  GzipStream stream(path);
  beginning.resize(static_cast<std::size_t>(
      stream.sgetn(beginning.data(), static_cast<std::streamsize>(beginning.size()))));
  const auto has = [&](const char* what) { return beginning.find(what) != std::string::npos; };
  if (has("\"traceEvents\"") || has("\"schema\": \"1.")) return false;
  return has("\"workload_graph\"") || has("COMM_COLL_NODE") || has("\"COMP_NODE\"") ||
         has("\"METADATA_NODE\"") || has("\"COMM_SEND_NODE\"") || has("\"COMM_RECV_NODE\"");
}

KinetoFacts scan_chakra(const std::filesystem::path& path,
                        const std::function<void(const KinetoEvent&)>& event) {
  return Reader(path).run(event);
}

}  // namespace moesim::traces
