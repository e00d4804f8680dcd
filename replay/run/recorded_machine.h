// What a recording was made on: told by its user or its files, or judged by the times of its experts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "models/hardware/cluster.h"
#include "replay/recording/steps.h"
#include "replay/run/requested_job.h"
#include "traces/recording.h"

namespace moesim::replay {

struct RecordedMachine {
  enum class Told : std::uint8_t {
    by_user,    // --recorded-on, or a verb whose cluster is by definition what the job ran on
    by_files,   // the header of a rank file names the GPU, or the profile of a synthetic recording
    by_times,   // nobody says; the experts take what they take on the cluster's GPUs by their profile
    by_nobody,  // and nothing can be held against a profile
  };
  Told told = Told::by_nobody;
  std::string gpu;  // for people
  std::string
      cluster;  // what Cluster::load() knows it by; "": it has no profile, or is the cluster asked for
  // Where nobody says: by how much computing on the cluster would differ if another GPU had made the
  // recording (standard deviation of the logarithm).
  double sigma = 0;
};

std::string_view name(RecordedMachine::Told told);

// Where experts' times are this much longer or shorter than a profile's they are another GPU's. The five H800
// jobs of the Echo data set and all real runs take 1.16 to 1.28 times what the profile says for the device
// alone; A100 and B200 are off by 2.4 and more.
inline constexpr double kTimesFit = 1.5;

// The machine that made `jobs` (passes of one recording), for a forecast of `request` on `cluster`. What
// `request.recorded_on` or the files say is believed. Throws InputError that names --recorded-on where nobody
// says and the experts' times are not those of the cluster's GPUs.
RecordedMachine recorded_machine(std::span<const RecordedJob> jobs, const traces::NamedTopology& named,
                                 const models::Cluster& cluster, const JobRequest& request);

// One sentence where computing may not be what `cluster` would take: nobody says what it was made on, or it
// was made on other GPUs and is not scaled; "" where it is. `scaled`: computing was scaled from its GPUs to
// those of the cluster.
std::string machine_note(const RecordedMachine& machine, const models::Cluster& cluster, bool scaled,
                         bool realistic);

}  // namespace moesim::replay
