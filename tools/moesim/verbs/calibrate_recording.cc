#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "models/costs/collectives.h"
#include "replay/recording/recorded_routing.h"
#include "replay/recording/steps.h"
#include "tools/moesim/verbs/calibrate_rows.h"
#include "traces/cmd_reader.h"

namespace moesim::tools {
namespace {

using calibration::CollectiveRow;
using calibration::ImportFacts;
using calibration::Measurements;
using replay::Call;
using replay::RankSteps;
using replay::Step;
using replay::StepKind;

constexpr int kUsualGpusPerNode = 8;
// Computing of at least this length before a call keeps the GPU busy until the host has launched it: three
// times the slowest recorded launch.
constexpr double kHostAheadUs = 500;

// Calls that are averaged: same place in a layer, same group, same bytes.
struct CallKey {
  StepKind step;
  sim::CollectiveOp op;
  std::string_view function;
  bool exposed;
  int nodes, per_node, first_rank;
  double bytes;

  auto tie() const { return std::tie(step, op, function, exposed, nodes, per_node, first_rank, bytes); }
  bool operator<(const CallKey& other) const { return tie() < other.tie(); }
};

// Returns the nccl-tests size of the equal collective that takes as long. `received`: rows for each member's
// experts, where the call exchanges rows; empty where the recording does not contain them.
double equivalent_bytes(const std::vector<const Call*>& calls, const std::vector<std::int64_t>& received) {
  const Call& first = *calls.front();
  const auto n = static_cast<int>(calls.size());
  if (first.op == sim::CollectiveOp::all_gather) return static_cast<double>(first.input_bytes()) * n;
  if (received.empty()) return static_cast<double>(first.input_bytes());
  const double row_bytes = static_cast<double>(first.row_elements) * first.element_bytes;
  const std::int64_t total = std::accumulate(received.begin(), received.end(), std::int64_t{0});
  std::vector<std::int64_t> sent(received.size(), total / n);
  for (std::int64_t r = 0; r < total % n; ++r) ++sent[static_cast<std::size_t>(r)];
  const auto load = models::CollectiveModel::load_of(models::GroupShape::uniform(1, n),
                                                     replay::recover_split_matrix(sent, received));
  const double busiest = *std::max_element(load.within.begin(), load.within.end());
  return busiest * n / (n - 1.0) * row_bytes;
}

std::vector<const Step*> steps_of(const RankSteps& rank) {
  std::vector<const Step*> steps;
  for (const Step& step : rank.steps)
    if (step.kind == StepKind::forward || step.kind == StepKind::backward) steps.push_back(&step);
  return steps;
}

// One group of ranks, all its calls in order.
class GroupReader {
 public:
  GroupReader(const replay::RecordedJob& job, replay::GroupKind kind, const std::vector<int>& members,
              int gpus_per_node)
      : kind_(kind) {
    std::map<int, int> per_node;
    for (const int member : members) {
      ++per_node[member / gpus_per_node];
      for (const RankSteps& rank : job.ranks)
        if (rank.rank == member) ranks_.push_back(&rank);
    }
    nodes_ = static_cast<int>(per_node.size());
    per_node_ = per_node.begin()->second;
    for (const auto& [node, count] : per_node) even_ = even_ && count == per_node_;
    complete_ = ranks_.size() == members.size();
  }

  bool usable() const { return complete_ && even_ && ranks_.size() > 1; }

  void collect(std::map<CallKey, std::vector<double>>& samples) const {
    std::vector<std::vector<const Step*>> steps;
    for (const RankSteps* rank : ranks_) steps.push_back(steps_of(*rank));
    for (std::size_t s = 0; s < steps.front().size(); ++s) {
      const std::size_t count = calls_of(*steps.front()[s]).size();
      for (std::size_t c = 0; c < count; ++c) {
        std::vector<const Call*> calls;
        bool exposed = false;
        double shortest = std::numeric_limits<double>::infinity();
        for (std::size_t r = 0; r < steps.size(); ++r) {
          const auto own = s < steps[r].size() ? calls_of(*steps[r][s]) : std::vector<std::size_t>{};
          if (c >= own.size() || steps[r][s]->kind != steps.front()[s]->kind ||
              steps[r][s]->calls[own[c]].op != first_call(steps, s, c).op)
            throw InputError(
                replay::place_of(*ranks_[r], *steps[r][std::min(s, steps[r].size() - 1)]),
                "a step whose calls differ from those of rank " + std::to_string(ranks_.front()->rank),
                "the same collectives on every member of a group");
          const Call& call = steps[r][s]->calls[own[c]];
          calls.push_back(&call);
          if (call.recorded_us < shortest) {
            shortest = call.recorded_us;
            exposed =
                !replay::in_experts(*steps[r][s], own[c]) || steps[r][s]->segments_us[own[c]] < kHostAheadUs;
          }
        }
        const bool back = replay::in_experts(*steps.front()[s], calls_of(*steps.front()[s])[c]);
        const double bytes = equivalent_bytes(calls, received_rows(steps, s, c, back));
        if (shortest <= 0 || bytes <= 0) continue;
        samples[{steps.front()[s]->kind, calls.front()->op, calls.front()->source, exposed, nodes_, per_node_,
                 ranks_.front()->rank, bytes}]
            .push_back(shortest);
      }
    }
  }

