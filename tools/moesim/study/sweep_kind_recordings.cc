// A sweep over recordings: a row per replay, columns named like the JSON paths of `moesim replay`.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/files_read.h"
#include "base/input_error.h"
#include "base/text.h"
#include "tools/moesim/questions/replay_question.h"
#include "tools/moesim/study/sweep_kind.h"
#include "traces/cmd_reader.h"

namespace moesim::tools {

namespace {

constexpr const char* kRecording = "recording";

// Recordings by folder, read once while in use; thread-safe.
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

// A row: a replay, and the price of its tokens.
struct Replayed {
  const replay::RecordingForecast& answer;
  std::optional<double> per_million;
};

std::vector<FoundColumn<Replayed>> recording_columns(bool priced) {
  using enum CellStyle;
  const auto three = Digits::fixed(3);
  std::vector<FoundColumn<Replayed>> all{
      {{"topology", true}, [](const Replayed& r) { return r.answer.iteration.topology.str(); }},
      {{"machine", true}, [](const Replayed& r) { return r.answer.cluster.name; }},
      {{"microbatches"}, [](const Replayed& r) { return std::int64_t{r.answer.microbatches}; }},
      {{"iteration_us.value", false, three, "iteration", kTime, "{} an iteration"},
       [](const Replayed& r) { return r.answer.time_us.value; }},
      {{"iteration_us.low", false, three}, [](const Replayed& r) { return r.answer.time_us.low; }},
      {{"iteration_us.high", false, three}, [](const Replayed& r) { return r.answer.time_us.high; }},
      {{"measured_iteration_us", false, three},
       [](const Replayed& r) { return optional_cell(r.answer.measured_us); }},
      {{"tokens_per_s", false, three},
       [](const Replayed& r) { return r.answer.tokens > 0 ? Cell(tokens_per_s(r.answer)) : Cell(); }},
      {{"tokens_per_s_per_gpu", false, three, "tokens/s/GPU", kWhole, "{} tokens/s/GPU"},
       [](const Replayed& r) {
         return r.answer.tokens > 0 ? Cell(r.answer.tokens_per_s_per_gpu()) : Cell();
       }}};
  if (priced)
    all.push_back({{"cost_per_million_tokens", false, Digits::fixed(9), "per 10^6 tokens", kFour,
                    "{} a million tokens"},
                   [](const Replayed& r) { return optional_cell(r.per_million); }});
  const auto add_mean = [&](SweepColumn column, auto part) {
    column.digits = three;
    all.push_back({std::move(column), [part](const Replayed& r) {
                     const auto ranks = r.answer.iteration.timeline.ranks();
                     double us = 0;
                     for (const sim::RankSummary& rank : ranks) us += (rank.*part).us();
                     return us / static_cast<double>(ranks.size());
                   }});
  };
  add_mean({"busy_us.mean"}, &sim::RankSummary::busy);
  add_mean({"exposed_comm_us.mean", false, three, "transfer", kTime}, &sim::RankSummary::exposed_comm);
  add_mean({"straggler_wait_us.mean", false, three, "wait", kTime}, &sim::RankSummary::straggler_wait);
  add_mean({"bubble_us.mean"}, &sim::RankSummary::bubble);
  add_mean({"host_us.mean"}, &sim::RankSummary::host);
  all.push_back({{"overload.max", false, Digits::fixed(6)}, [](const Replayed& r) {
                   return r.answer.overload ? Cell(r.answer.overload->stages.back().max) : Cell();
                 }});
  all.push_back({{"synthetic"}, [](const Replayed& r) { return r.answer.synthetic; }});
  all.push_back({{"recorded_on.gpu", true}, [](const Replayed& r) { return r.answer.recorded_on.gpu; }});
  all.push_back({{"notes", true}, [](const Replayed& r) { return join(r.answer.notes, "; "); }});
  return all;
}

class RecordingAsker : public SweepAsker {
 public:
  RecordingAsker(const models::Points& points, const std::vector<FoundColumn<Replayed>>& columns,
                 const ReplayQuestion& question, std::uint64_t seed, const models::PriceTable& prices,
                 RecordingStore& recordings)
      : points_(points),
        columns_(columns),
        question_(question),
        seed_(seed),
        prices_(prices),
        recordings_(recordings) {}

