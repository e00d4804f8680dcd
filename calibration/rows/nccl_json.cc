// JSON of nccl-tests, of rccl-tests (and its CSV), and of NCCL Inspector.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "base/text.h"
#include "calibration/rows/collective_table.h"
#include "calibration/rows/csv_table.h"
#include "calibration/rows/import_logs.h"

namespace moesim::calibration {

namespace {

constexpr int kMostRanks = 1 << 20;
// All three tools print doubles with six digits.
constexpr double kHalf = 0.5e-6;

JsonNode at(const JsonNode& node, std::string_view key) {
  const auto found = node.find(key);
  if (!found) node.fail("no key " + in_quotes(key), "one");
  return *found;
}

// Returns a string, or a number as text; "" without either.
std::string text_of(const JsonNode& node, const char* key) {
  const auto value = node.find(key);
  if (!value || !(value->is_string() || value->is_number())) return "";
  return value->is_string()    ? value->string()
         : value->is_integer() ? std::to_string(value->integer())
                               : fmt::format("{:.6f}", value->number());
}

void check_wrong(const JsonNode& timing, std::string_view key) {
  const auto wrong = timing.find(key);
  if (!wrong || wrong->is_null()) return;
  const std::optional<double> count =
      wrong->is_string() ? parse_number(trim(wrong->string())) : wrong->number();
  const bool not_checked = wrong->is_string() && trim(wrong->string()) == "N/A";
  if (!not_checked && (!count || *count > 1e-2))
    wrong->fail(wrong->describe() + " wrong results", "a run whose results are right");
}

// Reads "size", "count" and "type", with the out-of-place values.
std::optional<LoggedRow> row_of(const JsonNode& result) {
  const auto timing = result.find("out_of_place");
  if (!timing || timing->is_null()) return std::nullopt;
  if (!timing->is_object()) timing->fail(timing->describe(), "time, alg_bw and bus_bw");
  if (const auto cpu = timing->find("cpu_time"))
    cpu->fail("times on the CPU", "a run without --report_cputime");
  LoggedRow row;
  row.place = result.place();
  row.bytes = at(result, "size").number(0, kMostBytes);
  row.count = at(result, "count").number(0, kMostBytes);
  row.type = at(result, "type").string();
  if (element_size(row.type) == 0)
    at(result, "type").fail(in_quotes(row.type), "an nccl-tests type (float, half, ...)");
  row.time = {at(*timing, "time").number(1e-4, kMostSeconds * 1e6), kHalf};
  row.algbw = {at(*timing, "alg_bw").number(0, 1e6), kHalf};
  row.busbw = {at(*timing, "bus_bw").number(0, 1e6), kHalf};
  if (const auto redop = result.find("redop"); redop && redop->is_string())
    row.redop = trim(redop->string()).empty() ? "none" : std::string(trim(redop->string()));
  check_wrong(*timing, "nwrong");
  return row;
}

// Returns the program that wrote it: "./build/all_reduce_perf".
std::string program_of(const JsonNode& root) {
  const auto args = root.find("args");
  if (!args || !args->is_array() || args->size() == 0) return "";
  const JsonNode first = args->items().front();
  return first.is_string() ? std::filesystem::path(first.string()).filename().string() : "";
}

void take_devices(const JsonNode& config, CollectiveTables& tables) {
  const auto devices = config.find("devices");
  if (!devices || !devices->is_array()) return;
  const auto size = [&](const char* key) {
    const auto value = config.find(key);
    return value ? static_cast<int>(value->integer(1, 4096)) : 1;
  };
  // The tool writes the first GPU of each process; its others are on the same node.
  const int of_process = size("nthreads") * size("ngpus");
  for (const JsonNode& device : devices->items()) {
    if (!device.is_object()) device.fail(device.describe(), "an object with rank, hostname and device");
    const auto rank = static_cast<int>(at(device, "rank").integer(0, kMostRanks));
    const auto text = [&](const char* key) { return text_of(device, key); };
    for (int i = 0; i < of_process; ++i) {
      RankLine line{rank + i, text("hostname"),
                    fmt::format("{}+{} {}", text("device"), i, text("device_hex")),
                    std::string(trim(text("device_info"))), text("group")};
      tables.ranks().add(std::move(line), device.place());
    }
  }
}

Imported read_nccl_tests(const JsonNode& root, const std::string& file, const ImportFacts& facts) {
  CollectiveTables tables(file, facts);
  tables.name(program_of(root));
  if (const auto code = root.find("nccl_version"); code && code->is_integer())
    tables.set_library_code(code->integer());
  if (const auto config = root.find("config"); config && config->is_object()) take_devices(*config, tables);
  for (const JsonNode& result : at(root, "results").items()) {
    if (!result.is_object()) result.fail(result.describe(), "an object with size, count and type");
    if (auto row = row_of(result)) tables.add(std::move(*row));
  }
  if (const auto bounds = root.find("out_of_bounds"); bounds && bounds->is_object())
    if (const auto okay = bounds->find("okay"); okay && okay->is_string() && okay->string() == "false")
      okay->fail("a test that failed", "a run whose results are right");
  tables.finish();
  return tables.imported(0);
}

// Records of rccl-tests: those with equal name, shape and cycle form a table.
class Records {
 public:
  Records(const std::string& file, const ImportFacts& facts) : tables_(file, facts) {
    tables_.set_default_library("RCCL (not recorded)");
  }

