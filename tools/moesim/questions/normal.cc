#include "tools/moesim/questions/normal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/statistics.h"
#include "base/text.h"
#include "base/units.h"
#include "calibration/check/published.h"
#include "models/answers/doubt.h"
#include "models/hardware/cluster.h"
#include "models/hardware/embedded_profiles.h"
#include "models/hardware/network.h"
#include "tools/moesim/show/output.h"

namespace moesim::tools {

namespace {

using Texts = std::vector<std::string>;

// An entry of causes.json.
struct KnownCause {
  std::string id, what, check, link, place, needs;
  Texts kinds, networks, ops, gpus, changes, seen;
  double low = 0, high = 0;  // time ratio; 0: priced alone
  double weight = 1;
  std::int64_t nodes_from = 1;
};

std::vector<KnownCause> read_causes() {
  JsonObject file(JsonNode::parse(models::embedded_table("causes"), "causes.json"));
  file.string("about", "");
  std::vector<KnownCause> all;
  for (const JsonNode& node : file.at("causes").items()) {
    JsonObject one(node);
    KnownCause cause;
    const auto texts = [&](const char* key) {
      Texts list;
      if (const auto found = one.find(key))
        for (const JsonNode& text : found->items()) list.push_back(text.string());
      return list;
    };
    for (const auto& [key, text] :
         {std::pair{"id", &cause.id}, {"what", &cause.what}, {"check", &cause.check}, {"link", &cause.link}})
      *text = one.at(key).string();
    cause.place = one.string("place", "");
    cause.needs = one.string("needs", "");
    cause.kinds = texts("kinds");
    cause.networks = texts("networks");
    cause.ops = texts("ops");
    cause.gpus = texts("gpus");
    cause.changes = texts("set");
    cause.seen = texts("seen");
    if (const auto ratio = one.find("ratio")) {
      cause.low = ratio->items().at(0).number(1);
      cause.high = ratio->items().at(1).number(1);
    }
    cause.weight = one.number("weight", 1, 0);
    cause.nodes_from = one.integer("nodes_from", 1, 1);
    one.finish();
    all.push_back(std::move(cause));
  }
  file.finish();
  return all;
}

// Whether a list names `text`, or names nothing.
bool names(const Texts& list, const std::string& text) {
  return list.empty() || std::ranges::count(list, text) > 0;
}

bool counts(const KnownCause& cause, const Circumstances& run) {
  const bool between = !run.network.empty();
  if (!names(cause.kinds, run.kind) || run.nodes < cause.nodes_from) return false;
  if (!cause.place.empty() && (cause.place == "between") != between) return false;
  if (between && !names(cause.networks, run.network)) return false;
  if (!between && !cause.networks.empty()) return false;
  if (run.kind != "step" && !names(cause.ops, run.op)) return false;
  if (!cause.needs.empty() && std::ranges::count(run.needs, cause.needs) == 0) return false;
  return cause.gpus.empty() ||
         std::ranges::any_of(cause.gpus, [&](const std::string& gpu) { return run.gpu.starts_with(gpu); });
}

constexpr double kSeenInLog = 5;        // log weight of a line of the log that names a cause
constexpr double kOfThisNetwork = 0.4;  // of a cause that this kind of network alone has
constexpr double kTwoAtOnce = -2.5;     // of a pair against one cause
constexpr double kLeastEffect = 1.02;   // ratio below which a cause explains nothing
constexpr double kTooFar = -8;          // score below which a cause explains nothing

// The log density of log(ratio) where the cause's own ratio is uniform in the logarithm over its range and
// what is normal is known within sigma.
double fit_of(double ratio, const models::Estimate& range, double sigma) {
  const double at = std::log(ratio), low = std::log(range.low), high = std::log(range.high);
  if (high - low < 0.1 * sigma) {
    const double z = (at - 0.5 * (low + high)) / sigma;
    return -0.5 * z * z - std::log(sigma * std::sqrt(2 * std::numbers::pi));
  }
  const double mass = normal_below((at - low) / sigma) - normal_below((at - high) / sigma);
  return std::log(std::max(mass, 1e-12) / (high - low));
}

// The range of a cause's ratio: priced where the job can be changed, else as threads report it.
std::optional<models::Estimate> range_of(const KnownCause& cause, const PriceOf& price) {
  if (cause.changes.empty() || !price) {
    if (cause.low <= 0) return std::nullopt;
    return models::Estimate{std::sqrt(cause.low * cause.high), cause.low, cause.high};
  }
  std::optional<models::Estimate> range;
  for (const std::string& change : cause.changes)
    if (const auto ratio = price(change); ratio && *ratio > kLeastEffect) {
      if (!range) range = models::Estimate::exact(*ratio);
      range->low = std::min(range->low, *ratio);
      range->high = std::max(range->high, *ratio);
      range->value = std::sqrt(range->low * range->high);
    }
  return range;
}

}  // namespace

std::vector<SlowCause> causes_of(const Circumstances& run, double ratio, const PriceOf& price,
                                 std::size_t most) {
  static const std::vector<KnownCause> known = read_causes();
  std::vector<SlowCause> found;
  for (const KnownCause& cause : known) {
    if (!counts(cause, run)) continue;
    const auto range = range_of(cause, price);
    if (!range) continue;
    const bool seen = std::ranges::any_of(
        cause.seen, [&](const std::string& line) { return run.log.find(line) != std::string_view::npos; });
    SlowCause one{cause.what, cause.check, cause.link, {cause.id}, *range, std::log(cause.weight)};
    one.score += fit_of(ratio, *range, run.sigma) + (seen ? kSeenInLog : 0);
    if (run.network == "roce" && !cause.networks.empty()) one.score += kOfThisNetwork;
    found.push_back(std::move(one));
  }
  const auto best_first = [](std::vector<SlowCause>& all) {
    std::ranges::stable_sort(all, [](const SlowCause& a, const SlowCause& b) { return a.score > b.score; });
  };
  best_first(found);
  // Two at once, where one does not do.
  const bool one_does = !found.empty() && found.front().ratio.low <= ratio * std::exp(run.sigma) &&
                        ratio <= found.front().ratio.high * std::exp(run.sigma);
  if (!one_does) {
    const std::size_t singles = std::min<std::size_t>(found.size(), 8);
    for (std::size_t i = 0; i < singles; ++i)
      for (std::size_t k = i + 1; k < singles; ++k) {
        const SlowCause a = found[i], b = found[k];
        const models::Estimate both{a.ratio.value * b.ratio.value, a.ratio.low * b.ratio.low,
                                    a.ratio.high * b.ratio.high};
        found.push_back({a.what + ", and " + b.what,
                         a.check + "; " + b.check,
                         a.link,
                         {a.ids.front(), b.ids.front()},
                         both,
                         kTwoAtOnce + fit_of(ratio, both, run.sigma)});
      }
    best_first(found);
  }
  std::erase_if(found, [](const SlowCause& one) { return one.score < kTooFar; });
  if (found.size() > most) found.resize(most);
  return found;
}

Columns<SlowCause> columns_of(Of<SlowCause>) {
  using S = SlowCause;
  return {{"ids", &S::ids, "one cause, or two at once"},
          {"what", &S::what},
          {"expected_ratio", [](const S& s) { return s.ratio.value; }, "time over the normal time under it"},
          {"low", [](const S& s) { return s.ratio.low; }},
          {"high", [](const S& s) { return s.ratio.high; }},
          {"check", &S::check, "what tells"},
          {"link", &S::link, "a public thread of the kind"}};
}

Columns<Verdict> columns_of(Of<Verdict>) {
  using V = Verdict;
  return {{"normal", &V::normal, "not too slow"},
          {"ratio", &V::ratio, "time over the normal time"},
          {"percentile", &V::slower, "share of the published rows, or of the forecasts, that are slower"},
          {"rows", &V::rows, "published rows compared with; 0: the forecast"},
          {"sentence", &V::sentence},
          {"causes", &V::causes, "what would explain it, the likeliest first"}};
}

std::string verdict_text(const Verdict& verdict) {
  if (verdict.causes.empty())
    return verdict.normal ? "" : "nothing that moesim knows explains it: check the facts that you gave\n";
  const auto takes = [&](const SlowCause& one) {
    const bool range = one.ratio.high > 1.02 * one.ratio.low;
    const auto text = [&](double ratio) {
      return verdict.usual_us > 0 ? format_us(ratio * verdict.usual_us) : fmt::format("{:.2g}", ratio);
    };
    return (range ? text(one.ratio.low) + " to " + text(one.ratio.high) : text(one.ratio.value)) +
           (verdict.usual_us > 0 ? "" : " times the normal time");
  };
  constexpr std::size_t kShown = 3;
  std::string text =
      verdict.normal ? "where you expected less:" : "what would make it so slow, the likeliest first:\n";
  for (std::size_t i = 0; i < std::min(kShown, verdict.causes.size()); ++i) {
    const SlowCause& one = verdict.causes[i];
    if (verdict.normal)
      text += fmt::format("{} {} ({})", i == 0 ? "" : ",", one.what, takes(one));
    else
      text += fmt::format("- {}: {}\n  tell by: {} ({})\n", one.what, takes(one), one.check, one.link);
  }
  return verdict.normal ? text + "\n" : text;
}

namespace {

// Returns the ratio under a change of the job, for its own dispatcher.
PriceOf pricer(const Base& base, const std::string& dispatcher) {
  models::AnswerOptions quick;
  quick.draws = 0;
  quick.breakdown = false;
  const auto time_of = [dispatcher](const models::Comparison& c) {
    const auto at = std::ranges::find(c.answers, dispatcher, &models::Answer::dispatcher);
    const models::Answer& one = at == c.answers.end() ? c.answers.front() : *at;
    return one.ok() ? std::optional(one.time_us.value) : std::nullopt;
  };
  std::map<std::string, std::optional<double>> known;
  return [=, &base, known = std::move(known)](const std::string& change) mutable -> std::optional<double> {
    const auto [at, added] = known.try_emplace(change);
    if (!added) return at->second;
    try {
      const auto before = known.try_emplace("");
      if (before.second) before.first->second = time_of(ask(base.resolved.scenario, quick));
      const auto [path, text] = split_assignment(change, "causes.json");
      const ScenarioPath where = find_path(path);
      Asker asker(base, {where});
      const auto after = time_of(asker.ask({parse_value(where, text, &base.resolved.scenario)}, quick));
      const auto normal = known.at("");
      if (after && normal) known[change] = *after / *normal;
    } catch (const InputError&) {  // the job cannot run like this, or it makes no difference
    }
    return known[change];
  };
}

Circumstances circumstances_of(const models::Scenario& s) {
  Circumstances run;
  run.kind = "step";
  run.gpu = s.cluster->profile.name();
  const std::int64_t ranks = s.parallel.world();
  run.nodes = static_cast<int>((ranks + s.cluster->gpus_per_node - 1) / s.cluster->gpus_per_node);
  if (ranks > s.cluster->nvlink.domain)
    run.network = s.cluster->network.empty() ? "any" : models::NetworkProfile::load(s.cluster->network).kind;
  const auto has = [&](bool holds, const char* what) {
    if (holds) run.needs.emplace_back(what);
  };
  has(s.model.experts > 0, "moe");
  has(s.training.precision != "bf16", "fp8");
  has(s.parallel.micro_batch == 1, "mbs1");
  has(s.parallel.pp > 1, "pp");
  has(s.training.sharding == models::ShardingScheme::kFsdp, "fsdp");
  run.sigma = s.is_step() ? models::step_sigma(s) : 0.15;
  return run;
}

}  // namespace

Verdict judge_run(const Base& base, const models::Comparison& asked, const models::Answer& answer,
                  const models::Estimate& forecast, double us, std::string_view log, double slack) {
  using calibration::PublishedRows;
  Verdict verdict;
  const char* what = asked.scenario->is_step() ? "step" : "layer";
  models::Estimate usual = forecast;
  std::string who = "jobs like it take";
  const PublishedRows* published =
      asked.scenario->is_step() ? calibration::published_steps(*asked.scenario) : nullptr;
  if (published) {
    const double typical = published->speed[3], slow = published->speed[1];
    usual = {forecast.value / typical, forecast.value / published->speed[5], forecast.value / slow};
    if (published->sources.size() < 2)
      usual.high = std::max(usual.high, usual.value * (1 + calibration::kOneSource) / (1 + slack));
    verdict.rows = published->rows;
    verdict.slower = published->slower_than(forecast.value / us);
    who = fmt::format("{} published steps of this model, with this plan and machine, would take",
                      published->rows);
  } else if (!answer.draws_us.empty()) {
    verdict.slower = calibration::share_slower(forecast, us);
  }
  verdict.usual_us = usual.value;
  verdict.ratio = us / usual.value;
  verdict.normal = us <= usual.high * (1 + slack);
  const auto run_text = [&](const char* your) {
    return fmt::format("{} {} takes {}; {} {} to {}", your, what, format_us(us), who, format_us(usual.low),
                       format_us(usual.high));
  };
  const bool too_fast = us < usual.low && asked.anchor && !asked.anchor->explained;
  if (!verdict.normal)
    verdict.sentence = fmt::format("{}: {:.1f} times too slow.", run_text("Your"), verdict.ratio);
  else if (too_fast)
    verdict.sentence = fmt::format(
        "Not slow: {}. Nothing explains a run that is {:.1f} times faster: is it the same model, plan and batch?",
        run_text("your"), 1 / verdict.ratio);
  else
    verdict.sentence =
        fmt::format("Normal: {}; {:.0f} % are slower.", run_text("your"), 100 * verdict.slower.value_or(0.5));
  if (verdict.ratio > 1 + slack) {
    Circumstances run = circumstances_of(*asked.scenario);
    run.log = log;
    verdict.causes = causes_of(run, verdict.ratio, pricer(base, answer.dispatcher));
  }
  return verdict;
}

}  // namespace moesim::tools
