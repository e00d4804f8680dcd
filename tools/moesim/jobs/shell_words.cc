#include "tools/moesim/jobs/shell_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "base/text.h"
#include "tools/moesim/jobs/job_file.h"
#include "tools/moesim/jobs/shell_state.h"
#include "tools/moesim/jobs/shell_syntax.h"

namespace moesim::tools {

namespace {

using Words = std::vector<std::string>;

constexpr std::size_t kMaxWork = 8'000'000;  // commands, characters looked at, variables copied
constexpr int kMaxCalls = 100;

template <std::size_t N>
bool among(const std::array<std::string_view, N>& list, std::string_view word) {
  return std::ranges::find(list, word) != list.end();
}

// Values that bash makes anew at every look.
constexpr std::array<std::string_view, 22> kLive{
    "RANDOM",     "SRANDOM",       "SECONDS",   "LINENO",    "EPOCHSECONDS", "EPOCHREALTIME",
    "BASHPID",    "BASH_COMMAND",  "BASH_ARGV", "BASH_ARGC", "FUNCNAME",     "DIRSTACK",
    "PIPESTATUS", "BASH_SUBSHELL", "HISTCMD",   "_",         "BASH_SOURCE",  "BASH_LINENO",
    "GROUPS",     "PWD",           "OLDPWD",    "COMP_WORDS"};
// Variables that bash, the login or a terminal sets: never taken as not set.
constexpr std::array<std::string_view, 30> kPresent{"HOME",          "PATH",
                                                    "USER",          "LOGNAME",
                                                    "SHELL",         "TERM",
                                                    "LANG",          "HOSTNAME",
                                                    "UID",           "EUID",
                                                    "PPID",          "SHLVL",
                                                    "OSTYPE",        "MACHTYPE",
                                                    "HOSTTYPE",      "BASH",
                                                    "BASHOPTS",      "SHELLOPTS",
                                                    "PS4",           "OPTIND",
                                                    "OPTERR",        "BASH_ARGV0",
                                                    "MAIL",          "BASH_VERSION",
                                                    "BASH_VERSINFO", "BASH_EXECUTION_STRING",
                                                    "TMPDIR",        "EDITOR",
                                                    "COLUMNS",       "LINES"};
// Files that set up a machine's software and leave a script's own variables alone.
constexpr std::array<std::string_view, 12> kSetUps{"activate",   ".bashrc",     ".bash_profile", ".profile",
                                                   "profile",    "bash.bashrc", "bashrc",        "conda.sh",
                                                   "setvars.sh", "modules.sh",  "lmod.sh",       "bash"};
// Commands that go to another machine or container: they leave the environment behind.
constexpr std::array<std::string_view, 6> kAway{"ssh", "docker", "podman", "kubectl", "nerdctl", "sudo"};

std::string name_of_program(std::string_view word) {
  const std::size_t slash = word.rfind('/');
  return std::string(slash == std::string_view::npos ? word : word.substr(slash + 1));
}

bool is_ascii(std::string_view text) {
  return std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

// Where the unknown piece ends that begins at `at`.
std::size_t after_unknown(std::string_view text, std::size_t at) {
  return std::min(text.find(kShellUnknown, at + 1), text.size() - 1) + 1;
}

}  // namespace

// Follows a script from start to end.
class ShellRun {
 public:
  ShellRun(ShellScript& script, std::string file) : script_(script), file_(std::move(file)) {}

  void run(std::string_view text, const std::vector<std::string>& variables) {
    slurm_lines(text);
    for (const std::string& one : variables) {
      const std::size_t equals = std::min(one.find('='), one.size());
      const std::string name = one.substr(0, equals), value = one.substr(std::min(equals + 1, one.size()));
      if (const auto n = parse_int(name); n && *n > 0 && *n < 1000) {
        state_.arguments_given = true;
        state_.arguments.resize(std::max(state_.arguments.size(), static_cast<std::size_t>(*n)));
        state_.arguments[static_cast<std::size_t>(*n - 1)] = value;
      } else {
        put_environment(name, value);
      }
    }
    for (const char sign : {kShellUnknown, kShellEmpty, '\0'})
      if (text.find(sign) != std::string_view::npos) fail("a control character", "a script's text");
    const ShellNodePtr program = parse_shell(sources_.emplace_back(text), file_, 1);
    in_subshell([&] {
      execute(*program);
      if (!state_.dead) exits_.push_back(state_);
      state_.dead = true;
      state_ = merged_ends(exits_);
      if (!state_.trap.empty()) {
        state_.dead = false;
        evaluate(std::string(state_.trap), line_);
      }
    });
  }

 private:
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

  [[noreturn]] void fail(const std::string& found, const std::string& expected) const {
    throw InputError(SourcePlace{file_, line_}, found, expected);
  }
  void charge(std::size_t work) {
    work_ += work;
    if (work_ > kMaxWork)
      fail("more steps than can be followed (a loop without end?)", "the arguments of one job");
  }
  void count(std::size_t bytes) {
    expanded_ += bytes;
    charge(1 + bytes / 64);
    if (expanded_ > kMaxExpandedBytes)
      fail("variables that expand to more than 16 MiB", "the arguments of one job");
  }

  std::string unknown(std::string_view text, const std::string& why) {
    // One place in the list for every piece that reads alike, so that loops of growth stay small.
    const auto [found, is_new] =
        unknown_.try_emplace(std::string(text) + '\n' + why, script_.reasons_.size());
    if (is_new) script_.reasons_.push_back({std::string(text), why});
    return kShellUnknown + std::to_string(found->second) + kShellUnknown;
  }
  std::string on_condition(const std::string& name) {
    return unknown("$" + name, fmt::format("${} depends on a condition near line {} that only a run can tell",
                                           name, line_));
  }
  std::string output_of(std::string_view command) {
    return unknown(command, "it is the output of a command");
  }

  // ---- States.

  ShellState merged_two(ShellState a, ShellState b) {
    charge(a.variables.size() + b.variables.size());
    return merged(std::move(a), std::move(b), [&](const std::string& name) { return on_condition(name); });
  }
  ShellState merged_ends(std::vector<ShellState>& ends) {
    ShellState all;
    all.dead = true;
    for (ShellState& one : ends) all = merged_two(std::move(all), std::move(one));
    ends.clear();
    return all;
  }
  ShellState copy() {
    charge(1 + state_.variables.size());
    return state_;
  }

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
    --subshells_;
    std::swap(exits, exits_), std::swap(returns, returns_), std::swap(loops, loops_);
    exits.insert(exits.end(), returns.begin(), returns.end());
    exits.push_back(std::move(state_));
    ShellState end = merged_ends(exits);
    state_ = outside;
    state_.status = end.dead ? std::nullopt : end.status;
    if (!end.dead) state_.out = std::move(end.out);
  }

  void leave(std::optional<int> status) {
    state_.status = status;
    if (subshells_ == 1 && uncertain_ > 0 && (!status || *status == 0))
      script_.notes_.insert(
          fmt::format("{}:{}: ends under a condition that cannot be told: taken as going on", file_, line_));
    exits_.push_back(copy());
    state_.dead = true;
  }
  void leave_if_failed() {
    if (!state_.dead && state_.errexit && guarded_ == 0 && state_.status && *state_.status != 0)
      leave(state_.status);
  }

  // ---- Variables.

  void put(const std::string& name, ShellVariable value) {
    charge(1 + value.items.size() + value.keyed.size());
    state_.variables[name] = std::make_shared<const ShellVariable>(std::move(value));
  }
  void put_environment(const std::string& name, const std::string& value) {
    ShellVariable v;
    v.items = {{0, value}};
    v.exported = true;
    put(name, std::move(v));
  }
  std::string target_of(std::string name) const {
    for (int i = 0; i < 8; ++i) {
      const auto at = state_.variables.find(name);
      if (at == state_.variables.end() || at->second->reference.empty()) break;
      name = at->second->reference;
    }
    return name;
  }
  const ShellVariable* variable(const std::string& name) const {
    const auto at = state_.variables.find(target_of(name));
    return at == state_.variables.end() ? nullptr : at->second.get();
  }
  ShellVariable changed(const std::string& name) {
    const ShellVariable* old = variable(name);
    if (old) charge(1 + old->items.size() + old->keyed.size());
    constexpr std::array<std::string_view, 6> kFixed{"UID",      "EUID",      "PPID",
                                                     "BASHOPTS", "SHELLOPTS", "BASH_VERSINFO"};
    if ((old && old->readonly) || among(kFixed, name))
      fail("a new value for " + name + ", which is readonly", "none");
    ShellVariable v = old ? *old : ShellVariable{};
    if (state_.allexport) v.exported = true;
    if (!old && exports_.contains(name)) v.exported = true;
    return v;
  }
  // Why a variable that the script does not set cannot be told.
  std::string outside(const std::string& written) {
    return unknown(written,
                   state_.anything.empty() ? written + " is said outside of the file" : state_.anything);
  }

  void assign(const std::string& name, const std::optional<std::string>& key, bool append,
              std::string value) {
    if (!is_shell_name(name)) fail(in_quotes(name), "the name of a variable");
    if (among(kLive, name)) return;
    const std::string target = target_of(name);
    if (state_.variables.contains(target) && !state_.variables.at(target)->reference.empty()) {
      everything(name + " is a reference to itself");
      return;
    }
    if (!is_shell_name(target)) {
      everything(fmt::format("{} is a reference to {}", name, in_quotes(target)));
      return;
    }
    ShellVariable v = changed(target);
    if (v.odd) value = unknown("$" + name, "$" + name + " changes what it is given");
    std::optional<long long> index = 0;
    if (key && !v.named) {
      index = arithmetic(*key);
      if (index && *index < 0) index = v.items.empty() ? -1 : v.items.rbegin()->first + 1 + *index;
      if (index && *index < 0) fail("a negative index of " + name, "a positive one");
      if (index && *index > (1 << 24)) fail("an element above 16777216 of " + name, "fewer");
      v.array = true;
      if (!index || (*index > 0 && known_count(v.items) < v.items.size())) {
        // One element, it cannot be told which: all are unknown.
        v.items = {
            {0, unknown("$" + name, fmt::format("an element of {} is set that cannot be told", name))}};
        put(target, std::move(v));
        return;
      }
    }
    std::string* place = key && v.named ? &v.keyed[*key] : nullptr;
    std::string old;
    if (place)
      old = *place;
    else if (const auto at = v.items.find(*index); at != v.items.end())
      old = at->second;
    else if (append && !variable(target))
      old = outside("$" + name);
    if (v.integer) {
      const Number number = arithmetic(value), before = append ? arithmetic(old) : Number(0);
      value = number && before
                  ? std::to_string(static_cast<std::int64_t>(static_cast<std::uint64_t>(*number) +
                                                             static_cast<std::uint64_t>(*before)))
                  : unknown("$" + name, "$" + name + " is a sum that cannot be told");
    } else if (append) {
      value = old + value;
    }
    count(value.size());
    if (place) {
      if (has_unknown(*key)) value = unknown("$" + name, "a key of " + name + " cannot be told");
      *place = std::move(value);
    } else {
      v.items[*index] = std::move(value);
    }
    put(target, std::move(v));
  }
  void set(const std::string& name, const std::string& value) { assign(name, std::nullopt, false, value); }

  static std::size_t known_count(const std::map<long long, std::string>& items) {
    std::size_t n = 0;
    for (const auto& [index, text] : items) {
      if (has_unknown(text)) break;
      ++n;
    }
    return n;
  }

  void assign_items(const ShellAssignment& a, bool keyed = false) {
    if (among(kLive, a.name)) return;
    const std::string target = target_of(a.name);
    struct Item {
      std::optional<std::string> key;
      std::string value;
      bool append = false;
    };
    std::vector<Item> items;
    for (const ShellWord& word : a.items) {
      const std::size_t close = word.raw.starts_with('[') ? word.raw.find(']') : std::string_view::npos;
      const std::string_view behind = close == std::string_view::npos ? "" : word.raw.substr(close + 1);
      if (behind.starts_with("=") || behind.starts_with("+=")) {
        const std::size_t sign = behind[0] == '+' ? 2 : 1;
        items.push_back({value({word.raw.substr(1, close - 1), word.line}),
                         value({behind.substr(sign), word.line}), sign == 2});
      } else {
        for (std::string& field : fields(word)) items.push_back({std::nullopt, std::move(field)});
      }
    }
    ShellVariable v = changed(target);
    v.named = v.named || keyed;
    if (a.append && !variable(target) && !v.named)
      v.items = {{0, outside("$" + a.name)}};
    else if (!a.append)
      v.items.clear(), v.keyed.clear();
    v.array = !v.named;
    put(target, v);
    bool plain = true;
    for (const Item& item : items) plain = plain && !item.key;
    if (plain && !v.named && !v.integer && !v.odd) {
      long long next = v.items.empty() ? 0 : v.items.rbegin()->first + 1;
      for (Item& item : items) count(item.value.size()), v.items[next++] = std::move(item.value);
      put(target, std::move(v));
      return;
    }
    for (const Item& item : items) {
      const ShellVariable* now = variable(target);
      if (!item.key && now->named) {
        everything(a.name + " takes keys and values");
        return;
      }
      const long long next = now->items.empty() ? 0 : now->items.rbegin()->first + 1;
      assign(target, item.key ? *item.key : std::to_string(next), item.append, item.value);
    }
  }

