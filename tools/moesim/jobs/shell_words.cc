#include "tools/moesim/jobs/shell_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>

#include "base/text.h"
#include "tools/moesim/jobs/job_file.h"

namespace moesim::tools {

namespace {

constexpr char kUnknown = '\x01';

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// "NAME=" or "NAME+=" at the start of a word; the length of the name, 0: no assignment.
std::size_t assigned_name(std::string_view word) {
  if (word.empty() || !is_name_start(word[0])) return 0;
  std::size_t n = 1;
  while (n < word.size() && is_name(word[n])) ++n;
  const bool assigns =
      n < word.size() && (word[n] == '=' || (word[n] == '+' && word.substr(n + 1, 1) == "="));
  return assigns ? n : 0;
}

}  // namespace

// Reads a script once from start to end, expanding words with the variables as they are at that point.
class ShellReader {
 public:
  ShellReader(ShellScript& script, std::string_view text, std::string file)
      : script_(script), text_(text), file_(std::move(file)) {}

  void environment(const std::string& name, const std::string& value) { variables_[name] = {value}; }
  void run() {
    while (at_ < text_.size()) command();
    for (const auto& [name, words] : variables_) script_.variables_.emplace_back(name, join(words, " "));
  }

 private:
  using Words = std::vector<std::string>;
  // A branch of an if: whether its commands run, and whether an earlier branch has.
  enum class Runs { kYes, kPerhaps, kNo };
  struct Branch {
    Runs runs = Runs::kYes;
    Runs earlier = Runs::kNo;
  };

