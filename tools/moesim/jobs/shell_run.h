// Follows a script command by command. The parts: variables and states (shell_variables.cc), words
// (shell_expand.cc), sums and tests (shell_arithmetic.cc), commands (shell_commands.cc, shell_builtins.cc).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tools/moesim/jobs/shell_state.h"
#include "tools/moesim/jobs/shell_syntax.h"
#include "tools/moesim/jobs/shell_words.h"

namespace moesim::tools {

// Commands and expansions inside of each other, functions called.
inline constexpr int kMaxShellDepth = 200;

template <std::size_t N>
bool among(const std::array<std::string_view, N>& list, std::string_view word) {
  return std::ranges::find(list, word) != list.end();
}

// Where the unknown piece ends that begins at `at`.
inline std::size_t after_unknown(std::string_view text, std::size_t at) {
  return std::min(text.find(kShellUnknown, at + 1), text.size() - 1) + 1;
}

// Follows a script from start to end.
class ShellRun {
 public:
  ShellRun(ShellScript& script, std::string file) : script_(script), file_(std::move(file)) {}

  void run(std::string_view text, const std::vector<std::string>& variables);

 private:
  using Words = std::vector<std::string>;
  using Kind = ShellNode::Kind;
  using Number = std::optional<std::int64_t>;
  struct Loop {
    std::vector<ShellState> breaks, continues;
  };
  // A parameter as it stands: its values, and whether there are any.
  struct Found {
    enum How { kSet, kUnset, kOutside, kUnknown } how = kSet;
    Words items;
    bool list = false, star = false;
    std::string text() const { return join(items, " "); }
  };
  [[noreturn]] void fail(const std::string& found, const std::string& expected) const;
  void charge(std::size_t work);
  void count(std::size_t bytes);
  std::string unknown(std::string_view text, const std::string& why);
  std::string on_condition(const std::string& name);
  std::string output_of(std::string_view command);

  // ---- States.

  ShellState merged_two(ShellState a, ShellState b);
  ShellState merged_ends(std::vector<ShellState>& ends);
  ShellState copy();

  // Runs something whose changes are lost; its status and output stay.
  template <class Run>
  void in_subshell(const Run& run) {
    const ShellState outside = copy();
    std::vector<ShellState> exits, returns;
    std::vector<Loop> loops;
    std::swap(exits, exits_), std::swap(returns, returns_), std::swap(loops, loops_);
    state_.trap.clear();
    ++subshells_;
    run();
    exits_.insert(exits_.end(), returns_.begin(), returns_.end());
    exits_.push_back(std::move(state_));
    state_ = merged_ends(exits_);
    if (const std::string trap = std::exchange(state_.trap, ""); !trap.empty() && !state_.dead) {
      const std::optional<int> status = state_.status;
      state_.errexit = false;
      evaluate(trap, line_);
      exits_.push_back(std::move(state_));
      state_ = merged_ends(exits_);
      state_.status = status;
    }
    --subshells_;
    std::swap(exits, exits_), std::swap(returns, returns_), std::swap(loops, loops_);
    ShellState end = std::move(state_);
    state_ = outside;
    state_.status = end.dead ? std::nullopt : end.status;
    if (!end.dead) state_.out = std::move(end.out);
  }

  void leave(std::optional<int> status);
  void leave_if_failed();

  // ---- Variables.

  void put(const std::string& name, ShellVariable value);
  void put_environment(const std::string& name, const std::string& value);
  const ShellVariable* variable(const std::string& name) const;
  ShellVariable changed(const std::string& name);
  // Why a variable that the script does not set cannot be told.
  std::string outside(const std::string& written);
  void assign(const std::string& name, const std::optional<std::string>& key, bool append, std::string value);
  void set(const std::string& name, const std::string& value) { assign(name, std::nullopt, false, value); }

  static std::size_t known_count(const std::map<long long, std::string>& items);
  void assign_items(const ShellAssignment& a, bool keyed = false);
  void apply(const ShellAssignment& a);

  // After this every variable may have another value.
  void everything(const std::string& why);
  std::string separators(bool& known);
  Found known_value(std::string text) { return {Found::kSet, {std::move(text)}}; }
  Found unknown_value(std::string piece) { return {Found::kUnknown, {std::move(piece)}}; }

  // A variable that the script does not set.
  Found not_said(const std::string& name, const std::string& written);
  Found find(const std::string& name, const std::optional<std::string_view>& subscript,
             const std::string& written);

  // ---- Words.

  void add_value(const Found& found, std::vector<ShellText>& out, bool in_double);

  // Expands the raw text of a word onto `out`. `literal`: the mark of unquoted characters. `document`: quotes
  // are characters, as in a here-document.
  void expand(std::string_view raw, std::vector<ShellText>& out, bool in_double, char literal,
              bool document = false);
  std::size_t piece_end(std::string_view raw, std::size_t at, bool in_double) const;
  std::size_t piece_end_of_process(std::string_view raw, std::size_t at);

