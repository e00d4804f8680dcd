#include "tools/moesim/jobs/shell_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/input_error.h"
#include "base/text.h"
#include "tools/moesim/jobs/job_file.h"

namespace moesim::tools {

namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool ends_word(char c) {
  return is_blank(c) || std::string_view("\n;&|()<>").find(c) != std::string_view::npos;
}

// Behind the sign that closes what was opened before `at`; npos: it does not close.
std::size_t closing(std::string_view text, std::size_t at, char open, char close, bool in_double, int depth) {
  int nested = 1;
  while (at < text.size()) {
    const char c = text[at];
    if (c == close && --nested == 0) return at + 1;
    if (c == open) ++nested;
    at = c == open || c == close ? at + 1 : after_shell_piece(text, at, in_double, depth + 1);
  }
  return std::string_view::npos;
}

// Behind "))" of arithmetic that began before `at`; npos: it is something else.
std::size_t after_arithmetic(std::string_view text, std::size_t at, int depth) {
  const std::size_t end = closing(text, at, '(', ')', true, depth);
  return end != std::string_view::npos && text.substr(end, 1) == ")" ? end + 1 : std::string_view::npos;
}

constexpr std::array<std::string_view, 9> kClosers{"then", "do",   "done", "fi", "elif",
                                                   "else", "esac", "}",    "in"};

class Parser {
 public:
  Parser(std::string_view text, std::string file, long line, int depth)
      : text_(text), file_(std::move(file)), line_(line), depth_(depth) {}

  ShellNodePtr program() {
    ShellNodePtr all = list();
    if (at_ < text_.size()) unexpected();
    return all;
  }

  std::vector<ShellWord> words(char end) {
    std::vector<ShellWord> found;
    for (blanks(true); at_ < text_.size() && here() != end; blanks(true)) {
      if (ends_word(here()) && !(is_process())) unexpected();
      found.push_back(word());
    }
    return found;
  }

  std::size_t at() const { return at_; }
  void start_at(std::size_t at) { at_ = at; }
  ShellNodePtr list() {
    if (++depth_ > kMaxJobFileDepth) fail("commands or expansions inside of each other, 64 deep", "fewer");
    auto node = made(ShellNode::Kind::kList);
    for (;;) {
      blanks(true);
      if (at_ >= text_.size() || here() == ')' || starts(";;") || starts(";&") || closer()) break;
      ShellNodePtr one = and_or();
      blanks(false);
      if (here() == '&') {
        auto background = made(ShellNode::Kind::kBackground);
        background->parts.push_back(std::move(one));
        one = background;
        ++at_;
      } else if (here() == ';' && here(1) != ';' && here(1) != '&') {
        ++at_;
      } else if (at_ < text_.size() && here() != '\n' && here() != ')' && !starts(";;") && !starts(";&") &&
                 !closes_group_) {
        unexpected();
      }
      closes_group_ = false;
      node->parts.push_back(std::move(one));
    }
    --depth_;
    return node;
  }

 private:
  [[noreturn]] void fail(const std::string& found, const std::string& expected) const {
    throw InputError(SourcePlace{file_, line_}, found, expected);
  }
  [[noreturn]] void unexpected() const {
    std::size_t end = at_ + 1;
    while (end < text_.size() && !ends_word(text_[end])) ++end;
    fail(at_ < text_.size() ? in_quotes(one_line(text_.substr(at_, end - at_))) : std::string("the end"),
         "a command as bash has it");
  }
  static std::shared_ptr<ShellNode> node_of(ShellNode::Kind kind, long line) {
    auto node = std::make_shared<ShellNode>();
    node->kind = kind;
    node->line = line;
    return node;
  }
  std::shared_ptr<ShellNode> made(ShellNode::Kind kind) const { return node_of(kind, line_); }

