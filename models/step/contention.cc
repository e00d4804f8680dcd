#include "models/step/contention.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "models/step/step_passes.h"
#include "sim/run/lockstep_graph.h"

namespace moesim::models {

namespace {

sim::TrafficRef traffic_of(sim::TaskGraphBuilder& b, const Program& program, const std::vector<Op>& ops,
                           std::size_t i, int group) {
  const Op& op = ops[i];
  const auto g = static_cast<std::size_t>(program.group_size(op.group));
  const bool piece_is_out = op.comm == CommKind::kReduceScatter || op.comm == CommKind::kReduceScatterV;
  const auto bytes_of = [&](std::size_t member) {
    return static_cast<std::uint64_t>(program.value(
        piece_is_out ? op.out : op.in, program.rank_of(op.group, group, static_cast<int>(member))));
  };
  if (op.comm == CommKind::kAllToAllV) {
    std::int64_t row_bytes = op.row_bytes;
    for (std::size_t next = i + 1; next < ops.size() && ops[next].fused && ops[next].matrix == op.matrix;
         ++next)
      row_bytes += ops[next].row_bytes;
    return sim::matrix_traffic(b.add_matrix(g, program.matrix(op.matrix, group)),
                               static_cast<std::uint64_t>(row_bytes), op.transposed);
  }
  if (op.comm == CommKind::kAllGatherV || op.comm == CommKind::kReduceScatterV) {
    std::vector<std::uint64_t> pieces(g);
    for (std::size_t m = 0; m < g; ++m) pieces[m] = bytes_of(m);
    return sim::pieces_traffic(b.add_pieces(pieces));
  }
  return sim::uniform_traffic(bytes_of(0));
}

}  // namespace

sim::TaskGraph layer_graph(const Program& program, const std::vector<Op>& ops, sim::LockstepProgram priced,
                           std::int64_t launch_ps, std::span<const std::vector<std::int32_t>> groups) {
  sim::LockstepGraph::Options options{{launch_ps, {}}, {}, nullptr};
  for (const std::vector<std::int32_t>& gpus : groups)
    options.gpus.insert(options.gpus.end(), gpus.begin(), gpus.end());
  options.collective = [&](sim::TaskGraphBuilder& b, std::size_t i, std::size_t group) {
    const Op& op = ops[i];
    const int own = static_cast<int>(group) % program.group_count(op.group);
    return sim::LockstepGraph::Collective{simulated(op.comm), traffic_of(b, program, ops, i, own)};
  };
  // Members outside of the dispatch group are not in the graph.
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (ops[i].kind == OpKind::kCollective && program.ranks() % program.group_size(ops[i].group) != 0 &&
        priced.ops[i].kind == sim::LockstepOp::Kind::transfer)
      priced.ops[i].kind = sim::LockstepOp::Kind::compute;
  sim::LockstepGraph written(static_cast<std::size_t>(program.ranks()), std::move(options));
  const sim::LockstepChain chain{&priced};
  written.run({&chain, 1}, sim::one_by_one(chain),
              [&](std::size_t, std::size_t, std::size_t op) { return ops[op].name; });
  return written.finalize();
}

namespace {

using sim::CollectiveId;
using sim::Timeline;

sim::RankId rank_of(std::int32_t gpu) { return sim::RankId(static_cast<std::uint32_t>(gpu)); }

// Collectives that all start at once, each on its own streams.
class AtOnce {
 public:
  explicit AtOnce(std::int64_t gpus) {
    b_.add_ranks(static_cast<std::size_t>(gpus));
    label_ = b_.add_label("at once", sim::Category::other);
  }

  CollectiveId add(sim::CollectiveOp op, std::span<const sim::RankId> ranks, const sim::TrafficRef& traffic) {
    const CollectiveId id = b_.add_collective(op, b_.add_group(ranks), traffic, label_);
    for (std::size_t m = 0; m < ranks.size(); ++m)
      b_.add_member(b_.add_stream(ranks[m], sim::StreamKind::comm), id, static_cast<std::uint32_t>(m));
    return id;
  }

