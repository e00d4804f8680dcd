#include "replay/recording/denoise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/input_error.h"
#include "base/statistics.h"
#include "models/hardware/estimate.h"
#include "replay/recording/recorded_routing.h"

namespace moesim::replay {

namespace {

// The quantile of a pool whose noise only adds time. The effects add the jitter of a run, so this is the
// undisturbed time of a segment: 2 % below the median of a run on the development recordings
// (docs/replay.md).
constexpr double kLowQuantile = 0.05;
constexpr double kMedian = 0.5;
constexpr double kRanksOfALine = 4;         // expert ranks needed to smooth their times by a line
constexpr double kMostSmoothing = 0.1;      // a larger change is not noise
constexpr double kTellRemoved = 0.02;       // share of a pool
constexpr double kEmbeddingLookupUs = 100;  // two launches of eager code, as in the runs

// A call's place in its layer: what is called, over which group, and which of the layer's calls it is.
using CallSign = std::tuple<std::string, GroupKind, int>;

// Returns the signs of calls by themselves: exchanges alternate between dispatch and combine, tensor-parallel
// calls between attention and FFN, and calls of one kind in a row (AllGather's ids, probabilities and rows) are
// numbered.
std::vector<CallSign> signs_alone(const std::vector<Call>& calls) {
  constexpr int kMostInARow = 1000;
  std::map<std::pair<std::string, GroupKind>, int> seen;
  std::vector<CallSign> signs;
  for (std::size_t c = 0, first = 0; c < calls.size(); ++c) {
    const Call& call = calls[c];
    const std::pair key{std::string(call.source) + " " + std::string(sim::name(call.op)), call.group};
    const bool alternates = is_exchange(call) || call.group == GroupKind::tp;
    const int parity = call.probabilities ? 2 : alternates ? seen[key]++ % 2 : 0;
    const Call& start = calls[first];
    if (call.source != start.source || call.op != start.op || call.group != start.group || alternates)
      first = c;
    signs.emplace_back(key.first, key.second, parity * kMostInARow + static_cast<int>(c - first));
  }
  return signs;
}

// The part of a list that repeats itself every `period` entries; the whole list where no half of it does.
struct Repetition {
  std::size_t begin = 0, end = 0, period = 0;

  std::size_t times() const { return period == 0 ? 1 : (end - begin) / period; }
};

// `times`: as often as it has to repeat itself; 0: any number.
Repetition repetition_of(const std::vector<CallSign>& signs, std::size_t times) {
  const std::size_t size = signs.size();
  for (std::size_t period = 1; 2 * period <= size; ++period)
    for (std::size_t end = period, begin = 0; end <= size; ++end) {
      if (end < size && signs[end] == signs[end - period]) continue;
      const Repetition found{begin, end, period};
      if (end - begin >= std::max(2 * period, size / 2) && (times == 0 || found.times() == times))
        return found;
      begin = end + 1 - period;
    }
  return {0, size, size};
}

// Returns the place of every call of a step. A stage's layers repeat their calls, and equal calls of a layer are
// told apart by their number in it. It begins at its first calls in alphabetical order, so that it begins at the
// same call in every stage, whatever stands before the layers.
std::vector<CallSign> numbered(std::vector<CallSign> signs, const Repetition& layers) {
  constexpr int kMostAlike = 1'000'000;
  std::vector<CallSign> layer, first;
  std::size_t start = 0;
  for (std::size_t from = 0; from < layers.period; ++from) {
    layer.clear();
    for (std::size_t i = 0; i < layers.period; ++i)
      layer.push_back(signs[layers.begin + (from + i) % layers.period]);
    if (from == 0 || layer < first) first = layer, start = from;
  }
  std::map<CallSign, int> count;
  std::vector<int> number(first.size());
  std::ranges::transform(first, number.begin(), [&](const CallSign& sign) { return count[sign]++; });
  for (std::size_t i = layers.begin; i < layers.end; ++i)
    std::get<int>(signs[i]) +=
        kMostAlike * number[(i - layers.begin + layers.period - start) % layers.period];
  return signs;
}

// Returns the signs of each step's calls. Backward has as many layers as forward, which repeats nothing inside of one.
std::vector<std::vector<CallSign>> signs_of(const RankSteps& rank) {
  std::vector<std::vector<CallSign>> all;
  std::size_t layers = 0;
  for (const Step& step : rank.steps) {
    std::vector<CallSign> signs = signs_alone(step.calls);
    const Repetition found = repetition_of(signs, layers);
    if (step.kind == StepKind::forward) layers = found.times();
    all.push_back(numbered(std::move(signs), found));
  }
  return all;
}

// The key under which segments are samples of the same time.
struct SegmentClass {
  StepKind step;
  std::optional<CallSign> before;
  std::optional<CallSign> after;
  int ends = 0;       // the ends of the model in it: 1 embedding, 2 output head, or their gradients
  bool cold = false;  // the experts' first backward of an iteration, unless the loss came before
  int load = -1;      // expert rank where the work depends on its rows

