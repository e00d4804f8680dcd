// A recording of another size: of the same size nothing changes, of others it is what was recorded there.
#include "replay/job/rescale.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "echo_data.h"
#include "made_job.h"
#include "replay/run/forecast_recording.h"
#include "replay/run/run_summary.h"
#include "traces/cmd_reader.h"

namespace moesim::replay {
namespace {

using testing::deep_job;
using testing::forecast_us;

// The synthetic recorder and the models that rescale it are the same, so that a recording of one size must
// tell another one closely.
TEST(Rescaled, AJobIsTheJobRecordedAtThatSize) {
  const testing::MadeJob made;
  struct Other {
    const char* what;
    double tolerance;
    std::function<void(SynthesisSpec&, RecordingQuestion&)> change;
  };
  for (const Other& other : {Other{"two stages", 0.05,
                                   [](auto&spec, auto&change) {
                                     spec.topology.pp = 2;
                                     testing::say(change, "parallel.pp", 2);
                                   }},
                             Other{"eight stages", 0.05,
                                   [](auto&spec, auto&change) {
                                     spec.topology.pp = 8;
                                     spec.cluster = models::Cluster::load("echo-h800x4");
                                     testing::say(change, "parallel.pp", 8);
                                   }},
                             Other{"two replicas", 0.05,
                                   [](auto&spec, auto&change) {
                                     spec.topology.expert_dp = 2;
                                     spec.cluster = models::Cluster::load("echo-h800x4");
                                     testing::say(change, "parallel.dp", 8);
                                   }},
                             Other{"long sequences", 0.10, [](auto&spec, auto&change) {
                                     spec.seq = 2048;
                                     testing::say(change, "parallel.seq", 2048);
                                   }}}) {
    RecordingQuestion request = made.request;
    SynthesisSpec spec = deep_job();
    other.change(spec, request);
    request.said.routing = spec.routing;  // drawn from the same seed
    request.said.give("routing", models::Origin::said("--routing"));
    const SyntheticRecordings target = synthesize(spec);
    const RecordedJob job = interpret(target.scaling);
    const CleanJob clean = denoise(std::span(&job, 1));
    RecordingQuestion same = made.request;
    for (RecordingQuestion* one : {&same, &request}) testing::say(*one, "cluster", spec.cluster.name);
    const double direct = forecast_us(clean, target.scaling.named, same);
    const double rescaled = forecast_us(made.clean, made.named(), request);
    EXPECT_NEAR(rescaled / direct, 1, other.tolerance) << other.what;
  }
}

// All stages of the recording are alike here, so that pooling them changes nothing either.
TEST(Rescaled, ToItsOwnSizeIsTheRecording) {
  const testing::MadeJob made;
  const models::Cluster& cluster = made.spec.cluster;
  const JobModel job = job_model(made.clean, made.named(), made.request);
  const models::DispatcherSpec spec = models::DispatcherSpec::parse("alltoall-legacy");
  const LayerModel model(job, spec, cluster);
  const CleanJob same = rescaled(made.clean, model, model, cluster, true);
  ASSERT_EQ(same.places.size(), made.clean.places.size());
  for (const auto& [key, place] : made.clean.places) {
    const CleanPlace& again = same.places.at(key);
    EXPECT_EQ(again.received_rows, place.received_rows);
    for (const StepKind kind : {StepKind::forward, StepKind::backward}) {
      const Step &before = *place.find(kind), &after = *again.find(kind);
      ASSERT_EQ(after.segments_us.size(), before.segments_us.size());
      for (std::size_t s = 0; s < before.segments_us.size(); ++s)
        EXPECT_NEAR(after.segments_us[s], before.segments_us[s], 0.02 * before.segments_us[s] + 1) << s;
      for (std::size_t c = 0; c < before.calls.size(); ++c)
        EXPECT_EQ(after.calls[c].rows, before.calls[c].rows);
    }
  }
}

// Twice the replicas change the gradients' groups, not what a rank computes; half the stages double its
// layers.
TEST(Rescaled, StepsAreLaidOutForTheNewStages) {
  const testing::MadeJob made;
  RecordingQuestion request = made.request;
  testing::say(request, "parallel.pp", 2);
  const CleanJob half = requested_job(made.clean, made.named(), request).clean;
  EXPECT_EQ(half.topology.pp, 2);
  const Step &before = *made.clean.places.at({0, 0, 0}).find(StepKind::forward),
             &after = *half.places.at({0, 0, 0}).find(StepKind::forward);
  EXPECT_EQ(after.calls.size(), 2 * before.calls.size());
  EXPECT_EQ(after.segments_us.size(), after.calls.size() + 1);
  // Gradients of twice the layers, and of one end of the model as before.
  const auto elements = [](const CleanJob& job, int stage, StepKind kind) {
    return job.places.at({stage, 0, 0}).find(kind)->elements;
  };
  EXPECT_EQ(elements(half, 0, StepKind::expert_all_reduce),
            2 * elements(made.clean, 0, StepKind::expert_all_reduce));
}

// Name and pass of every recording of one GPU: each job was recorded twice.
std::vector<std::pair<const char*, const char*>> recordings() {
  std::vector<std::pair<const char*, const char*>> all;
  for (const char* name : testing::kMoeConfigurations)
    for (const char* pass : {"scaling", "scaling2"}) all.emplace_back(name, pass);
  return all;
}

// One recorded job told from another's recording, with the routing that the other one had.
TEST(RescaleEcho, JobsAreToldFromEachOthersRecordings) {
  if (!std::filesystem::exists(testing::echo_folder())) GTEST_SKIP() << "the public recordings are not here";
  const models::Cluster cluster = models::Cluster::load("echo-h800x2");
  double sum = 0, worst = 0;
  int cases = 0;
  for (const char* from : testing::kMoeConfigurations) {
    const traces::Recording source = traces::read_cmd(testing::echo_folder() / from / "scaling");
    const RecordedJob job = interpret(source);
    const CleanJob clean = denoise(std::span(&job, 1));
    for (const char* to : testing::kMoeConfigurations) {
      if (std::string_view(from) == to) continue;
      const traces::Recording truth = traces::read_cmd(testing::echo_folder() / to / "realistic");
      const RecordedJob run = interpret(truth);
      RecordingQuestion request;
      testing::say(request, "parallel.ep", run.topology.expert);
      testing::say(request, "model.experts", truth.named.experts.value());
      request.received.emplace();
      const CleanJob shown = denoise(std::span(&run, 1));
      for (int e = 0; e < run.topology.expert; ++e)
        request.received->push_back(shown.places.at({0, 0, e}).received_rows);
      const double measured = summarize(run, cluster.gpus_per_node).iteration_us;
      const double error = forecast_us(clean, source.named, request) / measured - 1;
      sum += std::abs(error);
      worst = std::max(worst, std::abs(error));
      ++cases;
    }
  }
  EXPECT_LE(sum / cases, 0.03);
  EXPECT_LE(worst, 0.06);
  RecordProperty("figures", fmt::format("mean {:.4f}, worst {:.4f}", sum / cases, worst));
}

// Rows by expert rank of every job, in a file beside thinned recordings.
std::vector<std::int64_t> rows_of(const CleanJob& clean) {
  std::vector<std::int64_t> rows;
  for (int e = 0; e < clean.topology.expert; ++e) rows.push_back(clean.places.at({0, 0, e}).received_rows);
  return rows;
}

// Document 000's own mode: one expert rank of each stage was recorded, and everybody's rows are known.
TEST(RescaleEcho, OneExpertRankOfEachStageTellsTheRest) {
  if (!std::filesystem::exists(testing::echo_folder())) GTEST_SKIP() << "the public recordings are not here";
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() /
      fmt::format("moesim-rows-{}.json", ::testing::UnitTest::GetInstance()->random_seed());
  double sum = 0, worst = 0;
  int cases = 0, covered = 0;
  for (const auto& [name, pass] : recordings()) {
    const traces::Recording source = traces::read_cmd(testing::echo_folder() / name / pass);
    const traces::Recording truth = traces::read_cmd(testing::echo_folder() / name / "realistic");
    const double measured = summarize(interpret(truth), 8).iteration_us;
    const RecordedJob whole = interpret(source);
    const std::vector<std::int64_t> rows = rows_of(denoise(std::span(&whole, 1)));
    const std::int64_t experts = source.named.experts.value();
    const std::int64_t local = experts / std::ssize(rows);
    std::vector<std::string> ranks;
    for (std::size_t e = 0; e < rows.size(); ++e) {
      std::vector<std::int64_t> split(static_cast<std::size_t>(local), rows[e] / local);
      split.front() += rows[e] % local;
      ranks.push_back(fmt::format(R"("{}": {{"tokens_per_local_expert": [{}]}})", e, fmt::join(split, ", ")));
    }
    std::ofstream(file) << fmt::format(R"({{"ep": {}, "experts": {}, "per_rank_results": {{{}}}}})",
                                       rows.size(), experts, fmt::join(ranks, ", "));
    RecordingQuestion question;
    question.recorded_there = true;
    question.draws = 16;
    testing::say(question, "cluster", "echo-h800x2");
    testing::say(question, "routing", file.string());
    testing::say(question, "parallel.microbatches", 8);
    for (int e = 0; e < whole.topology.expert; ++e) {
      RecordedJob job = whole;
      std::erase_if(job.ranks, [&](const RankSteps& rank) {
        const Coordinates at = job.topology.of(rank.rank);
        return at.expert != e || at.expert_dp > 0;
      });
      ASSERT_EQ(job.ranks.size(), 2u);
      const models::Estimate told = forecast_recording(std::span(&job, 1), source.named, question).time_us;
      const double error = std::abs(told.value / measured - 1);
      const bool inside = told.low <= measured && measured <= told.high;
      EXPECT_LE(error, 0.08) << name << ", expert rank " << e;
      if (rows[static_cast<std::size_t>(e)] < 300) {
        EXPECT_TRUE(inside) << name << ", expert rank " << e;
        continue;
      }
      sum += error, worst = std::max(worst, error), ++cases, covered += inside;
    }
  }
  std::filesystem::remove(file);
  EXPECT_EQ(cases, 38);
  EXPECT_LE(sum / cases, 0.03);
  EXPECT_LE(worst, 0.08);
  EXPECT_GE(covered, cases * 9 / 10);
  RecordProperty("figures", fmt::format("mean {:.4f}, worst {:.4f}, inside {}", sum / cases, worst, covered));
}

// The rows of the parts of a split rank are unknown, and the forecast takes no best case.
TEST(RescaleEcho, LargerExpertGroupsAreForecastWithoutBias) {
  if (!std::filesystem::exists(testing::echo_folder())) GTEST_SKIP() << "the public recordings are not here";
  double sum = 0, worst = 0;
  int cases = 0, covered = 0;
  for (const auto& [from, pass] : recordings()) {
    const traces::Recording source = traces::read_cmd(testing::echo_folder() / from / pass);
    const RecordedJob job = interpret(source);
    for (const char* to : testing::kMoeConfigurations) {
      const traces::Recording truth = traces::read_cmd(testing::echo_folder() / to / "realistic");
      const RecordedJob run = interpret(truth);
      const auto sizes = [](const traces::Recording& one) {
        return std::pair(*one.named.ep, *one.named.experts);
      };
      if (sizes(truth) <= sizes(source)) continue;
      RecordingQuestion question;
      question.recorded_there = true;
      question.draws = 16;
      testing::say(question, "cluster", "echo-h800x2");
      testing::say(question, "parallel.ep", run.topology.expert);
      testing::say(question, "model.experts", truth.named.experts.value());
      testing::say(question, "parallel.microbatches", 8);
      const models::Estimate told = forecast_recording(std::span(&job, 1), source.named, question).time_us;
      const double measured = summarize(run, 8).iteration_us;
      sum += told.value / measured - 1;
      worst = std::max(worst, std::abs(told.value / measured - 1));
      ++cases, covered += told.low <= measured && measured <= told.high;
    }
  }
  ASSERT_EQ(cases, 20);
  EXPECT_NEAR(sum / cases, 0, 0.03);
  EXPECT_GE(covered, cases * 9 / 10);
  RecordProperty("figures",
                 fmt::format("mean {:+.4f}, worst {:.4f}, inside {}", sum / cases, worst, covered));
}

// Four times the sequence of every recording: where the host was the bound the device is, and the clocks are
// those of sustained load.
TEST(RescaleEcho, LongSequencesAreToldFromShortOnes) {
  if (!std::filesystem::exists(testing::echo_folder() / testing::kLongSequences[0]))
    GTEST_SKIP() << "the public recordings are not here";
  double sum = 0, bias = 0, worst = 0, forward = 0, backward = 0;
  int cases = 0, covered = 0;
  for (const auto& [from, pass] : recordings())
    for (const char* to : testing::kLongSequences) {
      const traces::Recording source = traces::read_cmd(testing::echo_folder() / from / pass);
      const RecordedJob job = interpret(source);
      const traces::Recording truth = traces::read_cmd(testing::echo_folder() / to / "realistic");
      const RecordedJob run = interpret(truth);
      RecordingQuestion question;
      question.recorded_there = true;
      testing::say(question, "cluster", "echo-h800x2");
      testing::say(question, "parallel.seq", truth.named.seq.value());
      testing::say(question, "parallel.ep", run.topology.expert);
      testing::say(question, "model.experts", truth.named.experts.value());
      testing::say(question, "parallel.dp", run.topology.dp());
      testing::say(question, "parallel.pp", run.topology.pp);
      question.received.emplace();
      const CleanJob shown = denoise(std::span(&run, 1));
      for (int e = 0; e < run.topology.expert; ++e)
        question.received->push_back(shown.places.at({0, 0, e}).received_rows);
      testing::say(question, "parallel.microbatches", microbatches_of(run));
      question.draws = 16;
      const RecordingForecast told = forecast_recording(std::span(&job, 1), source.named, question);
      const Validation held = validate(told.summary, summarize(run, 8), told.drawn);
      const double error = std::abs(held.iteration.error());
      sum += error, worst = std::max(worst, error), ++cases, covered += held.iteration.covered();
      bias += held.iteration.error();
      for (const Comparison& one : held.components) {
        if (one.name == "forward") forward = std::max(forward, std::abs(one.error()));
        if (one.name == "backward") backward = std::max(backward, std::abs(one.error()));
      }
    }
  EXPECT_LE(sum / cases, 0.015);
  EXPECT_NEAR(bias / cases, 0, 0.015);
  EXPECT_LE(worst, 0.03);
  EXPECT_LE(forward, 0.032);
  EXPECT_LE(backward, 0.025);
  EXPECT_GE(covered, cases * 9 / 10);
  RecordProperty("figures",
                 fmt::format("mean {:.4f}, signed {:+.4f}, worst {:.4f}, forward {:.4f}, backward {:.4f}, "
                             "inside {} of {}",
                             sum / cases, bias / cases, worst, forward, backward, covered, cases));
}

}  // namespace
}  // namespace moesim::replay
