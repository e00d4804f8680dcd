// The builder: bytes of every collective (docs/spec.md 1.3), who waits for whom, what is held when.
#include "models/programs/program_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "models/programs/check.h"
#include "models/programs/interleave.h"
#include "models/programs/memory.h"
#include "models/programs/program.h"
#include "tests/models/check_bytes.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

using Pass = ProgramBuilder::Pass;
using Piece = std::tuple<int, int, int, int>;
using sim::Category;

// Four ranks, x = 12 bytes: the table of docs/spec.md 1.3.
TEST(ProgramBuilder, BytesOfEqualCollectives) {
  ProgramBuilder b(4, 1);
  b.begin(Pass::kForward);
  b.all_gather(GroupKind::kEp, "all-gather", Category::dispatch, DType::kBf16, 12);
  b.reduce_scatter(GroupKind::kEp, "reduce-scatter", Category::dispatch, DType::kBf16, 12);
  b.all_reduce(GroupKind::kEp, "all-reduce", Category::dispatch, DType::kBf16, 12);
  b.all_to_all(GroupKind::kEp, "all-to-all", Category::dispatch, DType::kBf16, 12);
  const Program p = b.finish();
  expect_messages(p, p.forward(),
                  {{"all-gather", {12}, {48}, {36}, {36}},
                   {"reduce-scatter", {48}, {12}, {36}, {36}},
                   {"all-reduce", {12}, {12}, {18}, {18}},
                   {"all-to-all", {12}, {12}, {9}, {9}}});
}

// Splits [1 2; 3 4] rows of 10 bytes; the own part stays. Pieces of 3 and 5 rows: a rank forwards all but its
// successor's, and receives all but its own; the reduce-scatter is the mirror.
TEST(ProgramBuilder, BytesOfUnevenCollectives) {
  ProgramBuilder b(2, 1);
  b.begin(Pass::kForward);
  const int matrix = b.matrix(GroupKind::kEp, {1, 2, 3, 4});
  b.all_to_all_v("there", Category::dispatch, DType::kBf16, matrix, false, 10);
  b.all_to_all_v("back", Category::combine, DType::kBf16, matrix, true, 10);
  const Numbers pieces{3, 5};
  b.all_gather_v(GroupKind::kEp, "gather", Category::dispatch, DType::kBf16, pieces, 10);
  b.reduce_scatter_v(GroupKind::kEp, "scatter", Category::combine, DType::kBf16, pieces, 10);
  const Program p = b.finish();
  expect_messages(p, p.forward(),
                  {{"there", {30, 70}, {40, 60}, {20, 30}, {30, 20}},
                   {"back", {40, 60}, {30, 70}, {30, 20}, {20, 30}},
                   {"gather", {30, 50}, {80}, {30, 50}, {50, 30}},
                   {"scatter", {80}, {30, 50}, {50, 30}, {30, 50}}});
  EXPECT_TRUE(check_bytes(p).empty());
}

TEST(ProgramBuilder, GroupsOfOneDoNothing) {
  ProgramBuilder b(3, 1);
  b.begin(Pass::kForward);
  const Numbers pieces{1, 2, 3};
  EXPECT_EQ(b.all_gather(GroupKind::kTp, "a", Category::dispatch, DType::kBf16, 8), -1);
  EXPECT_EQ(b.all_reduce(GroupKind::kTp, "b", Category::dispatch, DType::kBf16, 8), -1);
  EXPECT_EQ(b.all_gather_v(GroupKind::kTp, "c", Category::dispatch, DType::kBf16, pieces, 8), -1);
  EXPECT_EQ(b.last(), -1);
}

TEST(ProgramBuilder, RefusesRowsBeyond32Bits) {
  ProgramBuilder b(1, 1);
  EXPECT_EQ(moesim::testing::message_of([&] { b.matrix(GroupKind::kEp, {std::int64_t{1} << 32}); }),
            "routing: found 4294967296 rows between two ranks, expected less than 2^32");
  EXPECT_NO_THROW(b.matrix(GroupKind::kEp, {(std::int64_t{1} << 32) - 1}));
}

