#include "models/answers/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/input_error.h"
#include "base/random.h"
#include "base/statistics.h"
#include "base/text.h"
#include "base/units.h"
#include "models/answers/doubt.h"
#include "models/answers/fitting_change.h"
#include "models/answers/invariants.h"
#include "models/answers/priced_draws.h"
#include "models/dispatchers/parts/balanced.h"
#include "models/hardware/cluster.h"
#include "models/hardware/network.h"
#include "models/recipes/framework_recipe.h"
#include "models/step/contention.h"
#include "models/step/layer_forecast.h"
#include "models/step/order_of_waits.h"
#include "models/step/step_forecast.h"
#include "models/step/training_flops.h"
#include "models/step/transfers.h"

namespace moesim::models {

namespace {

constexpr std::int64_t kMaxGroup = 4096;  // bounds the rows and columns of split matrices

// Answers one scenario, dispatcher by dispatcher.
class Answering {
 public:
  Answering(Scenario scenario, const AnswerOptions& options)
      : o_(options),
        scenario_(resolved(std::move(scenario), c_.warnings)),
        s_(*scenario_),
        routing_(s_, options.routings),
        placement_(s_) {
    c_.scenario = scenario_;
    c_.routing = routing_.of(0, 0);
    c_.warnings.insert(c_.warnings.end(), s_.model.remarks.begin(), s_.model.remarks.end());
    if (const std::string note = network_note(*s_.cluster); !note.empty()) c_.warnings.push_back(note);
    add_new(c_.warnings, placement_.notes());
    add_new(c_.warnings, routing_.warnings());
    const double most =
        1 - static_cast<double>(s_.topk) / static_cast<double>(std::max<std::int64_t>(1, s_.model.experts));
    if (s_.model.experts > 0 && s_.routing.kind == RoutingSpec::Kind::kGini && s_.routing.parameter > most)
      c_.warnings.push_back(fmt::format(
          "routing gini:{:g}: loads of {} experts, of which a token takes {}, have a Gini coefficient of at "
          "most {:.3f}, which is used",
          s_.routing.parameter, s_.model.experts, s_.topk, most));
    PriceCache own;
    prices_ = (o_.prices ? *o_.prices : own).of(s_, o_.draws);
    if (o_.flow && static_cast<std::size_t>(s_.parallel.dispatch_ranks()) > kMostFlowRanks)
      throw InputError(
          fmt::format("compare: found a dispatch group of {} ranks with timing flow, expected at most {}",
                      s_.parallel.dispatch_ranks(), kMostFlowRanks));
    if (o_.flow && s_.cluster->ranks() > kMostFlowGpus)
      throw InputError(
          fmt::format("compare: found a cluster of {} GPUs with timing flow, expected at most {}",
                      s_.cluster->ranks(), kMostFlowGpus));
    if (const std::int64_t replicas = s_.parallel.world() / (s_.parallel.tp * s_.parallel.pp);
        o_.flow && s_.is_step() && s_.train && replicas > kMostFlowReplicas)
      throw InputError(fmt::format(
          "compare: found {} ranks that sum their gradients with timing flow, expected at most {}", replicas,
          kMostFlowReplicas));
    if (o_.flow && s_.parallel.world() > static_cast<std::int64_t>(kMostFlowRanks))
      c_.warnings.push_back(
          fmt::format("timing flow follows {} of {} ranks of each kind of group: others do not contend",
                      kMostFlowRanks, s_.parallel.world()));
    if (!o_.flow) check_calibrated();
    if (o_.flow)
      fabric_ = cluster_fabric(*s_.cluster);
    else if (has_own_fabric(*s_.cluster))
      c_.warnings.push_back(
          "the cluster's fabric is not seen by calibrated timing, which knows no contention; --timing flow "
          "does");
    if (o_.flow && s_.faults.slow())
      throw InputError("compare: found faults with timing flow, expected calibrated");
    if (!s_.is_step()) faults_ = faults_of_layer();
  }

