// Sizes as in each model's published Hugging Face config.json (the file named at each entry).
#include "models/workload/architecture_builtin.h"

namespace moesim::models {

namespace {

Attention grouped(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  Attention a;
  a.heads = heads;
  a.kv_heads = kv_heads;
  a.head_dim = head_dim;
  return a;
}

Attention latent(std::int64_t heads, std::int64_t q_rank, std::int64_t kv_rank) {
  Attention a;
  a.kind = Attention::Kind::kLatent;
  a.heads = heads;
  a.q_rank = q_rank;
  a.kv_rank = kv_rank;
  a.nope_dim = 128;
  a.rope_dim = 64;
  a.value_dim = 128;
  return a;
}

// Returns a model with the sizes that every model has.
Architecture sized(std::string name, std::int64_t hidden, std::int64_t layers, std::int64_t vocabulary,
                   Attention attention, std::int64_t experts, std::int64_t topk, std::int64_t expert_ffn) {
  Architecture a;
  a.name = std::move(name);
  a.hidden = hidden;
  a.layers = layers;
  a.vocabulary = vocabulary;
  a.attention = attention;
  a.experts = experts;
  a.topk = topk;
  a.expert_ffn = expert_ffn;
  return a;
}

void add_mistral(std::vector<Architecture>& all) {
  all.push_back(sized("mixtral-8x7b", 4096, 32, 32000, grouped(32, 8, 128), 8, 2,
                      14336));  // mistralai/Mixtral-8x7B-v0.1
  all.push_back(sized("mixtral-8x22b", 6144, 56, 32768, grouped(48, 8, 128), 8, 2,
                      16384));  // mistralai/Mixtral-8x22B-v0.1
}

void add_deepseek_and_moonshot(std::vector<Architecture>& all) {
  {
    Architecture a = sized("deepseek-v2", 5120, 60, 102400, latent(128, 1536, 512), 160, 6,
                           1536);  // deepseek-ai/DeepSeek-V2
    a.dense_layers = 1;
    a.dense_ffn = 12288;
    a.shared_ffn = 2 * 1536;
    a.routing_groups = 8;
    a.routing_topk_groups = 3;
    all.push_back(a);
  }
  {
    Architecture a = sized("deepseek-v2-lite", 2048, 27, 102400, latent(16, 0, 512), 64, 6,
                           1408);  // deepseek-ai/DeepSeek-V2-Lite
    a.dense_layers = 1;
    a.dense_ffn = 10944;
    a.shared_ffn = 2 * 1408;
    all.push_back(a);
  }
  {
    Architecture a = sized("moonlight-16b-a3b", 2048, 27, 163840, latent(16, 0, 512), 64, 6,
                           1408);  // moonshotai/Moonlight-16B-A3B
    a.dense_layers = 1;
    a.dense_ffn = 11264;
    a.shared_ffn = 2 * 1408;
    all.push_back(a);
  }
  {
    Architecture a = sized("deepseek-v3", 7168, 61, 129280, latent(128, 1536, 512), 256, 8,
                           2048);  // deepseek-ai/DeepSeek-V3
    a.dense_layers = 3;
    a.dense_ffn = 18432;
    a.shared_ffn = 2048;
    a.routing_groups = 8;
    a.routing_topk_groups = 4;
    a.router_bias = true;
    a.mtp_layers = 1;
    all.push_back(a);
  }
  {
    Architecture a =
        sized("kimi-k2", 7168, 61, 163840, latent(64, 1536, 512), 384, 8, 2048);  // moonshotai/Kimi-K2-Base
    a.dense_layers = 1;
    a.dense_ffn = 18432;
    a.shared_ffn = 2048;
    a.router_bias = true;
    all.push_back(a);
  }
}

void add_qwen(std::vector<Architecture>& all) {
  {
    Architecture a =
        sized("qwen2-57b-a14b", 3584, 28, 151936, grouped(28, 4, 128), 64, 8, 2560);  // Qwen/Qwen2-57B-A14B
    a.attention.qkv_bias = true;
    a.shared_ffn = 20480;
    a.shared_gate = true;
    all.push_back(a);
  }
  {
    Architecture a =
        sized("qwen3-30b-a3b", 2048, 48, 151936, grouped(32, 4, 128), 128, 8, 768);  // Qwen/Qwen3-30B-A3B
    a.attention.qk_norm = true;
    all.push_back(a);
  }
  {
    Architecture a = sized("qwen3-235b-a22b", 4096, 94, 151936, grouped(64, 4, 128), 128, 8,
                           1536);  // Qwen/Qwen3-235B-A22B
    a.attention.qk_norm = true;
    all.push_back(a);
  }
}

void add_gpt_oss(std::vector<Architecture>& all) {
  for (const bool large : {true, false}) {  // openai/gpt-oss-120b, openai/gpt-oss-20b
    Architecture a = sized(large ? "gpt-oss-120b" : "gpt-oss-20b", 2880, large ? 36 : 24, 201088,
                           grouped(64, 8, 64), large ? 128 : 32, 4, 2880);
    a.attention.qkv_bias = a.attention.output_bias = a.attention.sinks = true;
    a.attention.window = 128;
    a.attention.window_every = 2;
    a.expert_bias = a.router_bias = true;
    a.embedding_active = false;  // by its card: 5.13 B active
    all.push_back(a);
  }
}

void add_llama4(std::vector<Architecture>& all) {
  {
    Architecture a = sized("llama4-maverick", 5120, 48, 202048, grouped(40, 8, 128), 128, 1,
                           8192);  // meta-llama/Llama-4-Maverick-17B-128E
    a.moe_every = 2;
    a.dense_ffn = 16384;
    a.shared_ffn = 8192;
    a.attention.window = 8192;  // chunked attention in three of four layers
    a.attention.window_every = 4;
    a.attention.chunked = true;
    all.push_back(a);
  }
  {
    Architecture a = sized("llama4-scout", 5120, 48, 202048, grouped(40, 8, 128), 16, 1,
                           8192);  // meta-llama/Llama-4-Scout-17B-16E
    a.shared_ffn = 8192;
    a.attention.window = 8192;
    a.attention.window_every = 4;
    a.attention.chunked = true;
    all.push_back(a);
  }
}

void add_nemotron(std::vector<Architecture>& all) {
  // The layer patterns and sizes of Megatron-Bridge's providers (src/megatron/bridge/models/nemotronh), as in
  // the published config.json of nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B and -Super-120B-A12B.
  {
    Architecture a = sized("nemotron-3-nano", 2688, 52, 131072, grouped(32, 2, 128), 128, 6, 1856);
    a.pattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";
    a.mamba.heads = 64;
    a.shared_ffn = 3712;
    a.gated = false;
    a.router_bias = true;
    all.push_back(a);
    a = sized("nemotron-3-super", 4096, 88, 131072, grouped(32, 2, 128), 512, 22, 2688);
    a.pattern = "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME";
    a.mamba.heads = 128;
    a.shared_ffn = 5376;
    a.latent = 1024;
    a.gated = false;
    a.router_bias = true;
    a.mtp_layers = 2;
    all.push_back(a);
  }
}

void add_others(std::vector<Architecture>& all) {
  all.push_back(sized("dbrx", 6144, 40, 100352, grouped(48, 8, 128), 16, 4, 10752));  // databricks/dbrx-base
  {
    Architecture a =
        sized("olmoe", 2048, 16, 50304, grouped(16, 16, 128), 64, 8, 1024);  // allenai/OLMoE-1B-7B-0924
    a.attention.qk_norm = true;
    all.push_back(a);
  }
  // Llama 3 70B with every FFN copied to eight experts (arXiv 2410.07524, 2504.14960).
  all.push_back(sized("llama3-8x70b", 8192, 80, 128256, grouped(64, 8, 128), 8, 2, 28672));
  {  // microsoft/Phi-3.5-MoE-instruct
    Architecture a = sized("phi-3.5-moe", 4096, 32, 32064, grouped(32, 8, 128), 16, 2, 6400);
    a.attention.qkv_bias = a.attention.output_bias = true;
    all.push_back(a);
  }
  {  // tencent/Tencent-Hunyuan-Large
    Architecture a = sized("hunyuan-large", 6400, 64, 128512, grouped(80, 8, 80), 16, 1, 18304);
    a.attention.qk_norm = true;
    a.shared_ffn = 18304;
    a.tied_embeddings = true;
    all.push_back(a);
  }
  {  // deepseek-ai/deepseek-moe-16b-base
    Architecture a = sized("deepseek-moe-16b", 2048, 28, 102400, grouped(16, 16, 128), 64, 6, 1408);
    a.dense_layers = 1;
    a.dense_ffn = 10944;
    a.shared_ffn = 2 * 1408;
    all.push_back(a);
  }
}

std::vector<Architecture> make_all() {
  std::vector<Architecture> all;
  for (const auto add :
       {add_mistral, add_deepseek_and_moonshot, add_qwen, add_gpt_oss, add_llama4, add_nemotron, add_others})
    add(all);
  for (Architecture& a : all) a.source = "built-in";
  return all;
}

}  // namespace

const std::vector<Architecture>& builtin_architectures() {
  static const std::vector<Architecture> all = make_all();
  return all;
}

}  // namespace moesim::models
