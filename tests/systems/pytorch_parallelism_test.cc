// Document 004, parallelism in PyTorch itself: meshes, FSDP, tensor parallelism, MegaBlocks, Shampoo:
// rows 4.x of docs/systems.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
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
using tools::testing::parsed;
using tools::testing::read_text;
using tools::testing::run_moesim;
using tools::testing::TempFolder;
using tools::testing::with;
using Words = std::vector<std::string>;
using Bytes = std::vector<std::int64_t>;

TempFolder& here() {
  static TempFolder folder;
  return folder;
}

json result_of(const Words& words) { return parsed(with(words, {"--draws", "0"}), here().path()); }
json answer_of(const Words& words) {
  const json result = result_of(words);
  return !result.is_object() ? json() : result.at("scenarios").at(0);
}
double time_of(const json& answer) { return answer.at("time_us").at("value"); }

// The document's transformer: 4 layers, hidden 1024, FFN 4096, LayerNorms, untied head.
constexpr double kParameters = 153276416;
Words transformer(const Words& more) {
  here().write("transformer.json", R"({"name": "transformer", "hidden": 1024, "layers": 4, "experts": 0,
    "dense_ffn": 4096, "gated": false, "norm_bias": true, "vocabulary": 50257,
    "attention": {"heads": 16, "kv_heads": 16, "head_dim": 64}})");
  return with({"compare", "--model", "transformer.json", "--cluster", "dgx-h100x1", "--scope", "step",
               "--seq", "1024"},
              more);
}

// Bytes of what one stage holds, by the name of its cause.
double held(const json& answer, const std::string& kind, const std::string& what) {
  double bytes = 0;
  for (const json& cause : answer.at("memory").at("stages").at(0).at("causes"))
    if (cause.at("kind") == kind && cause.at("what") == what) bytes += cause.at("bytes").get<double>();
  return bytes;
}

TEST(Systems, R4_1_TheDocumentsMeshes) {
  const json eight = result_of(transformer({"--mesh", "replicate=2,shard=2,tp=2"})).at("mesh");
  EXPECT_EQ(eight.at("mesh_dim_names"), (json{"replicate", "shard", "tp"}));
  EXPECT_EQ(eight.at("mesh").dump(), "[[[0,1],[2,3]],[[4,5],[6,7]]]");
  EXPECT_EQ(eight.at("groups").at("tp").dump(), "[[0,1],[2,3],[4,5],[6,7]]");
  EXPECT_EQ(eight.at("groups").at("shard").dump(), "[[0,2],[1,3],[4,6],[5,7]]");
  EXPECT_EQ(eight.at("groups").at("replicate").dump(), "[[0,4],[1,5],[2,6],[3,7]]");
  for (const auto& [sizes, mesh] :
       {std::pair{"shard=2", "[[[0],[1]]]"}, {"replicate=2", "[[[0]],[[1]]]"}, {"tp=2", "[[[0,1]]]"}})
    EXPECT_EQ(result_of(transformer({"--mesh", sizes})).at("mesh").at("mesh").dump(), mesh) << sizes;
  // A plan for every verb, from a file too; what contradicts it is refused.
  here().write("mesh.json", R"({"model": "mixtral-8x7b", "cluster": "dgx-h100x4", "scope": "step",
    "mesh": {"replicate": 2, "shard": 2, "ep": 2, "tp": 2}})");
  EXPECT_EQ(answer_of({"compare", "mesh.json", "--quiet"}).at("gpus"), 16);
  EXPECT_EQ(run_moesim({"whatif", "mesh.json", "--set", "seq=2048", "--draws", "0"}, here().path()).exit_code,
            0);
  EXPECT_EQ(run_moesim({"sweep", "mesh.json", "--grid", "seq=1024,2048", "--out", "s.csv", "--quiet"},
                       here().path())
                .exit_code,
            0);
  const Outcome twice = run_moesim(transformer({"--mesh", "tp=2", "--tp", "4"}), here().path());
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, HasSubstr("parallel.tp: found 4 beside a mesh that makes it 2"));
  const Outcome axis = run_moesim(transformer({"--mesh", "shrad=2"}), here().path());
  EXPECT_THAT(axis.err, HasSubstr("did you mean 'shard'"));
}