  SourcePlace place() const { return {file_, line_}; }
  [[noreturn]] void fail(const std::string& found, const std::string& expected) const {
    throw InputError(place(), found, expected);
  }
  char here(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void next() {
    if (here() == '\n') ++line_;
    ++at_;
  }

  std::string unknown(std::string_view text, const std::string& why) {
    // One place in the list for every piece that reads alike, so that loops of growth stay small.
    const auto [found, is_new] =
        unknown_.try_emplace(std::string(text) + '\n' + why, script_.reasons_.size());
    if (is_new) script_.reasons_.push_back({std::string(text), why, false});
    return kUnknown + std::to_string(found->second) + kUnknown;
  }

  void count(std::size_t bytes) {
    expanded_ += bytes;
    if (expanded_ > kMaxExpandedBytes)
      fail("variables that expand to more than 16 MiB", "the arguments of one job");
  }

  Runs runs() const {
    Runs all = Runs::kYes;
    for (const Branch& b : branches_) {
      if (b.runs == Runs::kNo) return Runs::kNo;
      if (b.runs == Runs::kPerhaps) all = Runs::kPerhaps;
    }
    return blocks_ > 0 && all == Runs::kYes ? Runs::kPerhaps : all;
  }

  void skip_blanks(bool lines) {
    while (at_ < text_.size()) {
      if (is_blank(here()) || (lines && here() == '\n')) {
        next();
      } else if (here() == '\\' && (here(1) == '\n' || (here(1) == '\r' && here(2) == '\n'))) {
        while (here() != '\n') next();
        next();
      } else if (here() == '#') {
        while (at_ < text_.size() && here() != '\n') next();
      } else {
        return;
      }
    }
  }

  // The text inside of $( ) or ` `, which nobody runs.
  std::string skip_command(char open, char close) {
    const std::size_t start = at_;
    int depth = 1;
    while (at_ < text_.size()) {
      const char c = here();
      if (c == '\\') {
        next();
      } else if (c == '\'' || (c == '"' && close != '`')) {
        const char quote = c;
        next();
        while (at_ < text_.size() && here() != quote) {
          if (here() == '\\' && quote == '"') next();
          next();
        }
      } else if (c == close && --depth == 0) {
        std::string inside(text_.substr(start, at_ - start));
        next();
        return inside;
      } else if (c == open && open != close) {
        ++depth;
      }
      next();
    }
    fail(fmt::format("a command that does not end with '{}'", close), "its end");
  }

  std::string value_of(const std::string& name, const std::string& written) {
    if (const auto found = variables_.find(name); found != variables_.end()) {
      std::string text = join(found->second, " ");
      count(text.size());
      return text;
    }
    std::string piece = unknown(written, fmt::format("{} is said outside of the file", written));
    script_
        .reasons_[static_cast<std::size_t>(
            unknown_[written + "\n" + written + " is said outside of the file"])]
        .outside = true;
    return piece;
  }

  // Behind "${".
  std::string braced(int depth) {
    if (depth > kMaxJobFileDepth) fail("expansions inside of each other, 64 deep", "fewer");
    const std::size_t start = at_;
    std::string name;
    if (here() == '@' || here() == '*') name = here(), next();
    while (is_name(here())) name += here(), next();
    if (here() == '[' && (here(1) == '@' || here(1) == '*') && here(2) == ']') at_ += 3;
    const auto end = [&] {
      if (here() != '}') return false;
      next();
      return true;
    };
    if (!name.empty() && end()) return parameter(name, "${" + name + "}");
    const bool colon = here() == ':';
    const char kind = here(colon ? 1 : 0);
    if (!name.empty() && (kind == '-' || kind == '=')) {
      at_ += colon ? 2 : 1;
      std::string fallback;
      while (at_ < text_.size() && here() != '}') {
        if (here() == '"')
          next();
        else
          piece(fallback, true, depth + 1);
      }
      if (!end()) fail("an expansion that does not end", "'}'");
      const auto found = variables_.find(name);
      const bool said = found != variables_.end() && (!colon || !join(found->second, " ").empty());
      if (said) return value_of(name, "$" + name);
      if (kind == '=') variables_[name] = {fallback};
      return fallback;
    }
    // Substrings, replacements, lengths, ...: nobody needs them for a number.
    int nested = 1;
    while (at_ < text_.size() && nested > 0) {
      if (here() == '{') ++nested;
      if (here() == '}') --nested;
      next();
    }
    if (nested > 0) fail("an expansion that does not end", "'}'");
    const std::string written = "${" + std::string(text_.substr(start, at_ - start));
    return unknown(written, written + " is not followed");
  }

  std::string parameter(const std::string& name, const std::string& written) {
    // Arguments of the script: it was given none.
    if (name == "@" || name == "*" || name == "#") return "";
    return value_of(name, written);
  }

  // Sums and products of whole numbers; nullopt where something else stands there.
  class Arithmetic {
   public:
    explicit Arithmetic(std::string_view text) : text_(text) {}
    std::optional<long long> value() {
      const auto v = choice(0);
      blanks();
      return at_ == text_.size() ? v : std::nullopt;
    }

   private:
    void blanks() {
      while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    }
    std::optional<long long> atom(int depth) {
      blanks();
      if (depth > kMaxJobFileDepth || at_ == text_.size()) return std::nullopt;
      if (text_[at_] == '(') {
        ++at_;
        const auto v = choice(depth + 1);
        blanks();
        if (!v || at_ == text_.size() || text_[at_++] != ')') return std::nullopt;
        return v;
      }
      const std::size_t start = at_;
      while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) ++at_;
      const auto v = parse_int(text_.substr(start, at_ - start));
      return v && *v < (1LL << 40) ? std::optional<long long>(*v) : std::nullopt;
    }
    std::optional<long long> product(int depth) {
      auto left = atom(depth);
      for (blanks(); left && at_ < text_.size(); blanks()) {
        const char c = text_[at_];
        if (c != '*' && c != '/' && c != '%') break;
        ++at_;
        const auto right = atom(depth);
        if (!right || (c != '*' && *right <= 0)) return std::nullopt;
        if (c == '*' && __builtin_mul_overflow(*left, *right, &*left)) return std::nullopt;
        if (c == '/') *left /= *right;
        if (c == '%') *left %= *right;
      }
      return left;
    }
    std::optional<long long> sum(int depth) {
      auto left = product(depth);
      for (blanks(); left && at_ < text_.size(); blanks()) {
        const char c = text_[at_];
        if (c != '+' && c != '-') break;
        ++at_;
        const auto right = product(depth);
        if (!right) return std::nullopt;
        if (c == '+' ? __builtin_add_overflow(*left, *right, &*left)
                     : __builtin_sub_overflow(*left, *right, &*left))
          return std::nullopt;
      }
      return left;
    }
    // One of the comparisons, behind a sum.
    std::optional<long long> comparison(int depth) {
      const auto left = sum(depth);
      blanks();
      for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">"}) {
        if (!left || !text_.substr(at_).starts_with(op)) continue;
        at_ += op.size();
        const auto right = sum(depth);
        if (!right) return std::nullopt;
        const bool says = op == "=="   ? *left == *right
                          : op == "!=" ? *left != *right
                          : op == "<=" ? *left <= *right
                          : op == ">=" ? *left >= *right
                          : op == "<"  ? *left < *right
                                       : *left > *right;
        return says ? 1 : 0;
      }
      return left;
    }
    std::optional<long long> choice(int depth) {
      const auto which = comparison(depth);
      blanks();
      if (!which || at_ == text_.size() || text_[at_] != '?') return which;
      ++at_;
      const auto yes = choice(depth + 1);
      blanks();
      if (!yes || at_ == text_.size() || text_[at_++] != ':') return std::nullopt;
      const auto no = choice(depth + 1);
      if (!no) return std::nullopt;
      return *which != 0 ? yes : no;
    }
    std::string_view text_;
    std::size_t at_ = 0;
  };

  std::string arithmetic(const std::string& inside) {
    std::string expanded;
    for (std::size_t i = 0; i < inside.size();) {
      if (inside[i] == '$' || inside[i] == '{' || inside[i] == '}') {
        ++i;
      } else if (is_name_start(inside[i])) {
        std::string name;
        while (i < inside.size() && is_name(inside[i])) name += inside[i++];
        expanded += value_of(name, "$" + name);
      } else {
        expanded += inside[i++];
      }
    }
    if (const auto value = Arithmetic(expanded).value()) return std::to_string(*value);
    return unknown("$((" + inside + "))", "$((" + one_line(inside) + ")) cannot be told");
  }

  // Behind '$'.
  std::string expansion(int depth) {
    if (here() == '{') {
      next();
      return braced(depth);
    }
    if (here() == '(' && here(1) == '(') {
      at_ += 2;
      std::string inside = skip_command('(', ')');
      if (here() == ')') next();
      return arithmetic(inside);
    }
    if (here() == '(') {
      next();
      const std::string inside = skip_command('(', ')');
      return unknown("$(" + one_line(inside) + ")", "it is the output of a command");
    }
    if (here() == '@' || here() == '*' || here() == '#' || here() == '?' || here() == '$' || here() == '!') {
      const std::string name(1, here());
      next();
      return parameter(name == "?" || name == "$" || name == "!" ? "#" : name, "$" + name);
    }
    std::string name;
    if (std::isdigit(static_cast<unsigned char>(here()))) {
      name = here(), next();
    } else {
      while (is_name(here())) name += here(), next();
    }
    return name.empty() ? "$" : value_of(name, "$" + name);
  }

  // One character, escape or expansion of a text in which blanks stay.
  void piece(std::string& out, bool in_quotes_of_two, int depth) {
    const char c = here();
    if (c == '\\') {
      next();
      if (here() == '\n') {
        next();
        return;
      }
      if (in_quotes_of_two && here() != '"' && here() != '$' && here() != '\\' && here() != '`') out += '\\';
      if (at_ < text_.size()) out += here(), next();
    } else if (c == '$') {
      next();
      out += expansion(depth);
    } else if (c == '`') {
      next();
      const std::string inside = skip_command('`', '`');
      out += unknown("`" + one_line(inside) + "`", "it is the output of a command");
    } else {
      out += c == kUnknown ? '?' : c;
      next();
    }
    count(1);
  }

  // Words of an array: NAME=( ... ).
  Words array() {
    Words words;
    if (++array_depth_ > kMaxJobFileDepth) fail("arrays inside of each other, 64 deep", "fewer");
    next();
    for (skip_blanks(true); here() != ')'; skip_blanks(true)) {
      if (at_ >= text_.size()) fail("an array that does not end", "')'");
      const std::size_t before = at_;
      for (std::string& w : word().fields) words.push_back(std::move(w));
      if (at_ == before) next();  // an operator, which no array has
    }
    next();
    --array_depth_;
    return words;
  }

  struct Word {
    Words fields;         // after splitting
    bool quoted = false;  // some of it was in quotes
    bool is_array = false;
  };

  // Adds what an expansion outside of quotes gives, split at blanks.
  static void add_split(Word& word, std::string& open, bool& started, const std::string& text) {
    for (const char c : text) {
      if (is_blank(c) || c == '\n') {
        if (started) word.fields.push_back(std::move(open));
        open.clear();
        started = false;
      } else {
        open += c;
        started = true;
      }
    }
  }

  Word word() {
    Word result;
    std::string open;
    bool started = false;
    while (at_ < text_.size()) {
      const char c = here();
      if (is_blank(c) || c == '\n' || c == ';' || c == '&' || c == '|' || c == ')' || c == '<' || c == '>')
        break;
      if (c == '(') {
        // NAME=(...): the words of an array, kept behind its name.
        if (assigned_name(open) == 0 || !(open.ends_with("="))) break;
        Words words = array();
        result.fields.push_back(open);
        result.fields.insert(result.fields.end(), words.begin(), words.end());
        result.is_array = true;
        return result;
      }
      if (c == '\\' && (here(1) == '\n' || (here(1) == '\r' && here(2) == '\n'))) {
        while (here() != '\n') next();
        next();
        continue;
      }
      if (c == '\'') {
        next();
        started = result.quoted = true;
        const long from = line_;
        while (at_ < text_.size() && here() != '\'') open += here() == kUnknown ? '?' : here(), next();
        if (at_ >= text_.size()) throw InputError({file_, from}, "a quote that does not end", "'");
        next();
      } else if (c == '"') {
        next();
        started = result.quoted = true;
        const long from = line_;
        const bool whole_array = text_.substr(at_).starts_with("${") && open.empty();
        const std::size_t closing = whole_array ? text_.find("[@]}\"", at_) : std::string_view::npos;
        // "${NAME[@]}" keeps the words of the array apart.
        if (closing != std::string_view::npos &&
            std::all_of(text_.begin() + static_cast<std::ptrdiff_t>(at_) + 2,
                        text_.begin() + static_cast<std::ptrdiff_t>(closing), is_name)) {
          const std::string name(text_.substr(at_ + 2, closing - at_ - 2));
          at_ = closing + 5;
          if (const auto found = variables_.find(name); found != variables_.end()) {
            for (const std::string& w : found->second) count(w.size());
            result.fields.insert(result.fields.end(), found->second.begin(), found->second.end());
            started = false;
          } else {
            open += value_of(name, "${" + name + "[@]}");
          }
          continue;
        }
        while (at_ < text_.size() && here() != '"') piece(open, true, 0);
        if (at_ >= text_.size()) throw InputError({file_, from}, "a quote that does not end", "\"");
        next();
      } else if (c == '$' || c == '`') {
        std::string text;
        piece(text, false, 0);
        // The right side of an assignment is not split.
        if (assigned_name(open) > 0)
          open += text;
        else
          add_split(result, open, started, text);
      } else {
        started = true;
        piece(open, false, 0);
      }
    }
    if (started) result.fields.push_back(std::move(open));
    return result;
  }

  void assign(const Word& word) {
    const std::string& first = word.fields.front();
    const std::size_t n = assigned_name(first);
    const std::string name = first.substr(0, n);
    const bool more = first[n] == '+';
    Words value;
    if (word.is_array)
      value.assign(word.fields.begin() + 1, word.fields.end());
    else
      value = {first.substr(n + (more ? 2 : 1))};
    const Runs now = runs();
    if (now == Runs::kNo) return;
    if (now == Runs::kPerhaps) {
      Words kept;
      if (more && word.is_array) kept = variables_[name];
      kept.push_back(unknown(
          "$" + name, fmt::format("${} is set in line {} under a condition that nobody can tell without "
                                  "running the file",
                                  name, line_)));
      variables_[name] = std::move(kept);
      return;
    }
    if (more && word.is_array) {
      Words& old = variables_[name];
      old.insert(old.end(), value.begin(), value.end());
    } else if (more) {
      Words& old = variables_[name];
      if (old.empty()) old.emplace_back();
      old.front() += value.front();
    } else {
      variables_[name] = std::move(value);
    }
  }

  // What `[ ... ]` says of its words.
  Runs test(Words words) {
    if (!words.empty() && (words.back() == "]" || words.back() == "]]")) words.pop_back();
    bool turned = false;
    while (!words.empty() && words.front() == "!") turned = !turned, words.erase(words.begin());
    // Whether nobody sets a variable: nobody does, and that is said.
    if (words.size() == 2 && (words[0] == "-z" || words[0] == "-n")) {
      const std::string word = words[1];
      const std::size_t end = word.find(kUnknown, 1);
      if (word.starts_with(kUnknown) && end + 1 == word.size()) {
        const auto index = parse_int(std::string_view(word).substr(1, end - 1));
        const ShellScript::Reason& reason = script_.reasons_.at(static_cast<std::size_t>(index.value_or(0)));
        if (reason.outside) {
          script_.assumed_.insert(reason.text);
          words[1].clear();
        }
      }
    }
    for (const std::string& w : words)
      if (w.find(kUnknown) != std::string::npos || w == "-a" || w == "-o") return Runs::kPerhaps;
    std::optional<bool> says;
    if (words.size() == 2 && words[0] == "-z") says = words[1].empty();
    if (words.size() == 1 && words[0] == "-z") says = true;
    if (words.size() == 2 && words[0] == "-n") says = !words[1].empty();
    if (words.size() == 1 && words[0] == "-n") says = false;
    if (words.size() == 2 && (words[0] == "=" || words[0] == "==" || words[0] == "!="))
      words.insert(words.begin(), "");  // an empty variable without quotes
    if (words.size() == 3) {
      const std::string& op = words[1];
      if (op == "=" || op == "==") says = words[0] == words[2];
      if (op == "!=") says = words[0] != words[2];
      const auto a = parse_int(words[0]), b = parse_int(words[2]);
      if (a && b) {
        if (op == "-eq") says = *a == *b;
        if (op == "-ne") says = *a != *b;
        if (op == "-lt") says = *a < *b;
        if (op == "-le") says = *a <= *b;
        if (op == "-gt") says = *a > *b;
        if (op == "-ge") says = *a >= *b;
      }
    }
    if (!says) return Runs::kPerhaps;
    return *says != turned ? Runs::kYes : Runs::kNo;
  }

  void open_branch(bool first) {
    condition_ = true;
    tests_.clear();
    joined_ = ' ';
    if (first) branches_.push_back({Runs::kNo, Runs::kNo});
    branches_.back().runs = Runs::kYes;  // its condition is looked at
  }

  void close_condition() {
    condition_ = false;
    Branch& b = branches_.back();
    Runs says = tests_.empty() ? Runs::kPerhaps : Runs::kYes;
    bool first = true;
    for (const auto& [how, words] : tests_) {
      const bool known = words[0] == "[" || words[0] == "[[" || words[0] == "test";
      const Runs one = known ? test({words.begin() + 1, words.end()}) : Runs::kPerhaps;
      if (first)
        says = one;
      else
        says = how == '&' ? std::max(says, one) : how == '|' ? std::min(says, one) : Runs::kPerhaps;
      // Of "yes", "perhaps", "no" the worse of two holds for both, the better for one of them.
      first = false;
    }
    b.runs = b.earlier == Runs::kYes                             ? Runs::kNo
             : b.earlier == Runs::kPerhaps && says == Runs::kYes ? Runs::kPerhaps
                                                                 : says;
    if (b.runs == Runs::kYes || b.earlier == Runs::kYes)
      b.earlier = Runs::kYes;
    else if (says != Runs::kNo)
      b.earlier = Runs::kPerhaps;
  }

  // Whether the word is one of the shell's own, taken care of.
  bool keyword(const std::string& w) {
    if (w == "if") {
      if (branches_.size() >= kMaxJobFileDepth) fail("conditions inside of each other, 64 deep", "fewer");
      open_branch(true);
    } else if (w == "elif" && !branches_.empty()) {
      open_branch(false);
    } else if (w == "then" && !branches_.empty()) {
      if (condition_) close_condition();
    } else if (w == "else" && !branches_.empty()) {
      Branch& b = branches_.back();
      b.runs = b.earlier == Runs::kYes ? Runs::kNo : b.earlier == Runs::kNo ? Runs::kYes : Runs::kPerhaps;
    } else if (w == "fi") {
      if (!branches_.empty()) branches_.pop_back();
    } else if (w == "for" || w == "while" || w == "until" || w == "select" || w == "case") {
      ++blocks_;
      return false;  // the rest of the line is no command that matters
    } else if (w == "done" || w == "esac") {
      blocks_ = std::max(0, blocks_ - 1);
    } else if (w != "do" && w != "{" && w != "}" && w != "function" && w != "time" && w != "!" &&
               w != "exec" && w != "export" && w != "local" && w != "declare" && w != "readonly" &&
               w != "eval" && w != "nohup" && w != "typeset") {
      return false;
    }
    return true;
  }

  // The lines of a here-document are no commands.
  void skip_here_document() {
    bool dash = false;
    if (here() == '-') dash = true, next();
    skip_blanks(false);
    std::string end;
    while (at_ < text_.size() && !is_blank(here()) && here() != '\n' && here() != ';') {
      if (here() != '\'' && here() != '"' && here() != '\\') end += here();
      next();
    }
    here_documents_.push_back({end, dash});
  }
  void end_of_line() {
    for (const auto& [end, dash] : here_documents_) {
      while (at_ < text_.size()) {
        std::string_view line = text_.substr(at_, text_.find('\n', at_) - at_);
        at_ = std::min(text_.size(), at_ + line.size() + 1);
        ++line_;
        while (dash && line.starts_with('\t')) line.remove_prefix(1);
        if (line == end) break;
      }
    }
    here_documents_.clear();
  }

  void finish(ShellCommand& command) {
    if (command.words.empty()) return;
    if (condition_) tests_.emplace_back(joined_, command.words);
    if (runs() != Runs::kNo && !condition_) script_.commands_.push_back(command);
    command.words.clear();
  }

  void command() {
    ShellCommand command;
    bool assigning = true;
    for (;;) {
      skip_blanks(false);
      const char c = here();
      if (at_ >= text_.size() || c == '\n' || c == ';' || c == '&' || c == '|' || c == '(' || c == ')') {
        finish(command);
        if (at_ >= text_.size()) return;
        // Between the tests of a condition; anything else there is not followed.
        const bool chained = (c == '&' || c == '|') && here(1) == c;
        joined_ = chained ? c : ';';
        next();
        if (chained) next();
        if (c == '\n') end_of_line();
        return;
      }
      if (c == '<' || c == '>') {
        const bool document = c == '<' && here(1) == '<' && here(2) != '<';
        while (here() == '<' || here() == '>' || here() == '&') next();
        if (document) {
          skip_here_document();
        } else {
          skip_blanks(false);
          word();  // a file
        }
        continue;
      }
      const bool first = command.words.empty();
      if (first) command.place = place();
      const std::size_t before = at_;
      Word w = word();
      if (at_ == before) {
        next();
        continue;
      }
      if (w.fields.empty()) {
        // An empty variable; a test counts it.
        if (condition_ && w.quoted) command.words.emplace_back();
        continue;
      }
      if (assigning && assigned_name(w.fields.front()) > 0 && (w.is_array || w.fields.size() == 1)) {
        assign(w);
        continue;
      }
      if (first && !w.quoted && w.fields.size() == 1 && keyword(w.fields.front())) continue;
      if (!first || !w.fields.front().starts_with("-")) assigning = false;
      command.words.insert(command.words.end(), w.fields.begin(), w.fields.end());
    }
  }

  ShellScript& script_;
  std::string_view text_;
  std::string file_;
  std::size_t at_ = 0;
  long line_ = 1;
  int array_depth_ = 0;
  std::size_t expanded_ = 0;
  std::map<std::string, Words> variables_;
  std::map<std::string, std::size_t> unknown_;
  std::vector<Branch> branches_;
  int blocks_ = 0;
  bool condition_ = false;
  std::vector<std::pair<char, Words>> tests_;  // of the condition, and how each is joined to those before it
  char joined_ = ' ';
  std::vector<std::pair<std::string, bool>> here_documents_;
};

