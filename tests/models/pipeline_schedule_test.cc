// The order of every pipeline schedule: each pass once, what a stage holds, which shapes there are.
#include "models/step/pipeline_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "tests/message_of.h"
#include "tests/models/pipeline_shapes.h"

namespace moesim::models {
namespace {

using Kind = PipelineSlot::Kind;
using moesim::testing::message_of;
using testing::shape_of;

class Schedules : public ::testing::TestWithParam<testing::NamedShape> {};

TEST_P(Schedules, RunEveryPassOnce) {
  const PipelineShape& shape = GetParam().shape;
  std::map<std::pair<int, int>, int> forward, backward, weight;
  const auto schedule = pipeline_schedule(shape);
  for (int s = 0; s < shape.stages; ++s)
    for (const PipelineSlot& slot : schedule[static_cast<std::size_t>(s)]) {
      EXPECT_EQ(shape.stage_of(slot.chunk, slot.microbatch), s);
      const std::pair<int, int> key{slot.chunk, slot.microbatch};
      if (slot.kind == Kind::kForward || slot.kind == Kind::kOverlapped) ++forward[key];
      if (slot.kind == Kind::kBackward) ++backward[key], ++weight[key];
      if (slot.kind == Kind::kInputGradient) ++backward[key];
      if (slot.kind == Kind::kWeightGradient) ++weight[key];
      if (slot.kind == Kind::kOverlapped) {
        ++backward[{slot.back_chunk, slot.back_microbatch}];
        ++weight[{slot.back_chunk, slot.back_microbatch}];
      }
    }
  for (const auto* counts : {&forward, &backward, &weight}) {
    EXPECT_EQ(counts->size(), static_cast<std::size_t>(shape.chunks() * shape.microbatches));
    for (const auto& [key, n] : *counts) EXPECT_EQ(n, 1) << key.first << " " << key.second;
  }
}

// No schedule can deadlock: run slot by slot, in any possible order, every stage reaches its end.
TEST_P(Schedules, CanBePerformed) {
  const PipelineShape& shape = GetParam().shape;
  const auto schedule = pipeline_schedule(shape);
  std::set<std::pair<int, int>> forward, backward;  // chunk, microbatch
  const auto ready = [&](const PipelineSlot& slot) {
    const auto down = [&](int chunk, int m) { return chunk == 0 || forward.count({chunk - 1, m}) > 0; };
    const auto up = [&](int chunk, int m) {
      return forward.count({chunk, m}) > 0 &&
             (chunk + 1 == shape.chunks() || backward.count({chunk + 1, m}) > 0);
    };
    if (slot.kind == Kind::kForward) return down(slot.chunk, slot.microbatch);
    if (slot.kind == Kind::kOverlapped)
      return down(slot.chunk, slot.microbatch) && up(slot.back_chunk, slot.back_microbatch);
    if (slot.kind == Kind::kWeightGradient) return backward.count({slot.chunk, slot.microbatch}) > 0;
    return up(slot.chunk, slot.microbatch);
  };
  std::vector<std::size_t> at(schedule.size(), 0);
  bool moved = true;
  while (moved) {
    moved = false;
    for (std::size_t s = 0; s < schedule.size(); ++s)
      while (at[s] < schedule[s].size() && ready(schedule[s][at[s]])) {
        const PipelineSlot& slot = schedule[s][at[s]++];
        moved = true;
        if (slot.kind == Kind::kForward || slot.kind == Kind::kOverlapped)
          forward.insert({slot.chunk, slot.microbatch});
        if (slot.kind == Kind::kBackward || slot.kind == Kind::kInputGradient)
          backward.insert({slot.chunk, slot.microbatch});
        if (slot.kind == Kind::kOverlapped) backward.insert({slot.back_chunk, slot.back_microbatch});
      }
  }
  for (std::size_t s = 0; s < schedule.size(); ++s) EXPECT_EQ(at[s], schedule[s].size()) << "stage " << s;
}

INSTANTIATE_TEST_SUITE_P(All, Schedules, ::testing::ValuesIn(testing::every_schedule()),
                         [](const auto& info) { return info.param.name; });

TEST(PipelineSchedule, RefusesWhatDoesNotExist) {
  const auto error = [](const PipelineShape& shape) { return message_of([&] { pipeline_schedule(shape); }); };
  EXPECT_EQ(error(shape_of(PipelineKind::kZeroBubble, 4, 2, 8)),
            "schedule zero-bubble: found vpp 2, expected 1");
  EXPECT_EQ(error(shape_of(PipelineKind::kDualPipe, 3, 1, 8)),
            "schedule dualpipe: found pp 3, expected an even number of stages");
  EXPECT_EQ(error(shape_of(PipelineKind::kDualPipe, 4, 1, 6)),
            "schedule dualpipe: found 6 microbatches, expected an even number of at least 2 x pp = 8");
}

// The most microbatch-chunks whose activations a stage holds at once, by stage.
std::vector<int> activations_in_flight(const std::vector<std::vector<PipelineSlot>>& schedule) {
  std::vector<int> most;
  for (const std::vector<PipelineSlot>& slots : schedule) {
    int held = 0, peak = 0;
    for (const PipelineSlot& slot : slots) {
      if (slot.kind == Kind::kForward || slot.kind == Kind::kOverlapped) ++held;
      peak = std::max(peak, held);
      if (slot.kind != Kind::kForward && slot.kind != Kind::kInputGradient) --held;
    }
    most.push_back(peak);
  }
  return most;
}

TEST(PipelineSchedule, HoldsTheActivationsOfTheirPapers) {
  const auto held = [](const PipelineShape& s) { return activations_in_flight(pipeline_schedule(s)); };
  EXPECT_THAT(held(shape_of(PipelineKind::k1F1B, 4, 1, 9)), ::testing::ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(held(shape_of(PipelineKind::kZeroBubble, 4, 1, 9)), ::testing::Each(::testing::Le(4)));
  EXPECT_THAT(held(shape_of(PipelineKind::kDualPipe, 4, 1, 12)), ::testing::Each(::testing::Le(5)));  // p + 1
}

// Two stages, three microbatches: stage 0 warms up with one forward, stage 1 with none.
TEST(PipelineSchedule, OneForwardOneBackwardByHand) {
  const auto schedule = pipeline_schedule(shape_of(PipelineKind::k1F1B, 2, 1, 3));
  const auto text = [](const std::vector<PipelineSlot>& slots) {
    std::string all;
    for (const PipelineSlot& slot : slots)
      all += (slot.kind == Kind::kForward ? "F" : "B") + std::to_string(slot.microbatch) + " ";
    return all;
  };
  EXPECT_EQ(text(schedule[0]), "F0 F1 B0 F2 B1 B2 ");
  EXPECT_EQ(text(schedule[1]), "F0 B0 F1 B1 F2 B2 ");
}

TEST(PipelineShape, ChunksStandOnStagesInTurnAndDualPipeInBothDirections) {
  const PipelineShape interleaved = shape_of(PipelineKind::k1F1B, 4, 3, 8);
  EXPECT_EQ(interleaved.chunks(), 12);
  EXPECT_EQ(interleaved.stage_of(6, 1), 2);
  const PipelineShape both = shape_of(PipelineKind::kDualPipe, 4, 1, 8);
  EXPECT_EQ(both.stage_of(1, 2), 1);
  EXPECT_EQ(both.stage_of(1, 3), 2);
}

}  // namespace
}  // namespace moesim::models