  Comparison all() {
    for (const DispatcherSpec& spec : s_.dispatchers) {
      try {
        c_.answers.push_back(one(spec));
      } catch (const InputError& error) {
        // A dispatcher added because none was given is dropped where it cannot run.
        if (s_.all_dispatchers || spec.origin == kUsualOrigin) {
          c_.excluded.emplace_back(spec.text(), rule_of(spec, error));
        } else if (o_.each && s_.dispatchers.size() > 1) {
          Answer& a = c_.answers.emplace_back();
          a.dispatcher = spec.text();
          a.error = error.what();
        } else {
          throw;
        }
        if (first_error_.empty()) first_error_ = error.what();
      }
    }
    if (std::none_of(c_.answers.begin(), c_.answers.end(), [](const Answer& a) { return a.ok(); }))
      throw InputError(c_.excluded.empty() ? first_error_
                                           : "compare: found no legal dispatcher, expected one; " +
                                                 c_.excluded.front().second);
    take_anchor();
    for (Answer& a : c_.answers) {
      if (!a.ok()) continue;
      add_rates(a);
      if (s_.prices.given() || s_.ownership.buy.given())
        a.cost = hour_cost(s_.prices, s_.ownership, *s_.cluster, a.gpus).of(a.seconds());
      check_answer(s_, a);
    }
    tell_defaults();
    c_.step_collectives = timed_collectives(s_, c_.routing.experts(), placement_, prices_->nominal());
    constexpr double kEven = 1.001;
    std::optional<FrameworkRecipe> framework;
    if (const std::string known = known_framework(); !known.empty()) framework = FrameworkRecipe::find(known);
    rank(c_.answers, c_.routing.expert_skew() > kEven, framework ? &*framework : nullptr);
    // A layer's question is the dispatcher, whatever plan may fit.
    c_.decision = decide(c_.answers, o_.tolerance, s_.is_step());
    check_possible("decision", impossible(c_.decision, c_.answers.size()));
    if (const Answer* w = c_.winner()) add_new(c_.warnings, w->warnings);
    for (const Answer& a : c_.answers) add_new(c_.warnings, a.warnings);
    if (o_.suggest && c_.winner() && !c_.winner()->memory.fits)
      c_.fitting = cheapest_fitting_change(s_, DispatcherSpec::parse(c_.winner()->dispatcher), o_.refused);
    return std::move(c_);
  }

 private:
  void take_anchor() {
    if (!o_.measured.empty()) c_.anchor = anchor_of(c_, o_.measured);
    const Anchor* anchor = c_.anchor ? &*c_.anchor : o_.anchor;
    if (!anchor || !anchor->explained) return;
    for (Answer& a : c_.answers) anchor_answer(a, *anchor, c_.anchor ? anchor->known(a.dispatcher) : -1);
  }

  // Returns the recipe of the framework that is known to run the job: it was said, or its file describes the
  // job. Empty where none is known.
  std::string known_framework() const {
    if (!s_.recipe.empty()) return s_.recipe;
    if (!s_.job_framework.empty()) return s_.job_framework;
    const bool said =
        s_.origin_of("training.framework").kind == Origin::Kind::kSaid;  // a saved one holds all
    return said && s_.gave("training.framework") && s_.training.framework != Framework::kNone ? "megatron-lm"
                                                                                              : "";
  }

  // Sets the figures that follow from the time.
  void add_rates(Answer& a) const {
    const double peak = s_.cluster->profile.device().peak_flops[static_cast<std::size_t>(DType::kBf16)];
    a.mfu = a.tflops_per_gpu() * 1e12 / peak;
    if (s_.is_step()) a.step_time = step_quantiles(s_.parallel, a.time_us.value);
  }