  char here(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool starts(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool is_process() const { return (here() == '<' || here() == '>') && here(1) == '('; }
  void advance(std::size_t to) {
    to = std::min(to, text_.size());
    line_ += std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                        text_.begin() + static_cast<std::ptrdiff_t>(to), '\n');
    at_ = to;
  }

  // A reserved word at the place of a command.
  bool is_word(std::string_view what) const {
    return starts(what) && (at_ + what.size() >= text_.size() || ends_word(text_[at_ + what.size()]));
  }
  bool take_word(std::string_view what) {
    if (!is_word(what)) return false;
    at_ += what.size();
    return true;
  }
  void expect_word(std::string_view what, long from) {
    blanks(true);
    if (!take_word(what))
      fail(at_ < text_.size() ? in_quotes(one_line(text_.substr(at_, 20))) : std::string("the end"),
           fmt::format("'{}' for the command of line {}", what, from));
  }
  bool closer() const {
    return std::ranges::any_of(kClosers, [&](std::string_view w) { return w != "in" && is_word(w); });
  }

  void blanks(bool lines) {
    while (at_ < text_.size()) {
      if (is_blank(here())) {
        ++at_;
      } else if (here() == '\\' && here(1) == '\n') {
        advance(at_ + 2);
      } else if (here() == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (lines && here() == '\n') {
        advance(at_ + 1);
        read_documents();
      } else {
        return;
      }
    }
  }

  void read_documents() {
    std::vector<Document> all;
    std::swap(all, documents_);
    for (const Document& document : all) {
      bool ended = false;
      while (at_ < text_.size() && !ended) {
        std::string_view line = text_.substr(at_, text_.find('\n', at_) - at_);
        advance(at_ + line.size() + 1);
        if (document.strips) line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
        ended = line == document.end;
        if (!ended) *document.body += std::string(line) + "\n";
      }
    }
  }

  ShellWord word(bool parentheses = false) {
    const std::size_t from = at_;
    const long line = line_;
    int nested = 0;
    while (at_ < text_.size()) {
      const char c = here();
      if (is_process()) {
        at_ += 2;
        list();
        if (here() != ')') fail("a command that does not end with ')'", "its end");
        ++at_;
      } else if (parentheses && (c == '(' || c == ')' || c == '|')) {
        nested += c == '(' ? 1 : c == ')' ? -1 : 0;
        if (nested < 0) break;
        ++at_;
      } else if (ends_word(c)) {
        if (!(parentheses && nested > 0)) break;
        ++at_;
      } else {
        piece();
      }
    }
    return {text_.substr(from, at_ - from), line};
  }

  void piece() {
    const char c = here();
    if (c == '$' && here(1) == '(' && here(2) != '(') {
      at_ += 2;
      list();
      if (here() != ')') fail("a command that does not end with ')'", "its end");
      ++at_;
      return;
    }
    if (c == '"') {
      const long from = line_;
      ++at_;
      while (at_ < text_.size() && here() != '"') {
        if (here() == '$' && here(1) == '(')
          piece();
        else
          advance(after_shell_piece(text_, at_, true, depth_));
      }
      if (at_ >= text_.size()) throw InputError({file_, from}, "a quote that does not end", "\"");
      ++at_;
      return;
    }
    const std::size_t end = after_shell_piece(text_, at_, false, depth_);
    if (end > text_.size())
      fail(c == '\'' ? std::string("a quote that does not end")
                     : fmt::format("an expansion or quote that does not end: {}",
                                   in_quotes(one_line(text_.substr(at_, 20)))),
           "its end");
    advance(end);
  }
  ShellNodePtr and_or() {
    auto node = made(ShellNode::Kind::kAndOr);
    for (;;) {
      node->parts.push_back(pipeline());
      blanks(false);
      if (!starts("&&") && !starts("||")) break;
      node->text += here();
      at_ += 2;
      blanks(true);
    }
    return node->parts.size() == 1 ? node->parts.front() : node;
  }

  ShellNodePtr pipeline() {
    blanks(false);
    if (is_word("!")) {
      auto node = made(ShellNode::Kind::kNot);
      ++at_;
      if (++depth_ > kMaxJobFileDepth) fail("commands or expansions inside of each other, 64 deep", "fewer");
      node->parts.push_back(pipeline());
      --depth_;
      return node;
    }
    while (take_word("time")) {
      blanks(false);
      if (take_word("-p")) blanks(false);
    }
    auto node = made(ShellNode::Kind::kPipe);
    for (;;) {
      node->parts.push_back(command());
      blanks(false);
      if (here() != '|' || here(1) == '|') break;
      at_ += here(1) == '&' ? 2 : 1;
      blanks(true);
    }
    return node->parts.size() == 1 ? node->parts.front() : node;
  }

  // A redirection, if one stands here.
  bool redirect(ShellNode& node) {
    std::size_t at = at_;
    while (at < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at])) != 0) ++at;
    if (at == at_ && here() == '{') {
      while (++at < text_.size() && is_name(text_[at])) {
      }
      at = at < text_.size() && text_[at] == '}' ? at + 1 : at_;
    }
    const std::string_view rest = text_.substr(at);
    for (const std::string_view op :
         {"<<<", "<<-", "<<", "<&", "<>", "<", ">>", ">&", ">|", ">", "&>>", "&>"}) {
      if (!rest.starts_with(op) || (op[0] == '&' && at != at_)) continue;
      if (op.size() == 1 && rest.substr(1, 1) == "(") return false;  // a process
      ShellRedirect one;
      one.descriptor = text_.substr(at_, at - at_);
      one.op = op;
      at_ = at + op.size();
      blanks(false);
      if (at_ >= text_.size() || (ends_word(here()) && !is_process())) unexpected();
      one.target = word();
      if (op == "<<" || op == "<<-") {
        one.body = std::make_shared<std::string>();
        std::string end;
        for (const char c : one.target.raw) {
          if (c != '\'' && c != '"' && c != '\\') end += c;
          one.verbatim = one.verbatim || c == '\'' || c == '"' || c == '\\';
        }
        documents_.push_back({end, op == "<<-", one.body});
      }
      node.redirects.push_back(std::move(one));
      return true;
    }
    return false;
  }
  void redirects(ShellNode& node) {
    for (blanks(false); redirect(node); blanks(false)) {
    }
  }

