// Shared computations of every dispatcher (docs/spec.md 1.1, 1.2, 1.5 to 1.7): sizes, experts, row kernels.
#include "models/dispatchers/parts/common.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/dispatchers/parts/capacity.h"
#include "models/dispatchers/parts/deduplicated.h"
#include "tests/models/check_bytes.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(LayerSizes, OfExample1) {
  const Example example;
  const LayerSizes f(example.layer);
  EXPECT_EQ(f.R, 4);
  EXPECT_EQ(f.E_l, 2);
  EXPECT_EQ(f.w, 32);
  EXPECT_EQ(f.b_p, 4);
  EXPECT_EQ(f.F_up, 2 * 32);
  EXPECT_EQ(f.tokens, Numbers(4, 8));
  EXPECT_EQ(f.sent, Numbers(4, 16));
  EXPECT_EQ(f.arrived, (Numbers{30, 14, 11, 9}));
  EXPECT_EQ(f.computed, f.arrived);
  EXPECT_EQ(f.experts, (Numbers{19, 11, 9, 5, 6, 5, 5, 4}));
  EXPECT_EQ(f.splits, (Numbers{8, 4, 2, 2, 8, 4, 2, 2, 6, 3, 4, 3, 8, 3, 3, 2}));
}

// rank = etp + 2*ep; EP groups {0,2} and {1,3} have a matrix each, both ranks of an ETP group compute all
// rows.
TEST(LayerSizes, OfExample4) {
  const Example example(example_1(), 2, 2);
  const LayerSizes f(example.layer);
  EXPECT_EQ(f.F, 16);
  EXPECT_EQ(f.splits, (Numbers{12, 4, 9, 7, 12, 4, 11, 5}));
  EXPECT_EQ(f.arrived, (Numbers{21, 23, 11, 9}));
  EXPECT_EQ(f.computed, (Numbers{44, 44, 20, 20}));
}

RC_GTEST_PROP(LayerSizes, RowsAreConserved, ()) {
  const RandomLayer random = random_layer(true, false);
  const LayerSizes f(random.layer);
  std::int64_t sent = 0, arrived = 0, computed = 0, split = 0, experts = 0;
  for (int r = 0; r < f.R; ++r) {
    RC_ASSERT(f.sent[r] == f.tokens[r] * f.K);
    sent += f.sent[r];
    arrived += f.arrived[r];
    computed += f.computed[r];
  }
  for (const std::int64_t rows : f.splits) split += rows;
  for (const std::int64_t rows : f.experts) experts += rows;
  RC_ASSERT(sent == arrived);
  RC_ASSERT(sent == split);
  RC_ASSERT(computed == f.etp * sent);
  RC_ASSERT(experts == computed);
}

TEST(Numbers, AreRoundedAndSummed) {
  EXPECT_EQ(ceil_div(7, 4), 2);
  EXPECT_EQ(round_up(7, 4), 8);
  EXPECT_EQ(round_up(8, 4), 8);
  EXPECT_EQ(round_up_each({0, 1, 16, 17}, 16), (Numbers{0, 16, 16, 32}));
  EXPECT_EQ(sums_per_rank({1, 2, 3, 4, 5, 6}, 3), (Numbers{6, 15}));
  EXPECT_EQ(bits_for(1), 1);
  EXPECT_EQ(bits_for(2), 1);
  EXPECT_EQ(bits_for(8), 3);
  EXPECT_EQ(bits_for(9), 4);
  EXPECT_EQ(bits_for(256), 8);
}

// A builder of two ranks with one forward pass.
struct Pass {
  ProgramBuilder b{2, 1};
  Pass() { b.begin(ProgramBuilder::Pass::kForward); }
};

