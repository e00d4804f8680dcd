// One layer of a job under a dispatcher, cut at its calls as a recording is.
#include "replay/job/layer_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "made_job.h"
#include "replay/job/job_model.h"
#include "tests/message_of.h"

namespace moesim::replay {
namespace {

using moesim::testing::message_of;
using Part = LayerModel::Part;

class Layer : public ::testing::Test {
 protected:
  LayerModel under(const char* dispatcher) const {
    return {job_, models::DispatcherSpec::parse(dispatcher), made_.spec.cluster};
  }

  testing::MadeJob made_;
  JobModel job_ = job_model(made_.clean, made_.named(), made_.request);
};

// Counts, dispatch, combine; in backward the two exchanges. The experts work between dispatch and combine.
TEST_F(Layer, IsCutAtItsCalls) {
  const LayerModel model = under("alltoall-legacy");
  EXPECT_EQ(model.calls(Pass::forward), 3u);
  EXPECT_EQ(model.calls(Pass::backward), 2u);
  for (std::size_t s = 0; s < 4; ++s) EXPECT_EQ(model.has_experts(Pass::forward, s), s == 2) << s;
  for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(model.has_experts(Pass::backward, s), s == 1) << s;
  const std::uint64_t row = 4096 * 2;
  for (int e = 0; e < 4; ++e) {
    EXPECT_EQ(model.call_rows(Pass::forward, 1, e, row), 1024 * 2);
    EXPECT_EQ(model.call_rows(Pass::forward, 2, e, row), job_.received()[static_cast<std::size_t>(e)]);
    EXPECT_EQ(model.call_rows(Pass::backward, 1, e, row), job_.received()[static_cast<std::size_t>(e)]);
  }
}

TEST_F(Layer, CallsAreThoseOfItsProgram) {
  const LayerModel model = under("alltoall-legacy");
  const Call dispatch = model.call(Pass::forward, 1, 5);  // rank 5: expert rank 1 of stage 1
  EXPECT_EQ(dispatch.op, sim::CollectiveOp::all_to_all);
  EXPECT_EQ(dispatch.group, GroupKind::expert);
  EXPECT_EQ(dispatch.input_bytes(), 1024u * 2 * 4096 * 2);
  EXPECT_EQ(dispatch.category, sim::Category::dispatch);
  ASSERT_TRUE(dispatch.modelled_us);
  EXPECT_GT(*dispatch.modelled_us, 0);
  EXPECT_EQ(under("allgather").call(Pass::forward, 0, 0).group, GroupKind::tp_expert);
}

TEST_F(Layer, CallsThatMoveTheSameBytesAreTheSame) {
  const LayerModel model = under("alltoall-legacy"), titan = under("torchtitan-alltoall"),
                   gather = under("allgather-legacy");
  for (std::size_t c = 0; c < 3; ++c) EXPECT_TRUE(model.same_call(Pass::forward, c, model, c));
  EXPECT_FALSE(model.same_call(Pass::forward, 1, model, 2));  // there and back
  EXPECT_TRUE(model.same_call(Pass::forward, 1, titan, 1));   // the same rows to the same experts
  EXPECT_FALSE(model.same_call(Pass::forward, 0, titan, 0));  // counts gathered, or exchanged
  EXPECT_FALSE(model.same_call(Pass::forward, 1, gather, 0));
}

// The host launches one operation after the other: never faster than its launches, never than the device.
TEST_F(Layer, SegmentsTakeTheHostOrTheDevice) {
  const LayerModel model = under("alltoall-legacy");
  for (const Part part : {Part::dispatcher, Part::experts})
    for (std::size_t s = 0; s < 4; ++s) {
      const int launches = model.launches(Pass::forward, s, part);
      double before = 0;
      for (const double launch_us : {0.0, 5.0, 50.0, 5000.0}) {
        const double us = model.segment_us(Pass::forward, s, part, 0, launch_us);
        EXPECT_GE(us, launches * launch_us);
        EXPECT_GE(us, before);
        before = us;
      }
    }
  // More rows take longer.
  const auto received = job_.received();
  const auto [least, most] = std::minmax_element(received.begin(), received.end());
  ASSERT_LT(*least, *most);
  const auto experts = [&](auto at) {
    return model.segment_us(Pass::forward, 2, Part::experts, static_cast<int>(at - received.begin()), 0);
  };
  EXPECT_LT(experts(least), experts(most));
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    for (const auto part :
         {LayerModel::Dense::layer, LayerModel::Dense::embedding, LayerModel::Dense::head}) {
      EXPECT_GT(model.dense_us(part, pass, 0), 0);
      EXPECT_GT(model.dense_us(part, pass, 10), model.dense_us(part, pass, 0));
    }
  }
}

// Segments that were made with some launch time are found to have it.
TEST_F(Layer, RecordedLaunchTimesAreFound) {
  const LayerModel model = under("alltoall-legacy");
  for (const double launch_us : {20.0, 80.0}) {
    std::vector<std::vector<double>> recorded(4, std::vector<double>(4));
    for (std::size_t s = 0; s < 4; ++s)
      for (std::size_t e = 0; e < 4; ++e)
        recorded[s][e] = model.segment_us(Pass::forward, s, Part::dispatcher, static_cast<int>(e), launch_us);
    EXPECT_NEAR(recorded_launch_us(model, made_.spec.cluster, recorded), launch_us, 0.1);
  }
  // Never below the profile's own.
  const std::vector<std::vector<double>> nothing(4, std::vector<double>(4, 0));
  EXPECT_NEAR(recorded_launch_us(model, made_.spec.cluster, nothing),
              made_.spec.cluster.profile.launch().kernel * 1e6, 1e-9);
}

TEST_F(Layer, TheRecordersDispatcherIsFoundByItsCalls) {
  const Step& forward = *made_.clean.places.begin()->second.find(StepKind::forward);
  EXPECT_EQ(recorded_dispatcher(job_, made_.spec.cluster, forward).name, "alltoall-legacy");
  Step fewer = forward;
  fewer.calls.pop_back();
  EXPECT_EQ(
      message_of([&] { recorded_dispatcher(job_, made_.spec.cluster, fewer); }),
      "found 5 calls in a forward step of 2 layers, expected those of the AlltoAll or AllGather dispatcher "
      "in every layer");
}

TEST_F(Layer, RefusesIllegalDispatchersAndSmallClusters) {
  EXPECT_EQ(message_of([&] { under("torchtitan-local"); }),
            "--dispatcher: dispatcher torchtitan-local: it is for ep 1: every rank holds all experts");
  const models::Cluster small = models::Cluster::load("echo-h800x1");
  EXPECT_THAT(
      message_of([&] { LayerModel(job_, models::DispatcherSpec::parse("alltoall"), small); }),
      ::testing::HasSubstr("found a job of 16 ranks, expected at most the 8 GPUs of cluster echo-h800x1"));
}

}  // namespace
}  // namespace moesim::replay