  // Outputs that are combined in the router's type travel in it: in fp32 twice the bytes of bf16.
  void tell_defaults() {
    if (bytes_of(s_.router_dtype) <= bytes_of(s_.activation)) return;
    std::vector<std::string> in_it;
    std::size_t answered = 0;
    for (const Answer& a : c_.answers) {
      if (!a.ok()) continue;
      ++answered;
      const auto& forward = a.program().forward();
      if (std::any_of(forward.begin(), forward.end(), [&](const Op& op) {
            return (op.comm == CommKind::kReduceScatter || op.comm == CommKind::kReduceScatterV) &&
                   op.kind == OpKind::kCollective && op.category == sim::Category::combine &&
                   op.dtype == s_.router_dtype;
          }))
        in_it.push_back(a.dispatcher);
    }
    if (in_it.empty() || in_it.size() == answered) return;
    c_.defaults.push_back(
        fmt::format("router {} (Megatron-LM alone: {}): {} {} outputs in it, {} x the bytes; --router-dtype",
                    name_of(s_.router_dtype), name_of(s_.activation), join(in_it, ", "),
                    in_it.size() == 1 ? "sums" : "sum", bytes_of(s_.router_dtype) / bytes_of(s_.activation)));
  }

  // Refuses changes of the machine that only flows see.
  void check_calibrated() const {
    for (const auto& [path, changed] : {std::pair{"cluster.rails", true},
                                        {"cluster.fabric", true},
                                        {"cluster.nvlink.latency", s_.cluster->nvlink.latency > 0}})
      if (changed && s_.origins.find(path))
        throw InputError(fmt::format(
            "{}: found with timing calibrated, which does not use it; expected compare --timing flow", path));
  }

  static std::shared_ptr<const Scenario> resolved(Scenario s, std::vector<std::string>& warnings) {
    s.resolve();
    if (s.all_dispatchers) name_dispatchers(s);
    if (s.routing.kind == RoutingSpec::Kind::kFile) take_tokens_of_file(s, warnings);
    if (s.dispatchers.empty())
      throw InputError("scenario: found no dispatcher, expected \"dispatcher\" or --dispatcher");
    if (s.parallel.dispatch_ranks() > kMaxGroup)
      throw InputError(
          fmt::format("parallel: found a dispatch group of {} ranks (etp x ep), expected at most {}",
                      s.parallel.dispatch_ranks(), kMaxGroup));
    return std::make_shared<const Scenario>(std::move(s));
  }

  // A routing file gives the tokens of a rank, and an open sequence follows from them, for attention. Throws
  // InputError for a step whose batch was reckoned with another sequence.
  static void take_tokens_of_file(Scenario& s, std::vector<std::string>& warnings) {
    Parallel& p = s.parallel;
    const std::int64_t tokens = JobRouting(s).of(0, 0).max_tokens();
    const std::int64_t seq = std::max<std::int64_t>(1, tokens * p.tp * p.cp / p.micro_batch);
    if (seq == p.seq) return;
    if (s.is_step() &&
        (s.gave("parallel.seq") || s.origin_of("parallel.global_batch").kind == Origin::Kind::kModel))
      throw InputError(SourcePlace{s.routing.path}, fmt::format("{} tokens per rank", tokens),
                       fmt::format("the {} of micro_batch x seq / (tp x cp); --seq {} says the file's",
                                   p.tokens_per_rank(), seq));
    if (s.gave("parallel.seq"))
      warnings.push_back(fmt::format(
          "{}: {} tokens per rank, where micro_batch x seq / (tp x cp) is {}: the file's are taken",
          s.routing.path, tokens, p.tokens_per_rank()));
    p.seq = seq;
  }

  // Returns the rule that excludes a dispatcher, without the place where it was named.
  std::string rule_of(const DispatcherSpec& spec, const InputError& error) const {
    if (const auto rule = rule_against(s_, spec, routing_, placement_)) return *rule;
    return error.what();
  }

  // Returns the faults of the dispatch group on the first GPUs, which runs the layer, if one of them has a
  // fault.
  std::optional<RankFaults> faults_of_layer() {
    if (!s_.faults.slow()) return std::nullopt;
    RankFaults faults = RankFaults::of(s_.faults, *s_.cluster, placement_.dispatch());
    if (faults.any()) return faults;
    c_.warnings.push_back(
        fmt::format("faults: none on the {} GPUs of the dispatch group that the layer stands on",
                    s_.parallel.dispatch_ranks()));
    return std::nullopt;
  }

  Answer one(const DispatcherSpec& spec) { return s_.is_step() ? step(spec) : layer(spec); }

