#include "models/question/question.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "models/answers/plan_space.h"
#include "models/costs/program_prices.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/question/apply_recipe.h"
#include "models/question/paths.h"
#include "models/workload/fields.h"
#include "models/workload/model_json.h"

namespace moesim::models {

namespace {

using nlohmann::ordered_json;

bool is_megatron(const DispatcherSpec& d) {
  return d.name == "alltoall" || d.name == "allgather" || d.name.starts_with("flex-");
}

// Returns the beginning of a message about a setting: "train.sh:3: " for a line of a file, else "".
std::string place_of(const Origin& origin) {
  return origin.kind == Origin::Kind::kFile ? origin.where + ": " : "";
}

bool by_flag(const Field& field, const Origin& origin) {
  return !field.flag.empty() && origin.where == field.flag;
}

// Drops a job's settings that the scope does not use; the user's own are refused instead.
void settle_scope(const Question& q, Scenario& s) {
  for (const Field& field : scenario_fields()) {
    if (!s.gave(field.path) || field.used_in(scope_of(s))) continue;
    const Origin origin = s.origin_of(field.path);
    if (!q.job || origin.kind == Origin::Kind::kSaid) {
      throw InputError(place_of(origin) +
                       unused_message(field, by_flag(field, origin) ? field.flag : field.path, s));
    }
    s.given.reset(index_of(field));
    s.origins.erase(field.path);
  }
}

// Takes the GPUs of a job's launcher, where the machine leaves their number open.
void take_launched(const Question& q, Scenario& s, std::vector<std::string>& notes) {
  if (!q.job || q.job->gpus.count == 0 || s.mesh.given || s.gave("parallel.dp")) return;
  const auto [launched, per_node] = q.job->gpus;
  // A cluster of racks counts each rack as a node, and no launcher does.
  if (s.cluster && per_node > 0 && launched > per_node && per_node != s.cluster->gpus_per_node &&
      s.cluster->gpus_per_node <= s.cluster->profile.device().gpus_per_node)
    notes.push_back(fmt::format(
        "{0}: its launcher starts {1} GPUs a node, and {2} has {3}: --set cluster.gpus_per_node={1} asks about "
        "such nodes",
        q.job->file, per_node, s.cluster->name, s.cluster->gpus_per_node));
  if (s.gpus_open()) {
    s.gpus = launched;
    s.give("gpus", Origin::file(q.job->file));
  } else if (const std::int64_t gpus = s.gpus > 0 ? s.gpus : s.cluster->ranks();
             s.is_step() && gpus != launched) {
    notes.push_back(
        fmt::format("{}: its launcher starts {} GPUs; the plan is for the {} of the cluster, with the same "
                    "global batch",
                    q.job->file, launched, gpus));
  }
}

// A job runs on all its GPUs. Throws InputError where they do not form whole replicas, and where the number
// of GPUs that share its batch is unknown.
void check_job_divides(const Question& q, const Scenario& s) {
  if (!q.job || s.mesh.given || s.gave("parallel.dp")) return;
  if (s.gpus_open() && s.is_step() && s.batch.given())
    throw InputError(SourcePlace{q.job->file},
                     "no number of GPUs, which the microbatches of a global batch follow from",
                     "--cluster or --dp, or a launcher's --nnodes and --nproc_per_node in the file");
  if (s.gpus_open()) return;
  const Parallel& p = s.parallel;
  const std::int64_t gpus = s.gpus > 0 ? s.gpus : s.cluster->ranks(), model_ranks = p.tp * p.cp * p.pp;
  if (model_ranks > 0 && gpus % model_ranks != 0)
    throw InputError(SourcePlace{q.job->file},
                     fmt::format("{} GPUs for TP {} x CP {} x PP {}", gpus, p.tp, p.cp, p.pp),
                     fmt::format("a multiple of {}", model_ranks));
}

// Takes the usual batch, which was not given, as near as whole microbatches of the plan allow.
void take_usual_batch(Scenario& s, std::vector<std::string>& notes) {
  s.take_sizes();
  const Parallel& p = s.parallel;
  const UsualBatch usual = usual_batch(s.model.name, p.seq);
  const std::int64_t unit = p.dp * p.micro_batch * (p.vpp > 1 ? p.pp : 1);
  const auto exact = static_cast<double>(usual.batch.sequences) / static_cast<double>(unit);
  s.batch.sequences = std::max<std::int64_t>(1, std::llround(exact)) * unit;
  s.give("parallel.global_batch", {Origin::Kind::kModel, usual.source});
  notes.push_back(fmt::format("batch: {} sequences of {} tokens ({}); --global-batch says another",
                              s.batch.sequences, p.seq, usual.source));
}

// Adds the usual dispatchers to a job's own, or takes them where none was given.
void take_usual_dispatchers(const Question& q, Scenario& s) {
  if (s.model.hidden > 0 && s.model.experts == 0) return;
  const Origin origin = s.origin_of("dispatcher");
  const bool of_job = q.job && origin.kind != Origin::Kind::kSaid && s.gave("dispatcher");
  if (s.gave("dispatcher") && !(of_job && s.dispatchers.size() == 1 && is_megatron(s.dispatchers.front())))
    return;
  const Cluster cluster = s.cluster ? *s.cluster : Cluster::load("dgx-h100");
  std::vector<DispatcherSpec> all =
      usual_dispatchers(cluster, s.parallel.etp * (s.mesh.given ? s.mesh.ep : s.parallel.ep));
  if (of_job) {
    // The job's own, with its options, replaces the plain one.
    const DispatcherSpec own = s.dispatchers.front();
    const auto same = std::ranges::find(all, own.name, &DispatcherSpec::name);
    if (same != all.end())
      *same = own;
    else
      all.insert(all.begin(), own);
  }
  s.dispatchers = std::move(all);
}

// Returns all inputs of a search, as text.
std::string search_key(const Scenario& s) {
  ordered_json key{model_object(s.model), s.gpus};
  if (s.cluster) {
    const Cluster& c = *s.cluster;
    key.push_back({c.profile.name(), c.nodes, static_cast<int>(c.node_count), c.gpus_per_node,
                   c.nvlink.domain, c.profile.device().memory_bytes});
  }
  return key.dump();
}

// Returns the origin of a setting, or of the short form that contains it ("training.overlap").
Origin said_origin(const Scenario& said, std::string_view path) {
  if (const Origin* part = said.origins.find(path)) return *part;
  const std::string_view whole = path.substr(0, path.rfind('.'));
  for (const std::string_view each : {path, whole})
    if (find_field(each) && said.gave(each)) return said.origin_of(each);
  return {};
}

bool is_among(const std::vector<ScenarioPath>& paths, std::string_view path) {
  return std::ranges::any_of(paths, [&](const ScenarioPath& one) {
    return path.starts_with(one.path) && (path.size() == one.path.size() || path[one.path.size()] == '.');
  });
}

// Parts of a model that change nothing in one without some layers.
struct ModelPart {
  std::string_view path;
  bool (*used)(const Architecture& model);
  std::string_view lacks;
};
bool has_experts(const Architecture& m) { return m.experts > 0; }
constexpr std::array<ModelPart, 7> kModelParts{
    {{"model.dense_ffn", [](const Architecture& m) { return m.has_dense_ffn(); }, "dense FFN"},
     {"model.routing_topk_groups", [](const Architecture& m) { return m.routing_groups > 1; },
      "routing groups"},
     {"model.dense_layers", has_experts, "experts"},
     {"model.moe_every", has_experts, "experts"},
     {"model.shared_ffn", has_experts, "experts"},
     {"model.latent", has_experts, "experts"},
     {"model.routing_groups", [](const Architecture& m) { return m.experts > 0 || m.routing_groups <= 1; },
      "experts"}}};

// Returns the changed parts of the model that have no effect.
std::vector<WithoutEffect> parts_without_effect(const Scenario& s) {
  std::vector<WithoutEffect> all;
  for (const ModelPart& part : kModelParts) {
    if (part.used(s.model) || !s.origins.find(part.path)) continue;
    const std::string found = fmt::format("{} with model {}, which has no {}", find_path(part.path).number(s),
                                          s.model.name, part.lacks);
    all.push_back({part.path, found,
                   fmt::format("{}: found {}; expected a model with {}", part.path, found, part.lacks)});
  }
  return all;
}

// Takes the batch and checks the whole.
void finish(Resolved& r) {
  Scenario& s = r.scenario;
  try {
    if (s.is_step() && s.train && !s.batch.given() && !s.gave("parallel.microbatches")) {
      take_usual_batch(s, r.notes);
      r.asked.batch = s.batch;
      r.asked.give("parallel.global_batch", s.origin_of("parallel.global_batch"));
    }
    s.resolve(&r.dropped);
  } catch (const InputError& error) {
    r.error = error.what();
  }
  std::ranges::move(parts_without_effect(s), std::back_inserter(r.dropped));
}

}  // namespace

void open_plan(Question& q) {
  q.search = q.search || (q.said.is_step() && !q.job && !q.said.mesh.given && !says_plan(q.said));
}

Resolver::Resolver(ResolveOptions options) : options_(std::move(options)) {}

void Resolver::search(Resolved& r) {
  Scenario& s = r.scenario;
  const std::string key = search_key(s);
  auto found = searched_.find(key);
  if (found == searched_.end()) {
    Searched one;
    one.plan = s;
    if (options_.open_routing) options_.open_routing(one.plan.routing);
    one.chosen = choose_plan(one.plan, options_.threads, options_.refused);
    found = searched_.emplace(key, std::move(one)).first;
  }
  r.chosen = found->second.chosen;
  const auto take = [&](const char* path) {
    const Scenario& plan = found->second.plan;
    if (s.gave(path) || !plan.gave(path)) return;
    find_field(path)->take(s, plan);
    s.give(path, {Origin::Kind::kSearched, r.chosen.because});
  };
  for (const ParallelSize& one : kParallelSizes) take(one.path);
  for (const char* path : {"gpus", "training.recompute", "training.schedule", "cluster"}) take(path);
  if (!s.batch.given() && !s.gave("parallel.microbatches") && found->second.plan.batch.given()) {
    s.batch = found->second.plan.batch;
    s.give("parallel.global_batch", found->second.plan.origin_of("parallel.global_batch"));
  }
}

Resolved Resolver::resolve(const Question& q) {
  Resolved r;
  Scenario& s = r.scenario = q.said;
  settle_scope(q, s);
  if (!s.recipe.empty()) apply(FrameworkRecipe::find(s.recipe), s);
  take_launched(q, s, r.notes);
  if (options_.plan) check_job_divides(q, s);
  name_dispatchers(s);
  r.asked = s;
  if (s.model.hidden == 0) return r;  // answer() asks for one
  if (s.is_step() && q.search) {
    if (options_.plan)
      search(r);
    else if (s.train)
      choose_batch(s);
  } else if (options_.plan && !q.job) {
    r.chosen = choose_expert_parallel(s);
  }
  take_usual_dispatchers(q, s);
  r.asked = s;
  if (options_.plan) finish(r);
  const auto said = static_cast<std::ptrdiff_t>(q.said.model.remarks.size());
  for (Scenario* one : {&s, &r.asked})
    one->model.remarks.insert(one->model.remarks.begin() + said, r.notes.begin(), r.notes.end());
  return r;
}

Resolved resolve(const Question& question, const ResolveOptions& options) {
  return Resolver(options).resolve(question);
}

void check_effects(const Question& question, Resolved& resolved, const std::vector<ScenarioPath>* changed) {
  for (const WithoutEffect& one : resolved.dropped) {
    if (changed && !is_among(*changed, one.path)) continue;
    const Origin origin = said_origin(question.said, one.path);
    const bool of_user =
        origin.kind == Origin::Kind::kSaid || (origin.kind == Origin::Kind::kFile && !question.job);
    if (!of_user) continue;
    if (one.cause.empty() || resolved.scenario.origin_of(one.cause).kind != Origin::Kind::kSearched)
      throw InputError(place_of(origin) + one.message);
    resolved.notes.push_back(fmt::format("{}: no effect: {}", one.path, one.found));
    resolved.scenario.model.remarks.push_back(resolved.notes.back());
  }
}

std::vector<DispatcherSpec> usual_dispatchers(const Cluster& cluster, std::int64_t ranks) {
  const bool across = ranks > cluster.nvlink.domain;
  std::string names = "allgather,alltoall";
  // DeepEP refuses a single rank.
  if (ranks > 1 && kernel_is_measured(cluster.profile, ExchangeLibrary::kDeepEp, across))
    names += ",flex-deepep";
  if (kernel_is_measured(cluster.profile, ExchangeLibrary::kHybridEp, across)) names += ",flex-hybridep";
  std::vector<DispatcherSpec> specs = DispatcherSpec::parse_list(names);
  for (DispatcherSpec& spec : specs) spec.origin = kUsualOrigin;
  return specs;
}

ordered_json settings_json(const Scenario& s) {
  ordered_json list = ordered_json::array();
  const auto add = [&](std::string_view path, ordered_json value, const Origin& origin) {
    list.push_back({{"path", path},
                    {"value", std::move(value)},
                    {"origin", {{"kind", name_of(origin.kind)}, {"where", origin.where}}}});
  };
  for (const Field& field : scenario_fields()) {
    if (!s.gave(field.path) || !field.used_in(scope_of(s))) continue;
    ordered_json value = field.write(s);
    if (field.path == "model") value = s.model.name;
    if (field.path == "cluster" && s.cluster) value = s.cluster->name;
    if (!value.is_null()) add(field.path, std::move(value), s.origin_of(field.path));
  }
  for (const auto& [path, origin] : s.origins.all())
    if (!find_field(path)) add(path, value_at(s, find_path(path)), origin);
  return list;
}

}  // namespace moesim::models
