// The state of bash at one point of a script: variables, functions, options. Two states after a condition
// merge into one, in which differing values are unknown.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/moesim/read/shell_syntax.h"

namespace moesim::tools {

// Begins and ends an unknown piece of a text; between them stands the index of its reason.
inline constexpr char kShellUnknown = '\x01';
// An empty quoted piece, which makes a word of its own.
inline constexpr char kShellEmpty = '\x02';

inline bool has_unknown(std::string_view text) { return text.find(kShellUnknown) != std::string_view::npos; }
// Returns whether a text consists of unknown pieces only and so may be empty.
bool may_be_empty(std::string_view text);

// Text with the kind of each character: literal, quoted, or from an unquoted expansion.
struct ShellText {
  static constexpr char kLiteral = 'l', kQuoted = 'q', kExpanded = 'x';
  std::string chars, marks;

  void add(std::string_view text, char mark) {
    chars += text;
    marks.append(text.size(), mark);
  }
  // Returns the text without the marks of empty pieces.
  std::string plain() const;
  bool is_pattern() const;
};

// Returns whether a pattern of characters, * and ? matches a whole text; nullopt: unknown.
std::optional<bool> shell_match(const ShellText& pattern, std::string_view text);

struct ShellVariable {
  bool array = false, exported = false, readonly = false;
  std::vector<std::string> items;  // one for a plain variable; empty: not set

  bool operator==(const ShellVariable&) const = default;
};
using ShellVariablePtr = std::shared_ptr<const ShellVariable>;
using ShellVariables = std::map<std::string, ShellVariablePtr>;

struct ShellState {
  enum class Flow { kOn, kBreak, kContinue, kReturn, kExit };

  ShellVariables variables;
  std::map<std::string, ShellNodePtr> functions;  // nullptr: unknown which
  std::vector<std::string> arguments;             // $1, ...
  bool arguments_given = false;
  std::vector<ShellVariables> hidden;  // variables that `local` hides, by function
  std::string out;                     // standard output, while it is captured
  std::string anything;                // why every variable may have changed; empty: none has
  std::optional<int> status = 0;
  bool errexit = false, nounset = false, pipefail = false;
  Flow flow = Flow::kOn;  // where the script continues
  long levels = 0;        // for break and continue

  bool leaves() const { return flow != Flow::kOn; }
};

// Makes an unknown piece for a variable; "": for something else.
using ShellUnknown = std::function<std::string(const std::string& name)>;

// Merges the variables, functions and output of two alternative paths.
ShellState merged(ShellState a, const ShellState& b, const ShellUnknown& unknown);

}  // namespace moesim::tools