  void apply(const ShellAssignment& a) {
    line_ = a.value.line > 0 ? a.value.line : line_;
    if (a.array) {
      assign_items(a);
      return;
    }
    std::string text = value(a.value);
    std::optional<std::string> key;
    if (a.has_subscript) key = value({a.subscript, line_});
    assign(a.name, key, a.append, std::move(text));
  }

  // After this every variable may have another value.
  void everything(const std::string& why) {
    charge(1);
    state_.variables.clear();
    state_.anything = fmt::format("{} (line {}), which may set every variable", why, line_);
  }

  std::string separators(bool& known) {
    known = true;
    const ShellVariable* ifs = variable("IFS");
    if (!ifs || ifs->items.empty()) return " \t\n";
    known = !has_unknown(ifs->items.begin()->second);
    return ifs->items.begin()->second;
  }

  Found known_value(std::string text) { return {Found::kSet, {std::move(text)}}; }
  Found unknown_value(std::string piece) { return {Found::kUnknown, {std::move(piece)}}; }

  // A variable that the script does not set.
  Found not_said(const std::string& name, const std::string& written) {
    if (!state_.anything.empty() || among(kPresent, name) || name.starts_with("BASH") ||
        name.starts_with("COMP_"))
      return unknown_value(outside(written));
    if (assuming_) {
      script_.assumed_.insert("$" + name);
      return {Found::kUnset, {}};
    }
    return {Found::kOutside, {outside(written)}};
  }

  Found find(const std::string& name, const std::optional<std::string_view>& subscript,
             const std::string& written) {
    const Words& arguments = state_.arguments;
    const auto certain = [&](std::size_t n) {
      return std::none_of(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(n), has_unknown);
    };
    if (name == "@" || name == "*")
      return {arguments.empty() ? Found::kUnset : Found::kSet, arguments, true, name == "*"};
    if (name == "#")
      return certain(arguments.size())
                 ? known_value(std::to_string(arguments.size()))
                 : unknown_value(unknown(written, "how many arguments there are cannot be told"));
    if (name == "?")
      return state_.status ? known_value(std::to_string(*state_.status))
                           : unknown_value(unknown(written, "it is the status of a command"));
    if (name == "$" || name == "!" || name == "-" || name == "0" || among(kLive, name))
      return unknown_value(unknown(written, written + " is only known in a run"));
    if (std::isdigit(static_cast<unsigned char>(name[0])) != 0) {
      const auto n = static_cast<std::size_t>(std::min(parse_int(name).value_or(1 << 20), 1LL << 20));
      const std::size_t before = std::min(n == 0 ? 0 : n - 1, arguments.size());
      if (!certain(before)) return unknown_value(unknown(written, written + " cannot be told"));
      if (n > 0 && n <= arguments.size()) return known_value(arguments[n - 1]);
      return state_.arguments_given ? Found{Found::kUnset, {}} : not_said(name, written);
    }
    const ShellVariable* v = variable(name);
    const bool all = subscript && (*subscript == "@" || *subscript == "*");
    if (!v && name == "IFS" && state_.anything.empty()) return known_value(" \t\n");
    if (!v) {
      Found found = not_said(name, written);
      found.list = all;
      found.star = all && *subscript == "*";
      return found;
    }
    if (all) {
      Found found{
          v->items.empty() && v->keyed.empty() ? Found::kUnset : Found::kSet, {}, true, *subscript == "*"};
      if (v->named && v->keyed.size() > 1)
        found.items = {unknown(written, "the order of its keys is bash's")};
      else
        for (const auto& [key, text] : v->keyed) found.items.push_back(text);
      for (const auto& [index, text] : v->items) found.items.push_back(text);
      return found;
    }
    if (v->named) {
      const std::string key = subscript ? value({*subscript, line_}) : "0";
      bool certain_keys = !has_unknown(key);
      for (const auto& [k, text] : v->keyed) certain_keys = certain_keys && !has_unknown(k);
      if (!certain_keys) return unknown_value(unknown(written, "its key cannot be told"));
      const auto at = v->keyed.find(key);
      return at == v->keyed.end() ? Found{Found::kUnset, {}} : known_value(at->second);
    }
    Number index = 0;
    if (subscript) {
      const std::string expression = value({*subscript, line_});
      index = arithmetic(expression);
      v = variable(name);
    }
    const bool counted = known_count(v->items) == v->items.size();
    if (index && *index < 0 && counted && !v->items.empty()) *index += v->items.rbegin()->first + 1;
    if (!index || *index < 0 ||
        (*index > 0 && !counted && *index >= static_cast<long long>(known_count(v->items))))
      return unknown_value(unknown(written, "which element it is cannot be told"));
    const auto at = v->items.find(*index);
    if (at == v->items.end())
      return counted ? Found{Found::kUnset, {}} : unknown_value(unknown(written, "it may be set or not"));
    return known_value(at->second);
  }

  // ---- Words.

  void add_value(const Found& found, std::vector<ShellText>& out, bool in_double) {
    const char mark = in_double ? ShellText::kQuoted : ShellText::kExpanded;
    for (const std::string& item : found.items) count(item.size());
    if (found.list && (found.star ? !in_double && !assigning_ : true)) {
      if (found.items.empty()) empty_list_ = true;
      for (std::size_t i = 0; i < found.items.size(); ++i) {
        if (i > 0) out.emplace_back();
        out.back().add(found.items[i], mark);
        if (in_double && found.items[i].empty()) out.back().add({&kShellEmpty, 1}, mark);
      }
      return;
    }
    std::string with = " ";
    if (found.star) {
      bool known = true;
      with = separators(known).substr(0, 1);
      if (!known) with = unknown("$IFS", "$IFS cannot be told");
    }
    out.back().add(join(found.items, with), mark);
  }

  // Expands the raw text of a word onto `out`. `literal`: the mark of unquoted characters. `document`: quotes
  // are characters, as in a here-document.
  void expand(std::string_view raw, std::vector<ShellText>& out, bool in_double, char literal,
              bool document = false) {
    if (++depth_ > kMaxCalls) fail("expansions inside of each other, 100 deep", "fewer");
    const auto plain = [&](std::string_view text) {
      out.back().add(text, in_double ? ShellText::kQuoted : literal);
    };
    for (std::size_t i = 0; i < raw.size();) {
      const char c = raw[i], next = i + 1 < raw.size() ? raw[i + 1] : '\0';
      charge(1);
      if (c == kShellUnknown) {
        const std::size_t end = after_unknown(raw, i);
        out.back().add(raw.substr(i, end - i), ShellText::kQuoted);
        i = end;
      } else if (c == '\\') {
        i += 2;
        if (next == '\0') {
          out.back().add("\\", ShellText::kQuoted);
        } else if (next == '\n') {
          continue;
        } else if (in_double &&
                   std::string_view(document ? "$`\\" : "$`\"\\").find(next) == std::string_view::npos) {
          out.back().add(raw.substr(i - 2, 2), ShellText::kQuoted);
        } else {
          out.back().add({&next, 1}, ShellText::kQuoted);
        }
      } else if (c == '\'' && !in_double) {
        const std::size_t end = std::min(raw.find('\'', i + 1), raw.size());
        out.back().add(raw.substr(i + 1, end - i - 1), ShellText::kQuoted);
        if (end == i + 1) out.back().add({&kShellEmpty, 1}, ShellText::kQuoted);
        i = end + 1;
      } else if ((c == '"' && !in_double) || (c == '$' && next == '"' && !in_double)) {
        const std::size_t from = c == '$' ? i + 1 : i, end = piece_end(raw, from, false);
        const std::size_t texts = out.size(), size = out.back().chars.size();
        empty_list_ = false;
        expand(raw.substr(from + 1, end - from - 2), out, true, ShellText::kQuoted);
        if (out.size() == texts && out.back().chars.size() == size && !empty_list_)
          out.back().add({&kShellEmpty, 1}, ShellText::kQuoted);
        i = end;
      } else if (c == '"' && !document) {
        ++i;  // quotes inside of "${x:-"..."}"
      } else if (c == '$' || c == '`') {
        const std::size_t end = piece_end(raw, i, in_double);
        i = expansion(raw, i, end, out, in_double, literal);
      } else if ((c == '<' || c == '>') && next == '(' && !in_double && literal == ShellText::kLiteral) {
        const std::size_t end = piece_end_of_process(raw, i);
        command_output(raw.substr(i + 2, end - i - 3));
        out.back().add(unknown(raw.substr(i, end - i), "it is a file that bash makes"), ShellText::kQuoted);
        i = end;
      } else {
        plain(raw.substr(i, 1));
        ++i;
      }
    }
    --depth_;
  }
  std::size_t piece_end(std::string_view raw, std::size_t at, bool in_double) const {
    const std::size_t end = after_shell_piece(raw, at, in_double);
    if (end > raw.size())
      fail("an expansion that does not end: " + in_quotes(one_line(raw.substr(at, 20))), "its end");
    return end;
  }
  std::size_t piece_end_of_process(std::string_view raw, std::size_t at) {
    // As a command's output is written.
    std::string& text = sources_.emplace_back("$");
    text += raw.substr(at + 1);
    return at + piece_end(text, 0, false);
  }

  // An expansion from `at` to `end`; returns where it really ends.
  std::size_t expansion(std::string_view raw, std::size_t at, std::size_t end, std::vector<ShellText>& out,
                        bool in_double, char literal) {
    const char mark = in_double ? ShellText::kQuoted : ShellText::kExpanded;
    const std::string_view rest = raw.substr(at, end - at);
    if (rest[0] == '`') {
      std::string inside;
      for (std::size_t i = 1; i + 1 < rest.size(); ++i) {
        if (rest[i] == '\\' && i + 2 < rest.size() &&
            std::string_view(in_double ? "$`\\\"" : "$`\\").find(rest[i + 1]) != std::string_view::npos)
          ++i;
        inside += rest[i];
      }
      out.back().add(command_output(sources_.emplace_back(inside)), mark);
    } else if (rest.starts_with("${")) {
      braced(rest.substr(2, rest.size() - 3), out, in_double, literal);
    } else if (rest.starts_with("$((") || rest.starts_with("$[")) {
      const bool old = rest[1] == '[';
      const std::string_view inside = rest.substr(old ? 2 : 3, rest.size() - (old ? 3 : 5));
      const Number number = arithmetic(double_quoted(inside));
      out.back().add(number ? std::to_string(*number)
                            : unknown(rest, fmt::format("$(({})) cannot be told", one_line(inside))),
                     mark);
    } else if (rest.starts_with("$(")) {
      out.back().add(command_output(rest.substr(2, rest.size() - 3)), mark);
    } else if (rest.starts_with("$'")) {
      out.back().add(escaped(rest.substr(2, rest.size() - 3)), ShellText::kQuoted);
    } else {
      std::size_t n = at + 1;
      const auto is_name = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
      };
      if (n < raw.size() && std::string_view("@*#?$!-").find(raw[n]) != std::string_view::npos)
        ++n;
      else if (n < raw.size() && std::isdigit(static_cast<unsigned char>(raw[n])) != 0)
        ++n;
      else
        while (n < raw.size() && is_name(raw[n])) ++n;
      const std::string name(raw.substr(at + 1, n - at - 1));
      if (name.empty()) {
        out.back().add("$", in_double ? ShellText::kQuoted : literal);
        return at + 1;
      }
      Found found = find(name, std::nullopt, "$" + name);
      if (state_.nounset && !found.list && !assuming_) {
        if (found.how == Found::kUnset) ends_unset(name);
        if (found.how == Found::kOutside) needs(name);
      }
      add_value(found, out, in_double);
      return n;
    }
    return end;
  }

  [[noreturn]] void ends_unset(const std::string& name) const {
    fail("$" + name + ", which is not set: the script ends here", "a value for it");
  }

  // Without a value from outside the script ends here.
  void needs(const std::string& name) {
    script_.notes_.insert(fmt::format("{}:{}: ${} is taken as set from outside: the script ends without it",
                                      file_, line_, name));
  }