TEST(RowKernels, MoveWhatTheTableSays) {
  Pass pass;
  gather_rows(pass.b, "gather", Category::permute, {3, 5}, 32);
  scatter_add(pass.b, "add", Category::unpermute, {3, 5}, {2, 4}, 32);
  sort_keys(pass.b, "int64", Category::permute, {3, 5}, 8, 8, 64);
  sort_keys(pass.b, "few", Category::permute, {3, 5}, 4, 4, 3);
  sort_keys(pass.b, "nine bits", Category::permute, {3, 5}, 4, 4, 9);
  const Program p = pass.b.finish();
  const Op gather = the(p.forward(), "gather"), add = the(p.forward(), "add"),
           sort = the(p.forward(), "int64");
  EXPECT_EQ(numbers(p, gather.read), (Numbers{3 * 40, 5 * 40}));  // n*w + 8n
  EXPECT_EQ(numbers(p, gather.written), (Numbers{3 * 32, 5 * 32}));
  EXPECT_EQ(numbers(p, add.read), (Numbers{3 * 72, 5 * 72}));  // n*w + 8n, and the target's rows
  EXPECT_EQ(numbers(p, add.written), (Numbers{3 * 32 + 2 * 32, 5 * 32 + 4 * 32}));
  EXPECT_EQ(add.launches, 2);  // zeros, sum
  EXPECT_EQ(numbers(p, sort.read), (Numbers{8 * 3 * 16, 8 * 5 * 16}));
  EXPECT_EQ(numbers(p, sort.written), numbers(p, sort.read));
  EXPECT_EQ(the(p.forward(), "few").launches, 1);
  EXPECT_EQ(the(p.forward(), "nine bits").launches, 2);
}

std::int64_t flops(const Program& p, const std::vector<Op>& pass, int rank) {
  std::int64_t sum = 0;
  for (const Op& op : pass)
    if (op.kind == OpKind::kGemm)
      for (const std::int64_t rows : p.expert_rows(op.table, rank)) sum += op.repeat * 2 * rows * op.n * op.k;
  return sum;
}

// Gated: forward 6*M*H*F', backward 12*M*H*F', whether gate and up are one weight or two.
TEST(ExpertBlock, FlopsOfExample1) {
  const Example example;
  for (const bool split : {false, true}) {
    const LayerSizes f(example.layer);
    ProgramBuilder b(4, 1);
    ExpertBlock block = expert_block(example.layer, f, b);
    block.split_gate = split;
    b.begin(ProgramBuilder::Pass::kForward);
    experts_forward(b, block);
    free_expert_output(b, block);
    b.begin(ProgramBuilder::Pass::kBackward);
    experts_backward(b, block);
    const Program p = b.finish();
    const Numbers expected{92160, 43008, 33792, 27648};
    for (int r = 0; r < 4; ++r) {
      EXPECT_EQ(flops(p, p.forward(), r), expected[r]);
      EXPECT_EQ(flops(p, p.backward(), r), 2 * expected[r]);
      // fc1 output and fc2 input; the activation reads one and writes the other.
      const std::int64_t rows = f.computed[r];
      EXPECT_EQ(p.saved_bytes[r], rows * (64 + 32) * 2);
      EXPECT_EQ(p.value(the(p.forward(), "activation").read, r), rows * 64 * 2);
      // A_peak_b without the incoming gradient, which is the caller's: R_d*(w + (F_up + F')*b).
      EXPECT_EQ(p.peak_backward_bytes[r] - p.saved_bytes[r], rows * (32 + (64 + 32) * 2));
    }
    EXPECT_EQ(the(p.forward(), "fc1").n, split ? 32 : 64);
    EXPECT_EQ(product_launches(p.forward()), split ? 3 : 2);
  }
}

TEST(ExpertBlock, RecomputesTheActivationInBackward) {
  Example example;
  example.layer.recompute = Recompute::kActivation;
  const LayerSizes f(example.layer);
  ProgramBuilder b(4, 1);
  ExpertBlock block = expert_block(example.layer, f, b);
  block.probability = true;
  b.begin(ProgramBuilder::Pass::kForward);
  experts_forward(b, block);
  free_expert_output(b, block);
  b.begin(ProgramBuilder::Pass::kBackward);
  experts_backward(b, block);
  const Program p = b.finish();
  EXPECT_EQ(p.saved_bytes[0], 30 * 64 * 2);
  // With the probability multiplied inside: M*2F*b + M*b_p.
  EXPECT_EQ(p.value(the(p.backward(), "activation again").read, 0), 30 * (64 * 2 + 4));
}

