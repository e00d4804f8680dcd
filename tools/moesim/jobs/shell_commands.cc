#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/text.h"
#include "tools/moesim/jobs/job_file.h"
#include "tools/moesim/jobs/shell_run.h"

namespace moesim::tools {

void ShellRun::execute(const ShellNode& node) {
  if (state_.dead) return;
  charge(1);
  line_ = node.line;
  if (++depth_ > kMaxShellDepth) fail("commands inside of each other, 200 deep", "fewer");
  const bool hides = hides_output(node);
  const std::string out = hides ? std::exchange(state_.out, "") : "";
  const ShellRedirect* file = file_written(node);
  const std::string name = file ? value(file->target) : "";
  capturing_ += file ? 1 : 0;
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
  if (file) {
    --capturing_;
    const auto before = files_.find(file_name(name));
    const bool append = file->op == ">>";
    const bool told = !append || (before != files_.end() && before->second);
    note_file(name, told ? std::optional((append ? *before->second : "") + state_.out) : std::nullopt);
  }
  if (hides) state_.out = out;
  --depth_;
}

// Where a command's output is written to, alone; nullptr: to no file that can be told.
const ShellRedirect* ShellRun::file_written(const ShellNode& node) {
  const ShellRedirect* file = nullptr;
  for (const ShellRedirect& r : node.redirects) {
    if (r.op[0] == '<') continue;
    const bool plain = r.descriptor.empty() && (r.op == ">" || r.op == ">>" || r.op == ">|");
    // A target that changes a variable is looked at once.
    if (!plain || file || r.target.raw.find('$') != std::string_view::npos) return nullptr;
    file = &r;
  }
  return file;
}

bool ShellRun::hides_output(const ShellNode& node) {
  return std::ranges::any_of(node.redirects, [](const ShellRedirect& r) {
    const bool first = r.descriptor.empty() || r.descriptor == "1";
    return (first && r.op[0] == '>') || r.op[0] == '&';
  });
}

bool ShellRun::is_test(const ShellNode& node) {
  return node.kind == Kind::kTest || node.kind == Kind::kArithmetic ||
         (node.kind == Kind::kSimple && !node.words.empty() &&
          (node.words[0].raw == "[" || node.words[0].raw == "test"));
}

void ShellRun::and_or(const ShellNode& node) {
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

void ShellRun::pipe(const ShellNode& node) {
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

void ShellRun::if_of(const ShellNode& node) {
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

void ShellRun::case_of(const ShellNode& node) {
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

void ShellRun::go_on(std::vector<ShellState>& ways) {
  ways.push_back(std::move(state_));
  state_ = merged_ends(ways);
}

void ShellRun::end_loop() {
  std::vector<ShellState> ends = std::move(loops_.back().breaks);
  loops_.pop_back();
  if (!state_.dead) state_.status = state_.status == 0 ? state_.status : std::nullopt;
  for (ShellState& one : ends) one.status = 0;
  ends.push_back(std::move(state_));
  state_ = merged_ends(ends);
  if (!state_.dead && state_.status != 0) state_.status = std::nullopt;
}

void ShellRun::for_of(const ShellNode& node) {
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

void ShellRun::call(const ShellNode& body, const Words& words) {
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

void ShellRun::evaluate(std::string text, long line) {
  if (++calls_ > kMaxJobFileDepth) fail("scripts inside of each other, 64 deep", "fewer");
  count(text.size());
  const ShellNodePtr program = parse_shell(sources_.emplace_back(std::move(text)), file_, line);
  trees_.push_back(program);
  execute(*program);
  --calls_;
}

void ShellRun::other_shell(std::string text, const Words& arguments, bool away, const Words& set_before,
                           bool errexit) {
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

void ShellRun::slurm_option(std::string_view option, std::string_view value) {
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

void ShellRun::slurm_options(std::span<const std::string> words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    if (equals != std::string::npos)
      slurm_option(std::string_view(words[i]).substr(0, equals),
                   std::string_view(words[i]).substr(equals + 1));
    else if (i + 1 < words.size())
      slurm_option(words[i], words[i + 1]);
  }
}

void ShellRun::slurm_lines(std::string_view text) {
  for (std::string_view line : split(text, '\n')) {
    line = trim(line);
    if (!line.empty() && line[0] != '#') return;
    if (!line.starts_with("#SBATCH")) continue;
    line = trim(line.substr(7));
    const std::size_t end = line.find_first_of("= \t");
    if (end != std::string_view::npos) slurm_option(line.substr(0, end), trim(line.substr(end + 1)));
  }
}

std::string ShellRun::command_output(std::string_view inside) {
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

void ShellRun::write(const std::string& text) {
  if (capturing_ == 0) return;
  count(text.size());
  state_.out += text;
}

std::optional<std::string> ShellRun::input_of(const ShellNode& node) {
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

}  // namespace moesim::tools
