// Document 001, the fast paths of a torchtitan fork: rows 1.x of docs/systems.md, on the fork's own sizes:
// 16,384 tokens, top-3 of 36 experts on 12 ranks, hidden 2048, FFN 1408, two shared experts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/dispatchers/dispatcher.h"
#include "models/routing/routing.h"
#include "process.h"

namespace moesim::systems {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using tools::testing::Outcome;
using tools::testing::parsed;
using tools::testing::run_moesim;
using tools::testing::TempFolder;
using Words = std::vector<std::string>;

class Fork {
 public:
  Fork() {
    here_.write("fork.json", R"({"model_type": "deepseek_v2", "hidden_size": 2048, "num_hidden_layers": 4,
      "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 128, "vocab_size": 32000,
      "intermediate_size": 8192, "first_k_dense_replace": 0, "n_routed_experts": 36,
      "num_experts_per_tok": 3, "moe_intermediate_size": 1408, "n_shared_experts": 2})");
  }

  Words words(const std::string& dispatcher, const Words& more) const {
    Words all{"compare", "--model", here_ / "fork.json", "--cluster", "dgx-h100x2",
              "--draws", "0",       "--dispatcher",      dispatcher};
    all.insert(all.end(), more.begin(), more.end());
    for (const auto& [flag, value] :
         {std::pair{"--ep", "12"}, {"--seq", "16384"}, {"--detail", "operations"}})
      if (std::find(more.begin(), more.end(), flag) == more.end()) all.insert(all.end(), {flag, value});
    return all;
  }
  json layer(const std::string& dispatcher, const Words& more) const {
    return parsed(words(dispatcher, more)).at("scenarios").at(0);
  }
  std::string refusal(const std::string& dispatcher, const Words& more) const {
    const Outcome outcome = run_moesim(words(dispatcher, more));
    EXPECT_EQ(outcome.exit_code, 2) << dispatcher;
    return outcome.err;
  }

  std::string model() const { return here_ / "fork.json"; }

 private:
  TempFolder here_;
};

const Fork& fork() {
  static const Fork one;
  return one;
}
json layer(const std::string& dispatcher, const Words& more = {"--inference"}) {
  return fork().layer(dispatcher, more);
}
std::string refusal(const std::string& dispatcher, const Words& more = {"--inference"}) {
  return fork().refusal(dispatcher, more);
}

int operations(const json& layer, const std::string& what) {
  const json& all = layer.at("operations");
  return static_cast<int>(std::count_if(
      all.begin(), all.end(), [&](const json& op) { return op.at("what").get<std::string>() == what; }));
}
double microseconds(const json& layer, const std::string& what) {
  double sum = 0;
  for (const json& op : layer.at("operations"))
    if (op.at("what") == what) sum += op.at("time_us").get<double>();
  return sum;
}
double us(const json& layer) { return layer.at("time_us").at("value").get<double>(); }
int syncs(const json& layer) { return layer.at("host_syncs").at("forward").get<int>(); }
json exchange_of_tokens(const std::string& dispatcher) {
  const json answer = layer(dispatcher, {"--inference", "--detail", "messages"});
  for (const json& m : answer.at("messages"))
    if (m.at("what") == "tokens") return m;
  ADD_FAILURE() << "no exchange of tokens";
  return json();
}
double persistent(const json& layer) { return layer.at("memory").at("persistent_bytes").get<double>(); }

TEST(Systems, R1_1_WithoutAGroupTheExchangeIsTheLocalDispatcher) {
  const json exchange = layer("torchtitan-alltoall", {"--ep", "1"}),
             local = layer("torchtitan-local", {"--ep", "1"});
  EXPECT_EQ(us(exchange), us(local));
  EXPECT_EQ(exchange.at("operations"), local.at("operations"));
  EXPECT_EQ(syncs(local), 0);
}