  // Returns the share of an MoE layer's host launches that belong to the dispatcher's program.
  double share_of_launches(const LayerPrograms& programs) const {
    const ProgramPricer& pricer = prices_->nominal();
    const auto own = static_cast<double>(pricer.launches(programs.first()->program));
    for (std::size_t kind = 0; kind < programs.kinds().size(); ++kind)
      if (programs.kinds()[kind].ffn == LayerKind::Ffn::kMoe)
        return own / std::max(1.0, own + static_cast<double>(pricer.launches(programs.before(kind)) +
                                                             pricer.launches(programs.after())));
    return 1;
  }

  // Completes the answer with what layers and steps share, after the forecast and its memory.
  void complete(Answer& a, const DispatcherSpec& spec, const LayerPrograms& programs) const {
    const Program& program = programs.first()->program;
    a.dispatcher = spec.text();
    a.moe = programs.first();
    a.tx_bytes.assign(static_cast<std::size_t>(program.ranks()), 0);
    for (const auto* pass : {&program.forward(), &program.backward()})
      for (const Op& op : *pass)
        if (op.kind == OpKind::kCollective)
          for (int r = 0; r < program.ranks(); ++r)
            a.tx_bytes[static_cast<std::size_t>(r)] += program.value(op.tx, r);
    a.host_syncs_forward = program.host_syncs(program.forward());
    a.host_syncs_backward = program.host_syncs(program.backward());
    a.hang = hang_of_unit(s_, program);
    std::vector<std::string> said;
    if (!a.hang.empty()) said.push_back(a.dispatcher + ": " + a.hang);
    add_new(said, a.warnings);
    a.warnings = std::move(said);
    a.dropped_rows = program.dropped_rows;
    // The GPU waits for the host in a share of the time, of which the dispatcher's launches are a part.
    const double waiting = a.breakdown_us[static_cast<std::size_t>(sim::Category::host_sync)];
    const double exchanges = a.breakdown_us[static_cast<std::size_t>(sim::Category::dispatch)] +
                             a.breakdown_us[static_cast<std::size_t>(sim::Category::combine)];
    // A bubble is made of the other stages' operations, of which the parts are the same shares.
    const double busy = a.time_us.value - a.breakdown_us[static_cast<std::size_t>(sim::Category::bubble)];
    const double sigma = s_.is_step() ? step_sigma(s_, o_.without) : 0;
    add_doubt(a, {sigma, a.dispatcher, waiting / busy * share_of_launches(programs), exchanges / busy});
    a.hosts = hosts_of(a, sigma);
    a.balance = balance_of(spec, programs);
    if (o_.trace) a.memory_over_time = memory_over_time(a);
  }

  std::optional<Answer::Hosts> hosts_of(const Answer& a, double sigma) const {
    const double share = prices_->nominal().recipe().stock_share;
    if (share <= 0 || share >= 1) return std::nullopt;
    std::vector<double> tuned, untuned;
    for (std::size_t d = 0; d < a.draws_us.size(); ++d)
      (prices_->drawn()[d].recipe().stock_share > 0 ? untuned : tuned).push_back(a.draws_us[d]);
    if (tuned.empty() || untuned.empty()) return std::nullopt;
    const Answer::Hosts hosts{widened(a.time_us.value, tuned, sigma),
                              widened(quantile_of(untuned, 0.5), untuned, sigma)};
    return hosts.untuned.value > hosts.tuned.high ? std::optional(hosts) : std::nullopt;
  }

