#include "replay/run/model_pricing.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/input_error.h"
#include "base/units.h"
#include "models/costs/cluster_costs.h"
#include "models/hardware/cluster_fabric.h"
#include "replay/recording/recorded_routing.h"
#include "replay/run/iteration.h"

namespace moesim::replay {

// Without a fabric every transfer is priced on first use, and the graph identifies its price by a number.
class ModelPricing::Costs final : public models::ClusterCosts {
 public:
  Costs(const models::Cluster& cluster, bool flows) : ClusterCosts(cluster), flows_(flows) {}
  std::vector<double> ask(const sim::CollectiveShape& shape) const {
    std::vector<sim::Time> times(shape.members());
    ClusterCosts::price_collective(shape, times);
    std::vector<double> us;
    for (const sim::Time time : times) us.push_back(time.us());
    return us;
  }
  void price_collective(const sim::CollectiveShape& shape, std::span<sim::Time> out) const override {
    if (flows_) return ClusterCosts::price_collective(shape, out);
    const std::vector<double>& us = prices_us.at(shape.traffic.price);
    for (std::size_t m = 0; m < out.size(); ++m) out[m] = sim::Time::from_us(us[m]);
  }
  std::vector<std::vector<double>> prices_us;  // by number, for every member

 private:
  bool flows_;
};

struct ModelPricing::State {
  State(const models::Cluster& on, const CleanJob& clean, const Effects& added, const sim::Fabric* links)
      : cluster(on), job(clean), effects(added), fabric(links), costs(on, links != nullptr) {}

  // The key of a transfer.
  struct Key {
    sim::CollectiveOp op;
    std::vector<int> members;
    std::vector<std::int64_t> rows, out_rows;
    std::uint64_t row_bytes;
    std::vector<double> modelled_us;
    double added_us;
    bool fused;

    friend auto operator<=>(const Key&, const Key&) = default;
  };

  struct Shape {
    std::vector<sim::RankId> ranks;
    std::vector<std::uint32_t> rows;  // of an exchange between experts
    sim::CollectiveShape shape;       // views the two
  };

  // Returns rows from every member to every member of a dispatch; a combine is its transpose.
  std::vector<std::uint32_t> split_matrix(const Instance& instance,
                                          const std::vector<std::int64_t>& received) const {
    const auto members = static_cast<std::int64_t>(instance.members.size());
    if (job.routing) {
      std::vector<std::uint32_t> rows;
      for (const std::int64_t between : job.routing->split_matrix(static_cast<int>(members)))
        rows.push_back(static_cast<std::uint32_t>(between));
      return rows;
    }
    std::int64_t total = 0;
    for (const std::int64_t rows : received) total += rows;
    // Equal token counts, the recorder's fixed sequence length.
    std::vector<std::int64_t> sent(instance.members.size(), total / members);
    for (std::int64_t left = total % members, r = 0; r < left; ++r) ++sent[static_cast<std::size_t>(r)];
    return recover_split_matrix(sent, received);
  }

  std::unique_ptr<Shape> shape_of(const Instance& instance) const {
    auto made = std::make_unique<Shape>();
    const auto bytes = static_cast<std::uint64_t>(instance.rows.front()) * instance.row_bytes;
    const auto members = static_cast<std::uint64_t>(instance.members.size());
    for (const int rank : instance.members) made->ranks.emplace_back(static_cast<std::uint32_t>(rank));
    made->shape = {instance.op, made->ranks, {}};
    sim::Traffic& traffic = made->shape.traffic;
    traffic.bytes = instance.op == sim::CollectiveOp::reduce_scatter ? bytes / members : bytes;
    if (instance.op != sim::CollectiveOp::all_to_all || instance.group != GroupKind::expert) return made;
    std::vector<std::int64_t> received;
    for (const int rank : instance.members) {
      const Coordinates at = job.topology.of(rank);
      received.push_back(job.places.at({at.pp, at.tp, at.expert}).received_rows);
    }
    made->rows = split_matrix(instance, received);
    traffic.kind = sim::Traffic::Kind::matrix;
    traffic.transposed = instance.rows == received;
    traffic.bytes = instance.row_bytes;
    traffic.rows = made->rows;
    return made;
  }

  // `us`: of every member.
  sim::TrafficRef priced(sim::TrafficRef traffic, std::vector<double> us, double added_us) {
    for (double& member : us) member += added_us;
    costs.prices_us.push_back(std::move(us));
    return traffic.priced(static_cast<std::uint32_t>(costs.prices_us.size() - 1));
  }

  // Stages of one node in a pipeline that spans nodes: slower than two ranks alone in the profile.
  void limit_channels(const Instance& instance, std::vector<double>& us) const {
    constexpr double kBothDirections = 1.6;  // of a fused call over one direction
    if (instance.op != sim::CollectiveOp::send_recv || us.empty()) return;
    const std::vector<int> stages = job.topology.group(GroupKind::pp, instance.members.front());
    const auto domain = [&](int rank) { return cluster.domain_of(rank); };
    if (domain(stages.front()) == domain(stages.back()) ||
        domain(instance.members.front()) != domain(instance.members.back()))
      return;
    const double bytes = static_cast<double>(instance.rows.front()) * static_cast<double>(instance.row_bytes);
    const double limited =
        bytes * (instance.fused ? kBothDirections : 1) / (effects[EffectKind::pipeline_bandwidth] * 1e3);
    for (double& member : us) member = std::max(member, limited);
  }