TEST(BatchOverlap, IsOfTrainingWithoutOtherOverlap) {
  Example example;
  EXPECT_FALSE(rule_against_batch_overlap(example.layer, false));
  EXPECT_EQ(rule_against_batch_overlap(example.layer, true).value_or(""),
            "batch_overlap excludes shared_overlap: both fill the time of the exchange");
  example.layer.recompute = Recompute::kFull;
  EXPECT_EQ(rule_against_batch_overlap(example.layer, false).value_or(""),
            "batch_overlap excludes full recompute of the layer");
  example.layer.train = false;
  EXPECT_EQ(rule_against_batch_overlap(example.layer, false).value_or(""),
            "batch_overlap interleaves a backward with a forward: it needs training");
}

// Rows that only fill up tiles are computed but not dispatched; balanced rows are T*K.
TEST(Finish, TellsTokensFromPadding) {
  const Example example;
  const LayerSizes f(example.layer);
  ProgramBuilder b(4, 1);
  b.begin(ProgramBuilder::Pass::kForward);
  const Program p = finish(b, example.layer, f, {48, 32, 10, 9});
  EXPECT_EQ(p.computed_rows, (Numbers{48, 32, 10, 9}));
  EXPECT_EQ(p.dispatched_rows, (Numbers{30, 14, 10, 9}));
  EXPECT_EQ(p.balanced_rows, Numbers(4, 16));
  EXPECT_EQ(p.tokens, Numbers(4, 8));
}

// Rows of a fixed size: the capacity of an expert (docs/spec.md 2.2.3) and what it drops, C rows from every rank to
// every expert (2.13), padded chunks of an equal all-to-all (2.7) and the kernels around it.

TEST(Capacity, IsRoundedUpButNotForRounding) {
  EXPECT_EQ(capacity(8, 2, 8, 1), 2);      // 16 / 8
  EXPECT_EQ(capacity(8, 2, 8, 1.25), 3);   // 2.5
  EXPECT_EQ(capacity(10, 1, 1, 1.1), 11);  // 11.000000000000002 in doubles
  EXPECT_EQ(capacity(0, 2, 8, 1), 0);
  EXPECT_EQ(capacity(1, 1, 64, 0.01), 1);
}

RC_GTEST_PROP(Capacity, HoldsAllRowsAndNotARowMore, ()) {
  const std::int64_t tokens = *rc::gen::inRange(0, 5000), topk = *rc::gen::inRange(1, 9),
                     experts = *rc::gen::inRange(1, 300), quarters = *rc::gen::inRange(1, 40);
  const std::int64_t C = capacity(tokens, topk, experts, static_cast<double>(quarters) / 4);
  RC_ASSERT(4 * C * experts >= tokens * topk * quarters);
  RC_ASSERT(4 * (C - 1) * experts < tokens * topk * quarters || C == 0);
}

TEST(Capacity, IsOfEveryRanksOwnTokens) {
  const Routing uneven = Routing::from_choices(2, 2, {{0, 1}, {0, 1, 0, 1, 0, 1}, {}});
  EXPECT_EQ(capacities(uneven, 1), (Numbers{1, 3, 0}));
  EXPECT_EQ(capacities(uneven, 0.5), (Numbers{1, 2, 0}));
}

TEST(TotalDropped, CountsWhatIsLessAndNothingElse) {
  const Routing routing = example_1();
  EXPECT_EQ(total_dropped(routing, routing), 0);
  EXPECT_EQ(total_dropped(routing, routing.limited_to({2, 2, 2, 2})), 64 - 49);
  EXPECT_EQ(total_dropped(routing, routing.limited_to({5, 5, 5, 4})), 1);
  EXPECT_EQ(total_dropped(routing, routing.padded_to(4)), 0);  // more rows are no dropped ones
}

