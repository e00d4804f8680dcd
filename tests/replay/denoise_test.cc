// Noise out, symmetry in: what a cleaned recording must keep, and what it must refuse.
#include "replay/recording/denoise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/input_error.h"
#include "base/random.h"
#include "models/hardware/cluster.h"
#include "recording_builder.h"
#include "replay/run/forecast.h"
#include "tests/message_of.h"

namespace moesim::replay {
namespace {

using moesim::testing::message_of;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

testing::ScalingSpec moe_job(double (*disturb)(std::size_t) = nullptr) {
  testing::ScalingSpec spec;
  spec.topology = {.expert = 2, .expert_dp = 4, .pp = 2};
  spec.layers_per_stage = 4;
  spec.tokens = 1024;
  spec.received = {3000, 1096};
  spec.disturb = disturb;
  return spec;
}

CleanJob cleaned(const traces::Recording& recording) {
  const RecordedJob job = interpret(recording);
  CleanJob clean = denoise(std::span(&job, 1));
  // Lines belong to the recording that goes away with the caller's.
  return clean;
}

const Step& step_of(const CleanJob& job, const PlaceKey& key, StepKind kind) {
  for (const Step& step : job.places.at(key).steps)
    if (step.kind == kind) return step;
  throw std::out_of_range("no such step");
}

TEST(Denoise, KeepsARecordingWithoutNoise) {
  const traces::Recording recording = testing::scaling_recording(moe_job());
  const CleanJob job = cleaned(recording);
  EXPECT_THAT(job.warnings, IsEmpty());
  EXPECT_EQ(job.places.size(), 4u);  // two stages by two expert ranks
  EXPECT_EQ(job.samples, 16u);
  for (const auto& [key, place] : job.places) {
    EXPECT_EQ(place.received_rows, key.expert == 0 ? 3000 : 1096);
    const Step& forward = step_of(job, key, StepKind::forward);
    ASSERT_EQ(forward.calls.size(), 12u);
    EXPECT_NEAR(forward.segments_us[0], 2000, 1e-2);
    EXPECT_NEAR(forward.segments_us[1], 500, 1e-2);
    EXPECT_NEAR(forward.segments_us[2], key.expert == 0 ? 3200 : 1300, 10.01)
        << "stamps are rounded to 10 us";
    EXPECT_NEAR(forward.segments_us[3], 2300, 1e-2);
  }
  EXPECT_NEAR(job.expert_backward_us_per_row, 2.0, 0.02);
}

// The calls of one MoE layer as a dispatcher's recording has them, forward and backward.
struct Form {
  const char* name;
  std::vector<testing::CallSpec> forward, backward;
};

std::vector<Form> forms() {
  constexpr std::int64_t kTokens = 64, kHidden = 32, kRows = 128;
  const auto call = [](const char* source, const char* comm, std::vector<std::int64_t> shape,
                       const char* group = "exp", const char* dtype = "torch.bfloat16") {
    return testing::CallSpec{source, comm, group, std::move(shape), dtype};
  };
  const auto gather = [&](std::vector<std::int64_t> shape, const char* dtype = "torch.bfloat16") {
    return call("_gather_along_first_dim_moe", "allgather", std::move(shape), "exp", dtype);
  };
  const auto scatter = [&](std::vector<std::int64_t> shape) {
    return call("_reduce_scatter_along_first_dim_moe", "reduce_scatter", std::move(shape));
  };
  const auto counts = call("_gather_along_first_dim_expert_parallel", "allgather", {4}, "exp", "torch.int64");
  const auto exchange = call("_profiled_all_to_all_single", "all_to_all", {kRows, kHidden});
  const auto probabilities =
      call("_profiled_all_to_all_single", "all_to_all", {kRows}, "exp", "torch.float32");
  const auto ids = gather({kTokens, 2}, "torch.int64"), weights = gather({kTokens, 2}, "torch.float32"),
             rows = gather({kTokens, kHidden}), combine = scatter({2 * kTokens, kHidden});
  const auto tp_gather = call("_gather_along_first_dim", "allgather", {kTokens, kHidden}, "tp");
  const auto tp_scatter = call("_reduce_scatter_along_first_dim", "reduce_scatter", {kTokens, kHidden}, "tp");
  return {
      {"allgather", {ids, weights, rows, combine}, {rows, combine}},
      {"allgather, another order", {rows, weights, ids, combine}, {rows, combine, scatter({2 * kTokens, 2})}},
      {"allgather under TP",
       {tp_gather, tp_scatter, weights, ids, rows, combine},
       {rows, combine, tp_gather, tp_scatter}},
      {"alltoall", {counts, exchange, exchange}, {exchange, exchange}},
      {"alltoall, probabilities",
       {counts, exchange, probabilities, exchange},
       {exchange, exchange, probabilities}},
      {"alltoall, four exchanges of counts",
       {counts, counts, counts, counts, exchange, exchange},
       {exchange, exchange}},
      {"torchtitan, an exchange of counts",
       {call("all_to_all_single", "all_to_all", {4}, "exp", "torch.int64"), exchange, exchange},
       {exchange, exchange}},
      {"alltoall under TP",
       {tp_gather, tp_scatter, counts, exchange, tp_gather, tp_scatter, exchange},
       {exchange, tp_gather, tp_scatter, exchange, tp_gather, tp_scatter}},
      {"alltoall, recomputed in backward",
       {counts, exchange, exchange},
       {counts, exchange, exchange, exchange, exchange}},
      {"a dense layer before",
       {tp_gather, tp_scatter, tp_gather, tp_scatter, counts, exchange, exchange},
       {exchange, exchange, tp_gather, tp_scatter, tp_gather, tp_scatter}}};
}

// Whatever a dispatcher calls and in whatever order: where nothing disturbs, every segment stays as the file has
// it. A stage's first forward segment is at most the one between its layers (docs/replay.md).
RC_GTEST_PROP(Denoise, KeepsEverySegmentOfEveryDispatcher, ()) {
  const std::vector<Form> all = forms();
  const Form& form = all[*rc::gen::inRange<std::size_t>(0, all.size())];
  const int layers = *rc::gen::inRange(1, 5);
  RC_LOG() << form.name << ", " << layers << " layers";
  const Topology topology{.expert = 2, .expert_dp = 1, .pp = 2};
  const auto milliseconds = [] { return 0.01 * *rc::gen::inRange(5, 500); };
  const auto pass_of = [&](const char* name, const std::vector<testing::CallSpec>& layer) {
    testing::OperationSpec pass{.name = name, .after_ms = milliseconds()};
    std::vector<double> before;
    for (std::size_t c = 0; c < layer.size(); ++c) before.push_back(milliseconds());
    for (int l = 0; l < layers; ++l)
      for (std::size_t c = 0; c < layer.size(); ++c) {
        pass.calls.push_back(layer[c]);
        pass.calls.back().before_ms = before[c] + (l > 0 && c == 0 ? pass.after_ms : 0);
      }
    return pass;
  };
  const testing::OperationSpec forward = pass_of("forward_step", form.forward),
                               backward = pass_of("backward_step", form.backward);
  testing::RecordingBuilder builder(topology);
  builder.named().layers = 2 * layers;
  builder.named().hidden = 32;
  builder.named().seq = 64;
  for (int rank = 0; rank < topology.world(); ++rank) {
    builder.add(rank, {.name = "get_batch", .after_ms = 0.1});
    builder.add(rank, forward);
    builder.add(rank, backward);
    builder.add(rank, {.name = "optimizer_step", .after_ms = 1});
  }
  const traces::Recording recording = builder.take();
  const CleanJob job = cleaned(recording);
  for (const auto& [key, place] : job.places)
    for (const auto& [kind, spec] :
         {std::pair(StepKind::forward, &forward), {StepKind::backward, &backward}}) {
      const Step& step = step_of(job, key, kind);
      RC_ASSERT(step.calls.size() == spec->calls.size());
      for (std::size_t s = 0; s <= step.calls.size(); ++s) {
        const double us = 1e3 * (s < step.calls.size() ? spec->calls[s].before_ms : spec->after_ms);
        RC_LOG() << name(kind) << " segment " << s << ": " << us << " -> " << step.segments_us[s];
        RC_ASSERT(std::abs(step.segments_us[s] - us) <= 0.01 * us + 15);  // stamps are of 10 us
      }
    }
}

// One sample in five takes twice as long, the others vary by a percent.
double outliers(std::size_t sample) {
  Random random = Random::for_item(7, sample);
  const bool outlier = random.uniform() < 0.2;
  return (1.0 + 0.01 * random.normal()) * (outlier ? 2.0 : 1.0);
}

TEST(Denoise, OutliersOfAHundredPercentChangeLittle) {
  const traces::Recording truth = testing::scaling_recording(moe_job());
  const traces::Recording noisy = testing::scaling_recording(moe_job(outliers));
  const CleanJob expected = cleaned(truth);
  const CleanJob job = cleaned(noisy);
  for (const auto& [key, place] : expected.places)
    for (const StepKind kind : {StepKind::forward, StepKind::backward, StepKind::optimizer}) {
      const Step& was = step_of(expected, key, kind);
      const Step& is = step_of(job, key, kind);
      for (std::size_t s = 0; s < was.segments_us.size(); ++s)
        EXPECT_NEAR(is.segments_us[s], was.segments_us[s], 0.04 * was.segments_us[s] + 10)
            << name(kind) << " segment " << s << " of stage " << key.pp << " expert rank " << key.expert;
    }
}

TEST(Denoise, PoolsPasses) {
  const traces::Recording first = testing::scaling_recording(moe_job(outliers));
  const traces::Recording second = testing::scaling_recording(moe_job());
  const std::vector<RecordedJob> passes{interpret(first), interpret(second)};
  EXPECT_EQ(denoise(passes).samples, 32u);
}

double forecast_us(const traces::Recording& recording, std::vector<std::string>& warnings) {
  const auto cluster = models::Cluster::load("echo-h800x2");
  const RecordedJob job = interpret(recording);
  const CleanJob clean = denoise(std::span(&job, 1));
  const Effects effects(cluster.profile);
  ForecastOptions options;
  options.microbatches = 8;
  const ScalingForecast made = forecast(clean, recording.named, cluster, effects, options);
  warnings = made.warnings;
  return made.iteration.us();
}

TEST(Denoise, OneRankPerStageAndExpertRankGivesTheSameForecast) {
  std::vector<std::string> warnings;
  const double all = forecast_us(testing::scaling_recording(moe_job()), warnings);
  EXPECT_THAT(warnings, ::testing::Not(Contains(HasSubstr("symmetry"))));
  traces::Recording some = testing::scaling_recording(moe_job());
  testing::keep_ranks(some, {0, 1, 8, 9});
  EXPECT_NEAR(forecast_us(some, warnings), all, 1e-3 * all);
  EXPECT_THAT(warnings, Contains(AllOf(HasSubstr("4 of 16 ranks"), HasSubstr("symmetry"))));
}

// Megatron's AlltoAll dispatcher sends probabilities after rows: three exchanges a layer, of which two are of
// tokens. Taken for tokens they shift dispatch and combine, and experts become what lies between layers.
TEST(Denoise, ProbabilitiesDoNotShiftTheExperts) {
  testing::ScalingSpec spec = moe_job();
  std::vector<std::string> warnings;
  const double without = forecast_us(testing::scaling_recording(spec), warnings);
  spec.probabilities = true;
  const traces::Recording recording = testing::scaling_recording(spec);
  EXPECT_NEAR(forecast_us(recording, warnings), without, 0.01 * without);
  const CleanJob job = cleaned(recording);
  EXPECT_NEAR(job.expert_backward_us_per_row, 2.0, 0.02);
  for (const auto& [key, place] : job.places) EXPECT_EQ(place.received_rows, key.expert == 0 ? 3000 : 1096);
}

TEST(Denoise, MiddleStagesStandInForEachOther) {
  testing::ScalingSpec spec = moe_job();
  spec.topology = {.expert = 2, .expert_dp = 1, .pp = 4};
  traces::Recording recording = testing::scaling_recording(spec);
  testing::keep_ranks(recording, {0, 1, 2, 3, 6, 7});  // without stage 2
  const CleanJob job = cleaned(recording);
  EXPECT_EQ(job.places.size(), 8u);
  EXPECT_EQ(job.places.at({2, 0, 1}).received_rows, 1096);
  EXPECT_THAT(job.warnings, Contains(HasSubstr("6 of 8 ranks")));
}

// A recording of one layer per stage shows the experts' backward mostly at its first run, with the allocator
// growing; the last stage, where the loss came before, and its neighbours tell what they take.
TEST(Denoise, TheFirstBackwardOfTheExpertsCountsOnlyWhereNothingElseShowsThem) {
  testing::ScalingSpec spec = moe_job();
  spec.topology = {.expert = 2, .expert_dp = 1, .pp = 4};
  spec.layers_per_stage = 1;
  const traces::Recording recording = testing::scaling_recording(spec);
  const RecordedJob truth = interpret(recording);
  RecordedJob job = truth;
  for (RankSteps& rank : job.ranks)
    for (Step& step : rank.steps)
      if (step.kind == StepKind::backward && job.topology.of(rank.rank).pp < 3) step.segments_us[1] += 250;
  const CleanJob expected = denoise(std::span(&truth, 1));
  const CleanJob clean = denoise(std::span(&job, 1));
  for (const auto& [key, place] : expected.places)
    EXPECT_NEAR(step_of(clean, key, StepKind::backward).segments_us.at(1),
                step_of(expected, key, StepKind::backward).segments_us.at(1), 1e-6)
        << "stage " << key.pp << ", expert rank " << key.expert;
  // An outlier where the only good sample was.
  for (RankSteps& rank : job.ranks)
    for (Step& step : rank.steps)
      if (step.kind == StepKind::backward && job.topology.of(rank.rank).pp == 3) step.segments_us[1] += 9000;
  EXPECT_NEAR(step_of(denoise(std::span(&job, 1)), {0, 0, 0}, StepKind::backward).segments_us.at(1),
              step_of(expected, {0, 0, 0}, StepKind::backward).segments_us.at(1) + 250, 1e-6)
      << "it does not win";
}

TEST(Denoise, EqualWorkOfOtherStagesCleansTheFirstSegment) {
  testing::ScalingSpec spec = moe_job();
  spec.topology = {.expert = 2, .expert_dp = 1, .pp = 8};
  spec.layers_per_stage = 1;
  const traces::Recording recording = testing::scaling_recording(spec);
  const RecordedJob truth = interpret(recording);
  RecordedJob job = truth;
  for (RankSteps& rank : job.ranks)  // every sample of some stages is twice as long
    for (Step& step : rank.steps)
      if (step.kind == StepKind::forward && job.topology.of(rank.rank).pp % 3 == 0)
        for (const std::size_t s : {std::size_t{0}, std::size_t{1}}) step.segments_us[s] *= 2;
  const CleanJob expected = denoise(std::span(&truth, 1));
  const CleanJob clean = denoise(std::span(&job, 1));
  for (const auto& [key, place] : expected.places)
    for (const std::size_t s : {std::size_t{0}, std::size_t{1}})
      EXPECT_NEAR(step_of(clean, key, StepKind::forward).segments_us.at(s),
                  step_of(expected, key, StepKind::forward).segments_us.at(s), 101)
          << "stage " << key.pp << " segment " << s;
}

std::string refusal_of_denoise(const traces::Recording& recording) {
  return message_of([&] { cleaned(recording); });
}

TEST(Denoise, RefusesAPlaceThatSymmetryCannotFill) {
  traces::Recording recording = testing::scaling_recording(moe_job());
  testing::keep_ranks(recording, {0, 2, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15});  // no expert rank 1 on stage 0
  EXPECT_THAT(refusal_of_denoise(recording),
              AllOf(HasSubstr("no recording of stage 0, expert rank 1"), HasSubstr("rank 1)")));
  recording = testing::scaling_recording(moe_job());
  testing::keep_ranks(recording, {0, 1, 2, 3, 4, 5, 6, 7});  // no last stage
  EXPECT_THAT(refusal_of_denoise(recording), HasSubstr("no recording of stage 1"));
  testing::ScalingSpec deep = moe_job();
  deep.topology = {.expert = 2, .expert_dp = 1, .pp = 4};
  recording = testing::scaling_recording(deep);
  testing::keep_ranks(recording, {0});
  EXPECT_THAT(refusal_of_denoise(recording),
              HasSubstr("no recording of stage 1, 2, 3 (for instance rank 2)"));
}

TEST(Denoise, RefusesReplicasThatReceiveDifferentRows) {
  traces::Recording recording = testing::scaling_recording(moe_job());
  auto& combine = recording.ranks[2].sub_operations[2];  // rank 2 is a replica of rank 0
  combine.shape = recording.pool.shape(std::vector<std::int64_t>{2999, 32});
  EXPECT_THAT(refusal_of_denoise(recording),
              AllOf(HasSubstr("rank02.txt:1: found 2999 rows"), HasSubstr("3000 rows as on rank 0")));
}

TEST(Denoise, RefusesReplicasThatCallDifferently) {
  traces::Recording recording = testing::scaling_recording(moe_job());
  recording.ranks[2].operations[0].sub_count -= 3;
  EXPECT_THAT(refusal_of_denoise(recording),
              AllOf(HasSubstr("rank02.txt:1: found"), HasSubstr("as on rank 0")));
  recording = testing::scaling_recording(moe_job());
  recording.ranks[2].operations.pop_back();
  EXPECT_THAT(refusal_of_denoise(recording),
              AllOf(HasSubstr("rank02.txt"), HasSubstr("operations on rank 2")));
}

}  // namespace
}  // namespace moesim::replay
