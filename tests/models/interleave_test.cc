// Two microbatches launched together (docs/spec.md 2.2.3): the order by hand, and nothing twice or forgotten.
#include "models/programs/interleave.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "models/programs/program_builder.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

using sim::Category;
using Piece = std::tuple<int, int, int, int>;

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
