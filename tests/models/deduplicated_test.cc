// The exchange of deduplicated rows: one copy per rank, per node over the network, handed on inside.
#include "models/dispatchers/parts/deduplicated.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "tests/models/check_bytes.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

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
