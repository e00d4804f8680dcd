#include "models/workload/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "models/hardware/cluster.h"
#include "models/workload/scenario.h"

namespace moesim::models {

namespace {

bool price_alike(const GroupShape& a, const GroupShape& b) {
  return a.ranks == b.ranks && a.domains == b.domains && a.max_per_domain == b.max_per_domain &&
         a.min_per_domain == b.min_per_domain && a.max_per_node == b.max_per_node && a.nodes == b.nodes &&
         a.pair_bandwidth == b.pair_bandwidth;
}

// Omits the remainder of an incomplete block.
Placement::Groups split(const Placement::Groups& replicas, const Placement::Members& members) {
  Placement::Groups groups;
  for (const std::vector<std::int32_t>& all : replicas) {
    const auto ranks = static_cast<std::int64_t>(all.size());
    if (!members.across) {
      for (auto begin = all.begin(); all.end() - begin >= members.size; begin += members.size)
        groups.emplace_back(begin, begin + members.size);
      continue;
    }
    for (std::int64_t first = 0; first < members.size; ++first) {
      groups.emplace_back();
      for (std::int64_t i = first; i < ranks / members.size * members.size; i += members.size)
        groups.back().push_back(all[static_cast<std::size_t>(i)]);
    }
  }
  return groups;
}

}  // namespace

Placement::Placement(const Scenario& scenario)
    : Placement(scenario.parallel, scenario.training.unfolded, *scenario.cluster,
                scenario.training.stages_inside) {}

Placement::Placement(const Parallel& p, bool unfolded, const Cluster& cluster, bool stages_inside)
    : parallel_(p),
      cluster_(&cluster),
      stages_inside_(stages_inside),
      period_(std::lcm(cluster.nvlink.domain, cluster.gpus_per_node)) {
  // EP wider than data parallelism includes context-parallel ranks: its groups are then consecutive. The
  // expert axis of a mesh lies outside of tp, as EP did before parallel folding.
  const bool apart = (unfolded && p.etp == p.tp && p.dp % p.ep == 0) || p.mesh_ep > 1;
  for (std::int64_t e = 0; e < p.ep; ++e)
    for (std::int64_t t = 0; t < p.etp; ++t)
      dispatch_.push_back(static_cast<std::int32_t>(t + e * (apart ? p.tp * p.cp : p.etp)));
  find_classes();
  find_context_pair();
}

std::int32_t Placement::gpu(std::int64_t stage, std::int64_t rank) const {
  if (!stages_inside_) return static_cast<std::int32_t>(stage * stage_ranks() + rank);
  const std::int64_t block = parallel_.tp * parallel_.cp;
  return static_cast<std::int32_t>(rank % block + block * (stage + parallel_.pp * (rank / block)));
}

Placement::Groups Placement::dispatch_groups(std::int64_t stage) const {
  const Parallel& p = parallel_;
  const auto ranks = static_cast<std::int64_t>(dispatch_.size());
  // Groups are consecutive, or, where EP lies inside data parallelism, interleave over TP and CP.
  const bool apart = dispatch_.back() - dispatch_.front() != ranks - 1;
  const std::int64_t span = apart ? p.tp * p.cp * p.ep : ranks;
  const std::int64_t shifts = apart ? p.tp * p.cp : p.etp;
  Groups groups;
  for (std::int64_t begin = 0; begin + span <= stage_ranks(); begin += span)
    for (std::int64_t shift = 0; shift < shifts; shift += p.etp) {
      std::vector<std::int32_t> gpus;
      for (const std::int32_t r : dispatch_) gpus.push_back(gpu(stage, begin + shift + r));
      groups.push_back(std::move(gpus));
    }
  return groups;
}

int Placement::DispatchClass::block() const {
  const std::vector<std::int32_t>& at = shape.domain_of;
  if (shape.max_per_domain != shape.min_per_domain) return 0;
  for (std::size_t i = 0; i < at.size(); ++i)
    if (at[i] != static_cast<std::int32_t>(i) / shape.max_per_domain) return 0;
  return shape.max_per_domain;
}

int Placement::DispatchClass::block_in_node() const {
  const int size = shape.max_per_node;
  return block() > size && shape.nodes * size == shape.ranks && block() % size == 0 ? size : 0;
}

void Placement::find_classes() {
  std::map<std::int64_t, std::size_t> known;  // by place
  for (std::int64_t stage = 0; stage < parallel_.pp; ++stage)
    for (std::vector<std::int32_t>& gpus : dispatch_groups(stage)) {
      const auto [at, added] = known.try_emplace(place_of(gpus.front()), 0);
      if (added) {
        GroupShape shape = GroupShape::of(*cluster_, gpus);
        const auto alike = std::find_if(classes_.begin(), classes_.end(), [&](const DispatchClass& c) {
          return c.shape.domain_of == shape.domain_of && price_alike(c.shape, shape);
        });
        at->second = static_cast<std::size_t>(alike - classes_.begin());
        if (alike == classes_.end()) classes_.push_back({std::move(gpus), std::move(shape), 0});
      }
      ++classes_[at->second].groups;
    }
  Groups blocks;
  std::set<std::int64_t> places;
  for (std::int64_t begin = 0; begin < parallel_.world(); begin += parallel_.tp) {
    if (!places.insert(place_of(begin)).second) break;  // from here on they repeat
    blocks.emplace_back();
    for (std::int64_t t = 0; t < parallel_.tp; ++t)
      blocks.back().push_back(static_cast<std::int32_t>(begin + t));
  }
  tensor_ = classes_of(blocks);
}

void Placement::find_context_pair() {
  const std::int64_t tp = parallel_.tp, cp = parallel_.cp;
  context_pair_ = GroupShape::strided(*cluster_, cp > 1 ? 2 : 1, tp);
  std::set<std::int64_t> places;
  for (std::int64_t begin = 0; cp > 1 && begin < parallel_.world(); begin += tp * cp) {
    if (!places.insert(place_of(begin)).second) return;
    for (std::int64_t i = 0; i < cp; ++i)
      for (const std::int64_t t : {std::int64_t{0}, tp - 1}) {
        const std::int64_t a = begin + i * tp + t, b = begin + (i + 1) % cp * tp + t;
        if (cluster_->domain_of(a) == cluster_->domain_of(b)) continue;
        const std::vector<std::int32_t> pair{static_cast<std::int32_t>(a), static_cast<std::int32_t>(b)};
        context_pair_ = GroupShape::of(*cluster_, pair);
        return;
      }
  }
}

Placement::Shapes Placement::classes_of(const Groups& groups) const {
  Shapes shapes;
  for (const std::vector<std::int32_t>& gpus : groups) {
    GroupShape shape = GroupShape::of(*cluster_, gpus);
    if (std::none_of(shapes.begin(), shapes.end(),
                     [&](const GroupShape& known) { return price_alike(known, shape); }))
      shapes.push_back(std::move(shape));
  }
  return shapes;
}

bool Placement::Replicas::across_domains() const {
  return std::any_of(all.begin(), all.end(), [](const GroupShape& shape) { return shape.across_domains(); });
}

Placement::Groups Placement::dense_groups(bool one_of_each) const {
  const std::int64_t stride = parallel_.tp * parallel_.mesh_ep;
  Groups groups;
  std::set<std::int64_t> places;
  for (std::int64_t stage = 0; stage < parallel_.pp; ++stage)
    for (std::int64_t t = 0; t < stride; ++t) {
      if (one_of_each && !places.insert(place_of(gpu(stage, t))).second) continue;
      groups.emplace_back();
      for (std::int64_t i = 0; i < parallel_.data_ranks(); ++i)
        groups.back().push_back(gpu(stage, t + i * stride));
    }
  return groups;
}

Placement::Groups Placement::expert_groups(bool one_of_each) const {
  Groups groups;
  std::set<std::int64_t> places;
  for (std::int64_t stage = 0; stage < parallel_.pp; ++stage) {
    const Groups dispatch = dispatch_groups(stage);
    for (std::size_t m = 0; m < dispatch_.size(); ++m) {
      if (one_of_each && !places.insert(place_of(dispatch.front()[m])).second) continue;
      groups.emplace_back();
      for (const std::vector<std::int32_t>& gpus : dispatch) groups.back().push_back(gpus[m]);
    }
  }
  return groups;
}

const Placement::Replicas& Placement::dense_replicas() const {
  if (dense_) return *dense_;
  Replicas r;
  r.ranks = parallel_.data_ranks();
  r.groups = dense_groups(true);
  r.all = classes_of(r.groups);
  dense_ = std::move(r);
  return *dense_;
}

const Placement::Replicas& Placement::expert_replicas() const {
  if (parallel_.mesh_ep > 1) return dense_replicas();  // a mesh has one data-parallel group for all weights
  if (experts_) return *experts_;
  Replicas r;
  r.groups = expert_groups(true);
  r.ranks = static_cast<std::int64_t>(r.groups.front().size());
  r.all = classes_of(r.groups);
  experts_ = std::move(r);
  return *experts_;
}

Placement::Groups Placement::one_of_each_place(Groups groups) const {
  std::set<std::int64_t> places;
  std::erase_if(groups, [&](const std::vector<std::int32_t>& group) {
    return !places.insert(place_of(group.front())).second;
  });
  return groups;
}

Placement::Shapes Placement::shapes_of(const Members& members) const {
  if (!members.across && members.size >= members.replicas->ranks) return members.replicas->all;
  return classes_of(one_of_each_place(split(members.replicas->groups, members)));
}

Placement::Groups Placement::groups_of(const Members& members) const {
  return split(members.replicas == &dense_replicas() ? dense_groups(false) : expert_groups(false), members);
}

std::vector<std::int64_t> Placement::ranks_with_own_place(std::int64_t stage) const {
  std::vector<std::int64_t> ranks;
  std::set<std::int64_t> places;
  for (std::int64_t r = 0; r < stage_ranks() && static_cast<std::int64_t>(places.size()) < period_; ++r)
    if (places.insert(place_of(gpu(stage, r))).second) ranks.push_back(r);
  return ranks;
}

const Placement::Shapes& Placement::pipeline_pairs(std::int64_t from, std::int64_t to) const {
  const auto [at, added] = pairs_.try_emplace({from, to});
  if (!added) return at->second;
  Groups pairs;
  for (const std::int64_t r : ranks_with_own_place(from)) pairs.push_back({gpu(from, r), gpu(to, r)});
  return at->second = classes_of(pairs);
}

Placement::Groups Placement::all_pipeline_pairs(std::int64_t from, std::int64_t to) const {
  Groups pairs;
  for (std::int64_t r = 0; r < stage_ranks(); ++r) pairs.push_back({gpu(from, r), gpu(to, r)});
  return pairs;
}

Placement::Shapes Placement::pipelines() const {
  Groups groups;
  for (const std::int64_t r : ranks_with_own_place(0)) {
    groups.emplace_back();
    for (std::int64_t stage = 0; stage < parallel_.pp; ++stage) groups.back().push_back(gpu(stage, r));
  }
  return classes_of(groups);
}

std::vector<std::string> Placement::notes() const {
  std::vector<std::string> notes;
  const auto domain = [&] { return fmt::format("NVLink domains of {} GPUs", cluster_->nvlink.domain); };
  std::int64_t groups = 0, straddling = 0;
  for (const DispatchClass& c : classes_) {
    groups += c.groups;
    // Plans intend whole domains, or equal parts of several.
    if (c.block() == 0 || (classes_.size() > 1 && c.shape.across_domains())) straddling += c.groups;
  }
  if (straddling > 0)
    notes.push_back(fmt::format("placement: {} of {} dispatch groups of {} ranks straddle {}; {}", straddling,
                                groups, dispatch_.size(), domain(),
                                straddling < groups ? "the slowest group counts" : "none fills whole ones"));
  const auto within = [](const GroupShape& shape) { return !shape.across_domains(); };
  if (tensor_.size() > 1 && std::any_of(tensor_.begin(), tensor_.end(), within))
    notes.push_back(fmt::format("placement: some tensor-parallel groups of {} ranks straddle {}; they count",
                                parallel_.tp, domain()));
  return notes;
}

}  // namespace moesim::models
