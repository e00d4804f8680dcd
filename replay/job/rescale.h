// Rescales a scaling recording to another job: measured times are multiplied by the ratio of two model
// evaluations.
#pragma once

#include <string>
#include <vector>

#include "models/hardware/cluster.h"
#include "replay/job/layer_model.h"
#include "replay/recording/denoise.h"

namespace moesim::replay {

// Returns the cleaned recording that the job `to` would have given on `target`, from one of the job `from` on
// GPUs of `recorded_on`. The dispatcher is the recorded one on both sides.
//
// Segments are classified by content (attention, the dispatcher's own, experts with their rows, the ends of
// the model) and laid out again for the stages of the new job. Each is scaled by the ratio of two evaluations
// with the same host: where the GPU's work explains less than nine tenths of a segment, the host bounds it,
// with its measured time per launch. The experts of a rank follow from the recorded rank with the nearest
// number of rows; on the same GPUs (`same_gpus`), with as many experts per rank, and where at least three
// recorded ranks differ enough, by the modelled difference times the recorded ratio of such differences. The
// optimizer scales with the parameters; loss and get_batch stay. Throws InputError with the reason where the
// recording is insufficient.
CleanJob rescaled(const CleanJob& job, const LayerModel& from, const LayerModel& to,
                  const models::Cluster& recorded_on, bool same_gpus);

// Gives the expert ranks that were not recorded (CleanJob::unrecorded) the experts' times of the recorded one with
// the nearest number of rows, plus the modelled difference: what the recording has beyond the modelled work of its
// rows is the same on all ranks. Several recorded ranks set the slope. `model`: of the recorded job and machine.
void complete_experts(CleanJob& job, const LayerModel& model, const models::Cluster& recorded_on);

}  // namespace moesim::replay