  bool assignment(ShellNode& node) {
    std::size_t bracket = 0;
    const std::size_t n = shell_variable_length(text_.substr(at_), bracket);
    if (n == 0) return false;
    const bool more = here(n) == '+';
    if (here(n + (more ? 1 : 0)) != '=') return false;
    ShellAssignment one;
    one.name = text_.substr(at_, std::min(n, bracket));
    one.has_subscript = bracket < n;
    if (one.has_subscript) one.subscript = text_.substr(at_ + bracket + 1, n - bracket - 2);
    one.append = more;
    advance(at_ + n + (more ? 2 : 1));
    if (here() == '(' && !one.has_subscript) {
      one.array = true;
      const long from = line_;
      ++at_;
      one.items = words(')');
      if (here() != ')') throw InputError({file_, from}, "an array that does not end", "')'");
      ++at_;
    } else {
      one.value = {"", line_};
      if (at_ < text_.size() && (!ends_word(here()) || is_process())) one.value = word();
    }
    node.assignments.push_back(std::move(one));
    return true;
  }

  ShellNodePtr simple() {
    auto node = made(ShellNode::Kind::kSimple);
    bool declares = false;
    for (;;) {
      blanks(false);
      if (at_ >= text_.size()) break;
      if (redirect(*node)) continue;
      if (ends_word(here()) && !is_process()) break;
      if ((node->words.empty() || declares) && assignment(*node)) continue;
      if (node->words.empty()) node->prefix = node->assignments.size();
      node->words.push_back(word());
      const std::string_view first = node->words.front().raw;
      declares = first == "export" || first == "declare" || first == "local" || first == "readonly" ||
                 first == "typeset";
      // NAME () body
      if (node->words.size() == 1 && node->assignments.empty() && node->redirects.empty()) {
        blanks(false);
        if (here() == '(') {
          ++at_;
          blanks(false);
          if (here() != ')') unexpected();
          ++at_;
          return function(std::string(first));
        }
      }
    }
    if (node->words.empty() && node->assignments.empty() && node->redirects.empty()) unexpected();
    return node;
  }

