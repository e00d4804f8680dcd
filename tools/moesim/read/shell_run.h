// Interprets a script command by command: words (shell_expand.cc), arithmetic and tests
// (shell_arithmetic.cc), commands (shell_run.cc), builtins (shell_builtins.cc).
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

#include "tools/moesim/read/shell_state.h"
#include "tools/moesim/read/shell_syntax.h"
#include "tools/moesim/read/shell_words.h"

namespace moesim::tools {

template <std::size_t N>
bool among(const std::array<std::string_view, N>& list, std::string_view word) {
  return std::ranges::find(list, word) != list.end();
}

class ShellRun {
 public:
  ShellRun(ShellScript& script, std::string file) : script_(script), file_(std::move(file)) {}
  void run(std::string_view text, const std::vector<std::string>& variables);

 private:
  using Words = std::vector<std::string>;
  using Kind = ShellNode::Kind;
  using Flow = ShellState::Flow;
  using Number = std::optional<std::int64_t>;
  using Truth = std::optional<bool>;
  // A looked-up parameter. `outside`: the script does not set it.
  struct Found {
    bool set = true, outside = false, list = false, star = false, arguments = false;
    Words items;
  };

  [[noreturn]] void fail(const std::string& found, const std::string& expected) const;
  // Refuses an unsupported construct by name.
  [[noreturn]] void refuse(const std::string& what) const;
  void charge(std::size_t work);
  void count(std::size_t bytes);
  void note(const std::string& text);
  std::string unknown(std::string_view text, const std::string& why);

  // Variables.
  const ShellVariable* variable(const std::string& name) const;
  // Returns the variable for modification; refuses readonly ones.
  ShellVariable changed(const std::string& name) const;
  void put(const std::string& name, ShellVariable value);
  void set_variable(const std::string& name, const std::string& given);
  Words items_of(const ShellAssignment& a);
  void assign(const ShellAssignment& a, const Words& items);
  // Marks every variable as possibly changed.
  void everything(const std::string& why);
  Found find(const std::string& name, std::string_view subscript, const std::string& written);
  Found find_special(const std::string& name, const std::string& written);
  Found not_set(const std::string& name, const std::string& written);
  void set_status(const Truth& truth);

  // Words.
  std::size_t after_piece(std::string_view raw, std::size_t at, bool in_double) const;
  void expand(std::string_view raw, std::vector<ShellText>& out, bool in_double, bool document = false);
  void expansion(std::string_view piece, std::vector<ShellText>& out, bool in_double);
  void braced(std::string_view inside, std::vector<ShellText>& out, bool in_double);
  bool sliced(Found& found, std::string_view operation) const;
  void add(const Found& found, std::vector<ShellText>& out, bool in_double);
  bool with_default(const Found& found, const std::string& name, std::string_view operation,
                    std::vector<ShellText>& out, bool in_double);
  void add_default(std::string_view operand, std::vector<ShellText>& out, bool in_double);
  std::string not_changed(std::string_view inside, const std::string& written);
  std::string changed_text(const std::string& text, std::string_view operation, const std::string& written);
  std::string replaced_text(const std::string& text, std::string_view operation, bool every,
                            const std::string& written);
  std::string output_of(std::string_view inside);
  std::string joined(std::string_view raw, bool in_double, bool document = false);
  // Expansion without splitting: the right side of an assignment, a file, the word of case.
  std::string value(std::string_view raw);
  std::string quoted(std::string_view raw, bool document = false);
  ShellText pattern(std::string_view raw);
  Words fields(const std::vector<ShellWord>& words);
  void fields(std::string_view raw, Words& all);
  bool braces(std::string_view raw, Words& all);
  void split_text(const ShellText& text, Words& all);

  // Arithmetic and tests.
  Number arithmetic(const std::string& text);
  Number value_of(const std::string& name);
  static Number decimal(std::string_view text);
  static Truth test_words(std::span<const std::string> words);
  struct Tokens {
    const std::vector<ShellWord>& words;
    std::size_t at = 0;
    std::string_view raw() const { return at < words.size() ? words[at].raw : std::string_view{}; }
  };
  Truth double_test(Tokens& t, std::string_view sign, bool skip, int depth);
  Truth double_one(Tokens& t, bool skip, int depth);
  Truth double_pair(std::string_view a, std::string_view op, std::string_view b);

