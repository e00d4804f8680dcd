#include "models/step/step_overload.h"

#include <algorithm>
#include <map>
#include <utility>

#include "models/costs/program_prices.h"
#include "models/step/layer_programs.h"
#include "models/step/pipeline_layout.h"
#include "models/workload/placement.h"

namespace moesim::models {

namespace {

// Counts [routing, layer, rank, expert] that are drawn and added up; no pass is priced (kMostPriced).
constexpr std::int64_t kMostDrawn = std::int64_t{1} << 23;
constexpr int kMostReplicas = 16;
constexpr std::size_t kJournalEvents = 65536;  // in the tracker's journal on the device

// Returns the rows that every rank of the dispatch group computes under a routing; equal for ranks with the
// same experts.
std::vector<std::int64_t> received_rows(const Routing& routing, int ep, int etp) {
  const std::vector<std::int64_t> totals = routing.expert_totals();
  const std::size_t local = totals.size() / static_cast<std::size_t>(ep);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(ep * etp), 0);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::size_t first = r / static_cast<std::size_t>(etp) * local;
    for (std::size_t e = first; e < first + local; ++e) rows[r] += totals[e];
  }
  return rows;
}

// Returns T_r * K of every rank.
std::vector<std::int64_t> own_rows(const Routing& routing) {
  std::vector<std::int64_t> rows;
  rows.reserve(static_cast<std::size_t>(routing.ranks()));
  for (int r = 0; r < routing.ranks(); ++r) rows.push_back(routing.tokens(r) * routing.topk());
  return rows;
}

// Every row is computed in slices by `etp` ranks.
OverloadEntry entry_of(std::vector<std::int64_t> dispatched, std::vector<std::int64_t> own, int etp) {
  for (std::int64_t& rows : own) rows *= etp;
  return {std::move(dispatched), std::move(own)};
}

OverloadEntry entry_of(const Program& program) {
  return entry_of(program.dispatched_rows, program.balanced_rows, program.etp());
}

class Entries {
 public:
  Entries(const Scenario& s, const LayerPrograms& programs, const JobRouting& routing)
      : s_(s), programs_(programs), routing_(routing) {
    const Program& first = programs.first()->program;
    const Routing sample = routing.of(0, 0);
    const bool whole = sample.experts() % first.ep() == 0 && sample.ranks() == first.ranks();
    dropless_ = whole && first.dispatched_rows == received_rows(sample, first.ep(), first.etp()) &&
                first.balanced_rows == own_rows(sample);
    const std::int64_t layers = std::max<std::int64_t>(1, s.model.moe_layers());
    const std::int64_t counts = std::int64_t{sample.ranks()} * sample.experts() * layers;
    const std::int64_t all = s.parallel.microbatches * std::max<std::int64_t>(1, s.parallel.edp());
    drawn_ = routing.shared() ? 1
                              : std::clamp<std::int64_t>(kMostDrawn / std::max<std::int64_t>(1, counts), 1,
                                                         dropless_ ? all : s.parallel.microbatches);
  }

  // Returns the number of replicas with their own routing.
  int replicas() const {
    const std::int64_t known = std::max<std::int64_t>(1, drawn_ / s_.parallel.microbatches);
    return static_cast<int>(
        std::min<std::int64_t>({known, kMostReplicas, std::max<std::int64_t>(1, s_.parallel.edp())}));
  }

  std::int64_t drawn() const { return drawn_; }

  const OverloadEntry& of(int ordinal, std::int64_t replica, std::int64_t microbatch) {
    const std::int64_t draw = (replica * s_.parallel.microbatches + microbatch) % drawn_;
    const auto [at, added] = made_.try_emplace({routing_.shared() ? 0 : ordinal, draw});
    if (added) at->second = make(at->first.first, static_cast<int>(draw));
    return at->second;
  }

 private:
  OverloadEntry make(int ordinal, int draw) const {
    const Program& first = programs_.first()->program;
    if (ordinal == 0 && draw == 0) return entry_of(first);
    if (!dropless_) return entry_of(programs_.moe(ordinal, draw).program);
    const Routing routing = routing_.of(ordinal, draw);
    return entry_of(received_rows(routing, first.ep(), first.etp()), own_rows(routing), first.etp());
  }

  const Scenario& s_;
  const LayerPrograms& programs_;
  const JobRouting& routing_;
  bool dropless_ = false;   // rows follow from the routing alone
  std::int64_t drawn_ = 1;  // routings per layer
  std::map<std::pair<int, std::int64_t>, OverloadEntry> made_;
};

