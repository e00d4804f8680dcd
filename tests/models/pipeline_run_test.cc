// Pipelines run: published bubbles, and the recursion against the simulator on the same passes.
#include "models/step/pipeline_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/random.h"
#include "models/step/pipeline_schedule.h"
#include "sim/graph/costs.h"
#include "sim/graph/task_graph.h"
#include "sim/run/simulator.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using Kind = PipelineSlot::Kind;
using moesim::testing::message_of;

// Pipelines of every kind of schedule, for tests that try them all.
PipelineShape shape_of(PipelineKind kind, int stages, int virtual_stages, int microbatches,
                       bool overlapped = false) {
  return {stages, virtual_stages, microbatches, kind, overlapped};
}

struct NamedShape {
  PipelineShape shape;
  std::string name;
};

// In the names of tests, which are bytes otherwise.
void PrintTo(const NamedShape& shape, std::ostream* out) { *out << shape.name; }

std::vector<NamedShape> every_schedule() {
  return {{shape_of(PipelineKind::k1F1B, 1, 1, 3), "alone"},
          {shape_of(PipelineKind::k1F1B, 4, 1, 9), "one_f_one_b"},
          {shape_of(PipelineKind::k1F1B, 4, 1, 2), "fewer_microbatches_than_stages"},
          {shape_of(PipelineKind::k1F1B, 4, 3, 8), "interleaved"},
          {shape_of(PipelineKind::k1F1B, 4, 1, 12, true), "overlapped"},
          {shape_of(PipelineKind::k1F1B, 4, 2, 12, true), "interleaved_overlapped"},
          {shape_of(PipelineKind::kZeroBubble, 4, 1, 9), "zero_bubble"},
          {shape_of(PipelineKind::kDualPipe, 4, 1, 8), "dual_pipe"},
          {shape_of(PipelineKind::kDualPipe, 8, 1, 20), "dual_pipe_eight"}};
}

class NoCosts : public sim::Costs {
 public:
  void price_collective(const sim::CollectiveShape&, std::span<sim::Time>) const override {}
  sim::FlowParameters plan_collective(const sim::CollectiveShape&) const override { return {}; }
  sim::Overlap overlap(sim::RankId) const override { return {}; }
};

// Durations of passes by global chunk; the overlapped by forward chunk * chunks + backward chunk.
struct PipelineTimes {
  std::vector<std::int64_t> forward, backward, input_gradient, weight_gradient, overlapped;
  PipelineTransfers transfers;
  std::int64_t send() const { return transfers.send.empty() ? 0 : transfers.send.front(); }

  std::int64_t of(const PipelineSlot& slot) const {
    const auto c = static_cast<std::size_t>(slot.chunk);
    switch (slot.kind) {
      case Kind::kForward:
        return forward[c];
      case Kind::kBackward:
        return backward[c];
      case Kind::kInputGradient:
        return input_gradient[c];
      case Kind::kWeightGradient:
        return weight_gradient[c];
      case Kind::kOverlapped:
        return overlapped[c * forward.size() + static_cast<std::size_t>(slot.back_chunk)];
    }
    return 0;
  }
};

// Passes of one operation that takes as long on every rank, with and without saying which are the same.
class BlockPasses : public PipelinePasses {
 public:
  BlockPasses(const PipelineTimes& times, bool tells) : times_(times), tells_(tells) {
    program_.ops.emplace_back();
    program_.ops.back().launches = 0;
    program_.ps.resize(1);
  }
  void run(int, const PipelineSlot& slot, sim::Lockstep& clocks) override {
    program_.ps[0] = times_.of(slot);
    clocks.run({&program_});
    ++runs;
  }
  std::optional<std::uint64_t> same(int, const PipelineSlot& slot) const override {
    if (!tells_) return std::nullopt;
    return (static_cast<std::uint64_t>(slot.kind) * 64 + static_cast<std::uint64_t>(slot.chunk)) * 64 +
           static_cast<std::uint64_t>(slot.back_chunk);
  }
  int runs = 0;

 private:
  const PipelineTimes& times_;
  bool tells_;
  sim::LockstepProgram program_;
};

PipelineRun run(const PipelineShape& shape, const PipelineTimes& times, bool tells = false,
                std::size_t ranks = 1) {
  BlockPasses passes(times, tells);
  return run_pipeline(shape, pipeline_schedule(shape), times.transfers, ranks, {}, passes, true);
}

// In passes, of one stage.
std::int64_t computing(const PipelineShape& shape, const PipelineTimes& times, int stage) {
  std::int64_t sum = 0;
  const auto schedule = pipeline_schedule(shape);
  for (const PipelineSlot& slot : schedule[static_cast<std::size_t>(stage)]) sum += times.of(slot);
  return sum;
}

