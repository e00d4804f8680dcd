// A sweep over recordings: a row per replay, columns named like the JSON paths of `moesim replay`.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/files_read.h"
#include "base/input_error.h"
#include "base/text.h"
#include "tools/moesim/questions/replay_question.h"
#include "tools/moesim/sweeps/sweep_kind.h"
#include "traces/rank_file.h"

namespace moesim::tools {

namespace {

constexpr const char* kRecording = "recording";

// Recordings by folder, read once while somebody holds them; for several threads.
class RecordingStore {
 public:
  std::shared_ptr<const Recordings> get(const std::string& folder) {
    Slot& slot = slot_of(folder);
    const std::scoped_lock lock(slot.mutex);
    if (auto held = slot.held.lock()) return held;
    auto read = std::make_shared<Recordings>();
    read->add(folder);
    slot.held = read;
    return read;
  }

 private:
  struct Slot {
    std::mutex mutex;
    std::weak_ptr<const Recordings> held;
  };
  Slot& slot_of(const std::string& folder) {
    const std::scoped_lock lock(mutex_);
    return slots_[folder];
  }

  std::mutex mutex_;
  std::map<std::string, Slot> slots_;
};

void append(SweepTable::Row& row, const replay::RecordingForecast& a, const models::PriceTable& prices) {
  row.text(a.iteration.topology.str());
  row.text(a.cluster.name);
  row.plain("{}", a.microbatches);
  for (const double us : {a.iteration_us.value, a.iteration_us.low, a.iteration_us.high})
    row.plain("{:.3f}", us);
  const auto known = [&](const std::optional<double>& value, int digits) {
    if (value)
      row.plain("{:.{}f}", *value, digits);
    else
      row.none();
  };
  known(a.measured_us, 3);
  const auto ranks = a.iteration.timeline.ranks();
  const auto count = static_cast<double>(ranks.size());
  const auto told = throughput(a, prices);
  known(told ? std::optional(told->tokens_per_s) : std::nullopt, 3);
  known(told ? std::optional(told->tokens_per_s / count) : std::nullopt, 3);
  if (prices.given()) known(told ? told->per_million : std::nullopt, 9);
  for (const auto part :
       {&sim::RankSummary::busy, &sim::RankSummary::exposed_comm, &sim::RankSummary::straggler_wait,
        &sim::RankSummary::bubble, &sim::RankSummary::host}) {
    double us = 0;
    for (const sim::RankSummary& rank : ranks) us += (rank.*part).us();
    row.plain("{:.3f}", us / count);
  }
  known(a.overload ? std::optional(a.overload->stages.back().max) : std::nullopt, 6);
  row.plain("{}", a.synthetic);
  row.text(a.recorded_on.gpu);
  row.text(join(a.notes, "; "));
}

class RecordingAsker : public SweepAsker {
 public:
  RecordingAsker(const SweepPlan& plan, const SweepTable& table, const ReplayQuestion& question,
                 std::uint64_t seed, const models::PriceTable& prices, RecordingStore& recordings)
      : plan_(plan),
        table_(table),
        question_(question),
        seed_(seed),
        prices_(prices),
        recordings_(recordings) {}

  void ask(std::uint64_t index, const std::vector<PathValue>& values, std::string& rows) override {
    ReplayQuestion question = question_;
    std::string folder;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (const std::string& path = plan_.paths()[i].path; path == kRecording)
        folder = values[i].text;
      else
        question.say(path, values[i].text);
    if (!last_ || folder != last_folder_) {
      last_ = recordings_.get(folder);
      last_folder_ = folder;
    }
    const replay::RecordingForecast answer = ask_recording(*last_, question.question(seed_));
    SweepTable::Row row = table_.row(rows, index, values);
    append(row, answer, prices_);
    row.skip_to_error();
    row.none();
    row.end();
  }

 private:
  const SweepPlan& plan_;
  const SweepTable& table_;
  const ReplayQuestion& question_;
  std::uint64_t seed_;
  const models::PriceTable& prices_;
  RecordingStore& recordings_;
  std::shared_ptr<const Recordings> last_;  // the folders change slowest
  std::string last_folder_;
};

class RecordingSweep : public SweepKind {
 public:
  void declare(CLI::App& app) override {
    app.add_option(kRecording, folders_, "Folders of rank files, each a recording: the first axis")
        ->type_name("DIR");
    question_.declare(app);
  }
  ScenarioPath axis(std::string_view text) const override;
  std::vector<SweepRange> own_axes() const override;

  void prepare(const SweepPlan& plan, RowFormat format, const CommonOptions& common,
               const std::function<void(const std::string&)>& say) override;
  void read_inputs(const SweepPlan& plan) const override;
  nlohmann::ordered_json definition() const override {
    nlohmann::ordered_json said = nlohmann::ordered_json::object();
    for (const auto& [option, value] : question_.said()) said[option] = value;
    return {{"recordings", folders_}, {"replay", std::move(said)}};
  }
  void describe(nlohmann::ordered_json&) const override {}

  const SweepTable& table() const override { return *table_; }
  SummaryShape summary() const override;
  std::uint64_t most_in_block() const override { return 1024; }
  std::unique_ptr<SweepAsker> asker(const SweepPlan& plan) const override;

