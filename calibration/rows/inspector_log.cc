#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "base/text.h"
#include "calibration/rows/collective_table.h"
#include "calibration/rows/import_logs.h"

namespace moesim::calibration {
namespace {

using sim::CollectiveOp;

constexpr int kMostRanks = 1 << 20;
constexpr double kMostCallBytes = 1e15, kMostMicroseconds = 1e11;
// Bandwidths have six decimals and follow from the printed time.
constexpr double kHalf = 0.5e-6;

struct Communicator {
  std::string id, host;
  int rank = 0, ranks = 0, nodes = 0;
};

// A call on a communicator: index of its name, and its sequence number.
using CallKey = std::pair<std::size_t, std::int64_t>;

struct Call {
  SourcePlace place;  // of the rank that waited least
  CollectiveOp op = CollectiveOp::all_reduce;
  int ranks = 0, nodes = 0;
  double bytes = 0, seconds = 0;
  std::vector<bool> seen;  // by rank

  double share_seen() const {
    return static_cast<double>(std::count(seen.begin(), seen.end(), true)) / ranks;
  }
};

// The key of a row.
using Shape = std::tuple<CollectiveOp, int, int, double>;

JsonNode at(const JsonNode& node, std::string_view key) {
  const auto found = node.find(key);
  if (!found) node.fail("no key " + in_quotes(key), "one");
  return *found;
}

JsonNode object_at(const JsonNode& node, std::string_view key) {
  const JsonNode found = at(node, key);
  if (!found.is_object()) found.fail(found.describe(), "an object");
  return found;
}

class Reader {
 public:
  explicit Reader(const ImportFacts& facts) : facts_(facts) {}

  void read(const std::string& text, const std::string& file) {
    communicator_.reset();
    owed_ = 0;
    long number = 0;
    for (const std::string_view line : split(text, '\n')) {
      ++number;
      if (trim(line).empty()) continue;
      const SourcePlace place{file, number, 0};
      const JsonNode record = JsonNode::parse(line, place.str());
      if (!record.is_object()) throw InputError(place, record.describe(), "a record of NCCL Inspector");
      take(record, place);
    }
    expect_all(SourcePlace{file, number, 0});
  }

  Imported imported(const std::string& files) {
    if (calls_.empty()) throw InputError(SourcePlace{files, 0, 0}, "no collective", "\"coll_perf\" records");
    if (facts_.gpu.empty())
      throw InputError(calls_.begin()->second.place, "a log without a GPU's name", "--gpu");
    std::map<Shape, std::vector<const Call*>> shapes;
    for (const auto& [key, call] : calls_) {
      const double share = call.share_seen();
      if (share < 1) ++partial_, fewest_ = std::min(fewest_, share);
      shapes[{call.op, call.nodes, call.ranks, call.bytes}].push_back(&call);
    }
    for (auto& [shape, calls] : shapes) add_row(calls);
    note_what_is_missing();
    return std::move(result_);
  }

 private:
  // A marker gives the communicator of the following lines; before format 4.3 every line contains it.
  void take(const JsonNode& record, const SourcePlace& place) {
    if (record.find("header")) communicator_ = communicator(object_at(record, "header"), record);
    if (record.find("dump_stats")) {
      expect_all(place);
      begin_dump(object_at(record, "dump_stats"), place);
      return;
    }
    const auto coll = record.find("coll_perf");
    const bool other = record.find("p2p_perf") || record.find("proxy_trace") || record.find("record_type");
    if (!coll && !other) throw InputError(place, "no \"coll_perf\"", "a record of NCCL Inspector");
    if (!communicator_) throw InputError(place, "a record before its \"dump_stats\"", "the whole file");
    if (owed_ > 0) --owed_;
    if (other)
      ++others_;
    else
      add_call(object_at(record, "coll_perf"), place);
  }

