#include "tools/moesim/read/training_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "tools/moesim/read/event_file.h"

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
  std::string_view rest = line.substr(at + label.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t:="), rest.size()));
  std::string digits;
  for (const char c : rest) {
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

// A way in which a framework prints a step.
struct Style {
  std::string_view framework, marker, value,
      step;  // words of its lines; before the value, before its number or ""
  TrainingLog::Unit unit;
  double scale;
};

using Unit = TrainingLog::Unit;
constexpr Style kStyles[] = {
    {"Megatron", "elapsed time per iteration (ms):", "elapsed time per iteration (ms):", "iteration",
     Unit::kSeconds, 1e-3},
    {"Megatron-Bridge", "Step Time :", "Step Time :", "", Unit::kSeconds, 1},
    {"NeMo", "train_step_timing in s", "train_step_timing in s", "global_step", Unit::kSeconds, 1},
    {"MaxText", "completed step:", "seconds:", "completed step:", Unit::kSeconds, 1},
    {"torchtitan", "tps:", "tps:", "step:", Unit::kTokensPerSecondAndGpu, 1},
    {"DeepSpeed", "CurrSamplesPerSec=", "CurrSamplesPerSec=", "global_step=", Unit::kSamplesPerSecond, 1},
};
constexpr std::size_t kTorchtitan = 4;
constexpr std::size_t kTable = std::size(kStyles);  // the style of rows with named values

const Style* style_of(std::string_view line) {
  const auto* const at = std::ranges::find_if(kStyles, [&](const Style& style) {
    return line.find(style.marker) != std::string_view::npos &&
           line.find(style.step) != std::string_view::npos;
  });
  return at == std::end(kStyles) ? nullptr : at;
}

// Names of values in metrics' files, the first that a file has.
struct Metric {
  std::string_view part;  // of the name, in lower case
  Unit unit;
  double scale;
};
constexpr Metric kMetrics[] = {{"iteration-time", Unit::kSeconds, 1},
                               {"train_step_timing", Unit::kSeconds, 1},
                               {"step_time", Unit::kSeconds, 1},
                               {"end_to_end(s)", Unit::kSeconds, 1},
                               {"tps_per_gpu", Unit::kTokensPerSecondAndGpu, 1},
                               {"throughput(tps)", Unit::kTokensPerSecondAndGpu, 1},
                               {"tokens_per_sec_per_gpu", Unit::kTokensPerSecondAndGpu, 1}};

const Metric* metric_of(std::string_view name) {
  const std::string text = lower(name);
  const auto* const at = std::ranges::find_if(
      kMetrics, [&](const Metric& one) { return text.find(one.part) != std::string::npos; });
  return text.ends_with("__min") || text.ends_with("__max") || at == std::end(kMetrics) ? nullptr : at;
}

// Reads a CSV of W&B, whose first column is the step, and files with a JSON object a line.
class MetricsFile {
 public:
  // Returns a step of a line; nullopt for lines that have none.
  std::optional<LoggedStep> step(std::string_view line, long number) {
    line = trim(line);
    if (line.starts_with('{')) return of_object(line, number);
    if (number == 1) {
      heads_ = split(line, ',');
      for (std::size_t i = 1; i < heads_.size() && !metric_; ++i)
        if ((metric_ = metric_of(unquoted(heads_[i])))) column_ = i;
      return std::nullopt;
    }
    if (!metric_ || column_ == 0) return std::nullopt;
    const auto cells = split(line, ',');
    if (cells.size() != heads_.size()) return std::nullopt;
    return made(parse_number(unquoted(cells[column_])), parse_number(unquoted(cells.front())), number);
  }
  const Metric* metric() const { return metric_; }

 private:
  static std::string_view unquoted(std::string_view text) {
    text = trim(text);
    return text.size() > 1 && text.front() == '"' ? text.substr(1, text.size() - 2) : text;
  }
  std::optional<LoggedStep> made(std::optional<double> value, std::optional<double> step, long number) const {
    if (!value || !(*value > 0) || *value > 1e12) return std::nullopt;
    return LoggedStep{*value * metric_->scale, static_cast<std::int64_t>(step.value_or(0)), 0, number};
  }
  // Finds the values without reading the whole object: a history has thousands of keys a line.
  std::optional<LoggedStep> of_object(std::string_view line, long number) {
    for (const Metric& one : kMetrics) {
      if (metric_ && metric_ != &one) continue;
      const std::size_t at = lower(line).find(one.part);
      if (at == std::string_view::npos) continue;
      const std::size_t colon = line.find(':', at);
      if (colon == std::string_view::npos) continue;
      metric_ = &one;
      std::optional<double> step;
      for (const std::string_view key : {"\"step\":", "\"_step\":", "\"global_step\":"})
        if (!step) step = number_behind(line, key);
      return made(number_behind(line.substr(colon), ":"), step, number);
    }
    return std::nullopt;
  }

  std::vector<std::string_view> heads_;
  std::size_t column_ = 0;
  const Metric* metric_ = nullptr;
};

}  // namespace

bool has_steps(std::string_view text) {
  if (is_event_file(text)) return true;
  MetricsFile metrics;
  long number = 0;
  for (const std::string_view line : split(text, '\n'))
    if (style_of(line) || metrics.step(line, ++number)) return true;
  return false;
}

TrainingLog read_training_log(std::string_view text, const std::string& file) {
  if (is_event_file(text)) {
    const EventLines lines = lines_of_events(text, file);
    TrainingLog log = read_training_log(lines.text, file);
    if (lines.cut) log.notes.push_back(file + ": ends inside a record, as the file of a running job does");
    return log;
  }
  TrainingLog log;
  std::array<LoggedSteps, kTable + 1> found;
  MetricsFile metrics;
  JobFile dump, next;  // arguments of the steps read, and of the following ones
  bool inside = false;
  long number = 0, unread = 0;
  for (const std::string_view raw : split(text, '\n')) {
    ++number;
    const std::string line = raw.find('\x1b') == std::string_view::npos ? std::string(raw) : uncoloured(raw);
    if (line.find("end of arguments") != std::string::npos) {
      inside = false;
    } else if (line.find("--- arguments ---") != std::string::npos) {
      inside = next.settings.empty();  // every rank may print them
    } else if (inside) {
      read_argument(line, {file, number}, next);
    } else if (const Style* style = style_of(line)) {
      const auto value = number_behind(line, style->value);
      if (!value) {
        ++unread;
        continue;
      }
      found[static_cast<std::size_t>(style - kStyles)].add(
          {*value * style->scale, style->step.empty() ? 0 : count_behind(line, style->step),
           count_behind(line, "global batch size:"), number});
      if (!next.settings.empty()) dump = std::exchange(next, {});
    } else if (const auto step = metrics.step(line, number)) {
      found[kTable].add(*step);
    }
  }
  const auto empty = [](const LoggedSteps& steps) { return steps.empty(); };
  const auto at = std::ranges::find_if_not(found, empty);
  if (at == found.end())
    throw InputError(
        SourcePlace{file}, "no steps",
        "lines of Megatron (\"elapsed time per iteration (ms): ...\"), torchtitan (\"step: "
        "... tps: ...\"), Megatron-Bridge, NeMo, MaxText or DeepSpeed, or metrics as JSON lines, CSV or TensorBoard's events");
  // Megatron's trainers print lines of their own beside Megatron's; torchtitan prints none of these.
  const LoggedSteps& titan = found[kTorchtitan];
  if (&*at != &titan && !titan.empty())
    throw InputError(SourcePlace{file}, "steps of Megatron and of torchtitan", "the log of one job");
  const auto style = static_cast<std::size_t>(at - found.begin());
  if (style < kTable)
    log.unit = kStyles[style].unit;
  else if (const auto* metric = metrics.metric())
    log.unit = metric->unit;
  at->settle(file, log.notes);
  if (unread > 0)
    log.notes.push_back(fmt::format("{}: left out {} steps whose time is no number above 0", file, unread));
  for (const LoggedStep& step : at->steps()) log.steps.push_back(step.value);
  log.global_batch = at->steps().back().batch;
  log.batch_place = {file, at->steps().back().line};
  if (!dump.settings.empty()) {
    dump.file = file;
    dump.complete = true;
    for (const Setting& s : dump.settings)
      if (s.name == "world_size")
        if (const auto n = parse_int(s.values.front()); n && *n > 0 && *n < (1 << 24)) dump.gpus.count = *n;
    // Megatron fills these from the decoder's.
    std::erase_if(dump.settings, [](const Setting& s) {
      return s.name == "encoder_num_layers" || s.name == "encoder_seq_length";
    });
    log.arguments = std::move(dump);
  }
  return log;
}

double step_work(TrainingLog::Unit unit, const models::Scenario& s) {
  const models::Parallel& p = s.parallel;
  const auto samples = static_cast<double>(p.micro_batch * p.microbatches);  // of a replica
  switch (unit) {
    case TrainingLog::Unit::kSeconds:
      break;
    case TrainingLog::Unit::kSamplesPerSecond:
      return samples * static_cast<double>(p.dp);
    case TrainingLog::Unit::kTokensPerSecondAndGpu:
      return samples * static_cast<double>(p.seq) / static_cast<double>(p.tp * p.cp * p.pp);
  }
  return 1;
}

std::vector<double> step_seconds(const TrainingLog& log, const models::Scenario& s) {
  const std::int64_t batch = s.parallel.micro_batch * s.parallel.microbatches * s.parallel.dp;
  if (log.global_batch > 0 && batch != log.global_batch)
    throw InputError(log.batch_place, fmt::format("a global batch of {} sequences", log.global_batch),
                     fmt::format("the job's {}, or --global-batch {}", batch, log.global_batch));
  if (log.unit == TrainingLog::Unit::kSeconds) return log.steps;
  const double work = step_work(log.unit, s);
  std::vector<double> steps;
  for (const double rate : log.steps) steps.push_back(work / rate);
  return steps;
}

std::vector<double> steady(const std::vector<double>& steps) {
  const std::size_t size = steps.size();
  const std::size_t skipped =
      size < 4 ? std::min<std::size_t>(1, size - 1) : std::max<std::size_t>(2, size / 10);
  return {steps.begin() + static_cast<std::ptrdiff_t>(skipped), steps.end()};
}

}  // namespace moesim::tools