  CollectiveId add(sim::CollectiveOp op, const std::vector<std::int32_t>& gpus, double bytes) {
    std::vector<sim::RankId> ranks;
    ranks.reserve(gpus.size());
    for (const std::int32_t gpu : gpus) ranks.push_back(rank_of(gpu));
    return add(op, ranks, sim::uniform_traffic(static_cast<std::uint64_t>(bytes)));
  }

  // Adds a collective of another graph.
  CollectiveId add(const sim::CollectiveShape& shape) {
    const sim::Traffic& traffic = shape.traffic;
    switch (traffic.kind) {
      case sim::Traffic::Kind::pieces:
        return add(shape.op, shape.ranks, sim::pieces_traffic(b_.add_pieces(traffic.pieces)));
      case sim::Traffic::Kind::matrix:
        return add(shape.op, shape.ranks,
                   sim::matrix_traffic(b_.add_matrix(shape.members(), traffic.rows), traffic.bytes,
                                       traffic.transposed));
      case sim::Traffic::Kind::uniform:
        break;
    }
    return add(shape.op, shape.ranks, sim::uniform_traffic(traffic.bytes));
  }

  sim::TaskGraph finish() { return b_.finalize(); }

 private:
  sim::TaskGraphBuilder b_;
  sim::LabelId label_;
};

// Returns the time from the arrival of the last member to the end of the last one.
double seconds_of(const sim::TaskGraph& graph, const Timeline& timeline, CollectiveId id) {
  std::int64_t end = 0;
  for (const sim::TaskId task : graph.members(id)) end = std::max(end, timeline.end(task).ps());
  return static_cast<double>(end - timeline.begin(id).ps()) * 1e-12;
}

double at_least_one(double contended, double alone) {
  return alone > 0 ? std::max(1.0, contended / alone) : 1;
}

}  // namespace

Contention::Contention(const Scenario& scenario, const LayerPrograms& programs, const ProgramPricer& pricer,
                       const sim::Fabric& fabric)
    : s_(scenario),
      programs_(programs),
      pricer_(pricer),
      fabric_(fabric),
      router_(std::make_unique<sim::Router>(fabric)),
      costs_(*scenario.cluster) {
  // A limited number of the job's dispatch groups, including the one of the programs.
  groups_ = {programs.where().gpus};
  for (std::int64_t stage = 0; stage < s_.parallel.pp; ++stage)
    for (std::vector<std::int32_t>& gpus : programs.placement().dispatch_groups(stage))
      if ((groups_.size() + 1) * gpus.size() <= kMostFlowRanks && gpus != groups_.front())
        groups_.push_back(std::move(gpus));
  const UnevenLoads none(programs.after(), programs.shapes());
  const auto both = [&](const Program& program, const UnevenLoads& loads) {
    follow(program, loads, true);
    if (s_.train) follow(program, loads, false);
  };
  both(programs.embedding(), none);
  for (std::size_t kind = 0; kind < programs.kinds().size(); ++kind) both(programs.before(kind), none);
  both(programs.first()->program, programs.first()->loads);
  both(programs.after(), none);
  both(programs.head(), none);
}

sim::RunOptions Contention::on_fabric(std::int64_t messages) const {
  sim::RunOptions options;
  options.timing = sim::Timing::flow;
  options.fabric = &fabric_;
  options.flow_window = flow_window(messages);
  options.router = router_.get();
  return options;
}

std::pair<const Program*, bool> Contention::key_of(const Program& program, bool forward) const {
  const LayerPrograms& p = programs_;
  bool dense = &program == &p.embedding() || &program == &p.after() || &program == &p.head();
  for (std::size_t kind = 0; kind < p.kinds().size(); ++kind) dense = dense || &program == &p.before(kind);
  return {dense ? &program : nullptr, forward};
}

void Contention::follow(const Program& program, const UnevenLoads& loads, bool forward) {
  const std::vector<Op>& ops = forward ? program.forward() : program.backward();
  if (std::none_of(ops.begin(), ops.end(), [](const Op& op) { return op.kind == OpKind::kCollective; }))
    return;
  const sim::LockstepProgram priced = pricer_.price(program, ops, programs_.shapes(), loads);
  const sim::TaskGraph graph = layer_graph(program, ops, priced, pricer_.launch_ps(), groups_);
  if (graph.collective_count() == 0) return;
  const auto ranks = static_cast<std::int64_t>(program.ranks());
  const Timeline alone = sim::run(graph, costs_);
  const Timeline together =
      sim::run(graph, costs_, on_fabric(static_cast<std::int64_t>(groups_.size()) * ranks * ranks));
  struct Longest {
    double alone = 0, together = 0;
  };
  std::map<std::string, Longest> longest;  // by operation
  for (std::uint32_t i = 0; i < graph.collective_count(); ++i) {
    Longest& one = longest[graph.label(graph.label_of(CollectiveId(i))).name];
    one.alone = std::max(one.alone, seconds_of(graph, alone, CollectiveId(i)));
    one.together = std::max(one.together, seconds_of(graph, together, CollectiveId(i)));
  }
  Factors& factors = factors_[key_of(program, forward)];
  for (const auto& [op, seconds] : longest) factors[op] = at_least_one(seconds.together, seconds.alone);
  if (const LinkLoad link = busiest_link(together, fabric_); link.bytes > busiest_.bytes) busiest_ = link;
}

void Contention::slow(const Program& program, bool forward, sim::LockstepProgram& priced) const {
  const auto of_pass = factors_.find(key_of(program, forward));
  if (of_pass == factors_.end()) return;
  const std::vector<Op>& ops = forward ? program.forward() : program.backward();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != OpKind::kCollective) continue;
    const auto factor = of_pass->second.find(ops[i].name);
    if (factor == of_pass->second.end() || factor->second == 1) continue;
    const sim::LockstepOp& op = priced.ops[i];
    const std::size_t ranks = op.step == 0 ? 1 : static_cast<std::size_t>(program.ranks());
    for (std::size_t r = 0; r < ranks; ++r) {
      std::int64_t& ps = priced.ps[op.first + op.step * r];
      if (ps <= 0) continue;
      const double slower = static_cast<double>(ps) * factor->second;
      if (!(slower * 1e-12 <= kLongestSeconds)) refuse_price(slower * 1e-12);
      ps = std::llround(slower);
    }
  }
}

