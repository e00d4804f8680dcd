// moesim as a library: which dispatcher is fastest for this layer, and what would twice the network bring?
#include <cstdio>

#include "base/input_error.h"
#include "models/answers/answer.h"
#include "models/hardware/cluster.h"
#include "models/hardware/hardware.h"
#include "models/workload/scenario.h"

int main() try {
  using namespace moesim;
  models::Scenario scenario;
  scenario.set_model("qwen3-30b-a3b");
  scenario.set_cluster("dgx-h100x4");
  scenario.set_dispatchers("allgather,alltoall,flex-deepep");
  scenario.parallel.ep = 16;
  scenario.routing = models::RoutingSpec::parse("gini:0.3");
  const auto show = [](const char* what, const models::Comparison& c) {
    std::printf("%s: %s with probability %.2f\n", what, c.winner()->dispatcher.c_str(),
                c.decision.probability().value_or(1));
    for (const models::Answer& f : c.answers)
      std::printf("  %-12s %8.1f us (%.1f to %.1f)\n", f.dispatcher.c_str(), f.time_us.value, f.time_us.low,
                  f.time_us.high);
  };
  show("as it is", models::answer(scenario));
  models::Cluster faster = *scenario.cluster;
  models::find_hardware_number("nic.bandwidth")->scale(faster, 2);
  scenario.cluster = std::make_shared<models::Cluster>(faster);
  show("with twice the network", models::answer(scenario));
} catch (const moesim::InputError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
