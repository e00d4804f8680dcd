#include <fmt/format.h>

#include <filesystem>
#include <optional>
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
// Both tools print doubles with six digits.
constexpr double kHalf = 0.5e-6;

JsonNode at(const JsonNode& node, std::string_view key) {
  const auto found = node.find(key);
  if (!found) node.fail("no key " + in_quotes(key), "one");
  return *found;
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
    const auto text = [&](const char* key) {
      const auto value = device.find(key);
      return value && value->is_string()    ? value->string()
             : value && value->is_integer() ? std::to_string(value->integer())
                                            : "";
    };
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
    records.add(one.place(), [&](const char* key) -> std::string {
      const auto value = one.find(key);
      if (!value) return "";
      return value->is_string()    ? value->string()
             : value->is_integer() ? std::to_string(value->integer())
             : value->is_number()  ? fmt::format("{:.6f}", value->number())
                                   : "";
    });
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

}  // namespace moesim::calibration
