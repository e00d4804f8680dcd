// The grammar of bash.
#include "tools/moesim/read/shell_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/text.h"
#include "tools/moesim/read/job_file.h"
#include "tools/moesim/read/shell_words.h"

namespace moesim::tools {

namespace {

using Kind = ShellNode::Kind;
using NewNode = std::shared_ptr<ShellNode>;

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
constexpr std::string_view kWordEnds = " \t\n;&|()<>";
bool ends_word(char c) { return kWordEnds.find(c) != std::string_view::npos; }

class Parser {
 public:
  Parser(std::string_view text, const std::string& file, long line) : text_(text), file_(file), line_(line) {}

  ShellNodePtr program() {
    ShellNodePtr all = list();
    if (!ended()) unexpected();
    return all;
  }
  std::size_t piece_at(std::size_t at, bool in_double) {
    at_ = at;
    piece(in_double);
    return at_;
  }

 private:
  struct Document {
    std::string end;
    bool strips;
    std::shared_ptr<std::string> body;
  };
  [[noreturn]] void fail(const std::string& found, const std::string& expected) const {
    throw InputError(SourcePlace{file_, line_}, found, expected);
  }
  std::string found() const {
    const std::size_t end = std::min(text_.find_first_of(kWordEnds, at_ + 1), text_.size());
    return ended() ? "the end" : in_quotes(one_line(text_.substr(at_, end - at_)));
  }
  [[noreturn]] void unexpected() const {
    if (starts("<(") || starts(">(") || (at_ > 0 && text_[at_ - 1] == '<' && starts("(")))
      fail("<( ) or >( ), which is not followed", "a file");
    fail(found(), "a command as bash has it");
  }

