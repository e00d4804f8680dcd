// The programs of a job's layers under one dispatcher, and the shapes of their groups: everything independent
// of prices.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/costs/group_shapes.h"
#include "models/dispatchers/dispatcher.h"
#include "models/programs/layer_program.h"
#include "models/routing/expert_placement.h"
#include "models/routing/routing_cache.h"
#include "models/workload/placement.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// A dispatcher's program for the routing of one layer and microbatch.
struct MoeProgram {
  Program program;
  UnevenLoads loads;
};

// The routing of every MoE layer and microbatch of a job.
class JobRouting {
 public:
  // `scenario` is resolved and must outlive this. `cache`: of drawn routings; null: its own.
  explicit JobRouting(const Scenario& scenario, RoutingCache* cache = nullptr);

  // Returns the routing of the `ordinal`-th MoE layer (from 0), with experts placed as the scenario asks.
  Routing of(int ordinal, int microbatch) const { return of(ordinal, microbatch, nullptr); }
  // Returns the rows per expert of the `ordinal`-th MoE layer at the last assignment of experts: those of the
  // step's first microbatch.
  std::vector<std::int64_t> load(int ordinal) const;
  // Whether all layers and microbatches share one routing.
  bool shared() const;
  // Whether a file says the routing of each microbatch.
  bool measured() const { return s_.routing.kind == RoutingSpec::Kind::kFile; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  Routing of(int ordinal, int microbatch, std::vector<std::string>* warnings) const;

  Routing drawn(int ordinal, int microbatch, std::vector<std::string>* warnings) const;

  const Scenario& s_;
  RoutingCache* cache_;
  std::vector<std::string> warnings_;
  mutable RoutingCache own_;
  mutable std::map<int, ExpertPlacement> placements_;  // by ordinal, created on first use
};

// The programs that are the same for all dispatchers, created on first use and shared by a comparison's
// dispatchers. Not thread-safe.
class DensePrograms {
 public:
  // `tokens`: the maximum over ranks; `experts`: slots, with every copy of an expert.
  DensePrograms(const Scenario& scenario, std::int64_t tokens, std::int64_t experts);
  DensePrograms(const DensePrograms&) = delete;
  DensePrograms& operator=(const DensePrograms&) = delete;

  // `shared_expert`: the shared expert runs here and not in the dispatcher's program.
  const Program& before(const LayerKind& kind, bool shared_expert) const;
  const Program& after(bool shared_expert) const;
  const Program& embedding() const;
  const Program& head() const;

 private:
  const LayerContext& context(bool shared_expert) const;

  Architecture model_;
  mutable LayerContext context_;
  struct Before {
    LayerKind kind;
    bool shared_expert;
    std::unique_ptr<Program> program;
  };
  mutable std::vector<Before> before_;
  mutable std::unique_ptr<Program> after_[2], embedding_, head_;
};

class LayerPrograms {
 public:
  // Builds the programs on the dispatch groups of one class of the placement. Throws InputError naming the
  // rule where the dispatcher is illegal for the plan. `scenario`, `routing` and `placement` must outlive
  // this. `dense`: null: created here.
  LayerPrograms(const Scenario& scenario, const DispatcherSpec& dispatcher, const JobRouting& routing,
                const Placement& placement, const Placement::DispatchClass& where,
                std::shared_ptr<const DensePrograms> dense = nullptr);

  // The distinct kinds of layer of the model, in order of appearance, and the kind of each layer.
  const std::vector<LayerKind>& kinds() const { return kinds_; }
  std::span<const std::size_t> kind_of_layer() const { return kind_of_layer_; }
  // Returns the number of layers with experts before this one.
  int ordinal(std::size_t layer) const { return ordinals_[layer]; }

  const Program& before(std::size_t kind) const { return dense_->before(kinds_[kind], shared_expert_); }
  const Program& after() const { return dense_->after(shared_expert_); }
  const Program& embedding() const { return dense_->embedding(); }
  const Program& head() const { return dense_->head(); }
  const std::shared_ptr<const DensePrograms>& dense() const { return dense_; }
  // The program of the first microbatch of the first MoE layer, which stands for all where the routing is
  // shared.
  const std::shared_ptr<const MoeProgram>& first() const { return first_; }
  MoeProgram moe(int ordinal, int microbatch) const;

  const GroupShapes& shapes() const { return *shapes_; }
  int ranks() const { return static_cast<int>(scenario_.parallel.dispatch_ranks()); }
  int experts() const { return experts_; }  // with every copy
  // Whether nothing of the routed experts is trained, but their programs compute gradients of weights.
  bool frozen_experts() const {
    const Lora& lora = scenario_.training.lora;
    return lora.rank > 0 && lora.modules != Lora::Modules::kExperts;
  }
  const Placement& placement() const { return placement_; }
  const Placement::DispatchClass& where() const { return where_; }
  const std::string& dispatcher() const { return text_; }

 private:
  const Scenario& scenario_;
  const JobRouting& routing_;
  const Placement& placement_;
  const Placement::DispatchClass& where_;
  std::string text_;
  std::unique_ptr<Dispatcher> made_;
  std::vector<LayerKind> kinds_;
  std::vector<std::size_t> kind_of_layer_;
  std::vector<int> ordinals_;
  std::shared_ptr<const DensePrograms> dense_;
  bool shared_expert_ = true;
  bool balances_ = false;  // experts are assigned by their load
  int experts_ = 0;
  std::shared_ptr<const GroupShapes> shapes_;
  std::shared_ptr<const MoeProgram> first_;
};

// Returns the programs of every class of dispatch groups that a dispatcher may meet: one for equal groups.
std::vector<std::unique_ptr<LayerPrograms>> programs_of_classes(
    const Scenario& scenario, const DispatcherSpec& dispatcher, const JobRouting& routing,
    const Placement& placement, std::shared_ptr<const DensePrograms> dense = nullptr);

// Returns the rule that forbids a dispatcher (with its options) on the first MoE layer of a scenario, on any
// of its dispatch groups; nullopt where it is legal.
std::optional<std::string> rule_against(const Scenario& scenario, const DispatcherSpec& dispatcher,
                                        const JobRouting& routing, const Placement& placement);

}  // namespace moesim::models