TEST(Systems, R4_2_EverySchemeOnADenseModel) {
  struct Case {
    const char* mesh;
    const char* scheme;
  };
  for (const auto& [mesh, scheme] : {Case{"shard=2", "fsdp"}, Case{"replicate=2", "ddp"}, Case{"tp=2", "ddp"},
                                     Case{"replicate=2,shard=2,tp=2", "hsdp"}}) {
    const json result = result_of(transformer({"--mesh", mesh}));
    EXPECT_EQ(result.at("inputs").at("scenario").at("training").at("sharding"), scheme) << mesh;
    EXPECT_GT(time_of(result.at("scenarios").at(0)), 0);
  }
  // Parameters are gathered in bf16, once where one unit stays gathered, gradients reduced in fp32.
  const auto collectives = [](const Words& more) {
    std::vector<std::string> all;
    const json result = result_of(transformer(with(more, {"--microbatches", "1"})));
    for (const json& one : result.value("step_collectives", json::array()))
      all.push_back(one.at("what").get<std::string>() + " " + one.at("op").get<std::string>() + " " +
                    one.at("ranks").dump() + " " + one.at("buffer_bytes").dump() + " " +
                    one.at("tx_bytes").dump());
    return all;
  };
  EXPECT_THAT(collectives({"--mesh", "shard=2", "--fsdp-unit", "root"}),
              ::testing::ElementsAre("dense parameters all_gather 2 306552832 153276416",
                                     "dense gradients reduce_scatter 2 613105664 306552832"));
  EXPECT_THAT(collectives({"--mesh", "replicate=2"}),
              ::testing::ElementsAre("dense gradients all_reduce 2 613105664 613105664"));
  EXPECT_TRUE(collectives({"--mesh", "tp=2"}).empty());
  // Two tensor-parallel ranks: 25,129 and 25,128 of the vocabulary's rows twice, half of each matrix, norms
  // whole. 2 x 25129 x 1024 + 4 x ((4 x 1024 + 2 x 4096) x 1024 / 2 + 2 x 2048) + 2048 = 76,648,448.
  constexpr std::int64_t kShare = 76648448;
  const json divided = answer_of(transformer({"--mesh", "tp=2"}));
  EXPECT_DOUBLE_EQ(held(divided, "parameters", "dense part/bf16"), 2 * kShare);
  // With it HSDP gathers the share in bf16, reduces its gradients in fp32 over the shards, and what is left
  // of them over the replicas.
  const auto line = [](const std::string& what, std::int64_t bytes, std::int64_t sent) {
    return "dense " + what + " 2 " + std::to_string(bytes) + " " + std::to_string(sent);
  };
  EXPECT_THAT(collectives({"--mesh", "replicate=2,shard=2,tp=2", "--fsdp-unit", "root"}),
              ::testing::ElementsAre(line("parameters all_gather", 2 * kShare, kShare),
                                     line("gradients reduce_scatter", 4 * kShare, 2 * kShare),
                                     line("gradients all_reduce", 2 * kShare, 2 * kShare)));
  // A dense Hugging Face config is a model, too; what a dense model has no part for is refused.
  here().write("config.json", R"({"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 4,
    "num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 32000})");
  EXPECT_GT(time_of(answer_of({"compare", "--model", "config.json", "--scope", "step", "--quiet"})), 0);
  for (const Words& more : {Words{"--dispatcher", "alltoall"}, {"--ep", "2"}, {"--routing", "zipf:1.2"}}) {
    const Outcome refused = run_moesim(transformer(more), here().path());
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr("found no experts with"));
  }
}