double Contention::of_replicas(sim::CollectiveOp op, const Placement::Members& members, double bytes) const {
  const auto [at, added] =
      replicas_.try_emplace({op, members.replicas, members.size, members.across, bytes}, 1);
  if (!added) return at->second;
  AtOnce all(s_.cluster->ranks());
  std::size_t ranks = 0;
  for (const std::vector<std::int32_t>& gpus : programs_.placement().groups_of(members)) {
    ranks += gpus.size();
    if (ranks > kMostFlowRanks && ranks > gpus.size()) break;
    all.add(op, gpus, bytes);
  }
  const sim::TaskGraph graph = all.finish();
  return at->second = at_least_one(
             sim::run(graph, costs_, on_fabric(static_cast<std::int64_t>(ranks))).iteration().seconds(),
             sim::run(graph, costs_).iteration().seconds());
}

double Contention::of_stages(std::int64_t from, std::int64_t to, double bytes) const {
  if (stages_.empty()) follow_stages(bytes);
  const auto at = stages_.find({from, to});
  return at == stages_.end() ? 1 : at->second;
}

void Contention::follow_stages(double bytes) const {
  const Parallel& p = s_.parallel;
  using Pair = std::pair<std::int64_t, std::int64_t>;
  std::vector<Pair> pairs;
  for (std::int64_t from = 0; from + 1 < p.pp; ++from) pairs.emplace_back(from, from + 1);
  if (p.vpp > 1 && p.pp > 1) pairs.emplace_back(p.pp - 1, 0);
  // In DualPipe, microbatches go both ways.
  const int ways = s_.training.pipeline == PipelineKind::kDualPipe ? 2 : 1;
  // Seconds of the longest send of each pair of stages, activations there and gradients back.
  const auto longest = [&](AtOnce all, const std::optional<sim::RunOptions>& options) {
    std::map<Pair, std::vector<CollectiveId>> sends;
    std::size_t ranks = 0;
    for (const Pair& pair : pairs)
      for (const std::vector<std::int32_t>& gpus :
           programs_.placement().all_pipeline_pairs(pair.first, pair.second)) {
        // At least one of each pair of stages.
        if (++ranks > kMostFlowRanks && !sends[pair].empty()) break;
        for (int way = 0; way < ways; ++way) {
          sends[pair].push_back(all.add(sim::CollectiveOp::send_recv, gpus, bytes));
          sends[pair].push_back(all.add(sim::CollectiveOp::send_recv, std::vector{gpus[1], gpus[0]}, bytes));
        }
      }
    const sim::TaskGraph graph = all.finish();
    const Timeline timeline = sim::run(graph, costs_, options.value_or(sim::RunOptions{}));
    std::map<Pair, double> seconds;
    for (const auto& [pair, ids] : sends)
      for (const CollectiveId id : ids)
        seconds[pair] = std::max(seconds[pair], seconds_of(graph, timeline, id));
    return seconds;
  };
  const std::int64_t world = s_.cluster->ranks();
  const auto alone = longest(AtOnce(world), std::nullopt);
  const auto together = longest(AtOnce(world), on_fabric(2 * ways * p.world()));
  auto beside = together;
  double share = 0;
  if (const auto exchange = longest_exchange()) {
    AtOnce all(world);
    for (const sim::CollectiveShape& shape : exchange->shapes) all.add(shape);
    const auto ranks = static_cast<std::int64_t>(programs_.ranks());
    beside = longest(std::move(all), on_fabric(static_cast<std::int64_t>(groups_.size()) * ranks * ranks));
    share = exchange->share;
  }
  // A send meets an exchange with the probability that the network is busy with exchanges.
  for (const Pair& pair : pairs)
    stages_[pair] = at_least_one((1 - share) * together.at(pair) + share * beside.at(pair), alone.at(pair));
}