TEST(Systems, R1_2_CountsAreTheDispatchersHistogramOrTheRouters) {
  for (const std::string dispatcher :
       {"torchtitan-alltoall", "torchtitan-torchao", "torchtitan-equal-split"}) {
    EXPECT_EQ(operations(layer(dispatcher), "count rows per expert"), 1) << dispatcher;
    EXPECT_EQ(operations(layer(dispatcher + ":counts=router"), "count rows per expert"), 0) << dispatcher;
  }
  EXPECT_EQ(operations(layer("torchtitan-local", {"--ep", "1"}), "count rows per expert"), 1);
  // Behind a sequence-parallel split every rank counts its share again.
  EXPECT_THAT(refusal("torchtitan-alltoall:counts=router", {"--tp", "2", "--ep", "4"}),
              HasSubstr("counts its share again"));
}

TEST(Systems, R1_3_SplitsNeedOneExchangeOfCountsAndOneRead) {
  const json normal = layer("torchtitan-alltoall");
  EXPECT_EQ(operations(normal, "counts"), 1);
  EXPECT_EQ(syncs(normal), 1);
}

TEST(Systems, R1_4_And_R1_7_EqualSplitsArePaddedAndCompactedBothWays) {
  const json padded = layer("torchtitan-equal-split:policy=force", {"--inference", "--routing", "zipf:0.8"});
  EXPECT_EQ(operations(padded, "join chunks"), 2);
  EXPECT_EQ(operations(padded, "compact chunks"), 2);
  EXPECT_EQ(padded.at("counters").at("equal_a2a_padding_dispatch"), 1);
  EXPECT_EQ(padded.at("counters").at("equal_a2a_padding_combine"), 1);
  // All ranks send as much: the group's largest chunk to every other rank.
  EXPECT_EQ(padded.at("tx_bytes_per_rank").at("min"), padded.at("tx_bytes_per_rank").at("max"));
}

// The document: F.pad 29.9 ms, explicit rows of zeros 31.5 ms for one forward, on an XPU. Here rows of zeros
// are a kernel for each of 12 chunks both ways, each as long as the shortest kernel of the H100, 5 us: chunks
// of at most 4098 rows of 4096 bytes have 12 x 4098 - 49152 = 24 rows of zeros there, and those of 4095 36 or
// none on the way back, which take less than 0.2 us.
TEST(Systems, R1_5_RowsOfZerosCostMoreThanPadding) {
  const json pad = layer("torchtitan-force-balance:pad=true"),
             cat = layer("torchtitan-force-balance:pad=true:pad_with=cat");
  EXPECT_NEAR(us(cat) - us(pad), 2 * 12 * 5, 0.3);
  EXPECT_NEAR(microseconds(cat, "rows of zeros"), 2 * 12 * 5, 0.2);
  EXPECT_EQ(operations(cat, "rows of zeros"), 2);
  EXPECT_EQ(operations(pad, "rows of zeros"), 0);
  EXPECT_THAT(refusal("torchtitan-force-balance:pad=false:pad_with=cat"),
              HasSubstr("pad_with with pad=false"));
}

TEST(Systems, R1_6_TheGroupDecidesWhetherItPads) {
  // Four ranks send 576 rows each, 288 of them to the first: chunks are padded to 288. Another rank sends
  // 4 x 288 for 576 rows there and for 384 back: (576 + 768) / 960 is 1.4 times what has to be sent.
  const TempFolder folder;
  std::string rows =
      R"({"per_rank_dispatching_results": {"0": {"tokens_per_local_expert": [128, 128, 128, 128, 128, 128, 128, 128, 128]})";
  for (const char* rank : {"1", "2", "3"})
    rows += std::string(", \"") + rank +
            R"(": {"tokens_per_local_expert": [43, 43, 43, 43, 43, 43, 43, 43, 40]})";
  folder.write("skewed.json", rows + "}}");
  for (const auto& [threshold, pads] : {std::pair{"1.401", true}, {"1.399", false}}) {
    const json answer = layer(std::string("torchtitan-equal-split:policy=adaptive:threshold=") + threshold,
                              {"--inference", "--ep", "4", "--seq", "192", "--routing",
                               folder / "skewed.json", "--detail", "messages"});
    EXPECT_EQ(answer.at("counters").contains("equal_a2a_padding_dispatch"), pads) << threshold;
    for (const json& m : answer.at("messages"))
      if (m.at("what") == "tokens") {
        EXPECT_EQ(m.at("op"), pads ? "all_to_all" : "all_to_all_v") << threshold;
        if (pads) {
          EXPECT_EQ(m.at("in_bytes").at(0), 4 * 288 * 2048 * 2);
        }
      }
  }
}

