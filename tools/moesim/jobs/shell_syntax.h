// The grammar of bash: the text of a script as a tree of commands. Words keep their text as it stands in the
// script; ShellRun expands them.
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
  std::string descriptor;             // digits in front
  ShellWord target;                   // a file, a descriptor, or the text of a here-string
  std::shared_ptr<std::string> body;  // of a here-document
  bool verbatim = false;              // its body is not expanded
};

struct ShellNode {
  enum class Kind {
    kSimple,      // assignments, words
    kList,        // parts one after the other
    kAndOr,       // parts, joined by the signs of `text`
    kNot,         // parts[0]
    kPipe,        // parts, each in a subshell
    kBackground,  // parts[0]
    kIf,          // condition, body, condition, body, ..., perhaps the body of else
    kWhile,       // condition, body, of for (( )) also what comes after each turn and in front
    kUntil,
    kFor,       // text: its variable; words, body; `given`: there is an "in"
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
  std::size_t prefix = 0;  // assignments in front of the first word
  std::vector<ShellWord> words;
  std::vector<std::vector<ShellWord>> patterns;
  std::vector<ShellRedirect> redirects;
  std::vector<ShellNodePtr> parts;
};

bool is_shell_name(std::string_view text);
// The length of a variable's name at the start of a text; 0: none.
std::size_t shell_name_length(std::string_view text);
// Where the quoted text, expansion or single character at `at` ends. `in_double`: inside of double quotes.
std::size_t after_shell_piece(std::string_view text, std::size_t at, bool in_double, const std::string& file,
                              long line);

// Parses a script; `line`: of its first line. The text has to live as long as the tree. Throws InputError
// with the place for what is no syntax of bash, for what is not followed, and for commands inside of each
// other, 64 deep.
ShellNodePtr parse_shell(std::string_view text, const std::string& file, long line);

}  // namespace moesim::tools
