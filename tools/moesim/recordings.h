// Recordings as verbs take them: folders of CMD traces, read, interpreted, and named in the inputs of a
// result.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "replay/steps.h"
#include "traces/recording.h"

namespace moesim::tools {

// Recordings of one job and what they mean; steps point into the recordings, which stay where they are.
class Recordings {
 public:
  // Reads a folder (one pass), interprets it and adds its files to `inputs`.
  void add(const std::string& folder, nlohmann::ordered_json& inputs);

  const traces::Recording& recording(std::size_t i) const { return recordings_[i]; }
  const std::vector<replay::RecordedJob>& jobs() const { return jobs_; }
  std::size_t size() const { return jobs_.size(); }
  // Of all recordings, in order, without repetitions.
  std::vector<std::string> warnings() const;

 private:
  std::deque<traces::Recording> recordings_;
  std::vector<replay::RecordedJob> jobs_;
};

}  // namespace moesim::tools