  ShellNodePtr function(const std::string& name) {
    auto node = made(ShellNode::Kind::kFunction);
    node->name = name;
    blanks(true);
    node->parts.push_back(command());
    return node;
  }

  ShellNodePtr body(long from) {
    expect_word("do", from);
    ShellNodePtr inside = list();
    expect_word("done", from);
    return inside;
  }

  ShellNodePtr command() {
    blanks(false);
    std::shared_ptr<ShellNode> node = compound();
    if (!node) return simple();
    redirects(*node);
    // Behind } fi done esac a closing word needs no ';'.
    blanks(false);
    closes_group_ = closer();
    return node;
  }

  std::shared_ptr<ShellNode> compound() {
    using Kind = ShellNode::Kind;
    const long from = line_;
    if (here() == '(') {
      const std::size_t end =
          here(1) == '(' ? after_arithmetic(text_, at_ + 2, depth_) : std::string_view::npos;
      if (end != std::string_view::npos) {
        auto node = made(Kind::kArithmetic);
        node->words.push_back({text_.substr(at_ + 2, end - at_ - 4), line_});
        advance(end);
        return node;
      }
      auto node = made(Kind::kSubshell);
      ++at_;
      node->parts.push_back(list());
      if (here() != ')') fail("the end", fmt::format("')' for the command of line {}", from));
      ++at_;
      return node;
    }
    if (take_word("{")) {
      auto node = node_of(Kind::kGroup, from);
      node->parts.push_back(list());
      expect_word("}", from);
      return node;
    }
    if (take_word("if")) {
      auto node = node_of(Kind::kIf, from);
      do {
        node->parts.push_back(list());
        expect_word("then", from);
        node->parts.push_back(list());
        blanks(true);
      } while (take_word("elif"));
      if (take_word("else")) node->parts.push_back(list());
      expect_word("fi", from);
      return node;
    }
    for (const bool turned : {false, true})
      if (take_word(turned ? "until" : "while")) {
        auto node = node_of(turned ? Kind::kUntil : Kind::kWhile, from);
        node->parts.push_back(list());
        node->parts.push_back(body(from));
        return node;
      }
    if (take_word("for")) return for_loop();
    if (take_word("case")) return case_of(from);
    if (is_word("[[")) return test();
    if (take_word("function")) {
      blanks(false);
      const std::string name(word().raw);
      blanks(false);
      if (here() == '(') {
        ++at_;
        blanks(false);
        if (here() != ')') unexpected();
        ++at_;
      }
      return std::const_pointer_cast<ShellNode>(function(name));
    }
    for (const std::string_view word : {"select", "coproc"})
      if (is_word(word)) fail(std::string(word), "a script without it");
    return nullptr;
  }

  std::shared_ptr<ShellNode> for_loop() {
    const long from = line_;
    auto node = made(ShellNode::Kind::kFor);
    blanks(false);
    if (starts("((")) fail("for ((", "a loop over words");
    node->name = word().raw;
    if (!is_shell_name(node->name)) fail(in_quotes(node->name), "the name of a variable");
    blanks(true);
    if (take_word("in")) {
      node->given = true;
      for (blanks(false); at_ < text_.size() && (!ends_word(here()) || is_process()); blanks(false))
        node->words.push_back(word());
    }
    blanks(false);
    if (here() == ';') ++at_;
    node->parts.push_back(body(from));
    return node;
  }

  std::shared_ptr<ShellNode> case_of(long from) {
    auto node = node_of(ShellNode::Kind::kCase, from);
    blanks(false);
    node->words.push_back(word());
    expect_word("in", from);
    for (blanks(true); !take_word("esac"); blanks(true)) {
      if (here() == '(') ++at_;
      node->patterns.emplace_back();
      do {
        if (here() == '|') ++at_;
        blanks(false);
        if (at_ >= text_.size() || ends_word(here())) unexpected();
        node->patterns.back().push_back(word());
        blanks(false);
      } while (here() == '|');
      if (here() != ')') unexpected();
      ++at_;
      node->parts.push_back(list());
      if (starts(";&") || starts(";;&")) fail("a case that falls through", "cases that end with ;;");
      if (starts(";;"))
        at_ += 2;
      else if (!is_word("esac"))
        unexpected();
    }
    return node;
  }

