// The answer to a scenario: the time of every dispatcher for a layer or a step, its uncertainty, and the
// dispatcher to run.
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

// The forecast of one dispatcher.
struct Answer : Forecast {
  Answer() = default;
  explicit Answer(Forecast forecast) : Forecast(std::move(forecast)) {}

  std::string dispatcher;  // as asked for, with options
  std::string error;       // why there is no forecast; then the rest is empty
  Bar bar = Bar::kNone;    // why it cannot be chosen

  StepQuantiles step_time;  // step-to-step variation of a step's time
  double mfu = 0;           // against the dense bf16 peak, for fp8 runs too, so that plans compare
  double cost = 0;          // price of the time on its GPUs; 0 without prices

  StepOverload overload;  // over all layers and microbatches; at scope layer of the one layer
  std::vector<std::int64_t>
      tx_bytes;  // bytes sent per rank of the dispatch group by one MoE layer, forward and backward
  int host_syncs_forward = 0, host_syncs_backward = 0;  // in one MoE layer
  std::int64_t dropped_rows = 0;                        // in one MoE layer, over the dispatch group

  std::shared_ptr<const MoeProgram> moe;  // the dispatcher's program of the first MoE layer
  // Optimizer of a step on its first stage: meshes whose weights one kernel can update, and kernels that Adam
  // launches.
  std::int64_t optimizer_meshes = 0, optimizer_launches = 0;
  std::string hang;  // how ranks deadlock (rule F of docs/spec.md 2.11); empty: they do not

  // Gain of a balancing dispatcher in the first microbatch of the first MoE layer: time of its transfers of
  // weights or gradients, time saved in the rest of the layer, and the tokens per rank and microbatch at
  // which both are equal when both scale linearly (0: nothing is saved).
  struct Balance {
    double paid_us = 0, saved_us = 0, break_even_tokens = 0;
    double busiest_before = 1, busiest = 1;  // rows of the busiest rank over the mean
  };
  std::optional<Balance> balance;

  // Intervals of a tuned and of an untuned host, where nothing says which it is and the times are apart.
  struct Hosts {
    Estimate tuned, untuned;
  };
  std::optional<Hosts> hosts;
  // The interval on the host that the value is for.
  const Estimate& interval() const { return hosts ? hosts->tuned : time_us; }

  struct MemorySample {
    double time_us = 0;
    MemoryPoint point;
  };
  std::vector<MemorySample> memory_over_time;  // on request: of the layer, on the rank with the highest peak

  bool ok() const { return error.empty(); }
  bool ranked() const { return ok() && bar == Bar::kNone; }
  const Program& program() const { return moe->program; }
  std::vector<std::string> unmeasured_parts() const;
  bool unmeasured_exchange() const;    // the profile has no measurement of its dispatch or combine kernel
  bool exchange_without_rows() const;  // no profile has a measurement of its dispatch or combine kernel
  double cost_per_million_tokens() const { return per_million_tokens(cost); }
};

struct Comparison {
  std::shared_ptr<const Scenario> scenario;  // resolved
  Routing routing;                           // routing of the first microbatch of the first MoE layer
  std::vector<Answer> answers;  // in the order asked for; an illegal dispatcher among others has an error
  // dispatchers that "all" leaves out, with the rule that forbids each
  std::vector<std::pair<std::string, std::string>> excluded;
  // of the first stage, where the scenario says how parameters are sharded
  std::vector<TimedCollective> step_collectives;
  Decision decision;
  std::optional<Anchor> anchor;  // where measured times were given
  // Settings whose default differs between frameworks and may decide the order of the answers: one sentence
  // each with the value taken and the framework it comes from.
  std::vector<std::string> defaults;
  std::optional<FittingChange> fitting;  // where nothing fits, or on request: for the winner's dispatcher
  std::vector<std::string> warnings;

  // The recommended answer, and the one with the shortest forecast; null where there is no forecast.
  const Answer* winner() const { return at(decision.winner); }
  const Answer* shortest() const { return at(decision.shortest); }

 private:
  const Answer* at(int index) const {
    return index < 0 ? nullptr : &answers[static_cast<std::size_t>(index)];
  }
};

inline constexpr int kMostDraws = 10'000;  // AnswerOptions::draws at most; about 35 kB each

struct AnswerOptions {
  int draws = 48;  // draws of the profile for intervals and win probabilities; 0: low = high = value
  bool breakdown = true;
  bool flow = false;       // simulates all groups of the job at once on the cluster's fabric
  bool trace = false;      // records spans of operations and memory over time
  bool suggest = false;    // where nothing fits, searches for the cheapest change that makes it fit
  PlanRules refused = {};  // which that change keeps
  bool each = false;       // an illegal dispatcher among others becomes an answer with an error
  double tolerance = Decision::kTolerance;
  // Measured times of this scenario, from which the comparison computes its anchor, or the anchor of another
  // comparison. Either one sets the number of draws.
  std::vector<Measured> measured = {};
  const Anchor* anchor = nullptr;
  std::string without = {};          // publication whose steps count as not known (step_sigma)
  PriceCache* prices = nullptr;      // null: made for this answer
  RoutingCache* routings = nullptr;  // null: drawn for this answer
};

// Answers a scenario. Throws InputError where its fields contradict each other and where no dispatcher is
// legal. Opens the routing file, if any (RoutingSpec::file).
Comparison answer(Scenario scenario, const AnswerOptions& options = {});

// Appends the warnings of `more` that `warnings` lacks.
void add_new(std::vector<std::string>& warnings, const std::vector<std::string>& more);

// The difference b - a and the ratio b / a of two times under the same draws.
Estimate difference_us(const Forecast& a, const Forecast& b);
Estimate ratio(const Forecast& a, const Forecast& b);

}  // namespace moesim::models
