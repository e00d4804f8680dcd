// Any bytes as a cluster file: refused with one line, or read.
#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "models/hardware/cluster.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  fuzz::accepted([&] {
    const auto cluster = models::Cluster::load(JsonNode::parse(fuzz::text_of(data, size), "fuzz.json"));
    check(cluster.ranks() > 0, "a cluster has GPUs");
    const auto written = cluster.to_json();
    check(models::Cluster::load(JsonNode::from_json(nlohmann::json(written), "written.json")).to_json() ==
              written,
          "what was read is written back");
  });
  return 0;
}