  friend auto operator<=>(const SegmentClass&, const SegmentClass&) = default;
};

bool is_middle(int stage, int stages) { return stage > 0 && stage + 1 < stages; }

constexpr int kEmbedding = 1, kOutput = 2;

// Returns the ends of the model in the first or last segment of a step. All other segments do the same work
// in every stage, so that a deep pipeline still has samples of them.
int ends_in(StepKind step, bool first, bool last, int stage, int stages) {
  const bool forward = step == StepKind::forward, backward = step == StepKind::backward;
  int ends = 0;
  if (stage == 0 && (backward ? last : forward ? first : true)) ends |= kEmbedding;
  if (stage == stages - 1 && (backward ? first : forward ? last : true)) ends |= kOutput;
  return ends;
}

std::vector<SegmentClass> classes_of(const Step& step, const std::vector<CallSign>& signs, int stage,
                                     int stages, int expert) {
  std::vector<SegmentClass> classes;
  bool cold = step.kind == StepKind::backward && stage + 1 < stages;
  for (std::size_t s = 0; s < step.segments_us.size(); ++s) {
    SegmentClass made{step.kind, {}, {}, 0, false, -1};
    if (s > 0) made.before = signs[s - 1];
    if (s < signs.size()) made.after = signs[s];
    made.ends = ends_in(step.kind, s == 0, s == signs.size(), stage, stages);
    if (in_experts(step, s)) {
      made.load = expert;
      made.cold = std::exchange(cold, false);
    }
    classes.push_back(std::move(made));
  }
  return classes;
}

struct Sample {
  const RankSteps* rank;
  PlaceKey key;
};

void require_same_calls(const Sample& a, const Sample& b) {
  const auto differ = [&](const Step& step, const std::string& found, const std::string& expected) {
    throw InputError(place_of(*b.rank, step), found, expected);
  };
  const auto& steps_a = a.rank->steps;
  const auto& steps_b = b.rank->steps;
  const std::string reference =
      fmt::format("as on rank {}, which has the same place in its pipeline and expert group", a.rank->rank);
  for (std::size_t s = 0; s < std::min(steps_a.size(), steps_b.size()); ++s) {
    if (steps_a[s].kind != steps_b[s].kind)
      differ(steps_b[s], fmt::format("{} on rank {}", name(steps_b[s].kind), b.rank->rank),
             fmt::format("{} {}", name(steps_a[s].kind), reference));
    if (signs_alone(steps_a[s].calls) != signs_alone(steps_b[s].calls))
      differ(steps_b[s],
             fmt::format("{} calls in {} on rank {}", steps_b[s].calls.size(), name(steps_b[s].kind),
                         b.rank->rank),
             fmt::format("the {} calls {}", steps_a[s].calls.size(), reference));
    for (std::size_t c = 0; c < steps_a[s].calls.size(); ++c)
      if (steps_a[s].calls[c].rows != steps_b[s].calls[c].rows)
        differ(steps_b[s],
               fmt::format("{} rows in call {} of {} on rank {}", steps_b[s].calls[c].rows, c + 1,
                           name(steps_b[s].kind), b.rank->rank),
               fmt::format("{} rows {}", steps_a[s].calls[c].rows, reference));
  }
  if (steps_a.size() != steps_b.size())
    throw InputError(SourcePlace{b.rank->recording->file},
                     fmt::format("{} operations on rank {}", steps_b.size(), b.rank->rank),
                     fmt::format("{} {}", steps_a.size(), reference));
}

std::int64_t received_rows(const Step& forward) {
  std::size_t exchanges = 0;
  for (const Call& call : forward.calls)
    if (is_exchange(call) && ++exchanges == 2) return call.rows;  // the first combine
  return 0;
}

class Denoiser {
 public:
  Denoiser(std::span<const RecordedJob> passes, const models::RoutingSpec* routing)
      : passes_(passes), routing_(routing) {}