TEST(Systems, R1_8_ForcedBalanceAsksNobody) {
  const json forced = layer("torchtitan-force-balance");
  EXPECT_EQ(syncs(forced), 0);
  EXPECT_EQ(operations(forced, "counts"), 0);
  EXPECT_EQ(operations(forced, "sort by expert"), 0);
  // Ranks 0 to 3 hold the twelve experts with one row more from each of twelve ranks.
  for (std::size_t r = 0; r < 12; ++r)
    EXPECT_EQ(forced.at("rows_per_rank").at(r), r < 4 ? 12 * 4098 : 12 * 4095);
  // Chunks of 4098 and 4095 rows differ, so that all are padded to 4098, of 2048 bf16 elements.
  const std::int64_t chunk = std::int64_t{4098} * 2048 * 2;
  for (const std::string dispatcher : {"torchtitan-force-balance", "torchtitan-force-balance:direct=true"}) {
    const json tokens = exchange_of_tokens(dispatcher);
    EXPECT_EQ(tokens.at("op"), "all_to_all") << dispatcher;
    EXPECT_EQ(tokens.at("in_bytes").at(0), 12 * chunk) << dispatcher;
    EXPECT_EQ(tokens.at("tx_bytes").at(11), 11 * chunk) << dispatcher;
  }
  const json uneven = exchange_of_tokens("torchtitan-force-balance:pad=false");
  EXPECT_EQ(uneven.at("op"), "all_to_all_v");
  EXPECT_EQ(uneven.at("in_bytes").at(0), std::int64_t{16384} * 3 * 2048 * 2);
}

TEST(Systems, R1_9_DirectSplitsOfTheForkAreLegalAndSaveTheIndex) {
  const json direct = layer("torchtitan-force-balance:direct=true"),
             sorted = layer("torchtitan-force-balance");
  EXPECT_EQ(direct.at("counters").at("direct_equal_split_input"), 1);
  EXPECT_EQ(operations(direct, "strided chunks"), 1);
  EXPECT_LT(us(direct), us(sorted));
  EXPECT_THAT(refusal("torchtitan-force-balance:direct=true:score_before_experts=true"),
              HasSubstr("score_before_experts"));
  EXPECT_THAT(refusal("torchtitan-force-balance:direct=true", {"--inference", "--topk", "2"}),
              HasSubstr("direct needs K = local experts"));
}

TEST(Systems, R1_10_TheFastPathIsForSeveralRanksOneSequenceShareAndEagerMode) {
  EXPECT_THAT(refusal("torchtitan-force-balance", {"--ep", "1"}), HasSubstr("needs ep > 1"));
  EXPECT_THAT(refusal("torchtitan-force-balance", {"--tp", "2", "--ep", "4"}), HasSubstr("needs sp 1"));
  const json compiled = layer("torchtitan-force-balance:compiled=true");
  EXPECT_EQ(syncs(compiled), 1);  // the normal path, with the same routing
  EXPECT_EQ(compiled.at("rows_per_rank"), layer("torchtitan-force-balance").at("rows_per_rank"));
  EXPECT_THAT(refusal("torchtitan-force-balance:compiled=true:direct=true"), HasSubstr("no fast path"));
}

