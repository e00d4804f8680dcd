#include "tools/moesim/recordings.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "tools/moesim/inputs.h"
#include "traces/cmd_reader.h"

namespace moesim::tools {

void Recordings::add(const std::string& folder, nlohmann::ordered_json& inputs) {
  recordings_.push_back(traces::read_cmd(folder));
  const traces::Recording& recording = recordings_.back();
  for (const auto& rank : recording.ranks) add_input_file(inputs, rank.file);
  jobs_.push_back(replay::interpret(recording));
  const auto& first = jobs_.front().topology;
  const auto& last = jobs_.back().topology;
  if (first.str() != last.str())
    throw InputError(SourcePlace{folder}, "a recording of " + last.str(),
                     "one of " + first.str() + " as in " + recordings_.front().source);
}

std::vector<std::string> Recordings::warnings() const {
  std::vector<std::string> all;
  const auto add_new = [&](const std::vector<std::string>& some) {
    for (const std::string& warning : some)
      if (std::find(all.begin(), all.end(), warning) == all.end()) all.push_back(warning);
  };
  for (const auto& recording : recordings_) add_new(recording.warnings);
  for (const auto& job : jobs_) add_new(job.warnings);
  return all;
}

}  // namespace moesim::tools
