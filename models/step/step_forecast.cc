#include "models/step/step_forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/input_error.h"
#include "base/random.h"
#include "models/step/step_faults.h"
#include "models/step/training_flops.h"

namespace moesim::models {

namespace {

using sim::Category;

constexpr std::uint64_t kDrawStream = 0x73746570;  // keeps draws of profiles apart from draws of routings
// Bytes that Adam moves per element of its shard: fp32 gradient, master weight and two moments in, the last
// three out, the bf16 weight out.
constexpr double kOptimizerTraffic = 4 + 3 * 4 + 3 * 4 + 2;

std::vector<const TimedPart*> pointers(const std::vector<TimedPart>& parts) {
  std::vector<const TimedPart*> all;
  for (const TimedPart& part : parts) all.push_back(&part);
  return all;
}

// The dispatcher's program of one MoE layer. Throws InputError where it is illegal.
MoeProgram build_moe(const Scenario& scenario, const DispatcherSpec& dispatcher) {
  const Architecture& a = scenario.model;
  const Parallel& p = scenario.parallel;
  const TrainingPlan& plan = scenario.training;
  const Cluster& cluster = *scenario.cluster;
  const std::unique_ptr<Dispatcher> made = make_dispatcher(dispatcher);
  Routing routing = make_routing(scenario.routing, static_cast<int>(p.dispatch_ranks()), p.tokens_per_rank(),
                                 static_cast<int>(a.experts), static_cast<int>(scenario.topk), scenario.seed);
  routing.set_group_limit(static_cast<int>(a.routing_groups), static_cast<int>(a.routing_topk_groups));
  MoeLayer layer;
  layer.hidden = a.expert_width();
  layer.expert_ffn = a.expert_ffn;
  layer.shared_ffn = a.shared_ffn;
  layer.gated = a.gated;
  layer.ep = static_cast<int>(p.ep);
  layer.etp = static_cast<int>(p.etp);
  layer.tp = static_cast<int>(p.tp);
  layer.cp = static_cast<int>(p.cp);
  layer.ranks_per_node = static_cast<int>(cluster.nvlink.domain);
  layer.router = scenario.router_dtype;
  layer.recompute = plan.recompute.moe          ? Recompute::kFull
                    : plan.recompute.activation ? Recompute::kActivation
                                                : Recompute::kNone;
  layer.routing = &routing;
  if (const auto rule = rule_against(*made, layer))
    throw InputError(fmt::format("{}: dispatcher {}: {}", dispatcher.origin, dispatcher.text(), *rule));
  Program program = made->build(layer);
  const std::vector<std::int32_t> ranks = models::dispatch_ranks(p, plan);
  GroupShapes shapes(cluster, program, ranks);
  UnevenLoads loads(program, shapes);
  return {std::move(program), std::move(shapes), std::move(loads), dispatcher.name};
}

// Times of one layer kind.
struct KindTimes {
  LayerKind kind;
  PassTime forward, backward, input_gradient, weight_gradient, overlapped;
  std::int64_t forward_network = 0, backward_network = 0;  // ps on the network between NVLink domains
};

// Times of everything that a stage may run.
struct StageTimes {
  std::vector<KindTimes> kinds;
  PassTime embedding_f, embedding_b, head_f, head_b;