  CleanJob run() {
    check(!passes_.empty(), "a recording to clean");
    job_.topology = passes_.front().topology;
    for (const RecordedJob& pass : passes_)
      for (const RankSteps& rank : pass.ranks) {
        const Coordinates at = job_.topology.of(rank.rank);
        samples_.push_back({&rank, {at.pp, at.tp, at.expert}});
      }
    job_.samples = samples_.size();
    pool();
    fill_places();
    job_.removed = removed();
    smooth_forward_experts();
    complete_places();
    fit_expert_slope(job_);
    return std::move(job_);
  }

 private:
  void pool() {
    for (const Sample& sample : samples_) {
      const auto signs = signs_of(*sample.rank);
      for (std::size_t i = 0; i < signs.size(); ++i) {
        const Step& step = sample.rank->steps[i];
        const auto classes = classes_of(step, signs[i], sample.key.pp, job_.topology.pp, sample.key.expert);
        for (std::size_t s = 0; s < classes.size(); ++s) pools_[classes[s]].push_back(step.segments_us[s]);
        if (step.kind == StepKind::optimizer)
          optimizer_rate_ = std::min(optimizer_rate_, step.duration_us / parameters_of(*sample.rank));
      }
    }
  }

  // The first segment of forward resembles those between layers: attention and router. In the runs it takes
  // equally long (entering the step costs as much as the unpermute before them), on the first stage longer by
  // the embedding's lookup. It has far fewer samples, so those segments, or with one layer per stage the
  // other stages' first segments, bound it.
  double bound_of_head(const SegmentClass& head) {
    double bound = std::numeric_limits<double>::infinity();
    for (const auto& [key, pool] : pools_)
      if (key.step == StepKind::forward && key.load < 0 && key.after == head.after &&
          (key.before || key.ends == 0))
        bound = std::min(bound, quantile_of(pool, kLowQuantile));
    return bound + (head.ends == 0 ? 0.0 : kEmbeddingLookupUs);
  }

  // One GPU grows its allocator in the first backward of the experts, unless the loss has done so: 0.25 ms on
  // the development recordings, and nothing in the runs. Later layers show the true time.
  double backward_us(const SegmentClass& key) {
    SegmentClass warm = key, cold = key;
    warm.cold = false;
    cold.cold = true;
    std::vector<double> all = pools_.contains(warm) ? pools_.at(warm) : pools_.at(cold);
    const double alone = quantile_of(all, kMedian);
    if (!pools_.contains(warm) || !pools_.contains(cold)) return alone;
    all.insert(all.end(), pools_.at(cold).begin(), pools_.at(cold).end());
    return std::min(alone, quantile_of(std::move(all), kMedian));
  }

  // The optimizer scales with the parameters and has levels, by the number of clipped gradients: takes the
  // lowest of all ranks; an effect adds clipping back.
  static double parameters_of(const RankSteps& rank) {
    double elements = 0;
    for (const Step& step : rank.steps)
      if (step.kind == StepKind::dp_all_reduce || step.kind == StepKind::expert_all_reduce)
        elements += static_cast<double>(step.elements);
    return std::max(1.0, elements);
  }

  double clean(const SegmentClass& key) {
    const auto [at, added] = cleaned_.try_emplace(key, 0.0);
    if (!added) return at->second;
    if (key.step == StepKind::forward) {
      at->second = quantile_of(pools_.at(key), kLowQuantile);
      if (!key.before && key.after) at->second = std::min(at->second, bound_of_head(key));
    } else if (key.load >= 0) {
      at->second = backward_us(key);
    } else {
      at->second = quantile_of(pools_.at(key), kMedian);
    }
    return at->second;
  }