TEST(Systems, R4_3_RootOnlyUnit) {
  const json ddp = answer_of(transformer({"--dp", "1", "--sharding", "ddp"}));
  EXPECT_DOUBLE_EQ(held(ddp, "parameters", "dense part/bf16"), kParameters * 2);
  const Words fsdp{"--mesh", "shard=2", "--microbatches", "2"};
  const json root = answer_of(transformer(with(fsdp, {"--fsdp-unit", "root"})));
  // 76,638,208 parameters each, and all of them while one step runs.
  EXPECT_DOUBLE_EQ(held(root, "parameters", "dense part/fp32 over 2 ranks"), kParameters / 2 * 4);
  EXPECT_DOUBLE_EQ(held(root, "parameters", "gathered model/bf16"), kParameters * 2);
  const json block = answer_of(transformer(fsdp));
  EXPECT_GT(held(root, "parameters", "gathered model/bf16"),
            held(block, "parameters", "gathered units/bf16, two"));
  // Nothing hides what the one unit gathers and reduces.
  EXPECT_GT(root.at("exposed_comm_us").get<double>(), block.at("exposed_comm_us").get<double>());
}

TEST(Systems, R4_4_LossParallelAndAnUnevenVocabulary) {
  const Words tp{"--mesh", "tp=2", "--detail", "memory"};
  const json on = answer_of(transformer(tp));
  // The first rank holds 25,129 of 50,257 rows of the table and of the head.
  const double of_rest = (kParameters - 2.0 * 50257 * 1024 - 9 * 2048) / 2 + 9 * 2048;
  EXPECT_DOUBLE_EQ(held(on, "parameters", "dense part/bf16"), (of_rest + 2.0 * 25129 * 1024) * 2);
  here().write("off.json", R"({"scope": "step", "model": "transformer.json", "cluster": "dgx-h100x1",
    "parallel": {"seq": 1024}, "mesh": {"tp": 2}, "training": {"loss_parallel": false}})");
  const json off = answer_of({"compare", "off.json", "--quiet"});
  // Logits of 1024 tokens are gathered: all 50,257 columns on both ranks.
  EXPECT_GT(off.at("breakdown_us").at("loss").get<double>(), on.at("breakdown_us").at("loss").get<double>());
  EXPECT_GT(off.at("peak_memory_bytes").at("max").get<double>(),
            on.at("peak_memory_bytes").at("max").get<double>());
  const Outcome alone = run_moesim({"compare", "off.json", "--mesh", "shard=2"}, here().path());
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("training.loss_parallel: found false with tp 1"));
}

// One layer with this routing, rows of a rank (line) for an expert (column).
Words routed(const std::vector<Bytes>& counts, int ep, int topk, int tokens, const Words& more) {
  json file{{"ep", ep}, {"experts", counts[0].size()}, {"per_rank_results", json::object()}};
  for (std::size_t r = 0; r < counts.size(); ++r)
    file["per_rank_results"][std::to_string(r)] = {{"num_local_tokens_per_expert", counts[r]}};
  here().write("routing.json", file.dump());
  here().write("layer.json", json{{"model",
                                   {{"name", "example"},
                                    {"hidden", 256},
                                    {"expert_ffn", 256},
                                    {"experts", counts[0].size()},
                                    {"topk", topk},
                                    {"attention", {{"heads", 2}}}}},
                                  {"parallel", {{"ep", ep}, {"seq", tokens}}},
                                  {"routing", "routing.json"}}
                                 .dump());
  return with({"compare", "layer.json", "--quiet"}, more);
}

TEST(Systems, R4_5_AllToAllOfUnevenSplits) {
  // [[2, 3], [3, 3]] rows: rank 0 gets 2 + 3, rank 1 gets 3 + 3.
  const json answer = answer_of(
      routed({{2, 3}, {3, 3}}, 2, 1, 6, {"--dispatcher", "torchtitan-alltoall", "--detail", "messages"}));
  for (const json& m : answer.at("messages"))
    if (m.at("what") == "tokens" && m.at("pass") == "forward") {
      EXPECT_EQ(m.at("in_bytes").get<Bytes>(), (Bytes{5 * 512, 6 * 512}));
      EXPECT_EQ(m.at("out_bytes").get<Bytes>(), (Bytes{5 * 512, 6 * 512}));
      EXPECT_EQ(m.at("tx_bytes").get<Bytes>(), (Bytes{3 * 512, 3 * 512}));
      return;
    }
  FAIL() << "no exchange of tokens";
}

const std::vector<Bytes> kEven(2, Bytes{3, 1, 2, 1, 1, 2, 1, 1});

Words smoke(const std::string& dispatcher, const Words& more = {}) {
  return routed(kEven, 2, 2, 6, with({"--dispatcher", dispatcher}, more));
}