ShellScript::ShellScript(std::string_view text, const std::string& file,
                         const std::vector<std::string>& variables) {
  ShellReader reader(*this, text, file);
  for (const std::string& one : variables) {
    const std::size_t equals = one.find('=');
    reader.environment(one.substr(0, equals), equals == std::string::npos ? "" : one.substr(equals + 1));
  }
  reader.run();
}

std::string ShellScript::variable(std::string_view name) const {
  for (const auto& [known, value] : variables_)
    if (known == name) return value;
  return "";
}

std::string ShellScript::unknown(std::string_view word) const {
  const std::size_t from = word.find(kUnknown);
  if (from == std::string_view::npos) return "";
  const std::size_t to = word.find(kUnknown, from + 1);
  const auto index = parse_int(word.substr(from + 1, to - from - 1));
  return index && static_cast<std::size_t>(*index) < reasons_.size()
             ? reasons_[static_cast<std::size_t>(*index)].why
             : "it cannot be told";
}

std::string ShellScript::shown(std::string_view word) const {
  std::string text;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] != kUnknown) {
      text += word[i];
      continue;
    }
    const std::size_t end = std::min(word.find(kUnknown, i + 1), word.size());
    const auto index = parse_int(word.substr(i + 1, end - i - 1));
    if (index && static_cast<std::size_t>(*index) < reasons_.size())
      text += reasons_[static_cast<std::size_t>(*index)].text;
    i = end;
  }
  return text;
}

}  // namespace moesim::tools
