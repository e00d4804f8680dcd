// Any bytes as a cluster file: refused with one line, or read.
#include "base/json_reader.h"
#include "models/hardware/cluster.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  fuzz::accepted([&] {
    const auto cluster = models::Cluster::load(JsonNode::parse(fuzz::text_of(data, size), "fuzz.json"));
    check(cluster.ranks() > 0, "a cluster has GPUs");
  });
  return 0;
}
