#include "tools/moesim/show/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <numeric>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/csv.h"
#include "base/input_error.h"
#include "base/json_text.h"
#include "base/text.h"
#include "tools/moesim/show/command.h"
#include "tools/moesim/show/result_inputs.h"

namespace moesim::tools {

void Table::row(std::vector<std::string> cells) {
  check(cells.size() == columns_.size(), "a table row has as many cells as the table has columns");
  // A name with line breaks would forge rows.
  for (std::string& cell : cells)
    for (char& c : cell)
      if (c == '\n' || c == '\t' || c == '\r') c = ' ';
  rows_.push_back(std::move(cells));
}

void Table::separator() { rows_.emplace_back(); }

void Table::mark_best() {
  check(!rows_.empty(), "a row to mark");
  best_.insert(rows_.size() - 1);
}

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = width_of(columns_[c].name);
    for (const auto& row : rows_)
      if (!row.empty()) width = std::max(width, width_of(row[c]));
    widths.push_back(width);
  }
  return widths;
}

bool Table::fits(const Terminal& terminal) const {
  std::size_t width = 0;
  for (std::size_t c = 0; const std::size_t one : widths())
    if (!columns_[c++].spare) width += (width > 0 ? 2 : 0) + one;
  return terminal.columns == 0 || width <= terminal.columns;
}

std::string Table::text(const Terminal& terminal) const {
  const std::vector<std::size_t> widths = this->widths();
  std::string out;
  // Prints the columns of one block.
  const auto print_block = [&](const std::vector<std::size_t>& block) {
    const auto line = [&](const auto& cell_of, Ink ink) {
      std::string text;
      for (std::size_t i = 0; i < block.size(); ++i) {
        const std::size_t c = block[i];
        const std::string cell = cell_of(c);
        const std::string pad(widths[c] - width_of(cell), ' ');
        if (i > 0) text += "  ";
        text += columns_[c].align == Align::kRight ? pad + cell : cell + pad;
      }
      text.erase(text.find_last_not_of(' ') + 1);
      out += inked(text, ink, terminal) + '\n';
    };
    std::string rule;
    for (std::size_t i = 0; i < block.size(); ++i)
      rule += (i > 0 ? "  " : "") + std::string(widths[block[i]], '-');
    line([&](std::size_t c) { return columns_[c].name; }, Ink::kBold);
    out += inked(rule, Ink::kSoft, terminal) + '\n';
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      if (rows_[r].empty())
        out += inked(rule, Ink::kSoft, terminal) + '\n';
      else
        line([&](std::size_t c) { return rows_[r][c]; }, best_.contains(r) ? Ink::kBest : Ink::kPlain);
    }
  };
  std::vector<std::size_t> kept(columns_.size());
  std::iota(kept.begin(), kept.end(), std::size_t{0});
  const auto too_wide = [&] {
    std::size_t width = 0;
    for (const std::size_t c : kept) width += (width > 0 ? 2 : 0) + widths[c];
    return terminal.columns > 0 && width > terminal.columns;
  };
  while (too_wide()) {
    const auto last =
        std::find_if(kept.rbegin(), kept.rend(), [&](std::size_t c) { return columns_[c].spare; });
    if (last == kept.rend()) break;
    kept.erase(std::next(last).base());
  }
  std::vector<std::size_t> block;
  std::size_t width = 0;
  for (const std::size_t c : kept) {
    if (block.size() > 1 && terminal.columns > 0 && width + 2 + widths[c] > terminal.columns) {
      print_block(block);
      out += '\n';
      block = {0};
      width = widths[0];
    }
    width += (block.empty() ? 0 : 2) + widths[c];
    block.push_back(c);
  }
  print_block(block);
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

namespace {
thread_local KeptOutput* kept = nullptr;
}  // namespace

KeptOutput::KeptOutput() {
  check(kept == nullptr, "a thread's output is kept once");
  kept = this;
}

KeptOutput::~KeptOutput() { kept = nullptr; }

void print(std::string_view given) {
  const std::string text = shown(given);
  if (kept) {
    kept->text_ += text;
    return;
  }
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return;
  if (errno == EPIPE) std::_Exit(128 + SIGPIPE);  // the reader closed the pipe, as with `| head`
  throw InputError(SourcePlace{"standard output"}, std::string("cannot write: ") + std::strerror(errno));
}

std::string in_lines(std::string_view text, std::size_t indent) {
  return wrapped(text, standard_output().columns > 0 ? sentence_columns() : 0, indent);
}

void print_text(std::string_view text, std::size_t indent) { print(in_lines(text, indent)); }

void print_answer(std::string_view text) { print_text(inked(text, Ink::kBold) + "\n"); }

void warn(const CommonOptions& options, std::string_view text) {
  if (options.quiet) return;
  static const Terminal terminal = Terminal::of(STDERR_FILENO);
  const std::string line = fmt::format("moesim: warning: {}\n", one_line(text));
  say(wrapped(line, terminal.columns > 0 ? sentence_columns(terminal) : 0, 2));
}

void warn_below(const CommonOptions& options, const std::vector<std::string>& warnings, bool explains,
                bool all) {
  constexpr std::size_t kShown = 2;
  const std::size_t shown = all || warnings.size() <= kShown ? warnings.size() : kShown;
  for (std::size_t i = 0; i < shown; ++i) warn(options, warnings[i]);
  if (shown == warnings.size()) return;
  const char* where = options.format == Format::kJson                ? "the result's \"warnings\""
                      : explains && options.format == Format::kTable ? "--explain"
                                                                     : "--format json";
  warn(options, fmt::format("{} more in {}", warnings.size() - shown, where));
}

nlohmann::ordered_json envelope(std::string_view verb, const nlohmann::ordered_json& inputs,
                                const std::vector<std::string>& warnings) {
  nlohmann::ordered_json out;
  out["schema"] = fmt::format("moesim.{}/1", verb);
  out["version"] = version();
  out["inputs"] = inputs;
  // including files read after the description
  if (inputs.contains("files")) out["inputs"]["files"] = files_read();
  out["warnings"] = warnings;
  return out;
}

void print_json(const nlohmann::ordered_json& result) { print(json_text(result)); }

std::string percent(double fraction, int digits, bool sign) {
  return fmt::format(fmt::runtime(sign ? "{:+.{}f} %" : "{:.{}f} %"), 100 * fraction, digits);
}

}  // namespace moesim::tools
