// Checks of programs: bytes in balance, positions that match, orders without a cycle (rules P and F).
#include "models/programs/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/programs/program_builder.h"
#include "tests/models/check_bytes.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

Program one_exchange(std::int64_t received_by_last) {
  ProgramBuilder b(2, 1);
  b.begin(ProgramBuilder::Pass::kForward);
  const int matrix = b.matrix(GroupKind::kEp, {1, 2, 3, 4});
  const int at = b.all_to_all_v("rows", sim::Category::dispatch, DType::kBf16, matrix, false, 10);
  if (received_by_last >= 0)
    b.ops()[static_cast<std::size_t>(at)].rx = b.per_rank(Numbers{30, received_by_last});
  return b.finish();
}

TEST(CheckBytes, SentIsReceived) {
  EXPECT_TRUE(check_bytes(one_exchange(-1)).empty());
  EXPECT_EQ(check_bytes(one_exchange(21)),
            std::vector<std::string>{"forward all_to_all_v of rows: group 0 sends 50 bytes and receives 51"});
}

TEST(CheckBytes, InAndOutFitTheKind) {
  ProgramBuilder b(2, 1);
  b.begin(ProgramBuilder::Pass::kForward);
  b.all_gather(GroupKind::kEp, "rows", sim::Category::dispatch, DType::kBf16, 8);
  b.ops().back().out = b.uniform(8);
  b.all_reduce(GroupKind::kEp, "sum", sim::Category::dispatch, DType::kBf16, 8);
  b.ops().back().out = b.uniform(4);
  const std::vector<std::string> faults = check_bytes(b.finish());
  EXPECT_THAT(faults, ::testing::ElementsAre("forward all_gather of rows: rank 0: out is not 2 x in",
                                             "forward all_gather of rows: rank 1: out is not 2 x in",
                                             "forward all_reduce of sum: rank 0: in and out differ",
                                             "forward all_reduce of sum: rank 1: in and out differ"));
}

TEST(CheckBytes, AnUnevenExchangeIsItsMatrix) {
  ProgramBuilder b(2, 1);
  b.begin(ProgramBuilder::Pass::kForward);
  const int matrix = b.matrix(GroupKind::kEp, {1, 2, 3, 4});
  b.all_to_all_v("rows", sim::Category::dispatch, DType::kBf16, matrix, false, 10);
  b.ops().back().transposed = true;  // margins of the way there, matrix of the way back
  EXPECT_THAT(
      check_bytes(b.finish()),
      ::testing::ElementsAre(
          "forward all_to_all_v of rows: rank 0 does not send and receive what the split matrix says",
          "forward all_to_all_v of rows: rank 1 does not send and receive what the split matrix says"));
}

IssuedCollective uneven(std::vector<std::int64_t> sends, std::vector<std::int64_t> receives) {
  IssuedCollective c;
  c.name = "dispatch";
  c.sends = std::move(sends);
  c.receives = std::move(receives);
  return c;
}

TEST(MatchPositions, KindTypeAndSizeAgree) {
  IssuedCollective gather;
  gather.name = "counts";
  gather.kind = CommKind::kAllGather;
  gather.bytes = 64;
  IssuedCollective other = gather;
  using Members = std::vector<std::vector<IssuedCollective>>;
  EXPECT_FALSE(match_positions(Members{{gather}, {other}}));
  other.bytes = 32;
  EXPECT_TRUE(match_positions(Members{{gather}, {other}}));
  other = gather;
  other.dtype = DType::kFp32;
  EXPECT_EQ(
      match_positions(Members{{gather, gather}, {gather, other}})->text,
      "mismatch at position 2, rank 1: member 0 issues counts (all_gather bf16), member 1 issues counts "
      "(all_gather fp32); hang");
  EXPECT_EQ(
      match_positions(Members{{gather}, {gather, gather}})->text,
      "mismatch at position 2, rank 1: member 0 issues nothing, member 1 issues counts (all_gather bf16); "
      "hang");
}

// Members 1 and 2 agree with member 0 and not with each other.
TEST(MatchPositions, EveryPairExpectsWhatThePeerSends) {
  using Members = std::vector<std::vector<IssuedCollective>>;
  const IssuedCollective zero = uneven({0, 1, 1}, {0, 1, 1});
  EXPECT_FALSE(
      match_positions(Members{{zero}, {uneven({1, 0, 5}, {1, 0, 7})}, {uneven({1, 7, 0}, {1, 5, 0})}}));
  const auto mismatch =
      match_positions(Members{{zero}, {uneven({1, 0, 5}, {1, 0, 7})}, {uneven({1, 7, 0}, {1, 6, 0})}});
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->ranks, (std::vector<int>{1, 2}));
}

TEST(Issued, IsTheSequenceOfEveryMember) {
  const Example example;
  const Program p = build("alltoall", example.layer);
  const auto members = issued(p, p.forward(), GroupKind::kEp, 0, "layer 3 ");
  ASSERT_EQ(members.size(), 4u);
  for (const auto& member : members) ASSERT_EQ(member.size(), 3u);  // tokens, probabilities, tokens back
  EXPECT_EQ(members[1][0].name, "layer 3 tokens");
  EXPECT_EQ(members[1][0].sends, (Numbers{8, 4, 2, 2}));
  EXPECT_EQ(members[1][0].receives, (Numbers{4, 4, 3, 3}));
  EXPECT_EQ(members[1][2].sends, members[1][0].receives);
}

TEST(FindOrderCycle, FindsAnInterleavingDeadlock) {
  // Rule F: rank 0 reduces parameters (communicator 1) between the two exchanges (communicator 0), rank 1
  // after them.
  const std::vector<std::vector<IssuedPosition>> order{{{0, 0}, {1, 0}, {0, 1}}, {{0, 0}, {0, 1}, {1, 0}}};
  const auto cycle = find_order_cycle(order);
  ASSERT_TRUE(cycle);
  EXPECT_EQ(cycle->size(), 2u);
  const std::vector<std::vector<IssuedPosition>> fine{{{0, 0}, {0, 1}, {1, 0}}, {{0, 0}, {0, 1}, {1, 0}}};
  EXPECT_FALSE(find_order_cycle(fine));
}

// Three ranks, three pairs: each enters its two communicators in another order, and the waits close a ring.
TEST(FindOrderCycle, FindsARingOfThree) {
  const std::vector<std::vector<IssuedPosition>> ring{{{0, 0}, {1, 0}}, {{1, 0}, {2, 0}}, {{2, 0}, {0, 0}}};
  const auto cycle = find_order_cycle(ring);
  ASSERT_TRUE(cycle);
  EXPECT_EQ(cycle->size(), 3u);
}

}  // namespace
}  // namespace moesim::models::testing
