// The answer to a scenario: what every dispatcher takes, of a layer or of a whole step, how sure that is, and
// which one wins.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/answers/breakdown_parts.h"
#include "models/costs/program_prices.h"
#include "models/hardware/estimate.h"
#include "models/routing/overload.h"
#include "models/routing/routing_cache.h"
#include "models/step/contention.h"
#include "models/step/faults.h"
#include "models/step/jitter.h"
#include "models/step/layer_programs.h"
#include "models/step/parameter_collectives.h"
#include "models/step/pipeline_schedule.h"
#include "models/step/step_memory.h"
#include "models/step/step_overload.h"
#include "models/workload/scenario.h"
#include "sim/run/booking.h"
#include "sim/run/lockstep.h"

namespace moesim::models {

// When the operations of one pass of a program ran, by rank of the dispatch group.
struct PassTrace {
  std::shared_ptr<const void> held;  // keeps `program` alive
  const Program* program = nullptr;
  bool forward = true;
  bool dispatcher = false;  // not the part that no dispatcher changes
  sim::LockstepTrace trace;

  const std::vector<Op>& pass() const { return forward ? program->forward() : program->backward(); }
};

// A slot of a stage's schedule and when the stage's last rank ran it, picoseconds.
struct SlotTrace {
  int stage = 0;
  PipelineSlot slot;
  std::int64_t from = 0, to = 0;
};

// One dispatcher, answered.
struct Answer {
  std::string dispatcher;  // as asked for, with options
  std::string error;       // why there is no forecast; then the rest is empty
  std::string not_ranked;  // why it cannot win; empty: it can

  Estimate time_us;
  std::vector<double> draws_us;  // under each drawn profile, the same draws for all dispatchers
  Breakdown breakdown_us{};      // of the critical rank, adds up to time_us.value
  double healthy_us = 0;         // without the scenario's faults
  int critical_rank = 0;         // of the dispatch group
  int critical_stage = 0;        // of the pipeline; 0 at scope layer
  double exposed_comm_us = 0;    // transferring while not computing
  double outside_domain = 0;     // share of the operations' time that the profile did not measure
  // Parts that no profile measured on this machine. Their doubt is in `draws_us`.
  std::vector<std::string> unmeasured;
  StepQuantiles step_time;  // of a step: how it varies from one to the next

  double tokens = 0;      // that the time is for, all GPUs together
  std::int64_t gpus = 0;  // that work on them
  double flops = 0;       // of the rows that were computed, all GPUs together (kFlopConvention)
  double mfu = 0;         // of the dense bf16 peak (fp8 runs too, so that plans compare)

  StepMemory memory;
  StepOverload overload;           // of all layers and microbatches; at scope layer of the one
  OverloadReport overload_report;  // of a step: what logging it costs, part of the time
  std::vector<std::int64_t>
      tx_bytes;  // per rank of the dispatch group, of one MoE layer forward and backward
  int host_syncs_forward = 0, host_syncs_backward = 0;  // of one MoE layer
  std::int64_t dropped_rows = 0;                        // of one MoE layer, over the dispatch group
  double dropped_share = 0;                             // of the rows that tokens were to be computed in
  Goodput goodput;  // of a step, where the scenario says how often a GPU fails
  double cost = 0;  // of the time on its GPUs; 0 without prices

  std::shared_ptr<const MoeProgram> moe;  // the dispatcher's program of the first MoE layer
  FlowReport network;
  // Of a step on its first stage: meshes whose weights one kernel can update, and kernels that Adam launches.
  std::int64_t optimizer_meshes = 0, optimizer_launches = 0;
  std::string
      hang;  // how ranks come to wait for each other (rule F of docs/spec.md 2.11); empty: they do not
  std::vector<std::string> warnings;

  // Of a dispatcher that balances, for the first MoE layer's first microbatch: what its transfers of weights
  // or gradients take, what the layer without balancing takes longer than the rest of it, and the tokens of a
  // rank and microbatch from which on it is worth them: both in proportion, 0 where nothing is saved.
  struct Balance {
    double paid_us = 0, saved_us = 0, break_even_tokens = 0;
    double busiest_before = 1, busiest = 1;  // rows of the busiest rank in balanced shares
  };
  std::optional<Balance> balance;

  // On request (AnswerOptions::trace). Of one MoE layer: at scope layer the answer itself, at scope step one
  // layer of the critical stage, run from idle clocks.
  std::vector<PassTrace> layer;
  struct MemorySample {
    double time_us = 0;
    MemoryPoint point;
  };
  std::vector<MemorySample> memory_over_time;  // of the layer, on the fullest rank
  std::vector<SlotTrace> slots;                // of a step, stage by stage
  std::vector<std::int64_t> stage_end;         // in ps, with gradients and optimizer

