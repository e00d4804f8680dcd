// The shared expert beside the exchange (docs/spec.md 2.2.3): its stream, its collectives, its order.
#include "models/dispatchers/parts/shared_expert.h"

#include <gtest/gtest.h>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

std::size_t place(const std::vector<Op>& pass, std::string_view name, std::size_t which = 0) {
  for (std::size_t i = 0; i < pass.size(); ++i)
    if (pass[i].name == name && pass[i].kind != OpKind::kAllocate && pass[i].kind != OpKind::kFree &&
        which-- == 0)
      return i;
  ADD_FAILURE() << "no " << name;
  return 0;
}

// A shared expert of inner size 32 over TP 2: T*w bytes are gathered to 2*T*w, its products have 2*T = 16
// rows and half of the columns.
struct Shared : Example {
  Shared() {
    layer.shared_ffn = 32;
    layer.tp = 2;
  }
};

TEST(SharedExpert, HasItsOwnCollectivesAndProducts) {
  const Shared example;
  const Program p = build("alltoall:shared_overlap=true", example.layer);
  EXPECT_TRUE(p.runs_shared_expert);
  const Op gather = the(p.forward(), "shared expert input"),
           scatter = the(p.forward(), "shared expert output"), up = the(p.forward(), "shared fc1"),
           down = the(p.forward(), "shared fc2");
  EXPECT_EQ(gather.group, GroupKind::kDense);
  EXPECT_EQ(numbers(p, gather.in), Numbers(4, 8 * 32));
  EXPECT_EQ(numbers(p, gather.out), Numbers(4, 2 * 8 * 32));
  EXPECT_EQ(numbers(p, scatter.in), Numbers(4, 2 * 8 * 32));
  EXPECT_EQ(numbers(p, scatter.out), Numbers(4, 8 * 32));
  EXPECT_EQ(p.expert_rows(up.table, 0)[0], 16);
  EXPECT_EQ(up.n, 2 * 16);
  EXPECT_EQ(up.k, 16);
  EXPECT_EQ(down.n, 16);
  EXPECT_EQ(down.k, 16);
  for (const Op& op : {gather, up, down, scatter}) EXPECT_EQ(op.stream, Stream::kShared);
}

// fc1 is launched behind the token exchange and before that of probabilities, fc2 behind the combine.
TEST(SharedExpert, IsLaunchedBetweenTheStepsOfTheExchange) {
  const Shared example;
  const Program p = build("alltoall:shared_overlap=true", example.layer);
  const std::vector<Op>& f = p.forward();
  EXPECT_LT(place(f, "shared expert input"), place(f, "permute rows"));
  EXPECT_LT(place(f, "tokens"), place(f, "shared fc1"));
  EXPECT_LT(place(f, "shared activation"), place(f, "probabilities"));
  EXPECT_LT(place(f, "tokens", 1), place(f, "shared fc2"));
  EXPECT_LT(place(f, "shared expert output"), place(f, "add shared expert"));
  // The sum waits for the shared expert's last operation.
  const Op add = f[place(f, "add shared expert")];
  EXPECT_TRUE(add.after[0] == static_cast<std::int32_t>(place(f, "shared expert output")) ||
              add.after[1] == static_cast<std::int32_t>(place(f, "shared expert output")));
  // Backward: probabilities, rows, then fc1.
  const std::vector<Op>& b = p.backward();
  EXPECT_LT(place(b, "output gradient"), place(b, "shared fc2 dgrad"));
  EXPECT_LT(place(b, "probability gradient"), place(b, "hidden gradient"));
  EXPECT_LT(place(b, "hidden gradient"), place(b, "shared fc1 dgrad"));
}

TEST(SharedExpert, WithoutTensorParallelismNothingIsGathered) {
  Example example;
  example.layer.shared_ffn = 32;
  const Program p = build("alltoall:shared_overlap=true", example.layer);
  EXPECT_FALSE(has(p.forward(), "shared expert input"));
  EXPECT_FALSE(has(p.forward(), "shared expert output"));
  EXPECT_EQ(the(p.forward(), "shared fc1").n, 2 * 32);
}

// Not overlapped, it runs in the dense part of the layer: the dispatcher's program is the one without it.
TEST(SharedExpert, DoesNothingWhereItDoesNotOverlap) {
  const Shared with;
  Example without;
  without.layer.tp = 2;
  const Program a = build("alltoall", with.layer), b = build("alltoall", without.layer);
  EXPECT_FALSE(a.runs_shared_expert);
  ASSERT_EQ(a.forward().size(), b.forward().size());
  for (std::size_t i = 0; i < a.forward().size(); ++i) EXPECT_EQ(a.forward()[i].name, b.forward()[i].name);
}

}  // namespace
}  // namespace moesim::models::testing