PipelineTimes equal_times(const PipelineShape& shape, std::int64_t forward, std::int64_t input,
                          std::int64_t weight) {
  const auto chunks = static_cast<std::size_t>(shape.chunks());
  PipelineTimes t;
  t.forward.assign(chunks, forward);
  t.backward.assign(chunks, input + weight);
  t.input_gradient.assign(chunks, input);
  t.weight_gradient.assign(chunks, weight);
  t.overlapped.assign(chunks * chunks, forward + input + weight);
  return t;
}

PipelineTimes drawn_times(const PipelineShape& shape, std::uint64_t seed) {
  PipelineTimes t = equal_times(shape, 0, 0, 0);
  Random random(seed);
  const auto draw = [&] { return static_cast<std::int64_t>(1 + random.below(1'000'000)); };
  for (std::size_t c = 0; c < t.forward.size(); ++c) {
    t.forward[c] = draw(), t.input_gradient[c] = draw(), t.weight_gradient[c] = draw();
    t.backward[c] = t.input_gradient[c] + t.weight_gradient[c];
  }
  for (std::int64_t& both : t.overlapped) both = draw();
  t.transfers.send.assign(t.forward.size() - 1, static_cast<std::int64_t>(random.below(300'000)));
  return t;
}

// Runs the passes as tasks: a stream per stage, messages as delays on separate streams.
std::int64_t simulated(const PipelineShape& shape, const std::vector<std::vector<PipelineSlot>>& schedule,
                       const PipelineTimes& times) {
  sim::TaskGraphBuilder builder;
  builder.add_ranks(static_cast<std::size_t>(shape.stages));
  const sim::LabelId label = builder.add_label("pass", sim::Category::other);
  std::map<std::tuple<int, int, bool>, std::pair<sim::TaskId, int>> ends;  // chunk, microbatch, backward
  struct Pending {
    sim::TaskId task;
    int stage;
    std::tuple<int, int, bool> needs;
  };
  std::vector<Pending> pending;
  const int chunks = shape.chunks();
  for (int s = 0; s < shape.stages; ++s) {
    const sim::StreamId stream =
        builder.add_stream(sim::RankId(static_cast<std::uint32_t>(s)), sim::StreamKind::compute);
    for (const PipelineSlot& slot : schedule[static_cast<std::size_t>(s)]) {
      const std::int64_t ps = times.of(slot);
      const sim::TaskId task = builder.add_compute(stream, sim::Time::from_ps(ps), label);
      const auto forward = [&](int chunk, int m) {
        if (chunk > 0) pending.push_back({task, s, {chunk - 1, m, false}});
        ends[{chunk, m, false}] = {task, s};
      };
      const auto backward = [&](int chunk, int m) {
        pending.push_back({task, s, {chunk, m, false}});
        if (chunk + 1 < chunks) pending.push_back({task, s, {chunk + 1, m, true}});
        ends[{chunk, m, true}] = {task, s};
      };
      if (slot.kind == Kind::kForward || slot.kind == Kind::kOverlapped) forward(slot.chunk, slot.microbatch);
      if (slot.kind == Kind::kBackward || slot.kind == Kind::kInputGradient)
        backward(slot.chunk, slot.microbatch);
      if (slot.kind == Kind::kOverlapped) backward(slot.back_chunk, slot.back_microbatch);
      if (slot.kind == Kind::kWeightGradient)
        pending.push_back({task, s, {slot.chunk, slot.microbatch, true}});
    }
  }
  for (const Pending& p : pending) {
    const auto& [before, stage] = ends.at(p.needs);
    if (before == p.task) continue;
    if (stage == p.stage) {
      builder.add_dependency(before, p.task);
      continue;
    }
    const sim::StreamId wire =
        builder.add_stream(sim::RankId(static_cast<std::uint32_t>(stage)), sim::StreamKind::comm);
    const sim::TaskId message = builder.add_delay(wire, sim::Time::from_ps(times.send()), label);
    builder.add_dependency(before, message);
    builder.add_dependency(message, p.task);
  }
  const sim::TaskGraph graph = builder.finalize();
  return sim::run(graph, NoCosts()).iteration().ps();
}

class PipelineRuns : public ::testing::TestWithParam<NamedShape> {};

TEST_P(PipelineRuns, TakeAsLongAsInTheSimulator) {
  const PipelineShape& shape = GetParam().shape;
  const auto schedule = pipeline_schedule(shape);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const PipelineTimes times = drawn_times(shape, seed);
    const std::int64_t expected = simulated(shape, schedule, times);
    EXPECT_EQ(run(shape, times).total, expected) << "seed " << seed;
    EXPECT_EQ(run(shape, times, true, 3).total, expected) << "seed " << seed;
  }
}

TEST_P(PipelineRuns, EqualPassesRunOnce) {
  const PipelineShape& shape = GetParam().shape;
  const PipelineTimes times = drawn_times(shape, 3);
  BlockPasses passes(times, true);
  run_pipeline(shape, pipeline_schedule(shape), times.transfers, 1, {}, passes, false);
  EXPECT_LE(passes.runs, shape.chunks() * (shape.chunks() + 4));
}

TEST_P(PipelineRuns, TheBookingAddsUp) {
  const PipelineShape& shape = GetParam().shape;
  PipelineTimes times = drawn_times(shape, 7);
  const auto chunks = static_cast<std::size_t>(shape.chunks());
  times.transfers.parameters.assign(chunks, 400'000);
  times.transfers.gradients.assign(chunks, 900'000);
  times.transfers.pieces.assign(chunks, 3);
  times.transfers.optimizer.assign(static_cast<std::size_t>(shape.stages), 50'000);
  const PipelineRun all = run(shape, times);
  std::int64_t booked = 0;
  for (const sim::Time part : all.booked.breakdown) booked += part.ps();
  EXPECT_EQ(booked, all.total);
  EXPECT_EQ(all.booked.breakdown[static_cast<std::size_t>(sim::Category::other)].ps(),
            computing(shape, times, all.critical_stage));
  EXPECT_EQ(all.booked.breakdown[static_cast<std::size_t>(sim::Category::optimizer)].ps(), 50'000);
  // Passes that run once are booked as those that run each time.
  EXPECT_TRUE(run(shape, times, true).booked.breakdown == all.booked.breakdown);
}

INSTANTIATE_TEST_SUITE_P(All, PipelineRuns, ::testing::ValuesIn(every_schedule()),
                         [](const auto& info) { return info.param.name; });

std::int64_t bubble(const PipelineShape& shape, std::int64_t f, std::int64_t b, std::int64_t w) {
  const PipelineTimes times = equal_times(shape, f, b, w);
  return run(shape, times).total - computing(shape, times, 0);
}

TEST(Bubbles, AreThePublishedOnes) {
  constexpr std::int64_t f = 300, b = 320, w = 280;
  for (const int p : {2, 4, 8}) {
    // arXiv 2104.04473, 2.2.1: (p - 1)(F + B); 2.2.2: interleaved, divided by v.
    EXPECT_EQ(bubble(shape_of(PipelineKind::k1F1B, p, 1, 4 * p), f, b, w), (p - 1) * (f + b + w));
    EXPECT_EQ(bubble(shape_of(PipelineKind::k1F1B, p, 2, 4 * p), f, b, w), (p - 1) * (f + b + w));
    // arXiv 2401.10241, table 2: ZB-H1, (p - 1)(F + B - W).
    EXPECT_EQ(bubble(shape_of(PipelineKind::kZeroBubble, p, 1, 4 * p), f, b, w), (p - 1) * (f + b - w));
    // arXiv 2412.19437, table 2: DualPipe, (p / 2 - 1)(F&B + B - 3 W), where B is a whole backward.
    EXPECT_EQ(bubble(shape_of(PipelineKind::kDualPipe, p, 1, 4 * p), f, b, w),
              (p / 2 - 1) * ((f + b + w) + (b + w) - 3 * w));
  }
}

TEST(Bubbles, GradientsTravelUnderBackward) {
  const PipelineShape shape = shape_of(PipelineKind::k1F1B, 1, 1, 4);
  PipelineTimes times = equal_times(shape, 1000, 1000, 1000);
  const auto more = [&] { return run(shape, times).total - 4 * 3000; };
  times.transfers.gradients = {1600};
  times.transfers.pieces = {8};
  // Alone after the step, all of it; beside the last backward (2,000 long), the last of eight pieces.
  times.transfers.gradients_overlap = false;
  EXPECT_EQ(more(), 1600);
  times.transfers.gradients_overlap = true;
  EXPECT_EQ(more(), 200);
  // Longer than the backward: what starts after its first layer (250) ends 4,250 - 2,000 late.
  times.transfers.gradients = {4000};
  EXPECT_EQ(more(), 2250);
  // Parameters the same way under the first forward.
  times.transfers.gradients.clear();
  times.transfers.parameters = {800};
  EXPECT_EQ(more(), 100);
  times.transfers.parameters_overlap = false;
  EXPECT_EQ(more(), 800);
  // Kernels that take a fifth of the SMs make computing a quarter slower as long as they run.
  times.transfers.computing_slower = 1.25;
  EXPECT_EQ(more(), 800);
  times.transfers.parameters_overlap = true;
  EXPECT_EQ(more(), 100 + 700 / 4);
  times.transfers.parameters.clear();
  times.transfers.gradients = {1600};
  EXPECT_EQ(more(), 400);
  times.transfers.gradients.clear();
  times.transfers.sharded = {{.forward = 400, .backward = 1200}};
  EXPECT_EQ(more(), 4 * (100 + 300));
}

// The order of every pipeline schedule: each pass once, what a stage holds, which shapes there are.

class Schedules : public ::testing::TestWithParam<NamedShape> {};

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

INSTANTIATE_TEST_SUITE_P(All, Schedules, ::testing::ValuesIn(every_schedule()),
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
