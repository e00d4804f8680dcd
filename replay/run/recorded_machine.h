// The machine of a recording: from its user or its files, or judged by the times of its experts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "models/hardware/cluster.h"
#include "replay/job/job_model.h"
#include "replay/recording/steps.h"
#include "traces/recording.h"

namespace moesim::replay {

struct RecordedMachine {
  enum class Told : std::uint8_t {
    by_user,    // --recorded-on, or a verb whose cluster is by definition the job's
    by_files,   // the header of a rank file names the GPU, or the profile of a synthetic recording
    by_times,   // unknown; the experts' times match the profile of the cluster's GPUs
    by_nobody,  // unknown, and nothing can be compared with a profile
  };
  Told told = Told::by_nobody;
  std::string gpu;      // as text
  std::string cluster;  // name for Cluster::load(); "": it has no profile, or is the requested cluster
  // Where unknown: log standard deviation of computing times if another GPU had made the recording.
  double sigma = 0;
  std::string_view mode = {};  // of recording, as replay names it: realistic, scaling, fake process group
};

std::string_view name(RecordedMachine::Told told);

// Ratio of experts' times to a profile's, in either direction, beyond which they are another GPU's. The five
// H800 jobs of the Echo data set and all real runs take 1.16 to 1.28 times the profile's time of the GPU
// alone; A100 and B200 are off by 2.4 and more.
inline constexpr double kTimesFit = 1.5;

// Returns the machine that made `jobs` (passes of one recording), for a forecast of `question` on `cluster`.
// `question.recorded_on` and the files take precedence. Throws InputError naming --recorded-on where the
// machine is unknown and the experts' times do not match the cluster's GPUs. `clean`: of `jobs`, where the caller
// has them.
RecordedMachine recorded_machine(std::span<const RecordedJob> jobs, const traces::NamedTopology& named,
                                 const models::Cluster& cluster, const RecordingQuestion& question,
                                 const CleanJob* clean = nullptr);

// Whether a time of the recording was measured on `cluster`, as far as the user or the files say.
bool made_on(const RecordedMachine& machine, const models::Cluster& cluster);

// Returns one sentence where computing times may not be those of `cluster`: the machine is unknown, or it has
// other GPUs and times are not scaled; "" otherwise. `scaled`: computing was scaled from its GPUs to the
// cluster's.
std::string machine_note(const RecordedMachine& machine, const models::Cluster& cluster, bool scaled,
                         bool realistic);

}  // namespace moesim::replay
