// Layers of every kind through counts, FLOPs, programs, memory and whole steps: what must hold whatever the
// prices are.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/json_reader.h"
#include "base/text.h"
#include "models/answers/answer.h"
#include "models/programs/layer_program.h"
#include "models/programs/projections.h"
#include "models/step/kept_activations.h"
#include "models/step/step_memory.h"
#include "models/step/training_flops.h"
#include "models/workload/layer_stack.h"
#include "models/workload/mixers.h"
#include "tests/cases.h"
#include "tests/models/layers.h"
#include "tests/models/small_job.h"

namespace moesim::models::testing {
namespace {

using nlohmann::ordered_json;
using Mixer = LayerKind::Mixer;

const ordered_json& kinds() {
  static const ordered_json all = moesim::testing::cases("models/layer_kinds.json", "kinds");
  return all;
}

Architecture model_of(const std::string& kind) {
  ordered_json config{{"hidden_size", 256},       {"num_hidden_layers", 4},   {"num_attention_heads", 8},
                      {"num_key_value_heads", 4}, {"head_dim", 32},           {"intermediate_size", 512},
                      {"num_local_experts", 8},   {"num_experts_per_tok", 2}, {"vocab_size", 512}};
  config.update(kinds().at(kind));
  return Architecture::parse(JsonNode::from_json(config, "config.json"), kind);
}

Scenario job_of(const Architecture& model, std::int64_t seq) {
  Scenario s = small_job();
  s.model = model;
  s.parallel.seq = seq;
  return s;
}

double step_us(const Architecture& model, std::int64_t seq) {
  return answer(job_of(model, seq), {.draws = 0}).answers.front().time_us.value;
}

TEST(LayerKinds, AreReadFromTheirOwnKeys) {
  const auto mixers = [](const char* kind) {
    std::vector<Mixer> all;
    for (const LayerKind& layer : layer_stack(model_of(kind))) all.push_back(layer.mixer);
    return all;
  };
  const auto three = [](Mixer mixer) { return std::vector<Mixer>{mixer, mixer, mixer, Mixer::kAttention}; };
  EXPECT_EQ(mixers("windowed"), three(Mixer::kWindowed));
  for (const char* kind : {"gated delta", "kimi delta", "lightning"})
    EXPECT_EQ(mixers(kind), three(Mixer::kLinear)) << kind;
  for (const char* kind : {"mamba-1", "mamba-2"}) EXPECT_EQ(mixers(kind), three(Mixer::kMamba)) << kind;
  EXPECT_EQ(mixers("short convolution"), three(Mixer::kConvolution));
  using enum LayerKind::Mixer;
  EXPECT_EQ(mixers("shared choice"), (std::vector<Mixer>{kAttention, kShared, kShared, kShared}));
  EXPECT_EQ(mixers("compressed"), (std::vector<Mixer>{kSelected, kCompressed, kWindowed, kSelected}));
  EXPECT_EQ(mixers("chosen blocks"), (std::vector<Mixer>{kFull, kAttention, kAttention, kAttention}));
  for (const auto& [kind, keys] : kinds().items()) {
    const Architecture a = model_of(kind);
    EXPECT_TRUE(a.unknown_keys.empty()) << kind << ": " << a.unknown_keys.front();
  }
}

// One description: what the stages of a pipeline hold adds up to the model, norms aside.
TEST(LayerKinds, StagesHoldTheModel) {
  for (const auto& [kind, keys] : kinds().items()) {
    const Architecture a = model_of(kind);
    Chunk all;
    all.layers = layer_stack(a);
    all.embedding = all.head = true;
    const StageParameters held = chunk_parameters(a, Parallel{}, all);
    EXPECT_NEAR(held.dense + held.experts, static_cast<double>(a.parameters()),
                1e-3 * static_cast<double>(a.parameters()))
        << kind;
  }
}

// Two FLOPs of every weight of a product and token forward: all weights of a mixer but norms, decays, biases
// and convolutions, which are no hundredth.
TEST(LayerKinds, ProductsMeetTheMixersWeights) {
  for (const auto& [kind, keys] : kinds().items()) {
    const Architecture a = model_of(kind);
    LayerContext context;
    context.model = &a;
    context.parallel.seq = 64;
    context.tokens = 64;
    context.topk = 2;
    for (const LayerKind& layer : layer_stack(a)) {
      const Program p = before_experts(context, {layer.mixer, LayerKind::Ffn::kNone, false});
      double forward = 0, backward = 0;
      for (const Op& op : p.forward())
        if (op.kind == OpKind::kGemm) forward += static_cast<double>(op.n * op.k);
      for (const Op& op : p.backward())
        if (op.kind == OpKind::kGemm) backward += static_cast<double>(op.n * op.k);
      const ResidualWork residual = residual_work(a);
      const auto weights =
          static_cast<double>(mixer_parameters(a, layer.mixer) + residual.mixed * residual.mixing);
      EXPECT_NEAR(forward / weights, 1, 0.05) << kind;
      EXPECT_LE(forward, weights) << kind;
      // An indexer's products hand no gradient on.
      double indexer = 0;
      if (is_attention(layer.mixer))
        for (const Projections::Weight& w : projections_of(a, layer.mixer, 1).index)
          indexer += static_cast<double>(w.n * w.k);
      EXPECT_DOUBLE_EQ(backward, 2 * forward - indexer) << kind;
    }
  }
}

TEST(LayerKinds, TensorParallelRanksShareTheWork) {
  for (const auto& [kind, keys] : kinds().items()) {
    const Architecture a = model_of(kind);
    const auto work = [&](std::int64_t tp) {
      LayerContext context;
      context.model = &a;
      context.parallel.tp = tp;
      context.parallel.seq = 128;
      context.tokens = 128 / tp;
      context.topk = 2;
      const Program p = before_experts(context, {layer_stack(a).front().mixer, LayerKind::Ffn::kNone, false});
      double scans = 0;
      for (const Op& op : p.forward()) scans += static_cast<double>(op.flops);
      return scans;
    };
    EXPECT_DOUBLE_EQ(work(1), 2 * work(2)) << kind;
  }
}

// Without a list of them: transformers' defaults. Gemma 4's last layer sees all tokens.
TEST(LayerKinds, GemmaWindowsFiveOfSixLayers) {
  const auto letters = [](const char* family) {
    const std::string text = std::string(R"({"model_type": ")") + family + R"(", "hidden_size": 64,
      "intermediate_size": 128, "num_hidden_layers": 8, "num_attention_heads": 4, "head_dim": 16,
      "num_key_value_heads": 2, "vocab_size": 1000, "sliding_window": 32, "num_experts": 4, "top_k_experts": 2,
      "moe_intermediate_size": 32, "enable_moe_block": true, "global_head_dim": 16,
      "hidden_size_per_layer_input": 0})";
    std::string result;
    for (const LayerKind& kind : layer_stack(Architecture::parse(JsonNode::parse(text, "config.json"))))
      result += kind.mixer == Mixer::kWindowed ? 'W' : '*';
    return result;
  };
  EXPECT_EQ(letters("gemma3_text"), "WWWWW*WW");
  EXPECT_EQ(letters("gemma4_text"), "WWWWW*W*");
}

// A longer sequence is never cheaper; with linear kinds the mixers' FLOPs per token stay but for the layer
// with a softmax.
TEST(LayerKinds, LongerSequencesTakeLonger) {
  for (const auto& [kind, keys] : kinds().items()) {
    const Architecture a = model_of(kind);
    double before = 0, flops = 0;
    for (const std::int64_t seq : {256, 1024, 4096, 16384}) {
      const double now = step_us(a, seq), per_token = training_flops_per_token(a, seq, 2);
      EXPECT_GT(now, before) << kind << " " << seq;
      EXPECT_GE(per_token, flops) << kind << " " << seq;
      before = now, flops = per_token;
    }
  }
  const auto growth = [](const char* kind) {
    const Architecture a = model_of(kind);
    return training_flops_per_token(a, 16384, 2) - training_flops_per_token(a, 4096, 2);
  };
  for (const char* kind : {"gated delta", "kimi delta", "lightning", "mamba-1", "mamba-2"})
    EXPECT_NEAR(growth(kind), growth("attention") / 4, 1e-6 * growth("attention"))
        << kind;  // one layer of four
}

// By hand: the recurrence of 8 heads of 32 x 32, three times, in three layers; a gate is a weight like
// others.
TEST(LayerKinds, FlopsByHand) {
  const Architecture a = model_of("gated delta");
  Architecture without = a;
  without.mixers = "***L";
  const double weights =
      static_cast<double>(mixer_parameters(a, Mixer::kLinear) - mixer_parameters(a, Mixer::kAttention));
  const double softmax = 2 * 512.0 * 8 * 64, recurrence = 6 * 8 * 32 * 32;
  EXPECT_DOUBLE_EQ(training_flops_per_token(a, 1024, 2) - training_flops_per_token(without, 1024, 2),
                   2 * (6 * weights + 3 * (recurrence - softmax)));
  // Sparse: 256 - 256^2 / 2048 keys of 8 heads of 48 and 32 columns; an indexer of 4 heads of 16.
  const Architecture sparse = model_of("sparse");
  Architecture dense = sparse;
  dense.attention.index_topk = dense.attention.index_heads = dense.attention.index_dim = 0;
  const double taken = 256 - 256.0 * 256 / 2048, all = 512,
               indexer = static_cast<double>(sparse.attention.indexer_parameters(256));
  EXPECT_NEAR(training_flops_per_token(sparse, 1024, 2) - training_flops_per_token(dense, 1024, 2),
              4 * (6 * indexer + 3 * 2 * (taken - all) * 8 * 80 + 2 * (all + 2 * taken) * 4 * 16), 1e-3);
}

TEST(LayerKinds, KeptActivationsByHand) {
  TrainingSettings plan;
  Parallel p;
  p.seq = 64;
  const auto kept = [&](const char* kind) {
    return bytes_of(kept_by_layer(model_of(kind), p, plan,
                                  {layer_stack(model_of(kind)).front().mixer, LayerKind::Ffn::kNone, false}));
  };
  const double norms = 2 * 256, inner = 256;
  // Queries, keys, values, gate, step, decay; convolved columns and a chunk's 64 scores of 8 heads; the
  // output twice.
  EXPECT_DOUBLE_EQ(kept("gated delta"),
                   64 * 2 * (norms + (2 * 128 + 2 * inner + 16) + (2 * 128 + inner + 8 * 64) + 2 * inner));
  EXPECT_DOUBLE_EQ(kept("lightning"), 64 * 2 * (norms + 4 * inner + 3 * inner + 2 * inner));
  // 512 channels: gate and values; convolved, steps, their three vectors; the output twice.
  EXPECT_DOUBLE_EQ(kept("mamba-1"), 64 * 2 * (norms + 1024 + (1024 + 16 + 32) + 1024));
}

// By hand: 8 heads of 32 columns, 4 of keys that are the values; a window of 128 and keys of 4 or 128 tokens.
TEST(LayerKinds, CompressedAttentionByHand) {
  const Architecture a = model_of("compressed");
  // Queries down and up with a norm, keys with a norm, four groups of output, a logit a head.
  const std::int64_t attention = 256 * 64 + 64 + 64 * 256 + 256 * 128 + 128 + 256 * 32 + 4 * 32 * 256 + 8;
  EXPECT_EQ(mixer_parameters(a, Mixer::kWindowed), attention);
  EXPECT_EQ(mixer_parameters(a, Mixer::kCompressed), attention + 2 * 256 * 32 + 128 * 32 + 32);
  const std::int64_t indexer = 64 * 64 + 256 * 4,
                     compressors = 2 * 256 * 64 + 4 * 64 + 32 + 2 * 256 * 32 + 4 * 32 + 16;
  EXPECT_EQ(mixer_parameters(a, Mixer::kSelected), attention + indexer + compressors);
  const double window = 128 - 128.0 * 128 / 2 / 1024;
  EXPECT_DOUBLE_EQ(keys_of(a, Mixer::kWindowed, 1024), window);
  EXPECT_DOUBLE_EQ(keys_of(a, Mixer::kCompressed, 1024), window + 1024.0 / 128 / 2);
  EXPECT_DOUBLE_EQ(keys_of(a, Mixer::kSelected, 1024), window + 64 - 64.0 * 64 / 2 / 256);
  // The core is priced over a window of as many keys.
  for (const Mixer mixer : {Mixer::kCompressed, Mixer::kSelected})
    EXPECT_NEAR(mean_keys(1024, attention_core(a, mixer, 1024, 1).window), keys_of(a, mixer, 1024), 1);
}

// By hand: 4 heads of 16 columns choose 256 tokens by blocks of 4, from keys that learned weights pool.
TEST(LayerKinds, APooledChoiceByHand) {
  const Architecture a = model_of("pooled choice"), single = model_of("sparse");
  EXPECT_EQ(a.attention.indexer_parameters(256), 64 * 64 + 256 * (2 * 16 + 4) + 2 * 16 + 4 * 16);
  EXPECT_DOUBLE_EQ(index_keys(a.attention, 1024, true), 1024.0 / 4 / 2);
  EXPECT_DOUBLE_EQ(index_keys(a.attention, 1024, false), 64 - 64.0 * 64 / 2 / 256);
  EXPECT_DOUBLE_EQ(index_keys(single.attention, 1024, true), 1024.0 / 2);
  EXPECT_DOUBLE_EQ(keys_of(a, Mixer::kAttention, 1024), keys_of(single, Mixer::kAttention, 1024));
  // The core of the indexer is priced over a window of as many keys.
  for (const bool forward : {true, false})
    EXPECT_NEAR(mean_keys(1024, index_core(a, 1024, forward).window), index_keys(a.attention, 1024, forward),
                1);
  // Its products have a gate as wide as the key; positions are the indexer's alone.
  EXPECT_EQ(projections_of(a, Mixer::kAttention, 1).index[1].n, 2 * 16 + 4);
  EXPECT_EQ(a.attention.score_dim(), 32);
  const double weights = 256 * 16 + 4 * 16,
               scores = 2.0 / 3 * 4 * 16 * (512 + 2 * (256 - 32.0) - 128 - 2 * 56),
               rope = 256 * 16 + 64 * 8 * 16, core = 2 * keys_of(a, Mixer::kAttention, 1024) * 8 * 16;
  EXPECT_NEAR(training_flops_per_token(a, 1024, 2) - training_flops_per_token(single, 1024, 2),
              4 * (6 * (weights - rope) - 3 * (scores + core)), 1e-3);
}

// By hand: 4 blocks of 16 tokens in three layers, all tokens in the first.
TEST(LayerKinds, ChosenBlocksByHand) {
  const Architecture a = model_of("chosen blocks");
  EXPECT_EQ(a.attention.index_topk, 64);
  EXPECT_EQ(mixer_parameters(a, Mixer::kAttention) - mixer_parameters(a, Mixer::kFull),
            256 * 4 * 16 + 256 * (16 + 4) + 2 * 16);
  EXPECT_DOUBLE_EQ(keys_of(a, Mixer::kAttention, 1024), 64 - 64.0 * 64 / 2 / 1024);
  EXPECT_DOUBLE_EQ(keys_of(a, Mixer::kFull, 1024), 512);
  EXPECT_DOUBLE_EQ(index_keys(a.attention, 1024, true), 512);
  EXPECT_EQ(attention_core(a, Mixer::kAttention, 1024, 1).window, 64);
  EXPECT_EQ(attention_core(a, Mixer::kFull, 1024, 1).window, 0);
  const auto unmeasured = [&](Mixer mixer) {
    LayerContext context;
    context.model = &a;
    context.parallel.seq = context.tokens = 1024;
    context.topk = 2;
    const Program p = before_experts(context, {mixer, LayerKind::Ffn::kNone, false});
    int count = 0;
    for (const Op& op : p.forward()) count += op.unmeasured;
    return count;
  };
  EXPECT_EQ(unmeasured(Mixer::kAttention), 2);  // the indexer and the core
  EXPECT_EQ(unmeasured(Mixer::kFull), 0);
  // A choice is a number of a block.
  TrainingSettings plan;
  Parallel p;
  p.seq = 1024;
  double chosen = 0;
  for (const KeptTensor& t : kept_by_layer(a, p, plan, {Mixer::kAttention, LayerKind::Ffn::kNone, false}))
    if (t.name == "attention/chosen tokens") chosen = t.bytes;
  EXPECT_DOUBLE_EQ(chosen, 1024 * 4 * 4);
}

// Sums of products of whole numbers, "256 x 64 + 64 - 8".
std::int64_t evaluated(const std::string& text) {
  std::istringstream words(text);
  std::string word;
  std::int64_t sum = 0, product = 0, sign = 1;
  while (words >> word) {
    if (word == "+" || word == "-") {
      sum += sign * product;
      sign = word == "+" ? 1 : -1;
      product = 0;
    } else if (word != "x") {
      product = (product == 0 ? 1 : product) * std::stoll(word);
    }
  }
  return sum + sign * product;
}

// The worked examples of docs/spec.md 6.4, by hand and by the program; every kind has one.
TEST(LayerKinds, TheSpecsWorkedExamplesHold) {
  std::ifstream file(std::string(MOESIM_SOURCE_DIR) + "/tests/models/layer_kinds.txt");
  std::set<std::string> without;
  for (const auto& [kind, keys] : kinds().items()) without.insert(kind);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("| ")) continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(2));
    for (std::string cell; std::getline(row, cell, '|');) cells.emplace_back(trim(cell));
    ASSERT_EQ(cells.size(), 4u) << line;
    ASSERT_TRUE(kinds().contains(cells[0])) << line;
    const Architecture a = model_of(cells[0]);
    // The layers of a choice follow one without; others come first.
    const std::vector<LayerKind> stack = layer_stack(a);
    const Mixer mixer = stack[cells[0] == "chosen blocks" ? 1 : 0].mixer;
    const double found = cells[1] == "weights"    ? static_cast<double>(mixer_parameters(a, mixer))
                         : cells[1] == "residual" ? static_cast<double>(residual_parameters(a))
                         : cells[1] == "keys"     ? keys_of(a, mixer, 1024)
                         : cells[1] == "scan"     ? static_cast<double>(state_mixer(a, mixer).scan_flops)
                                                  : -1;
    EXPECT_EQ(std::to_string(evaluated(cells[2])), cells[3]) << line;
    EXPECT_DOUBLE_EQ(found, static_cast<double>(evaluated(cells[2]))) << line;
    without.erase(cells[0]);
  }
  EXPECT_TRUE(without.empty()) << *without.begin();
}