// Returns the MoE layers of a chunk, by their index among all.
std::vector<int> ordinals_of(const PipelineLayout& plan, const LayerPrograms& programs, std::int32_t chunk) {
  const Chunk& c = plan.chunks[static_cast<std::size_t>(chunk)];
  std::vector<int> ordinals;
  for (std::size_t i = 0; i < c.layers.size(); ++i)
    if (c.layers[i].ffn == LayerKind::Ffn::kMoe) ordinals.push_back(programs.ordinal(c.first + i));
  return ordinals;
}

OverloadStage stage_of(const PipelineLayout& plan, const LayerPrograms& programs,
                       const std::vector<PipelineSlot>& slots, Entries& entries) {
  OverloadStage stage;
  stage.replicas.resize(static_cast<std::size_t>(entries.replicas()));
  std::map<std::pair<int, int>, std::int32_t> known;  // layer, microbatch
  const auto event = [&](int ordinal, int microbatch, bool forward) {
    const auto [at, added] =
        known.try_emplace({ordinal, microbatch}, static_cast<std::int32_t>(stage.replicas.front().size()));
    if (added)
      for (std::size_t q = 0; q < stage.replicas.size(); ++q)
        stage.replicas[q].push_back(entries.of(ordinal, static_cast<std::int64_t>(q), microbatch));
    stage.order.push_back({at->second, forward});
  };
  using Kind = PipelineSlot::Kind;
  for (const PipelineSlot& slot : slots) {
    // The hook of backward runs with the gradients of the inputs.
    if (slot.kind == Kind::kWeightGradient) continue;
    const std::vector<int> layers = ordinals_of(plan, programs, slot.chunk);
    if (slot.kind == Kind::kForward) {
      for (const int layer : layers) event(layer, slot.microbatch, true);
    } else if (slot.kind != Kind::kOverlapped) {
      for (std::size_t i = layers.size(); i-- > 0;) event(layers[i], slot.microbatch, false);
    } else {
      // Layer by layer, forward first.
      const std::vector<int> back = ordinals_of(plan, programs, slot.back_chunk);
      for (std::size_t i = 0; i < std::max(layers.size(), back.size()); ++i) {
        if (i < layers.size()) event(layers[i], slot.microbatch, true);
        if (i < back.size()) event(back[back.size() - 1 - i], slot.back_microbatch, false);
      }
    }
  }
  return stage;
}

// Returns the part of a stage that a tracker sees when graphs replay its steps.
OverloadStage recorded(const OverloadStage& stage, const TrainingSettings& plan) {
  if (plan.launch != LaunchMode::kGraphs || plan.overload.recorder == OverloadLog::Recorder::kDeferredClear)
    return stage;
  if (plan.overload.recorder == OverloadLog::Recorder::kDirectClear) return {};
  OverloadStage kept = stage;
  if (kept.order.size() <= kJournalEvents) return kept;
  kept.order.resize(kJournalEvents);
  std::size_t entries = 0;  // numbered in the order of their forwards
  for (const OverloadEvent& event : kept.order)
    entries = std::max(entries, static_cast<std::size_t>(event.entry) + 1);
  for (auto& replica : kept.replicas) replica.resize(entries);
  return kept;
}

// Returns the bytes that a program keeps until backward per row received by its experts.
double kept_per_row(const Program& program) {
  const auto& rows = program.dispatched_rows;
  const auto most = std::max_element(rows.begin(), rows.end()),
             least = std::min_element(rows.begin(), rows.end());
  if (rows.empty() || *most == 0 || program.saved_bytes.size() != rows.size()) return 0;
  const auto high = program.saved_bytes[static_cast<std::size_t>(most - rows.begin())],
             low = program.saved_bytes[static_cast<std::size_t>(least - rows.begin())];
  // Memory independent of the received rows cancels in the difference.
  if (*most > *least) return static_cast<double>(high - low) / static_cast<double>(*most - *least);
  return static_cast<double>(high) / static_cast<double>(*most);
}

void add_buffers(const Scenario& s, const LayerPrograms& programs, const std::vector<OverloadStage>& stages,
                 StepOverload& out) {
  const Program& program = programs.first()->program;
  double balanced = 0;
  for (const std::int64_t rows : entry_of(program).balanced) balanced += static_cast<double>(rows);
  balanced /= static_cast<double>(std::max<std::size_t>(1, program.balanced_rows.size()));
  std::int64_t peak = 0;
  for (const OverloadStage& stage : stages) peak = std::max(peak, balanced_peak(stage));
  out.rows = buffers_from(out.stages.front(), balanced, static_cast<double>(peak));
  out.forward_bytes =
      out.rows.forward_rows * static_cast<double>(s.model.expert_width() * bytes_of(s.activation));
  out.retained_bytes = s.train ? out.rows.retained_rows * kept_per_row(program) : 0;
}

