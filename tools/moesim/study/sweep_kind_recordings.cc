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
#include "tools/moesim/show/result_json.h"
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

SweepRows<RecordingForecast> rows_of(bool priced) {
  using R = RecordingForecast;
  Columns<R> all = job_columns().some({"topology", "microbatches", "iteration_us", "measured_iteration_us",
                                       "tokens_per_s", "synthetic", "recorded_on"});
  all.add({{"machine", [](const R& r) { return r.cluster.name; }},
           {"tokens_per_s_per_gpu", [](const R& r) { return where(r.tokens > 0, r.tokens_per_s_per_gpu()); }},
           {"cost_per_million_tokens", cost_per_million_tokens},
           {"overload", &R::overload},
           {"peak_memory_bytes.max",
            [](const R& r) { return r.held ? std::optional(r.held->step.max_bytes) : std::nullopt; }},
           {"fits", [](const R& r) { return r.held ? std::optional(r.held->step.fits) : std::nullopt; }},
           {"notes", [](const R& r) { return join(r.notes, "; "); }}});
  std::string shown =
      "topology,machine,microbatches,iteration_us.value,iteration_us.low,iteration_us.high,"
      "measured_iteration_us,tokens_per_s,tokens_per_s_per_gpu";
  if (priced) shown += ",cost_per_million_tokens";
  for (const RankTime& one : kRankTimes) {
    const std::string path = fmt::format("{}.mean", one.key);
    all.add({{path, [&one](const R& r) {
                double us = 0;
                const auto ranks = r.iteration.timeline.ranks();
                for (const sim::RankSummary& rank : ranks) us += (rank.*one.time).us();
                return us / static_cast<double>(ranks.size());
              }}});
    shown += "," + path;
  }
  shown += ",overload.max,peak_memory_bytes.max,fits,synthetic,recorded_on.gpu,notes";
  SweepRows<R> rows(all, shown);
  for (SweepColumn& one : rows.columns)
    one.digits = Digits::fixed(one.path.starts_with("cost") ? 9 : one.path.starts_with("overload") ? 6 : 3);
  return rows;
}

class RecordingSweep : public SweepOf<RecordingForecast> {
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
    return {{"recordings", folders_}, {"replay", said_json(options_.said())}};
  }
  void describe(nlohmann::ordered_json&) const override {}

  SummaryShape summary() const override;
  SweepAsker asker(const models::Points& points) const override;

 private:
  std::vector<std::string> folders_;
  RecordingOptions options_;
  CommonOptions common_;
  bool priced_ = false;
  std::vector<models::Cluster> machines_;  // of all rows, where an axis says them
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
  refuse_beside_axes(options_.said(), points);
  for (const auto& [option, value] : options_.said()) priced_ = priced_ || option.starts_with("prices");
  for_each_input(points, [&](const ScenarioPath& path, const PathValue& value) {
    if (path.path == "cluster") machines_.push_back(models::Cluster::load(value.text));
  });
  common_ = common;
  options_.read_inputs(common);  // refuses what cannot be asked at all
  set_rows(format, points, rows_of(priced_));
}

void RecordingSweep::read_inputs(const models::Points& points) const {
  options_.read_inputs(common_);
  for_each_input(points, [&](const ScenarioPath& path, const PathValue& value) {
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
  });
}

SweepAsker RecordingSweep::asker(const models::Points& points) const {
  // The folders change slowest.
  struct Last {
    std::string folder;
    std::shared_ptr<const Recordings> recordings;
    Question settings;
  };
  return [this, &points, last = Last{}](const std::vector<PathValue>& values) mutable {
    RecordingOptions options = options_;
    std::string folder;
    std::vector<ScenarioPath> paths;
    std::vector<PathValue> settings;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (const std::string& name = points.paths()[i].path; name == kRecording) {
        folder = values[i].text;
      } else if (is_recording_option(name) || values[i].text == kAsRecorded) {
        options.say(name, values[i].text);
      } else {
        paths.push_back(find_path(name));
        settings.push_back(values[i]);
      }
    if (!last.recordings || folder != last.folder) {
      const auto read = recordings_.get(folder);
      last = {folder, read, question_of(*read)};
    }
    Question question = options.over(last.settings, common_);
    set_all(question, paths, settings, Origin::said("--grid"));
    replay::RecordingQuestion asked = options.question(*last.recordings, std::move(question));
    asked.memory = true;
    if (machines_.size() > 1) asked.beside = machines_;
    return std::vector{row_of(ask_recording(*last.recordings, asked))};
  };
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
  shape.fits = "fits";
  shape.none_fits = "none of which fits the memory";
  shape.not_best = "for want of memory";
  shape.notes = "notes";
  shape.shown = {"iteration_us.value", "straggler_wait_us.mean", "exposed_comm_us.mean",
                 "tokens_per_s_per_gpu", "peak_memory_bytes.max"};
  if (priced_) shape.shown.emplace_back("cost_per_million_tokens");
  return shape;
}

}  // namespace

const ResultSchema kRows("sweep-replay-row", [] {
  return row_schema("a line of results.jsonl of `sweep replay`", rows_of(true).columns,
                    rows_of(false).columns);
});

std::unique_ptr<SweepKind> sweep_of_recordings() { return std::make_unique<RecordingSweep>(); }

}  // namespace moesim::tools
