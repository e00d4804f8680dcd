// Output of results: aligned tables for people, JSON and CSV for programs; warnings and progress go to stderr
// only.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/show/common_options.h"
#include "tools/moesim/show/terminal.h"

namespace moesim::tools {

// A table of text cells with one header line; numbers are right-aligned, text is left-aligned.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string name;
    Align align = Align::kRight;
    bool spare = false;  // left out where the terminal has no room for all, the last such column first
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void row(std::vector<std::string> cells);
  void separator();  // a rule between rows
  void mark_best();  // highlights the last row where colours are available

  bool fits(const Terminal& terminal = standard_output()) const;  // whether text() is one block
  // Formats an aligned table. One wider than the terminal is split into blocks of columns below each other,
  // each with the first column.
  std::string text(const Terminal& terminal = standard_output()) const;
  std::string csv() const;  // RFC 4180

 private:
  std::vector<std::size_t> widths() const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a separator
  std::set<std::size_t> best_;                  // rows
};

// While one exists, output of its thread is captured instead of written: for callers other than a shell.
class KeptOutput {
 public:
  KeptOutput();
  KeptOutput(const KeptOutput&) = delete;
  KeptOutput& operator=(const KeptOutput&) = delete;
  ~KeptOutput();

  const std::string& text() const { return text_; }

 private:
  friend void print(std::string_view text);
  std::string text_;
};

// Writes to stdout, filtered for terminals (shown()); throws InputError when stdout cannot take it (a full
// disk), exits quietly on a closed pipe.
void print(std::string_view text);

// Breaks sentences at the terminal's width, if there is one; `indent`: of the lines behind a paragraph's first.
std::string in_lines(std::string_view text, std::size_t indent = 0);
void print_text(std::string_view text, std::size_t indent = 0);
// Prints the sentence that answers the question: the first line of every verb.
void print_answer(std::string_view text);

// Prints a warning on stderr, unless --quiet.
void warn(const CommonOptions& options, std::string_view text);
// Prints the warnings below an answer, most important first: three lines, then the number of the others and
// where to read them. `all`: every one; `explains`: the verb has --explain, which asks for all.
void warn_below(const CommonOptions& options, const std::vector<std::string>& warnings, bool explains = false,
                bool all = false);

// Returns {"schema": "moesim.<verb>/1", "version": ..., "inputs": inputs, "warnings": [...]} for the verb to
// complete.
nlohmann::ordered_json envelope(std::string_view verb, const nlohmann::ordered_json& inputs,
                                const std::vector<std::string>& warnings);

void print_json(const nlohmann::ordered_json& result);

// "3.1 %"; "+3.1 %" of an error or a difference.
std::string percent(double fraction, int digits = 1, bool sign = false);

}  // namespace moesim::tools
