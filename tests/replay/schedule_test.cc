// 1F1B: the order of operations of every real run, and what any pipeline needs.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <set>

#include "echo_data.h"
#include "replay/recording/steps.h"
#include "replay/run/forecast.h"
#include "traces/cmd_reader.h"

namespace moesim::replay {

void PrintTo(const Slot& slot, std::ostream* out) {
  *out << name(slot.kind) << ' ' << slot.microbatch << (slot.fused_with_next ? "+" : "");
}

namespace {

using enum StepKind;

std::vector<Slot> stage_of(int stage, int stages, int microbatches) {
  return one_forward_one_backward(stages, microbatches).at(static_cast<std::size_t>(stage));
}

bool scheduled(StepKind kind) {
  return kind == get_batch || kind == forward || kind == loss || kind == backward || is_p2p(kind);
}

class RealRun : public testing::EchoTest {};

TEST_P(RealRun, DoesItsWorkInThisOrder) {
  const traces::Recording recording = traces::read_cmd(folder() / "realistic");
  const RecordedJob job = interpret(recording);
  ASSERT_EQ(job.ranks.size(), static_cast<std::size_t>(job.topology.world()));
  for (const RankSteps& rank : job.ranks) {
    SCOPED_TRACE(rank.rank);
    int microbatches = 0;
    std::vector<Slot> recorded;
    for (const Step& step : rank.steps) {
      if (step.kind == forward) microbatches = std::max(microbatches, step.microbatch + 1);
      if (scheduled(step.kind)) recorded.push_back({step.kind, step.microbatch, step.fused_with_next});
    }
    EXPECT_EQ(recorded, stage_of(job.topology.of(rank.rank).pp, job.topology.pp, microbatches));
  }
}

INSTANTIATE_TEST_SUITE_P(Echo, RealRun, ::testing::ValuesIn(testing::kRealRuns), testing::test_name);

TEST(Schedule, TwoStagesTwoMicrobatches) {
  EXPECT_EQ(stage_of(0, 2, 2), (std::vector<Slot>{{get_batch, 0},
                                                  {forward, 0},
                                                  {send_forward, 0},
                                                  {get_batch, 1},
                                                  {forward, 1},
                                                  {send_forward, 1, true},
                                                  {recv_backward, 0},
                                                  {backward, 0},
                                                  {recv_backward, 1},
                                                  {backward, 1}}));
  EXPECT_EQ(stage_of(1, 2, 2), (std::vector<Slot>{{recv_forward, 0},
                                                  {get_batch, 0},
                                                  {forward, 0},
                                                  {loss, 0},
                                                  {backward, 0},
                                                  {send_backward, 0, true},
                                                  {recv_forward, 1},
                                                  {get_batch, 1},
                                                  {forward, 1},
                                                  {loss, 1},
                                                  {backward, 1},
                                                  {send_backward, 1}}));
}

TEST(Schedule, OneStageTalksToNobody) {
  for (const Slot& slot : stage_of(0, 1, 3)) EXPECT_FALSE(is_p2p(slot.kind));
}

std::vector<int> microbatches_of(const std::vector<Slot>& slots, StepKind kind) {
  std::vector<int> out;
  for (const Slot& slot : slots)
    if (slot.kind == kind) out.push_back(slot.microbatch);
  return out;
}

RC_GTEST_PROP(Schedule, EveryMicrobatchOnceAndForwardFirst, ()) {
  const int stages = *rc::gen::inRange(1, 17);
  const int microbatches = *rc::gen::inRange(1, 33);
  const int stage = *rc::gen::inRange(0, stages);
  const auto slots = stage_of(stage, stages, microbatches);
  std::set<int> forwarded, finished;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    if (slot.kind == forward) {
      RC_ASSERT(forwarded.insert(slot.microbatch).second);
      if (stage > 0) RC_ASSERT(slots[i - (stage == stages - 1 ? 2 : 1)].kind == recv_forward);
      // 1F1B holds the activations of at most as many microbatches as there are stages from here to the end.
      RC_ASSERT(static_cast<int>(forwarded.size() - finished.size()) <= stages - stage);
    }
    if (slot.kind == backward) {
      RC_ASSERT(forwarded.contains(slot.microbatch));
      RC_ASSERT(finished.insert(slot.microbatch).second);
    }
    if (slot.fused_with_next) {
      RC_ASSERT(i + 1 < slots.size());
      RC_ASSERT(slots[i + 1].kind == (slot.kind == send_forward ? recv_backward : recv_forward));
    }
  }
  RC_ASSERT(static_cast<int>(forwarded.size()) == microbatches);
  RC_ASSERT(finished == forwarded);
}

RC_GTEST_PROP(Schedule, NeighboursSendWhatTheOtherReceives, ()) {
  const int stages = *rc::gen::inRange(2, 17);
  const int microbatches = *rc::gen::inRange(1, 33);
  const int stage = *rc::gen::inRange(0, stages - 1);
  const auto here = stage_of(stage, stages, microbatches);
  const auto next = stage_of(stage + 1, stages, microbatches);
  RC_ASSERT(microbatches_of(here, send_forward) == microbatches_of(next, recv_forward));
  RC_ASSERT(microbatches_of(next, send_backward) == microbatches_of(here, recv_backward));
}

}  // namespace
}  // namespace moesim::replay