 private:
  std::vector<std::size_t> calls_of(const Step& step) const {
    std::vector<std::size_t> own;
    for (std::size_t c = 0; c < step.calls.size(); ++c)
      if (step.calls[c].group == kind_) own.push_back(c);
    return own;
  }
  const Call& first_call(const std::vector<std::vector<const Step*>>& steps, std::size_t s,
                         std::size_t c) const {
    return steps.front()[s]->calls[calls_of(*steps.front()[s])[c]];
  }

  // Returns the rows for each member's experts in exchange `c`: those of the return exchange.
  std::vector<std::int64_t> received_rows(const std::vector<std::vector<const Step*>>& steps, std::size_t s,
                                          std::size_t c, bool back) const {
    if (!replay::is_exchange(first_call(steps, s, c))) return {};
    std::vector<std::int64_t> rows;
    for (const auto& own_steps : steps) {
      const Step& step = *own_steps[s];
      const auto own = calls_of(step);
      std::size_t at = c;
      while (!back && ++at < own.size() && !replay::is_exchange(step.calls[own[at]])) {
      }
      if (at >= own.size()) return {};
      rows.push_back(step.calls[own[at]].rows);
    }
    return rows;
  }

  replay::GroupKind kind_;
  std::vector<const RankSteps*> ranks_;
  int nodes_ = 1, per_node_ = 1;
  bool even_ = true, complete_ = false;
};

// Recorders round to 10 us, so a mean is more precise than a median; it excludes the extremes.
double middle_mean(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t cut = values.size() / 10;
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(cut);
  const auto end = values.end() - static_cast<std::ptrdiff_t>(cut);
  return std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
}

}  // namespace

Measurements import_recording(const std::string& folder, const ImportFacts& facts) {
  const traces::Recording recording = traces::read_cmd(folder);
  const replay::RecordedJob job = replay::interpret(recording);
  if (!job.realistic)
    throw InputError({folder, 0, 0}, "a scaling recording, whose communication moved nothing",
                     "a realistic recording");
  if (facts.gpu.empty())
    throw InputError({folder, 0, 0}, "a recording, which does not name its GPU", "--gpu");
  const int gpus_per_node = facts.gpus_per_node > 0 ? facts.gpus_per_node : kUsualGpusPerNode;
  std::map<CallKey, std::vector<double>> samples;
  for (const auto kind : {replay::GroupKind::expert, replay::GroupKind::tp, replay::GroupKind::tp_expert,
                          replay::GroupKind::dp})
    for (const auto& members : job.topology.groups(kind)) {
      const GroupReader reader(job, kind, members, gpus_per_node);
      if (reader.usable()) reader.collect(samples);
    }
  const std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  const std::string name = (path.parent_path().filename() / path.filename()).string();
  Measurements result;
  for (const auto& [key, values] : samples) {
    CollectiveRow row;
    row.origin.place = {folder, 0, 0};
    row.origin.gpu = facts.gpu;
    row.origin.source = (facts.source.empty() ? std::string("a recording") : facts.source) + ", " + name +
                        (key.step == StepKind::forward ? ", forward" : ", backward");
    row.op = key.op;
    row.nodes = key.nodes;
    row.gpus_per_node = key.per_node;
    row.bytes = key.bytes;
    row.seconds = middle_mean(values) * 1e-6;
    row.datatype = "bfloat16";
    row.library = facts.library.empty() ? "NCCL (not recorded)" : facts.library;
    (key.exposed ? result.exposed_calls : result.collectives).push_back(std::move(row));
  }
  if (result.size() == 0)
    throw InputError({folder, 0, 0}, "no collectives inside forward and backward steps",
                     "a recording of a job with expert or tensor parallelism");
  return result;
}

}  // namespace moesim::tools
