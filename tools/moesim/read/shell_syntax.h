// For shell_run.cc: the tree of a script (shell_syntax.cc); texts, patterns, sums, tests (shell_values.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moesim::tools {

// ---- The tree. Words keep their original text.

struct ShellNode;
using ShellNodePtr = std::shared_ptr<const ShellNode>;

struct ShellWord {
  std::string_view raw;
  long line = 0;
};

// NAME=item, NAME+=item, NAME=(items).
struct ShellAssignment {
  std::string name;
  bool append = false, array = false;
  std::vector<ShellWord> items;
};

struct ShellNode {
  enum class Kind {
    kList,      // parts in sequence
    kAndOr,     // parts, joined by the operators of `text`
    kNot,       // parts[0]
    kIf,        // condition, body, condition, body, ..., optionally the body of else
    kWhile,     // condition, body
    kFor,       // text: its variable; words, body; `given`: it has an "in"
    kCase,      // words[0], patterns and parts
    kFunction,  // text: its name; body
    // Commands, at which `set -e` looks:
    kSimple,  // assignments, words
    kPipe,    // parts, each in a subshell
    kSubshell,
    kArithmetic,  // words[0]
    kTest         // words of [[ ]]
  };
  Kind kind = Kind::kList;
  long line = 0;
  bool given = false;
  std::string text;
  std::vector<ShellAssignment> assignments;
  std::size_t prefix = 0;  // assignments before the first word
  std::vector<ShellWord> words;
  std::vector<std::vector<ShellWord>> patterns;
  bool redirected = false, verbatim = false;  // verbatim: the here-document is not expanded
  std::shared_ptr<std::string> document;
  std::vector<ShellNodePtr> parts;
};

// Returns the length of a variable's name at the start of a text; 0: none.
std::size_t shell_name_length(std::string_view text);
// Returns the end of the quoted text, expansion or character at `at`. `in_double`: inside of double quotes.
std::size_t after_shell_piece(std::string_view text, std::size_t at, bool in_double, const std::string& file,
                              long line);
// Parses a script; `line`: of its first line. The text must outlive the tree. Throws InputError with the
// place for invalid syntax, unsupported constructs, and commands nested deeper than 64.
ShellNodePtr parse_shell(std::string_view text, const std::string& file, long line);

// ---- Texts. An unknown piece is kShellUnknown, the index of its reason, kShellUnknown.

inline constexpr char kShellUnknown = '\x01';
inline constexpr char kShellEmpty = '\x02';  // an empty quoted piece, which makes a word of its own

inline bool has_unknown(std::string_view text) { return text.find(kShellUnknown) != std::string_view::npos; }
// Returns the end of the unknown piece that begins at `at`.
std::size_t after_unknown(std::string_view text, std::size_t at);
// Returns whether a text consists of unknown pieces only and so may be empty.
bool may_be_empty(std::string_view text);
// Merges the texts of two alternatives: `unknown` from their first different word on.
std::string merged_text(const std::string& a, const std::string& b, const std::string& unknown);

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

using ShellTruth = std::optional<bool>;  // nullopt: unknown
using ShellNumber = std::optional<std::int64_t>;

// Returns whether a pattern matches a whole text.
ShellTruth shell_match(const ShellText& pattern, const std::string& text);
// Reads a number as arithmetic and tests write it: no sign +, no leading zero.
ShellNumber shell_number(std::string_view text);

// The value of an expression without assignments; nullopt: the text is none, or divides by 0.
std::optional<ShellNumber> shell_sum(std::string_view text,
                                     const std::function<ShellNumber(const std::string&)>& variable);

// Evaluates the words of `test`.
ShellTruth shell_test(std::span<const std::string> words);

}  // namespace moesim::tools
