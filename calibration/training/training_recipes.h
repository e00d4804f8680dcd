// What published training rows do not state but their framework fixes: dispatcher, recomputation, launches,
// overlap. Every entry names where it was read; nothing here was fitted.
#pragma once

#include <string>
#include <string_view>

#include "models/workload/training_plan.h"

namespace moesim::calibration {

struct TrainingRecipe {
  std::string dispatcher = "alltoall";
  models::TrainingPlan plan;
  bool etp_is_tp = false;      // experts are split like the dense part where the row does not say
  bool cp_fills_node = false;  // attention is split along the sequence over the GPUs of a node
  // A layer per virtual stage where the row does not say: arXiv 2504.14960's steps of 256 and 1,024 sequences
  // on the same mapping differ by more than a pipeline without interleaving allows (3.75x, at most 3.46x).
  bool most_interleaved = false;
  // Communication is hidden under other operations of the same microbatch. The time of that is taken for the
  // overlap of two; a second one is not held.
  bool overlaps_inside = false;
  bool recompute_known = false;  // otherwise none where the plan fits the memory without
  std::string source;            // where this was read; empty: nothing is known, Megatron's defaults
};

// `model` is a built-in name; `version` the number in "Megatron-Bridge 26.04.01" (26.0401 there), 0
// elsewhere.
TrainingRecipe recipe_of(std::string_view framework, std::string_view note, std::string_view dispatcher,
                         std::string_view model, std::string_view gpu, std::string_view precision,
                         std::int64_t pp);

}  // namespace moesim::calibration