TEST(LayerKinds, ResidualsByHand) {
  const Architecture plain = model_of("attention"), streams = model_of("streams"),
                     groups = model_of("groups");
  // Eight blocks and the head.
  EXPECT_EQ(streams.parameters() - plain.parameters(), 8 * (24 * 4 * 256 + 24 + 3) + 4 * 4 * 256 + 4 + 1);
  EXPECT_EQ(groups.parameters() - plain.parameters(), 9 * 2 * 256);
  TrainingSettings plan;
  Parallel p;
  p.seq = 64;
  const LayerKind layer{Mixer::kAttention, LayerKind::Ffn::kDense, false};
  const auto kept = [&](const Architecture& a) { return bytes_of(kept_by_layer(a, p, plan, layer)); };
  EXPECT_DOUBLE_EQ(kept(streams) - kept(plain), 64 * 2 * 2 * 5 * 256);
  EXPECT_DOUBLE_EQ(kept(groups) - kept(plain), 64 * 2 * 2 * 256);
  const double kept_streams = kept(streams);
  plan.recompute.full = true;
  EXPECT_DOUBLE_EQ(kept(streams), 4 * kept(plain));
  // Recomputed in groups of sqrt(4 x 8 / 6) of eight blocks: their outputs, and four streams for two blocks;
  // no row that a norm reads.
  EXPECT_EQ(recomputed_blocks(streams, 8), 2);
  EXPECT_EQ(recomputed_blocks(streams, 86), 8);
  plan.recompute = {};
  plan.recompute.streams = true;
  EXPECT_DOUBLE_EQ(kept_streams - kept(streams), 64 * 2 * 2 * (5 - 3 + 1) * 256);
  EXPECT_DOUBLE_EQ(kept(plain), kept(groups) - 64 * 2 * 2 * 256);
  LayerContext context;
  context.model = &streams;
  context.parallel.seq = context.tokens = 64;
  context.topk = 2;
  const auto mixing = [&] {
    const Program p = before_experts(context, layer);
    int forward = 0;
    for (const Op& op : p.backward()) forward += op.kind == OpKind::kGemm && op.pass == GemmPass::kForward;
    return forward;
  };
  EXPECT_EQ(mixing(), 0);
  context.recompute.streams = true;
  EXPECT_EQ(mixing(), 2);
}