// An operation waits for the previous one on another stream; its own stream is in order anyway.
TEST(ProgramBuilder, WaitsForTheOperationBefore) {
  ProgramBuilder b(2, 1);
  b.begin(Pass::kForward);
  const auto kernel = [&](const char* name) {
    return b.kernel(name, Category::other, KernelClass::kElementwise, b.uniform(1), b.uniform(1));
  };
  const int first = kernel("first");
  const int gather = b.all_gather(GroupKind::kEp, "gather", Category::other, DType::kBf16, 8);
  const int second = kernel("second"), third = kernel("third");
  EXPECT_EQ(b.ops()[static_cast<std::size_t>(gather)].after[0], first);
  EXPECT_EQ(b.ops()[static_cast<std::size_t>(second)].after[0], gather);
  EXPECT_EQ(b.ops()[static_cast<std::size_t>(third)].after[0], -1);
  // Detached: the next operation waits for its predecessor, and dependents join it.
  const int beside = b.all_gather(GroupKind::kEp, "beside", Category::other, DType::kBf16, 8);
  b.detach();
  const int meanwhile = kernel("meanwhile");
  b.join(beside);
  const int joined = kernel("joined");
  EXPECT_EQ(b.ops()[static_cast<std::size_t>(meanwhile)].after[0], -1);
  EXPECT_EQ(b.ops()[static_cast<std::size_t>(joined)].after[0], beside);
  // On a stream of its own nothing waits for it.
  b.beside(Stream::kShared);
  const int shared = kernel("shared"), after = kernel("after");
  EXPECT_EQ(b.ops()[static_cast<std::size_t>(shared)].stream, Stream::kShared);
  EXPECT_EQ(b.ops()[static_cast<std::size_t>(shared)].after[0], -1);
  EXPECT_EQ(b.ops()[static_cast<std::size_t>(after)].after[0], -1);
}

// A copy on the compute stream and a wait of the host for it; apart, the copy runs on a stream of its own.
TEST(ProgramBuilder, TheHostWaitsForCopies) {
  ProgramBuilder b(2, 1);
  b.begin(Pass::kForward);
  const int wait = b.host_sync("both", Category::host_sync, b.uniform(8));
  const Op& waiting = b.ops()[static_cast<std::size_t>(wait)];
  EXPECT_EQ(waiting.kind, OpKind::kHostWait);
  EXPECT_EQ(waiting.after[0], wait - 1);
  EXPECT_EQ(b.ops()[static_cast<std::size_t>(wait - 1)].stream, Stream::kCompute);
  const int kernel = b.kernel("k", Category::other, KernelClass::kElementwise, b.uniform(1), b.uniform(1));
  const int copy = b.copy_to_host("apart", Category::host_sync, b.uniform(8), kernel);
  EXPECT_EQ(b.ops()[static_cast<std::size_t>(copy)].stream, Stream::kCopy);
  EXPECT_EQ(b.ops()[static_cast<std::size_t>(copy)].after[0], kernel);
  const int next = b.kernel("n", Category::other, KernelClass::kElementwise, b.uniform(1), b.uniform(1));
  EXPECT_EQ(b.ops()[static_cast<std::size_t>(next)].after[0], -1);  // nothing waits for the copy
}

TEST(ProgramBuilder, PeaksFollowFromWhatIsHeld) {
  ProgramBuilder b(2, 1);
  const Numbers rows{1, 2};
  b.begin(Pass::kForward);
  b.save("kept", b.scaled(rows, 100));
  b.allocate("buffer", b.scaled(rows, 10, 5));  // 15, 25
  b.free("buffer", b.scaled(rows, 10, 5));
  b.begin(Pass::kBackward);
  b.allocate("gradient", b.uniform(40));
  b.free("gradient", b.uniform(40));
  const Program p = b.finish();
  EXPECT_EQ(p.saved_bytes, (Numbers{100, 200}));
  EXPECT_EQ(p.peak_forward_bytes, (Numbers{115, 225}));
  EXPECT_EQ(p.peak_backward_bytes, (Numbers{140, 240}));
}