 private:
  std::vector<std::string> folders_;
  ReplayQuestion question_{0};
  std::uint64_t seed_ = 1;
  models::PriceTable prices_;
  std::optional<SweepTable> table_;
  mutable RecordingStore recordings_;
};

ScenarioPath RecordingSweep::axis(std::string_view text) const {
  std::vector<std::string> known = ReplayQuestion::text_names();
  known.emplace_back(kRecording);
  if (std::find(known.begin(), known.end(), text) != known.end())
    return {std::string(text), models::FieldType::kText, ""};
  const std::vector<std::string> numbers = ReplayQuestion::number_names();
  if (std::find(numbers.begin(), numbers.end(), text) != numbers.end())
    return {std::string(text), models::FieldType::kInteger, ""};
  known.insert(known.end(), numbers.begin(), numbers.end());
  throw InputError(fmt::format("sweep replay: found the axis {}, expected one of {}{}", in_quotes(text),
                               join(known, ", "), did_you_mean(text, known)));
}

std::vector<SweepRange> RecordingSweep::own_axes() const {
  if (folders_.empty()) return {};
  SweepRange range;
  range.path = axis(kRecording);
  for (const std::string& folder : folders_) {
    if (!path_exists(folder))
      throw InputError(SourcePlace{folder}, "no such folder", "one with the rank files of a recording");
    range.values.push_back({folder, folder, 0});
  }
  return {range};
}

void RecordingSweep::prepare(const SweepPlan& plan, RowFormat format, const CommonOptions& common,
                             const std::function<void(const std::string&)>&) {
  const auto& paths = plan.paths();
  if (std::none_of(paths.begin(), paths.end(), [](const auto& path) { return path.path == kRecording; }))
    throw InputError("sweep replay: found no recording, expected folders, or an axis recording");
  for (const auto& [option, value] : question_.said())
    for (const ScenarioPath& path : paths)
      if (path.path == option)
        throw InputError(
            fmt::format("--{}: found beside an axis of that name, expected one of them", option));
  seed_ = common.seed;
  question_.question(seed_);  // says what cannot be asked at all
  prices_ = question_.prices();
  std::vector<std::string> found{"topology",
                                 "machine",
                                 "microbatches",
                                 "iteration_us.value",
                                 "iteration_us.low",
                                 "iteration_us.high",
                                 "measured_iteration_us",
                                 "tokens_per_s",
                                 "tokens_per_s_per_gpu"};
  if (prices_.given()) found.emplace_back("cost_per_million_tokens");
  found.insert(found.end(),
               {"busy_us.mean", "exposed_comm_us.mean", "straggler_wait_us.mean", "bubble_us.mean",
                "host_us.mean", "overload.max", "synthetic", "recorded_on.gpu", "notes"});
  table_.emplace(format, paths, std::move(found));
}

void RecordingSweep::read_inputs(const SweepPlan& plan) const {
  question_.read_inputs();
  plan.for_each_value([&](const ScenarioPath& path, const PathValue& value) {
    try {
      if (path.path != kRecording) {
        ReplayQuestion changed(0);
        changed.say(path.path, value.text);
        changed.read_inputs();
      } else if (is_folder(value.text)) {
        for (const auto& entry : entries_of(value.text))
          if (is_file(entry) && traces::parse_rank_file_name(entry)) FilesRead::note_file(entry);
      } else {
        FilesRead::note_file(value.text);
      }
    } catch (const InputError&) {  // its rows will say so
    }
  });
}

std::unique_ptr<SweepAsker> RecordingSweep::asker(const SweepPlan& plan) const {
  return std::make_unique<RecordingAsker>(plan, *table_, question_, seed_, prices_, recordings_);
}

// By what a million tokens cost where there are prices, else by tokens per second and GPU, so that other
// batches, sequences and sizes of the job compare.
SummaryShape RecordingSweep::summary() const {
  using enum CellStyle;
  const bool priced = prices_.given();
  SummaryShape shape;
  shape.many = "replays";
  shape.answered = "iteration_us.value";
  shape.score = priced ? "cost_per_million_tokens" : "tokens_per_s_per_gpu";
  shape.smaller = priced;
  shape.score_words = priced ? "the cost of a token" : "tokens/s/GPU";
  shape.notes = "notes";
  shape.told = {{"iteration_us.value", "{} an iteration", kTime},
                {"tokens_per_s_per_gpu", "{} tokens/s/GPU", kWhole}};
  if (priced) shape.told.push_back({"cost_per_million_tokens", "{} a million tokens", kFour});
  shape.shown = {{"iteration_us.value", "iteration", kTime},
                 {"straggler_wait_us.mean", "wait", kTime},
                 {"exposed_comm_us.mean", "transfer", kTime},
                 {"tokens_per_s_per_gpu", "tokens/s/GPU", kWhole}};
  if (priced) shape.shown.push_back({"cost_per_million_tokens", "per 10^6 tokens", kFour});
  return shape;
}

}  // namespace

std::unique_ptr<SweepKind> sweep_of_recordings() { return std::make_unique<RecordingSweep>(); }

}  // namespace moesim::tools