  std::optional<Answer::Balance> balance_of(const DispatcherSpec& spec, const LayerPrograms& programs) const {
    const auto plain = without_balance(spec);
    if (!plain) return std::nullopt;
    const LayerPrograms without(s_, *plain, routing_, placement_, programs.where(), programs.dense());
    const ProgramPricer& pricer = prices_->nominal();
    const std::optional<Contention> own_contention = contention_of(programs),
                                    other_contention = contention_of(without);
    const LayerForecaster own(s_, programs, routing_, faults_, own_contention ? &*own_contention : nullptr),
        before(s_, without, routing_, faults_, other_contention ? &*other_contention : nullptr);
    std::int64_t paid = 0;
    const auto layer = own.trace(pricer);
    for (const LayerTrace::Pass& pass : layer->passes) {
      if (!pass.dispatcher) continue;
      for (std::size_t i = 0; i < pass.ops().size(); ++i) {
        if (!pays_for_balance(pass.ops()[i])) continue;
        std::int64_t longest = 0;  // a rank that sends nothing waits for the others later
        for (std::size_t r = 0; r < layer->ranks; ++r) {
          const LayerTrace::Span span = layer->span(pass, i, r);
          longest = std::max(longest, span.end - span.begin);
        }
        paid += longest;
      }
    }
    Answer::Balance balance;
    balance.paid_us = static_cast<double>(paid) * 1e-6;
    balance.saved_us = static_cast<double>(before.total_ps(pricer) - own.total_ps(pricer) + paid) * 1e-6;
    if (balance.saved_us > 0)
      balance.break_even_tokens =
          static_cast<double>(s_.parallel.tokens_per_rank()) * balance.paid_us / balance.saved_us;
    balance.busiest_before = overload_of_layer(s_, without).printed().max;
    balance.busiest = overload_of_layer(s_, programs).printed().max;
    return balance;
  }

  // Creates the contention model for timing `flow`.
  std::optional<Contention> contention_of(const LayerPrograms& programs) const {
    if (!fabric_) return std::nullopt;
    return std::make_optional<Contention>(s_, programs, prices_->nominal(), *fabric_);
  }

  // The layer is as slow as the slowest class of dispatch groups.
  const LayerPrograms& slowest(const std::vector<std::unique_ptr<LayerPrograms>>& classes,
                               const ProgramPricer& pricer) const {
    const LayerPrograms* found = classes.front().get();
    std::int64_t longest = -1;
    for (const auto& programs : classes) {
      if (classes.size() == 1) break;
      const std::int64_t ps = LayerForecaster(s_, *programs, routing_, faults_, nullptr).total_ps(pricer);
      if (ps > longest) longest = ps, found = programs.get();
    }
    return *found;
  }

  Answer layer(const DispatcherSpec& spec) {
    const std::vector<std::unique_ptr<LayerPrograms>> classes =
        programs_of_classes(s_, spec, routing_, placement_, dense_);
    dense_ = classes.front()->dense();
    const ProgramPricer& pricer = prices_->nominal();
    const LayerPrograms& programs = slowest(classes, pricer);
    const std::optional<Contention> contention = contention_of(programs);
    const LayerForecaster forecaster(s_, programs, routing_, faults_, contention ? &*contention : nullptr);
    // Draws need the breakdown, too: complete().
    Answer a(
        forecaster.forecast(pricer, prices_->drawn(), o_.breakdown || !prices_->drawn().empty(), o_.trace));
    a.overload = overload_of_layer(s_, programs);
    a.memory = memory_of(s_, PipelineLayout(s_, programs, routing_), programs, routing_);
    complete(a, spec, programs);
    return a;
  }

  Answer step(const DispatcherSpec& spec) {
    const StepForecaster forecaster(s_, spec, o_.routings);
    const std::optional<Contention> contention = contention_of(forecaster.programs());
    Answer a(forecaster.forecast(prices_->nominal(), prices_->drawn(), o_.trace,
                                 contention ? &*contention : nullptr));
    a.overload = forecaster.overload();
    if (!a.memory.fits) a.memory.recompute_that_fits = forecaster.recompute_that_fits();
    complete(a, spec, forecaster.programs());
    if (s_.train) {
      const StageParameters n = chunk_parameters(s_.model, s_.parallel, forecaster.plan().chunks.front());
      a.optimizer_meshes = optimizer_meshes(s_, n);
      a.optimizer_launches = optimizer_launches(s_, n);
    }
    return a;
  }

