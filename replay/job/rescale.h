// A scaling recording of another job: what was measured is scaled by the ratio of two evaluations of the
// models.
#pragma once

#include <string>
#include <vector>

#include "models/hardware/cluster.h"
#include "replay/job/layer_model.h"
#include "replay/recording/denoise.h"

namespace moesim::replay {

// The cleaned recording that the job `to` would have given on `target`, from one of the job `from` on GPUs of
// `recorded_on`. The dispatcher is the recorded one on both sides.
//
// Segments are told apart by what they hold (attention, the dispatcher's own, experts of so many rows, the
// ends of the model) and laid out again for the stages of the new job. Each is scaled by the ratio of two
// evaluations with the same host: where the device's work explains less than nine tenths of a segment, the
// host is what takes the time, and its time per launch is the one that was measured. The experts of a rank
// follow from the recorded rank with the nearest number of rows; on the same GPUs (`same_gpus`), with as many
// experts per rank, and where at least three recorded ranks differ enough, by the modelled difference times
// what such a difference took in the recording. The optimizer goes with the parameters; loss and get_batch
// stay. Throws InputError with the reason for what the recording does not show.
CleanJob rescaled(const CleanJob& job, const LayerModel& from, const LayerModel& to,
                  const models::Cluster& recorded_on, bool same_gpus);

}  // namespace moesim::replay