  void fill_places() {
    std::map<PlaceKey, const Sample*> first;
    for (const Sample& sample : samples_) {
      const auto [at, added] = first.try_emplace(sample.key, &sample);
      if (!added) {
        // Passes may name their gradient lines differently; only replicas of one pass must agree.
        if (same_pass(*at->second, sample)) require_same_calls(*at->second, sample);
        continue;
      }
      CleanPlace place;
      const auto signs = signs_of(*sample.rank);
      for (std::size_t i = 0; i < signs.size(); ++i) {
        Step step = sample.rank->steps[i];
        const auto classes = classes_of(step, signs[i], sample.key.pp, job_.topology.pp, sample.key.expert);
        step.duration_us = 0;
        for (std::size_t s = 0; s < classes.size(); ++s) {
          step.segments_us[s] = step.kind == StepKind::optimizer
                                    ? optimizer_rate_ * parameters_of(*sample.rank)
                                    : clean(classes[s]);
          step.duration_us += step.segments_us[s];
        }
        for (Call& call : step.calls) call.recorded_us = 0;
        if (step.kind == StepKind::forward) place.received_rows = received_rows(step);
        place.steps.push_back(std::move(step));
      }
      job_.places.emplace(sample.key, std::move(place));
    }
  }

  // Compares the pools with what is left of them.
  std::string removed() const {
    struct Part {
      double before = 0, after = 0;
      double share() const { return before > 0 ? 1 - after / before : 0; }
    };
    Part forward, backward, worst;
    const SegmentClass* of_worst = nullptr;
    for (const auto& [key, us] : cleaned_) {
      Part pool{0, us * static_cast<double>(pools_.at(key).size())};
      for (const double one : pools_.at(key)) pool.before += one;
      if (key.step != StepKind::forward && key.step != StepKind::backward) continue;
      Part& pass = key.step == StepKind::forward ? forward : backward;
      pass.before += pool.before, pass.after += pool.after;
      if (pool.share() > worst.share()) worst = pool, of_worst = &key;
    }
    if (worst.share() <= kTellRemoved) return "";
    const auto call = [](const std::optional<CallSign>& sign, const char* none) {
      return sign ? std::get<0>(*sign) : none;
    };
    return fmt::format(
        "removed as noise: {:.1f} % of forward's computing and {:.1f} % of backward's; at most {:.1f} %, of the {} "
        "segments from {} to {}",
        100 * forward.share(), 100 * backward.share(), 100 * worst.share(), name(of_worst->step),
        call(of_worst->before, "the step's start"), call(of_worst->after, "its end"));
  }

  // Forward and backward of the experts are the same products, and backward has no allocator noise: over all
  // expert ranks the cleaned forward times follow the backward times on a line. With enough ranks the line
  // replaces them, which smooths ranks whose few samples were all disturbed.
  void smooth_forward_experts() {
    struct Times {
      double forward = 0, backward = 0;
    };
    std::map<int, Times> ranks;
    const auto visit = [&](const auto& act) {
      for (auto& [key, place] : job_.places)
        for (Step& step : place.steps)
          for (std::size_t s = 0; s < step.segments_us.size(); ++s)
            if ((step.kind == StepKind::forward || step.kind == StepKind::backward) && in_experts(step, s))
              act(ranks[key.expert], step.kind, step.segments_us[s]);
    };
    visit([](Times& times, StepKind kind, double us) {
      (kind == StepKind::forward ? times.forward : times.backward) = us;
    });
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (const auto& [expert, t] : ranks) {
      if (t.forward <= 0 || t.backward <= 0) return;
      n += 1, sx += t.backward, sy += t.forward, sxx += t.backward * t.backward,
          sxy += t.backward * t.forward;
    }
    const double spread = n * sxx - sx * sx;
    if (n < kRanksOfALine || spread <= 1e-6 * n * sxx) return;
    const double slope = (n * sxy - sx * sy) / spread;
    const double start = (sy - slope * sx) / n;
    visit([&](const Times& times, StepKind kind, double& us) {
      if (kind == StepKind::forward)
        us = std::clamp(start + slope * times.backward, us * (1 - kMostSmoothing), us * (1 + kMostSmoothing));
    });
  }

