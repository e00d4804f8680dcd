#include "tests/laws/law_case.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/dispatchers/dispatcher.h"
#include "models/workload/architecture.h"
#include "models/workload/layer_stack.h"
#include "models/workload/placement.h"
#include "tools/moesim/questions/anchoring.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/question_options.h"

namespace moesim::laws {

namespace {

using nlohmann::json;
using Text = std::string;

json model_of(Random& draw, bool step) {
  const auto names = models::Architecture::names();
  const json name = names[draw.below(names.size())];
  if (draw.below(step ? 4 : 2) == 0) return name;
  if (draw.below(3) == 0)
    return {{"name", "own"},
            {"hidden", 256 * (1 + draw.below(24))},
            {"layers", one_of<int>(draw, {1, 2, 4, 6, 8})},
            {"experts", one_of<int>(draw, {8, 16, 32, 64, 96, 128})},
            {"topk", one_of<int>(draw, {1, 2, 4, 6, 8})},
            {"expert_ffn", 128 * (1 + draw.below(24))}};
  json model{{"base", name}};
  model["layers"] = one_of<int>(draw, {2, 3, 4, 6, 8});
  if (draw.below(3) == 0) model["expert_ffn"] = 256 * (1 + draw.below(16));
  return model;
}

json cluster_of(Random& draw) {
  const auto patterns = models::Cluster::patterns();
  Text name = patterns[draw.below(patterns.size())].name;
  name.back() = "1224"[draw.below(4)];
  if (name.find("nvl72") != Text::npos) name.back() = '1';
  if (draw.below(4) != 0) return name;
  json machine{{"base", name}};
  if (draw.below(2) == 0)
    machine["nic"]["bandwidth"] = 1e9 * one_of<double>(draw, {12.5, 25, 50, 100, 200, 400});
  if (draw.below(2) == 0)
    machine["nvlink"]["bandwidth"] = 1e9 * one_of<double>(draw, {100, 200, 300, 450, 900});
  if (draw.below(3) == 0) machine["nvlink"]["domain"] = one_of<int>(draw, {1, 2, 4, 8, 16});
  if (draw.below(4) == 0) machine["gpu"]["flops"] = 1e12 * one_of<double>(draw, {150, 312, 989, 2500, 5000});
  return machine;
}

json routing_of(Random& draw) {
  return one_of<Text>(draw,
                      {"balanced", "balanced", "round-robin", "uniform", "zipf:0.3", "zipf:0.8", "zipf:1.2",
                       "zipf:1.2:shared", "gini:0.2", "gini:0.5", "dirichlet:1", "lognormal:0.5", "hot:0.3"});
}

json dispatcher_of(Random& draw) {
  static const std::vector<Text> kOptions{"alltoall:capacity_factor=1.25",
                                          "alltoall:capacity_factor=1:pad",
                                          "alltoall:pad_rows=16",
                                          "flex-hybridep:mode=static",
                                          "flex-deepep:fp8_dispatch",
                                          "kempnerforge:replicated=false",
                                          "torchtitan-equal-split:policy=adaptive"};
  if (draw.below(6) == 0) return one_of(draw, kOptions);
  // Half of all questions are about these.
  if (draw.below(2) == 0)
    return one_of<Text>(draw, {"allgather", "alltoall", "alltoall", "flex-deepep", "flex-hybridep"});
  const auto registry = models::dispatcher_registry();
  return Text(registry[draw.below(registry.size())].name);
}

json training_of(Random& draw, bool step) {
  json t = json::object();
  const auto say = [&](std::uint64_t often, const char* key, std::vector<Text> values) {
    if (draw.below(often) == 0) t[key] = one_of(draw, values);
  };
  say(4, "framework", {"none", "megatron-recipe", "megatron-stock"});
  if (t.value("framework", "") != "none") {
    say(4, "precision", {"fp8", "fp8_block", "mxfp8"});
    say(3, "launch", {"partial-graphs", "graphs"});
  }
  say(4, "recompute", {"full", "moe_act", "layernorm+moe_act", "core_attn"});
  if (!step) return t;
  say(3, "sharding", {"ddp", "zero2", "fsdp", "hsdp"});
  say(4, "schedule", {"zero-bubble", "dualpipe"});
  say(4, "overlap", {"none", "expert-communication", "gradients"});
  return t;
}

// Returns the fewest ports of rings that leave their domain; without such a ring the links inside are no
// limit.
int least_ports(const models::Placement::Replicas& replicas) {
  int least = std::numeric_limits<int>::max();
  for (const models::GroupShape& shape : replicas.all)
    if (shape.across_domains()) least = std::min(least, shape.min_per_domain);
  return least;
}

}  // namespace

Case Case::with(const std::string& path, json value) const {
  Case changed = *this;
  json* at = &changed.scenario;
  std::size_t from = 0;
  for (std::size_t dot = 0; (dot = path.find('.', from)) != std::string::npos; from = dot + 1) {
    json& part = (*at)[path.substr(from, dot - from)];
    if (part.is_string()) part = {{"base", part}};
    at = &part;
  }
  (*at)[path.substr(from)] = std::move(value);
  return changed;
}

models::Cluster Case::cluster() const {
  return models::Cluster::load(JsonNode::from_json(scenario.at("cluster"), "case"));
}

std::string Case::command() const {
  return "moesim compare '" + scenario.dump() + "' --draws " + std::to_string(draws) +
         (flow ? " --timing flow" : "") + (measured.empty() ? "" : " --measured " + measured);
}

std::optional<Seen> ask(const Case& one) {
  try {
    tools::CommonOptions common;
    common.quiet = true;
    common.threads = 1;
    tools::QuestionOptions options;
    options.take_file(one.scenario.dump(), std::nullopt);
    models::Scenario scenario = tools::settle(options.question(common), common).scenario;
    models::AnswerOptions asked;
    asked.draws = one.draws;
    asked.breakdown = false;
    if (!one.measured.empty()) {
      tools::Anchoring run;
      run.say_measured(one.measured);
      asked.measured = run.of(scenario);
    }
    asked.flow = one.flow;
    const models::Comparison c = tools::ask(std::move(scenario), asked);
    const models::Answer& a = c.answers.front();
    const models::Parallel& p = c.scenario->parallel;
    const models::Placement placement(*c.scenario);
    const models::Placement::Replicas &dense = placement.dense_replicas(),
                                      &experts = placement.expert_replicas();
    Seen seen;
    seen.us = a.time_us.value;
    seen.low = a.time_us.low;
    seen.high = a.time_us.high;
    for (const models::Answer& each : c.answers)
      if (each.ok()) seen.arms[each.dispatcher] = each.time_us.value;
    seen.batched = std::ranges::all_of(a.program().forward(), [](const models::Op& op) {
      return op.category != sim::Category::expert || op.kind != models::OpKind::kGemm ||
             op.backend == models::GemmBackend::kBatched || op.backend == models::GemmBackend::kGroupedMm;
    });
    seen.calibrated_us = one.flow ? a.network.calibrated_us : a.time_us.value;
    seen.bytes = a.memory.max_bytes;
    for (const auto& stage : a.memory.stages) {
      double state = 0;
      for (const models::MemoryCause& cause : stage.causes)
        if (cause.kind == models::MemoryKind::kOptimizer) state += cause.bytes;
      seen.optimizer = std::max(seen.optimizer, state);
    }
    seen.dense_replicas = dense.ranks;
    seen.expert_replicas = experts.ranks;
    seen.dense_ports = least_ports(dense);
    seen.expert_ports = least_ports(experts);
    seen.cut_evenly = models::is_cut_evenly(c.scenario->model, p);
    const std::int64_t said = c.scenario->training.shard_group;
    seen.shard_group = said > 0 ? said : dense.per_domain();
    for (const models::TimedCollective& each : c.step_collectives) {
      const models::Placement::Replicas& among = each.what.experts ? experts : dense;
      const bool some = each.what.replicas && each.what.group < among.ranks;
      Seen::Collective one_of_them{each.what, each.us_per_step(), std::numeric_limits<int>::max()};
      for (const models::GroupShape& shape :
           placement.shapes_of({&among, some ? among.ranks / each.what.group : each.what.group, some}))
        one_of_them.domains = std::min(one_of_them.domains, shape.domains);
      seen.collectives.push_back(one_of_them);
    }
    seen.plan = p;
    seen.sequences = p.dp * p.microbatches * p.micro_batch;
    seen.recompute = c.scenario->training.recompute.text();
    seen.fits = a.memory.fits && a.memory.fits_probability >= 0.9;
    return seen;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

Case random_case(Random& draw) {
  const bool step = draw.below(5) < 2;
  Case one;
  one.flow = draw.below(8) == 0;
  json& s = one.scenario;
  s["model"] = model_of(draw, step);
  s["cluster"] = cluster_of(draw);
  s["dispatcher"] = dispatcher_of(draw);
  s["routing"] = routing_of(draw);
  s["seed"] = 1 + draw.below(1000);
  json& p = s["parallel"];
  p["ep"] = one_of<int>(draw, {1, 2, 4, 4, 8, 8, 8, 16, 16, 32});
  p["seq"] = one_of<int>(draw, {256, 512, 1000, 1024, 2048, 3072, 4096, 8192});
  if (draw.below(4) == 0) p["tp"] = one_of<int>(draw, {2, 4});
  if (draw.below(6) == 0) p["etp"] = 2;
  if (draw.below(6) == 0) p["cp"] = 2;
  if (draw.below(4) == 0) p["micro_batch"] = 2;
  if (step) {
    s["scope"] = "step";
    p["microbatches"] = one_of<int>(draw, {1, 2, 4, 6, 8});
    if (draw.below(2) == 0) p["pp"] = one_of<int>(draw, {2, 3, 4});
    if (p.contains("pp") && draw.below(4) == 0) p["vpp"] = 2;
  }
  if (json t = training_of(draw, step); !t.empty()) s["training"] = std::move(t);
  if (draw.below(8) == 0) s["train"] = false;
  return one;
}

Case shrunk(Case one, const Shows& shows) {
  const auto candidates = [](const Case& from) {
    std::vector<Case> all;
    const auto without = [&](const char* top, const std::string& key) {
      Case c = from;
      c.scenario[top].erase(key);
      if (c.scenario[top].empty()) c.scenario.erase(top);
      all.push_back(std::move(c));
    };
    const auto say = [&](const std::string& path, json value) {
      if (Case c = from.with(path, std::move(value)); c.scenario != from.scenario)
        all.push_back(std::move(c));
    };
    if (from.flow) {
      all.push_back(from);
      all.back().flow = false;
    }
    if (from.of_step()) {
      Case c = from;
      for (const char* key : {"scope", "training", "parallel"}) c.scenario.erase(key);
      c.scenario["parallel"] = {{"ep", from.get("parallel.ep", 1)}, {"seq", from.get("parallel.seq", 4096)}};
      all.push_back(std::move(c));
    }
    for (const char* top : {"training", "parallel"})
      if (const auto object = from.scenario.find(top); object != from.scenario.end())
        for (const auto& [key, value] : object->items())
          // Without its microbatches a step has the usual batch, whatever its other sizes.
          if (key != "ep" && key != "seq" && key != "microbatches") without(top, key);
    for (const char* key : {"train", "seed"})
      if (from.scenario.contains(key)) {
        Case c = from;
        c.scenario.erase(key);
        all.push_back(std::move(c));
      }
    say("routing", "balanced");
    say("dispatcher", "alltoall");
    for (const char* name : {"olmoe", "mixtral-8x7b"})
      if (from.scenario["model"] != "olmoe") say("model", name);
    if (from.scenario["model"].is_object() && from.scenario["model"].contains("base"))
      say("model", from.scenario["model"]["base"]);
    for (const char* name : {"dgx-h100x1", "dgx-h100x2"})
      if (from.scenario["cluster"] != "dgx-h100x1") say("cluster", name);
    if (const json& machine = from.scenario["cluster"]; machine.is_object())
      for (const auto& [key, value] : machine.items())
        if (key != "base") {
          Case c = from;
          c.scenario["cluster"].erase(key);
          if (c.scenario["cluster"].size() == 1) c.scenario["cluster"] = machine["base"];
          all.push_back(std::move(c));
        }
    for (const char* path : {"parallel.ep", "parallel.seq", "parallel.microbatches", "parallel.pp"})
      if (const int n = from.get(path, 0); n > 1 && (n > 128 || std::string(path) != "parallel.seq"))
        say(path, n / 2);
    return all;
  };
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (Case& next : candidates(one))
      if (shows(next)) {
        one = std::move(next);
        smaller = true;
        break;
      }
  }
  return one;
}

}  // namespace moesim::laws