TEST(Systems, R1_11_ARankWithEqualCountsPermutesByView) {
  const json view = layer("torchtitan-force-balance");
  EXPECT_EQ(operations(view, "transpose copy"), 1);
  EXPECT_EQ(operations(view, "transpose copy back"), 1);
  EXPECT_EQ(operations(view, "gather expert-major"), 0);
  // 16,385 tokens: 15 experts have a row more, all three of five ranks.
  EXPECT_EQ(
      operations(layer("torchtitan-force-balance", {"--inference", "--seq", "16385"}), "gather expert-major"),
      0);
  // Top-2: 32,770 rows leave 10 experts with one more, one of the fourth rank's three.
  const json mixed = layer("torchtitan-force-balance", {"--inference", "--seq", "16385", "--topk", "2"});
  EXPECT_EQ(operations(mixed, "gather expert-major"), 1);
  EXPECT_EQ(operations(mixed, "transpose copy"), 1);
}

TEST(Systems, R1_12_TorchAoPadsAndExcludesTheView) {
  const json padded = layer("torchtitan-torchao:multiple=32", {"--inference", "--routing", "zipf:0.8"});
  for (const json& rows : padded.at("rows_per_rank")) EXPECT_EQ(rows.get<std::int64_t>() % 32, 0);
  EXPECT_EQ(operations(padded, "append sentinel row"), 1);
  EXPECT_EQ(operations(padded, "transpose copy"), 0);
}

TEST(Systems, R1_13_BehindASequenceSplitRowsGoToTheirPlacesAmongAllTokens) {
  const json split = layer("torchtitan-alltoall", {"--inference", "--tp", "2", "--ep", "4"}),
             whole = layer("torchtitan-alltoall", {"--inference", "--ep", "4"});
  EXPECT_EQ(operations(split, "positions before the split"), 1);
  EXPECT_EQ(operations(whole, "positions before the split"), 0);
  // 1,001 tokens are 501 rows on each of two ranks, of which one is none: 4 ranks hold two sequences.
  const json odd = layer("torchtitan-alltoall", {"--inference", "--tp", "2", "--ep", "4", "--seq", "1001"});
  EXPECT_EQ(odd.at("tokens"), 2 * 1001);
  // Half the rows, but the target has the tokens of both ranks: more than half the time.
  EXPECT_GT(microseconds(split, "scatter_add"), 0.55 * microseconds(whole, "scatter_add"));
}

TEST(Systems, R1_14_ScoresBeforeOrAfterInFp32OrTheRowsType) {
  EXPECT_EQ(layer("torchtitan-alltoall:score_before_experts=true").at("counters").at("score_before_experts"),
            1);
  const json narrow = layer("torchtitan-alltoall:score_fp32=false"), wide = layer("torchtitan-alltoall");
  EXPECT_EQ(narrow.at("counters").at("score_after_experts_bf16"), 1);
  EXPECT_LT(microseconds(narrow, "multiply scores"), microseconds(wide, "multiply scores"));
  // The fork multiplies in the rows' type behind the experts, in fp32 before them.
  for (const std::string fork : {"torchtitan-force-balance", "torchtitan-equal-split", "torchtitan-fork"}) {
    EXPECT_EQ(layer(fork).at("counters").at("score_after_experts_bf16"), 1) << fork;
    EXPECT_EQ(layer(fork + ":score_fp32=true").at("counters").at("score_after_experts"), 1) << fork;
  }
  EXPECT_EQ(microseconds(layer("torchtitan-equal-split:score_before_experts=true"), "multiply scores"),
            microseconds(layer("torchtitan-alltoall:score_before_experts=true"), "multiply scores"));
  const json fp32 =
      layer("torchtitan-fork", {"--inference", "--activation-dtype", "fp32", "--framework", "none"});
  EXPECT_EQ(fp32.at("counters").at("score_after_experts"), 1);
}