TEST(FixedCapacity, SizesAreTheCapacitysWhateverTheRouting) {
  const Example skewed, one_rank(example_2());
  for (const Example* example : {&skewed, &one_rank}) {
    const FixedCapacity fixed(example->layer, 3);
    EXPECT_EQ(fixed.rows, 8 * 3);
    EXPECT_EQ(fixed.sizes.sent, Numbers(4, 24));
    EXPECT_EQ(fixed.sizes.arrived, Numbers(4, 24));
    EXPECT_EQ(fixed.sizes.computed, Numbers(4, 24));
    EXPECT_EQ(fixed.sizes.experts, Numbers(8, 4 * 3));  // EP * C of each of R * E_l
    EXPECT_EQ(fixed.sizes.tokens, Numbers(4, 8));
  }
  // n = [5 3 ..; 5 3 3 ..; 4 ..; 5 3 ..]: 2 + 2 + 1 + 2 rows are above 3; of example 2 two times 8 - 3 per
  // rank.
  EXPECT_EQ(FixedCapacity(skewed.layer, 3).dropped, 2 + 2 + 1 + 2);
  EXPECT_EQ(FixedCapacity(one_rank.layer, 3).dropped, 4 * 2 * 5);
}

TEST(FixedCapacity, TheLargestCountDropsNothing) {
  const Example example;
  EXPECT_EQ(FixedCapacity::largest_count(example.routing), 5);
  EXPECT_EQ(FixedCapacity(example.layer, 5).dropped, 0);
  EXPECT_EQ(FixedCapacity(example.layer, 4).dropped, 3);
}

TEST(FixedCapacity, NeedsOneCapacityOfWholeExperts) {
  const Example uneven(Routing::from_choices(8, 2, {{0, 1}, {0, 1, 2, 3}, {0, 1}, {0, 1}})),
      split(example_1(), 2, 2), fine;
  EXPECT_EQ(FixedCapacity::illegal(uneven.layer).value_or(""),
            "every rank must hold the same number of tokens: all must agree on the capacity");
  EXPECT_EQ(FixedCapacity::illegal(split.layer).value_or(""),
            "it does not split experts over etp where every rank holds its own tokens");
  EXPECT_FALSE(FixedCapacity::illegal(fine.layer));
}

TEST(EqualSplit, OverheadsOfTheExamples) {
  const Example one, two(example_2()), three(example_3());
  const EqualSplit split{LayerSizes(one.layer)};
  EXPECT_EQ(split.m, 8);
  const std::vector<double> expected{0.391, 1.133, 1.370, 1.560};
  for (int r = 0; r < 4; ++r) EXPECT_NEAR(split.overheads[r], expected[r], 5e-4);
  EXPECT_EQ(split.worst(), split.overheads[3]);
  const EqualSplit everything{LayerSizes(two.layer)};
  EXPECT_EQ(everything.m, 16);
  EXPECT_NEAR(everything.overheads[0], 0.6, 1e-12);
  EXPECT_NEAR(everything.overheads[1], 7, 1e-12);
  EXPECT_EQ(EqualSplit{LayerSizes(three.layer)}.worst(), 0);
}

// A rank that neither sends nor receives has nothing to compare padding with.
TEST(EqualSplit, ARankWithoutRowsForbidsAnyThreshold) {
  const Example example(Routing::from_choices(8, 2, {{0, 1}, {0, 1}, {0, 1}, {}}));
  const EqualSplit split{LayerSizes(example.layer)};
  EXPECT_TRUE(std::isinf(split.overheads[3]));
  EXPECT_TRUE(std::isinf(split.worst()));
}

// One exchange of m = 2 rows of 32 bytes to each of 2 ranks; rank 0 sends 2+1 rows and receives 2+0.
Program one_exchange(Padding padding, bool there) {
  const Example example(Routing::from_choices(4, 1, {{0, 1, 2}, {3}}), 2);
  const LayerSizes sizes(example.layer);
  ProgramBuilder b(2, 1);
  b.begin(ProgramBuilder::Pass::kForward);
  EqualSplit(sizes).exchange(b, "rows", Category::dispatch, DType::kBf16, sizes, there, padding);
  return b.finish();
}

