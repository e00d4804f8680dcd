// What bash knows at one point of a script: variables, functions, options. Two states that a condition leads
// to become one, in which what differs is unknown.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/moesim/jobs/shell_syntax.h"

namespace moesim::tools {

// Begins and ends an unknown piece of a text; between them stands a number, the place of its reason.
inline constexpr char kShellUnknown = '\x01';
// An empty piece in quotes, which makes a word of its own.
inline constexpr char kShellEmpty = '\x02';

inline bool has_unknown(std::string_view text) { return text.find(kShellUnknown) != std::string_view::npos; }

// Text with the kind of each character: literal, in quotes, or of an expansion outside of quotes.
struct ShellText {
  static constexpr char kLiteral = 'l', kQuoted = 'q', kExpanded = 'x';
  std::string chars, marks;

  void add(std::string_view text, char mark) {
    chars += text;
    marks.append(text.size(), mark);
  }
  // Without the signs of empty pieces.
  std::string plain() const;
};

// Whether a pattern matches all of a text; nullopt: it cannot be told. `negative` of a length: no match.
std::optional<bool> shell_match(const ShellText& pattern, std::string_view text);

struct ShellVariable {
  bool array = false, named = false, integer = false, exported = false, readonly = false;
  bool odd = false;                          // changes what it is given: declare -l, -u
  std::string reference;                     // declare -n
  std::map<long long, std::string> items;    // item 0 of a plain variable; empty: not set
  std::map<std::string, std::string> keyed;  // of declare -A

  bool operator==(const ShellVariable&) const = default;
};
using ShellVariablePtr = std::shared_ptr<const ShellVariable>;

struct ShellState {
  std::map<std::string, ShellVariablePtr> variables;
  std::map<std::string, ShellNodePtr> functions;  // nullptr: perhaps one, perhaps another
  std::vector<std::string> arguments;             // $1, ...
  bool arguments_given = false;
  std::vector<std::map<std::string, ShellVariablePtr>> outer;  // what `local` hides, by function
  std::string out;                                             // standard output, while it is of interest
  std::string trap;                                            // of EXIT
  std::string anything;  // why every variable may have changed; empty: none has
  std::optional<int> status = 0;
  bool dead = false;  // the script has left this way
  bool errexit = false, noglob = false, pipefail = false, nounset = false, allexport = false,
       odd_globs = false;

  bool operator==(const ShellState&) const = default;
};

// Makes an unknown piece for a variable; "": for something else.
using ShellUnknown = std::function<std::string(const std::string& name)>;

// The state in which a script is that has come one of two ways.
ShellState merged(ShellState a, ShellState b, const ShellUnknown& unknown);

}  // namespace moesim::tools