// A stage hands on all streams, or the rows that later layers attend to.
TEST(LayerKinds, StagesSendAllStreams) {
  EXPECT_EQ(rows_between_stages(model_of("attention")), 1);
  EXPECT_EQ(rows_between_stages(model_of("streams")), 4);
  EXPECT_EQ(rows_between_stages(model_of("groups")), 3);
}

TEST(LayerKinds, ShortConvolutionsByHand) {
  const Architecture a = model_of("short convolution");
  EXPECT_EQ(mixer_parameters(a, Mixer::kConvolution), 4 * 256 * 256 + 3 * 256);
  Architecture without = a;
  without.mixers = "CCC.";
  EXPECT_EQ(a.parameters() - without.parameters(), 256 + mixer_parameters(a, Mixer::kAttention));
}

// The router's columns alone; rows go to the experts that compute.
TEST(LayerKinds, ExpertsThatComputeNothingAreColumnsOfTheRouter) {
  Architecture a = model_of("attention");
  const auto plain = a.parameters();
  a.zero_experts = 4;
  EXPECT_EQ(a.parameters() - plain, 4 * 4 * 256);
}

// Dense FFNs of their own sizes, and a layer without attention.
TEST(LayerKinds, LayersOfDifferentSizesAddUp) {
  Architecture a = Architecture::parse(JsonNode::parse(
      R"({"hidden": 64, "layers": 3, "experts": 0, "topk": 0, "expert_ffn": 0, "mixers": "*.*", "ffns": "--.",
          "dense_ffn": 256, "dense_sizes": [128, 256], "vocabulary": 100,
          "attention": {"heads": 4, "kv_heads": 2, "head_dim": 16}})",
      "model.json"));
  const std::int64_t attention = 64 * (64 + 64) + 64 * 64;
  EXPECT_EQ(a.parameters(), 2 * 100 * 64 + 64 + 2 * (attention + 64) + 3 * 64 * (128 + 256) + 2 * 64);
  Chunk all;
  all.layers = layer_stack(a);
  all.embedding = all.head = true;
  EXPECT_NEAR(chunk_parameters(a, Parallel{}, all).dense, static_cast<double>(a.parameters()), 3 * 64);
  EXPECT_DOUBLE_EQ(training_flops_per_token(a, 64, 0),
                   6.0 * (100 * 64 + 2 * attention + 3 * 64 * 384) + 3 * 2 * (2 * 32.0 * 4 * 32));
}

