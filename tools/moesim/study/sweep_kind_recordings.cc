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
#include "tools/moesim/questions/recordings.h"
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

using replay::RecordingForecast;

std::vector<FoundColumn<RecordingForecast>> recording_columns(bool priced) {
  using enum CellStyle;
  const auto three = Digits::fixed(3);
  std::vector<FoundColumn<RecordingForecast>> all{
      {{"topology", true}, [](const RecordingForecast& r) { return r.iteration.topology.str(); }},
      {{"machine", true}, [](const RecordingForecast& r) { return r.cluster.name; }},
      {{"microbatches"}, [](const RecordingForecast& r) { return std::int64_t{r.microbatches}; }},
      {{"iteration_us.value", false, three, "iteration", kTime, "{} an iteration"},
       [](const RecordingForecast& r) { return r.time_us.value; }},
      {{"iteration_us.low", false, three}, [](const RecordingForecast& r) { return r.time_us.low; }},
      {{"iteration_us.high", false, three}, [](const RecordingForecast& r) { return r.time_us.high; }},
      {{"measured_iteration_us", false, three},
       [](const RecordingForecast& r) { return optional_cell(r.measured_us); }},
      {{"tokens_per_s", false, three},
       [](const RecordingForecast& r) { return r.tokens > 0 ? Cell(tokens_per_s(r)) : Cell(); }},
      {{"tokens_per_s_per_gpu", false, three, "tokens/s/GPU", kWhole, "{} tokens/s/GPU"},
       [](const RecordingForecast& r) { return r.tokens > 0 ? Cell(r.tokens_per_s_per_gpu()) : Cell(); }}};
  if (priced)
    all.push_back({{"cost_per_million_tokens", false, Digits::fixed(9), "per 10^6 tokens", kFour,
                    "{} a million tokens"},
                   [](const RecordingForecast& r) { return optional_cell(cost_per_million_tokens(r)); }});
  const auto add_mean = [&](SweepColumn column, auto part) {
    column.digits = three;
    all.push_back({std::move(column), [part](const RecordingForecast& r) {
                     const auto ranks = r.iteration.timeline.ranks();
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
  all.push_back({{"overload.max", false, Digits::fixed(6)}, [](const RecordingForecast& r) {
                   return r.overload ? Cell(r.overload->stages.back().max) : Cell();
                 }});
  all.push_back({{"synthetic"}, [](const RecordingForecast& r) { return r.synthetic; }});
  all.push_back({{"recorded_on.gpu", true}, [](const RecordingForecast& r) { return r.recorded_on.gpu; }});
  all.push_back({{"notes", true}, [](const RecordingForecast& r) { return join(r.notes, "; "); }});
  return all;
}

class RecordingAsker : public SweepAsker {
 public:
  RecordingAsker(const models::Points& points, const std::vector<FoundColumn<RecordingForecast>>& columns,
                 const RecordingOptions& options, const CommonOptions& common, RecordingStore& recordings)
      : points_(points), columns_(columns), options_(options), common_(common), recordings_(recordings) {}

  std::vector<Row> ask(const std::vector<PathValue>& values) override {
    RecordingOptions options = options_;
    std::string folder;
    std::vector<ScenarioPath> paths;
    std::vector<PathValue> settings;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (const std::string& name = points_.paths()[i].path; name == kRecording) {
        folder = values[i].text;
      } else if (is_recording_option(name) || values[i].text == kAsRecorded) {
        options.say(name, values[i].text);
      } else {
        paths.push_back(find_path(name));
        settings.push_back(values[i]);
      }
    if (!last_ || folder != last_folder_) {
      last_ = recordings_.get(folder);
      last_folder_ = folder;
      last_settings_ = question_of(*last_);
    }
    Question question = options.over(last_settings_, common_);
    set_all(question, paths, settings, Origin::said("--grid"));
    return {{cells_of(columns_, ask_recording(*last_, options.question(*last_, std::move(question))))}};
  }

 private:
  const models::Points& points_;
  const std::vector<FoundColumn<RecordingForecast>>& columns_;
  const RecordingOptions& options_;
  const CommonOptions& common_;
  RecordingStore& recordings_;
  std::shared_ptr<const Recordings> last_;  // the folders change slowest
  std::string last_folder_;
  Question last_settings_;
};

class RecordingSweep : public SweepKind {
 public:
  void declare(CLI::App& app) override {
    app.add_option(kRecording, folders_, "Folders of rank files, each a recording: the first axis")
        ->type_name("DIR");
    options_.declare(app);
  }
  ScenarioPath axis(std::string_view text) const override;
  std::vector<models::StudyAxis> own_axes() const override;

  void prepare(const models::Points& points, RowFormat format, const CommonOptions& common,
               const std::function<void(const std::string&)>& say) override;
  void read_inputs(const models::Points& points) const override;
  nlohmann::ordered_json definition() const override {
    nlohmann::ordered_json said = nlohmann::ordered_json::object();
    for (const auto& [option, value] : options_.said()) said[option] = value;
    return {{"recordings", folders_}, {"replay", std::move(said)}};
  }
  void describe(nlohmann::ordered_json&) const override {}

  const SweepTable& table() const override { return *table_; }
  SummaryShape summary() const override;
  std::uint64_t most_in_block() const override { return 1024; }
  std::unique_ptr<SweepAsker> asker(const models::Points& points) const override;

 private:
  std::vector<std::string> folders_;
  RecordingOptions options_;
  CommonOptions common_;
  bool priced_ = false;
  std::vector<FoundColumn<RecordingForecast>> columns_;
  std::optional<SweepTable> table_;
  mutable RecordingStore recordings_;
};

ScenarioPath RecordingSweep::axis(std::string_view text) const {
  return text == kRecording ? ScenarioPath{kRecording, models::FieldType::kText, ""} : recording_axis(text);
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
  for (const auto& [option, value] : options_.said()) {
    priced_ = priced_ || option.starts_with("prices");
    for (const ScenarioPath& path : paths)
      if (path.path == option || option.ends_with("." + path.path))
        throw InputError(
            fmt::format("--{}: found beside an axis of that name, expected one of them", path.path));
  }
  common_ = common;
  options_.read_inputs(common);  // refuses what cannot be asked at all
  columns_ = recording_columns(priced_);
  table_.emplace(format, paths, columns_of(columns_));
}

void RecordingSweep::read_inputs(const models::Points& points) const {
  options_.read_inputs(common_);
  points.for_each_value([&](const ScenarioPath& path, const PathValue& value) {
    try {
      if (path.path != kRecording) {
        RecordingOptions changed;
        changed.say(is_recording_option(path.path) ? path.path : find_path(path.path).path, value.text);
        changed.read_inputs(common_);
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
  return std::make_unique<RecordingAsker>(points, columns_, options_, common_, recordings_);
}

// Ranks by the price of a million tokens where there are prices, else by tokens per second and GPU, so that
// different batches, sequences and sizes of the job compare.
SummaryShape RecordingSweep::summary() const {
  SummaryShape shape;
  shape.many = "replays";
  shape.answered = "iteration_us.value";
  shape.score = priced_ ? "cost_per_million_tokens" : "tokens_per_s_per_gpu";
  shape.smaller = priced_;
  shape.score_words = priced_ ? "the cost of a token" : "tokens/s/GPU";
  shape.notes = "notes";
  shape.shown = {"iteration_us.value", "straggler_wait_us.mean", "exposed_comm_us.mean",
                 "tokens_per_s_per_gpu"};
  if (priced_) shape.shown.emplace_back("cost_per_million_tokens");
  return shape;
}

}  // namespace

std::unique_ptr<SweepKind> sweep_of_recordings() { return std::make_unique<RecordingSweep>(); }

}  // namespace moesim::tools
