#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/text.h"
#include "tools/moesim/jobs/job_file.h"
#include "tools/moesim/jobs/shell_run.h"

namespace moesim::tools {

namespace {

constexpr std::size_t kMaxWork = 4'000'000;  // commands, characters looked at, variables copied

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

}  // namespace

void ShellRun::run(std::string_view text, const std::vector<std::string>& variables) {
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
  in_subshell([&] { execute(*program); });
}

void ShellRun::fail(const std::string& found, const std::string& expected) const {
  throw InputError(SourcePlace{file_, line_}, found, expected);
}

void ShellRun::charge(std::size_t work) {
  work_ += work;
  if (work_ > kMaxWork)
    fail("more steps than can be followed (a loop without end?)", "the arguments of one job");
}

void ShellRun::count(std::size_t bytes) {
  expanded_ += bytes;
  charge(1 + bytes / 64);
  if (expanded_ > kMaxExpandedBytes)
    fail("variables that expand to more than 16 MiB", "the arguments of one job");
}

std::string ShellRun::unknown(std::string_view text, const std::string& why) {
  // One place in the list for every piece that reads alike, so that loops of growth stay small.
  const auto [found, is_new] = unknown_.try_emplace(std::string(text) + '\n' + why, script_.reasons_.size());
  if (is_new) script_.reasons_.push_back({std::string(text), why});
  return kShellUnknown + std::to_string(found->second) + kShellUnknown;
}

std::string ShellRun::on_condition(const std::string& name) {
  return unknown("$" + name, fmt::format("${} depends on a condition near line {} that only a run can tell",
                                         name, line_));
}

std::string ShellRun::output_of(std::string_view command) {
  return unknown(command, "it is the output of a command");
}

ShellState ShellRun::merged_two(ShellState a, ShellState b) {
  charge(a.variables.size() + b.variables.size() + a.arguments.size() + (a.out.size() + b.out.size()) / 64);
  return merged(std::move(a), std::move(b), [&](const std::string& name) { return on_condition(name); });
}

ShellState ShellRun::merged_ends(std::vector<ShellState>& ends) {
  ShellState all;
  all.dead = true;
  for (ShellState& one : ends) all = merged_two(std::move(all), std::move(one));
  ends.clear();
  return all;
}

ShellState ShellRun::copy() {
  charge(1 + state_.variables.size() + state_.functions.size() + state_.arguments.size() +
         state_.out.size() / 64);
  return state_;
}

void ShellRun::leave(std::optional<int> status) {
  state_.status = status;
  if (subshells_ == 1 && uncertain_ > 0 && (!status || *status == 0))
    script_.notes_.insert(
        fmt::format("{}:{}: ends under a condition that cannot be told: taken as going on", file_, line_));
  exits_.push_back(copy());
  state_.dead = true;
}

void ShellRun::leave_if_failed() {
  if (!state_.dead && state_.errexit && guarded_ == 0 && state_.status && *state_.status != 0)
    leave(state_.status);
}

void ShellRun::put(const std::string& name, ShellVariable value) {
  charge(1 + value.items.size() + value.keyed.size());
  state_.variables[name] = std::make_shared<const ShellVariable>(std::move(value));
}

void ShellRun::put_environment(const std::string& name, const std::string& value) {
  ShellVariable v;
  v.items = {{0, value}};
  v.exported = true;
  put(name, std::move(v));
}

const ShellVariable* ShellRun::variable(const std::string& name) const {
  const auto at = state_.variables.find(name);
  return at == state_.variables.end() ? nullptr : at->second.get();
}

ShellVariable ShellRun::changed(const std::string& name) {
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

std::string ShellRun::outside(const std::string& written) {
  return unknown(written,
                 state_.anything.empty() ? written + " is said outside of the file" : state_.anything);
}

void ShellRun::assign(const std::string& name, const std::optional<std::string>& key, bool append,
                      std::string value) {
  if (!is_shell_name(name)) fail(in_quotes(name), "the name of a variable");
  if (among(kLive, name)) return;
  ShellVariable v = changed(name);
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
      v.items = {{0, unknown("$" + name, fmt::format("an element of {} is set that cannot be told", name))}};
      put(name, std::move(v));
      return;
    }
  }
  std::string* place = key && v.named ? &v.keyed[*key] : nullptr;
  std::string old;
  if (place)
    old = *place;
  else if (const auto at = v.items.find(*index); at != v.items.end())
    old = at->second;
  else if (append && !variable(name))
    old = outside("$" + name);
  if (v.integer) {
    const Number number = arithmetic(value), before = append ? arithmetic(old) : Number(0);
    value = number && before ? std::to_string(static_cast<std::int64_t>(static_cast<std::uint64_t>(*number) +
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
  put(name, std::move(v));
}

std::size_t ShellRun::known_count(const std::map<long long, std::string>& items) {
  std::size_t n = 0;
  for (const auto& [index, text] : items) {
    if (has_unknown(text)) break;
    ++n;
  }
  return n;
}

void ShellRun::assign_items(const ShellAssignment& a, bool keyed) {
  if (among(kLive, a.name)) return;
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
  ShellVariable v = changed(a.name);
  v.named = v.named || keyed;
  if (a.append && !variable(a.name) && !v.named)
    v.items = {{0, outside("$" + a.name)}};
  else if (!a.append)
    v.items.clear(), v.keyed.clear();
  v.array = !v.named;
  put(a.name, v);
  bool plain = true;
  for (const Item& item : items) plain = plain && !item.key;
  if (plain && !v.named && !v.integer && !v.odd) {
    long long next = v.items.empty() ? 0 : v.items.rbegin()->first + 1;
    for (Item& item : items) count(item.value.size()), v.items[next++] = std::move(item.value);
    put(a.name, std::move(v));
    return;
  }
  for (const Item& item : items) {
    const ShellVariable* now = variable(a.name);
    if (!item.key && now->named) {
      everything(a.name + " takes keys and values");
      return;
    }
    const long long next = now->items.empty() ? 0 : now->items.rbegin()->first + 1;
    assign(a.name, item.key ? *item.key : std::to_string(next), item.append, item.value);
  }
}

void ShellRun::apply(const ShellAssignment& a) {
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

void ShellRun::everything(const std::string& why) {
  charge(1);
  state_.variables.clear();
  state_.anything = fmt::format("{} (line {}), which may set every variable", why, line_);
}

std::string ShellRun::separators(bool& known) {
  known = true;
  const ShellVariable* ifs = variable("IFS");
  if (!ifs || ifs->items.empty()) return " \t\n";
  known = !has_unknown(ifs->items.begin()->second);
  return ifs->items.begin()->second;
}

ShellRun::Found ShellRun::not_said(const std::string& name, const std::string& written) {
  if (!state_.anything.empty() || among(kPresent, name) || name.starts_with("BASH") ||
      name.starts_with("COMP_"))
    return unknown_value(outside(written));
  if (assuming_) {
    script_.assumed_.insert("$" + name);
    return {Found::kUnset, {}};
  }
  return {Found::kOutside, {outside(written)}};
}

ShellRun::Found ShellRun::find(const std::string& name, const std::optional<std::string_view>& subscript,
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
  charge(v->items.size());
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

}  // namespace moesim::tools
