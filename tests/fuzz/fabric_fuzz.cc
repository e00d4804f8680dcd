// Any bytes as a fabric, JSON or (what begins with "<") GraphML: refused with one line, or read, and then a
// way leads from the first GPU to the last.
#include "base/json_reader.h"
#include "sim/network/fabric_file.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::accepted([&] {
    const sim::Fabric fabric = text.starts_with("<") ? sim::parse_graphml_fabric(text, "fuzz.graphml")
                                                     : sim::read_fabric(JsonNode::parse(text, "fuzz.json"));
    check(fabric.gpu_count() > 0 && fabric.problems().empty(), "a fabric that is read has no problems");
  });
  return 0;
}
