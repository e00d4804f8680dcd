#include "tools/moesim/sweeps/sweep_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace moesim::tools {

namespace {

constexpr const char* kDispatcher = "dispatcher";
constexpr std::size_t kMeasured = 11;  // columns of a forecast behind its time, without the optional ones

}  // namespace

// Writes the cells of one row in the order of the columns.
class SweepRows::Row {
 public:
  Row(std::string& out, RowFormat format, const std::vector<std::string>& names)
      : out_(out), csv_(format == RowFormat::kCsv), names_(names) {}

  // A number, true or false: as it stands in both formats.
  template <class... Args>
  void plain(fmt::format_string<Args...> format, Args&&... args) {
    begin();
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  void text(std::string_view value) {
    begin();
    if (csv_)
      out_ += csv_cell(value);
    else
      out_ += nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  void json(const PathValue& value) {
    if (csv_)
      text(value.text);
    else
      begin(), out_ += value.json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  // Nothing: an empty cell, and no key in JSON.
  void none() {
    if (csv_)
      begin();
    else
      ++column_;
  }
  void end() { out_ += csv_ ? "\n" : "}\n"; }

 private:
  void begin() {
    if (csv_) {
      if (column_ > 0) out_ += ',';
    } else {
      out_ += started_ ? ',' : '{';
      started_ = true;
      out_ += '"';
      out_ += names_[column_];
      out_ += "\":";
    }
    ++column_;
  }

  std::string& out_;
  bool csv_, started_ = false;
  const std::vector<std::string>& names_;
  std::size_t column_ = 0;
};

void SweepRows::begin(Row& row, std::uint64_t index, const std::vector<PathValue>& values) const {
  row.plain("{}", index);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i != dispatcher_) row.json(values[i]);
}

SweepRows::SweepRows(RowColumns columns) : columns_(std::move(columns)) {
  names_ = {"scenario"};
  for (std::size_t i = 0; i < columns_.paths.size(); ++i)
    if (columns_.paths[i].path == kDispatcher)
      dispatcher_ = i;
    else
      names_.push_back(columns_.paths[i].path);
  names_.insert(names_.end(), {kDispatcher, "time_us.value"});
  if (columns_.intervals) names_.insert(names_.end(), {"time_us.low", "time_us.high"});
  names_.emplace_back("winner");
  if (columns_.intervals) names_.emplace_back("winner.probability");
  if (columns_.breakdown)
    for (std::size_t c = 0; c < sim::kCategories; ++c)
      names_.push_back("breakdown_us." + std::string(sim::name(static_cast<sim::Category>(c))));
  names_.insert(names_.end(), {"tokens_per_s_per_gpu", "mfu", "tx_bytes_per_rank.mean",
                               "tx_bytes_per_rank.max", "overload.avg", "overload.max", "overload.max_cum",
                               "peak_memory_bytes.max", "fits", "fits_probability", "outside_domain"});
  if (columns_.cost) names_.insert(names_.end(), {"cost", "cost_per_million_tokens"});
  names_.emplace_back("error");
}

std::string SweepRows::header() const {
  if (columns_.format != RowFormat::kCsv) return "";
  std::string out;
  for (const std::string& name : names_) {
    if (!out.empty()) out += ',';
    out += csv_cell(name);
  }
  return out + '\n';
}

void SweepRows::append(std::string& out, std::uint64_t index, const std::vector<PathValue>& values,
                       const Evaluation& e) const {
  for (std::size_t i = 0; i < e.answers.size(); ++i) {
    const Answer& a = e.answers[i];
    Row row(out, columns_.format, names_);
    begin(row, index, values);
    row.text(a.dispatcher);
    if (!a.ok()) {
      const std::size_t empty = 2 + (columns_.intervals ? 3 : 0) +
                                (columns_.breakdown ? sim::kCategories : 0) + kMeasured +
                                (columns_.cost ? 2 : 0);
      for (std::size_t c = 0; c < empty; ++c) row.none();
      row.text(a.error);
      row.end();
      continue;
    }
    const double tx_mean =
        std::accumulate(a.tx_bytes.begin(), a.tx_bytes.end(), 0.0) / static_cast<double>(a.tx_bytes.size());
    const auto tx_max = static_cast<double>(*std::max_element(a.tx_bytes.begin(), a.tx_bytes.end()));
    const bool winner = static_cast<int>(i) == e.decision.winner;
    row.plain("{:.6f}", a.time_us.value);
    if (columns_.intervals) {
      row.plain("{:.6f}", a.time_us.low);
      row.plain("{:.6f}", a.time_us.high);
    }
    row.plain("{}", winner);
    if (columns_.intervals) {
      if (winner)
        row.plain("{:.4f}", e.decision.probability);
      else
        row.none();
    }
    if (columns_.breakdown)
      for (const double us : a.breakdown_us) row.plain("{:.6f}", us);
    row.plain("{:.3f}", a.tokens_per_s_per_gpu());
    row.plain("{:.6f}", a.mfu);
    row.plain("{:.0f}", tx_mean);
    row.plain("{:.0f}", tx_max);
    row.plain("{:.6f}", a.overload.printed().avg);
    row.plain("{:.6f}", a.overload.printed().max);
    row.plain("{:.6f}", a.overload.printed().max_cum);
    row.plain("{:.0f}", a.memory.max_bytes);
    row.plain("{}", a.memory.fits);
    row.plain("{:.4f}", a.memory.fits_probability);
    row.plain("{:.4f}", a.outside_domain);
    if (columns_.cost) {
      row.plain("{:.9g}", a.cost);
      row.plain("{:.9g}", a.cost_per_million_tokens());
    }
    row.none();
    row.end();
  }
}

void SweepRows::append_error(std::string& out, std::uint64_t index, const std::vector<PathValue>& values,
                             const std::string& error) const {
  Row row(out, columns_.format, names_);
  begin(row, index, values);
  if (dispatcher_)
    row.text(values[*dispatcher_].text);
  else
    row.none();
  const std::size_t inputs = 1 + values.size() - (dispatcher_ ? 1 : 0);
  for (std::size_t c = inputs + 1; c + 1 < names_.size(); ++c) row.none();
  row.text(error);
  row.end();
}

std::optional<std::uint64_t> SweepRows::index_of(std::string_view row) {
  constexpr std::string_view kKey = "{\"scenario\":";
  if (row.starts_with(kKey)) row.remove_prefix(kKey.size());
  const auto index = parse_int(row.substr(0, row.find_first_of(",}")));
  if (!index || *index < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*index);
}

}  // namespace moesim::tools