// DeepSeek-V3.2 is V3 with an indexer: dearer while sequences are short, far cheaper at 131,072 tokens.
TEST(LayerKinds, DeepSeekV32BeatsV3OnLongSequences) {
  const Architecture v3 = Architecture::load("deepseek-v3");
  Architecture v32 = v3;
  v32.attention.index_heads = 64, v32.attention.index_dim = 128, v32.attention.index_topk = 2048;
  const double million = 1e6, added = static_cast<double>(v32.parameters() - v3.parameters()) / million;
  EXPECT_NEAR(added, 61 * (1536 * 8192 + 7168 * (128 + 64) + 256) / million, 1e-6);
  const auto seconds = [](const Architecture& model, std::int64_t seq, std::int64_t cp) {
    Scenario s = published_job("deepseek-v3", "dgx-h100x32");
    s.model = model;
    s.parallel.ep = 32;
    s.parallel.pp = 4;
    s.parallel.seq = seq;
    s.parallel.cp = cp;
    s.parallel.microbatches = 4;
    return answer(s, {.draws = 0}).answers.front().time_us.value * 1e-6;
  };
  EXPECT_GT(seconds(v32, 4096, 1), seconds(v3, 4096, 1));
  const double dense = seconds(v3, 131072, 8), sparse = seconds(v32, 131072, 8);
  EXPECT_LT(sparse, 0.7 * dense);
}

}  // namespace
}  // namespace moesim::models::testing
