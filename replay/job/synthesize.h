// Recordings made by the models, for trying things out without a GPU: no measurement, and their headers say
// so.
#pragma once

#include <cstdint>

#include "models/hardware/cluster.h"
#include "models/routing/routing.h"
#include "models/workload/architecture.h"
#include "replay/recording/topology.h"
#include "traces/recording.h"

namespace moesim::replay {

struct SynthesisSpec {
  models::Architecture model;
  models::Cluster cluster;
  Topology topology;
  int layers = 8;  // a multiple of pp; every layer holds experts
  std::int64_t seq = 1024;
  int microbatches = 8;
  models::RoutingSpec routing;
  std::uint64_t seed = 1;
  double noise = 0.02;  // standard deviation of every computing time, as a share
};

struct SyntheticRecordings {
  traces::Recording scaling;    // one microbatch per rank, communication of no duration
  traces::Recording realistic;  // the simulated iteration of the same job
};

// The AlltoAll program as public recordings show it: count gather, dispatch, combine per layer, and with
// tensor parallelism the exchanges and gathers of that group. Computing times come from the cluster's
// profile. Throws InputError for sizes that do not divide or a cluster that is too small.
SyntheticRecordings synthesize(const SynthesisSpec& spec);

}  // namespace moesim::replay