  std::vector<Row> ask(const std::vector<PathValue>& values) override {
    ReplayQuestion question = question_;
    std::string folder;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (const std::string& path = points_.paths()[i].path; path == kRecording)
        folder = values[i].text;
      else
        question.say(path, values[i].text);
    if (!last_ || folder != last_folder_) {
      last_ = recordings_.get(folder);
      last_folder_ = folder;
    }
    const replay::RecordingForecast answer = ask_recording(*last_, question.question(seed_));
    return {{cells_of(columns_, {answer, cost_per_million_tokens(answer, answer.cluster, prices_)})}};
  }

 private:
  const models::Points& points_;
  const std::vector<FoundColumn<Replayed>>& columns_;
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
  std::vector<models::StudyAxis> own_axes() const override;

  void prepare(const models::Points& points, RowFormat format, const CommonOptions& common,
               const std::function<void(const std::string&)>& say) override;
  void read_inputs(const models::Points& points) const override;
  nlohmann::ordered_json definition() const override {
    nlohmann::ordered_json said = nlohmann::ordered_json::object();
    for (const auto& [option, value] : question_.said()) said[option] = value;
    return {{"recordings", folders_}, {"replay", std::move(said)}};
  }
  void describe(nlohmann::ordered_json&) const override {}

  const SweepTable& table() const override { return *table_; }
  SummaryShape summary() const override;
  std::uint64_t most_in_block() const override { return 1024; }
  std::unique_ptr<SweepAsker> asker(const models::Points& points) const override;

 private:
  std::vector<std::string> folders_;
  ReplayQuestion question_{0};
  std::uint64_t seed_ = 1;
  models::PriceTable prices_;
  std::vector<FoundColumn<Replayed>> columns_;
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

std::vector<models::StudyAxis> RecordingSweep::own_axes() const {
  if (folders_.empty()) return {};
  models::StudyAxis range;
  range.path = axis(kRecording);
  for (const std::string& folder : folders_) {
    if (!path_exists(folder))
      throw InputError(SourcePlace{folder}, "no such folder", "one with the rank files of a recording");
    range.values.push_back({folder, folder, 0});
  }
  return {range};
}

void RecordingSweep::prepare(const models::Points& points, RowFormat format, const CommonOptions& common,
                             const std::function<void(const std::string&)>&) {
  const auto& paths = points.paths();
  if (std::none_of(paths.begin(), paths.end(), [](const auto& path) { return path.path == kRecording; }))
    throw InputError("sweep replay: found no recording, expected folders, or an axis recording");
  for (const auto& [option, value] : question_.said())
    for (const ScenarioPath& path : paths)
      if (path.path == option)
        throw InputError(
            fmt::format("--{}: found beside an axis of that name, expected one of them", option));
  seed_ = common.seed;
  question_.question(seed_);  // refuses what cannot be asked at all
  prices_ = question_.prices();
  columns_ = recording_columns(prices_.given());
  table_.emplace(format, paths, columns_of(columns_));
}

void RecordingSweep::read_inputs(const models::Points& points) const {
  question_.read_inputs();
  points.for_each_value([&](const ScenarioPath& path, const PathValue& value) {
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
    } catch (const InputError&) {  // its rows will report the error
    }
  });
}

std::unique_ptr<SweepAsker> RecordingSweep::asker(const models::Points& points) const {
  return std::make_unique<RecordingAsker>(points, columns_, question_, seed_, prices_, recordings_);
}

// Ranks by the price of a million tokens where there are prices, else by tokens per second and GPU, so that
// different batches, sequences and sizes of the job compare.
SummaryShape RecordingSweep::summary() const {
  const bool priced = prices_.given();
  SummaryShape shape;
  shape.many = "replays";
  shape.answered = "iteration_us.value";
  shape.score = priced ? "cost_per_million_tokens" : "tokens_per_s_per_gpu";
  shape.smaller = priced;
  shape.score_words = priced ? "the cost of a token" : "tokens/s/GPU";
  shape.notes = "notes";
  shape.shown = {"iteration_us.value", "straggler_wait_us.mean", "exposed_comm_us.mean",
                 "tokens_per_s_per_gpu"};
  if (priced) shape.shown.emplace_back("cost_per_million_tokens");
  return shape;
}

}  // namespace

std::unique_ptr<SweepKind> sweep_of_recordings() { return std::make_unique<RecordingSweep>(); }

}  // namespace moesim::tools