  // Counts the nesting depth.
  void deeper() {
    if (++depth_ > kMaxJobFileDepth) fail("commands or expansions inside of each other, 64 deep", "fewer");
  }
  bool ended() const { return at_ >= text_.size(); }
  char here(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool starts(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool at_word_end() const { return ended() || ends_word(here()); }
  void advance(std::size_t count) {
    for (const std::size_t to = std::min(at_ + count, text_.size()); at_ < to; ++at_)
      line_ += text_[at_] == '\n' ? 1 : 0;
  }
  bool take(std::string_view what) {
    if (!starts(what)) return false;
    advance(what.size());
    return true;
  }

  // Returns whether a reserved word is at the place of a command.
  bool is_word(std::string_view what) const {
    return starts(what) && (at_ + what.size() >= text_.size() || ends_word(text_[at_ + what.size()]));
  }
  bool take_word(std::string_view what) { return is_word(what) && take(what); }
  void expect_word(std::string_view what, long from) {
    blanks(true);
    if (!take_word(what)) fail(found(), fmt::format("'{}' for the command of line {}", what, from));
  }
  bool closer() const {
    for (const std::string_view one : {"then", "do", "done", "fi", "elif", "else", "esac", "}"})
      if (is_word(one)) return true;
    return false;
  }

  void blanks(bool lines) {
    for (;;) {
      if (here() == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      if (take(" ") || take("\t") || take("\\\n")) continue;
      if (!lines || !take("\n")) return;
      read_documents();
    }
  }

  void read_documents() {
    for (const Document& document : std::exchange(documents_, {})) {
      for (bool ends = false; !ended() && !ends;) {
        std::string_view line = text_.substr(at_, text_.find('\n', at_) - at_);
        advance(line.size() + 1);
        if (document.strips) line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
        ends = line == document.end;
        if (!ends) *document.body += std::string(line) + "\n";
      }
    }
  }

  std::string shown(std::size_t from) const { return in_quotes(one_line(text_.substr(from, 20))); }

  // Reads quoted text or an expansion up to `end`; `opens`: the characters at its start.
  void until(char end, std::size_t opens, bool in_double) {
    const std::size_t from = at_;
    const long line = line_;
    advance(opens);
    const bool braces = end == '}', plain = end == '`' || end == '\'';
    while (!ended() && here() != end) {
      // Quotes inside of braces nest, also inside of double quotes.
      if (braces && here() == '"')
        until('"', 1, true);
      else if (plain)
        advance(here() == '\\' && (end == '`' || opens > 1) ? 2 : 1);
      else
        piece(in_double);
    }
    const std::string what = end == '"' || end == '\'' ? "a quote" : "an expansion";
    if (!take({&end, 1}))
      throw InputError({file_, line}, what + " that does not end: " + shown(from), std::string("its ") + end);
  }

  // Reads one character, or the quoted text or expansion that begins with it.
  void piece(bool in_double) {
    deeper();
    const char c = here();
    if (starts("$(("))
      arithmetic();
    else if (take("$("))
      in_parentheses(line_);
    else if (starts("${"))
      until('}', 2, in_double);
    else if (!in_double && (c == '\'' || starts("$'")))
      until('\'', c == '$' ? 2 : 1, false);
    else if (c == '`' || (!in_double && c == '"'))
      until(c, 1, true);
    else
      advance(c == '\\' ? 2 : 1);
    --depth_;
  }

  // Reads commands up to ")".
  ShellNodePtr in_parentheses(long from) {
    ShellNodePtr all = list();
    if (!take(")")) fail(found() + ", a command that does not end", fmt::format("')' for line {}", from));
    return all;
  }

  // Reads (( )) or $(( )); returns the text between the parentheses.
  std::string_view arithmetic() {
    const std::size_t from = at_;
    advance(here() == '$' ? 3 : 2);
    const std::size_t inside = at_;
    for (int open = 0; open > 0 || !starts("))");) {
      if (ended()) fail("arithmetic that does not end: " + shown(from), "))");
      open += here() == '(' ? 1 : here() == ')' ? -1 : 0;
      if (open < 0) fail("a command in parentheses: " + shown(from), "a blank between the parentheses");
      piece(true);
    }
    advance(2);
    return text_.substr(inside, at_ - inside - 2);
  }

  ShellWord word(bool parentheses = false) {
    const std::size_t from = at_;
    const long line = line_;
    int open = 0;
    while (!ended()) {
      const char c = here();
      if (parentheses && (c == '(' || c == ')')) open += c == '(' ? 1 : -1;
      if (open < 0 || (ends_word(c) && open == 0 && !(parentheses && (c == '|' || c == ')')))) break;
      open > 0 ? advance(1) : piece(false);
    }
    return {text_.substr(from, at_ - from), line};
  }

  NewNode made(Kind kind, long line = 0) const {
    auto node = std::make_shared<ShellNode>();
    node->kind = kind;
    node->line = line > 0 ? line : line_;
    return node;
  }

  ShellNodePtr list() {
    deeper();
    NewNode node = made(Kind::kList);
    for (;;) {
      blanks(true);
      if (ended() || here() == ')' || starts(";;") || closer()) break;
      ShellNodePtr one = and_or();
      blanks(false);
      if (take("&")) {
        NewNode background = made(Kind::kSubshell);
        background->parts.push_back(std::move(one));
        one = background;
      } else if (!starts(";;") && !take(";") && !ended() && here() != '\n' && here() != ')' && !closer()) {
        unexpected();
      }
      node->parts.push_back(std::move(one));
    }
    --depth_;
    return node;
  }

  ShellNodePtr and_or() {
    NewNode node = made(Kind::kAndOr);
    for (;;) {
      node->parts.push_back(pipeline());
      blanks(false);
      if (!starts("&&") && !starts("||")) break;
      node->text += here();
      advance(2);
      blanks(true);
    }
    return node->parts.size() == 1 ? node->parts.front() : node;
  }

  ShellNodePtr pipeline() {
    blanks(false);
    if (take_word("!")) {
      deeper();
      NewNode node = made(Kind::kNot);
      node->parts.push_back(pipeline());
      --depth_;
      return node;
    }
    while (take_word("time")) blanks(false);
    NewNode node = made(Kind::kPipe);
    for (;;) {
      node->parts.push_back(command());
      blanks(false);
      if (starts("||") || !take("|")) break;
      blanks(true);
    }
    return node->parts.size() == 1 ? node->parts.front() : node;
  }

  ShellNodePtr command() {
    blanks(false);
    NewNode node = compound();
    if (!node) return simple();
    for (blanks(false); redirect(*node);) blanks(false);
    return node;
  }

  // Reads a redirection, if there is one.
  bool redirect(ShellNode& node) {
    const std::size_t digits = std::min(text_.find_first_not_of("0123456789", at_), text_.size()) - at_;
    const std::string_view rest = text_.substr(at_ + digits);
    for (const std::string_view op : {"<<<", "<<-", "<<", "<&", "<", ">>", ">&", ">", "&>>", "&>"}) {
      if (!rest.starts_with(op) || (op[0] == '&' && digits > 0)) continue;
      node.redirected = true;
      advance(digits + op.size());
      blanks(false);
      std::string end(word().raw);
      if (end.empty()) unexpected();
      if (op == "<<" || op == "<<-") {
        node.verbatim = std::erase_if(end, [](char c) { return c == '\'' || c == '"' || c == '\\'; }) > 0;
        node.document = std::make_shared<std::string>();
        documents_.push_back({end, op == "<<-", node.document});
      }
      return true;
    }
    return false;
  }

  bool assignment(ShellNode& node) {
    const std::size_t n = shell_name_length(text_.substr(at_));
    if (n > 0 && here(n) == '[') fail("an element of an array: " + shown(at_), "an array in parentheses");
    ShellAssignment one;
    one.append = here(n) == '+';
    if (n == 0 || here(n + (one.append ? 1 : 0)) != '=') return false;
    one.name = text_.substr(at_, n);
    advance(n + (one.append ? 2 : 1));
    one.array = take("(");
    const long from = line_;
    if (one.array) {
      for (blanks(true); !ended() && here() != ')'; blanks(true)) {
        if (at_word_end()) unexpected();
        one.items.push_back(word());
        const std::string_view item = one.items.back().raw;
        if (item.starts_with('[') && item.find("]=") != std::string_view::npos)
          fail("an element with a key: " + in_quotes(item), "elements alone");
      }
      if (!take(")")) throw InputError({file_, from}, "an array that does not end", "')'");
    } else if (!at_word_end()) {
      one.items.push_back(word());
    }
    node.assignments.push_back(std::move(one));
    return true;
  }

  ShellNodePtr simple() {
    NewNode node = made(Kind::kSimple);
    for (bool declares = true; blanks(false), !ended();) {
      if (redirect(*node)) continue;
      if (ends_word(here())) break;
      if (declares && assignment(*node)) continue;
      if (node->words.empty()) node->prefix = node->assignments.size();
      node->words.push_back(word());
      const std::string_view first = node->words.front().raw;
      declares = is_script_word("declaring", first);
      if (node->words.size() > 1 || !node->assignments.empty() || node->redirected) continue;
      if (blanks(false), here() == '(') return function(std::string(first), node->line);
    }
    if (node->words.empty() && node->assignments.empty() && !node->redirected) unexpected();
    return node;
  }

  NewNode function(const std::string& name, long line) {
    NewNode node = made(Kind::kFunction, line);
    node->text = name;
    if (blanks(false), take("(")) {
      blanks(false);
      if (!take(")")) unexpected();
    }
    blanks(true);
    node->parts.push_back(command());
    return node;
  }

  void body(ShellNode& node) {
    blanks(false), take(";");
    expect_word("do", node.line);
    node.parts.push_back(list());
    expect_word("done", node.line);
  }

  NewNode compound() {
    const long from = line_;
    NewNode node;
    if (starts("((")) {
      node = made(Kind::kArithmetic);
      node->words.push_back({arithmetic(), from});
    } else if (take("(")) {
      node = made(Kind::kSubshell, from);
      node->parts.push_back(in_parentheses(from));
    } else if (take_word("{")) {
      node = made(Kind::kList, from);
      node->parts.push_back(list());
      expect_word("}", from);
    } else if (take_word("if")) {
      node = made(Kind::kIf, from);
      do {
        node->parts.push_back(list());
        expect_word("then", from);
        node->parts.push_back(list());
        blanks(true);
      } while (take_word("elif"));
      if (take_word("else")) node->parts.push_back(list());
      expect_word("fi", from);
    } else if (take_word("while")) {
      node = made(Kind::kWhile, from);
      node->parts.push_back(list());
      body(*node);
    } else if (take_word("for")) {
      node = for_loop();
    } else if (take_word("case")) {
      node = case_of(from);
    } else if (take_word("[[")) {
      node = test();
    } else if (take_word("function")) {
      blanks(false);
      node = function(std::string(word().raw), from);
    }
    return node;
  }

  NewNode for_loop() {
    NewNode node = made(Kind::kFor);
    if (blanks(false), starts("((")) return counted_loop();
    node->text = word().raw;
    if (!is_shell_name(node->text)) fail(in_quotes(node->text), "the name of a variable");
    blanks(true);
    node->given = take_word("in");
    for (blanks(false); node->given && !at_word_end(); blanks(false)) node->words.push_back(word());
    body(*node);
    return node;
  }

  // for ((first; condition; step)): the list of `first` and a loop; `set -e` looks at none of the three.
  NewNode counted_loop() {
    NewNode all = made(Kind::kList), loop = made(Kind::kWhile), turn = made(Kind::kList);
    std::vector<NewNode> three;
    for (const std::string_view sum : split(arithmetic(), ';')) {
      NewNode one = made(Kind::kArithmetic, loop->line);
      one->words.push_back({trim(sum).empty() ? "1" : sum, loop->line});
      three.push_back(made(Kind::kNot));
      three.back()->parts.push_back(one);
    }
    if (three.size() != 3) unexpected();
    body(*turn);
    turn->parts.push_back(three[2]);
    loop->parts = {three[1]->parts[0], turn};
    all->parts = {three[0], loop};
    return all;
  }

  NewNode case_of(long from) {
    NewNode node = made(Kind::kCase, from);
    blanks(false);
    node->words.push_back(word());
    expect_word("in", from);
    for (blanks(true); !take_word("esac"); blanks(true)) {
      take("(");
      node->patterns.emplace_back();
      do {
        blanks(false);
        if (at_word_end()) unexpected();
        node->patterns.back().push_back(word());
        blanks(false);
      } while (take("|"));
      if (!take(")")) unexpected();
      node->parts.push_back(list());
      if (!take(";;") && !is_word("esac")) unexpected();
    }
    return node;
  }

  NewNode test() {
    NewNode node = made(Kind::kTest);
    bool regular = false;
    for (blanks(true); !take_word("]]"); blanks(true)) {
      if (ended()) fail("the end", "]]");
      const std::size_t from = at_;
      const bool sign =
          take("&&") || take("||") || (!regular && (take("(") || take(")") || take("<") || take(">")));
      const ShellWord one = sign ? ShellWord{text_.substr(from, at_ - from), line_} : word(regular);
      if (one.raw.empty()) unexpected();
      node->words.push_back(one);
      regular = !sign && one.raw == "=~";
    }
    return node;
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  long line_;
  int depth_ = 0;
  std::vector<Document> documents_;
};

}  // namespace

std::size_t shell_name_length(std::string_view text) {
  if (text.empty() || !is_name(text[0]) || std::isdigit(static_cast<unsigned char>(text[0])) != 0) return 0;
  return static_cast<std::size_t>(std::ranges::find_if_not(text, is_name) - text.begin());
}

bool is_shell_name(std::string_view text) { return !text.empty() && shell_name_length(text) == text.size(); }

std::size_t after_shell_piece(std::string_view text, std::size_t at, bool in_double, const std::string& file,
                              long line) {
  return text[at] == kShellUnknown ? after_unknown(text, at)
                                   : Parser(text, file, line).piece_at(at, in_double);
}

ShellNodePtr parse_shell(std::string_view text, const std::string& file, long line) {
  return Parser(text, file, line).program();
}

}  // namespace moesim::tools