TEST(Systems, R4_6_MemoryOverTime) {
  const json memory = answer_of({"compare", "--model", "mixtral-8x7b", "--ep", "8", "--dispatcher",
                                 "megablocks-dmoe-sparse", "--quiet"})
                          .at("memory");
  EXPECT_GT(memory.at("curve").size(), 20u);
  // Each point is what is held from then on: the experts' output is allocated and freed whole.
  const json curve =
      answer_of(smoke("megablocks-dmoe-grouped", {"--detail", "memory"})).at("memory").at("curve");
  std::vector<double> jumps;
  for (std::size_t i = 1; i < curve.size(); ++i)
    if (curve.at(i).at("what") == "expert output")
      jumps.push_back(curve.at(i).at("bytes").get<double>() - curve.at(i - 1).at("bytes").get<double>());
  // Ranks get 14 and 10 rows of 256 bf16 elements: (3 + 1 + 2 + 1) and (1 + 2 + 1 + 1) from each of two.
  EXPECT_THAT(jumps, ::testing::ElementsAre(14 * 512, -14 * 512));
  // Kept: 6 tokens, 8 fp32 scores of each, two int64 indices and fp32 weights of each; 14 rows for the
  // experts, two products of them, the product of both and its activation; 12 rows that came back. Beside it,
  // at the end of forward, the 12 rows sent, 14 received, 14 computed, 12 returned and 6 tokens out; in
  // backward the gradients of 12 and 14 + 14 + 14 rows, of two products and of what went in.
  const int kept = 6 * (512 + 8 * 4 + 2 * 12) + (14 * (1 + 2 + 1 + 1) + 12) * 512;
  std::map<std::string, double> most;
  for (const json& point : curve)
    most[point.at("pass")] = std::max(most[point.at("pass")], point.at("bytes").get<double>());
  const double before = curve.front().at("bytes");
  EXPECT_EQ(most["forward"] - before, kept + (12 + 14 + 14 + 12 + 6) * 512);
  EXPECT_EQ(most["backward"] - before, kept + (12 + 14 + 14 + 14 + 2 * 14 + 14) * 512);
  EXPECT_EQ(curve.back().at("bytes"), before);
}

TEST(Systems, R4_7_CapacityOfZeroIsEachRanksOwnMaximum) {
  const std::vector<Bytes> one(4, Bytes{16, 0, 0, 0});
  const Words zero{"--dispatcher", "megablocks-moe:capacity_factor=0"};
  json answer = answer_of(routed(one, 4, 1, 16, zero));
  EXPECT_EQ(answer.at("rows_per_rank").get<Bytes>(), (Bytes{64, 0, 0, 0}));
  EXPECT_EQ(answer.at("dropped_rows"), 0);
  EXPECT_EQ(answer.at("host_syncs").at("forward"), 3);  // two lists of counts and the maximum
  // int() cuts a small capacity to 0, which means the maximum.
  answer = answer_of(routed(one, 4, 1, 16, {"--dispatcher", "megablocks-moe:capacity_factor=0.01"}));
  EXPECT_EQ(answer.at("rows_per_rank").get<Bytes>(), (Bytes{64, 0, 0, 0}));
  EXPECT_EQ(answer.at("dropped_rows"), 0);
  // Rows after the top-k gather stand for the tokens: K = 2 doubles the capacity; the other reading is an
  // option.
  const std::vector<Bytes> even(2, Bytes{8, 8, 8, 8});
  EXPECT_EQ(answer_of(routed(even, 2, 2, 16, {"--dispatcher", "megablocks-moe"})).at("rows_per_rank"),
            (json{64, 64}));
  EXPECT_EQ(answer_of(routed(even, 2, 2, 16, {"--dispatcher", "megablocks-moe:nominal_capacity=true"}))
                .at("rows_per_rank"),
            (json{32, 32}));
  // Without expert parallelism rows go into the bins and back once.
  const json alone = answer_of(
      routed({{8, 8, 8, 8}}, 1, 2, 16, {"--dispatcher", "megablocks-moe", "--detail", "operations"}));
  EXPECT_TRUE(std::none_of(alone.at("operations").begin(), alone.at("operations").end(),
                           [](const json& op) { return op.at("what") == "gather rows"; }));
  EXPECT_EQ(alone.at("host_syncs").at("forward"), 0);
}

