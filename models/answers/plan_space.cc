#include "models/answers/plan_space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "models/answers/plan_search.h"
#include "models/hardware/cluster.h"
#include "models/recipes/framework_recipe.h"
#include "models/workload/fields.h"

namespace moesim::models {

namespace {

using Sizes = std::vector<std::int64_t>;

Sizes divisors(std::int64_t n, std::int64_t most) {
  Sizes all;
  for (std::int64_t d = 1; d <= std::min(n, most); ++d)
    if (n % d == 0) all.push_back(d);
  return all;
}

Sizes powers_of_two(std::int64_t most) {
  Sizes all;
  for (std::int64_t p = 1; p <= most; p *= 2) all.push_back(p);
  return all;
}

// Sequences of a microbatch: up to 8, or as many as have the tokens of 8 of the usual length.
Sizes micro_batches(std::int64_t seq) { return powers_of_two(std::max<std::int64_t>(8, 8 * 4096 / seq)); }

// Returns the numbers of GPUs that plans may use: all, and where these are not round (504), smaller round
// numbers that leave the rest idle.
Sizes rounded(std::int64_t gpus) {
  constexpr std::int64_t kRound = 16;  // a number is round if it is at most this multiple of a power of two
  Sizes all{gpus};
  for (std::int64_t unit = 1; unit <= gpus; unit *= 2)
    if (gpus / unit < kRound && gpus % unit != 0 && (gpus / unit) * unit != all.back())
      all.push_back((gpus / unit) * unit);
  return all;
}

// Every combination of parallel sizes that uses the GPUs and keeps the global batch.
class ParallelPlans {
 public:
  ParallelPlans(const Scenario& s, bool keep) : s_(s), keep_(keep) {}

  std::vector<Parallel> all() {
    const Sizes worlds = keep_ && s_.gave("parallel.dp") ? Sizes{s_.job_gpus()} : rounded(s_.job_gpus());
    for (const std::int64_t gpus : worlds) of(gpus);
    return std::move(plans_);
  }

 private:
  // Returns the given size, or the sizes to try.
  Sizes sizes(const char* path, std::int64_t said, Sizes tried) const {
    return keep_ && s_.gave(path) ? Sizes{said} : std::move(tried);
  }

  void of(std::int64_t gpus) {
    const Parallel& base = s_.parallel;
    const std::int64_t layers = s_.model.layers + s_.model.mtp_layers;
    for (const std::int64_t tp :
         sizes("parallel.tp", base.tp, powers_of_two(std::min<std::int64_t>(s_.cluster->nvlink.domain, 8)))) {
      if (s_.model.attention.heads % tp != 0) continue;
      // Splits a sequence where a rank's share would otherwise exceed 16k tokens.
      for (const std::int64_t cp :
           sizes("parallel.cp", base.cp, powers_of_two(std::max<std::int64_t>(1, base.seq / 8192)))) {
        if (gpus % (tp * cp) != 0) continue;
        for (const std::int64_t pp :
             sizes("parallel.pp", base.pp, divisors(gpus / (tp * cp), std::min<std::int64_t>(layers, 64)))) {
          if (gpus % (tp * cp * pp) != 0) continue;
          Parallel p = base;
          p.tp = tp, p.cp = cp, p.pp = pp, p.dp = gpus / (tp * cp * pp);
          if (keep_ && s_.gave("parallel.dp") && p.dp != base.dp) continue;
          with_experts(p);
        }
      }
    }
  }

  void with_experts(Parallel p) {
    const std::int64_t stage = p.tp * p.cp * p.dp;
    for (const std::int64_t ep :
         sizes("parallel.ep", s_.parallel.ep, divisors(std::max<std::int64_t>(1, s_.model.experts), stage))) {
      if (stage % ep != 0) continue;
      Sizes inner{1};
      if (p.tp > 1 && s_.model.experts > 0) inner.push_back(p.tp);
      for (const std::int64_t etp : sizes("parallel.etp", s_.parallel.etp, inner)) {
        if (stage % (etp * ep) != 0 || (s_.model.experts > 0 && s_.model.expert_ffn % etp != 0)) continue;
        p.ep = ep, p.etp = etp;
        with_microbatches(p);
      }
    }
  }

  void with_microbatches(Parallel p) {
    const std::int64_t layers = s_.model.layers + s_.model.mtp_layers;
    for (const std::int64_t micro :
         sizes("parallel.micro_batch", s_.parallel.micro_batch, micro_batches(p.seq))) {
      p.micro_batch = micro;
      p.microbatches = microbatches(p);
      if (p.microbatches == 0) continue;
      for (const std::int64_t vpp : sizes("parallel.vpp", s_.parallel.vpp, {1, 2, 4, 8})) {
        if (vpp > 1 && (p.pp == 1 || p.pp * vpp > layers || p.microbatches % p.pp != 0)) continue;
        p.vpp = vpp;
        plans_.push_back(p);
      }
    }
  }

