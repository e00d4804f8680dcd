// Megatron's arguments of experts: sizes, layers that have them, dispatcher.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "models/workload/model_layers.h"
#include "models/workload/scenario.h"
#include "tools/moesim/read/layer_list.h"
#include "tools/moesim/read/megatron_rules.h"

namespace moesim::tools::megatron {

namespace {

using models::Architecture;
using models::Scenario;
using nlohmann::ordered_json;

void read_expert_layers(JobReader& r) {
  // Files list the items, the command line uses an expression.
  const Setting* said = r.find("moe_layer_freq");
  const std::vector<std::string> items = said ? said->values : std::vector<std::string>{"1"};
  const std::string text = items.size() == 1 ? items.front() : "[" + join(items, ",") + "]";
  const std::int64_t layers = r.whole("num_layers").value_or(1);
  std::vector<std::int64_t> holds(static_cast<std::size_t>(layers), 0);
  if (const auto every = parse_int(text)) {
    if (*every < 1 || *every > layers) r.fail("moe_layer_freq", fmt::format("1 to {}", layers));
    for (std::int64_t i = 0; i < layers; i += *every) holds[static_cast<std::size_t>(i)] = 1;
  } else {
    const auto list = layer_list(text);
    if (!list || static_cast<std::int64_t>(list->size()) != layers ||
        std::ranges::any_of(*list, [](std::int64_t one) { return one > 1; }))
      r.fail("moe_layer_freq", fmt::format("a number, or a list of 0 and 1 for the {} layers", layers));
    holds = *list;
  }
  if (std::ranges::count(holds, 1) == 0)
    r.fail("moe_layer_freq", "a layer with experts, or no --num-experts");
  std::string letters;
  for (const std::int64_t one : holds) letters += one == 1 ? 'E' : '-';
  Architecture form;
  models::set_ffns(form, letters);
  r.set("model.dense_layers", form.dense_layers);
  r.set("model.moe_every", form.moe_every);
  if (!form.ffns.empty()) r.set("model.ffns", form.ffns);
}

void read_experts(JobReader& r) {
  const std::int64_t experts = experts_of(r);
  if (experts == 0 || !has_model(r)) return;
  r.set("model.experts", experts);
  r.set("model.topk", r.whole(r.has("moe_top_k") ? "moe_top_k" : "moe_router_topk").value_or(2));
  const std::int64_t hidden = r.whole("hidden_size").value_or(1);
  const std::int64_t inner = r.whole("moe_ffn_hidden_size").value_or(inner_size(r, hidden));
  r.set("model.expert_ffn", inner);
  // With linear biases the router has one, too.
  const bool biased = switched(r, "add_bias_linear", "disable_bias_linear", true);
  r.set("model.expert_bias", biased);
  r.set("model.shared_ffn", r.whole("moe_shared_expert_intermediate_size", 0).value_or(0));
  r.set("model.shared_gate", r.flag("moe_use_shared_expert_gate") || r.flag("moe_shared_expert_gate"));
  r.set("model.router_bias", r.flag("moe_router_enable_expert_bias") || biased);
  if (const auto devices = r.whole("moe_router_topk_limited_devices")) {
    // The older form of groups: one per expert-parallel rank.
    r.set("model.routing_groups", r.whole_or("expert_model_parallel_size", 1));
    r.set("model.routing_topk_groups", *devices);
  }
  if (const auto groups = r.whole("moe_router_num_groups")) r.set("model.routing_groups", *groups);
  if (const auto used = r.whole("moe_router_group_topk")) r.set("model.routing_topk_groups", *used);
  if (const auto latent = r.whole("moe_latent_size")) r.set("model.latent", *latent);
  if (r.has("moe_num_experts"))
    r.approximate("moe_num_experts",
                  "another version's name; its layers run as Megatron-Core's (--dispatcher says otherwise)");
  if (!r.has("hybrid_layer_pattern")) return read_expert_layers(r);
  if (r.text("hybrid_layer_pattern").find('E') == std::string::npos)
    r.fail("hybrid_layer_pattern", "a layer with experts (E), or no --num-experts");
}

void write_experts(const Scenario& s, Arguments& out) {
  const Architecture& a = s.model;
  if (a.experts == 0) return;
  out.emplace_back("num_experts", a.experts);
  out.emplace_back("moe_router_topk", s.topk > 0 ? s.topk : a.topk);
  out.emplace_back("moe_ffn_hidden_size", a.expert_ffn);
  if (a.shared_ffn > 0) out.emplace_back("moe_shared_expert_intermediate_size", a.shared_ffn);
  put_flag(out, a.shared_gate, "moe_shared_expert_gate");
  // The bias of balancing without a loss goes with sigmoid; that of gpt-oss with the linear ones.
  if (a.router_bias && !a.expert_bias) {
    out.emplace_back("moe_router_score_function", "sigmoid");
    out.emplace_back("moe_router_enable_expert_bias", true);
  } else {
    put_flag(out, (s.topk > 0 ? s.topk : a.topk) == 1, "moe_router_pre_softmax");
  }
  put_flag(out, a.attention.output_bias, "no_bias_dropout_fusion");
  if (a.routing_groups > 1) {
    out.emplace_back("moe_router_num_groups", a.routing_groups);
    out.emplace_back("moe_router_group_topk", a.routing_topk_groups);
  }
  if (a.latent > 0) out.emplace_back("moe_latent_size", a.latent);
  if (!a.ffns.empty()) {
    std::vector<std::string> ones;
    for (const char letter : a.ffns) ones.emplace_back(letter == 'E' ? "1" : "0");
    out.emplace_back("moe_layer_freq", "[" + join(ones, ",") + "]");
  } else if (a.pattern.empty() && (a.dense_layers > 0 || a.moe_every > 1))
    out.emplace_back("moe_layer_freq", layer_list_text({a.dense_layers, a.moe_every}, a.layers));
  out.emplace_back("moe_grouped_gemm", true);
}

// Rows of an expert are padded for products with fewer bits; by the router's map, or after the exchange.
int padding_of(JobReader& r) {
  const std::string precision = precision_of(r);
  if (precision.empty() || precision == "bf16") return 0;
  return precision == "fp8" || precision == "fp8_block" ? 16 : 32;
}

void read_dispatcher(JobReader& r) {
  if (experts_of(r) == 0) return;
  const std::string type =
      r.choice("moe_token_dispatcher_type", "allgather", {"allgather", "alltoall", "alltoall_seq", "flex"});
  const bool fused = r.flag("moe_permute_fusion");
  const bool shared = r.flag("moe_shared_expert_overlap");
  const bool padded_map =
      r.flag("moe_router_padding_for_fp8") || r.flag("moe_router_padding_for_quantization");
  const auto capacity = r.number("moe_expert_capacity_factor");
  const bool filled = r.flag("moe_pad_expert_input_to_capacity");
  if (capacity.value_or(0) > 0 && type != "alltoall")
    r.fail("moe_expert_capacity_factor", "--moe-token-dispatcher-type alltoall beside it");
  const auto budget = r.number("moe_expert_rank_capacity_factor");
  const bool paged = r.flag("moe_paged_stash");
  const int rows = padding_of(r);
  ordered_json spec;
  if (type == "allgather") {
    spec = {{"name", "allgather"}};
  } else if (type == "alltoall") {
    spec = {{"name", "alltoall"}};
    if (capacity && *capacity > 0) spec["capacity_factor"] = *capacity;
    if (capacity && filled) spec["pad"] = true;
    if (rows > 0 && !capacity) spec[padded_map ? "pad_map" : "pad_rows"] = rows;
    if (shared) spec["shared_overlap"] = true;
  } else if (type == "alltoall_seq") {
    spec = {{"name", "alltoall-legacy"}};
  } else {
    const std::string backend =
        r.choice("moe_flex_dispatcher_backend", "deepep", {"deepep", "hybridep", "ncclep"});
    r.flag("moe_enable_deepep");
    spec = {{"name", backend == "ncclep" ? "nccl-ep" : "flex-" + backend}};
    auto sms = r.whole("moe_flex_dispatcher_num_sms");
    if (!sms && backend != "ncclep") sms = r.whole("moe_" + backend + "_num_sms");
    if (budget && *budget > 0) {
      if (backend == "deepep")
        r.fail("moe_expert_rank_capacity_factor",
               "--moe-flex-dispatcher-backend hybridep or ncclep beside it");
      spec["mode"] = "static";
      spec["rank_capacity_factor"] = *budget;
      if (paged) spec["paged"] = true;
    }
    if (sms) spec["sms"] = *sms;
    if (rows > 0) spec[backend == "deepep" ? "pad_rows" : "align"] = rows;
    if (shared && backend == "deepep") spec["shared_overlap"] = true;
    if (shared && backend != "deepep")
      r.approximate("moe_shared_expert_overlap", "the shared experts stand alone");
  }
  if (budget.value_or(0) > 0 && type != "flex")
    r.fail("moe_expert_rank_capacity_factor", "--moe-token-dispatcher-type flex beside it");
  if (!fused && (type == "allgather" || type == "alltoall")) spec["permute_fusion"] = false;
  r.set("dispatcher", spec);
  const std::string router = r.choice("moe_router_dtype", "", {"fp32", "fp64"});
  r.set("router_dtype", router.empty() ? "bf16" : router);
  // Random logits: every batch differs.
  if (r.flag("moe_router_force_load_balancing")) r.set("routing", "uniform");
  if (!r.flag("moe_grouped_gemm"))
    if (r.has("moe_grouped_gemm"))
      r.approximate("moe_grouped_gemm", "the experts' products are grouped here");
}

void write_dispatcher(const Scenario& s, Arguments& out) {
  if (s.model.experts == 0) return;
  const models::DispatcherSpec& d = s.dispatchers.front();
  if (!writes_dispatcher(d.name))
    throw InputError(
        fmt::format("dispatcher: found {}, which Megatron has not, expected one of its own", d.name));
  const auto option = [&](const char* key) {
    const auto at = d.options.find(key);
    return at == d.options.end() ? std::string() : at->second;
  };
  const auto is_on = [&](const char* key, bool fallback) {
    const std::string text = option(key);
    return text.empty() ? fallback : text == "true" || text == "1" || text == "yes" || text == "on";
  };
  const auto named = [&](const char* type) { out.emplace_back("moe_token_dispatcher_type", type); };
  if (d.name == "allgather" || d.name == "alltoall") {
    named(d.name.c_str());
    put_flag(out, is_on("permute_fusion", true), "moe_permute_fusion");
  } else if (d.name == "alltoall-legacy") {
    named("alltoall_seq");
  } else {
    named("flex");
    const std::string backend = d.name == "nccl-ep" ? "ncclep" : d.name.substr(5);
    out.emplace_back("moe_flex_dispatcher_backend", backend);
    if (const auto sms = parse_int(option("sms")))
      out.emplace_back(backend == "ncclep" ? "moe_flex_dispatcher_num_sms" : "moe_" + backend + "_num_sms",
                       *sms);
  }
  if (option("mode") == "static") {
    out.emplace_back("moe_expert_rank_capacity_factor",
                     parse_number(option("rank_capacity_factor")).value_or(1));
    put_flag(out, is_on("paged", false), "moe_paged_stash");
  }
  if (const auto factor = parse_number(option("capacity_factor")); factor && *factor > 0)
    out.emplace_back("moe_expert_capacity_factor", *factor);
  put_flag(out, is_on("pad", false), "moe_pad_expert_input_to_capacity");
  put_flag(out, is_on("shared_overlap", false), "moe_shared_expert_overlap");
  put_flag(out, !option("pad_map").empty(), "moe_router_padding_for_quantization");
  const std::string_view router = models::name_of(s.router_dtype);
  if (router == "fp32" || router == "fp64") out.emplace_back("moe_router_dtype", router);
  put_flag(out, s.routing.text == "uniform", "moe_router_force_load_balancing");
}

}  // namespace

bool writes_dispatcher(std::string_view name) {
  constexpr std::array<std::string_view, 6> kNames{"allgather",   "alltoall",      "alltoall-legacy",
                                                   "flex-deepep", "flex-hybridep", "nccl-ep"};
  return std::ranges::find(kNames, name) != kNames.end();
}

std::int64_t experts_of(JobReader& r) {
  return r.whole(r.has("moe_num_experts") ? "moe_num_experts" : "num_experts", 0).value_or(0);
}

std::vector<ArgumentRule> expert_rules() {
  return {{{"num_experts", "moe_num_experts", "moe_router_topk", "moe_top_k", "moe_ffn_hidden_size",
            "moe_shared_expert_intermediate_size", "moe_use_shared_expert_gate", "moe_shared_expert_gate",
            "moe_router_enable_expert_bias", "moe_router_num_groups", "moe_router_group_topk",
            "moe_router_topk_limited_devices", "moe_latent_size", "moe_layer_freq", "moe_grouped_gemm"},
           read_experts,
           write_experts}};
}

std::vector<ArgumentRule> dispatcher_rules() {
  return {{{"moe_token_dispatcher_type", "moe_permute_fusion", "moe_shared_expert_overlap",
            "moe_router_padding_for_fp8", "moe_router_padding_for_quantization", "moe_expert_capacity_factor",
            "moe_pad_expert_input_to_capacity", "moe_expert_rank_capacity_factor", "moe_paged_stash",
            "moe_flex_dispatcher_backend", "moe_enable_deepep", "moe_deepep_num_sms", "moe_hybridep_num_sms",
            "moe_flex_dispatcher_num_sms", "moe_router_dtype", "moe_router_force_load_balancing"},
           read_dispatcher,
           write_dispatcher}};
}

}  // namespace moesim::tools::megatron