std::vector<std::string> forward_operations(const json& answer) {
  std::vector<std::string> names;
  for (const json& op : answer.at("operations"))
    if (op.at("part") == "dispatcher" && op.at("pass") == "forward") names.push_back(op.at("what"));
  return names;
}

std::ptrdiff_t place_of(const std::vector<std::string>& names, const std::string& name) {
  const auto at = std::find(names.begin(), names.end(), name);
  EXPECT_NE(at, names.end()) << name;
  return at - names.begin();
}

TEST(Systems, R4_8_TwoSynchronisationsAndAnOverlappedExchange) {
  const json answer =
      answer_of({"compare", "--model", "mixtral-8x7b", "--ep", "8", "--dispatcher", "megablocks-dmoe-grouped",
                 "--framework", "none", "--detail", "operations", "--quiet"});
  EXPECT_EQ(answer.at("host_syncs").at("forward"), 2);
  double begin = -1, end = -1, bins = -1;
  for (const json& op : answer.at("operations")) {
    if (op.at("what") == "tokens" && end < 0) {
      begin = op.at("start_us").get<double>() + op.at("wait_us").get<double>();
      end = begin + op.at("time_us").get<double>();
    }
    if (op.at("what") == "bins of received rows") bins = op.at("start_us");
  }
  EXPECT_GT(bins, begin);  // under the exchange
  EXPECT_LT(bins, end);
}

TEST(Systems, R4_9_HiddenShardingRepeatsTheRows) {
  // Four ranks for two experts: each rank holds half of an expert's inner size, and every row travels twice.
  here().write("wide.json",
               R"({"model": {"name": "wide", "hidden": 256, "expert_ffn": 256, "experts": 2, "topk": 1,
    "attention": {"heads": 2}}, "parallel": {"ep": 4, "seq": 16}})");
  const json answer = answer_of(
      {"compare", "wide.json", "--dispatcher", "megablocks-dmoe-grouped", "--detail", "messages", "--quiet"});
  for (const json& m : answer.at("messages"))
    if (m.at("what") == "tokens") {
      EXPECT_EQ(m.at("in_bytes").at(0), 2 * 16 * 512);
    }
  EXPECT_EQ(answer.at("rows_per_rank").get<Bytes>(), Bytes(4, 32));
}

TEST(Systems, R4_10_TopologyAfterTheWaitAndBlockSparseProducts) {
  const json answer = answer_of(smoke("megablocks-dmoe-sparse", {"--detail", "operations"}));
  const std::vector<std::string> names = forward_operations(answer);
  EXPECT_GT(place_of(names, "block topology"), place_of(names, "gather into bins"));
  double wait = 0, topology = 0;
  for (const json& op : answer.at("operations")) {
    const double end =
        op.at("start_us").get<double>() + op.at("wait_us").get<double>() + op.at("time_us").get<double>();
    if (op.at("what") == "tokens" && op.at("category") == "dispatch" && op.at("pass") == "forward")
      wait = end;
    if (op.at("what") == "block topology") topology = op.at("start_us");
  }
  EXPECT_GE(topology, wait);
  // Its products have a law of their own, marked as not measured.
  EXPECT_THAT(answer.at("unmeasured").dump(), HasSubstr("block-sparse bf16 product"));
  const json grouped = answer_of(smoke("megablocks-dmoe-grouped"));
  EXPECT_THAT(grouped.at("unmeasured").dump(), Not(HasSubstr("block-sparse")));
}

TEST(Systems, R4_11_GroupedProductsReuseTheCounts) {
  EXPECT_EQ(answer_of(smoke("megablocks-dmoe-grouped")).at("host_syncs").at("forward"), 2);
  // Without expert parallelism there is no such copy, and the product asks for one.
  EXPECT_EQ(
      answer_of(routed({{3, 1, 2, 1, 1, 2, 1, 1}}, 1, 2, 6, {"--dispatcher", "megablocks-dmoe-grouped"}))
          .at("host_syncs")
          .at("forward"),
      1);
}

