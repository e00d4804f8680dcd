#include "replay/job/substitute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/input_error.h"

namespace moesim::replay {

namespace {

using Part = LayerModel::Part;

std::optional<Pass> pass_of(const Step& step) {
  if (step.kind == StepKind::forward) return Pass::forward;
  if (step.kind == StepKind::backward) return Pass::backward;
  return std::nullopt;
}

// Returns whether a call gathers what the router chose, or reduces the gradient, for a dispatcher that takes
// whole sequences.
bool routes(const Call& call, const models::Architecture& model) {
  return call.group == GroupKind::tp &&
         (call.op == sim::CollectiveOp::all_gather || call.op == sim::CollectiveOp::reduce_scatter) &&
         call.row_elements <= model.experts && call.row_elements < model.hidden;
}

// Segments and calls between the dispatchers of two layers, before the first and after the last.
struct Between {
  std::vector<double> us;
  std::vector<Bound> bounds;
  std::vector<Call> calls;

  Between(const Step& step, std::size_t first, std::size_t last)
      : us(step.segments_us.begin() + static_cast<std::ptrdiff_t>(first),
           step.segments_us.begin() + static_cast<std::ptrdiff_t>(last + 1)),
        calls(step.calls.begin() + static_cast<std::ptrdiff_t>(first),
              step.calls.begin() + static_cast<std::ptrdiff_t>(last)) {
    if (!step.bounds.empty())
      bounds.assign(step.bounds.begin() + static_cast<std::ptrdiff_t>(first),
                    step.bounds.begin() + static_cast<std::ptrdiff_t>(last + 1));
  }

  // Joins the two segments beside a call.
  void drop(std::size_t call) {
    const auto at = static_cast<std::ptrdiff_t>(call);
    us[call] += us[call + 1];
    us.erase(us.begin() + at + 1);
    if (!bounds.empty()) bounds.erase(bounds.begin() + at + 1);
    calls.erase(calls.begin() + at);
  }
};

// Returns the segments with the experts; a dispatcher in pieces has several.
std::vector<std::size_t> expert_segments(const LayerModel& model, Pass pass) {
  std::vector<std::size_t> found;
  for (std::size_t s = 0; s <= model.calls(pass); ++s)
    if (model.has_experts(pass, s)) found.push_back(s);
  return found;
}

}  // namespace

Substitution::Substitution(const LayerModel& recorded, const LayerModel& wanted, double launch_us,
                           ExpertTimes times)
    : recorded_(recorded),
      wanted_(wanted),
      recorded_rows_(recorded.job().received()),
      wanted_rows_(wanted.job().received()),
      launch_us_(launch_us),
      times_(std::move(times)) {
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    auto& same = same_[static_cast<std::size_t>(pass)];
    std::size_t next = 0;
    for (std::size_t j = 0; j < wanted.calls(pass); ++j) {
      same.emplace_back();
      for (std::size_t i = next; i < recorded.calls(pass); ++i)
        if (wanted.same_call(pass, j, recorded, i)) {
          same.back() = i;
          next = i + 1;
          break;
        }
    }
    same_calls_[static_cast<std::size_t>(pass)] =
        wanted.calls(pass) == recorded.calls(pass) &&
        std::none_of(same.begin(), same.end(), [](const auto& one) { return !one; });
  }
  same_program_ = same_program(Pass::forward) && same_program(Pass::backward);
}

bool Substitution::same_program(Pass pass) const {
  if (wanted_.calls(pass) != recorded_.calls(pass)) return false;
  for (std::size_t c = 0; c < wanted_.calls(pass); ++c) {
    const Call wanted = wanted_.call(pass, c, 0), recorded = recorded_.call(pass, c, 0);
    if (wanted.op != recorded.op || wanted.group != recorded.group) return false;
  }
  return true;
}

