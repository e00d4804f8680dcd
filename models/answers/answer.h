// The answer to a scenario: what every dispatcher takes, of a layer or of a whole step, how sure that is, and
// which one wins.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/answers/anchor.h"
#include "models/answers/breakdown_parts.h"
#include "models/answers/decision.h"
#include "models/answers/fitting_change.h"
#include "models/routing/overload.h"
#include "models/routing/routing_cache.h"
#include "models/step/forecast.h"
#include "models/step/jitter.h"
#include "models/step/layer_programs.h"
#include "models/step/parameter_collectives.h"
#include "models/step/step_overload.h"
#include "models/workload/scenario.h"

namespace moesim::models {

class PriceCache;

// One dispatcher, answered.
struct Answer : Forecast {
  Answer() = default;
  explicit Answer(Forecast forecast) : Forecast(std::move(forecast)) {}

  std::string dispatcher;  // as asked for, with options
  std::string error;       // why there is no forecast; then the rest is empty
  Bar bar = Bar::kNone;    // why it cannot be chosen

  StepQuantiles step_time;  // of a step: how it varies from one to the next
  double mfu = 0;           // of the dense bf16 peak (fp8 runs too, so that plans compare)
  double cost = 0;          // of the time on its GPUs; 0 without prices

  StepOverload overload;  // of all layers and microbatches; at scope layer of the one
  std::vector<std::int64_t>
      tx_bytes;  // per rank of the dispatch group, of one MoE layer forward and backward
  int host_syncs_forward = 0, host_syncs_backward = 0;  // of one MoE layer
  std::int64_t dropped_rows = 0;                        // of one MoE layer, over the dispatch group

  std::shared_ptr<const MoeProgram> moe;  // the dispatcher's program of the first MoE layer
  // Of a step on its first stage: meshes whose weights one kernel can update, and kernels that Adam launches.
  std::int64_t optimizer_meshes = 0, optimizer_launches = 0;
  std::string
      hang;  // how ranks come to wait for each other (rule F of docs/spec.md 2.11); empty: they do not

  // Of a dispatcher that balances, for the first MoE layer's first microbatch: what its transfers of weights
  // or gradients take, what the layer without balancing takes longer than the rest of it, and the tokens of a
  // rank and microbatch from which on it is worth them: both in proportion, 0 where nothing is saved.
  struct Balance {
    double paid_us = 0, saved_us = 0, break_even_tokens = 0;
    double busiest_before = 1, busiest = 1;  // rows of the busiest rank in balanced shares
  };
  std::optional<Balance> balance;

  struct MemorySample {
    double time_us = 0;
    MemoryPoint point;
  };
  std::vector<MemorySample> memory_over_time;  // on request: of the layer, on the fullest rank

  bool ok() const { return error.empty(); }
  bool ranked() const { return ok() && bar == Bar::kNone; }
  const Program& program() const { return moe->program; }
  std::vector<std::string> unmeasured_parts() const;
  bool unmeasured_exchange() const;    // of its dispatch or combine kernel there is no measurement here
  bool exchange_without_rows() const;  // of its dispatch or combine kernel there is no measurement anywhere
  double cost_per_million_tokens() const { return cost / tokens * 1e6; }
};

// A collective of parameters, gradients or the optimizer on one pipeline stage, per training step.
struct StepCollective {
  ParameterCollective what;
  double time_us = 0;  // of all its calls, one after the other and alone
};

struct Comparison {
  std::shared_ptr<const Scenario> scenario;  // resolved
  Routing routing;                           // of the first MoE layer's first microbatch
  std::vector<Answer> answers;  // in the order asked for; an illegal one beside others has an error
  std::vector<std::pair<std::string, std::string>> excluded;  // of "all": dispatcher, rule
  std::vector<StepCollective> step_collectives;  // where the scenario says how parameters are sharded
  Decision decision;
  std::optional<Anchor> anchor;  // where times were measured
  // Settings whose default differs between frameworks and that the order of the answers may hang on, a
  // sentence each: what was taken, whose it is.
  std::vector<std::string> defaults;
  std::optional<FittingChange> fitting;  // where nothing fits, and on request: of the winner's dispatcher
  std::vector<std::string> warnings;

  // The answer that is recommended, and that of the shortest forecast; null where there is no forecast.
  const Answer* winner() const { return at(decision.winner); }
  const Answer* shortest() const { return at(decision.shortest); }

 private:
  const Answer* at(int index) const {
    return index < 0 ? nullptr : &answers[static_cast<std::size_t>(index)];
  }
};

inline constexpr int kMostDraws = 10'000;  // of AnswerOptions; about 35 kB each

struct AnswerOptions {
  int draws = 48;  // of the profile, for intervals and the winner's probability; 0: none, low = high = value
  bool breakdown = true;
  bool flow = false;     // all groups of the job at once on the cluster's fabric
  bool trace = false;    // when operations and slots ran, and memory over time
  bool suggest = false;  // where nothing fits, search for the cheapest change that makes it fit
  bool each = false;     // an illegal dispatcher beside others is an answer with its error
  double tolerance = Decision::kTolerance;
  // Times of a run of this scenario, which makes the comparison's anchor, or the anchor of another
  // comparison. Where either is given there are as many draws as it takes.
  std::vector<Measured> measured = {};
  const Anchor* anchor = nullptr;
  std::string without = {};          // publication whose steps count as not known (step_sigma)
  PriceCache* prices = nullptr;      // null: made for this answer
  RoutingCache* routings = nullptr;  // null: drawn for this answer
};

// Throws InputError for a scenario that does not fit together, and when no dispatcher is legal. A routing
// file is opened (RoutingSpec::file).
Comparison answer(Scenario scenario, const AnswerOptions& options = {});

// Adds the warnings that are not there yet.
void add_new(std::vector<std::string>& warnings, const std::vector<std::string>& more);

// The difference of two times under the same draws, b - a, and their ratio b / a.
Estimate difference_us(const Forecast& a, const Forecast& b);
Estimate ratio(const Forecast& a, const Forecast& b);

}  // namespace moesim::models