  // $'...'
  std::string escaped(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 >= text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      constexpr std::string_view kFrom = "nt\\'\"rab", kTo = "\n\t\\'\"\r\a\b";
      if (const std::size_t at = kFrom.find(c); at != std::string_view::npos)
        out += kTo[at];
      else
        return unknown("$'" + std::string(text) + "'", "its escapes are not followed");
    }
    return out.empty() ? std::string(1, kShellEmpty) : out;
  }

  // What stands between ${ and }.
  void braced(std::string_view inside, std::vector<ShellText>& out, bool in_double, char literal) {
    const std::string written = "${" + std::string(inside) + "}";
    const char mark = in_double ? ShellText::kQuoted : ShellText::kExpanded;
    const auto cannot = [&](const std::string& why) { out.back().add(unknown(written, why), mark); };
    const std::string not_followed = written + " is not followed";
    std::string_view rest = inside;
    const bool length = rest.size() > 1 && rest[0] == '#' && rest != "#}" &&
                        std::string_view("-=?+:%#/").find(rest[1]) == std::string_view::npos;
    const bool indirect = rest.size() > 1 && rest[0] == '!';
    if (length || indirect) rest.remove_prefix(1);
    std::string name;
    std::optional<std::string_view> subscript;
    if (!rest.empty() && std::string_view("@*#?$!-").find(rest[0]) != std::string_view::npos) {
      name = rest.substr(0, 1);
      rest.remove_prefix(1);
    } else if (!rest.empty() && std::isdigit(static_cast<unsigned char>(rest[0])) != 0) {
      while (!rest.empty() && std::isdigit(static_cast<unsigned char>(rest[0])) != 0)
        name += rest[0], rest.remove_prefix(1);
    } else {
      std::size_t bracket = 0;
      const std::size_t n = shell_variable_length(rest, bracket);
      name = rest.substr(0, std::min(n, bracket));
      if (bracket < n) subscript = rest.substr(bracket + 1, n - bracket - 2);
      rest.remove_prefix(n);
    }
    if (name.empty()) return cannot(not_followed);
    if (indirect) {
      if (subscript && (*subscript == "@" || *subscript == "*") && rest.empty())
        return keys(name, *subscript, written, out, in_double);
      const Found pointer = find(name, subscript, written);
      const std::string to = pointer.text();
      if (pointer.how != Found::kSet || pointer.list || has_unknown(to) ||
          (!is_shell_name(to) &&
           !std::ranges::all_of(to, [](unsigned char c) { return std::isdigit(c) != 0; })) ||
          to.empty() || rest == "@" || rest == "*")
        return cannot(not_followed);
      name = to;
      subscript.reset();
    }
    Found found = find(name, subscript, written);
    const bool assumed_outside = found.how == Found::kOutside;
    if (length) {
      const bool all = found.list || name == "@" || name == "*";
      if (!rest.empty() || found.how == Found::kOutside || found.how == Found::kUnknown)
        return cannot(found.how == Found::kSet ? not_followed
                                               : script_.unknown(found.items.empty() ? "" : found.items[0]));
      for (const std::string& item : found.items)
        if (has_unknown(item) || (!all && !is_ascii(item))) return cannot(not_followed);
      out.back().add(std::to_string(all ? found.items.size() : found.text().size()), mark);
      return;
    }
    if (rest.empty()) {
      if (state_.nounset && !found.list && !assuming_) {
        if (found.how == Found::kUnset) ends_unset(name);
        if (found.how == Found::kOutside) needs(name);
      }
      return add_value(found, out, in_double);
    }
    const bool colon =
        rest[0] == ':' && rest.size() > 1 && std::string_view("-=+?").find(rest[1]) != std::string_view::npos;
    const char kind = rest[colon ? 1 : 0];
    const std::string_view operand = rest.substr(std::min(rest.size(), std::size_t{colon ? 2U : 1U}));
    if (colon || std::string_view("-=+?").find(kind) != std::string_view::npos) {
      const std::string text = found.text();
      bool empty = colon && text.empty();
      // A piece that cannot be told may be empty.
      bool may_be_empty = found.how == Found::kUnknown;
      if (colon && has_unknown(text) && !assumed_outside && found.how == Found::kSet) {
        std::size_t at = 0;
        while (at < text.size() && text[at] == kShellUnknown) at = after_unknown(text, at);
        may_be_empty = at == text.size();
      }
      if (may_be_empty) return cannot(script_.unknown(text));
      const bool said = found.how == Found::kSet && !empty;
      if (kind == '+') {
        if (assumed_outside) script_.assumed_.insert("$" + name);
        if (said) expand(home_of(operand, out, in_double), out, in_double, mark);
        return;
      }
      if (said) return add_value(found, out, in_double);
      if (kind == '?') {
        if (!assumed_outside) ends_unset(name);
        needs(name);
        return add_value(found, out, in_double);
      }
      if (kind == '=') {
        const std::string given = value({operand, line_});
        if (!is_shell_name(name)) return cannot(not_followed);
        assign(name, subscript ? std::optional<std::string>(value({*subscript, line_})) : std::nullopt, false,
               given);
        return add_value(known_value(given), out, in_double);
      }
      return expand(home_of(operand, out, in_double), out, in_double, mark);
    }
    if (found.how == Found::kOutside || found.how == Found::kUnknown)
      return cannot(script_.unknown(found.items.empty() ? "" : found.items[0]));
    if (found.how == Found::kUnset && state_.nounset && !found.list) ends_unset(name);
    if (kind == ':') {
      if (!slice(found, operand, name)) return cannot(not_followed);
      return add_value(found, out, in_double);
    }
    for (std::string& item : found.items) {
      std::optional<std::string> made;
      if (!has_unknown(item) && is_ascii(item)) made = changed_text(item, rest);
      if (!made) return cannot(has_unknown(item) ? script_.unknown(item) : not_followed);
      item = std::move(*made);
    }
    add_value(found, out, in_double);
  }

  void keys(const std::string& name, std::string_view subscript, const std::string& written,
            std::vector<ShellText>& out, bool in_double) {
    const ShellVariable* v = variable(name);
    Found found{Found::kSet, {}, true, subscript == "*"};
    if (!v || known_count(v->items) < v->items.size() || v->keyed.size() > 1) {
      found.items = {unknown(written, written + " cannot be told")};
    } else {
      for (const auto& [index, text] : v->items) found.items.push_back(std::to_string(index));
      for (const auto& [key, text] : v->keyed) found.items.push_back(key);
    }
    add_value(found, out, in_double);
  }

  // ${name:from:length}; false: it cannot be told.
  bool slice(Found& found, std::string_view operand, const std::string& name) {
    std::size_t colon = 0;
    for (int nested = 0; colon < operand.size(); ++colon) {
      nested += operand[colon] == '(' ? 1 : operand[colon] == ')' ? -1 : 0;
      if (operand[colon] == '?') return false;
      if (operand[colon] == ':' && nested == 0) break;
    }
    const Number from = arithmetic(double_quoted(operand.substr(0, colon)));
    const bool limited = colon < operand.size();
    const Number length = limited ? arithmetic(double_quoted(operand.substr(colon + 1))) : Number(0);
    if (!from || !length) return false;
    for (const std::string& item : found.items)
      if (has_unknown(item) || !is_ascii(item)) return false;
    if (found.list && name != "@" && name != "*")
      if (const ShellVariable* v = variable(name);
          v && (v->named || (!v->items.empty() &&
                             v->items.rbegin()->first + 1 != static_cast<long long>(v->items.size()))))
        return false;                                                            // indices with gaps
    if (found.list && (name == "@" || name == "*") && *from <= 0) return false;  // with $0
    const auto size = static_cast<long long>(found.list ? found.items.size() : found.text().size());
    long long start = found.list && (name == "@" || name == "*") ? *from - 1 : *from;
    if (start < 0) start += size;
    if (start < 0 || start > size) {
      found.items = found.list ? Words{} : Words{""};
      return true;
    }
    long long end = !limited      ? size
                    : *length < 0 ? size + *length
                                  : std::min(size, start + std::min<long long>(*length, size));
    if (limited && *length < 0 && (found.list || end < start)) return false;  // bash says no
    end = std::max(end, start);
    if (found.list)
      found.items = Words(found.items.begin() + start, found.items.begin() + end);
    else
      found.items = {
          found.text().substr(static_cast<std::size_t>(start), static_cast<std::size_t>(end - start))};
    return true;
  }

  // What # ## % %% / // ^ , do to a text; nullopt: it cannot be told.
  std::optional<std::string> changed_text(const std::string& text, std::string_view operation) {
    const char kind = operation[0];
    const bool twice = operation.size() > 1 && operation[1] == kind;
    std::string_view operand = operation.substr(twice ? 2 : 1);
    if (kind == '#' || kind == '%') {
      const ShellText pattern = pattern_of(operand);
      std::optional<std::string> best;
      for (std::size_t n = 0; n <= text.size(); ++n) {
        charge(text.size());
        const std::size_t size = twice ? text.size() - n : n;
        const auto fits =
            shell_match(pattern, kind == '#' ? text.substr(0, size) : text.substr(text.size() - size));
        if (!fits) return std::nullopt;
        if (*fits) return kind == '#' ? text.substr(size) : text.substr(0, text.size() - size);
      }
      return text;
    }
    if (kind == '/') {
      const char anchor =
          !twice && !operand.empty() && (operand[0] == '#' || operand[0] == '%') ? operand[0] : '\0';
      if (anchor != '\0') operand.remove_prefix(1);
      std::size_t slash = 0;
      while (slash < operand.size() && operand[slash] != '/')
        slash = std::min(after_shell_piece(operand, slash, false), operand.size());
      const ShellText pattern = pattern_of(operand.substr(0, slash));
      const std::string with = value({operand.substr(std::min(slash + 1, operand.size())), line_});
      if (with.find('&') != std::string::npos || has_unknown(with) || pattern.chars.empty())
        return std::nullopt;
      std::string made;
      for (std::size_t at = 0; at <= text.size();) {
        bool replaced = false;
        for (std::size_t n = text.size() - at; n > 0 && !replaced; --n) {
          charge(n);
          if ((anchor == '#' && at > 0) || (anchor == '%' && at + n < text.size())) continue;
          const auto fits = shell_match(pattern, std::string_view(text).substr(at, n));
          if (!fits) return std::nullopt;
          if (!*fits) continue;
          made += with;
          at += n;
          replaced = true;
        }
        if (replaced && !twice) return made + text.substr(at);
        if (!replaced && at < text.size()) made += text[at];
        if (!replaced) ++at;
      }
      count(made.size());
      return made;
    }
    if ((kind == '^' || kind == ',') && operand.empty()) {
      std::string made = text;
      for (std::size_t i = 0; i < (twice ? made.size() : std::min<std::size_t>(1, made.size())); ++i) {
        const auto c = static_cast<unsigned char>(made[i]);
        made[i] = static_cast<char>(kind == '^' ? std::toupper(c) : std::tolower(c));
      }
      return made;
    }
    return std::nullopt;
  }

  ShellText pattern_of(std::string_view raw) {
    std::vector<ShellText> out(1);
    expand(raw, out, false, ShellText::kLiteral);
    ShellText all;
    for (const ShellText& text : out) {
      if (!all.chars.empty()) all.add(" ", ShellText::kQuoted);
      all.add(text.chars, ShellText::kLiteral);
      all.marks.replace(all.marks.size() - text.marks.size(), text.marks.size(), text.marks);
    }
    return all;
  }
  std::string double_quoted(std::string_view raw) {
    std::vector<ShellText> out(1);
    expand(raw, out, true, ShellText::kQuoted);
    return joined(out);
  }
  static std::string joined(const std::vector<ShellText>& texts) {
    std::string all;
    for (const ShellText& text : texts) all += (&text == texts.data() ? "" : " ") + text.plain();
    return all;
  }

  // Takes "~" or "~user" off the start of a word.
  std::string_view home_of(std::string_view raw, std::vector<ShellText>& out, bool in_double) {
    std::size_t bracket = 0;
    const std::size_t name = shell_variable_length(raw, bracket);
    const bool assigns = name > 0 && raw.substr(name, 2) == "=~";
    if (!in_double && (assigns || (assigning_ && raw.find(":~") != std::string_view::npos))) {
      out.back().add(unknown(raw, "it names a user's folder"), ShellText::kQuoted);
      return {};
    }
    if (!raw.starts_with('~') || in_double) return raw;
    const std::size_t end = std::min(raw.find('/'), raw.size());
    out.back().add(unknown(raw.substr(0, end), "it is a user's folder"), ShellText::kQuoted);
    return raw.substr(end);
  }
  // A word that is not split: the right side of an assignment, a here-string, the word of case.
  std::string value(const ShellWord& word) {
    std::vector<ShellText> out(1);
    const bool before = std::exchange(assigning_, true);
    expand(home_of(word.raw, out, false), out, false, ShellText::kLiteral);
    assigning_ = before;
    return joined(out);
  }

  // {a,b} and {1..4}: the words that a word becomes before everything else.
  std::vector<std::string_view> braces(std::string_view raw, int depth = 0) {
    for (std::size_t i = 0; i < raw.size();) {
      if (raw[i] != '{') {
        i = raw[i] == kShellUnknown ? after_unknown(raw, i)
                                    : std::min(after_shell_piece(raw, i, false), raw.size());
        continue;
      }
      std::vector<std::string_view> parts;
      std::size_t from = i + 1, at = from;
      int nested = 0;
      for (; at < raw.size();) {
        if (raw[at] == '{') ++nested;
        if (raw[at] == '}' && nested-- == 0) break;
        if (raw[at] == ',' && nested == 0) parts.push_back(raw.substr(from, at - from)), from = at + 1;
        at = std::min(after_shell_piece(raw, at, false), raw.size());
      }
      if (at < raw.size()) {
        const std::string_view last = raw.substr(from, at - from);
        if (!parts.empty())
          parts.push_back(last);
        else
          parts = range(last);
      }
      if (at >= raw.size() || parts.empty()) {
        ++i;
        continue;
      }
      if (depth > 8) fail("braces inside of each other, 8 deep", "fewer");
      std::vector<std::string_view> all;
      const std::vector<std::string_view> tails = braces(raw.substr(at + 1), depth + 1);
      for (const std::string_view part : parts)
        for (const std::string_view middle : braces(part, depth + 1))
          for (const std::string_view tail : tails) {
            count(raw.size());
            std::string& made = sources_.emplace_back(raw.substr(0, i));
            made += middle;
            made += tail;
            all.emplace_back(made);
          }
      return all;
    }
    return {raw};
  }
  std::vector<std::string_view> range(std::string_view text) {
    const std::size_t dots = text.find("..");
    if (dots == std::string_view::npos) return {};
    const auto low = parse_int(text.substr(0, dots)), high = parse_int(text.substr(dots + 2));
    const std::string whole = "{" + std::string(text) + "}";
    // Leading zeros, steps and letters have rules of their own.
    const bool plain = low && high && std::to_string(*low) == text.substr(0, dots) &&
                       std::to_string(*high) == text.substr(dots + 2);
    if (!plain || text.size() > 20 || std::abs(*high - *low) > 10'000)
      return {sources_.emplace_back(unknown(whole, whole + " is not followed"))};
    std::vector<std::string_view> all;
    for (long long n = *low;; n += *low <= *high ? 1 : -1) {
      all.emplace_back(sources_.emplace_back(std::to_string(n)));
      if (n == *high) return all;
    }
  }

  // The words that a word of a command becomes.
  Words fields(const ShellWord& word) {
    Words all;
    for (const std::string_view raw : braces(word.raw)) {
      std::vector<ShellText> out(1);
      expand(home_of(raw, out, false), out, false, ShellText::kLiteral);
      for (const ShellText& text : out) split_text(text, all);
    }
    return all;
  }
  Words fields(const std::vector<ShellWord>& words) {
    Words all;
    for (const ShellWord& word : words) {
      line_ = word.line;
      for (std::string& field : fields(word)) all.push_back(std::move(field));
    }
    return all;
  }

  void split_text(const ShellText& text, Words& all) {
    bool known = true;
    const std::string ifs = separators(known);
    if (!known && text.marks.find(ShellText::kExpanded) != std::string::npos) {
      all.push_back(unknown("$IFS", "$IFS cannot be told"));
      return;
    }
    ShellText open;
    bool started = false, blank = false;
    const auto push = [&] {
      all.push_back(could_match_files(open)
                        ? unknown(open.plain(), "files may match " + in_quotes(open.plain()))
                        : open.plain());
      open = {};
      started = false;
    };
    for (std::size_t i = 0; i < text.chars.size(); ++i) {
      const char c = text.chars[i];
      if (c == kShellUnknown) {
        const std::size_t end = after_unknown(text.chars, i);
        open.add(std::string_view(text.chars).substr(i, end - i), ShellText::kQuoted);
        started = true;
        i = end - 1;
      } else if (text.marks[i] == ShellText::kExpanded && ifs.find(c) != std::string::npos) {
        const bool white = c == ' ' || c == '\t' || c == '\n';
        if (started)
          push(), blank = white;
        else if (!white && !std::exchange(blank, false))
          all.emplace_back();
      } else {
        open.add({&c, 1}, text.marks[i]);
        started = true;
        blank = false;
      }
    }
    if (started) push();
  }

  // Whether names of files may stand in the place of a word. Lists such as ([0]*3+[1]*9) and layouts with |
  // match no file's name.
  bool could_match_files(const ShellText& text) const {
    if (state_.noglob) return false;
    bool glob = false, never = false;
    for (std::size_t i = 0; i < text.chars.size(); ++i) {
      const char c = text.chars[i];
      const bool active = text.marks[i] != ShellText::kQuoted;
      if (active && c == '[') {
        const std::size_t end = text.chars.find(']', i + 2);
        if (end == std::string::npos) continue;
        glob = true;
        i = end;
      } else if (active && (c == '*' || c == '?')) {
        glob = true;
      } else if (c == '(' || c == ')' || c == '|') {
        never = true;
      }
    }
    return glob && (!never || state_.odd_globs);
  }

  // ---- Arithmetic.

  struct Cursor {
    std::string_view text;
    std::size_t at = 0;
    int depth = 0;
    bool skipped = false;  // a branch that is not taken
    bool unsure = false;   // a branch that may be taken
  };

  Number arithmetic(std::string_view text, int depth = 0) {
    if (depth > kMaxJobFileDepth) fail("sums inside of each other, 64 deep", "fewer");
    charge(text.size());
    Cursor c{text, 0, depth};
    blanks(c);
    if (c.at == text.size()) return 0;
    const Number all = comma(c);
    blanks(c);
    if (c.at < text.size()) not_a_number(c);
    return all;
  }
  [[noreturn]] void not_a_number(const Cursor& c) const {
    fail("the sum " + in_quotes(one_line(script_.shown(c.text))), "numbers, variables and signs");
  }
  static void blanks(Cursor& c) {
    while (c.at < c.text.size() && std::isspace(static_cast<unsigned char>(c.text[c.at])) != 0) ++c.at;
  }
  static bool take(Cursor& c, std::string_view sign) {
    blanks(c);
    if (!c.text.substr(c.at).starts_with(sign)) return false;
    c.at += sign.size();
    return true;
  }
  Number comma(Cursor& c) {
    Number v = choice(c);
    while (take(c, ",")) v = choice(c);
    return v;
  }
  Number choice(Cursor& c) {
    if (++c.depth > kMaxJobFileDepth) fail("sums inside of each other, 64 deep", "fewer");
    Number which = binary(c, 0);
    blanks(c);
    if (take(c, "?")) {
      const auto branch = [&](bool taken) {
        const Cursor before = c;
        c.skipped = c.skipped || (which && !taken);
        c.unsure = c.unsure || !which;
        const Number v = choice(c);
        c.skipped = before.skipped, c.unsure = before.unsure;
        return v;
      };
      const Number yes = branch(which && *which != 0);
      if (!take(c, ":")) not_a_number(c);
      const Number no = branch(which && *which == 0);
      which = !which ? Number() : *which != 0 ? yes : no;
    }
    --c.depth;
    return which;
  }
  // Operators by how tightly they bind, loosest first.
  Number binary(Cursor& c, std::size_t level) {
    static constexpr std::array<std::array<std::string_view, 4>, 11> kLevels{{{"||"},
                                                                              {"&&"},
                                                                              {"|"},
                                                                              {"^"},
                                                                              {"&"},
                                                                              {"==", "!="},
                                                                              {"<=", ">=", "<", ">"},
                                                                              {"<<", ">>"},
                                                                              {"+", "-"},
                                                                              {"*", "/", "%"},
                                                                              {"**"}}};
    if (level == kLevels.size()) return unary(c);
    Number left = binary(c, level + 1);
    for (;;) {
      blanks(c);
      const std::string_view rest = c.text.substr(c.at);
      std::string_view op;
      for (const std::string_view one : kLevels[level]) {
        if (one.empty() || !rest.starts_with(one)) continue;
        const std::string_view more = rest.substr(one.size(), 1);
        // "&" is no "&&", "<" no "<<", "+" no "+=".
        if (one.size() == 1 && (more == one || (more == "=" && one != "<" && one != ">")) && one != "+" &&
            one != "-")
          continue;
        if ((one == "<<" || one == ">>" || one == "+" || one == "-") && more == "=") continue;
        op = one;
        break;
      }
      if (op.empty()) return left;
      c.at += op.size();
      const bool before = c.skipped, unsure = c.unsure;
      if (op == "||" || op == "&&") {
        c.skipped = c.skipped || (left && (*left != 0) == (op == "||"));
        c.unsure = c.unsure || !left;
      }
      const Number right = op == "**" ? binary(c, level) : binary(c, level + 1);
      c.skipped = before, c.unsure = unsure;
      if (op == "||" || op == "&&") {
        if (left && (*left != 0) == (op == "||"))
          left = op == "||" ? 1 : 0;
        else
          left = left && right ? Number(*right != 0 ? 1 : 0) : Number();
        continue;
      }
      left = left && right && !c.skipped ? result(op, *left, *right, c) : c.skipped ? Number(0) : Number();
    }
  }
  Number result(std::string_view op, std::int64_t a, std::int64_t b, const Cursor& c) const {
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    const auto number = [](std::uint64_t v) { return static_cast<std::int64_t>(v); };
    if (op == "+") return number(x + y);
    if (op == "-") return number(x - y);
    if (op == "*") return number(x * y);
    if (op == "/" || op == "%") {
      if (b == 0) fail("a division by 0 in " + in_quotes(one_line(c.text)), "another divisor");
      if (b == -1) return op == "/" ? number(0 - x) : 0;
      return op == "/" ? a / b : a % b;
    }
    if (op == "**") {
      if (b < 0) not_a_number(c);
      std::uint64_t power = 1;
      for (std::int64_t i = 0; i < b; ++i) {
        if (i > 1000) return std::nullopt;
        power *= x;
      }
      return number(power);
    }
    if (op == "<<" || op == ">>") {
      if (b < 0 || b > 63) return std::nullopt;
      return op == "<<" ? number(x << y) : a >> b;
    }
    if (op == "|") return a | b;
    if (op == "^") return a ^ b;
    if (op == "&") return a & b;
    return op == "=="   ? a == b
           : op == "!=" ? a != b
           : op == "<=" ? a <= b
           : op == ">=" ? a >= b
           : op == "<"  ? a < b
                        : a > b;
  }
  Number unary(Cursor& c) {
    if (++c.depth > kMaxJobFileDepth) fail("sums inside of each other, 64 deep", "fewer");
    Number v;
    if (take(c, "++") || take(c, "--")) {
      const bool up = c.text[c.at - 1] == '+';
      blanks(c);
      if (c.at < c.text.size() &&
          (std::isalpha(static_cast<unsigned char>(c.text[c.at])) != 0 || c.text[c.at] == '_'))
        v = named(c, up ? 1 : -1);
      else
        v = unary(c);
    } else if (take(c, "!")) {
      v = unary(c);
      if (v) v = *v == 0 ? 1 : 0;
    } else if (take(c, "~")) {
      v = unary(c);
      if (v) v = ~*v;
    } else if (take(c, "-")) {
      v = unary(c);
      if (v) v = static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(*v));
    } else if (take(c, "+")) {
      v = unary(c);
    } else if (take(c, "(")) {
      v = comma(c);
      if (!take(c, ")")) not_a_number(c);
    } else {
      v = atom(c);
    }
    --c.depth;
    return v;
  }
  Number atom(Cursor& c) {
    blanks(c);
    if (c.at == c.text.size()) not_a_number(c);
    const char first = c.text[c.at];
    if (first == kShellUnknown) {
      // Beside it more digits or names may stand: "1$X".
      while (c.at < c.text.size() &&
             (c.text[c.at] == kShellUnknown || std::isalnum(static_cast<unsigned char>(c.text[c.at])) != 0))
        c.at = c.text[c.at] == kShellUnknown ? after_unknown(c.text, c.at) : c.at + 1;
      return std::nullopt;
    }
    if (std::isalpha(static_cast<unsigned char>(first)) != 0 || first == '_') return named(c, 0);
    if (std::isdigit(static_cast<unsigned char>(first)) == 0) not_a_number(c);
    std::size_t end = c.at;
    while (end < c.text.size() && (std::isalnum(static_cast<unsigned char>(c.text[end])) != 0 ||
                                   c.text[end] == '#' || c.text[end] == '_' || c.text[end] == '@'))
      ++end;
    std::string_view digits = c.text.substr(c.at, end - c.at);
    if (end < c.text.size() && c.text[end] == kShellUnknown) {
      c.at = end;
      return atom(c);
    }
    c.at = end;
    unsigned base = 10;
    if (const std::size_t sharp = digits.find('#'); sharp != std::string_view::npos) {
      const auto b = parse_int(digits.substr(0, sharp));
      if (!b || *b < 2 || *b > 36) return std::nullopt;
      base = static_cast<unsigned>(*b);
      digits.remove_prefix(sharp + 1);
    } else if (digits.starts_with("0x") || digits.starts_with("0X")) {
      base = 16;
      digits.remove_prefix(2);
    } else if (digits.size() > 1 && digits[0] == '0') {
      base = 8;
    }
    std::uint64_t number = 0;
    for (const char d : digits) {
      const int lower = std::tolower(static_cast<unsigned char>(d));
      const unsigned n = std::isdigit(lower) != 0 ? static_cast<unsigned>(lower - '0')
                                                  : static_cast<unsigned>(lower - 'a' + 10);
      if (std::isalnum(lower) == 0 || n >= base) not_a_number(c);
      number = number * base + n;
    }
    return static_cast<std::int64_t>(number);
  }
  // A variable, with ++, -- or an assignment behind it; `step`: what stands in front of it adds.
  Number named(Cursor& c, int step) {
    std::size_t bracket = 0;
    const std::size_t n = shell_variable_length(c.text.substr(c.at), bracket);
    const std::string name(c.text.substr(c.at, std::min(n, bracket)));
    std::optional<std::string> key;
    if (bracket < n) key = std::string(c.text.substr(c.at + bracket + 1, n - bracket - 2));
    c.at += n;
    const auto now = [&]() -> Number {
      if (c.skipped) return 0;
      const Found found = find(name, key ? std::optional<std::string_view>(*key) : std::nullopt, "$" + name);
      if (found.how == Found::kOutside || found.how == Found::kUnknown) return std::nullopt;
      if (found.how == Found::kUnset) {
        if (state_.nounset) ends_unset(name);
        return 0;
      }
      return arithmetic(std::string(found.text()), c.depth + 1);
    };
    const auto store = [&](const Number& v) {
      if (c.skipped) return;
      assign(name, key, false,
             v && !c.unsure ? std::to_string(*v)
                            : unknown("$" + name, "$" + name + " is a sum that cannot be told"));
    };
    if (step != 0) {
      Number v = now();
      if (v) v = result("+", *v, step, c);
      store(v);
      return v;
    }
    if (take(c, "++") || take(c, "--")) {
      const int by = c.text[c.at - 1] == '+' ? 1 : -1;
      const Number v = now();
      store(v ? result("+", *v, by, c) : v);
      return v;
    }
    blanks(c);
    const std::string_view rest = c.text.substr(c.at);
    for (const std::string_view op : {"<<=", ">>=", "+=", "-=", "*=", "/=", "%=", "&=", "^=", "|=", "="}) {
      if (!rest.starts_with(op) || (op == "=" && rest.starts_with("=="))) continue;
      c.at += op.size();
      const Number right = choice(c);
      Number v = right;
      if (op != "=") {
        const Number left = now();
        v = left && right && !c.skipped ? result(op.substr(0, op.size() - 1), *left, *right, c) : Number();
      }
      store(v);
      return v;
    }
    return now();
  }

  // ---- Tests.

  using Truth = std::optional<bool>;
  static Truth either(const Truth& a, const Truth& b) {
    if ((a && *a) || (b && *b)) return true;
    return a && b ? Truth(false) : Truth();
  }
  static Truth negated(const Truth& a) { return a ? Truth(!*a) : a; }

  static std::optional<long long> decimal(std::string_view text) {
    text = trim(text);
    if (text.starts_with('+')) text.remove_prefix(1);
    return parse_int(text);
  }
  static Truth compared(std::string_view op, const std::optional<long long>& a,
                        const std::optional<long long>& b) {
    if (!a || !b) return std::nullopt;
    return op == "-eq"   ? *a == *b
           : op == "-ne" ? *a != *b
           : op == "-lt" ? *a < *b
           : op == "-le" ? *a <= *b
           : op == "-gt" ? *a > *b
                         : *a >= *b;
  }
  static bool compares_numbers(std::string_view op) {
    return among(std::array<std::string_view, 6>{"-eq", "-ne", "-lt", "-le", "-gt", "-ge"}, op);
  }
  Truth unary_test(std::string_view op, const std::string& word) {
    if (op == "-z" || op == "-n") {
      if (!has_unknown(word)) return word.empty() == (op == "-z");
      std::size_t at = 0;
      while (at < word.size() && word[at] == kShellUnknown) at = after_unknown(word, at);
      return at < word.size() ? Truth(op == "-n") : Truth();
    }
    if (op == "-v" && is_shell_name(word)) {
      const bool before = std::exchange(assuming_, true);
      const Found found = find(word, std::nullopt, "$" + word);
      assuming_ = before;
      if (found.how != Found::kUnknown) return found.how == Found::kSet;
    }
    return std::nullopt;
  }
  // [ a op b ]
  static Truth binary_test(const std::string& a, std::string_view op, const std::string& b) {
    if (has_unknown(a) || has_unknown(b)) return std::nullopt;
    if (op == "=" || op == "==") return a == b;
    if (op == "!=") return a != b;
    if (compares_numbers(op)) {
      const auto x = decimal(a), y = decimal(b);
      return x && y ? compared(op, x, y) : Truth(false);  // bash complains, and the test fails
    }
    return std::nullopt;
  }
  static bool is_unary(std::string_view op) {
    return op.size() == 2 && op[0] == '-' &&
           std::string_view("abcdefghknoprstuvwxzGLNOS").find(op[1]) != std::string_view::npos;
  }
  static bool is_binary(std::string_view op) {
    return op == "=" || op == "==" || op == "!=" || op == "<" || op == ">" || compares_numbers(op) ||
           op == "-nt" || op == "-ot" || op == "-ef";
  }
  // As `test` does, by the number of words.
  Truth test_words(std::span<const std::string> w) {
    if (w.empty()) return false;
    if (w.size() == 1) return unary_test("-n", w[0]);
    if (w.size() == 3 && is_binary(w[1])) return binary_test(w[0], w[1], w[2]);
    if (w.size() == 3 && (w[1] == "-a" || w[1] == "-o")) {
      const Truth a = unary_test("-n", w[0]), b = unary_test("-n", w[2]);
      return w[1] == "-o" ? either(a, b) : negated(either(negated(a), negated(b)));
    }
    if (w[0] == "!" && w.size() <= 4) return negated(test_words(w.subspan(1)));
    if (w.size() == 2) return is_unary(w[0]) ? unary_test(w[0], w[1]) : Truth();
    if (w[0] == "(" && w.back() == ")" && w.size() <= 4) return test_words(w.subspan(1, w.size() - 2));
    // Longer ones: tests of the same kind between -a or -o.
    for (const std::string_view sign : {"-o", "-a"})
      for (std::size_t i = 1; i + 1 < w.size(); ++i)
        if (w[i] == sign &&
            std::ranges::none_of(w, [](const std::string& x) { return x == "(" || x == "!"; })) {
          const Truth a = test_words(w.subspan(0, i)), b = test_words(w.subspan(i + 1));
          return sign == "-o" ? either(a, b) : negated(either(negated(a), negated(b)));
        }
    return std::nullopt;
  }
  struct Tokens {
    const std::vector<ShellWord>& words;
    std::size_t at = 0;
    bool ended() const { return at >= words.size(); }
    std::string_view raw(std::size_t ahead = 0) const {
      return at + ahead < words.size() ? words[at + ahead].raw : std::string_view{};
    }
  };
  Truth double_or(Tokens& t, int depth) {
    Truth v = double_and(t, depth);
    while (t.raw() == "||") ++t.at, v = either(v, double_and(t, depth));
    return v;
  }
  Truth double_and(Tokens& t, int depth) {
    Truth v = double_one(t, depth);
    while (t.raw() == "&&") ++t.at, v = negated(either(negated(v), negated(double_one(t, depth))));
    return v;
  }
  Truth double_one(Tokens& t, int depth) {
    if (depth > kMaxJobFileDepth) fail("tests inside of each other, 64 deep", "fewer");
    if (t.ended()) fail("[[ ]] without its test", "one");
    if (t.raw() == "!") {
      ++t.at;
      return negated(double_one(t, depth + 1));
    }
    if (t.raw() == "(") {
      ++t.at;
      const Truth v = double_or(t, depth + 1);
      if (t.raw() != ")") fail("( without its end", ")");
      ++t.at;
      return v;
    }
    const auto ends = [&](std::size_t ahead) {
      const std::string_view r = t.raw(ahead);
      return r.empty() || r == "&&" || r == "||" || r == ")";
    };
    const std::string_view op = t.raw(1);
    if (is_unary(t.raw()) && !ends(1) && !(is_binary(op) && !ends(2))) {
      const std::string_view sign = t.raw();
      const std::string word = assumed_value(t.words[t.at + 1], sign == "-z" || sign == "-n");
      t.at += 2;
      return unary_test(sign, word);
    }
    if (ends(1)) return unary_test("-n", assumed_value(t.words[t.at++], true));
    const ShellWord& left = t.words[t.at];
    if (ends(2) || !(is_binary(op) || op == "=~")) fail("[[ ]] with " + in_quotes(op), "a test");
    const ShellWord& right = t.words[t.at + 2];
    t.at += 3;
    const std::string a = value(left);
    if (op == "=" || op == "==" || op == "!=") {
      const ShellText pattern = pattern_of(right.raw);
      const Truth same = has_unknown(a) && pattern.chars != "*" ? Truth() : shell_match(pattern, a);
      return op == "!=" ? negated(same) : same;
    }
    const std::string b = value(right);
    if (op == "=~") {
      ShellVariable groups;
      groups.array = true;
      groups.items = {{0, unknown("$BASH_REMATCH", "it is what an expression has matched")}};
      put("BASH_REMATCH", std::move(groups));
      return std::nullopt;
    }
    if (compares_numbers(op)) return compared(op, arithmetic(a), arithmetic(b));
    return std::nullopt;
  }
  std::string assumed_value(const ShellWord& word, bool assume) {
    const bool before = std::exchange(assuming_, assume);
    const std::string text = value(word);
    assuming_ = before;
    return text;
  }

  // ---- Commands.

  void execute(const ShellNode& node) {
    if (state_.dead) return;
    charge(1);
    line_ = node.line;
    if (++depth_ > kMaxCalls * 4) fail("commands inside of each other, 400 deep", "fewer");
    const std::string out = state_.out;
    if (node.kind != Kind::kSimple)
      for (const ShellRedirect& r : node.redirects)
        if (!r.body) value(r.target);
    switch (node.kind) {
      case Kind::kSimple:
        simple(node);
        break;
      case Kind::kList:
        for (const ShellNodePtr& part : node.parts) execute(*part);
        break;
      case Kind::kAndOr:
        and_or(node);
        break;
      case Kind::kNot:
        guarded([&] { execute(*node.parts[0]); });
        if (state_.status) state_.status = *state_.status == 0 ? 1 : 0;
        break;
      case Kind::kPipe:
        pipe(node);
        break;
      case Kind::kBackground:
        in_subshell([&] { execute(*node.parts[0]); });
        state_.status = 0;
        break;
      case Kind::kIf:
        if_of(node);
        break;
      case Kind::kWhile:
      case Kind::kUntil: {
        const bool until = node.kind == Kind::kUntil;
        loop(
            [&]() -> Truth {
              guarded([&] { execute(*node.parts[0]); });
              return state_.status ? Truth((*state_.status == 0) != until) : Truth();
            },
            *node.parts[1], [] {});
        break;
      }
      case Kind::kFor:
        for_of(node);
        break;
      case Kind::kForNumber: {
        const auto sum = [&](std::size_t i) { return arithmetic(double_quoted(node.words[i].raw)); };
        const bool endless = trim(node.words[1].raw).empty();
        sum(0);
        loop(
            [&]() -> Truth {
              const Number v = endless ? Number(1) : sum(1);
              return v ? Truth(*v != 0) : Truth();
            },
            *node.parts[0], [&] { sum(2); });
        break;
      }
      case Kind::kSelect: {
        std::string piece = unknown("$" + node.name, "it is what somebody chooses");
        loop(
            [&]() -> Truth {
              set(node.name, piece);
              set("REPLY", piece);
              return std::nullopt;
            },
            *node.parts[0], [] {});
        break;
      }
      case Kind::kCase:
        case_of(node);
        break;
      case Kind::kFunction:
        state_.functions[node.name] = node.parts[0];
        state_.status = 0;
        break;
      case Kind::kGroup:
        execute(*node.parts[0]);
        break;
      case Kind::kSubshell:
        in_subshell([&] { execute(*node.parts[0]); });
        leave_if_failed();
        break;
      case Kind::kArithmetic: {
        const Number v = arithmetic(double_quoted(node.words[0].raw));
        state_.status = v ? std::optional<int>(*v != 0 ? 0 : 1) : std::nullopt;
        leave_if_failed();
        break;
      }
      case Kind::kTest: {
        Tokens tokens{node.words};
        const Truth truth = double_or(tokens, 0);
        if (!tokens.ended()) fail("[[ ]] with " + in_quotes(tokens.raw()), "a test");
        state_.status = truth ? std::optional<int>(*truth ? 0 : 1) : std::nullopt;
        leave_if_failed();
        break;
      }
    }
    if (hides_output(node)) state_.out = out;
    --depth_;
  }

  template <class Run>
  void guarded(const Run& run) {
    ++guarded_;
    run();
    --guarded_;
  }
  static bool hides_output(const ShellNode& node) {
    return std::ranges::any_of(node.redirects, [](const ShellRedirect& r) {
      const bool first = r.descriptor.empty() || r.descriptor == "1";
      return (first && r.op[0] == '>') || r.op[0] == '&';
    });
  }

  // Whether a status that cannot be told is of a test, not of a program that a job needs to succeed.
  static bool is_test(const ShellNode& node) {
    return node.kind == Kind::kTest || node.kind == Kind::kArithmetic ||
           (node.kind == Kind::kSimple && !node.words.empty() &&
            (node.words[0].raw == "[" || node.words[0].raw == "test"));
  }

  void and_or(const ShellNode& node) {
    bool tests = false;
    for (std::size_t i = 0; i < node.parts.size() && !state_.dead; ++i) {
      const bool last = i + 1 == node.parts.size();
      const auto run = [&] {
        if (last)
          execute(*node.parts[i]);
        else
          guarded([&] { execute(*node.parts[i]); });
      };
      if (i == 0) {
        run();
      } else if (const bool with = node.text[i - 1] == '&'; state_.status) {
        if ((*state_.status == 0) == with) run();
      } else {
        ShellState other = copy();
        if (!with) other.status = 0;
        const int uncertain = uncertain_;
        uncertain_ += !with || tests ? 1 : 0;
        run();
        uncertain_ = uncertain;
        state_ = merged_two(std::move(state_), std::move(other));
      }
      tests = tests || is_test(*node.parts[i]);
    }
  }

  void pipe(const ShellNode& node) {
    std::optional<int> all = 0;
    std::optional<std::string> piped;
    for (const ShellNodePtr& part : node.parts) {
      const std::string out = std::exchange(state_.out, part == node.parts.back() ? state_.out : "");
      const bool last = part == node.parts.back();
      std::swap(piped, piped_);
      capturing_ += last ? 0 : 1;
      in_subshell([&] { execute(*part); });
      capturing_ -= last ? 0 : 1;
      std::swap(piped, piped_);
      if (!last) piped = std::exchange(state_.out, out);
      if (!state_.status || *state_.status != 0) all = all ? state_.status : std::nullopt;
    }
    if (state_.pipefail) state_.status = all;
    leave_if_failed();
  }

  void if_of(const ShellNode& node) {
    std::vector<ShellState> ends;
    const int uncertain = uncertain_;
    const std::size_t pairs = node.parts.size() / 2;
    bool done = false;
    for (std::size_t i = 0; i < pairs && !done && !state_.dead; ++i) {
      guarded([&] { execute(*node.parts[2 * i]); });
      if (state_.dead) break;
      if (state_.status && *state_.status != 0) continue;
      if (state_.status) {
        execute(*node.parts[2 * i + 1]);
        done = true;
      } else {
        ShellState other = copy();
        ++uncertain_;
        execute(*node.parts[2 * i + 1]);
        ends.push_back(std::exchange(state_, std::move(other)));
      }
    }
    if (!done && !state_.dead) {
      if (node.parts.size() % 2 == 1)
        execute(*node.parts.back());
      else
        state_.status = 0;
    }
    uncertain_ = uncertain;
    ends.push_back(std::move(state_));
    state_ = merged_ends(ends);
  }

  void case_of(const ShellNode& node) {
    const std::string subject = value(node.words[0]);
    std::vector<ShellState> ends;
    const int uncertain = uncertain_;
    state_.status = 0;
    bool done = false, falls = false;
    for (std::size_t i = 0; i < node.parts.size() && !done && !state_.dead; ++i) {
      Truth fits = falls;
      for (const ShellWord& word : node.patterns[i]) {
        if (fits && *fits) break;
        const ShellText pattern = pattern_of(word.raw);
        fits = either(fits,
                      has_unknown(subject) && pattern.chars != "*" ? Truth() : shell_match(pattern, subject));
      }
      falls = false;
      if (fits && !*fits) continue;
      const char end = node.text[i];
      if (fits) {
        execute(*node.parts[i]);
        falls = end == '&';
        done = end == ';';
      } else {
        if (end != ';') fail("a case that cannot be told, with ;& or ;;&", "values that the file says");
        ShellState other = copy();
        ++uncertain_;
        execute(*node.parts[i]);
        ends.push_back(std::exchange(state_, std::move(other)));
      }
    }
    uncertain_ = uncertain;
    ends.push_back(std::move(state_));
    state_ = merged_ends(ends);
  }

  // Takes the ways that `continue` has left into the state.
  void go_on(std::vector<ShellState>& ways) {
    ways.push_back(std::move(state_));
    state_ = merged_ends(ways);
  }

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
  void end_loop() {
    std::vector<ShellState> ends = std::move(loops_.back().breaks);
    loops_.pop_back();
    if (!state_.dead) state_.status = state_.status == 0 ? state_.status : std::nullopt;
    for (ShellState& one : ends) one.status = 0;
    ends.push_back(std::move(state_));
    state_ = merged_ends(ends);
    if (!state_.dead && state_.status != 0) state_.status = std::nullopt;
  }
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

  void for_of(const ShellNode& node) {
    const Words words = node.given ? fields(node.words) : state_.arguments;
    state_.status = 0;
    if (std::ranges::any_of(words, has_unknown)) {
      const std::string piece =
          unknown("$" + node.name, fmt::format("${} is one of a list that cannot be told", node.name));
      loop(
          [&]() -> Truth {
            set(node.name, piece);
            return std::nullopt;
          },
          *node.parts[0], [] {});
      return;
    }
    loops_.emplace_back();
    const std::size_t level = loops_.size() - 1;
    for (const std::string& word : words) {
      if (state_.dead) break;
      charge(1);
      const int uncertain = uncertain_;
      uncertain_ += loops_[level].breaks.empty() ? 0 : 1;
      set(node.name, word);
      execute(*node.parts[0]);
      go_on(loops_[level].continues);
      uncertain_ = uncertain;
    }
    end_loop();
  }

  // ---- Functions, other scripts, output.

  void call(const ShellNode& body, const Words& words) {
    if (++calls_ > kMaxJobFileDepth) fail("functions inside of each other, 64 deep", "fewer");
    const Words arguments = std::exchange(state_.arguments, Words(words.begin() + 1, words.end()));
    const bool given = std::exchange(state_.arguments_given, true);
    state_.outer.emplace_back();
    std::vector<ShellState> returns;
    std::vector<Loop> loops;
    std::swap(returns, returns_), std::swap(loops, loops_);
    execute(body);
    std::swap(returns, returns_), std::swap(loops, loops_);
    returns.push_back(std::move(state_));
    for (ShellState& one : returns) {
      for (auto& [name, hidden] : one.outer.back()) {
        if (hidden)
          one.variables[name] = hidden;
        else
          one.variables.erase(name);
      }
      one.outer.pop_back();
      one.arguments = arguments;
      one.arguments_given = given;
    }
    state_ = merged_ends(returns);
    --calls_;
    leave_if_failed();
  }

  // Runs a text in this shell.
  void evaluate(std::string text, long line) {
    if (++calls_ > kMaxJobFileDepth) fail("scripts inside of each other, 64 deep", "fewer");
    count(text.size());
    const ShellNodePtr program = parse_shell(sources_.emplace_back(std::move(text)), file_, line);
    trees_.push_back(program);
    execute(*program);
    --calls_;
  }

  // Runs a text as another bash does, which has the exported variables alone; `away`: not even these.
  void other_shell(std::string text, const Words& arguments, bool away, const Words& set_before,
                   bool errexit = false) {
    in_subshell([&] {
      for (auto at = state_.variables.begin(); at != state_.variables.end();)
        at = !at->second->exported || away ? state_.variables.erase(at) : std::next(at);
      if (away) state_.anything.clear();
      state_.functions.clear();
      state_.outer.clear();
      state_.errexit = errexit;
      state_.nounset = state_.noglob = state_.pipefail = state_.allexport = false;
      state_.arguments = arguments;
      state_.arguments_given = true;
      for (const std::string& one : set_before)
        put_environment(one.substr(0, one.find('=')), one.substr(one.find('=') + 1));
      slurm_lines(text);
      const int guards = std::exchange(guarded_, 0);
      evaluate(std::move(text), line_);
      guarded_ = guards;
    });
  }

  // What Slurm sets of its options: --nodes=4, -N 4.
  void slurm_option(std::string_view option, std::string_view value) {
    value = value.substr(0, value.find_first_of(" \t#"));
    if (!parse_int(value)) return;
    const auto set_all = [&](std::initializer_list<const char*> names) {
      for (const char* name : names) put_environment(name, std::string(value));
    };
    if (option == "--nodes" || option == "-N") set_all({"SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
    if (option == "--ntasks-per-node") set_all({"SLURM_NTASKS_PER_NODE"});
    if (option == "--gpus-per-node") set_all({"SLURM_GPUS_PER_NODE"});
    if (option == "--ntasks" || option == "-n") set_all({"SLURM_NTASKS", "SLURM_NPROCS"});
  }
  void slurm_options(std::span<const std::string> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::size_t equals = words[i].find('=');
      if (equals != std::string::npos)
        slurm_option(std::string_view(words[i]).substr(0, equals),
                     std::string_view(words[i]).substr(equals + 1));
      else if (i + 1 < words.size())
        slurm_option(words[i], words[i + 1]);
    }
  }
  // "#SBATCH" lines count up to the first command.
  void slurm_lines(std::string_view text) {
    for (std::string_view line : split(text, '\n')) {
      line = trim(line);
      if (!line.empty() && line[0] != '#') return;
      if (!line.starts_with("#SBATCH")) continue;
      line = trim(line.substr(7));
      const std::size_t end = line.find_first_of("= \t");
      if (end != std::string_view::npos) slurm_option(line.substr(0, end), trim(line.substr(end + 1)));
    }
  }

  std::string command_output(std::string_view inside) {
    const std::string written = "$(" + std::string(inside) + ")";
    if (trim(inside).starts_with('<')) return output_of(written);
    const bool assigning = std::exchange(assigning_, false), assuming = std::exchange(assuming_, false);
    const std::string before = std::exchange(state_.out, "");
    const long line = line_;
    ++capturing_;
    in_subshell([&] {
      state_.errexit = false;
      evaluate(std::string(inside), line);
    });
    --capturing_;
    line_ = line;
    assigning_ = assigning, assuming_ = assuming;
    substitution_ = state_.status;
    std::string out = std::exchange(state_.out, before);
    while (out.ends_with('\n')) out.pop_back();
    return has_unknown(out) ? output_of(written) : out;
  }
  void write(const std::string& text) {
    if (capturing_ == 0) return;
    count(text.size());
    state_.out += text;
  }

  // What a here-document or here-string gives a command; nullopt: none.
  std::optional<std::string> input_of(const ShellNode& node) {
    std::optional<std::string> text;
    for (const ShellRedirect& r : node.redirects) {
      if (!r.descriptor.empty() && r.descriptor != "0") continue;
      if (r.body && r.verbatim) {
        text = *r.body;
      } else if (r.body) {
        std::vector<ShellText> out(1);
        expand(*r.body, out, true, ShellText::kQuoted, true);
        text = joined(out);
      } else if (r.op == "<<<") {
        text = value(r.target) + "\n";
      } else if (r.op[0] == '<') {
        text.reset();
      }
    }
    return text;
  }

  // ---- Simple commands.

  void simple(const ShellNode& node) {
    substitution_ = 0;
    const std::string_view raw = node.words.empty() ? "" : node.words[0].raw;
    const bool tests = raw == "[" || raw == "test", noglob = state_.noglob;
    state_.noglob = noglob || raw == "let";  // "x*=2" is the name of no file
    Words words;
    for (std::size_t i = 0; i < node.words.size(); ++i) {
      line_ = node.words[i].line;
      if (tests && i > 0) {
        const std::string_view before = node.words[i - 1].raw;
        const std::size_t only = node.words.size() - (raw == "[" ? 1 : 0);
        assuming_ =
            before == "-z" || before == "-n" || (i + 1 == only && (i == 1 || (i == 2 && before == "!")));
      }
      for (std::string& field : fields(node.words[i])) words.push_back(std::move(field));
      assuming_ = false;
    }
    state_.noglob = noglob;
    line_ = node.line;
    for (const ShellRedirect& r : node.redirects)
      if (!r.body && r.op != "<<<") value(r.target);
    if (words.empty()) {
      for (const ShellAssignment& a : node.assignments) apply(a);
      state_.status = substitution_;
      leave_if_failed();
      return;
    }
    // Assignments in front of a command are its environment alone.
    std::vector<std::pair<std::string, ShellVariablePtr>> hidden;
    for (std::size_t i = 0; i < node.prefix; ++i) {
      const ShellAssignment& a = node.assignments[i];
      const auto at = state_.variables.find(a.name);
      hidden.emplace_back(a.name, at == state_.variables.end() ? nullptr : at->second);
      apply(a);
      if (const ShellVariable* v = variable(a.name)) {
        ShellVariable exported = *v;
        exported.exported = true;
        put(a.name, std::move(exported));
      }
    }
    run_words(node, words, true);
    for (auto at = hidden.rbegin(); at != hidden.rend(); ++at) {
      if (at->second)
        state_.variables[at->first] = at->second;
      else
        state_.variables.erase(at->first);
    }
    leave_if_failed();
  }

  void run_words(const ShellNode& node, const Words& words, bool functions) {
    if (words.empty()) return;
    if (functions) {
      if (const auto at = state_.functions.find(words[0]); at != state_.functions.end()) {
        if (at->second)
          call(*ShellNodePtr(at->second), words);
        else
          everything(words[0] + ", of which it cannot be told what it is");
        return;
      }
    }
    if (!builtin(node, words)) {
      state_.status = std::nullopt;
      external(node, words);
    }
  }

  bool builtin(const ShellNode& node, const Words& words) {
    const std::string& name = words[0];
    const Words rest(words.begin() + 1, words.end());
    const auto number = [&](std::size_t fallback) -> std::optional<std::size_t> {
      if (rest.empty()) return fallback;
      const auto n = decimal(rest[0]);
      return n && *n >= 0 ? std::optional<std::size_t>(static_cast<std::size_t>(*n)) : std::nullopt;
    };
    const auto done = [&](std::optional<int> status = 0) {
      state_.status = status;
      return true;
    };
    if (name == ":" || name == "true") return done();
    if (name == "false") return done(1);
    if (name == "[" || name == "test") {
      test_command(words);
      return true;
    }
    if (name == "echo") return write(echoed(rest)), done();
    if (name == "printf") return printf_of(rest), done();
    if (name == "local" && state_.outer.empty()) return done(1);
    if (name == "export" || name == "declare" || name == "typeset" || name == "local" || name == "readonly")
      return declare(node, words), done();
    if (name == "unset") return unset(rest), done();
    if (name == "set") return set_options(rest), done();
    if (name == "shopt") return shopt(rest), done(std::nullopt);
    if (name == "let") {
      Number v = 0;
      for (const std::string& text : rest) v = arithmetic(text);
      return done(v ? std::optional<int>(*v != 0 ? 0 : 1) : std::nullopt);
    }
    if (name == "eval") {
      const std::string text = join(rest, " ");
      state_.status = 0;
      if (commands_unknown(text))
        everything("eval of a command that cannot be told");
      else
        evaluate(text, line_);
      return true;
    }
    if (name == "source" || name == ".") return source(rest), true;
    if (name == "shift") {
      const auto n = number(1);
      Words& arguments = state_.arguments;
      if (!n || std::ranges::any_of(arguments, has_unknown)) {
        arguments = {unknown("$@", "the arguments that are left cannot be told")};
        return done(std::nullopt);
      }
      if (*n > arguments.size()) return done(1);
      arguments.erase(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(*n));
      return done();
    }
    if (name == "exit" || name == "return") {
      std::optional<int> status = state_.status;
      if (!rest.empty()) {
        const auto n = decimal(rest[0]);
        status = n ? std::optional<int>(static_cast<int>(*n & 255)) : std::nullopt;
      }
      if (name == "exit") {
        leave(status);
      } else if (!state_.outer.empty()) {
        state_.status = status;
        returns_.push_back(copy());
        state_.dead = true;
      }
      return true;
    }
    if (name == "break" || name == "continue") {
      if (loops_.empty()) return done();
      const std::size_t n = std::clamp<std::size_t>(number(1).value_or(1), 1, loops_.size());
      state_.status = 0;
      Loop& loop = loops_[loops_.size() - n];
      (name == "break" ? loop.breaks : loop.continues).push_back(copy());
      state_.dead = true;
      return true;
    }
    if (name == "read") return read(node, rest), true;
    if (name == "mapfile" || name == "readarray") {
      const std::string target = rest.empty() || rest.back().starts_with("-") ? "MAPFILE" : rest.back();
      if (!is_shell_name(target)) {
        everything("mapfile");
      } else {
        ShellVariable v = changed(target);
        v.array = true;
        v.items = {{0, unknown("$" + target, "it is read from elsewhere")}};
        put(target, std::move(v));
      }
      return done(std::nullopt);
    }
    if (name == "getopts") {
      // Without arguments it ends at once.
      const bool none = rest.size() == 2 && state_.arguments.empty();
      const std::string piece = unknown("$" + name, "it is an option of the script");
      for (const std::string& target :
           {rest.size() > 1 ? rest[1] : std::string("OPTARG"), std::string("OPTARG"), std::string("OPTIND")})
        set(target, none && target != "OPTIND" && target != "OPTARG" ? "?" : piece);
      return done(none ? std::optional<int>(1) : std::nullopt);
    }
    if (name == "trap") return trap(rest), done();
    if (name == "exec") {
      if (rest.empty()) return done();
      std::size_t first = 0;
      while (first < rest.size() && rest[first].starts_with("-")) first += rest[first] == "-a" ? 2 : 1;
      if (first < rest.size())
        external(node, Words(rest.begin() + static_cast<std::ptrdiff_t>(first), rest.end()));
      leave(1);
      return true;
    }
    if (name == "command" || name == "builtin") {
      std::size_t first = 0;
      while (first < rest.size() && rest[first] == "-p") ++first;
      if (first >= rest.size()) return done();
      if (rest[first].starts_with("-")) return done(std::nullopt);  // command -v
      run_words(node, Words(rest.begin() + static_cast<std::ptrdiff_t>(first), rest.end()), false);
      return true;
    }
    if (name == "enable") fail(name, "a script without it");
    constexpr std::array<std::string_view, 20> kHarmless{
        "cd",     "pushd", "popd", "wait", "umask",   "ulimit", "alias", "unalias", "jobs", "kill",
        "disown", "times", "type", "dirs", "suspend", "help",   "hash",  "history", "fc",   "bind"};
    if (!among(kHarmless, name)) return false;
    if (name == "type") write(unknown("type", "it is the output of a command"));
    return done(name == "alias" || name == "umask" ? std::optional<int>(0) : std::nullopt);
  }

  // Whether a text has a command word that cannot be told, at its start.
  static bool commands_unknown(std::string_view text) {
    text = trim(text);
    while (!text.empty()) {
      const std::string_view word = text.substr(0, text.find_first_of(" \t\n;&|"));
      if (word.find('=') == std::string_view::npos) return has_unknown(word);
      text = trim(text.substr(word.size()));
    }
    return false;
  }

  void test_command(Words words) {
    if (words[0] == "[" && words.back() != "]") {
      state_.status = 2;
      return;
    }
    const bool brackets = words[0] == "[";
    words.erase(words.begin());
    if (brackets) words.pop_back();
    const Truth truth = std::ranges::any_of(words, has_unknown) ? Truth() : test_words(words);
    state_.status = truth ? std::optional<int>(*truth ? 0 : 1) : std::nullopt;
  }

  std::string echoed(const Words& rest) {
    std::size_t first = 0;
    bool line = true, escapes = false;
    for (; first < rest.size(); ++first) {
      const std::string& w = rest[first];
      if (w.size() < 2 || w[0] != '-' || w.find_first_not_of("neE", 1) != std::string::npos) break;
      line = line && w.find('n') == std::string::npos;
      if (w.find('e') != std::string::npos) escapes = true;
    }
    std::string text = join(std::span(rest).subspan(first), " ");
    if (escapes && text.find('\\') != std::string::npos)
      text = unknown("echo -e", "its escapes are not followed");
    return text + (line ? "\n" : "");
  }
  void printf_of(const Words& rest) {
    std::size_t first = 0;
    std::string target;
    if (rest.size() > 1 && rest[0] == "-v") target = rest[1], first = 2;
    if (first < rest.size() && rest[first] == "--") ++first;
    const std::string text = first < rest.size() ? formatted(std::span(rest).subspan(first)) : "";
    if (target.empty()) return write(text);
    std::size_t bracket = 0;
    const std::size_t n = shell_variable_length(target, bracket);
    if (n != target.size() || bracket < n) return everything("printf -v " + target);
    set(target, text);
  }
  std::string formatted(std::span<const std::string> words) {
    const std::string& format = words[0];
    const std::string cannot = unknown("printf", "its format is not followed");
    if (has_unknown(format)) return cannot;
    std::string text;
    std::size_t next = 1;
    do {
      bool took = false;
      for (std::size_t i = 0; i < format.size(); ++i) {
        const char c = format[i], then = i + 1 < format.size() ? format[i + 1] : '\0';
        if (c == '%') {
          const std::string given = next < words.size() ? words[next] : "";
          if (then == '%') {
            text += '%';
          } else if (then == 's' || (then == 'd' && !has_unknown(given) && parse_int(given) &&
                                     std::to_string(*parse_int(given)) == given)) {
            text += given;
            ++next, took = true;
          } else {
            return cannot;
          }
          ++i;
        } else if (c == '\\') {
          if (then != 'n' && then != 't' && then != '\\') return cannot;
          text += then == 'n' ? '\n' : then == 't' ? '\t' : '\\';
          ++i;
        } else {
          text += c;
        }
      }
      count(format.size());
      if (!took) break;
    } while (next < words.size());
    return text;
  }

  void declare(const ShellNode& node, const Words& words) {
    const std::string& kind = words[0];
    std::string on, off;
    Words names;
    bool ended = false;
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (!ended && words[i] == "--")
        ended = true;
      else if (!ended && words[i].size() > 1 && (words[i][0] == '-' || words[i][0] == '+'))
        (words[i][0] == '-' ? on : off) += words[i].substr(1);
      else
        names.push_back(words[i]);
    }
    const auto has = [&](char c) { return on.find(c) != std::string::npos; };
    if (has('f') || has('F') || (has('p') && kind != "local")) return;
    const bool local =
        kind == "local" || ((kind == "declare" || kind == "typeset") && !has('g') && !state_.outer.empty());
    const auto attributes = [&](const std::string& name) {
      if (local && !state_.outer.empty() && !state_.outer.back().contains(name)) {
        const auto at = state_.variables.find(name);
        const ShellVariablePtr old = at == state_.variables.end() ? nullptr : at->second;
        state_.outer.back()[name] = old;
        ShellVariable fresh;
        fresh.exported = old && old->exported;
        if (!state_.anything.empty() || !old) fresh.exported = false;
        put(name, std::move(fresh));
      }
      const auto at = state_.variables.find(name);
      const bool exists = at != state_.variables.end();
      if (!exists && (kind == "export" || kind == "readonly")) return;
      ShellVariable v = exists ? *at->second : ShellVariable{};
      if (kind == "export" || has('x')) v.exported = !has('n') || kind != "export";
      if (off.find('x') != std::string::npos) v.exported = false;
      v.integer = (v.integer || has('i')) && off.find('i') == std::string::npos;
      v.odd = v.odd || has('l') || has('u') || has('c');
      v.array = v.array || has('a');
      v.named = v.named || has('A');
      put(name, std::move(v));
    };
    const auto lock = [&](const std::string& name) {
      if (kind != "readonly" && !has('r')) return;
      if (const ShellVariable* v = variable(name)) {
        ShellVariable locked = *v;
        locked.readonly = true;
        put(target_of(name), std::move(locked));
      }
    };
    const auto refer = [&](const std::string& name, const std::string& to) {
      ShellVariable v;
      v.reference = to;
      if (has_unknown(to) || to == name) return everything("declare -n " + name);
      put(name, std::move(v));
    };
    for (const std::string& word : names) {
      const std::size_t equals = word.find('=');
      const bool more = equals != std::string::npos && equals > 0 && word[equals - 1] == '+';
      const std::string name = word.substr(0, equals == std::string::npos ? equals : equals - (more ? 1 : 0));
      if (!is_shell_name(name)) {
        if (has_unknown(name) || name.find('[') != std::string::npos)
          everything(kind + " of a name that cannot be told");
        continue;
      }
      if (kind != "export" && has('n') && equals != std::string::npos) {
        refer(name, word.substr(equals + 1));
        continue;
      }
      attributes(name);
      if (equals != std::string::npos) assign(name, std::nullopt, more, word.substr(equals + 1));
      if (equals == std::string::npos && (kind == "export" || has('x')) && !has('n') && !variable(name))
        exports_.insert(name);
      lock(name);
    }
    for (std::size_t i = node.prefix; i < node.assignments.size(); ++i) {
      const ShellAssignment& a = node.assignments[i];
      if (kind != "export" && has('n')) {
        refer(a.name, value(a.value));
        continue;
      }
      // The value is told before a local hides what it is made of.
      ShellAssignment said = a;
      std::string text;
      if (!a.array) text = value(a.value);
      std::optional<std::string> key;
      if (a.has_subscript) key = value({a.subscript, line_});
      attributes(a.name);
      if (a.array)
        assign_items(a, has('A'));
      else
        assign(a.name, key, a.append, std::move(text));
      if (kind == "export" || has('x')) attributes(a.name);
      lock(a.name);
    }
  }

  void unset(const Words& rest) {
    bool functions = false;
    for (const std::string& word : rest) {
      if (word == "-f" || word == "-v" || word == "-n") {
        functions = word == "-f";
        continue;
      }
      std::size_t bracket = 0;
      const std::size_t n = shell_variable_length(word, bracket);
      if (n != word.size() || n == 0) {
        if (has_unknown(word)) everything("unset of a name that cannot be told");
      } else if (functions || (!variable(word) && state_.functions.contains(word))) {
        state_.functions.erase(word);
      } else if (bracket < n) {
        const std::string name = target_of(word.substr(0, bracket));
        const std::string key = word.substr(bracket + 1, n - bracket - 2);
        ShellVariable v = changed(name);
        const Number index = v.named || key == "@" || key == "*" ? Number() : arithmetic(key);
        if (v.named && !has_unknown(key))
          v.keyed.erase(key);
        else if (index && *index >= 0 && known_count(v.items) == v.items.size())
          v.items.erase(*index);
        else
          v.items = {{0, unknown("$" + name, "an element of " + name + " is unset that cannot be told")}};
        put(name, std::move(v));
      } else {
        const std::string name = target_of(word);
        changed(name);
        // A local stays one; bash may show what it hides.
        if (!state_.outer.empty() && state_.outer.back().contains(name))
          put(name, {});
        else
          put(name, {});
      }
    }
  }

  void set_options(const Words& rest) {
    const auto named = [&](const std::string& option, bool on) {
      if (option == "errexit") state_.errexit = on;
      if (option == "nounset") state_.nounset = on;
      if (option == "noglob") state_.noglob = on;
      if (option == "pipefail") state_.pipefail = on;
      if (option == "allexport") state_.allexport = on;
      constexpr std::array<std::string_view, 5> kOther{"posix", "noexec", "keyword", "braceexpand", "onecmd"};
      if ((among(kOther, option) && (on || option == "braceexpand")) || has_unknown(option))
        fail("set -o " + script_.shown(option), "a script without it");
    };
    for (std::size_t i = 0; i < rest.size(); ++i) {
      const std::string& word = rest[i];
      const bool option = word.size() > 1 && (word[0] == '-' || word[0] == '+') && word != "--";
      if (!option || has_unknown(word)) {
        state_.arguments.assign(
            rest.begin() + static_cast<std::ptrdiff_t>(i + (word == "--" || word == "-" ? 1 : 0)),
            rest.end());
        state_.arguments_given = true;
        return;
      }
      const bool on = word[0] == '-';
      for (const char c : word.substr(1)) {
        if (c == 'o') {
          if (i + 1 < rest.size()) named(rest[++i], on);
          continue;
        }
        constexpr std::string_view kLetters = "eufaBnkt";
        constexpr std::array<std::string_view, 8> kNames{"errexit",     "nounset", "noglob",  "allexport",
                                                         "braceexpand", "noexec",  "keyword", "onecmd"};
        if (const std::size_t at = kLetters.find(c); at != std::string_view::npos) {
          if (c != 'B' || !on) named(std::string(kNames[at]), on);
        }
      }
    }
  }
  void shopt(const Words& rest) {
    constexpr std::array<std::string_view, 9> kHarmless{"checkwinsize",    "cmdhist",  "histappend",
                                                        "inherit_errexit", "globstar", "dotglob",
                                                        "huponexit",       "extglob",  "promptvars"};
    constexpr std::array<std::string_view, 3> kGlobs{"nullglob", "failglob", "nocaseglob"};
    const bool sets = !rest.empty() &&
                      (rest[0].find('s') != std::string::npos || rest[0].find('o') != std::string::npos) &&
                      rest[0][0] == '-';
    for (std::size_t i = 1; i < rest.size() && sets; ++i) {
      if (among(kGlobs, rest[i]))
        state_.odd_globs = true;
      else if (!among(kHarmless, rest[i]))
        fail("shopt " + script_.shown(rest[0] + " " + rest[i]), "a script without it");
    }
  }

  void source(const Words& rest) {
    const std::string file = rest.empty() ? "" : script_.shown(rest[0]);
    const std::string name = name_of_program(file);
    state_.status = std::nullopt;
    if (const std::string* text = rest.empty() ? nullptr : written_file(rest[0])) {
      evaluate(*text, line_);
      return;
    }
    const bool set_up = among(kSetUps, name) || file.starts_with("/etc/profile") ||
                        file.find("/modules/init/") != std::string::npos;
    if (set_up)
      script_.notes_.insert(
          fmt::format("{}:{}: {} is taken as leaving the script's variables alone", file_, line_, file));
    else
      everything("source " + file + " is not read");
  }

  void read(const ShellNode& node, const Words& rest) {
    bool raw = false, plain = true;
    Words names;
    for (std::size_t i = 0; i < rest.size(); ++i) {
      const std::string& w = rest[i];
      if (w.size() < 2 || w[0] != '-' || !names.empty()) {
        names.push_back(w);
      } else if (w == "-r") {
        raw = true;
      } else {
        plain = false;
        // Options with a value of their own.
        if (std::string_view("adinNptu").find(w.back()) != std::string_view::npos) {
          const bool array = w.back() == 'a';
          if (++i < rest.size() && array) names.push_back(rest[i]);
        }
        if (w.find('a') != std::string::npos && w.back() != 'a') plain = false;
      }
    }
    if (names.empty()) names.emplace_back("REPLY");
    const std::optional<std::string> text = input_of(node);
    bool known = true;
    const bool usual = separators(known) == " \t\n";
    state_.status = std::nullopt;
    Words values;
    bool told = plain && text && usual && known && !has_unknown(*text) &&
                (raw || text->find('\\') == std::string::npos);
    if (told) {
      std::string_view line = std::string_view(*text).substr(0, text->find('\n'));
      for (std::size_t i = 0; i < names.size(); ++i) {
        line = trim(line);
        const std::size_t end =
            i + 1 == names.size() ? line.size() : std::min(line.find_first_of(" \t"), line.size());
        values.emplace_back(line.substr(0, end));
        line.remove_prefix(end);
      }
      if (text->find('\n') != std::string::npos) state_.status = 0;
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!is_shell_name(names[i])) return everything("read into " + script_.shown(names[i]));
      ShellVariable v = changed(names[i]);
      v.array = v.array || !plain;
      v.items = {{0, told ? values[i] : unknown("$" + names[i], "it is read from elsewhere")}};
      if (v.integer || v.odd) v.items = {{0, unknown("$" + names[i], "it is read from elsewhere")}};
      put(target_of(names[i]), std::move(v));
    }
  }

  void trap(const Words& rest) {
    std::size_t first = 0;
    if (first < rest.size() && rest[first] == "--") ++first;
    if (first >= rest.size() || rest[first].starts_with("-") || first + 1 >= rest.size()) {
      for (const std::string& word : rest)
        if (word == "EXIT" || word == "0") state_.trap.clear();
      return;
    }
    const std::string action = rest[first];
    for (std::size_t i = first + 1; i < rest.size(); ++i) {
      if (rest[i] == "EXIT" || rest[i] == "0") {
        state_.trap = action;
        continue;
      }
      // Of other signals it cannot be told when they come: their command must change nothing.
      const ShellState before = copy();
      const std::size_t commands = script_.commands_.size(), left = exits_.size();
      ++uncertain_;
      if (!has_unknown(action)) evaluate(action, line_);
      --uncertain_;
      const bool starts = script_.commands_.size() > commands && (rest[i] == "DEBUG" || rest[i] == "RETURN");
      const bool same = !starts && (state_.dead || state_.variables == before.variables);
      script_.commands_.resize(commands);
      exits_.resize(left);
      state_ = before;
      if (!same || has_unknown(action)) fail("trap on " + rest[i], "one that changes no variable");
    }
  }

  // A command that is no part of bash.
  void external(const ShellNode& node, const Words& words) {
    if (capturing_ > 0) {
      const std::optional<std::string> text =
          words[0] == "cat" && words.size() == 1 ? input_of(node) : std::nullopt;
      write(text ? *text : unknown(words[0], "it is the output of a command"));
    }
    if (runs_shell(node, words)) return;
    // An assignment that an expansion has made is the name of a command that is not there.
    if (is_shell_name(std::string_view(words[0]).substr(0, words[0].find('='))) &&
        words[0].find('=') != std::string::npos)
      return;
    if (words[0] == "cat" && words.size() == 1)
      for (const ShellRedirect& r : node.redirects)
        if (r.op[0] == '>' && r.op != ">&" && r.descriptor.empty())
          note_file(value(r.target), input_of(node));
    ShellCommand command{words, {file_, node.line}, uncertain_ > 0, "", ""};
    const auto said = [&](const char* name) {
      const ShellVariable* v = variable(name);
      return v && !v->items.empty() ? v->items.begin()->second : std::string();
    };
    command.nodes = said("SLURM_NNODES");
    command.tasks = said("SLURM_NTASKS_PER_NODE");
    for (const std::string& word : words) count(word.size());
    if (words[0] == "find") return;  // its -exec is no command of the script
    if (words[0] == "xargs" || words[0] == "parallel")
      command.words.push_back(unknown("...", words[0] + " adds words"));
    script_.commands_.push_back(std::move(command));
  }

  static std::string file_name(std::string_view name) {
    while (name.starts_with("./")) name.remove_prefix(2);
    return std::string(name);
  }
  void note_file(const std::string& name, const std::optional<std::string>& text) {
    files_.erase(file_name(name));
    if (text && uncertain_ == 0) files_[file_name(name)] = *text;
  }
  const std::string* written_file(const std::string& name) const {
    const auto at = files_.find(file_name(name));
    return at == files_.end() ? nullptr : &at->second;
  }

  // bash -c TEXT, bash <<EOF, sbatch <<EOF, also behind a launcher: the text is a script.
  bool runs_shell(const ShellNode& node, const Words& words) {
    const std::string first = name_of_program(words[0]);
    bool away = among(kAway, first) || std::ranges::find(words, "-i") != words.end();
    Words set_before;
    std::size_t shell = words.size();
    for (std::size_t i = 0; i < words.size() && shell == words.size(); ++i) {
      const std::string name = name_of_program(words[i]);
      if (name == "bash" || name == "sh") shell = i;
      if (name == "-") continue;
      if (name.ends_with(".py") || name.starts_with("python") || name == "torchrun") return false;
      const std::size_t equals = words[i].find('=');
      if (first == "env" && i > 0 && equals != std::string::npos &&
          is_shell_name(std::string_view(words[i]).substr(0, equals)))
        set_before.push_back(words[i]);
    }
    const bool batch = first == "sbatch";
    if (shell == words.size() && !batch && !written_file(words[0])) return false;
    std::string text;
    Words arguments;
    bool found = false, errexit = false;
    if (shell < words.size()) {
      std::size_t i = shell + 1;
      bool reads = false;
      for (; i < words.size() && !words[i].empty() && (words[i][0] == '-' || words[i][0] == '+'); ++i) {
        const bool letters = !words[i].starts_with("--");
        errexit = errexit || (letters && words[i].find('e') != std::string::npos);
        if (letters && words[i].find('c') != std::string::npos && i + 1 < words.size()) {
          std::size_t at = i + 1;
          while (at + 1 < words.size() && words[at].starts_with("-")) ++at;
          text = words[at];
          arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(at + 2, words.size())),
                           words.end());
          found = true;
          break;
        }
        if (letters && words[i].find('s') != std::string::npos) reads = true;
        if (letters && (words[i].back() == 'o' || words[i].back() == 'O')) ++i;
      }
      if (!found && (reads || i >= words.size())) {
        auto input = input_of(node);
        if (!input && node.redirects.empty()) input = piped_;
        if (input) {
          text = *input;
          found = true;
          if (i < words.size()) arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
        }
      } else if (!found && written_file(words[i])) {
        text = *written_file(words[i]);
        found = true;
        arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
      }
    } else if (!batch) {
      text = *written_file(words[0]);
      found = true;
      arguments.assign(words.begin() + 1, words.end());
    } else {
      for (std::size_t i = 1; i < words.size(); ++i) {
        if (words[i].starts_with("--wrap=")) text = words[i].substr(7), found = true;
        if (words[i] == "--wrap" && i + 1 < words.size()) text = words[i + 1], found = true;
        if (!found && written_file(words[i])) text = *written_file(words[i]), found = true;
      }
      if (!found)
        if (const auto input = input_of(node)) text = *input, found = true;
    }
    if (!found) return false;
    if (has_unknown(text) && commands_unknown(text)) return false;
    const Words options(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(shell));
    in_subshell([&] {
      if (batch || first == "srun") slurm_options(options);
      other_shell(text, arguments, away, set_before, errexit);
    });
    if (shell > 0) state_.status = std::nullopt;
    return true;
  }

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
  std::optional<std::string> piped_;          // what the command in front in a pipe has written
  std::map<std::string, std::string> files_;  // here-documents that the script has written
};

ShellScript::ShellScript(std::string_view text, const std::string& file,
                         const std::vector<std::string>& variables) {
  ShellRun(*this, file).run(text, variables);
}

std::string ShellScript::unknown(std::string_view word) const {
  const std::size_t from = word.find(kShellUnknown);
  if (from == std::string_view::npos) return "";
  const auto index = parse_int(word.substr(from + 1, word.find(kShellUnknown, from + 1) - from - 1));
  return index && static_cast<std::size_t>(*index) < reasons_.size()
             ? reasons_[static_cast<std::size_t>(*index)].why
             : "it cannot be told";
}

std::string ShellScript::shown(std::string_view word) const {
  std::string text;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] != kShellUnknown) {
      text += word[i];
      continue;
    }
    const std::size_t end = std::min(word.find(kShellUnknown, i + 1), word.size());
    const auto index = parse_int(word.substr(i + 1, end - i - 1));
    if (index && static_cast<std::size_t>(*index) < reasons_.size())
      text += reasons_[static_cast<std::size_t>(*index)].text;
    i = end;
  }
  return text;
}

}  // namespace moesim::tools
