#include "tests/bench/training_step.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "sim/graph/costs.h"
#include "sim/run/streaming.h"

namespace moesim::bench {

namespace {

using sim::Category;
using sim::CollectiveOp;
using sim::Point;
using sim::StreamId;
using sim::TaskKind;
using sim::Time;

// Plausible times of one H800 GPU (not fitted: this is a workload for the engine, the models have the real
// ones).
constexpr double kRowBytes = 7168 * 2;
constexpr double kAllToAllBandwidth = 40e9;  // bytes per second and rank
constexpr double kAllToAllLatency = 40e-6;
constexpr double kFlops = 4e14;
constexpr double kRowFlops = 6.0 * 7168 * 2048;  // of an expert's forward pass

// Each member ends when its own sends and receives are through.
class StepCosts : public sim::Costs {
 public:
  void price_works(std::span<const std::uint64_t>, std::span<Time>) const override {}

  void price_collective(const sim::CollectiveShape& shape, std::span<Time> out) const override {
    const std::size_t g = shape.members();
    sent_.assign(g, 0);
    received_.assign(g, 0);
    for (std::size_t from = 0; from < g; ++from) {
      const std::uint32_t* row = shape.traffic.rows.data() + from * g;
      std::uint32_t sum = 0;
      for (std::size_t to = 0; to < g; ++to) {
        sum += row[to];
        received_[to] += row[to];
      }
      sent_[from] = sum - row[from];
      received_[from] -= row[from];
    }
    const double bytes = static_cast<double>(shape.traffic.bytes);
    for (std::size_t i = 0; i < g; ++i)  // symmetric in sent and received: a transposed matrix costs the same
      out[i] = Time::from_seconds(kAllToAllLatency +
                                  std::max(sent_[i], received_[i]) * bytes / kAllToAllBandwidth);
  }

  sim::FlowPlan plan_collective(const sim::CollectiveShape&) const override { return {}; }

 private:
  mutable std::vector<std::uint32_t> sent_, received_;
};

// One expert-parallel group in one layer and microbatch: what it moves and computes.
struct Routed {
  std::vector<Time> all_to_all;  // by member
  std::vector<Time> expert;      // forward, by member
};

class Step {
 public:
  explicit Step(const StepShape& shape)
      : shape_(shape), per_stage_(shape.ranks / shape.stages), groups_(per_stage_ / shape.expert_parallel) {
    check(groups_ > 0 && shape.ranks == shape.stages * groups_ * shape.expert_parallel &&
              shape.experts % shape.expert_parallel == 0,
          "ranks are stages x groups x expert parallel ranks");
    for (std::uint32_t r = 0; r < shape.ranks; ++r) {
      const sim::RankId rank = run_.add_rank();
      compute_.push_back(run_.add_stream(rank, sim::StreamKind::compute));
      comm_.push_back(run_.add_stream(rank, sim::StreamKind::comm));
      for (auto* streams : {&send_, &receive_}) {
        streams[0].push_back(run_.add_stream(rank, sim::StreamKind::comm));
      }
    }
    last_.resize(shape.ranks);
    outputs_.assign(std::size_t{shape.stages} * shape.microbatches * 2, {});
    routed_.assign(std::size_t{shape.stages} * shape.microbatches, {});
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer)
      popularity_.push_back(draw_popularity(layer));
    members_.resize(shape.expert_parallel);
    ends_.resize(shape.expert_parallel);
    rows_.resize(std::size_t{shape.expert_parallel} * shape.expert_parallel);
  }

  StepResult run() {
    // 1F1B by stage; an operation is added once what it gets from its neighbour has been.
    std::vector<std::vector<Operation>> schedule;
    for (std::uint32_t stage = 0; stage < shape_.stages; ++stage) schedule.push_back(one_f_one_b(stage));
    std::vector<std::size_t> next(shape_.stages, 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (std::uint32_t stage = 0; stage < shape_.stages; ++stage) {
        while (next[stage] < schedule[stage].size() && ready(stage, schedule[stage][next[stage]])) {
          perform(stage, schedule[stage][next[stage]++]);
          progress = true;
        }
      }
    }
    for (std::uint32_t stage = 0; stage < shape_.stages; ++stage) {
      check(next[stage] == schedule[stage].size(), "the schedule can be performed");
      synchronise_gradients(stage);
    }
    StepResult result;
    result.tasks = run_.task_count();
    result.routing_matrices = matrices_;
    result.timeline = run_.finish();
    return result;
  }

 private:
  struct Operation {
    bool forward;
    std::uint32_t microbatch;
  };