// Forward runs again in backward; only the input stays in between, and what waits still waits for the same.
TEST(ProgramBuilder, RecomputesAll) {
  ProgramBuilder b(2, 1);
  b.begin(Pass::kForward);
  b.kernel("forward", Category::other, KernelClass::kElementwise, b.uniform(1), b.uniform(1));
  b.save("kept", b.uniform(100));
  b.begin(Pass::kBackward);
  b.kernel("backward", Category::other, KernelClass::kElementwise, b.uniform(1), b.uniform(1));
  b.all_gather(GroupKind::kEp, "gather", Category::other, DType::kBf16, 8);
  b.recompute_all(b.uniform(7));
  const Program p = b.finish();
  EXPECT_EQ(p.saved_bytes, Numbers(2, 7));
  EXPECT_EQ(p.peak_backward_bytes, Numbers(2, 107));
  ASSERT_EQ(named(p.backward(), "forward").size(), 1u);
  const auto place = [&](std::string_view name) {
    for (std::size_t i = 0; i < p.backward().size(); ++i)
      if (p.backward()[i].name == name) return static_cast<int>(i);
    return -1;
  };
  EXPECT_LT(place("forward"), place("backward"));
  EXPECT_EQ(the(p.backward(), "gather").after[0], place("backward"));
}

// Only some ranks issue kernels; collectives are everybody's.
TEST(ProgramBuilder, SomeRanksIssueKernelsAllIssueCollectives) {
  ProgramBuilder b(2, 1);
  b.begin(Pass::kForward);
  const Numbers first{3, 0}, all{1, 1};
  b.only_on(first);
  const int some = b.kernel("some", Category::other, KernelClass::kElementwise, b.uniform(1), b.uniform(1));
  const int gather = b.all_gather(GroupKind::kEp, "gather", Category::other, DType::kBf16, 8);
  b.only_on(all);
  const int every = b.kernel("every", Category::other, KernelClass::kElementwise, b.uniform(1), b.uniform(1));
  const Program p = b.finish();
  const auto op = [&](int i) { return p.forward()[static_cast<std::size_t>(i)]; };
  EXPECT_TRUE(p.issues(op(some), 0));
  EXPECT_FALSE(p.issues(op(some), 1));
  EXPECT_TRUE(p.issues(op(gather), 1));
  EXPECT_TRUE(p.issues(op(every), 1));
}

// Programs: who is in which group, what operations are called, who issues them.

constexpr GroupKind kEveryKind[] = {GroupKind::kTpEp, GroupKind::kEp, GroupKind::kTp, GroupKind::kDense};

// rank = etp + ETP * ep: with ETP 2 and EP 3 the EP groups are {0,2,4} and {1,3,5}, the ETP groups {0,1}...
TEST(Program, GroupsOfExpertTensorParallelRanks) {
  const Program p(3, 2, 2);
  EXPECT_EQ(p.ranks(), 6);
  EXPECT_EQ(p.group_size(GroupKind::kEp), 3);
  EXPECT_EQ(p.group_count(GroupKind::kEp), 2);
  EXPECT_EQ(p.rank_of(GroupKind::kEp, 1, 2), 5);
  EXPECT_EQ(p.rank_of(GroupKind::kTp, 1, 0), 2);
  EXPECT_EQ(p.group_count(GroupKind::kTp), 3);
  EXPECT_EQ(p.group_count(GroupKind::kTpEp), 1);
  EXPECT_EQ(p.rank_of(GroupKind::kDense, 2, 1), 5);  // consecutive blocks of the tensor-parallel size
}