double Substitution::expert_ratio(Pass pass, std::size_t from, std::size_t to, int rank) const {
  const auto& rows = recorded_rows_;
  const auto& wanted_rows = wanted_rows_;
  const auto& times = times_[static_cast<std::size_t>(pass)];
  const auto modelled = [&](const LayerModel& model, std::size_t segment, int expert) {
    return model.segment_us(pass, segment, Part::experts, expert, launch_us_);
  };
  int reference = rank;
  if (rows[static_cast<std::size_t>(rank)] != wanted_rows[static_cast<std::size_t>(rank)]) {
    const auto distance = [&](int other) {
      const double a = static_cast<double>(rows[static_cast<std::size_t>(other)]) + 1;
      const double b = static_cast<double>(wanted_rows[static_cast<std::size_t>(rank)]) + 1;
      return std::abs(std::log(a / b));
    };
    for (int other = 0; other < static_cast<int>(rows.size()); ++other)
      if (distance(other) < distance(reference)) reference = other;
  }
  const double own = times.at(static_cast<std::size_t>(rank));
  const double measured = own > 0 ? times.at(static_cast<std::size_t>(reference)) / own : 1.0;
  const double before = modelled(recorded_, from, reference);
  return before > 0 ? measured * modelled(wanted_, to, rank) / before : measured;
}

Step Substitution::rewrite(Step step, int rank) const {
  const auto pass = pass_of(step);
  if (!pass) return step;
  const int expert = wanted_.job().topology.of(rank).expert;
  const std::vector<std::size_t> starts = recorded_.layer_starts(*pass, step);
  const std::size_t layers = starts.size();
  const bool same_calls = same_calls_[static_cast<std::size_t>(*pass)];
  const std::size_t before = recorded_.calls(*pass);
  const std::size_t after = wanted_.calls(*pass);
  if (after == 0)
    throw InputError("found a dispatcher without exchanges in a recording that has them, expected one with");
  const auto old_us = [&](std::size_t s, Part part) {
    return recorded_.segment_us(*pass, s, part, expert, launch_us_);
  };
  const auto new_us = [&](std::size_t s, Part part) {
    return wanted_.segment_us(*pass, s, part, expert, launch_us_);
  };
  const auto old_experts = expert_segments(recorded_, *pass);
  const auto new_experts = expert_segments(wanted_, *pass);
  check(old_experts.size() == 1 && old_experts.front() > 0 && old_experts.front() < before,
        "recorded experts work between two calls");
  double wanted_experts_us = 0;
  for (const std::size_t s : new_experts) wanted_experts_us += new_us(s, Part::experts);

  Step out = step;
  out.calls.clear();
  out.segments_us.clear();
  out.expert_segments.clear();
  out.segment_categories.clear();
  out.bounds.clear();
  const auto add_segment = [&](double us, bool works, sim::Category category, const Bound& bound) {
    out.segments_us.push_back(std::max(0.0, us));
    out.expert_segments.push_back(works);
    out.segment_categories.push_back(category);
    if (!step.bounds.empty()) out.bounds.push_back(bound);
  };
  for (std::size_t l = 0; l <= layers; ++l) {
    // Attention, router and the ends of the model, which are the same for all dispatchers.
    Between between(step, l > 0 ? starts[l - 1] + before : 0, l < layers ? starts[l] : step.calls.size());
    const models::Architecture& model = recorded_.job().architecture;
    if (!same_program_ && *pass == Pass::forward && l < layers)
      while (!between.calls.empty() && routes(between.calls.back(), model))
        between.drop(between.calls.size() - 1);
    if (!same_program_ && *pass == Pass::backward && l > 0)
      while (!between.calls.empty() && routes(between.calls.front(), model)) between.drop(0);
    if (l > 0) between.us.front() += new_us(after, Part::dispatcher) - old_us(before, Part::dispatcher);
    if (l < layers) between.us.back() += new_us(0, Part::dispatcher) - old_us(0, Part::dispatcher);
    for (std::size_t s = 0; s < between.us.size(); ++s)
      add_segment(between.us[s], false, sim::Category::attention,
                  between.bounds.empty() ? Bound() : between.bounds[s]);
    out.calls.insert(out.calls.end(), between.calls.begin(), between.calls.end());
    if (l == layers) break;

    double unexplained = 0;  // of the recorded dispatcher's own segments
    double experts = 0;
    for (std::size_t s = 1; s < before; ++s) {
      const double own = old_us(s, Part::dispatcher);
      const double measured = step.segments_us[starts[l] + s];
      if (s == old_experts.front())
        experts = std::max(0.0, measured - own);
      else
        unexplained += measured - own;
    }
    experts *= expert_ratio(*pass, old_experts.front(), new_experts.front(), expert);
    for (std::size_t s = 1; s < after; ++s) {
      // Unexplained time stays in place where the calls are the same, else it is the host's.
      double us = new_us(s, Part::dispatcher);
      if (!same_calls)
        us += s == 1 && after > 2 ? unexplained : 0.0;
      else if (s != old_experts.front())
        us += step.segments_us[starts[l] + s] - old_us(s, Part::dispatcher);
      const bool works = wanted_.has_experts(*pass, s);
      if (works) us += experts * new_us(s, Part::experts) / wanted_experts_us;
      add_segment(us, works,
                  works                     ? sim::Category::expert
                  : s < new_experts.front() ? sim::Category::permute
                                            : sim::Category::unpermute,
                  {});
    }
    for (std::size_t c = 0; c < after; ++c) {
      const auto same = same_[static_cast<std::size_t>(*pass)][c];
      Call made = wanted_.call(*pass, c, rank);
      if (same) {
        const auto category = made.category;
        made = step.calls[starts[l] + *same];
        made.category = category;
      }
      out.calls.push_back(made);
    }
  }
  if (same_calls) {
    // The calls determine the segments between them, as in the recording.
    out.expert_segments = step.expert_segments;
    out.segment_categories = step.segment_categories;
  }
  return out;
}

