// Small recordings made in code, line by line, with a clock per rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replay/recording/topology.h"
#include "traces/recording.h"

namespace moesim::replay::testing {

// A communication call inside an operation: `before_ms` of computing, then `ms` of the call.
struct CallSpec {
  std::string source;
  std::string comm;
  std::string group = "exp";
  std::vector<std::int64_t> shape = {};
  std::string dtype = "torch.bfloat16";
  double before_ms = 0;
  double ms = 0;
  std::string func_name = {};  // none: not written
};

struct OperationSpec {
  std::string name;
  int batch = 0;
  double gap_ms = 0;                 // host time since the operation before
  std::vector<CallSpec> calls = {};  // in order
  double after_ms = 0;  // computing after the last call; all of the operation where there is none
  std::string group = "None";
  std::vector<std::int64_t> shape = {};  // none: None
  std::string dtype = "None";
  bool placeholder = false;  // duration 0 and time stamp 0, as early gradient lines have
};

// Appends operations rank by rank. Files are called "rank00.txt", ... and every operation is a line of its
// own.
class RecordingBuilder {
 public:
  // `form` decides what the time stamps of calls mean: their ends (v1) or their starts (v2).
  explicit RecordingBuilder(const Topology& topology, traces::LineForm form = traces::LineForm::kV1);

  void add(int rank, const OperationSpec& spec);
  traces::NamedTopology& named() { return recording_.named; }
  traces::Recording take() { return std::move(recording_); }

 private:
  Topology topology_;
  traces::LineForm form_;
  traces::Recording recording_;
  std::vector<double> clock_ms_;
};

// Milliseconds of the parts of one MoE layer of an AlltoAll job.
struct LayerTimes {
  double attention = 2.0;
  double permute = 0.5;
  double expert_per_row = 0.001;
  double unpermute = 0.3;
};

// A scaling recording: one microbatch of every rank, communication of no duration.
struct ScalingSpec {
  Topology topology;
  int layers_per_stage = 2;
  std::int64_t tokens = 64;
  std::int64_t topk = 2;
  std::int64_t hidden = 32;
  std::vector<std::int64_t> received = {};  // rows by expert rank
  LayerTimes forward{};
  LayerTimes backward{.attention = 4.0, .permute = 1.0, .expert_per_row = 0.002, .unpermute = 0.6};
  double optimizer_ms = 20;
  bool probabilities = false;  // travel after the rows they belong to, in a call of their own
  // Multiplies every computing time; by sample, counted over all ranks in order.
  double (*disturb)(std::size_t sample) = nullptr;
};
traces::Recording scaling_recording(const ScalingSpec& spec);

// Keeps only some of a recording's ranks.
void keep_ranks(traces::Recording& recording, const std::vector<int>& ranks);

}  // namespace moesim::replay::testing
