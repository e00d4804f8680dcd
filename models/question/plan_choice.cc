#include "models/question/plan_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "base/input_error.h"
#include "base/units.h"
#include "models/answers/plan_search.h"
#include "models/answers/plan_space.h"
#include "models/hardware/cluster.h"
#include "models/recipes/framework_recipe.h"

namespace moesim::models {

namespace {

constexpr std::int64_t kMostNodes = 4096;
constexpr std::int64_t kMostRanks = std::int64_t{1} << 31;

// Returns the dispatcher with which plans are tried: alltoall where the question includes it, else its first.
std::string tried_with(const Scenario& s) {
  for (const DispatcherSpec& d : s.dispatchers)
    if (d.name == "alltoall") return d.text();
  return s.all_dispatchers || s.dispatchers.empty() ? "alltoall" : s.dispatchers.front().text();
}

// Returns the search that only prepares another question.
PlanSearchOptions options_of(int threads, const PlanRules& refused) {
  PlanSearchOptions o;
  o.refused = refused;
  o.dispatcher = false;
  o.keep_given = true;
  o.top = 1;
  o.draws = 0;
  o.threads = threads;
  return o;
}

// Searches on `nodes`, or twice as many times and again: the fewest that fit a plan. Sets the scenario's GPUs.
PlanSearchResult search_on_fewest(Scenario& s, std::int64_t nodes, const PlanSearchOptions& o) {
  PlanSearchResult found;
  for (; nodes <= kMostNodes; nodes *= 2) {
    s.gpus = nodes * s.cluster->gpus_per_node;
    if (s.cluster->node_count == Cluster::NodeCount::kGiven)
      s.cluster = std::make_shared<const Cluster>(s.cluster->holding(s.gpus));
    found = search_plans(s, o);
    if (!found.too_large()) break;
  }
  return found;
}

// Returns the nodes that weights, gradients and optimizer state need at least, however they are sharded.
std::int64_t fewest_nodes(const Scenario& s) {
  const std::int64_t gpus = fewest_gpus(s);
  std::int64_t nodes = 1;
  while (nodes * s.cluster->gpus_per_node < gpus && nodes < kMostNodes) nodes *= 2;
  return nodes;
}

// Throws that nothing fits so many GPUs, and how many would do.
[[noreturn]] void refuse(Scenario s, PlanSearchOptions o) {
  const GlobalBatch batch = std::exchange(s.batch, {});
  s.resolve();
  const std::int64_t found = s.job_gpus();
  const std::string memory = format_bytes(s.cluster->profile.device().memory_bytes);
  s.batch = batch;
  o.most = 1;  // the first that fits
  std::int64_t nodes = fewest_nodes(s);
  while (nodes * s.cluster->gpus_per_node <= found) nodes *= 2;
  const bool any = !search_on_fewest(s, nodes, o).best.empty();
  throw InputError(fmt::format(
      "plan: found no plan of {} with which {} GPUs of {} hold it for sure; expected {}, or sizes (--ep 8) to "
      "see what they miss",
      s.model.name, found, memory, any ? fmt::format("{} GPUs", s.gpus) : "other settings"));
}

void take(const Scenario& plan, Scenario& s) {
  for (const auto& [path, name, size] : kParallelSizes) {
    // Otherwise the copies fill the GPUs.
    if (size == &Parallel::dp && plan.parallel.world() == plan.job_gpus()) continue;
    s.parallel.*size = plan.parallel.*size;
    if (s.model.experts > 0 || (size != &Parallel::ep && size != &Parallel::etp)) s.give(path);
  }
  s.training.recompute = plan.training.recompute;
  s.give("training.recompute");
  if (plan.training.pipeline != s.training.pipeline) s.give("training.schedule");
  s.training.pipeline = plan.training.pipeline;
}

ChosenPlan choose_step(Scenario& s, int threads, const PlanRules& refused) {
  if (s.gave("parallel.microbatches") && !s.batch.given())
    throw InputError(
        "parallel.microbatches: found with a plan that is searched, expected --global-batch: microbatches "
        "follow from the plan");
  const std::string batch = choose_batch(s);
  Scenario tried = s;
  tried.set_dispatchers(tried_with(s));
  if (s.model.experts == 0) tried.dispatchers = s.dispatchers, tried.given = s.given;
  PlanSearchOptions o = options_of(threads, refused);
  // A recipe's schedule may need stages, which the plan decides.
  o.schedule = !s.recipe.empty() && !FrameworkRecipe::find(s.recipe).runs.schedules.empty();
  const bool open = s.gpus_open();
  if (open && !tried.cluster) tried.set_cluster("dgx-h100");
  const PlanSearchResult found =
      open ? search_on_fewest(tried, fewest_nodes(tried), o) : search_plans(tried, o);
  if (found.too_large()) refuse(tried, o);
  const Scenario& plan = *found.fastest().scenario;
  if (open) {
    if (!s.cluster) s.cluster = tried.cluster, s.give("cluster");
    s.gpus = tried.gpus;
    s.give("gpus");
  }
  take(plan, s);
  ChosenPlan chosen;
  chosen.options = plan_options(s);
  if (open) chosen.options = fmt::format("--gpus {} {}", s.gpus, chosen.options);
  chosen.because = fmt::format("the fastest of {} tried with {}{}", found.candidates - found.skipped,
                               tried.dispatchers.front().text(), batch.empty() ? "" : "; batch: " + batch);
  return chosen;
}

// Returns the GPUs of a pipeline stage with groups of so many ranks: one node where their number is open; 0
// where the machine has no such number.
std::int64_t gpus_of_stage(const Scenario& s, std::int64_t group) {
  if (s.gpus_open()) return s.cluster ? s.cluster->gpus_per_node : Cluster::load("dgx-h100").gpus_per_node;
  std::int64_t gpus = s.gpus;
  if (s.cluster && s.cluster->node_count == Cluster::NodeCount::kGiven) {
    const std::shared_ptr<const Cluster> used = blocks_of(s, group);
    if (gpus > used->ranks() || (gpus > 0 && gpus <= used->ranks() - used->gpus_per_node)) return 0;
    if (gpus == 0) gpus = used->ranks();
  }
  return gpus / std::max<std::int64_t>(1, s.parallel.pp);
}

// Whether the other sizes leave room for this EP.
bool has_room(const Scenario& s, std::int64_t ep) {
  const Parallel& p = s.parallel;
  const std::int64_t dense = p.tp * p.cp, experts = p.etp * ep;
  if (dense < 1 || experts < 1 || dense > kMostRanks || experts > kMostRanks) return false;
  const std::int64_t group = std::lcm(dense, experts), stage = gpus_of_stage(s, group);
  const std::int64_t dp = s.gave("parallel.dp") ? p.dp : stage / group * (group / dense), ranks = dense * dp;
  if (dp < 1 || ranks > stage || ranks % experts != 0) return false;
  if (s.training.stages_inside && dense != experts) return false;
  if (const std::int64_t shard = s.training.shard_group; shard > 0) {
    if (dp * p.cp % shard != 0) return false;
    const std::int64_t replicas = ranks / experts;
    if (replicas % std::min(replicas, shard) != 0) return false;
    if (!s.all_dispatchers && shard * dense % experts != 0 &&
        std::ranges::any_of(s.dispatchers,
                            [](const DispatcherSpec& d) { return d.name.starts_with("torchtitan"); }))
      return false;
  }
  const std::int64_t slots =
      std::max(s.placement.slots, static_cast<std::int64_t>(s.placement.expert_of.size()));
  return s.model.experts % ep == 0 && slots % ep == 0;
}

}  // namespace

bool says_plan(const Scenario& s) {
  return s.gave("mesh") || s.gave("parallel.microbatches") ||
         std::ranges::any_of(kParallelSizes, [&](const ParallelSize& one) { return s.gave(one.path); });
}

std::string choose_batch(Scenario& s) {
  if (s.batch.given() || s.gave("parallel.microbatches")) return "";
  UsualBatch usual = usual_batch(s.model.name, s.parallel.seq);
  s.batch = usual.batch;
  s.give("parallel.global_batch", {Origin::Kind::kModel, usual.source});
  return std::move(usual.source);
}

ChosenPlan choose_plan(Scenario& s, int threads, const PlanRules& refused) {
  return s.model.hidden == 0 ? ChosenPlan{} : choose_step(s, threads, refused);
}

ChosenPlan choose_expert_parallel(Scenario& s) {
  if (s.gave("parallel.ep") || s.mesh.given || s.model.experts == 0) return {};
  take_expert_tp(s);
  for (std::int64_t ep = s.model.experts; ep > 1; --ep) {
    if (!has_room(s, ep)) continue;
    ChosenPlan chosen{fmt::format("--ep {}", ep), "as large as the experts and the GPUs of a stage allow"};
    s.parallel.ep = ep;
    s.give("parallel.ep", {Origin::Kind::kSearched, chosen.because});
    return chosen;
  }
  return {};
}

}  // namespace moesim::models