  std::int64_t layers() const {
    std::int64_t sum = 0;
    for (const KindTimes& k : kinds) sum += k.forward.total_ps + k.backward.total_ps;
    return sum;
  }
};

}  // namespace

// Everything of one step on one profile.
struct StepForecaster::Priced {
  PipelineTiming timing;
  std::array<double, sim::kCategories> breakdown_us{};
  double exposed_us = 0;
  std::vector<Chunk> chunks;
  DomainReport domain;  // with a breakdown
};

StepForecaster::~StepForecaster() = default;

StepForecaster::StepForecaster(const Scenario& scenario, const DispatcherSpec& dispatcher)
    : scenario_(scenario), dispatcher_(dispatcher) {
  const Architecture& a = scenario_.model;
  const Parallel& p = scenario_.parallel;
  const TrainingPlan& plan = scenario_.training;
  if (plan.recompute.latent && a.attention.kind != Attention::Kind::kLatent)
    warnings_.push_back("recompute mla_up_proj: the model's attention has no latent projections");
  if (!plan.note.empty()) warnings_.push_back(plan.note);
  if (plan.overlap.expert_communication && p.pp > 1 && p.vpp == 1 && plan.pipeline == PipelineKind::k1F1B)
    warnings_.push_back(
        "expert communication under the other microbatch needs one more microbatch in flight without vpp > "
        "1");

  moe_ = std::make_unique<MoeProgram>(build_moe(scenario_, dispatcher_));
  for (const std::string& warning : moe_->program.warnings)
    warnings_.push_back(dispatcher_.text() + ": " + warning);

  constexpr std::int64_t kMostPasses = std::int64_t{1} << 24;  // a second of work, a gigabyte of schedule
  if (p.pp > kMostPasses || p.vpp > kMostPasses ||
      p.pp * p.vpp > kMostPasses / std::max<std::int64_t>(1, p.microbatches))
    throw InputError(
        fmt::format("parallel: found pp {} x vpp {} x {} microbatches, expected at most 2^24 passes", p.pp,
                    p.vpp, p.microbatches));
  shape_.stages = static_cast<int>(p.pp);
  shape_.virtual_stages = static_cast<int>(p.vpp);
  shape_.microbatches = static_cast<int>(p.microbatches);
  shape_.kind = plan.pipeline;
  shape_.overlapped = plan.overlap.expert_communication && p.dispatch_ranks() > 1;
  schedule_ = pipeline_schedule(shape_);
  stage_faults_ = faults_of_stages(scenario_, warnings_);
}

StepForecaster::Priced StepForecaster::price(const Cluster& cluster, bool breakdown, bool faults) const {
  const Architecture& a = scenario_.model;
  const Parallel& p = scenario_.parallel;
  const TrainingPlan& plan = scenario_.training;
  const LayerPricer pricer(a, p, plan, cluster, scenario_.topk, scenario_.router_dtype);
  PassOptions options;
  options.ranks = moe_->program.ranks();
  options.launch_ps = pricer.launch_ps();
  options.breakdown = breakdown;
  options.compute_slowdown = pricer.compute_slowdown(moe_.get());
  options.transfer_slowdown = cluster.profile.overlap().communication_under_compute;
  options.delayed_weight_gradients = plan.overlap.delayed_wgrad;
  PassOptions dense_options = options;
  dense_options.ranks = 1;

  const std::vector<LayerKind> stack = layer_stack(a);
  Priced priced;
  // Of one microbatch through all layers; what happens once a step counts for its share of it.
  DomainReport* const report = breakdown ? &priced.domain : nullptr;
  const double once = 1 / static_cast<double>(p.microbatches);
  const bool split = plan.pipeline != PipelineKind::k1F1B;
  const auto on = [&](const LayerParts& healthy, const RankFaults* sick, std::size_t salt) {
    if (!sick) return healthy;
    LayerParts parts;
    for (const auto& [from, to] :
         {std::pair{&healthy.forward, &parts.forward}, {&healthy.backward, &parts.backward}})
      for (const TimedPart& part : *from)
        to->push_back(with_faults(part, *sick, static_cast<int>(p.tp), (salt += 4096)));
    return parts;
  };
  const auto time_kind = [&](const LayerKind& kind, const LayerParts& parts, const PassOptions& o) {
    KindTimes times{kind, {}, {}, {}, {}, {}};
    const std::vector<const TimedPart*> f = pointers(parts.forward), b = pointers(parts.backward);
    times.forward = time_in_a_row(f, o);
    times.backward = time_in_a_row(b, o);
    times.forward_network = network_ps(f);
    times.backward_network = network_ps(b);
    if (split) {
      std::vector<TimedPart> without, only;
      for (const TimedPart& part : parts.backward) {
        without.push_back(without_weight_gradients(part));
        only.push_back(only_weight_gradients(part));
      }
      times.input_gradient = time_in_a_row(pointers(without), o);
      times.weight_gradient = time_in_a_row(pointers(only), o);
    }
    if (shape_.overlapped || plan.pipeline == PipelineKind::kDualPipe)
      times.overlapped = time_overlapped(f, b, o);
    return times;
  };
  std::vector<std::size_t> kind_of(stack.size());
  std::vector<LayerKind> distinct;
  std::vector<LayerParts> distinct_parts;
  for (std::size_t i = 0; i < stack.size(); ++i) {
    const auto found = std::find(distinct.begin(), distinct.end(), stack[i]);
    kind_of[i] = static_cast<std::size_t>(found - distinct.begin());
    if (found != distinct.end()) continue;
    distinct.push_back(stack[i]);
    const auto times = static_cast<double>(std::count(stack.begin(), stack.end(), stack[i]));
    distinct_parts.push_back(pricer.layer(stack[i], moe_.get(), report, times));
  }
  const LayerParts embedding = pricer.embedding(report), head = pricer.head(report);
  const auto times_on = [&](const RankFaults* sick) {
    StageTimes all;
    for (std::size_t k = 0; k < distinct.size(); ++k) {
      const bool ranks = sick || distinct[k].ffn == LayerKind::Ffn::kMoe;
      all.kinds.push_back(
          time_kind(distinct[k], on(distinct_parts[k], sick, k << 20), ranks ? options : dense_options));
    }
    const PassOptions& o = sick ? options : dense_options;
    const LayerParts e = on(embedding, sick, std::size_t{1} << 30), h = on(head, sick, std::size_t{1} << 31);
    all.embedding_f = time_in_a_row(pointers(e.forward), o),
    all.embedding_b = time_in_a_row(pointers(e.backward), o);
    all.head_f = time_in_a_row(pointers(h.forward), o), all.head_b = time_in_a_row(pointers(h.backward), o);
    return all;
  };
  const StageTimes healthy = times_on(nullptr);
  const std::vector<KindTimes>& kinds =
      healthy.kinds;  // chunks are cut and paired by kind, whatever the stage
  const PassTime &embedding_f = healthy.embedding_f, &embedding_b = healthy.embedding_b,
                 &head_f = healthy.head_f, &head_b = healthy.head_b;
  std::vector<std::optional<StageTimes>> sick_stages(static_cast<std::size_t>(p.pp));
  double network_factor = 1, nvlink_factor = 1;
  std::vector<std::pair<const RankFaults*, StageTimes>> known;  // equal faults take equal times
  for (std::size_t s = 0; faults && s < stage_faults_.size(); ++s)
    for (const RankFaults& group : stage_faults_[s]) {
      auto same = std::find_if(known.begin(), known.end(), [&](const auto& k) { return *k.first == group; });
      if (same == known.end()) same = known.insert(known.end(), {&group, times_on(&group)});
      if (!sick_stages[s] || same->second.layers() > sick_stages[s]->layers()) sick_stages[s] = same->second;
      for (const double f : group.network) network_factor = std::max(network_factor, f);
      for (const double f : group.nvlink) nvlink_factor = std::max(nvlink_factor, f);
    }
  // DualPipe's chunks stand on two stages: the slower one counts.
  const auto times_of_chunk = [&](std::size_t c) -> const StageTimes& {
    const auto stages = static_cast<std::size_t>(p.pp);
    const std::optional<StageTimes>& own = sick_stages[c % stages];
    const std::optional<StageTimes>& mirror = sick_stages[stages - 1 - c % stages];
    if (plan.pipeline == PipelineKind::kDualPipe && mirror && (!own || mirror->layers() > own->layers()))
      return *mirror;
    return own ? *own : healthy;
  };

  std::vector<double> weight;
  for (std::size_t i = 0; i < stack.size(); ++i) {
    const KindTimes& k = kinds[kind_of[i]];
    weight.push_back(static_cast<double>(k.forward.total_ps + k.backward.total_ps) +
                     (stack[i].mtp ? static_cast<double>(head_f.total_ps + head_b.total_ps) : 0));
  }
  priced.chunks =
      cut_into_chunks(a, p, weight, static_cast<double>(embedding_f.total_ps + embedding_b.total_ps),
                      static_cast<double>(head_f.total_ps + head_b.total_ps));
  const std::size_t chunks = priced.chunks.size();

  // Passes of chunks.
  std::vector<PassTime> forward(chunks), backward(chunks), input(chunks), weights(chunks);
  std::vector<std::int64_t> forward_network(chunks), backward_network(chunks);
  std::vector<std::vector<int>> counts(chunks, std::vector<int>(kinds.size(), 0));
  for (std::size_t c = 0; c < chunks; ++c) {
    const Chunk& chunk = priced.chunks[c];
    const StageTimes& stage = times_of_chunk(c);
    if (chunk.embedding)
      forward[c] += stage.embedding_f, backward[c] += stage.embedding_b, input[c] += stage.embedding_b;
    for (const LayerKind& kind : chunk.layers) {
      const auto found = std::find_if(stage.kinds.begin(), stage.kinds.end(),
                                      [&](const KindTimes& k) { return k.kind == kind; });
      ++counts[c][static_cast<std::size_t>(found - stage.kinds.begin())];
      forward[c] += found->forward;
      backward[c] += found->backward;
      input[c] += found->input_gradient;
      weights[c] += found->weight_gradient;
      forward_network[c] += found->forward_network;
      backward_network[c] += found->backward_network;
      if (kind.mtp) forward[c] += stage.head_f, backward[c] += stage.head_b, input[c] += stage.head_b;
    }
    if (chunk.head) forward[c] += stage.head_f, backward[c] += stage.head_b, input[c] += stage.head_b;
  }

  // Parameters and gradients.
  const GroupShape dense_group = GroupShape::strided(cluster, p.dp * p.cp, p.tp);
  const std::int64_t edp = std::max<std::int64_t>(1, p.edp());
  const GroupShape expert_group = GroupShape::strided(cluster, edp, p.etp * p.ep);
  const bool across = dense_group.across_domains() || expert_group.across_domains();
  const CollectiveModel& model = pricer.collectives();
  const auto transfer = [&](sim::CollectiveOp op, const GroupShape& shape, double bytes, double times) {
    const double seconds = model.seconds(op, shape, bytes);
    if (report) report->add(seconds * times, model.outside(op, shape, bytes));
    return seconds;
  };
  // In a pipeline, parameters stay gathered for all microbatches and gradients leave after the last one
  // (torchtitan).
  const bool fsdp =
      p.pp == 1 && (plan.sharding == ShardingScheme::kFsdp || plan.sharding == ShardingScheme::kHsdp);
  const auto times_of = [&](const StageParameters& n, double& gather, double& reduce) {
    const auto one = [&](const GroupShape& full, double parameters) {
      if (full.ranks == 1 || parameters == 0) return;
      GroupShape shard = full;
      double replicas = 1;
      const std::int64_t stride = &full == &dense_group ? p.tp : p.etp * p.ep;
      if (plan.sharding == ShardingScheme::kHsdp) {
        const std::int64_t size =
            std::min<std::int64_t>(full.ranks, plan.shard_group > 0 ? plan.shard_group : full.max_per_domain);
        if (size < full.ranks) {
          shard = GroupShape::strided(cluster, size, stride);
          replicas = static_cast<double>(full.ranks / size);
        }
      }
      const double bytes = parameters * static_cast<double>(plan.gradient_bytes);
      const auto ranks = static_cast<double>(shard.ranks);
      if (plan.sharding == ShardingScheme::kDdp) {
        reduce += transfer(sim::CollectiveOp::all_reduce, full, bytes, once);
        return;
      }
      const double times = fsdp ? 1 : once;
      gather += transfer(sim::CollectiveOp::all_gather, shard, parameters * kBf16Bytes / ranks, times);
      reduce += transfer(sim::CollectiveOp::reduce_scatter, shard, bytes / ranks, times);
      if (replicas > 1)
        reduce +=
            transfer(sim::CollectiveOp::all_reduce,
                     GroupShape::strided(cluster, static_cast<std::int64_t>(replicas), shard.ranks * stride),
                     bytes / ranks, once) /
            (fsdp ? static_cast<double>(p.microbatches) : 1);  // once a step
    };
    one(dense_group, n.dense);
    one(expert_group, n.experts);
    // Rings over the data-parallel ranks are as slow as their slowest link.
    gather *= across ? network_factor : nvlink_factor;
    reduce *= across ? network_factor : nvlink_factor;
  };

  PipelineTimes times;
  times.forward.resize(chunks), times.backward.resize(chunks);
  times.input_gradient.resize(chunks), times.weight_gradient.resize(chunks);
  times.parameters.assign(chunks, 0), times.gradients.assign(chunks, 0);
  times.optimizer.assign(static_cast<std::size_t>(p.pp), 0);
  times.pieces.assign(chunks, 1);
  times.forward_link.assign(chunks, 0), times.backward_link.assign(chunks, 0);
  times.gradients_overlap = plan.overlap.gradients;
  times.parameters_overlap = plan.overlap.parameters;
  const double memory =
      1 / (cluster.profile.device().hbm_bandwidth * cluster.profile.device().hbm_efficiency);
  for (std::size_t c = 0; c < chunks; ++c) {
    const StageParameters n = chunk_parameters(a, p, priced.chunks[c]);
    double gather = 0, reduce = 0;
    times_of(n, gather, reduce);
    if (fsdp) {
      // Gathered for every pass while the layer before computes; gradients leave while the next one does.
      // What does not hide is exposed: transfers over the network do not hide behind the pass's own.
      const auto hidden_behind = [&](PassTime& pass, double transfer, std::int64_t network) {
        const std::int64_t room = std::max<std::int64_t>(0, pass.total_ps - (across ? network : 0));
        const std::int64_t more = std::max<std::int64_t>(0, to_ps(transfer) - room);
        pass.total_ps += more;
        pass.exposed_ps += more;
        pass.breakdown_ps[static_cast<std::size_t>(Category::grad_sync)] += more;
      };
      hidden_behind(forward[c], gather, forward_network[c]);
      hidden_behind(backward[c], (plan.reshard_after_forward ? gather : 0) + reduce, backward_network[c]);
    } else {
      times.parameters[c] = to_ps(gather);
      times.gradients[c] = to_ps(reduce);
      times.pieces[c] = std::max(1, static_cast<int>(priced.chunks[c].layers.size()));
      if (across) times.forward_link[c] = forward_network[c], times.backward_link[c] = backward_network[c];
    }
    const double shard = plan.sharding == ShardingScheme::kDdp ? n.dense + n.experts
                                                               : n.dense / static_cast<double>(p.dp * p.cp) +
                                                                     n.experts / static_cast<double>(edp);
    // Adam, the norm of the gradients before it, and the zeroing of the gradient buffer.
    const double bytes = shard * (kOptimizerTraffic + 4) + (n.dense + n.experts) * (fsdp ? 0 : 4);
    const std::size_t stage = c % static_cast<std::size_t>(p.pp);
    times.optimizer[stage] += to_ps(bytes * memory);
    if (plan.pipeline == PipelineKind::kDualPipe)
      times.optimizer[static_cast<std::size_t>(p.pp) - 1 - stage] += to_ps(bytes * memory);
  }
  for (std::size_t c = 0; c < chunks; ++c) {
    times.forward[c] = forward[c].total_ps;
    times.backward[c] = backward[c].total_ps;
    times.input_gradient[c] = input[c].total_ps;
    times.weight_gradient[c] = weights[c].total_ps;
  }
  std::vector<PassTime> overlapped;
  if (shape_.overlapped || plan.pipeline == PipelineKind::kDualPipe) {
    overlapped.resize(chunks * chunks);
    times.overlapped.resize(chunks * chunks);
    for (std::size_t f = 0; f < chunks; ++f)
      for (std::size_t b = 0; b < chunks; ++b) {
        // Layers of one kind pair up; the rest runs alone.
        PassTime both = forward[f];
        both += backward[b];
        for (std::size_t k = 0; k < kinds.size(); ++k) {
          const int pairs = std::min(counts[f][k], counts[b][k]);
          if (pairs == 0) continue;
          const KindTimes &ahead = times_of_chunk(f).kinds[k], &back = times_of_chunk(b).kinds[k];
          PassTime saved = ahead.forward;
          saved += back.backward;
          both += saved.scaled(-pairs);
          both +=
              (ahead.overlapped.total_ps > back.overlapped.total_ps ? ahead : back).overlapped.scaled(pairs);
        }
        overlapped[f * chunks + b] = both;
        times.overlapped[f * chunks + b] = both.total_ps;
      }
  }
  if (p.pp > 1) {
    const GroupShape pair = GroupShape::strided(cluster, 2, p.world() / p.pp);
    const double bytes = static_cast<double>(p.tokens_per_rank() * a.hidden) * kBf16Bytes;
    const double sends = 2.0 * static_cast<double>(chunks - 1);  // of a microbatch: activations, gradients
    times.send = to_ps(transfer(sim::CollectiveOp::send_recv, pair, bytes, sends) *
                       (pair.across_domains() ? network_factor : nvlink_factor));
  }
  priced.timing = time_pipeline(shape_, schedule_, times);
  if (!breakdown) return priced;

  const auto stage = static_cast<std::size_t>(priced.timing.critical_stage);
  PassTime sum;
  for (const PipelineSlot& slot : schedule_[stage]) {
    const auto c = static_cast<std::size_t>(slot.chunk);
    switch (slot.kind) {
      case PipelineSlot::Kind::kForward:
        sum += forward[c];
        break;
      case PipelineSlot::Kind::kBackward:
        sum += backward[c];
        break;
      case PipelineSlot::Kind::kInputGradient:
        sum += input[c];
        break;
      case PipelineSlot::Kind::kWeightGradient:
        sum += weights[c];
        break;
      case PipelineSlot::Kind::kOverlapped:
        sum += overlapped[c * chunks + static_cast<std::size_t>(slot.back_chunk)];
        break;
    }
  }
  const StageTiming& t = priced.timing.stages[stage];
  const auto add = [&](Category category, std::int64_t ps) {
    priced.breakdown_us[static_cast<std::size_t>(category)] += static_cast<double>(ps) * 1e-6;
  };
  for (std::size_t i = 0; i < sim::kCategories; ++i) add(static_cast<Category>(i), sum.breakdown_ps[i]);
  add(Category::bubble, t.bubble);
  add(Category::p2p, t.sends);
  add(Category::grad_sync, t.gradients + t.parameters);
  add(Category::optimizer, t.optimizer);
  priced.exposed_us = static_cast<double>(sum.exposed_ps + t.sends + t.gradients + t.parameters) * 1e-6;
  return priced;
}

bool StepForecaster::fits() const {
  const Architecture& a = scenario_.model;
  const std::vector<double> even(layer_stack(a).size(), 1.0);
  const std::vector<Chunk> chunks = cut_into_chunks(a, scenario_.parallel, even, 0, 1);
  return step_memory(a, scenario_.parallel, scenario_.training, &moe_->program, chunks,
                     activations_in_flight(schedule_), scenario_.cluster->profile.device().memory_bytes)
      .fits;
}

double StepForecaster::seconds(const Cluster& cluster) const {
  return static_cast<double>(price(cluster, false).timing.total) * 1e-12;
}

LayerWork StepForecaster::layer_work(const LayerKind& kind, bool beside) const {
  const auto sum = [&](double conversions) {
    const LayerPricer pricer(scenario_.model, scenario_.parallel, scenario_.training, *scenario_.cluster,
                             scenario_.topk, scenario_.router_dtype, conversions);
    const LayerParts parts = pricer.layer(kind, moe_.get());
    LayerWork work;
    for (const std::vector<TimedPart>* pass : {&parts.forward, &parts.backward})
      for (const TimedPart& part : *pass)
        for (const TimedOp& op : part.ops) {
          if (op.kind == TimedOp::Kind::kHost || op.kind == TimedOp::Kind::kNothing) continue;
          const std::size_t ranks = op.step == 0 ? 1 : static_cast<std::size_t>(moe_->program.ranks());
          const auto first = part.ps.begin() + op.first;
          const double seconds =
              static_cast<double>(*std::max_element(first, first + static_cast<std::ptrdiff_t>(ranks))) *
              1e-12;
          if (op.work == Work::kProduct) work.products += seconds;
          if (op.work == Work::kAttentionCore) work.attention += seconds;
          if (op.work == Work::kKernel) work.kernels += seconds;
          if (op.work == Work::kTransfer && op.category == Category::dispatch) work.dispatch += seconds;
          if (op.work == Work::kTransfer && op.category == Category::combine) work.combine += seconds;
        }
    return work;
  };
  LayerWork work = sum(0);
  work.conversions = sum(1).products - work.products;
  if (!beside) return work;
  const LayerPricer pricer(scenario_.model, scenario_.parallel, scenario_.training, *scenario_.cluster,
                           scenario_.topk, scenario_.router_dtype);
  const double computing = pricer.compute_slowdown(moe_.get());
  const double transferring = scenario_.cluster->profile.overlap().communication_under_compute;
  for (double LayerWork::*part :
       {&LayerWork::products, &LayerWork::conversions, &LayerWork::attention, &LayerWork::kernels})
    work.*part *= computing;
  work.dispatch *= transferring;
  work.combine *= transferring;
  return work;
}

std::string StepForecaster::recompute_that_fits(const std::vector<Chunk>& chunks) const {
  // In the order of what they cost to compute again.
  for (const char* name : {"layernorm", "moe_act", "layernorm+moe_act", "layernorm+moe_act+mla_up_proj",
                           "core_attn+layernorm+moe_act", "core_attn+layernorm+moe", "full"}) {
    Scenario other = scenario_;
    const StepRecompute more = StepRecompute::parse(name);
    if (more.latent && other.model.attention.kind != Attention::Kind::kLatent) continue;
    other.training.recompute = more;
    const MoeProgram program = build_moe(other, dispatcher_);
    if (step_memory(other.model, other.parallel, other.training, &program.program, chunks,
                    activations_in_flight(schedule_), other.cluster->profile.device().memory_bytes)
            .fits)
      return name;
  }
  return "";
}

StepForecast StepForecaster::forecast(int draws) const {
  const Priced priced = price(*scenario_.cluster, true);
  const Parallel& p = scenario_.parallel;
  StepForecast f;
  f.dispatcher = dispatcher_.text();
  const double seconds = static_cast<double>(priced.timing.total) * 1e-12;
  f.time_us = Estimate::exact(seconds * 1e6);
  f.healthy_us = stage_faults_.empty()
                     ? f.time_us.value
                     : static_cast<double>(price(*scenario_.cluster, false, false).timing.total) * 1e-6;
  f.goodput = goodput(scenario_.faults, scenario_.parallel.world(), seconds);
  f.breakdown_us = priced.breakdown_us;
  f.bubble_us = priced.breakdown_us[static_cast<std::size_t>(Category::bubble)];
  f.exposed_comm_us = priced.exposed_us;
  f.critical_stage = priced.timing.critical_stage;
  f.gpus = p.world();
  f.tokens = static_cast<double>(p.dp * p.microbatches * p.micro_batch) * static_cast<double>(p.seq);
  f.tokens_per_s_per_gpu = f.tokens / seconds / static_cast<double>(f.gpus);
  f.tflops_per_gpu =
      f.tokens_per_s_per_gpu * training_flops_per_token(scenario_.model, p.seq, scenario_.topk) * 1e-12;
  f.mfu = f.tflops_per_gpu * 1e12 /
          scenario_.cluster->profile.device().peak_flops[static_cast<std::size_t>(DType::kBf16)];
  f.memory = step_memory(scenario_.model, p, scenario_.training, &moe_->program, priced.chunks,
                         activations_in_flight(schedule_), scenario_.cluster->profile.device().memory_bytes);
  if (!f.memory.fits) f.memory.recompute_that_fits = recompute_that_fits(priced.chunks);
  f.warnings = warnings_;
  const std::vector<std::string> outside = priced.domain.lines();
  f.warnings.insert(f.warnings.end(), outside.begin(), outside.end());
  f.outside_domain = priced.domain.share();
  if (scenario_.routing.kind == RoutingSpec::Kind::kFile)
    f.warnings.push_back("routing: every layer and microbatch has the file's routing");
  if (draws > 0) {
    Cluster drawn = *scenario_.cluster;
    for (int d = 0; d < draws; ++d) {
      Random random = Random::for_item(scenario_.seed ^ kDrawStream, static_cast<std::uint64_t>(d));
      drawn.profile = scenario_.cluster->profile.draw(random);
      f.draws_us.push_back(this->seconds(drawn) * 1e6);
    }
    const Estimate measured = Estimate::from_samples(f.time_us.value, f.draws_us);
    // The two sources of doubt are independent.
    const auto widened = [&](double bound, double sign) {
      const double own = std::log(bound / f.time_us.value);
      return f.time_us.value * std::exp(sign * std::hypot(own, 1.645 * kStepSigma));
    };
    f.time_us.low = widened(measured.low, -1);
    f.time_us.high = widened(measured.high, 1);
  }
  return f;
}

}  // namespace moesim::models
