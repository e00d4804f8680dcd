#include "replay/run/layer_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "base/input_error.h"
#include "base/random.h"
#include "base/units.h"
#include "models/costs/layer_costs.h"
#include "models/dispatchers/dispatcher.h"
#include "models/programs/dense_layer.h"
#include "models/step/faults.h"
#include "replay/recording/routing_from_dispatching.h"
#include "replay/run/cluster_fabric.h"
#include "replay/run/layer_flow.h"
#include "replay/run/layer_forecast.h"
#include "replay/run/portions.h"

namespace moesim::replay {

namespace {

using models::Program;
using models::Scenario;
using sim::Category;

constexpr std::int64_t kMaxGroup = 4096;               // split matrices have as many rows and columns
constexpr std::uint64_t kDrawStream = 0x6d6f6573696d;  // keeps draws of profiles apart from draws of routings

// Everything about one dispatcher that no price changes.
struct Candidate {
  std::string name;
  Program program;
  Program dense;
  models::GroupShapes shapes;
  models::UnevenLoads loads, dense_loads;
};

models::Routing routing_of(Scenario& scenario, models::RoutingCache* kept,
                           std::vector<std::string>& warnings) {
  const models::Parallel& p = scenario.parallel;
  const int ranks = static_cast<int>(p.dispatch_ranks());
  if (scenario.routing.kind != models::RoutingSpec::Kind::kFile) {
    const auto experts = static_cast<int>(scenario.model.experts), topk = static_cast<int>(scenario.topk);
    models::Routing drawn =
        kept ? kept->draw(scenario.routing, ranks, p.tokens_per_rank(), experts, topk, scenario.seed)
             : models::make_routing(scenario.routing, ranks, p.tokens_per_rank(), experts, topk,
                                    scenario.seed);
    drawn.set_group_limit(static_cast<int>(scenario.model.routing_groups),
                          static_cast<int>(scenario.model.routing_topk_groups));
    return drawn;
  }
  LoadedRouting loaded = load_routing(scenario.routing.path, ranks, static_cast<int>(p.etp),
                                      scenario.model.experts, scenario.topk);
  for (std::string& warning : loaded.warnings) warnings.push_back(std::move(warning));
  const std::int64_t tokens = loaded.routing.max_tokens();
  if (tokens != p.tokens_per_rank()) {
    if (scenario.gave("parallel.seq"))
      warnings.push_back(
          fmt::format("{}: {} tokens per rank, where micro_batch x seq / (tp x cp) is {}: the file's are "
                      "taken",
                      scenario.routing.path, tokens, p.tokens_per_rank()));
    // The attention of the layer sees the sequence that gives this many tokens.
    scenario.parallel.seq = std::max<std::int64_t>(1, tokens * p.tp * p.cp / p.micro_batch);
  }
  return std::move(loaded.routing);
}

models::MoeLayer moe_layer(const Scenario& s, const models::Routing& routing) {
  models::MoeLayer layer;
  layer.hidden = s.model.hidden;
  layer.expert_ffn = s.model.expert_ffn;
  layer.shared_ffn = s.model.shared_ffn;
  layer.gated = s.model.gated;
  layer.ep = static_cast<int>(s.parallel.ep);
  layer.etp = static_cast<int>(s.parallel.etp);
  layer.tp = static_cast<int>(s.parallel.tp);
  layer.cp = static_cast<int>(s.parallel.cp);
  layer.ranks_per_node = s.cluster->gpus_per_node;
  layer.activation = s.activation;
  layer.router = s.router_dtype;
  layer.recompute = s.training.recompute.of_layer();
  layer.train = s.train;
  layer.routing_given = s.routing.kind == models::RoutingSpec::Kind::kFile;
  layer.routing = &routing;
  return layer;
}

models::DenseLayer dense_layer(const Scenario& s, const models::Routing& routing, bool shared_expert) {
  models::DenseLayer dense;
  dense.model = &s.model;
  dense.parallel = s.parallel;
  dense.tokens = routing.max_tokens();
  dense.topk = s.topk;
  dense.activation = s.activation;
  dense.router = s.router_dtype;
  dense.shared_expert = shared_expert;
  dense.train = s.train;
  return dense;
}

// A candidate's passes with their prices; `segments` point into this object.
struct PricedCandidate {
  models::PricedPass dense_forward, forward, backward, dense_backward;
  std::vector<LayerSegment> segments;

