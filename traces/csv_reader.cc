#include "traces/csv_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/csv.h"
#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "traces/cmd_line.h"
#include "traces/cmd_reader.h"
#include "traces/cmd_vocabulary.h"
#include "traces/recording_facts.h"

namespace moesim::traces {

namespace {

constexpr double kMostUs = 1e14;  // of a time stamp; three years
constexpr double kSlackUs = 1.0;  // rounding of the writer

enum Column : std::size_t { rank, operation, start, duration, stage, comm, group, elements, dtype, kColumns };
constexpr std::array<std::string_view, kColumns> kNames{
    "rank", "operation", "start_us", "duration_us", "stage", "comm", "group", "elements", "dtype"};
constexpr std::size_t kNeeded = stage;  // columns before it

struct Row {
  std::uint32_t line = 0;
  std::int64_t rank = 0, stage = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t elements = 0;  // 0: not given
  std::string operation, comm, group, dtype;
};

class Table {
 public:
  explicit Table(const std::filesystem::path& path) : file_(path.string()), text_(read_file(path)) {}

  std::vector<Row> rows() {
    std::vector<Row> out;
    std::string_view rest = text_;
    for (std::uint32_t number = 1; !rest.empty(); ++number) {
      const std::size_t end = rest.find('\n');
      std::string_view line = rest.substr(0, end);
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.empty() || line.front() == '#') continue;
      line_ = number;
      const auto fields = csv_cells(line, {file_, number});
      if (columns_.empty())
        read_header(fields);
      else
        out.push_back(read_row(fields));
    }
    if (out.empty())
      throw InputError(SourcePlace{file_}, "no rows", "a header and a row per operation and call");
    return out;
  }

  [[noreturn]] void fail(std::uint32_t line, const std::string& found, const std::string& expected) const {
    throw InputError(SourcePlace{file_, static_cast<long>(line)}, found, expected);
  }

 private:
  void read_header(const std::vector<std::string>& fields) {
    for (const std::string& field : fields) {
      const auto at = std::find(kNames.begin(), kNames.end(), field);
      if (at == kNames.end())
        fail(line_, "a column " + in_quotes(field),
             "the columns " + join(std::vector<std::string>(kNames.begin(), kNames.end()), ", "));
      const auto column = static_cast<Column>(at - kNames.begin());
      if (std::find(columns_.begin(), columns_.end(), column) != columns_.end())
        fail(line_, "the column " + in_quotes(field) + " twice", "every column once");
      columns_.push_back(column);
    }
    for (std::size_t c = 0; c < kNeeded; ++c)
      if (std::find(columns_.begin(), columns_.end(), static_cast<Column>(c)) == columns_.end())
        fail(line_, "no column " + in_quotes(kNames[c]), "rank, operation, start_us and duration_us");
  }

  Row read_row(const std::vector<std::string>& fields) const {
    if (fields.size() != columns_.size())
      fail(line_, fmt::format("{} fields", fields.size()),
           fmt::format("{} as in the header", columns_.size()));
    Row row;
    row.line = line_;
    double start_us = 0, duration_us = 0;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const std::string_view field = fields[i];
      switch (columns_[i]) {
        case rank:
          row.rank = whole(field, rank, (1 << 24) - 1);
          break;
        case stage:
          if (!field.empty()) row.stage = whole(field, stage, 65535);
          break;
        case elements:
          if (!field.empty()) row.elements = whole(field, elements, Shape::kMaxElements);
          break;
        case start:
          start_us = number(field, start);
          break;
        case duration:
          duration_us = number(field, duration);
          break;
        case operation:
          row.operation = word(field, operation, cmd_operations());
          break;
        case comm:
          if (!field.empty()) row.comm = word(field, comm, cmd_comm_functions());
          break;
        case group:
          if (!field.empty()) row.group = word(field, group, cmd_groups());
          break;
        case dtype:
          if (!field.empty()) row.dtype = word(field, dtype, cmd_dtypes());
          break;
        case kColumns:
          break;
      }
    }
    if (row.operation == "ddp_grad_comm") fail(line_, "ddp_grad_comm", "an operation of the schedule");
    if (too_large(row.elements, row.dtype))
      fail(line_, fmt::format("{} elements {}", row.elements, row.dtype), kPossibleTensor);
    row.start_ns = std::llround(start_us * 1e3);
    row.end_ns = row.start_ns + std::llround(duration_us * 1e3);
    return row;
  }

