#include "tools/moesim/read/training_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace moesim::tools {

namespace {

// Removes the escapes that colour a terminal.
std::string uncoloured(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      text += line[i];
      continue;
    }
    while (i < line.size() && std::isalpha(static_cast<unsigned char>(line[i])) == 0) ++i;
  }
  return text;
}

// Returns the number after a label, with commas between its digits; nullopt where there is none.
std::optional<double> number_behind(std::string_view line, std::string_view label) {
  const std::size_t at = line.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  std::string digits;
  for (const char c : trim(line.substr(at + label.size()))) {
    if (c == ',') continue;
    if (std::isdigit(static_cast<unsigned char>(c)) == 0 && c != '.' && c != 'e' && c != 'E' && c != '+' &&
        c != '-')
      break;
    digits += c;
  }
  const auto value = parse_number(digits);
  return value && *value > 0 && *value < 1e12 ? value : std::nullopt;
}

// Reads "  num_layers ........ 32" of the dump; returns false for other lines.
bool read_argument(std::string_view line, const SourcePlace& place, JobFile& into) {
  const std::size_t dots = line.find(" ..");
  if (dots == std::string_view::npos) return false;
  const std::string_view before = trim(line.substr(0, dots));
  const std::size_t blank = before.find_last_of(" \t:]");
  const std::string_view name = blank == std::string_view::npos ? before : before.substr(blank + 1);
  const bool plain = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_';
  });
  const std::size_t value = line.find_first_not_of('.', dots + 1);
  if (!plain || value == std::string_view::npos || line[value] != ' ') return false;
  const std::string text(trim(line.substr(value)));
  if (text.empty() || text == "None") return true;
  Setting s;
  s.name = s.shown = std::string(name);
  // Splits Python's lists into items.
  if (text.size() > 1 && text.front() == '[' && text.back() == ']') {
    for (std::string_view item : split(std::string_view(text).substr(1, text.size() - 2), ',')) {
      item = trim(item);
      if (item.size() > 1 && (item.front() == '\'' || item.front() == '"'))
        item = item.substr(1, item.size() - 2);
      if (!item.empty()) s.values.emplace_back(item);
    }
    if (s.values.empty()) return true;
  } else {
    s.values = {text};
  }
  s.place = place;
  into.settings.push_back(std::move(s));
  return true;
}

struct LoggedStep {
  double value = 0;                       // seconds, or tokens per second
  std::int64_t iteration = 0, batch = 0;  // 0: not printed
  long line = 0;
};

// The steps of one kind, run by run.
class LoggedSteps {
 public:
  bool empty() const { return steps_.empty(); }
  const std::vector<LoggedStep>& steps() const { return steps_; }

  void add(const LoggedStep& step) {
    if (step.iteration > 0 && !steps_.empty()) {
      // Ranks print an iteration one after another, and may be one behind.
      const std::size_t recent = std::min<std::size_t>(2, steps_.size());
      for (std::size_t i = steps_.size() - recent; i < steps_.size(); ++i)
        if (steps_[i].iteration == step.iteration) return;
      if (step.iteration < steps_.back().iteration) {
        earlier_ += steps_.size();
        ++runs_;
        steps_.clear();
      }
    }
    steps_.push_back(step);
  }

  // Keeps the steps of the last batch and notes the others.
  void settle(const std::string& file, std::vector<std::string>& notes) {
    if (runs_ > 1)
      notes.push_back(
          fmt::format("{}: {} runs; the last is taken, from line {} on, without the {} steps before it", file,
                      runs_, steps_.front().line, earlier_));
    const std::int64_t batch = steps_.back().batch;
    const std::size_t others =
        std::erase_if(steps_, [&](const LoggedStep& s) { return s.batch != batch && s.batch > 0; });
    if (others > 0)
      notes.push_back(fmt::format("{}: {} steps of another global batch than the last, {}, are left out",
                                  file, others, batch));
  }

 private:
  std::vector<LoggedStep> steps_;
  std::size_t runs_ = 1, earlier_ = 0;
};

std::int64_t count_behind(std::string_view line, std::string_view label) {
  return static_cast<std::int64_t>(number_behind(line, label).value_or(0));
}

}  // namespace

TrainingLog read_training_log(std::string_view text, const std::string& file) {
  TrainingLog log;
  LoggedSteps megatron, torchtitan;
  JobFile dump, next;  // arguments of the steps read, and of the following ones
  bool inside = false;
  long number = 0;
  for (const std::string_view raw : split(text, '\n')) {
    ++number;
    const std::string line = raw.find('\x1b') == std::string_view::npos ? std::string(raw) : uncoloured(raw);
    if (line.find("end of arguments") != std::string::npos) {
      inside = false;
    } else if (line.find("--- arguments ---") != std::string::npos) {
      inside = next.settings.empty();  // every rank may print them
    } else if (inside) {
      read_argument(line, {file, number}, next);
    } else if (const auto ms = number_behind(line, "elapsed time per iteration (ms):")) {
      megatron.add(
          {*ms * 1e-3, count_behind(line, "iteration"), count_behind(line, "global batch size:"), number});
      if (!next.settings.empty()) dump = std::exchange(next, {});
    } else if (line.find("step:") != std::string::npos) {
      if (const auto tps = number_behind(line, "tps:"))
        torchtitan.add({*tps, count_behind(line, "step:"), 0, number});
    }
  }
  if (megatron.empty() && torchtitan.empty())
    throw InputError(SourcePlace{file}, "no steps",
                     "lines of Megatron (\"elapsed time per iteration (ms): ...\") or torchtitan (\"step: "
                     "... tps: ...\")");
  if (!megatron.empty() && !torchtitan.empty())
    throw InputError(SourcePlace{file}, "steps of Megatron and of torchtitan", "the log of one job");
  LoggedSteps& steps = megatron.empty() ? torchtitan : megatron;
  steps.settle(file, log.notes);
  for (const LoggedStep& step : steps.steps())
    (megatron.empty() ? log.tokens_per_s : log.step_s).push_back(step.value);
  log.global_batch = steps.steps().back().batch;
  log.batch_line = steps.steps().back().line;
  if (!dump.settings.empty()) {
    dump.file = file;
    dump.complete = true;
    for (const Setting& s : dump.settings)
      if (s.name == "world_size")
        if (const auto n = parse_int(s.values.front()); n && *n > 0 && *n < (1 << 24)) dump.gpus = *n;
    // Megatron fills these from the decoder's.
    std::erase_if(dump.settings, [](const Setting& s) {
      return s.name == "encoder_num_layers" || s.name == "encoder_seq_length";
    });
    log.arguments = std::move(dump);
  }
  return log;
}

std::vector<double> step_seconds(const TrainingLog& log, const models::Scenario& s) {
  if (!log.step_s.empty()) return log.step_s;
  const models::Parallel& p = s.parallel;
  const auto tokens = static_cast<double>(p.micro_batch * p.microbatches * p.seq);
  std::vector<double> steps;
  for (const double tps : log.tokens_per_s)
    steps.push_back(tokens / (tps * static_cast<double>(p.tp * p.cp * p.pp)));
  return steps;
}

std::vector<double> steady(const std::vector<double>& steps) {
  const std::size_t size = steps.size();
  const std::size_t skipped =
      size < 4 ? std::min<std::size_t>(1, size - 1) : std::max<std::size_t>(2, size / 10);
  return {steps.begin() + static_cast<std::ptrdiff_t>(skipped), steps.end()};
}

}  // namespace moesim::tools