  // `faults`: of the dispatch group's GPUs; null: healthy.
  PricedCandidate(const Candidate& c, const models::LayerCosts& costs, bool train,
                  const models::RankFaults* faults = nullptr)
      : dense_forward(costs.price(c.dense, c.dense.forward(), c.shapes, c.dense_loads)),
        forward(costs.price(c.program, c.program.forward(), c.shapes, c.loads)) {
    segments = {{&c.dense, &c.dense.forward(), &dense_forward}, {&c.program, &c.program.forward(), &forward}};
    if (train) {
      backward = costs.price(c.program, c.program.backward(), c.shapes, c.loads);
      dense_backward = costs.price(c.dense, c.dense.backward(), c.shapes, c.dense_loads);
      segments.push_back({&c.program, &c.program.backward(), &backward});
      segments.push_back({&c.dense, &c.dense.backward(), &dense_backward});
    }
    if (!faults) return;
    apply_faults(*faults, c.dense, c.dense.forward(), c.shapes, dense_forward);
    apply_faults(*faults, c.program, c.program.forward(), c.shapes, forward);
    if (!train) return;
    apply_faults(*faults, c.program, c.program.backward(), c.shapes, backward);
    apply_faults(*faults, c.dense, c.dense.backward(), c.shapes, dense_backward);
  }
  PricedCandidate(const PricedCandidate&) = delete;
  PricedCandidate& operator=(const PricedCandidate&) = delete;
};

// What of the nominal forecast was not measured.
models::DomainReport report_of(const Candidate& c, const PricedCandidate& priced,
                               const models::LayerCosts& costs) {
  models::DomainReport report;
  for (const LayerSegment& segment : priced.segments)
    costs.report(*segment.program, *segment.ops, *segment.prices, c.shapes, report);
  return report;
}

LayerTiming time_priced(const Candidate& c, const PricedCandidate& priced, const models::LayerCosts& costs,
                        LayerOptions options) {
  options.overlap_batches = c.program.overlaps_batches;
  return time_layer(priced.segments, costs.launch_ps(), options);
}

LayerTiming time_candidate(const Candidate& c, const models::LayerCosts& costs, bool train,
                           const LayerOptions& options, const models::RankFaults* faults) {
  return time_priced(c, PricedCandidate(c, costs, train, faults), costs, options);
}

// Of the dispatch group's GPUs, where one of them has a fault.
std::optional<models::RankFaults> faults_of_layer(const Scenario& s, int ranks, sim::Timing timing,
                                                  std::vector<std::string>& warnings) {
  if (!s.faults.slow()) return std::nullopt;
  if (timing == sim::Timing::flow)
    throw InputError("compare: found faults with timing flow, expected calibrated");
  std::vector<std::int32_t> gpus(static_cast<std::size_t>(ranks));
  std::iota(gpus.begin(), gpus.end(), 0);
  models::RankFaults faults = models::RankFaults::of(s.faults, *s.cluster, gpus);
  if (!faults.any()) {
    warnings.push_back(
        fmt::format("faults: none on the {} GPUs of the dispatch group that the layer stands on", ranks));
    return std::nullopt;
  }
  return faults;
}

// The same with all dispatch groups of the job on the cluster's network.
FlowTiming time_on_network(const Candidate& c, const models::LayerCosts& costs, const Scenario& s,
                           const sim::Fabric& fabric, std::vector<std::string>& warnings) {
  if (c.program.overlaps_batches)
    throw InputError(
        fmt::format("{}: found an overlap of two batches, expected none under timing flow", c.name));
  const auto own_kernel = [](const models::Op& op) { return op.one_kernel; };
  if (std::any_of(c.program.forward().begin(), c.program.forward().end(), own_kernel))
    warnings.push_back(c.name + ": timing flow takes its dispatch and combine kernels for NCCL's all-to-all");
  const PricedCandidate priced(c, costs, s.train);
  return flow_layer(priced.segments, costs.launch_ps(), *s.cluster, fabric,
                    flow_groups(*s.cluster, c.program.ranks()));
}

LayerOptions layer_options(const models::Cluster& cluster) {
  LayerOptions options;
  options.compute_slowdown = cluster.profile.overlap().compute_under_communication;
  options.communication_slowdown = cluster.profile.overlap().communication_under_compute;
  return options;
}

// When an allocation happens: at the start of the next operation of its rank; a release: at the end of the
// one before.
std::vector<DispatcherForecast::MemorySample> memory_over_time(const Candidate& c,
                                                               const DispatcherForecast& f, bool train) {
  std::vector<DispatcherForecast::MemorySample> samples;
  const auto rank = static_cast<std::size_t>(f.memory.rank);
  const auto R = static_cast<std::size_t>(c.program.ranks());
  double latest = 0;
  for (const models::MemoryPoint& point :
       models::memory_of_layer(c.program, f.memory.rank, f.memory.worst, train)) {
    const std::vector<models::Op>& pass = point.forward ? c.program.forward() : c.program.backward();
    const SegmentTrace& trace = f.trace[point.forward ? 1 : 2];
    const auto at = static_cast<std::size_t>(std::max(point.op, 0));
    std::int64_t ps = -1;
    if (point.op >= 0 && at < pass.size() && pass[at].kind == models::OpKind::kAllocate)
      for (std::size_t i = at + 1; i < pass.size() && ps < 0; ++i)
        if (trace.end[i * R + rank] > 0) ps = trace.start[i * R + rank];
    if (ps < 0)
      for (std::size_t i = std::min(at, pass.size()); i > 0 && ps < 0; --i)
        if (trace.end[(i - 1) * R + rank] > 0) ps = trace.end[(i - 1) * R + rank];
    latest = std::max(latest, static_cast<double>(std::max<std::int64_t>(ps, 0)) * 1e-6);
    samples.push_back({latest, point});
  }
  return samples;
}

// The ranks of one stage that hold the same parameters, in Megatron's default order (tp-cp-ep-dp-pp).
std::vector<std::int32_t> replicas(const models::Parallel& p, bool experts) {
  std::vector<std::int32_t> ranks;
  const std::int64_t stride = experts ? p.etp * p.ep : p.tp;
  for (std::int64_t r = 0; r < p.tp * p.cp * p.dp; r += stride) ranks.push_back(static_cast<std::int32_t>(r));
  return ranks;
}

std::vector<StepCollective> step_collectives(const Scenario& s, std::int64_t experts) {
  std::vector<StepCollective> all;
  const models::TrainingPlan& plan = s.training;
  if (!s.sharding_asked() || !s.train) return all;
  models::Architecture model = s.model;
  model.experts = experts;
  const models::StageParameters stage = models::stage_parameters(model, s.parallel, 0);
  models::ParameterTraffic traffic;
  traffic.dense_parameters = static_cast<std::int64_t>(stage.dense);
  traffic.expert_parameters = static_cast<std::int64_t>(stage.experts);
  traffic.dense_group = s.parallel.dp * s.parallel.cp;
  traffic.expert_group = std::max<std::int64_t>(1, s.parallel.edp());
  traffic.shard_group = plan.shard_group;
  traffic.microbatches = s.parallel.microbatches;
  traffic.reshard_after_forward = plan.reshard_after_forward;
  std::vector<models::ParameterCollective> collectives = models::parameter_collectives(plan.sharding, traffic);
  if (plan.shampoo) {
    const std::int64_t trainers = s.parallel.dp * s.parallel.cp;
    const models::ParameterCollective gather =
        models::shampoo_step(plan.sharding, traffic.dense_parameters + traffic.expert_parameters,
                             traffic.weight_bytes, trainers,
                             plan.shard_group > 0 ? trainers / plan.shard_group : trainers, 1, 0, 1)
            .gather;
    if (gather.group > 1) collectives.push_back(gather);
  }
  const models::CollectiveModel costs(*s.cluster);
  for (const models::ParameterCollective& one : collectives) {
    const std::vector<std::int32_t> ranks = replicas(s.parallel, one.what.starts_with("expert"));
    // Sharding groups are consecutive replicas; replicate groups take one of each.
    const auto group = static_cast<std::size_t>(one.group);
    const std::size_t stride = one.kind == models::CommKind::kAllReduce ? ranks.size() / group : 1;
    std::vector<std::int32_t> members;
    for (std::size_t i = 0; i < group; ++i) members.push_back(ranks[i * stride]);
    const models::GroupShape shape = models::GroupShape::of(*s.cluster, members);
    const double bytes = static_cast<double>(one.bytes) / static_cast<double>(one.calls);
    const bool reduce = one.kind == models::CommKind::kAllReduce;
    const sim::CollectiveOp op = reduce ? sim::CollectiveOp::all_reduce
                                 : one.kind == models::CommKind::kAllGather
                                     ? sim::CollectiveOp::all_gather
                                     : sim::CollectiveOp::reduce_scatter;
    const double seconds = costs.seconds(op, shape, reduce ? bytes : bytes / static_cast<double>(one.group));
    all.push_back({one, seconds * static_cast<double>(one.calls) * 1e6});
  }
  return all;
}

std::vector<std::int64_t> sent_bytes(const Program& program) {
  std::vector<std::int64_t> tx(program.ranks());
  for (const auto* pass : {&program.forward(), &program.backward()})
    for (const models::Op& op : *pass)
      if (op.kind == models::OpKind::kCollective)
        for (int r = 0; r < program.ranks(); ++r) tx[r] += program.value(op.tx, r);
  return tx;
}

std::string explain(const LayerComparison& c) {
  const DispatcherForecast& winner = c.forecasts[c.winner];
  if (c.runner_up < 0) return fmt::format("{} is the only dispatcher that was compared.", winner.dispatcher);
  const DispatcherForecast& other = c.forecasts[c.runner_up];
  static const std::vector<Portion> kPortions{
      {"dispatch and combine", {Category::dispatch, Category::combine}},
      {"permutation", {Category::permute, Category::unpermute}},
      {"the experts", {Category::expert}},
      {"waiting for slower ranks", {Category::straggler_wait}},
      {"host synchronisation and launches", {Category::host_sync}}};
  const std::vector<Portion> portions = winner.critical_rank == other.critical_rank
                                            ? kPortions
                                            : comparable(kPortions, other.breakdown_us, winner.breakdown_us);
  const Portion* most_saved = nullptr;
  const Portion* most_lost = nullptr;
  double saved = 0, lost = 0;
  for (const Portion& portion : portions) {
    const double difference = portion.us(other.breakdown_us) - portion.us(winner.breakdown_us);
    if (difference > saved) saved = difference, most_saved = &portion;
    if (-difference > lost) lost = -difference, most_lost = &portion;
  }
  const auto busiest = [](const std::vector<std::int64_t>& tx) {
    return format_bytes(static_cast<double>(*std::max_element(tx.begin(), tx.end())));
  };
  const double total = other.time_us.value - winner.time_us.value;
  if (!most_saved || total <= 0)
    return fmt::format("{} and {} take the same time: neither part of the layer differs.", winner.dispatcher,
                       other.dispatcher);
  std::string text = fmt::format("{} wins over {} by {}, most of it in {} ({} against {})", winner.dispatcher,
                                 other.dispatcher, format_us(total), most_saved->name,
                                 format_us(most_saved->us(winner.breakdown_us)),
                                 format_us(most_saved->us(other.breakdown_us)));
  if (most_saved->categories.front() == Category::dispatch)
    text += fmt::format(": its busiest rank sends {} where {}'s sends {}", busiest(winner.tx_bytes),
                        other.dispatcher, busiest(other.tx_bytes));
  if (most_saved->categories.back() == Category::straggler_wait || winner.overload.max > 1.05)
    text += fmt::format("; the busiest rank computes {:.2f} times its balanced share", winner.overload.max);
  if (most_lost && lost > 0.1 * saved)
    text += fmt::format("; it loses {} in {}", format_us(lost), most_lost->name);
  return text + ".";
}

// A dispatcher that does less (or more) work than was asked for is shown but not ranked.
std::string other_work(const Program& program, const models::Routing& routing, bool all_dispatchers) {
  if (program.forces_routing && routing.expert_skew() > 1.001)
    return "it forces its own balanced routing, not the one that was asked for";
  if (program.tokens_replicated)
    return "all ranks of its EP group process the same tokens: EP times the work per token";
  if (program.dropped_rows > 0 && all_dispatchers)
    return fmt::format("it drops {} rows", program.dropped_rows);
  return "";
}

void decide(LayerComparison& c) {
  const bool any = std::any_of(c.forecasts.begin(), c.forecasts.end(),
                               [](const DispatcherForecast& f) { return f.not_ranked.empty(); });
  std::vector<int> order;
  for (std::size_t i = 0; i < c.forecasts.size(); ++i)
    if (!any || c.forecasts[i].not_ranked.empty()) order.push_back(static_cast<int>(i));
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return c.forecasts[a].time_us.value < c.forecasts[b].time_us.value; });
  c.winner = order.front();
  if (order.size() > 1) {
    c.runner_up = order[1];
    const DispatcherForecast &w = c.forecasts[c.winner], &o = c.forecasts[c.runner_up];
    const double ratio = o.time_us.value / w.time_us.value;
    c.speedup = models::Estimate::exact(ratio);
    const std::size_t draws = w.draws_us.size();
    if (draws > 0) {
      std::vector<double> ratios(draws);
      double wins = 0;
      for (std::size_t d = 0; d < draws; ++d) {
        ratios[d] = o.draws_us[d] / w.draws_us[d];
        // Several that take the same time share the win.
        int as_fast = 0;
        bool fastest = true;
        for (const int i : order) {
          const DispatcherForecast& f = c.forecasts[i];
          if (f.draws_us[d] < w.draws_us[d]) fastest = false;
          if (f.draws_us[d] == w.draws_us[d]) ++as_fast;
        }
        if (fastest) wins += 1.0 / as_fast;
      }
      c.speedup = models::Estimate::from_samples(ratio, ratios);
      c.probability = wins / static_cast<double>(draws);
    }
  } else {
    c.speedup = models::Estimate::exact(1);
  }
  c.because = explain(c);
}

}  // namespace