  // An allocation happens at the start of its rank's next operation; a release at the end of the previous
  // one.
  std::vector<Answer::MemorySample> memory_over_time(const Answer& a) const {
    std::vector<Answer::MemorySample> samples;
    const auto rank = static_cast<std::size_t>(a.memory.rank);
    double latest = 0;
    for (const MemoryPoint& point : memory_of_layer(a.program(), a.memory.rank, a.memory.worst, s_.train)) {
      const auto pass = std::ranges::find_if(a.layer->passes, [&](const LayerTrace::Pass& one) {
        return one.dispatcher && one.forward == point.forward;
      });
      if (pass == a.layer->passes.end()) continue;
      const std::vector<Op>& ops = pass->ops();
      const auto at = static_cast<std::size_t>(std::max(point.op, 0));
      const auto span = [&](std::size_t i) { return a.layer->span(*pass, i, rank); };
      const auto on_device = [&](std::size_t i) {
        return ops[i].kind != OpKind::kAllocate && ops[i].kind != OpKind::kFree && span(i).end > 0;
      };
      std::int64_t ps = -1;
      if (point.op >= 0 && at < ops.size() && ops[at].kind == OpKind::kAllocate)
        for (std::size_t i = at + 1; i < ops.size() && ps < 0; ++i)
          if (on_device(i)) ps = span(i).start;
      for (std::size_t i = std::min(at, ops.size()); i > 0 && ps < 0; --i)
        if (on_device(i - 1)) ps = span(i - 1).end;
      latest = std::max(latest, static_cast<double>(std::max<std::int64_t>(ps, 0)) * 1e-6);
      samples.push_back({latest, point});
    }
    return samples;
  }

  Comparison c_;
  const AnswerOptions& o_;
  std::shared_ptr<const Scenario> scenario_;
  const Scenario& s_;
  JobRouting routing_;
  Placement placement_;
  std::shared_ptr<const DensePrograms> dense_;
  std::shared_ptr<const PricedDraws> prices_;
  std::optional<sim::Fabric> fabric_;
  std::optional<RankFaults> faults_;
  std::string first_error_;
};

}  // namespace

std::vector<std::string> Answer::unmeasured_parts() const {
  std::vector<std::string> parts;
  for (const DomainReport::Unmeasured& one : unmeasured) parts.push_back(one.part);
  return parts;
}

bool Answer::unmeasured_exchange() const {
  return std::ranges::any_of(unmeasured, &DomainReport::Unmeasured::exchange);
}

bool Answer::exchange_without_rows() const {
  return std::ranges::any_of(unmeasured, &DomainReport::Unmeasured::no_rows);
}

Comparison answer(Scenario scenario, const AnswerOptions& options) {
  if (options.measured.empty() && !options.anchor) return Answering(std::move(scenario), options).all();
  AnswerOptions more = options;
  more.draws = options.anchor ? options.anchor->drawn : std::max(options.draws, kAnchorDraws);
  while (true) {
    Comparison c = Answering(scenario, more).all();
    const bool enough = !c.anchor || !c.anchor->explained || c.anchor->effective_draws >= kFewEffective;
    if (enough || 4 * more.draws > kMostAnchorDraws) return c;
    more.draws *= 4;
  }
}

Estimate difference_us(const Forecast& a, const Forecast& b) {
  const double value = b.time_us.value - a.time_us.value;
  if (a.draws_us.empty() || a.draws_us.size() != b.draws_us.size()) return Estimate::exact(value);
  std::vector<double> each(a.draws_us.size());
  for (std::size_t d = 0; d < each.size(); ++d) each[d] = b.draws_us[d] - a.draws_us[d];
  return Estimate::from_samples(value, each);
}

Estimate ratio(const Forecast& a, const Forecast& b) {
  const double value = b.time_us.value / a.time_us.value;
  if (a.draws_us.empty() || a.draws_us.size() != b.draws_us.size()) return Estimate::exact(value);
  std::vector<double> each(a.draws_us.size());
  for (std::size_t d = 0; d < each.size(); ++d) each[d] = b.draws_us[d] / a.draws_us[d];
  return Estimate::from_samples(value, each);
}

void add_new(std::vector<std::string>& warnings, const std::vector<std::string>& more) {
  for (const std::string& one : more)
    if (std::find(warnings.begin(), warnings.end(), one) == warnings.end()) warnings.push_back(one);
}

}  // namespace moesim::models