std::optional<Contention::Exchange> Contention::longest_exchange() const {
  const Program& program = programs_.first()->program;
  const sim::LockstepProgram priced =
      pricer_.price(program, program.forward(), programs_.shapes(), programs_.first()->loads);
  Exchange exchange{layer_graph(program, program.forward(), priced, pricer_.launch_ps(), groups_), {}, 0};
  const Timeline alone = sim::run(exchange.graph, costs_);
  std::string name;
  double longest = 0;
  const auto each = [&](const auto& what) {
    for (std::uint32_t i = 0; i < exchange.graph.collective_count(); ++i)
      what(CollectiveId(i), exchange.graph.label(exchange.graph.label_of(CollectiveId(i))).name);
  };
  each([&](CollectiveId id, const std::string& op) {
    if (std::none_of(program.forward().begin(), program.forward().end(),
                     [&](const Op& one) { return one.name == op && leaves_domain(one, programs_.shapes()); }))
      return;
    if (const double seconds = seconds_of(exchange.graph, alone, id); seconds > longest)
      longest = seconds, name = op;
  });
  if (longest == 0) return std::nullopt;
  each([&](CollectiveId id, const std::string& op) {
    if (op == name) exchange.shapes.push_back(exchange.graph.shape(id));
  });
  const std::vector<Chunk> none;
  StepPasses::Options options;
  options.chunks = &none;
  const JobRouting routing(s_);
  StepPasses passes(programs_, routing, pricer_, options);
  for (std::size_t kind = 0; kind < programs_.kinds().size(); ++kind) {
    if (programs_.kinds()[kind].ffn != LayerKind::Ffn::kMoe) continue;
    const auto forward = static_cast<double>(passes.layer_times(kind, 0, 0).forward) / 2;
    exchange.share = std::min(
        1.0, static_cast<double>(network_ps(priced, program.forward(), programs_.shapes())) / forward);
  }
  return exchange;
}

}  // namespace moesim::models