RC_GTEST_PROP(Program, RanksAndMembersAreInverse, ()) {
  const int ep = *rc::gen::inRange(1, 6), etp = *rc::gen::inRange(1, 5);
  const Program p(ep, etp, *rc::gen::element(1, etp, ep * etp));
  for (const GroupKind kind : kEveryKind) {
    if (p.ranks() % p.group_size(kind) != 0) continue;
    std::set<int> all;
    for (int group = 0; group < p.group_count(kind); ++group)
      for (int member = 0; member < p.group_size(kind); ++member) {
        const int rank = p.rank_of(kind, group, member);
        RC_ASSERT(all.insert(rank).second);
        RC_ASSERT(p.group_index(kind, rank) == group);
        RC_ASSERT(p.member_index(kind, rank) == member);
      }
    RC_ASSERT(static_cast<int>(all.size()) == p.ranks());
  }
}

// A dispatch group that the tensor-parallel groups do not divide stands in one group.
TEST(Program, ALargerTensorParallelGroupIsOneGroup) {
  const Program p(2, 1, 8);
  EXPECT_EQ(p.group_size(GroupKind::kDense), 8);
  EXPECT_EQ(p.group_count(GroupKind::kDense), 1);
  for (const int rank : {0, 1}) EXPECT_EQ(p.group_index(GroupKind::kDense, rank), 0);
}

TEST(Program, KindsHaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const CommKind kind :
       {CommKind::kAllGather, CommKind::kReduceScatter, CommKind::kAllReduce, CommKind::kAllToAll,
        CommKind::kAllToAllV, CommKind::kAllGatherV, CommKind::kReduceScatterV})
    EXPECT_TRUE(names.insert(name_of(kind)).second);
  EXPECT_EQ(names.count("reduce_scatter_v"), 1u);
  for (const GroupKind kind : kEveryKind) EXPECT_TRUE(names.insert(name_of(kind)).second);
  EXPECT_EQ(name_of(ExchangeLibrary::kDeepEp), "DeepEP");
  EXPECT_EQ(name_of(ExchangeLibrary::kNone), "");
  // The simulator tells equal and unequal pieces apart by their traffic.
  EXPECT_EQ(simulated(CommKind::kAllToAllV), simulated(CommKind::kAllToAll));
  EXPECT_EQ(simulated(CommKind::kAllGatherV), sim::CollectiveOp::all_gather);
  EXPECT_EQ(simulated(CommKind::kReduceScatterV), sim::CollectiveOp::reduce_scatter);
}

// Two waits of all ranks, one more of rank 1 only.
TEST(Program, HostSyncsAreThoseOfTheRankWithMost) {
  ProgramBuilder b(2, 1);
  b.begin(ProgramBuilder::Pass::kForward);
  b.host_sync("a", sim::Category::host_sync, b.uniform(8));
  b.host_sync("b", sim::Category::host_sync, b.uniform(8));
  const std::vector<std::int64_t> second{0, 1};
  b.only_on(second);
  b.host_sync("c", sim::Category::host_sync, b.uniform(8));
  const Program p = b.finish();
  EXPECT_EQ(p.host_syncs(p.forward()), 3);
  EXPECT_FALSE(p.issues(p.forward().back(), 0));
  EXPECT_TRUE(p.issues(p.forward().back(), 1));
}

// Checks of programs: bytes in balance, positions that match, orders without a cycle (rules P and F).

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

// Memory of a rank over the time of one layer, after each allocation and release.

// Keeps 100 bytes, holds 50 more in forward and 30 in backward.
Program small_program() {
  ProgramBuilder b(1, 1);
  b.begin(ProgramBuilder::Pass::kForward);
  b.save("kept", b.uniform(100));
  b.allocate("buffer", b.uniform(50));
  b.free("buffer", b.uniform(50));
  b.begin(ProgramBuilder::Pass::kBackward);
  b.allocate("gradient", b.uniform(30));
  b.free("gradient", b.uniform(30));
  return b.finish();
}

