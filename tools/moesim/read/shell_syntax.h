// The grammar of bash: parses a script into a tree of commands. Words keep their original text; ShellRun
// expands them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace moesim::tools {

struct ShellNode;
using ShellNodePtr = std::shared_ptr<const ShellNode>;

struct ShellWord {
  std::string_view raw;
  long line = 0;
};

// NAME=value, NAME+=value, NAME=(items).
struct ShellAssignment {
  std::string name;
  bool append = false, array = false;
  ShellWord value;
  std::vector<ShellWord> items;
};

struct ShellRedirect {
  std::string op;                     // "<", ">", "<<", "<<<", ">&", ...
  std::string descriptor;             // digits before the operator
  ShellWord target;                   // a file, a descriptor, or the text of a here-string
  std::shared_ptr<std::string> body;  // of a here-document
  bool verbatim = false;              // its body is not expanded
};

struct ShellNode {
  enum class Kind {
    kSimple,      // assignments, words
    kList,        // parts in sequence
    kAndOr,       // parts, joined by the operators of `text`
    kNot,         // parts[0]
    kPipe,        // parts, each in a subshell
    kBackground,  // parts[0]
    kIf,          // condition, body, condition, body, ..., optionally the body of else
    kWhile,       // condition, body; for (( )) also the step after each iteration and the initialisation
    kUntil,
    kFor,       // text: its variable; words, body; `given`: it has an "in"
    kCase,      // words[0], patterns and parts
    kFunction,  // text: its name; body
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
  std::vector<ShellRedirect> redirects;
  std::vector<ShellNodePtr> parts;
};

bool is_shell_name(std::string_view text);
// Returns the length of a variable's name at the start of a text; 0: none.
std::size_t shell_name_length(std::string_view text);
// Returns the end of the quoted text, expansion or single character at `at`. `in_double`: inside of double
// quotes.
std::size_t after_shell_piece(std::string_view text, std::size_t at, bool in_double, const std::string& file,
                              long line);

// Parses a script; `line`: of its first line. The text must outlive the tree. Throws InputError with the
// place for invalid syntax, unsupported constructs, and commands nested deeper than 64.
ShellNodePtr parse_shell(std::string_view text, const std::string& file, long line);

}  // namespace moesim::tools