TEST(Systems, R1_15_ScatterInPlaceUnlessGradientsOrAnAliasForbid) {
  const json in_place = layer("torchtitan-alltoall:scatter_add_in_place=auto"),
             copied = layer("torchtitan-alltoall"),
             alias = layer("torchtitan-alltoall:scatter_add_in_place=auto:shared_output_is_input=true");
  EXPECT_EQ(in_place.at("counters").at("scatter_add_inplace_no_grad"), 1);
  EXPECT_EQ(alias.at("counters").at("scatter_add_out_of_place_autograd_or_alias"), 1);
  EXPECT_EQ(layer("torchtitan-alltoall:scatter_add_in_place=auto", {})
                .at("counters")
                .at("scatter_add_out_of_place_autograd_or_alias"),
            1);
  EXPECT_LT(us(in_place), us(copied));
  EXPECT_EQ(us(alias), us(copied));
  // The fork chooses it by itself, without gradients only.
  for (const std::string fork : {"torchtitan-force-balance", "torchtitan-equal-split", "torchtitan-fork"}) {
    EXPECT_EQ(layer(fork).at("counters").at("scatter_add_inplace_no_grad"), 1) << fork;
    EXPECT_EQ(layer(fork, {}).at("counters").at("scatter_add_out_of_place_autograd_or_alias"), 1) << fork;
  }
  EXPECT_THAT(refusal("torchtitan-alltoall:scatter_add_in_place=true:shared_output_is_input=true"),
              HasSubstr("would write over the layer's input"));
}

TEST(Systems, R1_15_TheCopyOfTheTargetIsHeld) {
  const models::RoutingSpec even = models::RoutingSpec::parse("balanced");
  const models::Routing routing = models::make_routing(even, 1, 64, 1, 1, 0);
  models::MoeLayer layer;
  layer.hidden = 4096;
  layer.expert_ffn = 1;  // so that the scatter is the peak
  layer.train = false;
  layer.routing = &routing;
  const auto peak = [&](const char* text) {
    return models::make_dispatcher(models::DispatcherSpec::parse(text))
        ->build(layer)
        .peak_forward_bytes.at(0);
  };
  EXPECT_EQ(peak("torchtitan-local") - peak("torchtitan-local:scatter_add_in_place=true"), 64 * 4096 * 2);
}

TEST(Systems, R1_16_ALoopReadsItsCountsOnlyWhereTheHostDoesNotKnowThem) {
  EXPECT_EQ(syncs(layer("torchtitan-alltoall:experts=loop")), 2);
  EXPECT_EQ(syncs(layer("torchtitan-force-balance:experts=loop")), 0);
  EXPECT_GT(us(layer("torchtitan-force-balance:experts=loop")), us(layer("torchtitan-force-balance")));
}

TEST(Systems, R1_17_TheForkBatchesEqualCountsAndElseLoops) {
  const auto batches = [&](const std::string& dispatcher, const Words& more) {
    return layer(dispatcher, more).at("counters").contains("batched_no_grad_experts");
  };
  const Words skewed{"--inference", "--routing", "zipf:0.8"};
  EXPECT_TRUE(batches("torchtitan-force-balance:experts=fork", skewed));  // its own routing is what counts
  EXPECT_FALSE(batches("torchtitan-alltoall:experts=fork", skewed));
  EXPECT_FALSE(batches("torchtitan-force-balance:experts=fork", {}));  // gradients
  EXPECT_EQ(us(layer("torchtitan-alltoall:experts=fork", skewed)),
            us(layer("torchtitan-alltoall:experts=loop", skewed)));
  EXPECT_THAT(refusal("torchtitan-alltoall:experts=batched", skewed), HasSubstr("same number of rows"));
  // Nine local experts on each of four ranks, those of the first with 64 rows each: it batches, the others
  // loop.
  std::string rows =
      R"({"per_rank_dispatching_results": {"0": {"tokens_per_local_expert": [64, 64, 64, 64, 64, 64, 64, 64, 64]})";
  for (const char* rank : {"1", "2", "3"})
    rows += std::string(", \"") + rank +
            R"(": {"tokens_per_local_expert": [60, 68, 64, 64, 64, 64, 64, 64, 64]})";
  const TempFolder folder;
  folder.write("mixed.json", rows + "}}");
  const json mixed = layer("torchtitan-alltoall:experts=fork",
                           {"--inference", "--ep", "4", "--seq", "192", "--routing", folder / "mixed.json"});
  EXPECT_EQ(operations(mixed, "fc1"), 2);
  EXPECT_EQ(mixed.at("counters").at("batched_no_grad_experts"), 1);
}