  // Commands.
  void execute(const ShellNode& node);
  void execute_kind(const ShellNode& node);
  void condition(const ShellNode& node);
  // Runs something whose changes are lost; its status and output stay.
  template <class Run>
  void in_subshell(const Run& run) {
    charge(state_.variables.size());
    ShellState outside = state_;
    const long loops = std::exchange(loops_, 0);
    run();
    loops_ = loops;
    outside.status = state_.status;
    outside.out = std::move(state_.out);
    state_ = std::move(outside);
  }
  // Runs both of two alternatives where bash's choice is unknown, and joins their states.
  template <class One, class Other>
  void either(const One& one, const Other& other) {
    charge(state_.variables.size());
    const ShellState before = state_;
    ++uncertain_;
    one();
    ShellState after = std::exchange(state_, before);
    other();
    --uncertain_;
    join_with(std::move(after));
  }
  // Runs something that bash may or may not run.
  template <class Run>
  void perhaps(const Run& run) {
    either(run, [] {});
  }
  void join_with(ShellState other);
  void and_or(const ShellNode& node);
  void pipe(const ShellNode& node);
  void if_of(const ShellNode& node, std::size_t from);
  void case_of(const ShellNode& node, std::size_t from, const std::string& subject);
  void for_of(const ShellNode& node);
  void while_of(const ShellNode& node);
  // A loop with an unknown number of iterations: variables that change in it become unknown.
  template <class Turn>
  void any_number_of(const Turn& turn) {
    for (;;) {
      const ShellState before = state_;
      const std::size_t commands = script_.commands_.size();
      charge(1000);
      perhaps([&] {
        turn();
        turn_ended();
      });
      state_.status = std::nullopt;
      if (same(before, state_)) return;
      script_.commands_.resize(commands);
    }
  }
  static bool same(const ShellState& a, const ShellState& b);
  bool turn_ended();
  void simple(const ShellNode& node);
  void run_words(const ShellNode& node, const Words& words);
  void call(const ShellNode& body, const Words& words);
  void evaluate(std::string text);
  void leave_if_failed();
  void write(const std::string& text);
  void note_redirects(const ShellNode& node);
  std::optional<std::string> input_of(const ShellNode& node);

  // Builtins and programs.
  bool builtin(const ShellNode& node, const Words& words);
  void echo(std::span<const std::string> words);
  void shift(std::span<const std::string> words);
  void unknown_values(const Words& words);
  void leave(const Words& words);
  void declare(const ShellNode& node, const Words& words);
  void unset(std::span<const std::string> names);
  void set_options(std::span<const std::string> words);
  void source(const Words& words);
  static std::string plain_file(std::string_view name);
  void refuse_written(const std::string& file);
  void external(const ShellNode& node, const Words& words);
  bool nested_shell(const ShellNode& node, const Words& words);
  std::optional<std::string> script_of(const ShellNode& node, const Words& words, std::size_t shell,
                                       Words& arguments);
  void slurm_option(std::string_view option, std::string_view value);
  void slurm_options(std::span<const std::string> words);
  void slurm_lines(std::string_view text);

  ShellScript& script_;
  std::string file_;
  ShellState state_;
  long line_ = 1, loops_ = 0;
  int depth_ = 0, calls_ = 0, guarded_ = 0, uncertain_ = 0, capturing_ = 0, piped_ = 0;
  bool assuming_ = false;    // unset variables are assumed to be unset, with a remark
  bool empty_list_ = false;  // "${A[@]}" was empty
  bool may_have_failed_ = false;
  std::optional<int> substitution_ = 0;  // status of the last $( )
  std::size_t work_ = 0, expanded_ = 0;
  std::map<std::string, std::size_t> unknowns_;
  std::set<std::string> written_;    // files that the script writes
  std::deque<std::string> sources_;  // texts that the trees refer to
  std::vector<ShellNodePtr> trees_;
};

}  // namespace moesim::tools