  // Returns the traffic of a call; `made` is null for one priced by a model.
  sim::TrafficRef moved(const Instance& instance, const Shape* made, sim::TaskGraphBuilder& builder) {
    return made ? flowing(instance, made, builder) : bytes.of(instance, builder);
  }

  // `made` is null for a call priced by a model.
  sim::TrafficRef flowing(const Instance& instance, const Shape* made, sim::TaskGraphBuilder& builder) const {
    if (!made) {
      // Zero stands for a transfer that was hidden in the recording.
      if (std::ranges::all_of(instance.modelled_us, [](double us) { return us == 0; }))
        return sim::uniform_traffic(0);
      throw InputError(
          "found timing flow with another dispatcher or other sizes, whose calls a model has priced, "
          "expected "
          "the recorded ones");
    }
    const sim::Traffic& traffic = made->shape.traffic;
    if (traffic.kind == sim::Traffic::Kind::uniform) return sim::uniform_traffic(traffic.bytes);
    return sim::matrix_traffic(builder.add_matrix(instance.members.size(), made->rows), traffic.bytes,
                               traffic.transposed);
  }

  models::Cluster cluster;
  const CleanJob& job;
  const Effects& effects;
  const sim::Fabric* fabric;
  Costs costs;
  InstanceTraffic bytes;
  struct Known {
    sim::TrafficRef traffic;
    double us = 0;  // of all members of an instance together, by the profile
    std::optional<models::OutsideDomain> outside;
    int instances = 0;
  };
  std::map<Key, Known> known;
};

ModelPricing::ModelPricing(const models::Cluster& cluster, const CleanJob& job, const Effects& effects,
                           const sim::Fabric* fabric)
    : state_(std::make_unique<State>(cluster, job, effects, fabric)) {}
ModelPricing::~ModelPricing() = default;

const sim::Costs& ModelPricing::costs() const { return state_->costs; }

sim::TrafficRef ModelPricing::traffic(const Instance& instance, std::size_t, sim::TaskGraphBuilder& builder) {
  State::Key key{instance.op,
                 instance.members,
                 instance.rows,
                 instance.out_rows,
                 instance.row_bytes,
                 instance.modelled_us,
                 added_call_us(state_->effects, instance),
                 instance.fused};
  if (const auto at = state_->known.find(key); at != state_->known.end()) {
    ++at->second.instances;
    return at->second.traffic;
  }
  State::Known made;
  made.instances = 1;
  const auto shape = instance.modelled_us.empty() ? state_->shape_of(instance) : nullptr;
  std::vector<double> us = shape ? state_->costs.ask(shape->shape) : instance.modelled_us;
  state_->limit_channels(instance, us);
  if (shape) {
    made.us = std::accumulate(us.begin(), us.end(), 0.0);
    made.outside = state_->costs.outside(shape->shape);
  }
  made.traffic = state_->fabric ? state_->flowing(instance, shape.get(), builder)
                                : state_->priced(state_->moved(instance, shape.get(), builder), std::move(us),
                                                 key.added_us);
  return state_->known.emplace(std::move(key), std::move(made)).first->second.traffic;
}

models::DomainReport ModelPricing::domain(double gpu_us) const {
  models::DomainReport report;
  for (const auto& [key, known] : state_->known) {
    if (!known.outside) continue;
    const double us = known.us * known.instances;
    report.add(us / kUsPerSecond, known.outside);
    gpu_us -= us;
  }
  report.add(std::max(0.0, gpu_us) / kUsPerSecond, std::nullopt);
  return report;
}

double ModelPricing::launch_us(const Instance& instance) const {
  return state_->fabric ? added_call_us(state_->effects, instance) : 0;
}

sim::RunOptions ModelPricing::run_options() const {
  sim::RunOptions options;
  if (!state_->fabric) return options;
  options.timing = sim::Timing::flow;
  options.fabric = state_->fabric;
  const Topology& topology = state_->job.topology;
  options.flow_window = models::flow_window(std::int64_t{topology.world()} * topology.expert);
  return options;
}

double added_call_us(const Effects& effects, const Instance& instance) {
  if (instance.fused) return effects[EffectKind::fused_p2p];
  // In forward the host launches one call after another onto an idle GPU, except after the experts.
  if (!instance.inside_step || instance.step != StepKind::forward || instance.after_experts) return 0;
  if (instance.op == sim::CollectiveOp::all_gather) return effects[EffectKind::exposed_gather];
  if (instance.op == sim::CollectiveOp::all_to_all) return effects[EffectKind::exposed_exchange];
  return 0;
}

}  // namespace moesim::replay