TEST(Systems, R1_18_CachedWeightLayoutsStayInMemory) {
  const double layouts = 3.0 * 3 * 2048 * 1408 * 2;  // three local experts, three matrices, bf16
  const json none = layer("torchtitan-force-balance"), hit = layer("torchtitan-force-balance:experts=fork"),
             miss = layer("torchtitan-force-balance:experts=fork:weights_cached=false");
  EXPECT_EQ(persistent(hit) - persistent(none), layouts);
  EXPECT_EQ(persistent(miss), persistent(hit));
  EXPECT_GT(us(miss), us(hit));
  EXPECT_EQ(hit.at("counters").at("cached_w13_hit"), 1);
  EXPECT_EQ(miss.at("counters").at("cached_w2_t_miss"), 1);
  EXPECT_THAT(refusal("torchtitan-alltoall:weights_cached=false"), HasSubstr("experts=fork"));
}

TEST(Systems, R1_19_CountersCarryTheForksNamesAtBothScopes) {
  const json forced = layer("torchtitan-force-balance:pad=true");
  for (const char* name : {"equal_a2a_padding_dispatch", "equal_a2a_padding_combine",
                           "score_after_experts_bf16", "scatter_add_inplace_no_grad"})
    EXPECT_EQ(forced.at("counters").at(name), 1) << name;
  // 49,152 slots over 36 experts: 1365 rows of every sender, and one more for the first twelve experts.
  EXPECT_EQ(forced.at("counters").at("uniform_local_count"), 1366);
  // A layer: 4096 x 3 slots over 36 experts are 341 each and one more for the first twelve, so that the first
  // of four ranks gets 9 x 342 of every other, to which all are padded; there and back.
  const Words ask{
      "compare", "--model",      fork().model(),          "--cluster", "dgx-h100x2", "--ep", "4", "--draws",
      "0",       "--dispatcher", "torchtitan-equal-split"};
  const json layer = parsed(ask).at("scenarios").at(0).at("counters");
  const int rows = 4 * 9 * 342;
  EXPECT_EQ(layer.at("equal_a2a_padding_dispatch"), 1);
  EXPECT_EQ(layer.at("normal_equal_a2a_count"), 2);
  EXPECT_EQ(layer.at("normal_equal_a2a_sum"), 2 * rows);
  // Added up at the end of a step: 4 layers and 3 microbatches.
  Words whole = ask;
  whole.insert(whole.end(), {"--scope", "step", "--microbatches", "3"});
  const json step = parsed(whole).at("scenarios").at(0).at("counters");
  EXPECT_EQ(step.at("equal_a2a_padding_dispatch"), 4 * 3);
  EXPECT_EQ(step.at("equal_a2a_padding_combine"), 4 * 3);
  EXPECT_EQ(step.at("normal_equal_a2a_count"), 4 * 3 * 2);
  EXPECT_EQ(step.at("normal_equal_a2a_sum"), 4 * 3 * 2 * rows);
  for (const char* name : {"normal_equal_a2a_min", "normal_equal_a2a_max"}) {
    EXPECT_EQ(layer.at(name), rows) << name;
    EXPECT_EQ(step.at(name), rows) << name;
  }
}