  // `text_of` returns the value of a key; `place` is the record's.
  template <class TextOf>
  void add(const SourcePlace& place, const TextOf& text_of) {
    const auto fail = [&](const char* key, const std::string& found, const char* expected) {
      throw InputError(place, fmt::format("{} {}", key, in_quotes(found)), expected);
    };
    const auto whole = [&](const char* key) {
      const std::string text = text_of(key);
      const auto value = parse_int(trim(text));
      if (!value || *value < 1 || *value > kMostRanks) fail(key, text, "a whole number from 1");
      return static_cast<int>(*value);
    };
    const auto number = [&](const char* key, double low, double high) {
      const std::string text = text_of(key);
      const auto value = Rounded::parse(trim(text));
      if (!value || !(value->value >= low && value->value <= high))
        fail(key, text, "a finite number in its physical range");
      return *value;
    };
    const std::string in_place = std::string(trim(text_of("inPlace")));
    if (in_place != "0" && in_place != "1") fail("inPlace", in_place, "0 or 1");
    const std::string name = text_of("name");
    const int nodes = whole("nodes"), gpus = whole("ranksPerNode") * whole("gpusPerRank");
    const std::string table = fmt::format("{} {} {} {}", name, nodes, gpus, text_of("numCycle"));
    if (table != table_) tables_.finish();
    table_ = table;
    if (in_place == "1") return;
    LoggedRow row;
    row.place = place;
    row.bytes = number("size", 0, kMostBytes).value;
    row.type = trim(text_of("type"));
    if (element_size(row.type) == 0) fail("type", row.type, "a type of rccl-tests (float, half, ...)");
    row.redop = trim(text_of("redop"));
    if (row.redop->empty()) row.redop = "none";
    row.time = number("time", 1e-4, kMostSeconds * 1e6);
    row.algbw = number("algBw", 0, 1e6);
    row.busbw = number("busBw", 0, 1e6);
    const std::string wrong = text_of("wrong");
    if (trim(wrong) != "N/A" && number("wrong", 0, 1e18).value > 1e-2)
      fail("wrong", wrong, "a run whose results are right");
    tables_.name(name);
    tables_.set_shape({nodes, gpus});
    tables_.add(std::move(row));
  }

  Imported imported(long last_line) {
    tables_.finish();
    return tables_.imported(last_line);
  }

 private:
  CollectiveTables tables_;
  std::string table_;
};

}  // namespace

bool is_nccl_json(std::string_view text) {
  text = trim(text);
  return text.starts_with('{') || text.starts_with("[{") ||
         (text.starts_with('[') && trim(text.substr(1)).starts_with('{'));
}

bool is_rccl_csv(std::string_view text) {
  const std::string_view first = trim(text).substr(0, trim(text).find('\n'));
  return first.find("numCycle") != std::string_view::npos && first.find("algBw") != std::string_view::npos;
}

Imported read_nccl_json(std::string_view text, const std::string& file, const ImportFacts& facts) {
  const JsonNode root = JsonNode::parse(text, file);
  if (root.is_object()) {
    if (!root.find("results") || !root.find("results")->is_array())
      root.fail(root.describe(), "the JSON of nccl-tests, with \"results\"");
    return read_nccl_tests(root, file, facts);
  }
  Records records(file, facts);
  for (const JsonNode& one : root.items()) {
    if (!one.is_object() || !one.find("algBw"))
      one.fail(one.describe(), "a record of rccl-tests, with \"algBw\"");
    records.add(one.place(), [&](const char* key) { return text_of(one, key); });
  }
  return records.imported(0);
}

Imported read_rccl_csv(std::string_view text, const std::string& file, const ImportFacts& facts) {
  const CsvTable table = CsvTable::parse(text, file);
  Records records(file, facts);
  for (std::size_t i = 0; i < table.rows(); ++i)
    records.add(table.place(i), [&](std::string_view key) {
      const bool optional = key == "redop" || key == "numCycle";
      return optional && !table.has(key) ? std::string() : std::string(trim(table.text(i, key)));
    });
  return records.imported(table.rows() > 0 ? table.place(table.rows() - 1).line : 0);
}

namespace {

using sim::CollectiveOp;

constexpr double kMostCallBytes = 1e15, kMostMicroseconds = 1e11;

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

JsonNode object_at(const JsonNode& node, std::string_view key) {
  JsonNode found = at(node, key);
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