TEST(Systems, R4_12_OptionsOfTheLayer) {
  const json plain = answer_of(smoke("megablocks-dmoe-sparse"));
  const auto saved = [](const json& answer) {
    return answer.at("saved_bytes_per_rank").at(0).get<std::int64_t>();
  };
  // The noise of 6 x 256 inputs; 6 x 8 logits.
  EXPECT_EQ(saved(answer_of(smoke("megablocks-dmoe-sparse:jitter_eps=0.01"))) - saved(plain), 6 * 256 * 2);
  EXPECT_EQ(saved(answer_of(smoke("megablocks-dmoe-sparse:z_loss=true"))) - saved(plain), 6 * 8 * 2);
  // The document's printed arguments. Two fp32 weights of 6 tokens and their norm; 6 x 8 fp32 logits.
  EXPECT_EQ(saved(answer_of(smoke("megablocks-dmoe-sparse:normalize_expert_weights=1"))) - saved(plain),
            6 * (2 + 1) * 4);
  EXPECT_EQ(saved(answer_of(smoke("megablocks-dmoe-sparse:z_loss=true:zloss_in_fp32=true"))) - saved(plain),
            6 * 8 * (2 + 4));
  for (const auto& [option, name] :
       {std::pair{"lbl_in_fp32=true", "scores in fp32"}, {"bias=true", "add bias"}}) {
    const std::string with_it = std::string("megablocks-dmoe-sparse:") + option;
    const json run = answer_of(smoke(with_it, {"--detail", "operations"}));
    EXPECT_EQ(saved(run), saved(plain)) << option;
    EXPECT_EQ(
        run.at("operations").size(),
        answer_of(smoke("megablocks-dmoe-sparse", {"--detail", "operations"})).at("operations").size() + 2)
        << option;  // there and back
    EXPECT_THAT(run.at("operations").dump(), HasSubstr(name));
  }
  for (const char* alone : {"megablocks-dmoe-sparse:zloss_in_fp32=true",
                            "megablocks-dmoe-sparse:shared_expert_weighted_sum=true"})
    EXPECT_EQ(run_moesim(smoke(alone), here().path()).exit_code, 2) << alone;
  const json uniform = answer_of(smoke("megablocks-dmoe-grouped:uniform_expert_assignment=true"));
  EXPECT_EQ(uniform.at("rows_per_rank").get<Bytes>(), (Bytes{16, 8}));  // slots 0 to 11 go to experts f mod 8
  EXPECT_EQ(uniform.at("ranked"), false);
  // MLP: what the memory-optimised one keeps depends on remat_act_fn; GLU: three weights.
  const Words mlp = smoke("megablocks-dmoe-sparse:memory_optimized=true");
  json layer = json::parse(read_text(here().path() / "layer.json"));
  layer["model"]["gated"] = false;
  here().write("mlp.json", layer.dump());
  const auto of_mlp = [&](const std::string& dispatcher) {
    return saved(answer_of({"compare", "mlp.json", "--quiet", "--dispatcher", dispatcher}));
  };
  EXPECT_LT(of_mlp("megablocks-dmoe-sparse:memory_optimized=true"), of_mlp("megablocks-dmoe-sparse"));
  EXPECT_EQ(of_mlp("megablocks-dmoe-sparse:memory_optimized=true:remat_act_fn=false"),
            of_mlp("megablocks-dmoe-sparse"));
  for (const char* bad :
       {"megablocks-dmoe-sparse:remat_act_fn=false", "megablocks-dmoe-sparse:memory_optimized=true"})
    EXPECT_EQ(run_moesim(smoke(bad), here().path()).exit_code, 2) << bad;
  EXPECT_EQ(run_moesim(smoke("megablocks-dmoe-sparse:z_loss=true", {"--inference"}), here().path()).exit_code,
            2);
}

Words mixtral(const Words& more) {
  return with({"compare", "--model", "mixtral-8x7b", "--cluster", "dgx-h100x4", "--scope", "step",
               "--dispatcher", "megablocks-dmoe-grouped"},
              more);
}