LayerSegments layer_segments(const CleanJob& job, const LayerModel& model) {
  LayerSegments out;
  const auto ranks = static_cast<std::size_t>(job.topology.expert);
  for (const Pass pass : {Pass::forward, Pass::backward})
    out[static_cast<std::size_t>(pass)].assign(model.calls(pass) + 1, std::vector<double>(ranks, 0.0));
  std::array<std::vector<double>, 2> samples{std::vector<double>(ranks, 0.0),
                                             std::vector<double>(ranks, 0.0)};
  for (const auto& [key, place] : job.places)
    for (const Step& step : place.steps) {
      const auto pass = pass_of(step);
      if (!pass) continue;
      const std::vector<std::size_t> starts = model.layer_starts(*pass, step);
      auto& mean = out[static_cast<std::size_t>(*pass)];
      const auto e = static_cast<std::size_t>(key.expert);
      for (const std::size_t start : starts)
        for (std::size_t s = 1; s < model.calls(*pass); ++s) mean[s][e] += step.segments_us[start + s];
      samples[static_cast<std::size_t>(*pass)][e] += static_cast<double>(starts.size());
    }
  for (std::size_t p = 0; p < 2; ++p)
    for (auto& segment : out[p])
      for (std::size_t e = 0; e < ranks; ++e)
        if (samples[p][e] > 0) segment[e] /= samples[p][e];
  return out;
}

namespace {

Substitution substitution(const CleanJob& job, const LayerModel& recorded, const LayerModel& wanted,
                          const models::Cluster& cluster) {
  const LayerSegments segments = layer_segments(job, recorded);
  const double launch = recorded_launch_us(recorded, cluster, segments[0]);
  Substitution::ExpertTimes times;
  for (const Pass pass : {Pass::forward, Pass::backward})
    times[static_cast<std::size_t>(pass)] =
        segments[static_cast<std::size_t>(pass)].at(expert_segments(recorded, pass).front());
  return {recorded, wanted, launch, std::move(times)};
}

}  // namespace

CleanJob substituted(const CleanJob& job, const LayerModel& recorded, const LayerModel& wanted,
                     const models::Cluster& cluster) {
  const Substitution change = substitution(job, recorded, wanted, cluster);
  CleanJob out = job;
  const std::vector<std::int64_t> rows = wanted.job().received();
  for (auto& [key, place] : out.places) {
    for (Step& step : place.steps)
      step = change.rewrite(std::move(step), job.topology.rank({key.tp, key.expert, 0, key.pp}));
    place.received_rows = rows.at(static_cast<std::size_t>(key.expert));
  }
  if (wanted.job().routing_given) out.routing = wanted.job().routing;
  fit_expert_slope(out);
  return out;
}