TEST(EqualSplit, PadsInOnePassOrConcatenatesZeros) {
  const Program pad = one_exchange(Padding::kPad, true), cat = one_exchange(Padding::kConcatenate, true);
  for (const Program* p : {&pad, &cat})
    expect_messages(*p, p->forward(), {{"rows", {2 * 2 * 32}, {2 * 2 * 32}, {2 * 32}, {2 * 32}}});
  EXPECT_EQ(numbers(pad, the(pad.forward(), "pad chunks").read), (Numbers{3 * 32, 1 * 32}));
  EXPECT_EQ(numbers(pad, the(pad.forward(), "pad chunks").written), Numbers(2, 4 * 32));
  EXPECT_EQ(numbers(cat, the(cat.forward(), "rows of zeros").written), (Numbers{1 * 32, 3 * 32}));
  EXPECT_EQ(numbers(cat, the(cat.forward(), "chunks with their zeros").read), Numbers(2, 4 * 32));
}

TEST(EqualSplit, CompactsByTheOtherSidesSplits) {
  const Program there = one_exchange(Padding::kPad, true), back = one_exchange(Padding::kPad, false);
  EXPECT_EQ(numbers(there, the(there.forward(), "compact chunks").written), (Numbers{2 * 32, 2 * 32}));
  EXPECT_EQ(numbers(back, the(back.forward(), "pad chunks").read), (Numbers{2 * 32, 2 * 32}));
  EXPECT_EQ(numbers(back, the(back.forward(), "compact chunks").written), (Numbers{3 * 32, 1 * 32}));
  // Padded rows on both sides at once, nothing afterwards.
  EXPECT_EQ(there.peak_forward_bytes, Numbers(2, 2 * 4 * 32));
  EXPECT_EQ(there.saved_bytes, Numbers(2, 0));
}

// The exchange of deduplicated rows: one copy per rank, per node over the network, handed on inside.

TEST(DeduplicatedExchange, NodesGetOneCopyAndHandItOn) {
  Example example;
  example.layer.ranks_per_node = 2;
  const Program p = build("flex-deepep", example.layer);
  const Numbers node = example.routing.dedup_matrix(2), rank = example.routing.dedup_matrix(4);
  Numbers network(4), fan_out(4);
  for (int r = 0; r < 4; ++r) network[r] = node[r * 2 + (1 - r / 2)] * 32;
  for (int f = 0; f < 4; ++f)
    for (const int source : {f % 2, f % 2 + 2})
      for (int d = f / 2 * 2; d < f / 2 * 2 + 2; ++d)
        if (d != f) fan_out[f] += rank[source * 4 + d] * 32;
  std::vector<Op> tokens;
  for (const Op& op : messages(p.forward()))
    if (op.name == "tokens" && !op.transposed) tokens.push_back(op);
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_TRUE(tokens[0].across_nodes);
  EXPECT_FALSE(tokens[0].fused);
  EXPECT_TRUE(tokens[1].fused);
  EXPECT_EQ(numbers(p, tokens[0].tx), network);
  EXPECT_EQ(numbers(p, tokens[1].tx), fan_out);
  EXPECT_TRUE(check_bytes(p).empty());
}

TEST(DeduplicatedExchange, ReceivedRowsAreTheColumnsOfTheMatrix) {
  const Example example;
  const LayerSizes sizes(example.layer);
  ProgramBuilder builder(4, 1);
  builder.begin(ProgramBuilder::Pass::kForward);
  const DeduplicatedExchange exchange(builder, example.layer, sizes, ExchangeLibrary::kDeepEp, 20);
  EXPECT_EQ(exchange.received(), (Numbers{23, 13, 10, 9}));
  EXPECT_EQ(exchange.nodes(), 1);
  // Without extra bytes, one collective each way; extra bytes travel in the same kernel.
  exchange.dispatch("rows", Category::dispatch, DType::kBf16, 32, "", 0);
  exchange.combine("rows", Category::combine, DType::kBf16, 32, "weights", 8);
  const Program p = builder.finish();
  const std::vector<Op> all = messages(p.forward());
  ASSERT_EQ(all.size(), 3u);
  EXPECT_FALSE(all[0].transposed);
  EXPECT_TRUE(all[1].transposed);
  EXPECT_FALSE(all[1].fused);
  EXPECT_TRUE(all[2].fused);
  EXPECT_EQ(all[2].row_bytes, 8);
}