  std::shared_ptr<ShellNode> test() {
    auto node = made(ShellNode::Kind::kTest);
    at_ += 2;
    bool regular = false;
    for (blanks(true); !take_word("]]"); blanks(true)) {
      if (at_ >= text_.size()) fail("the end", "]]");
      const std::size_t from = at_;
      if (starts("&&") || starts("||")) {
        at_ += 2;
      } else if (!regular && std::string_view("()<>").find(here()) != std::string_view::npos) {
        ++at_;
      } else {
        const ShellWord one = word(regular);
        if (one.raw.empty()) unexpected();
        node->words.push_back(one);
        regular = one.raw == "=~";
        continue;
      }
      node->words.push_back({text_.substr(from, at_ - from), line_});
    }
    return node;
  }

  struct Document {
    std::string end;
    bool strips;
    std::shared_ptr<std::string> body;
  };

  std::string_view text_;
  std::string file_;
  std::size_t at_ = 0;
  long line_;
  int depth_;
  bool closes_group_ = false;
  std::vector<Document> documents_;
};

}  // namespace

bool is_shell_name(std::string_view text) {
  return !text.empty() && is_name_start(text[0]) && std::ranges::all_of(text, is_name);
}

std::size_t shell_variable_length(std::string_view text, std::size_t& subscript) {
  subscript = std::string_view::npos;
  if (text.empty() || !is_name_start(text[0])) return 0;
  std::size_t n = 1;
  while (n < text.size() && is_name(text[n])) ++n;
  if (n >= text.size() || text[n] != '[') return n;
  const std::size_t end = closing(text.substr(0, n + 256), n + 1, '[', ']', false, 0);
  if (end == std::string_view::npos) return n;
  subscript = n;
  return end;
}

std::size_t after_shell_piece(std::string_view text, std::size_t at, bool in_double, int depth) {
  constexpr std::size_t kOpen = std::string_view::npos;  // it does not end
  if (depth > kMaxJobFileDepth) return kOpen;
  const auto behind = [&](std::size_t from, char end, bool escapes, bool expands) {
    for (std::size_t i = from; i < text.size();) {
      if (text[i] == end) return i + 1;
      if (escapes && text[i] == '\\')
        i += 2;
      else if (expands)
        i = after_shell_piece(text, i, true, depth + 1);
      else
        ++i;
    }
    return kOpen;
  };
  const char c = text[at], next = at + 1 < text.size() ? text[at + 1] : '\0';
  if (c == '\\') return std::min(at + 2, text.size());
  if (c == '`') return behind(at + 1, '`', true, false);
  if (c == '"') return in_double ? at + 1 : behind(at + 1, '"', true, true);
  if (c == '\'' && !in_double) return behind(at + 1, '\'', false, false);
  if (c != '$') return at + 1;
  if (next == '\'' && !in_double) return behind(at + 2, '\'', true, false);
  if (next == '{') {
    // Quotes inside of braces nest, also inside of double quotes.
    for (std::size_t i = at + 2; i < text.size();) {
      if (text[i] == '}') return i + 1;
      if (text[i] == '"') {
        i = behind(i + 1, '"', true, true);
      } else {
        i = after_shell_piece(text, i, in_double, depth + 1);
      }
    }
    return kOpen;
  }
  if (next == '[') return closing(text, at + 2, '[', ']', true, depth);
  if (next != '(') return at + 1;
  // "$((" is arithmetic; a command in parentheses needs a blank between them here.
  if (at + 2 < text.size() && text[at + 2] == '(') return after_arithmetic(text, at + 3, depth);
  Parser inside(text, "", 1, depth);
  inside.start_at(at + 2);
  try {
    inside.list();
  } catch (const InputError&) {
    return kOpen;
  }
  return inside.at() < text.size() && text[inside.at()] == ')' ? inside.at() + 1 : kOpen;
}

ShellNodePtr parse_shell(std::string_view text, const std::string& file, long line, int depth) {
  return Parser(text, file, line, depth).program();
}

}  // namespace moesim::tools