  bool ok() const { return error.empty(); }
  bool ranked() const { return ok() && not_ranked.empty(); }
  const Program& program() const { return moe->program; }
  double seconds() const { return time_us.value * 1e-6; }
  double tokens_per_s_per_gpu() const { return tokens / seconds() / static_cast<double>(gpus); }
  double tflops_per_gpu() const { return flops / seconds() / static_cast<double>(gpus) * 1e-12; }
  double cost_per_million_tokens() const { return cost / tokens * 1e6; }
};

// Who wins, and how sure that is.
struct Decision {
  enum class Verdict : std::uint8_t {
    kClear,     // the winner is the fastest with a probability of at least kSure
    kTooClose,  // it is not
    kOnlyOne,   // only one can be ranked
    kNoneFits,  // nothing fits the memory
    kNone,      // there is no forecast
  };
  static constexpr double kSure = 0.9;
  static constexpr double kUnmeasured = 0.5;  // the most for one whose dispatch kernel nobody measured there

  Verdict verdict = Verdict::kNone;
  int winner = -1;                        // the fastest of those that are ranked; -1: none
  int runner_up = -1;                     // -1: there is none
  Estimate speedup = Estimate::exact(1);  // of the winner over the runner-up
  double probability = 1;                 // share of the draws under which the winner is the fastest
  std::vector<int> among;                 // those that it is too close between, the winner first
  std::string because;                    // one sentence
  std::string
      measure_next;  // the command that measures what would settle it (calibration::first_measurement)
};
std::string_view name_of(Decision::Verdict verdict);  // "clear", "too_close", "only_one", "none_fits", "none"

// Says of each answer whether it can win: one that forces its own routing, whose ranks all process the same
// tokens, that drops rows while others do not, or that does not fit while others do is not ranked. `skewed`:
// the routing asked for is not balanced. Where no answer is left, all compete that do the work that was asked
// for.
void rank(std::vector<Answer>& answers, bool skewed);
Decision decide(const std::vector<Answer>& answers);

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
  // Settings whose default differs between frameworks and that the order of the answers may hang on, a
  // sentence each: what was taken, whose it is.
  std::vector<std::string> defaults;
  // Where nothing fits, and on request: options with which the winner's dispatcher fits, those with the
  // shortest step; empty: none was found.
  std::string change_that_fits;
  std::vector<std::string> warnings;

  // Who wins, by how much and how surely, or why nobody is named: one sentence.
  std::string sentence() const;

  const Answer* winner() const {
    return decision.winner < 0 ? nullptr : &answers[static_cast<std::size_t>(decision.winner)];
  }
};

// The profile of draw d of a seed, the same whoever asks.
Profile drawn_profile(const Cluster& cluster, std::uint64_t seed, int d);

// Prices of a cluster under a recipe and those of its drawn profiles, resolved once for many scenarios.
class PricedDraws {
 public:
  // Of drawn_profile(0), ...
  PricedDraws(const Cluster& cluster, const Recipe& recipe, std::uint64_t seed, int draws);
  ~PricedDraws();
  PricedDraws(PricedDraws&&) noexcept;
  PricedDraws& operator=(PricedDraws&&) noexcept;

  const ProgramPricer& nominal() const { return pricers_.front(); }
  std::span<const ProgramPricer> drawn() const { return std::span(pricers_).subspan(1); }

 private:
  std::vector<ProgramPricer> pricers_;
};

// Priced draws of several clusters, for sweeps. Not for several threads at a time.
class PriceCache {
 public:
  PriceCache();
  ~PriceCache();
  const PricedDraws& of(const Scenario& scenario, int draws);

 private:
  struct Entry;
  std::vector<Entry> entries_;
};

inline constexpr int kMostDraws = 10'000;  // of AnswerOptions; about 35 kB each

struct AnswerOptions {
  int draws = 48;  // of the profile, for intervals and the winner's probability; 0: none, low = high = value
  bool breakdown = true;
  bool flow = false;                 // all groups of the job at once on the cluster's fabric
  bool trace = false;                // when operations and slots ran, and memory over time
  bool suggest = false;              // where nothing fits, search for the cheapest change that makes it fit
  bool each = false;                 // an illegal dispatcher beside others is an answer with its error
  PriceCache* prices = nullptr;      // null: made for this answer
  RoutingCache* routings = nullptr;  // null: drawn for this answer
};

// Throws InputError for a scenario that does not fit together, and when no dispatcher is legal. A routing
// file is opened (RoutingSpec::file).
Comparison answer(Scenario scenario, const AnswerOptions& options = {});

// Adds the warnings that are not there yet.
void add_new(std::vector<std::string>& warnings, const std::vector<std::string>& more);

// The difference of two times under the same draws, b - a, and their ratio b / a.
Estimate difference_us(const Answer& a, const Answer& b);
Estimate ratio(const Answer& a, const Answer& b);

}  // namespace moesim::models
