// Overload factors of a training step (docs/spec.md 4): the busiest rank's rows over its balanced share, per
// layer and microbatch, and accumulated until backward.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moesim::models {

// One MoE layer of one microbatch on one dispatch group (a replica of the experts).
struct OverloadEntry {
  std::vector<std::int64_t> actual;    // a_r: rows computed, per rank of the tp_ep group
  std::vector<std::int64_t> balanced;  // its balanced share of all rows: T_r * K, times ETP
};

struct OverloadOptions {
  // The development branch divides u_r once more by R for the AllGather dispatcher (docs/spec.md 4.1): its
  // factors are R times those of AlltoAll for the same routing. Off: dispatchers are comparable.
  bool allgather_quirk = false;
  // A log's u_r counts a row once, its a_r once on every rank that computes a slice: perfect balance is ETP.
  int etp = 1;
};

// Returns f(x) of one entry.
double overload_factor(const OverloadEntry& entry, const OverloadOptions& options = {});

// A forward (+) or backward (-) of one entry in the order of the stage.
struct OverloadEvent {
  std::int32_t entry = 0;
  bool forward = true;
};

// One pipeline stage: entries[replica][entry], with the same order of events on all replicas.
struct OverloadStage {
  std::vector<std::vector<OverloadEntry>> replicas;
  std::vector<OverloadEvent> order;
};

struct Overload {
  double avg = 0;      // of this stage: not reduced over the pipeline
  double max = 0;      // over the pipeline
  double max_cum = 0;  // over the pipeline
};

// Returns the three metrics as every stage logs them. A stage without MoE layers logs avg 0 and the maxima of
// the others. Throws InputError when replicas have different numbers of entries or an event names a missing
// entry.
std::vector<Overload> overload_of(std::span<const OverloadStage> stages, const OverloadOptions& options = {});

// Returns the metrics of a single entry.
Overload overload_of(const OverloadEntry& entry, const OverloadOptions& options = {});

// Names of the metrics in docs/spec.md 4.
inline constexpr const char *kAvgOverload = "moe/avg_overload_factor",
                            *kMaxOverload = "moe/max_overload_factor",
                            *kMaxCumOverload = "moe/max_cum_overload_factor";

// Returns the peak rows of a rank under balanced routing over the stage's order; times max_cum it is the peak
// of the worst rank.
std::int64_t balanced_peak(const OverloadStage& stage);

// Buffer sizes from the metrics: rows of one layer's transient forward buffer on the worst rank, and rows
// kept until backward there, from the balanced rows of one entry and of the schedule's peak.
struct OverloadBuffers {
  double forward_rows = 0;
  double retained_rows = 0;
};
OverloadBuffers buffers_from(const Overload& overload, double balanced_rows, double balanced_peak_rows);

}  // namespace moesim::models