  bool same_pass(const Sample& a, const Sample& b) const {
    for (const RecordedJob& pass : passes_) {
      const auto holds = [&](const Sample& sample) {
        return sample.rank >= pass.ranks.data() && sample.rank < pass.ranks.data() + pass.ranks.size();
      };
      if (holds(a)) return holds(b);
    }
    return false;
  }

  // A representative recording has one rank per stage and expert rank, or one per stage.
  void complete_places() {
    const Topology& topology = job_.topology;
    const std::map<PlaceKey, CleanPlace> recorded_places = job_.places;
    const std::size_t recorded = job_.places.size();
    require_stages();
    std::optional<std::vector<std::int64_t>> rows;
    for (int pp = 0; pp < topology.pp; ++pp)
      for (int tp = 0; tp < topology.tp; ++tp)
        for (int expert = 0; expert < topology.expert; ++expert) {
          const PlaceKey key{pp, tp, expert};
          if (job_.places.contains(key)) continue;
          if (const auto source = stand_in(key)) {
            job_.places.emplace(key, job_.places.at(*source));
            continue;
          }
          if (!rows) rows = rows_of_experts();
          if (rows->empty())
            throw InputError(SourcePlace{file()},
                             fmt::format("no recording of stage {}, expert rank {} (for instance rank {})",
                                         pp, expert, topology.rank({tp, expert, 0, pp})),
                             "one rank for every pipeline stage and expert rank, or --routing with a file of "
                             "the rows that each receives; symmetry cannot fill this one");
          job_.places.emplace(key, of_other_experts(key, recorded_places, *rows));
        }
    const std::size_t needed = job_.places.size();
    const std::size_t world = static_cast<std::size_t>(topology.world());
    std::size_t distinct = 0;
    for (const RankSteps& rank : passes_.front().ranks) distinct += rank.rank >= 0;
    if (distinct < world)
      job_.warnings.push_back(fmt::format(
          "{} of {} ranks were recorded; the others are filled by symmetry ({} of {} places are recorded)",
          distinct, world, recorded, needed));
  }

  std::string file() const {
    const auto& ranks = passes_.front().ranks;
    return ranks.empty() ? "" : ranks.front().recording->file;
  }

  // Middle stages stand in for each other; no expert rank of another stage does for a whole one.
  void require_stages() const {
    std::set<int> stages;
    for (const auto& [key, place] : job_.places)
      stages.insert(is_middle(key.pp, job_.topology.pp) ? 1 : key.pp);
    std::vector<int> lacking;
    for (int pp = 0; pp < job_.topology.pp; ++pp)
      if (!stages.contains(is_middle(pp, job_.topology.pp) ? 1 : pp)) lacking.push_back(pp);
    if (!lacking.empty())
      throw InputError(SourcePlace{file()},
                       fmt::format("no recording of stage {} (for instance rank {})",
                                   fmt::join(lacking, ", "), job_.topology.rank({0, 0, 0, lacking.front()})),
                       "one rank of every pipeline stage; middle stages stand in for each other");
  }

  // By expert rank, from the routing file; empty: not known. Notes the expert ranks that no stage has.
  std::vector<std::int64_t> rows_of_experts() {
    if (routing_ == nullptr) return {};
    const Step* forward = job_.places.begin()->second.find(StepKind::forward);
    std::int64_t sent = 0;
    for (std::size_t c = 0; forward != nullptr && c < forward->calls.size() && sent == 0; ++c)
      if (is_exchange(forward->calls[c])) sent = forward->calls[c].rows;
    const int ranks = job_.topology.expert;
    std::vector<std::int64_t> rows = rows_of_ranks(*routing_, ranks, sent * job_.topology.tp * ranks);
    for (int e = 0; e < ranks && !rows.empty(); ++e)
      if (std::ranges::none_of(job_.places, [&](const auto& one) { return one.first.expert == e; }))
        job_.unrecorded.insert(e);
    for (const auto& [key, place] : job_.places)
      if (!rows.empty() && place.received_rows > 0 &&
          place.received_rows != rows.at(static_cast<std::size_t>(key.expert)))
        throw InputError(
            fmt::format("{}: found {} rows for an expert rank that got {} in the recording, "
                        "expected the routing of this recording",
                        routing_->path, rows[static_cast<std::size_t>(key.expert)], place.received_rows));
    return rows;
  }