void substitute(std::vector<RankSteps>& plans, const CleanJob& clean, const LayerModel& recorded,
                const LayerModel& wanted, const models::Cluster& cluster) {
  const Substitution change = substitution(clean, recorded, wanted, cluster);
  for (RankSteps& plan : plans)
    for (Step& step : plan.steps) step = change.rewrite(std::move(step), plan.rank);
}

namespace {

// Splices a step of all layers from steps that `model` made under every layer's routing: each layer from its
// own. In backward the last layer comes first.
Step spliced(const std::vector<const Step*>& of_layer, Pass pass, const LayerModel& model) {
  const std::size_t layers = of_layer.size(), calls = model.calls(pass);
  const std::vector<std::size_t> starts = model.layer_starts(pass, *of_layer.front());
  const auto at = [&](std::size_t place) {
    return of_layer[pass == Pass::forward ? place : layers - 1 - place];
  };
  Step out = *at(0);
  for (std::size_t place = 1; place < layers; ++place) {
    const Step& own = *at(place);
    for (std::size_t s = starts[place]; s <= starts[place] + calls; ++s)
      out.segments_us[s] = own.segments_us[s];
    for (std::size_t c = starts[place]; c < starts[place] + calls; ++c) out.calls[c] = own.calls[c];
  }
  return out;
}

std::vector<LayerModel> models_of(const RoutedLayers& routed, const models::DispatcherSpec& dispatcher,
                                  const models::Cluster& cluster) {
  std::vector<LayerModel> models;
  for (const JobModel& job : routed.jobs) models.emplace_back(job, dispatcher, cluster);
  return models;
}

}  // namespace

void route_layers(CleanJob& job, const LayerModel& recorded, const RoutedLayers& routed,
                  const models::DispatcherSpec& dispatcher, const models::Cluster& cluster) {
  std::vector<CleanJob> under;
  for (const LayerModel& wanted : models_of(routed, dispatcher, cluster))
    under.push_back(substituted(job, recorded, wanted, cluster));
  const auto layers = static_cast<std::size_t>(recorded.job().layers_per_stage());
  for (const std::vector<std::size_t>& tables : routed.table) {
    auto& places = job.by_microbatch.emplace_back(job.places);
    for (auto& [key, place] : places) {
      const std::size_t first = static_cast<std::size_t>(key.pp) * layers;
      std::int64_t rows = 0;
      for (std::size_t l = 0; l < layers; ++l) rows += under[tables[first + l]].places.at(key).received_rows;
      place.received_rows = rows / static_cast<std::int64_t>(layers);
      for (std::size_t s = 0; s < place.steps.size(); ++s) {
        const auto pass = pass_of(place.steps[s]);
        if (!pass) continue;
        std::vector<const Step*> of_layer;
        for (std::size_t l = 0; l < layers; ++l)
          of_layer.push_back(&under[tables[first + l]].places.at(key).steps[s]);
        place.steps[s] = spliced(of_layer, *pass, recorded);
      }
    }
  }
}

void route_layers(std::vector<RankSteps>& plans, const CleanJob& clean, const LayerModel& recorded,
                  const RoutedLayers& routed, const models::DispatcherSpec& dispatcher,
                  const models::Cluster& cluster) {
  const std::vector<LayerModel> models = models_of(routed, dispatcher, cluster);
  std::vector<Substitution> changes;
  changes.reserve(models.size());
  for (const LayerModel& wanted : models) changes.push_back(substitution(clean, recorded, wanted, cluster));
  const auto layers = static_cast<std::size_t>(recorded.job().layers_per_stage());
  for (RankSteps& plan : plans) {
    const auto first = static_cast<std::size_t>(recorded.job().topology.of(plan.rank).pp) * layers;
    for (Step& step : plan.steps) {
      const auto pass = pass_of(step);
      if (!pass) continue;
      const auto& tables = routed.table[static_cast<std::size_t>(step.microbatch) % routed.table.size()];
      std::vector<Step> made;
      for (std::size_t l = 0; l < layers; ++l)
        made.push_back(changes[tables[first + l]].rewrite(step, plan.rank));
      std::vector<const Step*> of_layer;
      of_layer.reserve(made.size());
      for (const Step& step : made) of_layer.push_back(&step);
      step = spliced(of_layer, *pass, models.front());
    }
  }
}

}  // namespace moesim::replay