  static Communicator communicator(const JsonNode& header, const JsonNode& record) {
    Communicator made;
    made.id = at(header, "id").string();
    made.ranks = static_cast<int>(at(header, "n_ranks").integer(1, kMostRanks));
    made.rank = static_cast<int>(at(header, "rank").integer(0, made.ranks - 1));
    made.nodes = static_cast<int>(at(header, "nnodes").integer(1, made.ranks));
    if (const auto metadata = record.find("metadata"); metadata && metadata->is_object())
      if (const auto host = metadata->find("hostname"); host && host->is_string()) made.host = host->string();
    return made;
  }

  void begin_dump(const JsonNode& stats, const SourcePlace& place) {
    if (!communicator_) throw InputError(place, "\"dump_stats\" without \"header\"", "one");
    dump_ = place;
    const auto count = [&](const char* key) {
      const auto value = stats.find(key);
      return value ? value->integer(0, std::int64_t{1} << 40) : 0;
    };
    owed_ = count("coll_records") + count("p2p_records") + count("proxy_records");
    lost_ += count("coll_dropped_since_last_dump");
  }

  void expect_all(const SourcePlace& place) const {
    if (owed_ > 0)
      throw InputError(place, fmt::format("{} records fewer than {} says", owed_, dump_.str()),
                       "the whole file");
  }

  void add_call(const JsonNode& coll, const SourcePlace& place) {
    const Communicator& of = *communicator_;
    const std::string name = at(coll, "coll").string();
    const auto op = op_named(name);
    const double of_rank = at(coll, "coll_msg_size_bytes").number(0, kMostCallBytes);
    const double time = at(coll, "coll_exec_time_us").number(0, kMostMicroseconds);
    if (const auto source = coll.find("coll_timing_source"); source && source->is_string())
      if (source->string() != "kernel_gpu") {
        ++by_host_;
        return;
      }
    // Exchanges have no defined size and bandwidth in this log (inspectorComputeCollBw).
    if (!op || *op == CollectiveOp::all_to_all || *op == CollectiveOp::send_recv) {
      ++unused_[name];
      return;
    }
    if (of.ranks < 2 || of.ranks % of.nodes != 0 || of_rank == 0 || time == 0) {
      ++idle_;
      return;
    }
    LoggedRow row;
    row.place = place;
    const bool pieces = *op == CollectiveOp::all_gather || *op == CollectiveOp::reduce_scatter;
    row.bytes = of_rank * (pieces ? of.ranks : 1);
    row.time = {time, kHalf};
    row.algbw = {at(coll, "coll_algobw_gbs").number(0, 1e6), kHalf};
    row.busbw = {at(coll, "coll_busbw_gbs").number(0, 1e6), kHalf};
    check_row(row, *op, of.ranks, "n_ranks");
    const std::int64_t number = at(coll, "coll_sn").integer(0);
    add(row, *op, {names_.try_emplace(of.id, names_.size()).first->second, number});
  }

  void add(const LoggedRow& row, CollectiveOp op, const CallKey& key) {
    const Communicator& of = *communicator_;
    const auto [found, first] = calls_.try_emplace(key);
    Call& call = found->second;
    if (first)
      call = {row.place,
              op,
              of.ranks,
              of.nodes,
              row.bytes,
              row.seconds(),
              std::vector<bool>(static_cast<std::size_t>(of.ranks))};
    if (std::tie(call.op, call.ranks, call.nodes, call.bytes) != std::tie(op, of.ranks, of.nodes, row.bytes))
      throw InputError(
          row.place,
          fmt::format("call {} of {} as {} of {:.0f} bytes", key.second, in_quotes(of.id), sim::name(op),
                      row.bytes),
          fmt::format("{} of {:.0f} bytes, as {} says", sim::name(call.op), call.bytes, call.place.str()));
    if (call.seen[static_cast<std::size_t>(of.rank)])
      throw InputError(row.place,
                       fmt::format("call {} of {} on rank {} twice", key.second, in_quotes(of.id), of.rank),
                       "the logs of one job");
    call.seen[static_cast<std::size_t>(of.rank)] = true;
    if (row.seconds() < call.seconds) call.seconds = row.seconds(), call.place = row.place;
  }