// A larger domain's record of smaller ones equals the smaller domains' own exchange.
TEST(DeduplicatedExchange, LargerDomainsKnowWhatSmallerOnesMove) {
  const Routing routing = make_routing(RoutingSpec::parse("zipf:1"), 8, 64, 16, 3, 7);
  MoeLayer layer = example_layer(routing, 8);
  layer.ranks_per_node = 4;
  EXPECT_TRUE(build("flex-hybridep", layer).smaller_domains().empty());
  layer.ranks_per_node = 8;
  const Program inside = build("flex-hybridep", layer);
  ASSERT_EQ(inside.smaller_domains().size(), 3u);  // of 4, 2 and 1
  for (const StagedRows& rows : inside.smaller_domains()) EXPECT_TRUE(rows.in_host);
  layer.ranks_per_host = 2;
  const Program whole = build("flex-hybridep", layer);
  ASSERT_EQ(whole.smaller_domains().size(), 2u);  // of 2 and of 4
  for (const int size : {2, 4}) {
    SCOPED_TRACE(size);
    layer.ranks_per_node = size;
    layer.ranks_per_host = 0;
    const Program cut = build("flex-hybridep", layer);
    const StagedRows& rows = whole.smaller_domains()[size == 2 ? 0 : 1];
    int stages = 0;
    for (const Op& op : messages(cut.forward())) {
      if (op.name != "tokens") continue;
      ++stages;
      for (int r = 0; r < 8; ++r)
        EXPECT_EQ((op.across_nodes ? rows.network : rows.nvlink)[static_cast<std::size_t>(r)] * op.row_bytes,
                  std::max(cut.value(op.tx, r), cut.value(op.rx, r)));
    }
    EXPECT_EQ(stages, 4);  // of dispatch and of combine
  }
}

TEST(DeduplicatedExchange, NeedsOneNodeOrWholeOnes) {
  const Routing routing = example_1();
  MoeLayer layer = example_layer(routing);
  for (const int fits : {1, 2, 4, 8}) {
    layer.ranks_per_node = fits;
    EXPECT_FALSE(DeduplicatedExchange::illegal(layer)) << fits;
  }
  layer.ranks_per_node = 3;
  EXPECT_TRUE(DeduplicatedExchange::illegal(layer));
  // The ranks of an expert's tensor-parallel group stand in one node.
  MoeLayer split = example_layer(routing, 2, 2);
  split.ranks_per_node = 1;
  EXPECT_TRUE(DeduplicatedExchange::illegal(split));
  layer.ranks_per_node = 4;
  layer.straddles = true;
  EXPECT_EQ(
      DeduplicatedExchange::illegal(layer).value_or(""),
      "a dispatch group of 4 ranks straddles nodes unevenly: its rows are handed on inside a node by the "
      "GPU with the same local index");
}

// Every copy arrives: inside the nodes as many rows as without nodes, between them never more.
RC_GTEST_PROP(DeduplicatedExchange, NodesSaveNetworkRows, ()) {
  const int per_node = *rc::gen::inRange(2, 4), nodes = *rc::gen::inRange(2, 4), ep = per_node * nodes;
  const Routing routing = make_routing(RoutingSpec::parse("uniform"), ep, *rc::gen::inRange(1, 30), 2 * ep,
                                       *rc::gen::inRange(1, 5), *rc::gen::inRange(1, 1000));
  MoeLayer layer = example_layer(routing, ep);
  layer.ranks_per_node = ep;
  const Program flat = build("flex-deepep", layer);
  layer.ranks_per_node = per_node;
  const Program staged = build("flex-deepep", layer);
  const Op all = named(flat.forward(), "tokens").front(), network = named(staged.forward(), "tokens")[0],
           local = named(staged.forward(), "tokens")[1];
  const auto direct = flat.matrix(all.matrix, 0);
  for (int r = 0; r < ep; ++r) {
    RC_ASSERT(staged.value(local.out, r) == flat.value(all.out, r));
    std::int64_t away = 0;
    for (int d = 0; d < ep; ++d)
      if (d / per_node != r / per_node)
        away +=
            direct[static_cast<std::size_t>(r) * static_cast<std::size_t>(ep) + static_cast<std::size_t>(d)];
    RC_ASSERT(staged.value(network.tx, r) <= away * all.row_bytes);
  }
}

}  // namespace
}  // namespace moesim::models::testing
