// Document 003, KempnerForge's expert parallelism: rows 3.x of docs/systems.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"

namespace moesim::systems {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using tools::testing::Outcome;
using tools::testing::run_moesim;
using tools::testing::TempFolder;
using tools::testing::with;
using Words = std::vector<std::string>;
using Bytes = std::vector<std::int64_t>;

// The worked examples of docs/spec.md 6.3: rows of a rank (line) for an expert (column), 8 tokens of top-2
// each.
const std::vector<Bytes> kExample1{
    {5, 3, 2, 2, 1, 1, 1, 1}, {5, 3, 3, 1, 1, 1, 1, 1}, {4, 2, 2, 1, 2, 2, 2, 1}, {5, 3, 2, 1, 2, 1, 1, 1}};
const std::vector<Bytes> kExample2(4, {8, 8, 0, 0, 0, 0, 0, 0});

// One layer of H=16, F=32 gated, 8 experts, top-2, on four ranks of eight tokens, with this routing.
TempFolder& here() {
  static TempFolder folder;
  return folder;
}
json scenario() {
  return {{"model",
           {{"name", "example"},
            {"hidden", 16},
            {"expert_ffn", 32},
            {"experts", 8},
            {"topk", 2},
            {"attention", {{"heads", 1}}}}},
          {"parallel", {{"ep", 4}, {"seq", 8}}}};
}
void route(const std::vector<Bytes>& counts) {
  json file{{"ep", 4}, {"experts", 8}, {"per_rank_results", json::object()}};
  for (std::size_t r = 0; r < counts.size(); ++r)
    file["per_rank_results"][std::to_string(r)] = {{"num_local_tokens_per_expert", counts[r]}};
  here().write("routing.json", file.dump());
  json s = scenario();
  s["routing"] = "routing.json";
  here().write("scenario.json", s.dump(1));
}
Outcome run(const std::string& dispatcher, const Words& more = {}) {
  return run_moesim(with({"compare", "scenario.json", "--dispatcher", dispatcher, "--draws", "0"}, more),
                    here().path());
}
json ask(const std::string& dispatcher, const Words& more = {}) {
  const Outcome outcome =
      run(dispatcher, with({"--detail", "messages", "--format", "json", "--quiet"}, more));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.exit_code == 0 ? json::parse(outcome.out).at("scenarios").at(0) : json();
}
// The operations of the rank that ends last, of the dispatcher's part.
std::vector<json> operations(const std::string& dispatcher, const Words& more = {}) {
  const Outcome outcome =
      run(dispatcher, with({"--detail", "operations", "--format", "json", "--quiet"}, more));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::vector<json> all;
  if (outcome.exit_code != 0) return all;
  const json result = json::parse(outcome.out);
  for (const json& op : result.at("scenarios").at(0).at("operations"))
    if (op.at("part") == "dispatcher") all.push_back(op);
  return all;
}
int count(const std::vector<json>& operations, const std::string& what, const std::string& pass = "") {
  return static_cast<int>(std::count_if(operations.begin(), operations.end(), [&](const json& op) {
    return op.at("what") == what && (pass.empty() || op.at("pass") == pass);
  }));
}
int forward_syncs(const json& answer) { return answer.at("host_syncs").at("forward"); }
int backward_syncs(const json& answer) { return answer.at("host_syncs").at("backward"); }

TEST(Systems, R3_1_BackwardSwapsTheSplits) {
  route(kExample1);
  const json messages = ask("kempnerforge").at("messages");
  std::vector<json> tokens[2];
  for (const json& m : messages)
    if (m.at("op") == "all_to_all_v" && m.at("dtype") == "bf16")
      tokens[m.at("pass") == "backward"].push_back(m);
  ASSERT_EQ(tokens[0].size(), 2u);
  ASSERT_EQ(tokens[1].size(), 2u);
  // Rows of 32 bytes for the experts of others: 16 of a rank less 8, 4, 4 and 2 of its own; 30, 14, 11 and 9
  // come back.
  EXPECT_EQ(tokens[0][0].at("tx_bytes"), (json{8 * 32, 12 * 32, 12 * 32, 14 * 32}));
  EXPECT_EQ(tokens[0][1].at("tx_bytes"), (json{22 * 32, 10 * 32, 7 * 32, 7 * 32}));
  // The gradient of the combine goes as the dispatch went, that of the dispatch as the combine.
  EXPECT_EQ(tokens[1][0].at("tx_bytes"), tokens[0][0].at("tx_bytes"));
  EXPECT_EQ(tokens[1][1].at("tx_bytes"), tokens[0][1].at("tx_bytes"));
  EXPECT_EQ(tokens[1][1].at("tx_bytes"), tokens[1][0].at("rx_bytes"));
}

TEST(Systems, R3_2_ThreeListsAndFourHiddenSynchronisations) {
  route(kExample1);
  EXPECT_EQ(forward_syncs(ask("kempnerforge")), 7);
  const std::vector<json> ops = operations("kempnerforge");
  EXPECT_EQ(count(ops, "rows per rank", "forward"), 4);  // bincount's two kernels, the copy and its wait
  EXPECT_EQ(count(ops, "minimum of bincount", "forward"), 4);
}

TEST(Systems, R3_3_ExpertIdsTravelAsFloat32) {
  route(kExample1);
  const json messages = ask("kempnerforge").at("messages");
  ASSERT_EQ(messages.size(), 6u);
  EXPECT_EQ(messages[2].at("what"), "expert ids");
  EXPECT_EQ(messages[2].at("dtype"), "fp32");
  EXPECT_EQ(messages[2].at("in_bytes").get<Bytes>(), (Bytes(4, 64)));
  EXPECT_EQ(messages[2].at("out_bytes").get<Bytes>(), (Bytes{120, 56, 44, 36}));
  for (const json& m : messages)
    if (m.at("pass") == "backward") {
      EXPECT_NE(m.at("what"), "expert ids");
    }
}

TEST(Systems, R3_4_TwoSortsAndTheirInverses) {
  route(kExample1);
  const std::vector<json> ops = operations("kempnerforge");
  for (const char* what : {"sort by rank", "sort by expert", "invert permutation", "invert order"})
    EXPECT_EQ(count(ops, what, "forward"), 1) << what;
  // Ids become float32 and integers again; the outer unsort and the added graph edge have gradients.
  for (const char* what : {"expert ids as float32", "expert ids as integers", "add the graph edge"})
    EXPECT_EQ(count(ops, what, "forward"), 1) << what;
  for (const char* what : {"unsort backward", "unsort returned rows backward", "keep the graph edge backward",
                           "add the graph edge backward"})
    EXPECT_EQ(count(ops, what, "backward"), 1) << what;
}

TEST(Systems, R3_5_TheLoopHasItsOwnSynchronisations) {
  route(kExample1);
  // Four around the exchange of counts, then any(), a masked gather and a masked write for each of two
  // experts.
  const json loop = ask("kempnerforge:experts=loop");
  EXPECT_EQ(forward_syncs(loop), 10);
  const std::vector<json> ops = operations("kempnerforge:experts=loop");
  for (const char* what : {"sort by expert", "rows per expert", "invert permutation", "unsort rows"})
    EXPECT_EQ(count(ops, what), 0) << what;
  // Masks are indexed again in backward: two gradients each, less that of the zeros under the first write.
  EXPECT_EQ(backward_syncs(loop), 5);
  // An expert without a row ends at any().
  route(kExample2);
  EXPECT_EQ(forward_syncs(ask("kempnerforge:experts=loop")), 10);
  std::vector<Bytes> one(4, Bytes{8, 0, 4, 0, 4, 0, 0, 0});
  route(one);
  EXPECT_EQ(forward_syncs(ask("kempnerforge:experts=loop")), 8);
  // Both kinds of weights run through it, and the type of the rows chooses.
  EXPECT_EQ(forward_syncs(ask("kempnerforge:experts=loop:packed=false")), 8);
  route(kExample1);
  const Words alone{"--framework", "none"};
  EXPECT_EQ(forward_syncs(ask("kempnerforge", alone)), 7);
  EXPECT_EQ(forward_syncs(ask("kempnerforge", with(alone, {"--activation-dtype", "fp16"}))), 7);
  EXPECT_EQ(forward_syncs(ask("kempnerforge", with(alone, {"--activation-dtype", "fp32"}))), 10);
  const Outcome refused = run("kempnerforge:experts=grouped", with(alone, {"--activation-dtype", "fp32"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("grouped products take bf16 and fp16"));
}

TEST(Systems, R3_6_UnpackedWeightsAreStacked) {
  route(kExample1);
  const json packed = ask("kempnerforge"), unpacked = ask("kempnerforge:packed=false");
  const std::int64_t stacked = 3 * 2 * 16 * 32 * 2;  // matrices, local experts, H, F, bf16
  for (std::size_t r = 0; r < 4; ++r)
    EXPECT_EQ(unpacked.at("saved_bytes_per_rank").at(r).get<std::int64_t>(),
              packed.at("saved_bytes_per_rank").at(r).get<std::int64_t>() + stacked);
  EXPECT_EQ(count(operations("kempnerforge:packed=false"), "stack weights"), 1);
  EXPECT_EQ(count(operations("kempnerforge"), "stack weights"), 0);
}

// Returns how often the ranks run an operation of this name, in total.
int runs_of(const std::string& dispatcher, const std::string& name) {
  EXPECT_EQ(run(dispatcher, {"--timeline", "t.json"}).exit_code, 0);
  const json timeline = json::parse(tools::testing::read_text(here().path() / "t.json"));
  int times = 0;
  for (const json& event : timeline.at("traceEvents"))
    times += event.at("ph") == "X" && event.at("name") == name && event.at("dur").get<double>() > 0;
  return times;
}

TEST(Systems, R3_7_ZeroContributionsAndZeroGradients) {
  // Packed weights on the ranks without rows: 1 to 3.
  route(kExample2);
  for (const char* name : {"zero contribution", "zero gradients"})
    EXPECT_EQ(runs_of("kempnerforge", name), 3) << name;
  // A list of modules needs it for every expert without a row: one on three ranks, two on the last.
  route(std::vector<Bytes>(4, Bytes{8, 0, 4, 0, 4, 0, 0, 0}));
  for (const char* name : {"zero contribution", "zero gradients"}) {
    EXPECT_EQ(runs_of("kempnerforge", name), 1) << name;
    EXPECT_EQ(runs_of("kempnerforge:packed=false", name), 5) << name;
    EXPECT_EQ(runs_of("kempnerforge:packed=false:experts=loop", name), 5) << name;
  }
}

TEST(Systems, R3_8_WithoutTheGraphEdgeTheGroupHangs) {
  route(kExample2);
  const Outcome refused = run("kempnerforge:graph_edge=false");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("mismatch at position 2, ranks 1-3"));
  EXPECT_THAT(refused.err, HasSubstr("hang"));
  EXPECT_EQ(run("kempnerforge").exit_code, 0);
}

TEST(Systems, R3_9_GradientScalingReadsItsCounts) {
  route(kExample1);
  const json plain = ask("kempnerforge"), scaled = ask("kempnerforge:gradient_scale=true");
  // bincount's two, then item(), a masked read and a masked write for each of two experts: 3 * E_l + 2.
  EXPECT_EQ(forward_syncs(scaled) - forward_syncs(plain), 3 * 2 + 2);
  EXPECT_EQ(backward_syncs(scaled) - backward_syncs(plain), 3 * 2);
  EXPECT_GT(scaled.at("time_us").at("value").get<double>(), plain.at("time_us").at("value").get<double>());
  const Outcome refused = run("kempnerforge:gradient_scale=true", {"--inference"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("gradient_scale runs where gradients are asked for"));
}

TEST(Systems, R3_10_WeightsAndScatterAdd) {
  route(kExample1);
  const std::vector<json> ops = operations("kempnerforge");
  EXPECT_EQ(count(ops, "multiply weights", "forward"), 1);
  EXPECT_EQ(count(ops, "scatter_add", "forward"), 1);
  const json fp32 = ask("kempnerforge"), bf16 = ask("kempnerforge", {"--router-dtype", "bf16"});
  for (std::size_t r = 0; r < 4; ++r)  // 16 weights of 4 or 2 bytes are kept
    EXPECT_EQ(fp32.at("saved_bytes_per_rank").at(r).get<std::int64_t>() -
                  bf16.at("saved_bytes_per_rank").at(r).get<std::int64_t>(),
              16 * 2);
}

TEST(Systems, R3_11_EpBesideDataParallelism) {
  // The document's order: TP, then EP, then FSDP over dp_shard alone.
  const Words words{"compare", "--model",      "mixtral-8x7b", "--cluster", "dgx-h100x4", "--scope",
                    "step",    "--dispatcher", "kempnerforge", "--draws",   "0",          "--format",
                    "json",    "--quiet",      "--detail",     "memory"};
  const Outcome mesh = run_moesim(with(words, {"--mesh", "shard=4,ep=2,tp=4"}));
  ASSERT_EQ(mesh.exit_code, 0) << mesh.err;
  const json result = json::parse(mesh.out);
  EXPECT_EQ(result.at("mesh").at("mesh_dim_names"), (json{"replicate", "shard", "ep", "tp"}));
  EXPECT_EQ(result.at("mesh").at("groups").at("ep").at(0), (json{0, 4}));
  EXPECT_EQ(result.at("mesh").at("groups").at("shard").at(0), (json{0, 8, 16, 24}));
  double dense = 0, experts = 0;
  for (const json& cause : result.at("scenarios").at(0).at("memory").at("stages").at(0).at("causes")) {
    if (cause.at("kind") != "parameters") continue;
    if (cause.at("what") == "dense part/fp32 over 4 ranks") dense = cause.at("bytes");
    if (cause.at("what") == "experts/fp32 over 4 ranks") experts = cause.at("bytes");
  }
  // 32 layers of 8 experts, half of them here, a quarter of each.
  EXPECT_DOUBLE_EQ(experts, 32.0 * 4 * 3 * 4096 * 14336 * 4 / 4);
  EXPECT_GT(dense, 0);
  const Outcome uneven = run_moesim(with(words, {"--mesh", "shard=2,ep=3"}));
  EXPECT_EQ(uneven.exit_code, 2);
  EXPECT_THAT(uneven.err, HasSubstr("8 experts"));
}

TEST(Systems, R3_12_EpOfOneDoesNothing) {
  here().write("scenario.json", scenario().dump());
  const std::vector<json> ops = operations("kempnerforge", {"--ep", "1"});
  for (const char* what : {"sort by rank", "rows per rank", "expert ids", "tokens", "keep the graph edge",
                           "invert permutation", "invert order"})
    EXPECT_EQ(count(ops, what), 0) << what;
  EXPECT_EQ(count(ops, "sort by expert", "forward"), 1);
  const json answer = ask("kempnerforge", {"--ep", "1"});
  EXPECT_TRUE(answer.at("messages").empty());
  EXPECT_EQ(forward_syncs(answer), 2);  // bincount's
  EXPECT_EQ(answer.at("rows_per_rank").get<Bytes>(), (Bytes{16}));
}

TEST(Systems, R3_13_ReplicatedTokensAreCountedOnce) {
  for (const char* scope : {"layer", "step"}) {
    const Outcome outcome = run_moesim({"compare",
                                        "--model",
                                        "mixtral-8x7b",
                                        "--cluster",
                                        "dgx-h100x1",
                                        "--ep",
                                        "4",
                                        "--dp",
                                        "4",
                                        "--seq",
                                        "1024",
                                        "--scope",
                                        scope,
                                        "--dispatcher",
                                        "kempnerforge,alltoall",
                                        "--microbatches",
                                        "1",
                                        "--draws",
                                        "0",
                                        "--format",
                                        "json",
                                        "--quiet"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const json scenarios = json::parse(outcome.out).at("scenarios");
    EXPECT_EQ(scenarios.at(0).at("tokens"), 1024.0) << scope;
    EXPECT_EQ(scenarios.at(1).at("tokens"), 4096.0) << scope;
    EXPECT_EQ(scenarios.at(0).at("ranked"), false) << scope;
    EXPECT_THAT(scenarios.at(0).at("not_ranked_because").get<std::string>(), HasSubstr("same tokens"));
  }
}

TEST(Systems, R3_14_AWholeBlockAsOneUnitCanHang) {
  const Words words{"compare", "--model",           "mixtral-8x7b", "--cluster",    "dgx-h100x4",
                    "--mesh",  "shard=4,ep=2,tp=4", "--dispatcher", "kempnerforge", "--draws",
                    "0",       "--explain"};
  const Outcome block = run_moesim(with(words, {"--fsdp-unit", "block"}));
  ASSERT_EQ(block.exit_code, 0) << block.err;
  EXPECT_THAT(block.out, HasSubstr("fsdp_unit block can hang"));
  EXPECT_THAT(block.out, HasSubstr("reduce-scatter of a block's parameters"));
  const Outcome module = run_moesim(with(words, {"--fsdp-unit", "module"}));
  ASSERT_EQ(module.exit_code, 0) << module.err;
  EXPECT_THAT(module.out, Not(HasSubstr("can hang")));
}

// Without TP a rank holds all of the model until EP slices it: Mixtral 8x7B has 46,702,792,704 parameters.
TEST(Systems, R3_15_SetUpHoldsTheWholeModel) {
  const json whole = tools::testing::parsed({"compare", "--model", "mixtral-8x7b", "--cluster", "dgx-h100x1",
                                             "--scope", "step", "--ep", "1", "--dp", "1", "--sharding", "ddp",
                                             "--dispatcher", "kempnerforge", "--draws", "0", "--quiet"})
                         .at("scenarios")
                         .at(0);
  EXPECT_EQ(whole.at("memory").at("parameters_bytes").get<double>(), 2.0 * 46702792704);
}

}  // namespace
}  // namespace moesim::systems
