// Any bytes as a file of faults: refused with one line, or faults that are held against a cluster.
#include "base/json_reader.h"
#include "models/hardware/cluster.h"
#include "models/workload/faults.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  static const models::Cluster cluster = models::Cluster::load("dgx-h100x2");
  fuzz::accepted([&] {
    const models::Faults faults = models::Faults::parse(JsonNode::parse(fuzz::text_of(data, size), "f.json"));
    faults.check_against(cluster);
    for (const auto& gpu : faults.slow_gpus)
      check(gpu.factor >= 1 && gpu.gpu >= 0 && gpu.gpu < cluster.ranks(), "a GPU of the cluster is slower");
  });
  return 0;
}