  std::int64_t whole(std::string_view field, Column column, std::int64_t most) const {
    const auto value = parse_int(field);
    if (!value || *value < 0 || *value > most)
      fail(line_, fmt::format("{} {}", kNames[column], in_quotes(field)), fmt::format("0 to {}", most));
    return *value;
  }

  double number(std::string_view field, Column column) const {
    double value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size() || !(value >= 0 && value <= kMostUs))
      fail(line_, fmt::format("{} {}", kNames[column], in_quotes(field)), "microseconds from 0 to 1e14");
    return value;
  }

  std::string word(std::string_view field, Column column, std::span<const std::string_view> words) const {
    if (!contains(words, field))
      fail(line_, fmt::format("{} {}", kNames[column], in_quotes(field)),
           "one of " + join(std::vector<std::string>(words.begin(), words.end()), ", "));
    return std::string(field);
  }

  std::string file_, text_;
  std::uint32_t line_ = 0;
  std::vector<Column> columns_;
};

}  // namespace

Recording read_csv_recording(const std::filesystem::path& path) {
  Table table(path);
  std::vector<Row> rows = table.rows();
  // An operation comes before the calls inside it.
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::tuple(a.rank, a.start_ns, !a.comm.empty()) < std::tuple(b.rank, b.start_ns, !b.comm.empty());
  });
  const auto earliest = std::ranges::min(rows, {}, &Row::start_ns).start_ns - kFirstNs;
  const auto slack = static_cast<std::int64_t>(kSlackUs * 1e3);
  Recording out;
  out.source = path.string();
  out.named = named_topology(path.parent_path() / path.stem());
  const auto text_of = [](const std::string& text) {
    return text.empty() ? std::string_view("None") : std::string_view(text);
  };
  for (std::size_t i = 0; i < rows.size();) {
    RankRecording made;
    made.rank = static_cast<std::int32_t>(rows[i].rank);
    made.file = fmt::format("{}_rank{}.txt", path.stem().string(), made.rank);
    made.header = {std::string(kRealRunHeader), " from " + path.filename().string() + ", a table"};
    std::map<std::string, std::int32_t> counters;
    while (i < rows.size() && rows[i].rank == made.rank) {
      const Row& row = rows[i];
      if (!row.comm.empty())
        table.fail(row.line,
                   fmt::format("a call that starts at {} us outside every operation of rank {}",
                               static_cast<double>(row.start_ns) / 1e3, row.rank),
                   "an operation that spans it");
      std::vector<SubOperation> subs;
      for (++i; i < rows.size() && rows[i].rank == made.rank && rows[i].start_ns < row.end_ns; ++i) {
        const Row& call = rows[i];
        if (call.comm.empty() && call.start_ns + slack >= row.end_ns) break;
        if (call.comm.empty())
          table.fail(
              call.line,
              fmt::format("{} that begins inside the {} of line {}", call.operation, row.operation, row.line),
              "operations of a rank one after the other");
        if (call.end_ns > row.end_ns + slack || call.operation != row.operation)
          table.fail(call.line, fmt::format("a call of {} that is not inside one", call.operation),
                     fmt::format("the {} of line {} to span it", row.operation, row.line));
        SubOperation sub;
        sub.source = out.pool.name("table_" + call.comm);
        sub.duration = Decimal::from_ns(call.end_ns - call.start_ns);
        sub.timestamp = Decimal::from_ns(call.end_ns - earliest);
        const std::int64_t dims[] = {call.elements};
        sub.shape = call.elements > 0 ? out.pool.shape(dims) : out.pool.shape_none();
        sub.dtype = out.pool.name(text_of(call.dtype));
        if (!call.group.empty()) sub.group = out.pool.name(call.group);
        sub.comm_func = out.pool.name(call.comm);
        subs.push_back(sub);
      }
      Operation operation;
      operation.name = out.pool.name(row.operation);
      operation.stage_id = static_cast<std::int32_t>(row.stage);
      operation.batch_id = counters[row.operation]++;
      operation.state = out.pool.name("None");
      operation.duration = Decimal::from_ns(row.end_ns - row.start_ns);
      operation.timestamp = Decimal::from_ns(row.end_ns - earliest);
      operation.description = out.pool.name("table");
      operation.group_kind = out.pool.name(text_of(row.group));
      const std::int64_t dims[] = {row.elements};
      operation.shape = row.elements > 0 ? out.pool.shape(dims) : out.pool.shape_none();
      operation.dtype = out.pool.name(text_of(row.dtype));
      made.add(operation, subs);
    }
    out.ranks.push_back(std::move(made));
  }
  return out;
}

}  // namespace moesim::traces
