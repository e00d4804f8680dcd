// Facts about a recording derived from its lines, with their evidence: side of an experiment, writer,
// dispatcher, layers, rows and durations. The recording is not changed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "traces/call_roles.h"
#include "traces/recording.h"

namespace moesim::traces {

// The first comment line of files converted from a real run by a tool other than the CMD recorder: with one
// microbatch and without sends nothing else distinguishes them from a scaling recording.
inline constexpr std::string_view kRealRunHeader = " recorded: a real run";
bool says_real_run(const RankRecording& rank);

// Whether moesim-capture played this rank of a job with torch's fake process group.
bool on_fake_group(const RankRecording& rank);

// The device that made a recording, from our recorder's header ("device: cuda, NVIDIA H100 80GB HBM3").
// Public recordings do not contain it.
struct Device {
  bool cpu = false;
  std::string name;
  friend bool operator==(const Device&, const Device&) = default;
};
std::optional<Device> device_of(const RankRecording& rank);

// For a recording made by `moesim trace synthesize`, which was not measured.
struct Synthetic {
  std::string profile;  // source of its computing times
  std::string cluster;
};
std::optional<Synthetic> synthetic_of(const RankRecording& rank);
inline constexpr std::string_view kSyntheticHeader = " SYNTHETIC recording: ";

enum class Side {
  kScaling,    // one GPU ran the ranks in turn: one microbatch, communication written but not executed
  kRealistic,  // a real distributed run
  kUnclear
};
std::string_view to_string(Side side);

// Durations of one kind of operation or sub-operation, over all ranks.
struct DurationStats {
  std::string name;
  std::string parent;     // the operation, for sub-operations; "" otherwise
  std::string group;      // group_kind or group
  std::string comm_func;  // sub-operations only
  std::int64_t count = 0;
  double mean_ms = 0.0;
  double min_ms = 0.0;
  double max_ms = 0.0;
};

// Rows that one rank exchanged per MoE layer, from the shapes of its forward collectives over the expert
// group.
struct RankRows {
  std::int32_t rank = 0;
  std::int32_t stage = 0;
  std::int64_t moe_layers = 0;  // on this rank, per microbatch
  std::int64_t sent = 0;        // rows into the dispatch of the first layer (AlltoAll), 0 if unknown
  std::int64_t received = 0;    // rows into the combine of the first layer (AlltoAll), 0 if unknown
  bool constant = true;         // equal in every layer and microbatch
};

// The experts' collectives of a recording.
struct ExpertRows {
  std::string dispatcher;       // "alltoall", "allgather", "mixed", "" when no expert collective was seen
  std::int64_t experts = 0;     // from the count all-gather, 0 when not seen
  std::int64_t moe_layers = 0;  // over all stages, one rank each; 0 when not seen
  std::vector<RankRows> ranks;  // ranks with expert collectives, in rank order
};
ExpertRows expert_rows(const Recording& recording);

struct RecordingFacts {
  Side side = Side::kUnclear;
  std::vector<std::string> side_evidence;  // deciding evidence, one phrase each
  // True when lines have the 2026 fields. Time stamps of sub-operations are then starts, not ends.
  bool newer_writer = false;

  std::int64_t stages = 0;                  // highest stage_id + 1
  std::int64_t microbatches = 0;            // most forward_step lines of any rank
  std::optional<std::int64_t> world;        // as named, else from the sizes in the names
  std::vector<std::int32_t> missing_ranks;  // below the world size
  ExpertRows expert;
  std::optional<Device> device;   // of the first rank that names one
  CallsWithoutRole without_role;  // communication that is not counted above
  std::int64_t transfers = 0;  // collectives, sends, receives, gradient reductions and buckets of all ranks
  std::vector<DurationStats> operations;  // in order of first appearance
  std::vector<DurationStats> sub_operations;
  std::int64_t fused_pairs = 0;  // send-and-receive pairs that were one call (is_fused_pair)
  // Ranks with comparable clocks: time stamps within minutes of each other. Nodes count from their boot.
  std::vector<std::vector<std::int32_t>> clock_domains;
};

RecordingFacts describe(const Recording& recording);

}  // namespace moesim::traces