  // An expansion from `at` to `end`; returns where it really ends.
  std::size_t expansion(std::string_view raw, std::size_t at, std::size_t end, std::vector<ShellText>& out,
                        bool in_double, char literal);
  [[noreturn]] void ends_unset(const std::string& name) const;

  // Without a value from outside the script ends here.
  void needs(const std::string& name);

  // $'...'
  std::string escaped(std::string_view text);

  // What stands between ${ and }.
  void braced(std::string_view inside, std::vector<ShellText>& out, bool in_double);

  // ${name:from:length}; false: it cannot be told.
  bool slice(Found& found, std::string_view operand, const std::string& name);

  // What # ## % %% / // ^ , do to a text; nullopt: it cannot be told.
  std::optional<std::string> changed_text(const std::string& text, std::string_view operation);
  ShellText pattern_of(std::string_view raw);
  std::string double_quoted(std::string_view raw);
  static std::string joined(const std::vector<ShellText>& texts);

  // Takes "~" or "~user" off the start of a word.
  std::string_view home_of(std::string_view raw, std::vector<ShellText>& out, bool in_double);
  // A word that is not split: the right side of an assignment, a here-string, the word of case.
  std::string value(const ShellWord& word);

  // {a,b} and {1..4}: the words that a word becomes before everything else.
  std::vector<std::string_view> braces(std::string_view raw, int depth = 0);
  std::vector<std::string_view> range(std::string_view text);

  // The words that a word of a command becomes.
  Words fields(const ShellWord& word);
  Words fields(const std::vector<ShellWord>& words);
  void split_text(const ShellText& text, Words& all);

  // Whether names of files may stand in the place of a word. Lists such as ([0]*3+[1]*9) and layouts with |
  // match no file's name.
  bool could_match_files(const ShellText& text) const;

  // ---- Arithmetic.

  struct Cursor {
    std::string_view text;
    std::size_t at = 0;
    int depth = 0;
    bool skipped = false;  // a branch that is not taken
    bool unsure = false;   // a branch that may be taken
  };
  Number arithmetic(std::string_view text, int depth = 0);
  [[noreturn]] void not_a_number(const Cursor& c) const;
  static void blanks(Cursor& c);
  static bool take(Cursor& c, std::string_view sign);
  Number comma(Cursor& c);
  Number choice(Cursor& c);
  // Operators by how tightly they bind, loosest first.
  Number binary(Cursor& c, std::size_t level);
  Number result(std::string_view op, std::int64_t a, std::int64_t b, const Cursor& c) const;
  Number unary(Cursor& c);
  Number atom(Cursor& c);
  // A variable, with ++, -- or an assignment behind it; `step`: what stands in front of it adds.
  Number named(Cursor& c, int step);

  // ---- Tests.

  using Truth = std::optional<bool>;
  static Truth either(const Truth& a, const Truth& b);
  static Truth negated(const Truth& a) { return a ? Truth(!*a) : a; }

  static std::optional<long long> decimal(std::string_view text);
  static Truth compared(std::string_view op, const std::optional<long long>& a,
                        const std::optional<long long>& b);
  static bool compares_numbers(std::string_view op);
  Truth unary_test(std::string_view op, const std::string& word);
  // [ a op b ]
  static Truth binary_test(const std::string& a, std::string_view op, const std::string& b);
  static bool is_unary(std::string_view op);
  static bool is_binary(std::string_view op);
  // As `test` does, by the number of words.
  Truth test_words(std::span<const std::string> w);
  struct Tokens {
    const std::vector<ShellWord>& words;
    std::size_t at = 0;
    bool ended() const { return at >= words.size(); }
    std::string_view raw(std::size_t ahead = 0) const {
      return at + ahead < words.size() ? words[at + ahead].raw : std::string_view{};
    }
  };
  Truth double_or(Tokens& t, int depth);
  Truth double_and(Tokens& t, int depth);
  Truth double_one(Tokens& t, int depth);
  std::string assumed_value(const ShellWord& word, bool assume);

  // ---- Commands.

  void execute(const ShellNode& node);
  template <class Run>
  void guarded(const Run& run) {
    ++guarded_;
    run();
    --guarded_;
  }
  static const ShellRedirect* file_written(const ShellNode& node);
  static bool hides_output(const ShellNode& node);

  // Whether a status that cannot be told is of a test, not of a program that a job needs to succeed.
  static bool is_test(const ShellNode& node);
  void and_or(const ShellNode& node);
  void pipe(const ShellNode& node);
  void if_of(const ShellNode& node);
  void case_of(const ShellNode& node);

  // Takes the ways that `continue` has left into the state.
  void go_on(std::vector<ShellState>& ways);