OverloadOptions logged_as(const Scenario& s, const LayerPrograms& programs) {
  return {s.training.overload.allgather_quirk && programs.dispatcher().starts_with("allgather"),
          programs.first()->program.etp()};
}

}  // namespace

StepOverload overload_of_step(const Scenario& s, const PipelineLayout& plan, const LayerPrograms& programs,
                              const JobRouting& routing) {
  Entries entries(s, programs, routing);
  StepOverload out;
  std::vector<OverloadStage> stages, known;
  for (const std::vector<PipelineSlot>& slots : plan.schedule) {
    stages.push_back(stage_of(plan, programs, slots, entries));
    known.push_back(recorded(stages.back(), s.training));
    out.entries += static_cast<std::int64_t>(stages.back().replicas.front().size());
    if (!known.back().replicas.empty())
      out.recorded += static_cast<std::int64_t>(known.back().replicas.front().size());
  }
  out.stages = overload_of(stages);
  // Recorded in training only.
  out.logged = s.train ? overload_of(known, logged_as(s, programs)) : std::vector<Overload>(stages.size());
  if (!s.train) out.recorded = 0;
  out.replicas = entries.replicas();
  out.routings = std::min<std::int64_t>(entries.drawn(), out.replicas * s.parallel.microbatches);
  out.of_replicas = static_cast<int>(std::max<std::int64_t>(1, s.parallel.edp()));
  add_buffers(s, programs, stages, out);
  return out;
}

StepOverload overload_of_layer(const Scenario& s, const LayerPrograms& programs) {
  const std::vector<OverloadStage> stages{{{{entry_of(programs.first()->program)}}, {{0, true}, {0, false}}}};
  StepOverload out;
  out.stages = overload_of(stages);
  out.logged = s.train ? overload_of(stages, logged_as(s, programs)) : std::vector<Overload>(1);
  out.entries = 1;
  out.recorded = s.train ? 1 : 0;
  add_buffers(s, programs, stages, out);
  return out;
}

OverloadReport overload_report(const Scenario& s, const PipelineLayout& plan, const LayerPrograms& programs,
                               const Placement& placement, const ProgramPricer& pricer) {
  using Report = OverloadLog::Report;
  OverloadReport out;
  if (s.training.overload.report == Report::kNone || !s.train) return out;
  std::size_t entries = 0;  // of the stage with the most
  for (const std::vector<PipelineSlot>& slots : plan.schedule) {
    std::size_t own = 0;
    for (const PipelineSlot& slot : slots)
      if (slot.kind == PipelineSlot::Kind::kForward || slot.kind == PipelineSlot::Kind::kOverlapped)
        own += ordinals_of(plan, programs, slot.chunk).size();
    entries = std::max(entries, own);
  }
  // The slowest class of groups counts: all meet in the next call.
  const auto all_reduce = [&](const Placement::Shapes& shapes, std::size_t floats) {
    if (shapes.front().ranks < 2) return;
    ++out.calls;
    double slowest = 0;
    for (const GroupShape& shape : shapes)
      slowest = std::max(slowest, pricer.collectives().seconds(sim::CollectiveOp::all_reduce, shape,
                                                               4.0 * static_cast<double>(floats)));
    out.seconds += static_cast<double>(pricer.launch_ps()) * 1e-12 + slowest;
  };
  Placement::Shapes group;
  for (const Placement::DispatchClass& alike : placement.dispatch_classes()) group.push_back(alike.shape);
  const Placement::Shapes& replicas = placement.expert_replicas().all;
  const Placement::Shapes pipeline = placement.pipelines();
  if (s.training.overload.report == Report::kFused) {
    // Both counts and the ratio of the peaks; mean and maximum; both maxima.
    all_reduce(group, 2 * entries + 1);
    all_reduce(replicas, 2 * entries + 1);
    all_reduce(pipeline, 2);
    return out;
  }
  // report() of the tracker, in its order: the ratio of the peaks over both groups, rows and balanced counts,
  // mean and maximum, and both maxima over the pipeline.
  all_reduce(group, 1);
  all_reduce(replicas, 1);
  all_reduce(group, entries);
  all_reduce(group, entries);
  all_reduce(replicas, entries);
  all_reduce(replicas, entries);
  all_reduce(pipeline, 2);
  return out;
}

}  // namespace moesim::models
