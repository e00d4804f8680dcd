// Values of every field of a scenario, as text and as JSON, for tests that try them all.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/workload/fields.h"

namespace moesim::models::testing {

struct FieldSample {
  std::string text;  // as on a command line
  nlohmann::json json;
};

// Samples of a field; those of numbers, switches and choices follow from the table. A field of another type
// that has none here fails the test.
inline std::vector<FieldSample> samples_of(const Field& field) {
  const auto same = [](const std::string& text) { return FieldSample{text, text}; };
  const auto object = [](const std::string& text) { return FieldSample{text, nlohmann::json::parse(text)}; };
  static const std::map<std::string_view, std::vector<FieldSample>> kSamples{
      {"model",
       {same("mixtral-8x7b"), same("deepseek-v3"), same("nemotron-3-nano"),
        object(R"({"base": "qwen3-30b-a3b", "layers": 6, "shared_ffn": 512})"),
        object(
            R"({"name": "own", "hidden": 512, "experts": 16, "topk": 2, "expert_ffn": 256, "layers": 3})")}},
      {"cluster",
       {same("dgx-h100x4"), same("echo-h800x2"), same("gb200-nvl72x1"),
        object(R"({"profile": "b200-sxm", "nodes": 3, "gpus_per_node": 4})"),
        object(R"({"base": "dgx-h200x4", "nodes": 5, "gpu": {"flops": "1.5PFLOPS", "host_sync": "7us"},
                   "nic": {"bandwidth": "37GBps", "latency_factor": 1.3, "latency": "3us"},
                   "nvlink": {"domain": 16, "latency_factor": 0.7}})"),
        object(R"({"base": "echo-h800x2", "gpu": {"memory": "123GB", "hbm_bandwidth": "3TBps"},
                   "fabric": {"preset": "fat-tree", "nodes": 2, "node": {"gpus": 8}}})")}},
      {"dispatcher",
       {same("alltoall"),
        same("all"),
        {"allgather,alltoall:capacity_factor=1.25:pad", {"allgather", "alltoall:capacity_factor=1.25:pad"}}}},
      {"routing",
       {same("balanced"), same("zipf:1.2"), same("measured:deepseek-v2-lite"),
        object(R"({"name": "gini", "target": 0.3})"), object(R"({"path": "routing-without-a-slash"})")}},
      {"placement", {same("balanced"), same("balanced:slots=72"), object("[0, 1, 1, 2]")}},
      {"mesh",
       {same("replicate=2,shard=2,tp=2"), same("pp=2,ep=16"), object(R"({"shard": 4, "ep": 2, "tp": 4})")}},
      {"recipe", {same("torchtitan"), same("megatron-bridge@26.04"), same("nemo-automodel")}},
      {"training.recompute", {same("none"), same("moe_act"), same("moe_act+moe"), same("full")}},
      {"training.overlap", {same("none"), same("delayed-wgrad+expert-communication"), same("gradients")}},
      {"training.optimizer_dtypes", {same("fp32,fp32,fp32"), same("fp32,bf16,bf16"), same("bf16,fp8,fp16")}},
      {"training.sharding",
       {same("ddp"), same("zero1"), same("fsdp"), same("hsdp:shard=8"), same("fsdp:reshard=false")}},
      {"faults",
       {object(R"({"slow_gpus": [{"gpu": 3, "factor": 1.5}], "jitter": 0.05, "seed": 7})"),
        object(R"({"nics": [{"gpu": 1, "bandwidth": 0}], "nvlinks": [{"gpu": 0, "bandwidth": 0.25}]})")}},
      {"faults.slow_gpus", {object(R"([{"gpu": 3, "factor": 1.1}, {"gpu": 0, "factor": 2}])")}},
      {"faults.nvlinks", {object(R"([{"gpu": 3, "bandwidth": 0.1}])")}},
      {"faults.nics", {object(R"([{"gpu": 3, "bandwidth": 0}, {"gpu": 5, "bandwidth": 0.3}])")}},
      {"gpus", {{"64", 64}, {"20", 20}}},
      {"parallel.global_batch", {same("1024"), same("1Mtokens"), same("64")}},
      {"prices",
       {object(R"({"gpu_hour": 2.5})"),
        object(R"({"node_hour": {"h100-sxm": 20.5, "gb200": 6}, "currency": "EUR"})")}},
      {"ownership.buy", {{"35000", 35000}, object(R"({"node": {"h100-sxm": 300000}, "currency": "EUR"})")}},
  };
  if (const auto found = kSamples.find(field.path); found != kSamples.end()) return found->second;
  std::vector<FieldSample> samples;
  if (field.type == FieldType::kBoolean) samples = {{"true", true}, {"false", false}};
  for (const std::string_view choice : field.choices) samples.push_back(same(std::string(choice)));
  if (field.type == FieldType::kInteger)
    for (const double value : {field.low, field.low + 1, std::min(field.high, field.low + 6)})
      samples.push_back({std::to_string(static_cast<std::int64_t>(value)), static_cast<std::int64_t>(value)});
  if (field.type == FieldType::kNumber)
    for (const double share : {0.3, 0.01}) {
      const double value = field.low + share * (std::min(field.high, 100.0) - field.low);
      const nlohmann::json json = value;
      samples.push_back({json.dump(), json});
    }
  EXPECT_FALSE(samples.empty()) << "no sample of the field " << field.path
                                << " in tests/models/field_samples.h";
  return samples;
}

}  // namespace moesim::models::testing