TEST(MemoryOfLayer, FollowsEveryAllocation) {
  RankMemory whole;
  whole.parameters = 600;
  whole.activations = 350;
  whole.transient = 50;
  std::vector<double> levels;
  std::vector<std::string> names;
  for (const MemoryPoint& point : memory_of_layer(small_program(), 0, whole, true)) {
    levels.push_back(point.bytes);
    names.emplace_back(point.what);
  }
  // The whole plan without its transients and this layer: 1000 - 50 - 100.
  EXPECT_THAT(levels, ::testing::ElementsAre(850, 950, 1000, 950, 980, 950, 850));
  EXPECT_THAT(names, ::testing::ElementsAre("everything but this layer", "kept", "buffer", "buffer",
                                            "gradient", "gradient", "saved by forward"));
}

TEST(MemoryOfLayer, ServingEndsWithForward) {
  RankMemory whole;
  whole.parameters = 600;
  const auto points = memory_of_layer(small_program(), 0, whole, false);
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points.front().bytes, 600);
  EXPECT_EQ(points.back().bytes, 700);
  for (const MemoryPoint& point : points) EXPECT_TRUE(point.forward);
}

TEST(RankMemory, IsTheSumOfItsCauses) { EXPECT_EQ((RankMemory{1, 2, 4, 8, 16, 32}.total()), 63); }

// Two microbatches launched together (docs/spec.md 2.2.3): the order by hand, and nothing twice or forgotten.

std::vector<Piece> tuples(const std::vector<sim::LockstepPiece>& pieces) {
  std::vector<Piece> all;
  all.reserve(pieces.size());
  for (const sim::LockstepPiece& p : pieces) all.emplace_back(p.chain, p.program, p.from, p.to);
  return all;
}

std::vector<std::vector<std::int32_t>> sizes_of(std::initializer_list<std::vector<std::int32_t>> sizes) {
  return sizes;
}

// A pass whose rows leave after a kernel and come back after the experts.
std::vector<Op> moe_pass() {
  ProgramBuilder b(2, 1);
  b.begin(ProgramBuilder::Pass::kForward);
  const int table = b.table(1, {4, 4});
  b.kernel("permute", Category::permute, KernelClass::kElementwise, b.uniform(1), b.uniform(1));
  b.all_gather(GroupKind::kEp, "dispatch", Category::dispatch, DType::kBf16, 8);
  b.gemm("fc1", Category::expert, GemmPass::kForward, GemmBackend::kGrouped, DType::kBf16, table, 8, 8, 1, 1);
  b.reduce_scatter(GroupKind::kEp, "combine", Category::combine, DType::kBf16, 8);
  b.kernel("unpermute", Category::unpermute, KernelClass::kElementwise, b.uniform(1), b.uniform(1));
  return b.finish().forward();
}

// Backward's rows travel while forward's attention computes, forward's while backward's experts do,
// backward's go home while forward's experts do, forward's while backward's attention does.
TEST(Interleaved, OneLayerByHand) {
  const std::vector<Op> pass = moe_pass();
  PassPlaces forward, backward;
  forward.layers.push_back({{}, {}, 0, 1, 2, &pass});   // before, moe, after
  backward.layers.push_back({{}, {}, 2, 1, 0, &pass});  // runs after, moe, before
  EXPECT_EQ(tuples(interleaved(forward, backward, {}, sizes_of({{3, 5, 1}, {1, 5, 4}}))),
            (std::vector<Piece>{{1, 0, 0, 1},     // backward of what follows the experts
                                {1, 1, 0, 2},     // gradients leave
                                {0, 0, 0, 3},     // attention
                                {0, 1, 0, 2},     // rows leave
                                {1, 1, 2, 4},     // backward of the experts, gradients go home
                                {0, 1, 2, 4},     // experts, rows go home
                                {1, 1, 4, 5},     // rest of the gradients
                                {1, 2, 0, 4},     // backward of attention
                                {0, 1, 4, 5},     // rest of the rows
                                {0, 2, 0, 1}}));  // what follows the experts
}

