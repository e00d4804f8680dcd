// The builder: bytes of every collective (docs/spec.md 1.3), who waits for whom, what is held when.
#include "models/programs/program_builder.h"

#include <gtest/gtest.h>

#include "tests/models/check_bytes.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

using Pass = ProgramBuilder::Pass;
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

}  // namespace
}  // namespace moesim::models::testing