// Two ranks share every expert: as a unit of their own their weights are gathered where the experts are
// called for, behind the wait for the exchange's counts.
TEST(Systems, R1_20_ExpertsAreAUnitOfTheirOwnWherePerParameterMeshesAreMissing) {
  const auto step = [](const std::string& dispatcher, const std::string& unit) {
    const json r =
        layer(dispatcher, {"--scope", "step", "--ep", "4", "--sharding", "fsdp", "--fsdp-unit", unit});
    return us(r);
  };
  EXPECT_EQ(step("torchtitan-alltoall", "auto"), step("torchtitan-alltoall", "block"));
  EXPECT_GT(step("torchtitan-alltoall", "experts"), 1.01 * step("torchtitan-alltoall", "auto"));
  // Splits that the host knows need no wait, so nothing is exposed.
  EXPECT_NEAR(step("torchtitan-force-balance", "experts"), step("torchtitan-force-balance", "auto"),
              1e-6 * step("torchtitan-force-balance", "auto"));
}

// EP 8, DP 16, eight ranks shard: the experts' replicas are two, and none of them is left to shard.
TEST(Systems, R1_21_ExpertsShardOverTheSparseMesh) {
  const json r =
      parsed({"compare", "--model", "mixtral-8x7b", "--cluster", "dgx-h100x2", "--ep", "8", "--draws", "0",
              "--sharding", "hsdp:shard=8", "--dispatcher", "torchtitan-alltoall"});
  int of_experts = 0;
  for (const json& one : r.at("step_collectives")) {
    if (!one.at("what").get<std::string>().starts_with("expert")) continue;
    ++of_experts;
    EXPECT_EQ(one.at("op"), "all_reduce");
    EXPECT_EQ(one.at("ranks"), 2);
  }
  EXPECT_EQ(of_experts, 1);
  // Two ranks that shard cannot hold the experts of four.
  const Outcome refused =
      run_moesim({"compare", "--model", "mixtral-8x7b", "--cluster", "dgx-h100x2", "--ep", "4", "--sharding",
                  "hsdp:shard=2", "--dispatcher", "torchtitan-alltoall"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("found shard=2 with ep 4, expected shard x cp x tp to be a multiple of it"));
}

TEST(Systems, R1_22_TheRoutersDebugModeIsARouting) {
  const json forced = layer("torchtitan-force-balance"),
             asked = layer("torchtitan-alltoall", {"--inference", "--routing", "round-robin"});
  // 49,152 slots of each of 12 ranks over 36 experts: 1,365 each, and one more for the first twelve.
  std::vector<int> rows(12, 12 * 3 * 1365);
  for (int r = 0; r < 4; ++r) rows[static_cast<std::size_t>(r)] += 12 * 3;
  EXPECT_EQ(forced.at("rows_per_rank"), rows);
  EXPECT_EQ(asked.at("rows_per_rank"), rows);
}

TEST(Systems, R1_23_RowsThatNoPermutationWroteAreCopiedBeforeTheirView) {
  const Words one{"--inference", "--ep", "1", "--seq", "12288"};  // 1,024 rows for every expert
  const std::string local = "torchtitan-local:experts=fork";
  EXPECT_EQ(operations(layer(local + ":contiguous=true", one), "contiguous rows"), 1);
  EXPECT_EQ(operations(layer(local, one), "contiguous rows"), 0);
  EXPECT_THAT(refusal("torchtitan-alltoall:experts=fork:contiguous=true"), HasSubstr("no effect"));
}

TEST(Systems, R1_24_GroupedProductsAreTheDefault) {
  EXPECT_EQ(us(layer("torchtitan-alltoall")), us(layer("torchtitan-alltoall:experts=grouped")));
  EXPECT_EQ(syncs(layer("torchtitan-alltoall:experts=grouped")), 1);
}

}  // namespace
}  // namespace moesim::systems