// A dense layer has nothing to hide: its passes run one after the other.
TEST(Interleaved, WithoutExpertsBackwardComesFirst) {
  PassPlaces forward, backward;
  forward.layers.push_back({{}, {}, 0, -1, -1, nullptr});
  backward.layers.push_back({{}, {}, 0, -1, -1, nullptr});
  EXPECT_EQ(tuples(interleaved(forward, backward, {}, sizes_of({{3}, {4}}))),
            (std::vector<Piece>{{1, 0, 0, 4}, {0, 0, 0, 3}}));
}

// Weight gradients set aside (chain 2): the experts' while rows go home, the others' at the end of the layer.
TEST(Interleaved, WeightGradientsFillTheWay) {
  const std::vector<Op> pass = moe_pass();
  PassPlaces forward, backward, later;
  forward.layers.push_back({{}, {}, 0, 1, 2, &pass});
  backward.layers.push_back({{}, {}, 2, 1, 0, &pass});
  later.layers.push_back({{}, {}, 2, 1, 0, nullptr});
  const auto pieces =
      tuples(interleaved(forward, backward, later, sizes_of({{3, 5, 1}, {1, 5, 4}, {1, 2, 3}})));
  const auto place = [&](const Piece& piece) {
    return std::find(pieces.begin(), pieces.end(), piece) - pieces.begin();
  };
  EXPECT_LT(place({0, 1, 2, 4}), place({2, 1, 0, 2}));  // behind the launch of forward's way home
  EXPECT_LT(place({2, 1, 0, 2}), place({1, 1, 4, 5}));
  EXPECT_EQ(pieces.back(), (Piece{2, 2, 0, 3}));
}

// Whatever the layers: every operation of every chain is issued once, those of a program in order.
RC_GTEST_PROP(Interleaved, IssuesEveryOperationOnce, ()) {
  const std::vector<Op> pass = moe_pass();
  std::vector<std::vector<std::int32_t>> sizes(3);
  const auto places = [&](std::size_t chain, int layers, bool split) {
    PassPlaces all;
    const auto program = [&](std::int32_t size) {
      sizes[chain].push_back(size);
      return static_cast<std::int32_t>(sizes[chain].size()) - 1;
    };
    if (*rc::gen::arbitrary<bool>()) all.lead.push_back(program(*rc::gen::inRange(1, 4)));
    for (int i = 0; i < layers; ++i) {
      LayerPlaces layer;
      if (!split && *rc::gen::arbitrary<bool>()) layer.first.push_back(program(*rc::gen::inRange(1, 4)));
      const bool moe = *rc::gen::inRange(0, 3) > 0;
      if (chain == 0) layer.before = program(*rc::gen::inRange(1, 4));
      if (moe) {
        if (chain > 0) layer.after = program(2);
        layer.moe = program(static_cast<std::int32_t>(pass.size()));
        layer.moe_pass = &pass;
        if (chain == 0) layer.after = program(2);
      }
      if (chain > 0) layer.before = program(*rc::gen::inRange(1, 4));
      all.layers.push_back(layer);
    }
    if (*rc::gen::arbitrary<bool>()) all.rest.push_back(program(*rc::gen::inRange(1, 4)));
    return all;
  };
  const int back = *rc::gen::inRange(0, 4);
  const PassPlaces forward = places(0, *rc::gen::inRange(0, 4), false), backward = places(1, back, false),
                   later = places(2, back, true);
  std::map<std::pair<int, int>, std::int32_t> next;  // chain, program
  for (const sim::LockstepPiece& piece : interleaved(forward, backward, later, sizes)) {
    std::int32_t& at = next[{piece.chain, piece.program}];
    RC_ASSERT(piece.from == at);
    RC_ASSERT(piece.to > piece.from);
    at = piece.to;
  }
  for (std::size_t chain = 0; chain < 3; ++chain)
    for (std::size_t program = 0; program < sizes[chain].size(); ++program)
      RC_ASSERT((next[{static_cast<int>(chain), static_cast<int>(program)}]) == sizes[chain][program]);
}

}  // namespace
}  // namespace moesim::models::testing