  // Returns the place of a stage's recorded expert rank with the nearest rows, with the rows of `key`'s; and its times
  // of the experts where another stage has them.
  CleanPlace of_other_experts(const PlaceKey& key, const std::map<PlaceKey, CleanPlace>& recorded,
                              const std::vector<std::int64_t>& rows) const {
    const auto rows_of = [&](int expert) { return rows[static_cast<std::size_t>(expert)]; };
    const auto same_stage = [&](const PlaceKey& other) {
      return other.pp == key.pp ||
             (is_middle(key.pp, job_.topology.pp) && is_middle(other.pp, job_.topology.pp));
    };
    const CleanPlace *nearest = nullptr, *own = nullptr;
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [other, place] : recorded) {
      if (other.expert == key.expert) own = &place;
      const double distance = ratio_apart(rows_of(other.expert), rows_of(key.expert));
      if (same_stage(other) && distance < least) least = distance, nearest = &place;
    }
    CleanPlace out = *nearest;
    if (out.received_rows > 0) out.received_rows = rows_of(key.expert);
    for (Step& step : out.steps) {
      if (step.kind != StepKind::forward && step.kind != StepKind::backward) continue;
      const Step* like = own != nullptr ? own->find(step.kind) : nullptr;
      for (std::size_t s = 0; s < step.segments_us.size(); ++s)
        if (like != nullptr && like->segments_us.size() == step.segments_us.size() && in_experts(step, s))
          step.segments_us[s] = like->segments_us[s];
      std::size_t exchanges = 0;
      // The first of two exchanges of a layer starts from the sender's rows, the second from the expert's.
      for (Call& call : step.calls)
        if (is_exchange(call) && ++exchanges % 2 == 0) call.rows = rows_of(key.expert);
    }
    return out;
  }

  // Tensor-parallel ranks do equal work, and so do middle stages.
  std::optional<PlaceKey> stand_in(const PlaceKey& key) const {
    const int stages = job_.topology.pp;
    for (const auto& [other, place] : job_.places)
      if (other.pp == key.pp && other.expert == key.expert) return other;
    if (is_middle(key.pp, stages))
      for (const auto& [other, place] : job_.places)
        if (other.expert == key.expert && is_middle(other.pp, stages)) return other;
    return std::nullopt;
  }

  std::span<const RecordedJob> passes_;
  const models::RoutingSpec* routing_;  // nullptr: none
  CleanJob job_;
  std::vector<Sample> samples_;
  std::map<SegmentClass, std::vector<double>> pools_;
  std::map<SegmentClass, double> cleaned_;
  double optimizer_rate_ = std::numeric_limits<double>::infinity();  // us per parameter
};

}  // namespace

const Step* CleanPlace::find(StepKind kind) const {
  const auto at = std::ranges::find(steps, kind, &Step::kind);
  return at == steps.end() ? nullptr : &*at;
}

CleanJob denoise(std::span<const RecordedJob> passes, const models::RoutingSpec* routing) {
  return Denoiser(passes, routing).run();
}

double ratio_apart(std::int64_t a, std::int64_t b) {
  return std::abs(std::log(static_cast<double>(a + 1) / static_cast<double>(b + 1)));
}

void fit_expert_slope(CleanJob& job) {
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (const auto& [key, place] : job.places)
    for (const Step& step : place.steps) {
      if (step.kind != StepKind::backward) continue;
      for (std::size_t s = 0; s < step.segments_us.size(); ++s) {
        if (!in_experts(step, s)) continue;
        const auto x = static_cast<double>(place.received_rows);
        n += 1, sx += x, sy += step.segments_us[s], sxx += x * x, sxy += x * step.segments_us[s];
      }
    }
  const double spread = n * sxx - sx * sx;
  if (n > 0 && spread > 1e-9 * n * sxx)
    job.expert_backward_us_per_row = std::max(0.0, (n * sxy - sx * sy) / spread);
  else if (sx > 0)
    job.expert_backward_us_per_row = sy / sx;  // balanced: all of it
}

}  // namespace moesim::replay