struct ComparisonCosts::Prices {
  explicit Prices(const models::Cluster& cluster) : costs(cluster), options(layer_options(cluster)) {}
  models::LayerCosts costs;
  LayerOptions options;
};

ComparisonCosts::ComparisonCosts(const models::Cluster& cluster, std::uint64_t seed, int draws) {
  prices_.reserve(static_cast<std::size_t>(draws) + 1);
  prices_.emplace_back(cluster);
  if (draws == 0) return;
  models::Cluster drawn = cluster;
  for (int d = 0; d < draws; ++d) {
    Random random = Random::for_item(seed ^ kDrawStream, static_cast<std::uint64_t>(d));
    drawn.profile = cluster.profile.draw(random);
    prices_.emplace_back(drawn);
    prices_.back().options.breakdown = false;
  }
}

ComparisonCosts::~ComparisonCosts() = default;
ComparisonCosts::ComparisonCosts(ComparisonCosts&&) noexcept = default;
ComparisonCosts& ComparisonCosts::operator=(ComparisonCosts&&) noexcept = default;

LayerComparison compare_layer(Scenario scenario, const ComparisonOptions& options) {
  scenario.resolve();
  if (scenario.all_dispatchers) models::name_dispatchers(scenario);
  if (scenario.dispatchers.empty())
    throw InputError("scenario: found no dispatcher, expected \"dispatcher\" or --dispatcher");
  if (scenario.parallel.dispatch_ranks() > kMaxGroup)
    throw InputError(
        fmt::format("parallel: found a dispatch group of {} ranks (etp x ep), expected at most {}",
                    scenario.parallel.dispatch_ranks(), kMaxGroup));
  LayerComparison c;
  c.routing = routing_of(scenario, options.routings, c.warnings);
  if (scenario.placement.given()) {
    const auto ep = static_cast<int>(scenario.parallel.ep);
    c.routing = models::placed(c.routing, scenario.placement.make(c.routing, ep));
  }
  models::Architecture held = scenario.model;  // with every copy of an expert
  held.experts = c.routing.experts();
  const models::MoeLayer layer = moe_layer(scenario, c.routing);
  const double memory_limit = scenario.cluster->profile.device().memory_bytes;

  std::vector<Candidate> candidates;
  for (const models::DispatcherSpec& spec : scenario.dispatchers) {
    const std::unique_ptr<models::Dispatcher> dispatcher = models::make_dispatcher(spec);
    if (const auto rule = models::rule_against(*dispatcher, layer)) {
      if (!scenario.all_dispatchers)
        throw InputError(fmt::format("{}: dispatcher {}: {}", spec.origin, spec.text(), *rule));
      c.excluded.push_back({spec.text(), *rule});
      continue;
    }
    Program program = dispatcher->build(layer);
    Program dense = models::dense_program(dense_layer(scenario, c.routing, !program.runs_shared_expert));
    models::GroupShapes shapes(*scenario.cluster, dense);
    models::UnevenLoads loads(program, shapes), dense_loads(dense, shapes);
    candidates.push_back({spec.text(), std::move(program), std::move(dense), std::move(shapes),
                          std::move(loads), std::move(dense_loads)});
  }
  if (candidates.empty())
    throw InputError("compare: found no legal dispatcher, expected one; " + c.excluded.front().rule);

  std::optional<sim::Fabric> fabric;
  if (options.timing == sim::Timing::flow)
    fabric = cluster_fabric(*scenario.cluster);
  else if (has_own_fabric(*scenario.cluster))
    c.warnings.push_back(
        "the cluster's fabric is not seen by calibrated timing, which knows no contention; --timing flow "
        "does");
  std::optional<ComparisonCosts> own;
  if (!options.costs) own.emplace(*scenario.cluster, scenario.seed, options.draws);
  const std::vector<ComparisonCosts::Prices>& prices = options.costs ? options.costs->prices_ : own->prices_;
  check(prices.size() > static_cast<std::size_t>(options.draws), "prices of every draw");
  const models::LayerCosts& costs = prices.front().costs;
  // The layer stands on the dispatch group of the first GPUs.
  const std::optional<models::RankFaults> faults =
      faults_of_layer(scenario, candidates.front().program.ranks(), options.timing, c.warnings);
  const models::RankFaults* sick = faults ? &*faults : nullptr;
  const std::int64_t dense_saved = models::dense_saved_bytes(dense_layer(scenario, c.routing, true));
  for (Candidate& candidate : candidates) {
    DispatcherForecast f;
    LayerOptions nominal = prices.front().options;
    nominal.breakdown = options.breakdown;
    nominal.trace = options.trace ? &f.trace : nullptr;
    const PricedCandidate priced(candidate, costs, scenario.train, sick);
    const LayerTiming timing = time_priced(candidate, priced, costs, nominal);
    f.dispatcher = candidate.name;
    f.healthy_us = static_cast<double>(timing.total_ps) * 1e-6;
    if (sick) {
      LayerOptions bare = prices.front().options;
      bare.breakdown = false;
      f.healthy_us =
          static_cast<double>(time_candidate(candidate, costs, scenario.train, bare, nullptr).total_ps) *
          1e-6;
    }
    f.time_us = models::Estimate::exact(static_cast<double>(timing.total_ps) * 1e-6);
    for (std::size_t i = 0; i < sim::kCategories; ++i)
      f.breakdown_us[i] = static_cast<double>(timing.breakdown_ps[i]) * 1e-6;
    f.critical_rank = timing.critical_rank;
    f.tx_bytes = sent_bytes(candidate.program);
    f.host_syncs_forward = Program::host_syncs(candidate.program.forward());
    f.host_syncs_backward = Program::host_syncs(candidate.program.backward());
    models::MemoryPlan plan;
    plan.train = scenario.train;
    plan.sharding = scenario.training.sharding;
    plan.shard_group = scenario.training.shard_group;
    f.memory =
        models::forecast_memory(held, scenario.parallel, candidate.program, dense_saved, memory_limit, plan);
    if (options.trace) f.memory_over_time = memory_over_time(candidate, f, scenario.train);
    f.overload = models::overload_of({candidate.program.computed_rows, candidate.program.balanced_rows});
    for (const std::string& warning : candidate.program.warnings)
      c.warnings.push_back(candidate.name + ": " + warning);
    const models::DomainReport report = report_of(candidate, priced, costs);
    f.outside_domain = report.share();
    for (std::string& warning : report.lines())
      if (std::find(c.warnings.begin(), c.warnings.end(), warning) == c.warnings.end())
        c.warnings.push_back(std::move(warning));
    if (fabric) {
      const FlowTiming flow = time_on_network(candidate, costs, scenario, *fabric, c.warnings);
      f.network = {f.time_us.value, flow.groups, flow.busiest};
      f.time_us = models::Estimate::exact(static_cast<double>(flow.timing.total_ps) * 1e-6);
      for (std::size_t i = 0; i < sim::kCategories; ++i)
        f.breakdown_us[i] = static_cast<double>(flow.timing.breakdown_ps[i]) * 1e-6;
      f.critical_rank = flow.timing.critical_rank % candidate.program.ranks();
    }
    c.forecasts.push_back(std::move(f));
  }
  c.step_collectives = step_collectives(scenario, held.experts);
  for (int d = 0; d < options.draws; ++d) {
    const ComparisonCosts::Prices& drawn = prices[static_cast<std::size_t>(d) + 1];
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const LayerTiming timing =
          time_candidate(candidates[i], drawn.costs, scenario.train, drawn.options, sick);
      DispatcherForecast& f = c.forecasts[i];
      // What contention adds is taken to be the same share under every drawn profile.
      const double contention = fabric ? f.time_us.value / f.network.calibrated_us : 1.0;
      f.draws_us.push_back(static_cast<double>(timing.total_ps) * 1e-6 * contention);
    }
  }
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    DispatcherForecast& f = c.forecasts[i];
    if (!f.draws_us.empty()) f.time_us = models::Estimate::from_samples(f.time_us.value, f.draws_us);
    f.program = std::move(candidates[i].program);
    f.dense = std::move(candidates[i].dense);
    f.not_ranked = other_work(f.program, c.routing, scenario.all_dispatchers);
  }
  c.scenario = std::move(scenario);
  decide(c);
  return c;
}

}  // namespace moesim::replay