  std::int64_t microbatches(const Parallel& p) const {
    const Parallel& base = s_.parallel;
    if (s_.batch.given()) {
      const std::int64_t made = s_.batch.microbatches(p.dp, p.micro_batch, p.seq);
      return s_.gave("parallel.microbatches") && made != base.microbatches ? 0 : made;
    }
    const std::int64_t batch = base.dp * base.microbatches * base.micro_batch, unit = p.dp * p.micro_batch;
    return batch % unit == 0 ? batch / unit : 0;
  }

  const Scenario& s_;
  const bool keep_;
  std::vector<Parallel> plans_;
};

}  // namespace

const std::vector<SearchedSetting>& searched_settings() {
  using O = PlanSearchOptions;
  static const std::vector<SearchedSetting> all{
      {&O::dispatcher,
       "dispatcher",
       "dispatchers",
       {"alltoall", "allgather", "flex-deepep", "flex-hybridep"}},
      {&O::recompute,
       "training.recompute",
       "recomputation",
       {"none", "layernorm+moe_act", "mla_up_proj", "layernorm+mla_up_proj+moe_act",
        "core_attn+layernorm+mla_up_proj+moe", "full"}},
      {&O::precision, "training.precision", "precision", {}},
      {&O::schedule, "training.schedule", "schedule", {"1f1b", "zero-bubble", "dualpipe"}},
      {&O::overlap,
       "training.overlap",
       "overlap",
       {"gradients+parameters", "expert-communication+gradients+parameters",
        "expert-communication+delayed-wgrad+gradients+parameters"}},
      {&O::launch, "training.launch", "launch", {"eager", "partial-graphs", "graphs"}},
      {&O::sharding, "training.sharding", "sharding", {"zero1", "fsdp"}},
  };
  return all;
}

namespace {

// Returns the modules to recompute in the order of the list, without those of latent attention where the model has
// none.
std::vector<std::string> recomputes_of(const Architecture& model, std::vector<std::string> values) {
  if (model.attention.kind == Attention::Kind::kLatent) return values;
  constexpr std::string_view kLatent = "mla_up_proj";
  std::erase(values, kLatent);
  for (std::string& value : values)
    if (const auto at = value.find(kLatent); at != std::string::npos) value.erase(at, kLatent.size() + 1);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// Removes values that the plan's framework cannot run: without one, Megatron-LM, which has neither
// zero-bubble nor DualPipe schedules. Adds the dispatcher of a recipe, where no rows are dropped for its budget.
std::vector<std::string> that_run(const SearchedSetting& kind, const Scenario& s,
                                  const FrameworkRecipe& recipe) {
  std::vector<std::string> values = kind.path != "training.recompute" ? kind.values
                                    : recipe.runs.recomputes.empty()  ? recomputes_of(s.model, kind.values)
                                                                      : recipe.runs.recomputes;
  if (kind.path == "dispatcher" && !s.recipe.empty() && s.routing.kind == RoutingSpec::Kind::kBalanced &&
      std::ranges::find(values, s.dispatchers.front().text()) == values.end())
    values.push_back(s.dispatchers.front().text());
  std::erase_if(values, [&](const std::string& value) {
    return (kind.path == "dispatcher" && !recipe.runs_dispatcher(value.substr(0, value.find(':')))) ||
           (kind.path == "training.schedule" && !recipe.runs_schedule(value)) ||
           (kind.path == "training.launch" && !recipe.runs_launch(value));
  });
  if (values.empty()) values.emplace_back();
  return values;
}

std::vector<std::string> values_of(const SearchedSetting& kind, const Scenario& s, const PlanSearchOptions& o,
                                   const FrameworkRecipe& recipe) {
  // The short form of an object counts as given where one of its parts is.
  const bool given = std::any_of(scenario_fields().begin(), scenario_fields().end(), [&](const Field& f) {
    return (f.path == kind.path || f.path.starts_with(std::string(kind.path) + ".")) && s.gave(f.path);
  });
  // "all" names no dispatcher.
  const bool said = given && !(kind.path == "dispatcher" && s.all_dispatchers);
  if (!(o.*kind.searched)) return {""};
  // Named dispatchers are the candidates, in any order.
  if (said && kind.path == "dispatcher" && s.dispatchers.size() > 1) {
    std::vector<std::string> named;
    for (const DispatcherSpec& spec : s.dispatchers) named.push_back(spec.text());
    std::ranges::sort(named);
    named.erase(std::unique(named.begin(), named.end()), named.end());
    return named;
  }
  if (o.keep_given && said) return {""};
  if (kind.path != "training.precision") {
    if (kind.path == "dispatcher" && s.model.experts == 0) return {""};
    return that_run(kind, s, recipe);
  }
  std::vector<std::string> has;
  for (const std::string_view name : kPrecisions)
    if (s.cluster->profile.device().has_precision(name)) has.emplace_back(name);
  return has;
}

}  // namespace

std::string PlanPoint::text() const { return fmt::format("{} {}", parallel, fmt::join(values, " ")); }

PlanSpace::PlanSpace(const Scenario& scenario, const PlanSearchOptions& o)
    : base_(scenario), parallel_(o.parallel) {
  plans_ = o.parallel ? ParallelPlans(base_, o.keep_given).all() : std::vector<Parallel>{base_.parallel};
  const FrameworkRecipe recipe = FrameworkRecipe::find(base_.recipe.empty() ? "megatron-lm" : base_.recipe);
  for (const SearchedSetting& kind : searched_settings())
    axes_.push_back({kind.path, kind.name, values_of(kind, base_, o, recipe)});
  check(axes_[kRecompute].path == "training.recompute" && axes_[kSchedule].path == "training.schedule" &&
            axes_[kOverlap].path == "training.overlap" && axes_[kLaunch].path == "training.launch",
        "the axes stand in the order of searched_settings()");
}

std::int64_t PlanSpace::size() const {
  std::size_t product = plans_.size();
  for (const Axis& axis : axes_) product *= axis.values.size();
  return static_cast<std::int64_t>(product);
}

std::vector<PlanPoint> PlanSpace::points(bool nodes) const {
  std::vector<PlanPoint> all;
  for (std::size_t p = 0; p < plans_.size(); ++p) {
    PlanPoint choice{p, std::vector<std::size_t>(axes_.size(), 0)};
    if (nodes) choice = node_of(std::move(choice));
    for (bool more = true; more;) {
      all.push_back(choice);
      more = false;
      for (std::size_t a = axes_.size(); a-- > 0 && !more;) {
        if (nodes && (a == kRecompute || a == kLaunch)) continue;
        more = ++choice.values[a] < axes_[a].values.size();
        if (!more) choice.values[a] = 0;
      }
    }
  }
  return all;
}

PlanPoint PlanSpace::node_of(PlanPoint choice) const {
  choice.values[kRecompute] = 0;
  choice.values[kLaunch] = axes_[kLaunch].values.size() - 1;
  return choice;
}

std::size_t PlanSpace::below() const {
  return axes_[kRecompute].values.size() * axes_[kLaunch].values.size();
}

bool PlanSpace::fills_pipeline(const PlanPoint& choice) const {
  const std::string& schedule = axes_[kSchedule].values[choice.values[kSchedule]];
  return schedule.empty() ? base_.training.pipeline == PipelineKind::k1F1B : schedule == "1f1b";
}

PlanSpace::LayerKey PlanSpace::layer_key(const PlanPoint& node) const {
  const Parallel& p = parallel(node);
  return {{p.tp, p.cp, p.ep, p.etp, p.micro_batch}, without_overlap(node).values};
}

PlanPoint PlanSpace::without_overlap(PlanPoint choice) const {
  choice.values[kOverlap] = 0;
  return choice;
}

bool PlanSpace::overlaps_exchanges(const PlanPoint& choice) const { return choice.values[kOverlap] > 0; }

PlanPoint PlanSpace::slowest_launch(PlanPoint choice) const {
  choice.values[kLaunch] = 0;
  return choice;
}

Scenario PlanSpace::scenario(const PlanPoint& choice) const {
  Scenario s = base_;
  s.parallel = parallel(choice);
  s.give("parallel.dp");
  if (s.model.experts > 0) s.give("parallel.ep");  // otherwise another one is chosen
  for (std::size_t a = 0; a < axes_.size(); ++a)
    if (const std::string& value = axes_[a].values[choice.values[a]]; !value.empty())
      set_field(*find_field(axes_[a].path), s, value);
  return s;
}

std::string PlanSpace::text() const {
  std::vector<std::string> parts;
  if (parallel_)
    parts.push_back(fmt::format(
        "TP powers of two up to 8 inside a node, CP powers of two up to seq / 8192, PP divisors up to 64, "
        "VPP 1, 2, 4, 8, EP divisors of the experts, ETP 1 or TP, microbatches of {} sequences, DP "
        "what is left",
        fmt::join(micro_batches(base_.parallel.seq), ", ")));
  std::vector<std::string> given;
  for (const Axis& axis : axes_) {
    if (!axis.values.front().empty()) {
      parts.push_back(fmt::format("{} {}", axis.name, join(axis.values, ", ")));
    } else if (axis.path == "dispatcher") {
      parts.push_back(fmt::format("dispatcher {}, {}", base_.dispatchers.front().text(),
                                  base_.dispatchers.size() > 1 ? "the scenario's first" : "as given"));
    } else {
      given.emplace_back(axis.name);
    }
  }
  if (!given.empty()) parts.push_back(join(given, ", ") + " as given");
  return join(parts, "; ");
}

}  // namespace moesim::models