  void add_row(std::vector<const Call*>& calls) {
    // Where some calls have all their ranks, the others would only add waits.
    const bool whole =
        std::any_of(calls.begin(), calls.end(), [](const Call* one) { return one->share_seen() >= 1; });
    if (whole) std::erase_if(calls, [](const Call* one) { return one->share_seen() < 1; });
    const auto middle = calls.begin() + static_cast<std::ptrdiff_t>((calls.size() - 1) / 2);
    std::nth_element(calls.begin(), middle, calls.end(), [](const Call* a, const Call* b) {
      return std::pair(a->seconds, a->place.line) < std::pair(b->seconds, b->place.line);
    });
    const Call& call = **middle;
    CollectiveRow row;
    row.op = call.op;
    row.nodes = call.nodes;
    row.gpus_per_node = call.ranks / call.nodes;
    row.bytes = call.bytes;
    row.seconds = call.seconds;
    row.datatype = "not recorded";
    row.library = facts_.library.empty() ? "NCCL (not recorded)" : facts_.library;
    row.origin = {call.place, facts_.gpu, facts_.source.empty() ? call.place.file : facts_.source};
    result_.rows.collectives.push_back(std::move(row));
  }

  void note_what_is_missing() {
    const auto note = [&](std::string text) { result_.notes.push_back(std::move(text)); };
    if (partial_ > 0)
      note(fmt::format(
          "{} of {} calls lack ranks ({:.0f} % of them are there, at least): times of ranks that wait "
          "for others hold that wait; give the files of all ranks",
          partial_, calls_.size(), 100 * fewest_));
    if (by_host_ > 0)
      note(fmt::format("{} calls are left out: the host took their times, not the GPU", by_host_));
    for (const auto& [name, count] : unused_)
      note(fmt::format(
          "{} calls of {} are left out: the log has no size and bandwidth of it that a forecast uses", count,
          in_quotes(name)));
    if (idle_ > 0)
      note(fmt::format(
          "{} calls are left out: one rank, no bytes, no time, or other numbers of ranks on each node",
          idle_));
    if (others_ > 0) note(fmt::format("{} records of sends, receives and proxies are left out", others_));
    if (lost_ > 0) note(fmt::format("NCCL Inspector lost {} calls before it wrote them", lost_));
  }

  const ImportFacts& facts_;
  std::optional<Communicator> communicator_;
  SourcePlace dump_;
  std::int64_t owed_ = 0;  // records promised by the last marker
  std::map<std::string, std::size_t> names_;
  std::map<CallKey, Call> calls_;
  std::map<std::string, std::int64_t> unused_;
  std::int64_t others_ = 0, by_host_ = 0, idle_ = 0, lost_ = 0, partial_ = 0;
  double fewest_ = 1;
  Imported result_;
};

}  // namespace

bool is_inspector_log(std::string_view text) {
  text = trim(text);
  if (!text.starts_with('{')) return false;
  const std::string_view first = text.substr(0, text.find('\n'));
  return first.find("\"coll_perf\"") != std::string_view::npos ||
         first.find("\"p2p_perf\"") != std::string_view::npos ||
         first.find("\"dump_stats\"") != std::string_view::npos;
}

Imported import_inspector(const std::vector<std::string>& files,
                          const std::function<std::string(const std::string&)>& text_of,
                          const ImportFacts& facts) {
  const std::string first = files.empty() ? "no file" : files.front();
  if (facts.nodes > 0 || facts.gpus_per_node > 0 || facts.op)
    throw InputError(SourcePlace{first, 0, 0},
                     "--nodes, --gpus-per-node or --op with a log of NCCL Inspector",
                     "none of them: the log says it itself");
  Reader reader(facts);
  for (const std::string& file : files) reader.read(text_of(file), file);
  return reader.imported(first);
}

}  // namespace moesim::calibration
