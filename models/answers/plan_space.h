// The plans that a search chooses from: every combination of parallel sizes with a value of each other axis.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/workload/scenario.h"

namespace moesim::models {

struct PlanSearchOptions;

// A point of the space: which parallel plan, which value of each axis.
struct PlanChoice {
  std::size_t parallel = 0;
  std::vector<std::size_t> values;
  friend auto operator<=>(const PlanChoice&, const PlanChoice&) = default;
};

class PlanSpace {
 public:
  // Of a field of the scenario: the values that it may take, the scenario's own alone where it is not
  // searched.
  struct Axis {
    std::string_view path;
    std::string_view name;  // for people: "dispatchers"
    std::vector<std::string> values;
  };

  // `scenario`: resolved but for its global batch, which may not divide its own plan.
  PlanSpace(const Scenario& scenario, const PlanSearchOptions& options);

  std::int64_t size() const;
  const std::vector<Parallel>& plans() const { return plans_; }
  const std::vector<Axis>& axes() const { return axes_; }
  const Parallel& parallel(const PlanChoice& choice) const { return plans_[choice.parallel]; }

  std::vector<PlanChoice> all() const;
  // Plans without what refines them (virtual stages, large microbatches, split experts), with the first value
  // of every axis.
  std::vector<PlanChoice> coarse() const;
  // The same with everything computed again, where that is searched: what needs least memory.
  bool recomputes() const;
  PlanChoice recomputed(PlanChoice choice) const;
  // Those that differ in one axis, or in one parallel size and what follows from it.
  std::vector<PlanChoice> neighbours(const PlanChoice& choice) const;
  // The choice that a scenario of another space comes nearest to here.
  PlanChoice nearest(const Scenario& other) const;

  // The scenario of a choice, not resolved.
  Scenario scenario(const PlanChoice& choice) const;
  // Which values of which axes the combinations are of.
  std::string text() const;

 private:
  Scenario base_;
  bool parallel_ = false;
  std::vector<Parallel> plans_;
  std::vector<Axis> axes_;
};

}  // namespace moesim::models