TEST(Systems, R4_13_OptimizerLaunchesOfEveryMesh) {
  const Words mesh{"--mesh", "shard=4,ep=8"};
  const Outcome warned = run_moesim(with(mixtral(mesh), {"--draws", "0", "--format", "json"}));
  ASSERT_EQ(warned.exit_code, 0) << warned.err;
  EXPECT_THAT(warned.err, HasSubstr("DTensor does not support cross-mesh operation yet"));
  const json two = json::parse(warned.out).at("scenarios").at(0).at("optimizer");
  EXPECT_EQ(two.at("meshes"), 2);
  const json one = answer_of(mixtral({"--mesh", "shard=8", "--quiet"})).at("optimizer");
  EXPECT_EQ(one.at("meshes"), 1);
  EXPECT_EQ(two.at("launches"), 2 * one.at("launches").get<int>());
  // The document's run: a mesh of 1 x 2, whose shard of one rank falls back to NO_SHARD; its parameters are
  // on two meshes all the same.
  for (const Words& more : {Words{}, {"--sharding", "fsdp"}}) {
    const Outcome failing = run_moesim(
        with(mixtral({"--mesh", "shard=1,ep=2"}), with(more, {"--draws", "0", "--format", "json"})));
    ASSERT_EQ(failing.exit_code, 0) << failing.err;
    EXPECT_THAT(failing.err, HasSubstr("DTensor does not support cross-mesh operation yet"));
    EXPECT_EQ(json::parse(failing.out).at("scenarios").at(0).at("optimizer").at("meshes"), 2);
  }
  here().write("each.json", R"({"training": {"foreach": false}, "scope": "step"})");
  const Words words = mixtral(mesh);
  const Outcome each = run_moesim(with({"compare", "each.json"}, with(Words(words.begin() + 1, words.end()),
                                                                      {"--draws", "0", "--format", "json"})),
                                  here().path());
  ASSERT_EQ(each.exit_code, 0) << each.err;
  EXPECT_THAT(each.err, Not(HasSubstr("cross-mesh")));
  EXPECT_GT(json::parse(each.out).at("scenarios").at(0).at("optimizer").at("launches"), 100);
}

TEST(Systems, R4_14_ModulesWrappedApart) {
  // DDP around the router and the experts, FSDP around all.
  here().write("apart.json",
               R"({"model": "mixtral-8x7b", "cluster": "dgx-h100x1", "parallel": {"ep": 2, "dp": 8},
    "dispatcher": "megablocks-dmoe-grouped",
    "training": {"sharding": "fsdp", "router_sharding": "ddp", "expert_sharding": "ddp"}})");
  const json apart = result_of({"compare", "apart.json", "--quiet"}).at("step_collectives");
  std::vector<std::string> seen;
  for (const json& one : apart)
    seen.push_back(one.at("what").get<std::string>() + " " + one.at("op").get<std::string>() + " " +
                   std::to_string(one.at("ranks").get<int>()));
  EXPECT_THAT(seen,
              ::testing::ElementsAre("dense parameters all_gather 8", "dense gradients reduce_scatter 8",
                                     "router gradients all_reduce 8", "expert gradients all_reduce 4"));
  // One scheme for all says otherwise, at both scopes.
  for (const char* scope : {"layer", "step"}) {
    const json a = answer_of({"compare", "apart.json", "--scope", scope, "--quiet"});
    const json b = answer_of({"compare", "--model", "mixtral-8x7b", "--cluster", "dgx-h100x1", "--ep", "2",
                              "--dp", "8", "--dispatcher", "megablocks-dmoe-grouped", "--sharding", "fsdp",
                              "--scope", scope, "--quiet"});
    EXPECT_GT(a.at("memory").at("optimizer_bytes"), b.at("memory").at("optimizer_bytes")) << scope;
  }
}

Words shampoo(const std::string& sharding, const json& training) {
  json t{{"sharding", sharding + ":shampoo"}};
  t.update(training);
  transformer({});
  here().write("shampoo.json", json{{"model", "transformer.json"},
                                    {"cluster", "dgx-h100x1"},
                                    {"scope", "step"},
                                    {"parallel", {{"dp", 4}, {"seq", 1024}}},
                                    {"training", t}}
                                   .dump());
  return {"compare", "shampoo.json", "--quiet"};
}