  // `condition`: whether the loop goes on; `step`: what follows every turn.
  template <class Condition, class Step>
  void loop(const Condition& condition, const ShellNode& body, const Step& step) {
    loops_.emplace_back();
    const std::size_t level = loops_.size() - 1;
    for (;;) {
      const ShellState before = copy();
      const std::size_t commands = script_.commands_.size(), breaks = loops_[level].breaks.size();
      const Truth goes = condition();
      if (state_.dead || (goes && !*goes)) break;
      if (!goes || breaks > 0) {
        state_ = before;
        script_.commands_.resize(commands);
        turns_in_any_number(condition, body, step, level);
        break;
      }
      execute(body);
      go_on(loops_[level].continues);
      if (state_.dead) break;
      step();
      charge(1);
    }
    end_loop();
  }
  void end_loop();
  // A loop of which it cannot be told how often it turns: what changes in it is unknown.
  template <class Condition, class Step>
  void turns_in_any_number(const Condition& condition, const ShellNode& body, const Step& step,
                           std::size_t level) {
    ++uncertain_;
    for (;;) {
      ShellState before = copy();
      before.status = std::nullopt;
      const std::size_t commands = script_.commands_.size(), breaks = loops_[level].breaks.size();
      const Truth goes = condition();
      ShellState ended = copy();
      if (goes && *goes) ended.dead = true;
      if (!goes || *goes) {
        execute(body);
        go_on(loops_[level].continues);
        if (!state_.dead) step();
      }
      state_.status = std::nullopt;
      ShellState after = merged_two(before, std::move(state_));
      if (after == before) {
        state_ = std::move(ended);
        break;
      }
      state_ = std::move(after);
      script_.commands_.resize(commands);
      loops_[level].breaks.resize(breaks);
    }
    --uncertain_;
  }

  void for_of(const ShellNode& node);

  // ---- Functions, other scripts, output.

  void call(const ShellNode& body, const Words& words);

  // Runs a text in this shell.
  void evaluate(std::string text, long line);

  // Runs a text as another bash does, which has the exported variables alone; `away`: not even these.
  void other_shell(std::string text, const Words& arguments, bool away, const Words& set_before,
                   bool errexit = false);

  // What Slurm sets of its options: --nodes=4, -N 4.
  void slurm_option(std::string_view option, std::string_view value);
  void slurm_options(std::span<const std::string> words);
  // "#SBATCH" lines count up to the first command.
  void slurm_lines(std::string_view text);
  std::string command_output(std::string_view inside);
  void write(const std::string& text);

  // What a here-document or here-string gives a command; nullopt: none.
  std::optional<std::string> input_of(const ShellNode& node);

  // ---- Simple commands.

  void simple(const ShellNode& node);
  void run_words(const ShellNode& node, const Words& words, bool functions);
  bool builtin(const ShellNode& node, const Words& words);

  // Whether a text has a command word that cannot be told, at its start.
  static bool commands_unknown(std::string_view text);
  void test_command(Words words);
  std::string echoed(const Words& rest);
  void printf_of(const Words& rest);
  // What printf makes of "%s", "%d" and plain text.
  std::string formatted(std::span<const std::string> words);
  void declare(const ShellNode& node, const Words& words);
  void unset(const Words& rest);
  void set_options(const Words& rest);
  void shopt(const Words& rest);
  void source(const Words& rest);

  // Whole words of a here-string are told, everything else is unknown.
  void read(const ShellNode& node, const Words& rest);
  void read_into(const std::string& name, const std::string& text, bool told, bool array);
  void trap(const Words& rest);

  // A command that is no part of bash.
  void external(const ShellNode& node, const Words& words);
  static std::string file_name(std::string_view name);
  void note_file(const std::string& name, const std::optional<std::string>& text);
  const std::string* written_file(const std::string& name) const;

  // bash -c TEXT, bash <<EOF, sbatch <<EOF, also behind a launcher: the text is a script.
  bool runs_shell(const ShellNode& node, const Words& words);
  ShellScript& script_;
  std::string file_;
  std::deque<std::string> sources_;
  ShellState state_;
  std::vector<ShellState> exits_, returns_;
  std::vector<Loop> loops_;
  std::map<std::string, std::size_t> unknown_;
  std::vector<ShellNodePtr> trees_;
  std::set<std::string> exports_;
  long line_ = 1;
  std::size_t work_ = 0, expanded_ = 0;
  int depth_ = 0, calls_ = 0, subshells_ = 0, uncertain_ = 0, guarded_ = 0, capturing_ = 0;
  bool assigning_ = false, assuming_ = false, empty_list_ = false;
  std::optional<int> substitution_ = 0;
  std::optional<std::string> piped_;  // what the command in front in a pipe has written
  // Files that the script has written; nullopt: with a text that cannot be told.
  std::map<std::string, std::optional<std::string>> files_;
};

}  // namespace moesim::tools