  std::vector<Operation> one_f_one_b(std::uint32_t stage) const {
    std::vector<Operation> result;
    const std::uint32_t warm_up = std::min(shape_.microbatches, shape_.stages - stage - 1);
    std::uint32_t forward = 0, backward = 0;
    while (forward < warm_up) result.push_back({true, forward++});
    while (forward < shape_.microbatches) {
      result.push_back({true, forward++});
      result.push_back({false, backward++});
    }
    while (backward < shape_.microbatches) result.push_back({false, backward++});
    return result;
  }

  // What a stage has handed to its neighbour: the points of its ranks after a pass.
  std::vector<Point>& output(std::uint32_t stage, const Operation& op) {
    return outputs_[(std::size_t{stage} * shape_.microbatches + op.microbatch) * 2 + (op.forward ? 0 : 1)];
  }

  bool ready(std::uint32_t stage, const Operation& op) {
    if (op.forward ? stage == 0 : stage + 1 == shape_.stages) return true;
    return !output(op.forward ? stage - 1 : stage + 1, op).empty();
  }

  void perform(std::uint32_t stage, const Operation& op) {
    receive(stage, op);
    const std::uint32_t first = first_layer(stage), end = first_layer(stage + 1);
    auto& routed = routed_[std::size_t{stage} * shape_.microbatches + op.microbatch];
    if (op.forward) {
      for (std::uint32_t layer = first; layer < end; ++layer)
        for (std::uint32_t group = 0; group < groups_; ++group) {
          if (layer >= shape_.dense_layers) routed.push_back(route(stage, layer, op.microbatch, group));
          pass(stage, group, layer >= shape_.dense_layers ? &routed.back() : nullptr, true);
        }
    } else {
      std::size_t used = routed.size();
      for (std::uint32_t layer = end; layer-- > first;)
        for (std::uint32_t group = groups_; group-- > 0;)
          pass(stage, group, layer >= shape_.dense_layers ? &routed[--used] : nullptr, false);
      routed.clear();
      routed.shrink_to_fit();
    }
    if (op.forward ? stage + 1 < shape_.stages : stage > 0) {
      auto& points = output(stage, op);
      points.assign(last_.begin() + stage * per_stage_, last_.begin() + (stage + 1) * per_stage_);
    }
  }

  std::uint32_t first_layer(std::uint32_t stage) const { return stage * shape_.layers / shape_.stages; }

  void receive(std::uint32_t stage, const Operation& op) {
    if (op.forward ? stage == 0 : stage + 1 == shape_.stages) return;
    const std::uint32_t neighbour = op.forward ? stage - 1 : stage + 1;
    std::vector<Point>& sent = output(neighbour, op);
    const Time duration = Time::from_seconds(10e-6 + shape_.tokens * kRowBytes / 45e9);
    for (std::uint32_t i = 0; i < per_stage_; ++i) {
      const std::uint32_t to = stage * per_stage_ + i, from = neighbour * per_stage_ + i;
      const sim::StreamingRun::Member pair[] = {{send_[from], sent[i]}, {receive_[to], last_[to]}};
      Point ends[2];
      run_.add_collective(CollectiveOp::send_recv, pair, std::span(&duration, 1), Category::p2p, ends);
      last_[to] = ends[1];
    }
    sent.clear();
    sent.shrink_to_fit();
  }

  // One layer of one group, forward or backward (every part takes twice as long there).
  void pass(std::uint32_t stage, std::uint32_t group, const Routed* routed, bool forward) {
    const std::uint32_t first = stage * per_stage_ + group * shape_.expert_parallel;
    const std::int64_t times = forward ? 1 : 2;
    const auto compute = [&](Category category, Time work) {
      for (std::uint32_t i = 0; i < shape_.expert_parallel; ++i)
        last_[first + i] =
            run_.add(TaskKind::compute, compute_[first + i], work * times, category, last_[first + i]);
    };
    const auto all_to_all = [&](Category category) {
      for (std::uint32_t i = 0; i < shape_.expert_parallel; ++i)
        members_[i] = {comm_[first + i], last_[first + i]};
      run_.add_collective(CollectiveOp::all_to_all, members_, routed->all_to_all, category, ends_);
      std::copy(ends_.begin(), ends_.end(), last_.begin() + first);
    };
    static const Time kAttention = Time::from_us(2600), kDense = Time::from_us(3000),
                      kRouter = Time::from_us(60), kPermute = Time::from_us(250);
    if (routed == nullptr) {
      compute(Category::attention, kAttention);
      compute(Category::other, kDense);
      return;
    }
    if (forward) compute(Category::attention, kAttention);
    compute(forward ? Category::router : Category::unpermute, forward ? kRouter : kPermute);
    compute(Category::permute, kPermute);
    all_to_all(forward ? Category::dispatch : Category::combine);
    for (std::uint32_t i = 0; i < shape_.expert_parallel; ++i)
      last_[first + i] = run_.add(TaskKind::compute, compute_[first + i], routed->expert[i] * times,
                                  Category::expert, last_[first + i]);
    all_to_all(forward ? Category::combine : Category::dispatch);
    compute(forward ? Category::unpermute : Category::router, forward ? kPermute : kRouter);
    if (!forward) compute(Category::attention, kAttention);
  }