TEST(Systems, R4_15_DistributedShampoo) {
  const auto optimizer = [](const json& answer) {
    return answer.at("breakdown_us").at("optimizer").get<double>();
  };
  // Roots every 20 steps cost less than every 5; in a step of its own they show as a spike.
  const double rare = optimizer(answer_of(shampoo("hsdp:shard=2", {{"precondition_frequency", 20}}))),
               often = optimizer(answer_of(shampoo("hsdp:shard=2", {{"precondition_frequency", 5}})));
  EXPECT_LT(rare, often);
  const auto at = [&](int step) {
    return optimizer(answer_of(shampoo(
        "hsdp:shard=2",
        {{"precondition_frequency", 20}, {"start_preconditioning_step", 40}, {"shampoo_step", step}})));
  };
  EXPECT_LT(at(20), at(41));  // before the start only the factors are updated
  EXPECT_LT(at(41), at(60));
  EXPECT_DOUBLE_EQ(at(41), at(59));
  EXPECT_DOUBLE_EQ(at(40), at(60));
  // Two factors and two roots of fp32 for each block, dealt out to all four ranks.
  const json hsdp = answer_of(shampoo("hsdp:shard=2", json::object()));
  EXPECT_DOUBLE_EQ(held(hsdp, "optimizer", "dense part/preconditioners and their roots fp32 over 4 ranks"),
                   kParameters * 16 / 4);
  // The gather of updates: everything among all replicas under DDP, a shard among its replicas under HSDP,
  // none under FSDP. Experts go over their own ranks.
  const auto gathers = [](const std::string& sharding) {
    std::vector<std::pair<double, int>> all;
    const json collectives =
        result_of({"compare", "--model", "mixtral-8x7b", "--cluster", "dgx-h100x4", "--ep", "2", "--dp", "16",
                   "--dispatcher", "alltoall", "--sharding", sharding, "--quiet"})
            .at("step_collectives");
    for (const json& one : collectives)
      if (one.at("what").get<std::string>().ends_with("shampoo updates"))
        all.emplace_back(one.at("buffer_bytes").get<double>(), one.at("ranks").get<int>());
    return all;
  };
  const auto ddp = gathers("ddp:shampoo"), two = gathers("hsdp:shard=8:shampoo");
  ASSERT_EQ(ddp.size(), 2u);
  EXPECT_EQ(ddp[0].second, 16);
  EXPECT_EQ(ddp[1].second, 8);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].second, 2);
  EXPECT_NEAR(two[0].first, ddp[0].first / 8, 2);
  EXPECT_EQ(two[1].second, 2);  // of the 8 ranks of an expert four shard it
  EXPECT_NEAR(two[1].first, ddp[1].first / 4, 2);
  EXPECT_TRUE(gathers("fsdp:shampoo").empty());
  const Outcome refused = run_moesim(transformer({"--sharding", "zero1:shampoo"}), here().path());
  EXPECT_EQ(refused.exit_code, 2);
}

TEST(Systems, R4_16_TheSmokeTestOfDMoe) {
  // hidden 256, FFN 256, 8 experts, top-2, GLU, x [2, 3, 256] on two ranks: 12 rows each.
  const json answer = answer_of(smoke("megablocks-dmoe-sparse", {"--detail", "messages"}));
  EXPECT_EQ(answer.at("messages").at(1).at("in_bytes").at(0), 12 * 512);
  EXPECT_EQ(answer.at("rows_per_rank").get<Bytes>(), (Bytes{4 * 128, 4 * 128}));
}

TEST(Systems, R4_17_WhatIsOutOfScopeIsNotAModel) {
  const Outcome muon = run_moesim({"compare", "--model", "modded-nanogpt"});
  EXPECT_EQ(muon.exit_code, 2);
  EXPECT_THAT(muon.err, HasSubstr("model: found 'modded-nanogpt', expected one of"));
  EXPECT_EQ(
      run_moesim({"compare", "--model", "olmoe", "--ep", "8", "--dispatcher", "alltoall", "--draws", "0"})
          .exit_code,
      0);
}

}  // namespace
}  // namespace moesim::systems
