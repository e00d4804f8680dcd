// Overload factors of a training step (docs/spec.md 4): how much more than its balanced share the
// busiest rank computes, per layer and microbatch, and how that piles up until backward.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moesim::models {

// One MoE layer of one microbatch on one dispatch group (a replica of the experts).
struct OverloadEntry {
  std::vector<std::int64_t> actual;    // a_r: rows computed, per rank of the tp_ep group
  std::vector<std::int64_t> balanced;  // its share of all rows: T_r * K, times ETP
};

struct OverloadOptions {
  // The development branch divides u_r once more by R for the AllGather dispatcher (docs/spec.md 4.1): its
  // factors come out R times those of AlltoAll for the same routing. Off: dispatchers are comparable.
  bool allgather_quirk = false;
  // A log's u_r counts a row once, its a_r on every rank that computes a slice of it: perfect balance is ETP.
  int etp = 1;
};

// f(x) of one entry.
double overload_factor(const OverloadEntry& entry, const OverloadOptions& options = {});

// A forward (+) or backward (-) of one entry in the order that a stage runs them.
struct OverloadEvent {
  std::int32_t entry = 0;
  bool forward = true;
};

// One pipeline stage: entries[replica][entry], the same order of events on all replicas.
struct OverloadStage {
  std::vector<std::vector<OverloadEntry>> replicas;
  std::vector<OverloadEvent> order;
};

struct Overload {
  double avg = 0;      // of this stage: not reduced over the pipeline
  double max = 0;      // over the pipeline
  double max_cum = 0;  // over the pipeline
};

// The three metrics as every stage logs them. A stage without MoE layers logs avg 0 and the others' maxima.
// Throws InputError when replicas have different numbers of entries or an event names none.
std::vector<Overload> overload_of(std::span<const OverloadStage> stages, const OverloadOptions& options = {});

// The metrics of a single entry.
Overload overload_of(const OverloadEntry& entry, const OverloadOptions& options = {});

// The metrics of the document, under its names.
inline constexpr const char *kAvgOverload = "moe/avg_overload_factor",
                            *kMaxOverload = "moe/max_overload_factor",
                            *kMaxCumOverload = "moe/max_cum_overload_factor";

// The most that a rank would hold at once if routing were balanced, over the stage's order: max_cum times it
// is what the worst rank holds.
std::int64_t balanced_peak(const OverloadStage& stage);

// Buffer sizes that follow: rows that one layer's transient forward buffer needs on the worst rank, and rows
// kept until backward there, from the metrics and the balanced rows of one entry and of the schedule's peak.
struct OverloadBuffers {
  double forward_rows = 0;
  double retained_rows = 0;
};
OverloadBuffers buffers_from(const Overload& overload, double balanced_rows, double balanced_peak_rows);

}  // namespace moesim::models