  std::vector<float> draw_popularity(std::uint32_t layer) const {
    Random random = Random::for_item(1, layer);
    std::vector<float> result(shape_.experts);
    double sum = 0;
    for (float& p : result) sum += p = static_cast<float>(random.gamma(2.0));
    for (float& p : result) p = static_cast<float>(p / sum * shape_.tokens * shape_.top_k);
    return result;
  }

  // Draws the rows of every rank of the group and prices what follows from them.
  Routed route(std::uint32_t stage, std::uint32_t layer, std::uint32_t microbatch, std::uint32_t group) {
    const std::uint32_t g = shape_.expert_parallel, per_rank = shape_.experts / g;
    const std::vector<float>& popularity = popularity_[layer];
    std::vector<std::uint32_t> received(g, 0);
    for (std::uint32_t from = 0; from < g; ++from) {
      const std::uint64_t rank = stage * per_stage_ + group * g + from;
      Random random = Random::for_item((std::uint64_t{layer} << 32) | microbatch, rank);
      std::uint64_t bits = 0;
      std::uint32_t expert = 0;
      for (std::uint32_t to = 0; to < g; ++to) {
        float rows = 0;
        for (std::uint32_t e = 0; e < per_rank; ++e, ++expert) {
          if (expert % 4 == 0) bits = random.next();
          rows += popularity[expert] * (0.5F + static_cast<float>(bits & 0xffff) * 0x1p-16F);
          bits >>= 16;
        }
        rows_[from * g + to] = static_cast<std::uint32_t>(rows);
        received[to] += static_cast<std::uint32_t>(rows);
      }
    }
    ++matrices_;
    Routed routed;
    routed.all_to_all.resize(g);
    const std::vector<sim::RankId> ranks(g);
    sim::Traffic traffic;
    traffic.kind = sim::Traffic::Kind::matrix;
    traffic.bytes = static_cast<std::uint64_t>(kRowBytes);
    traffic.rows = rows_;
    costs_.price_collective({CollectiveOp::all_to_all, ranks, traffic}, routed.all_to_all);
    for (const std::uint32_t rows : received)
      routed.expert.push_back(Time::from_seconds(30e-6 + rows * kRowFlops / kFlops));
    return routed;
  }

  void synchronise_gradients(std::uint32_t stage) {
    std::vector<sim::StreamingRun::Member> members;
    std::vector<Point> ends(per_stage_);
    const std::uint32_t first = stage * per_stage_;
    for (std::uint32_t i = 0; i < per_stage_; ++i) members.push_back({comm_[first + i], last_[first + i]});
    const Time reduce = Time::from_us(60000), gather = Time::from_us(30000);
    run_.add_collective(CollectiveOp::reduce_scatter, members, std::span(&reduce, 1), Category::grad_sync,
                        ends);
    for (std::uint32_t i = 0; i < per_stage_; ++i) {
      last_[first + i] =
          run_.add(TaskKind::compute, compute_[first + i], Time::from_us(8000), Category::optimizer, ends[i]);
      members[i].after = last_[first + i];
    }
    run_.add_collective(CollectiveOp::all_gather, members, std::span(&gather, 1), Category::grad_sync, ends);
  }

  StepShape shape_;
  std::uint32_t per_stage_;
  std::uint32_t groups_;
  sim::StreamingRun run_;
  StepCosts costs_;
  std::vector<StreamId> compute_, comm_, send_, receive_;  // by rank
  std::vector<Point> last_;                                // by rank: what its next task follows
  std::vector<std::vector<Point>> outputs_;  // by stage, microbatch and direction; empty when taken
  std::vector<std::vector<Routed>> routed_;  // by stage and microbatch, from its forward to its backward
  std::vector<std::vector<float>> popularity_;
  std::vector<sim::StreamingRun::Member> members_;
  std::vector<Point> ends_;
  std::vector<std::uint32_t> rows_;
  std::uint64_t matrices_ = 0;
};

}  // namespace

StepResult run_training_step(const StepShape& shape) { return Step(shape).run(); }

}  // namespace moesim::bench
