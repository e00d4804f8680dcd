// From a recording and a user's wishes to a job: what changes, on which machine, and what cannot be derived.
#include "replay/run/requested_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/input_error.h"
#include "made_job.h"
#include "tests/message_of.h"

namespace moesim::replay {
namespace {

using testing::deep_job;
using ::testing::HasSubstr;

class Requested : public ::testing::Test {
 protected:
  std::string refusal(const RecordingQuestion& request) const {
    const std::string found =
        moesim::testing::message_of([&] { requested_job(made_.clean, made_.named(), request); });
    return found.empty() ? "nothing was refused" : found;
  }
  testing::MadeJob made_;
};

TEST_F(Requested, RefusesWhatCannotBeDerived) {
  RecordingQuestion request = made_.request;
  testing::say(request, "parallel.ep", 3);
  EXPECT_THAT(refusal(request), HasSubstr("found ep 3 with dp 4, expected an ep that divides dp"));
  request = made_.request;
  testing::say(request, "parallel.ep", 1);
  EXPECT_THAT(refusal(request), HasSubstr("--ep 1"));
  request = made_.request;
  testing::say(request, "parallel.pp", 3);
  EXPECT_THAT(refusal(request), HasSubstr("found pp 3 with 8 layers, expected a pp that divides the layers"));
  request = made_.request;
  testing::say(request, "model.experts", 12);
  EXPECT_THAT(refusal(request), HasSubstr("found 12 experts from a recording of 8"));
  request = made_.request;
  testing::say(request, "dispatcher", "alltoal");
  EXPECT_THAT(refusal(request), HasSubstr("alltoal"));
  request = made_.request;
  testing::say(request, "dispatcher", "allgather,alltoall");
  EXPECT_THAT(refusal(request), HasSubstr("found 2 dispatchers"));
  request = made_.request;
  testing::say(request, "cluster", "echo-h800x1");
  EXPECT_THAT(refusal({request}), HasSubstr("nothing was refused"));  // forecast() refuses it
  testing::say(request, "parallel.seq", 2048);
  EXPECT_THAT(refusal(request), HasSubstr("found a job of 16 ranks, expected at most the 8 GPUs"));
}

TEST_F(Requested, NoWishLeavesTheRecordingAsItIs) {
  const RequestedJob job = requested_job(made_.clean, made_.named(), made_.request);
  EXPECT_EQ(job.changes, "");
  EXPECT_EQ(job.clean.places.size(), made_.clean.places.size());
  EXPECT_EQ(job.cluster.name, "echo-h800x2");  // as many nodes as 16 ranks need
  EXPECT_TRUE(job.warnings.empty());
  // Nothing to draw apart where nothing changes.
  EXPECT_FALSE(drawn_jobs(made_.clean, made_.named(), made_.request).job);
}

TEST_F(Requested, SaysWhatDiffers) {
  RecordingQuestion request = made_.request;
  testing::say(request, "parallel.pp", 2);
  testing::say(request, "routing", "balanced");
  testing::say(request, "dispatcher", "allgather");
  const RequestedJob job = requested_job(made_.clean, made_.named(), request);
  EXPECT_EQ(
      job.changes,
      "pp2 tp1 ep4 dp4 (8 ranks) instead of pp4 tp1 ep4 dp4 (16 ranks), another routing, allgather instead "
      "of alltoall-legacy");
  EXPECT_EQ(job.named.pp, 2);
  EXPECT_EQ(job.clean.topology.world(), 8);
}

// More nodes are filled with data parallelism.
TEST_F(Requested, NodesAreFilled) {
  RecordingQuestion request = made_.request;
  testing::say(request, "cluster.nodes", 4);
  const RequestedJob job = requested_job(made_.clean, made_.named(), request);
  EXPECT_EQ(job.cluster.nodes, 4);
  EXPECT_EQ(job.clean.topology.dp(), 32 / 4);
  testing::say(request, "parallel.ep", 3);
  EXPECT_THAT(refusal(request), HasSubstr("expected a multiple of pp 4 x ep 3: set --dp"));
}

TEST(ClusterOf, IsTheAskedOneOrAsManyEchoNodesAsNeeded) {
  RecordingQuestion request;
  EXPECT_EQ(cluster_of(request, {.expert = 4}).name, "echo-h800x1");
  EXPECT_EQ(cluster_of(request, {.expert = 4, .expert_dp = 3}).name, "echo-h800x2");
  testing::say(request, "cluster", "dgx-h100x2");
  testing::say(request, "cluster.nodes", 5);
  EXPECT_EQ(cluster_of(request, {.expert = 4}).name, "dgx-h100x5");
  EXPECT_EQ(cluster_of(request, {.expert = 4}).nodes, 5);
}

TEST(RequestedRun, SizesOfARunAreRefused) {
  const SyntheticRecordings made = synthesize(deep_job());
  const RecordedJob run = interpret(made.realistic);
  RecordingQuestion request;
  testing::say(request, "parallel.seq", 2048);
  EXPECT_THROW(requested_run(run, made.realistic.named, request), InputError);
}

TEST(RequestedRun, ARunTakesAnotherDispatcher) {
  const testing::MadeJob made;
  const RecordedJob run = interpret(made.made.realistic);
  RecordingQuestion request = made.request;
  const auto plans = [&] { return requested_run(run, made.made.realistic.named, request); };
  EXPECT_EQ(plans().changes, "");
  testing::say(request, "dispatcher", "allgather-legacy");
  const RequestedJob other = plans();
  EXPECT_EQ(other.changes, "allgather-legacy instead of alltoall-legacy");
  for (const RankSteps& plan : other.plans)
    for (const Step& step : plan.steps)
      for (const Call& call : step.calls)
        if (step.kind == StepKind::forward) {
          EXPECT_FALSE(is_exchange(call));
        }
}

}  // namespace
}  // namespace moesim::replay
