// The job behind a recording, and the job after a change: rows are conserved, popularity is kept.
#include "replay/job/job_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "made_job.h"
#include "replay/recording/gradients.h"
#include "tests/message_of.h"

namespace moesim::replay {
namespace {

using moesim::testing::message_of;
using ::testing::ElementsAre;

std::int64_t sum(const std::vector<std::int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

class RecordedModel : public ::testing::Test {
 protected:
  JobModel changed(const std::function<void(RecordingQuestion&)>& set) {
    RecordingQuestion change;
    set(change);
    return changed_job(model_, change, warnings_);
  }
  std::string refusal(const std::function<void(RecordingQuestion&)>& set) {
    return message_of([&] { changed(set); });
  }

  testing::MadeJob made_;
  JobModel model_ = job_model(made_.clean, made_.named(), made_.request);
  std::vector<std::string> warnings_;
};

// Sizes from names and calls; every rank receives what its combine brings back.
TEST_F(RecordedModel, IsTheRecordedJob) {
  EXPECT_EQ(model_.topology.str(), "pp4 tp1 ep4 dp4 (16 ranks)");
  EXPECT_EQ(model_.architecture.layers, 8);
  EXPECT_EQ(model_.architecture.experts, 8);
  EXPECT_EQ(model_.architecture.topk, 2);
  EXPECT_EQ(model_.tokens(), 1024);
  EXPECT_EQ(model_.layers_per_stage(), 2);
  EXPECT_TRUE(model_.routing_completed);
  std::vector<std::int64_t> received;
  received.reserve(4);
  for (int e = 0; e < 4; ++e) received.push_back(made_.clean.places.at({0, 0, e}).received_rows);
  EXPECT_EQ(model_.received(), received);
  EXPECT_EQ(sum(received), 4 * 1024 * 2);
  const models::MoeLayer layer = model_.moe_layer(8);
  EXPECT_EQ(layer.hidden, 4096);
  EXPECT_EQ(layer.expert_ffn, 14336);
  EXPECT_EQ(layer.ep, 4);
  EXPECT_TRUE(layer.routing_given);
  // Without the architecture, the built-in model with these sizes is found.
  EXPECT_EQ(job_model(made_.clean, made_.named()).architecture.expert_ffn, 14336);
}

// Half the expert ranks: neighbours are merged, and every rank still routes T*K rows.
TEST_F(RecordedModel, FewerExpertRanksAreMerged) {
  const std::vector<std::int64_t> before = model_.received();
  const std::vector<std::int64_t> after =
      changed([&](RecordingQuestion& c) { testing::say(c, "parallel.ep", 2); }).received();
  ASSERT_EQ(after.size(), 2u);
  EXPECT_EQ(sum(after), 2 * 1024 * 2);
  const double share = static_cast<double>(before[0] + before[1]) / static_cast<double>(sum(before));
  EXPECT_NEAR(static_cast<double>(after[0]) / static_cast<double>(sum(after)), share, 2.0 / (1024 * 2));
  EXPECT_TRUE(warnings_.empty());
}

// Where the recording shows the sum of a rank's experts only, they differ as much as the ranks do; evenly popular ones
// would be the best case.
TEST_F(RecordedModel, MoreExpertRanksAreWarnedOf) {
  const JobModel more = changed([&](RecordingQuestion& c) {
    testing::say(c, "parallel.ep", 8);
    testing::say(c, "parallel.dp", 8);
  });
  EXPECT_EQ(more.topology.expert, 8);
  const std::vector<std::int64_t> before = model_.received(), after = more.received();
  for (std::size_t e = 0; e < 4; ++e) {
    EXPECT_NEAR(static_cast<double>(after[2 * e] + after[2 * e + 1]), 2.0 * static_cast<double>(before[e]),
                32);
  }
  EXPECT_GT(std::ranges::max(after), 1.2 * static_cast<double>(std::ranges::max(before)));
  EXPECT_THAT(
      warnings_,
      ElementsAre(
          "the recording shows rows per expert rank of 4, not per expert: on 8 expert ranks the "
          "experts of a recorded rank differ as the ranks do, by the median of 101 draws; set --routing"));
}

TEST_F(RecordedModel, OtherExpertsAreHalvesOrSums) {
  const JobModel twice = changed([&](RecordingQuestion& c) { testing::say(c, "model.experts", 16); });
  EXPECT_EQ(twice.routing.experts(), 16);
  EXPECT_EQ(sum(twice.received()), 4 * 1024 * 2);
  EXPECT_THAT(warnings_,
              ElementsAre("the routing of 16 experts follows from that of 8 by halves of equal popularity: "
                          "another router would choose otherwise; set --routing"));
  EXPECT_EQ(
      refusal([&](RecordingQuestion& c) { testing::say(c, "model.experts", 12); }),
      "found 12 experts from a recording of 8, expected a multiple or a divisor of them, so that experts "
      "can be split or merged");
}

TEST_F(RecordedModel, LongerSequencesRouteMoreRows) {
  const JobModel longer = changed([&](RecordingQuestion& c) { testing::say(c, "parallel.seq", 2048); });
  const std::vector<std::int64_t> before = model_.received(), after = longer.received();
  EXPECT_EQ(longer.tokens(), 2048);
  for (std::size_t e = 0; e < 4; ++e)
    EXPECT_NEAR(static_cast<double>(after[e]), 2.0 * static_cast<double>(before[e]), 16);
}

// Rows that another recording shows are taken as they are; they must be all.
TEST_F(RecordedModel, ReceivedRowsAreTaken) {
  const std::vector<std::int64_t> rows{4000, 2192, 1500, 500};
  EXPECT_EQ(changed([&](RecordingQuestion& c) { c.received = rows; }).received(), rows);
  EXPECT_EQ(refusal([&](RecordingQuestion& c) {
              c.received = std::vector<std::int64_t>{4000, 1};
            }),
            "found 4001 rows received by 2 expert ranks, expected 8192 on 4");
}

TEST_F(RecordedModel, RefusesSizesThatDoNotDivide) {
  EXPECT_EQ(refusal([&](RecordingQuestion& c) { testing::say(c, "parallel.ep", 3); }),
            "found ep 3 with dp 4, expected an ep that divides dp");
  EXPECT_EQ(refusal([&](RecordingQuestion& c) { testing::say(c, "parallel.ep", 1); }),
            "found --ep 1, expected at least 2: a layer without exchanges was not recorded");
  EXPECT_EQ(refusal([&](RecordingQuestion& c) { testing::say(c, "parallel.pp", 3); }),
            "found pp 3 with 8 layers, expected a pp that divides the layers");
  traces::NamedTopology nameless = made_.named();
  nameless.seq.reset();
  EXPECT_EQ(
      message_of([&] { job_model(made_.clean, nameless, made_.request); }),
      "found no sequence length in the names of the recording, expected sl<N> in the folder's name, or --seq");
}

// Two sequences of a microbatch are twice the rows, and so are twice the experts of a token.
TEST_F(RecordedModel, SequencesOfAMicrobatchAreNotTakenForChoices) {
  traces::NamedTopology half = made_.named();
  half.seq = 512;
  half.micro_batch.reset();
  EXPECT_THAT(
      message_of([&] { job_model(made_.clean, half); }),
      ::testing::MatchesRegex("found 2048 rows in a dispatch of 512 tokens, where .* chooses 2 experts, "
                              "expected bs<N> in the folder's name, the sequences of a microbatch"));
  half.micro_batch = 2;
  EXPECT_EQ(job_model(made_.clean, half).architecture.topk, 2);
  half.micro_batch = 1;
  EXPECT_EQ(job_model(made_.clean, half).architecture.topk, 4);
}

TEST_F(RecordedModel, NamesAreThoseOfTheChangedJob) {
  const traces::NamedTopology named = names_of(changed([&](RecordingQuestion& c) {
                                                 testing::say(c, "parallel.ep", 2);
                                                 testing::say(c, "parallel.dp", 8);
                                                 testing::say(c, "parallel.pp", 2);
                                               }),
                                               made_.named());
  EXPECT_EQ(named.world, 16);
  EXPECT_EQ(named.pp, 2);
  EXPECT_EQ(named.ep, 2);
  EXPECT_EQ(named.dp, 8);
  EXPECT_EQ(named.seq, 1024);
}

// Two layers of a stage: attention, two norms and the router; two experts of three matrices on each rank.
TEST_F(RecordedModel, GradientsOfAStageByHand) {
  const std::int64_t H = 4096, F = 14336, attention = H * (H + 2 * 1024) + H * H;
  const auto of = [&](bool embedding, bool head) {
    return stage_elements(model_.architecture, model_.topology, embedding, head);
  };
  const GradientSizes middle = of(false, false), first = of(true, false), last = of(false, true);
  EXPECT_EQ(middle.dense, 2 * (attention + 2 * H + 8 * H));
  EXPECT_EQ(middle.expert, 2 * 2 * 3 * H * F);
  EXPECT_EQ(first.dense - middle.dense, model_.architecture.vocabulary * H);
  EXPECT_EQ(last.dense - middle.dense, model_.architecture.vocabulary * H + H);
}

}  // namespace
}  // namespace moesim::replay
