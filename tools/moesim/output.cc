#include "tools/moesim/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/input_error.h"
#include "tools/moesim/version.h"

namespace moesim::tools {

namespace {

// Columns a terminal uses for UTF-8 text without wide characters: continuation bytes take none.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string csv_cell(const std::string& cell) {
  if (cell.find_first_of(",\"\n\r") == std::string::npos) return cell;
  std::string out = "\"";
  for (const char c : cell) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

}  // namespace

void Table::row(std::vector<std::string> cells) {
  check(cells.size() == columns_.size(), "a table row has as many cells as the table has columns");
  rows_.push_back(std::move(cells));
}

void Table::separator() { rows_.emplace_back(); }

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = width_of(columns_[c].name);
    for (const auto& row : rows_)
      if (!row.empty()) width = std::max(width, width_of(row[c]));
    widths.push_back(width);
  }
  std::string out;
  const auto line = [&](const auto& cell_of) {
    std::string text;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string cell = cell_of(c);
      const std::string pad(widths[c] - width_of(cell), ' ');
      if (c > 0) text += "  ";
      text += columns_[c].align == Align::kRight ? pad + cell : cell + pad;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  };
  std::string rule;
  for (std::size_t c = 0; c < columns_.size(); ++c) rule += (c > 0 ? "  " : "") + std::string(widths[c], '-');
  line([&](std::size_t c) { return columns_[c].name; });
  out += rule + '\n';
  for (const auto& row : rows_) {
    if (row.empty())
      out += rule + '\n';
    else
      line([&](std::size_t c) { return row[c]; });
  }
  return out;
}

std::string Table::csv() const {
  std::string out;
  for (std::size_t c = 0; c < columns_.size(); ++c) out += (c > 0 ? "," : "") + csv_cell(columns_[c].name);
  out += '\n';
  for (const auto& row : rows_) {
    if (row.empty()) continue;
    for (std::size_t c = 0; c < row.size(); ++c) out += (c > 0 ? "," : "") + csv_cell(row[c]);
    out += '\n';
  }
  return out;
}

std::string Table::markdown() const {
  std::string out = "|";
  for (const auto& column : columns_) out += " " + column.name + " |";
  out += "\n|";
  for (const auto& column : columns_) out += column.align == Align::kRight ? " ---: |" : " --- |";
  out += '\n';
  for (const auto& row : rows_) {
    if (row.empty()) continue;
    out += "|";
    for (const auto& cell : row) out += " " + cell + " |";
    out += '\n';
  }
  return out;
}

void print(std::string_view text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return;
  if (errno == EPIPE) std::_Exit(128 + SIGPIPE);  // the reader went away, as with `| head`
  throw InputError(SourcePlace{"standard output"}, std::string("cannot write: ") + std::strerror(errno));
}

void warn(const CommonOptions& options, std::string_view text) {
  if (!options.quiet) fmt::print(stderr, "moesim: warning: {}\n", text);
}

nlohmann::ordered_json envelope(std::string_view verb, const nlohmann::ordered_json& inputs,
                                const std::vector<std::string>& warnings) {
  nlohmann::ordered_json out;
  out["schema"] = fmt::format("moesim.{}/1", verb);
  out["version"] = version();
  out["inputs"] = inputs;
  out["warnings"] = warnings;
  return out;
}

void print_json(const nlohmann::ordered_json& result) {
  print(result.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

std::string percent(double fraction, int digits) {
  const std::string text = fmt::format("{:+.{}f} %", 100 * fraction, digits);
  return text;
}

}  // namespace moesim::tools
