// Any bytes as a model: our own object or a Hugging Face config.json; refused with one line, or read, and
// then its parameters are counted.
#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "models/workload/architecture.h"
#include "models/workload/model_json.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  fuzz::accepted([&] {
    const auto model = models::Architecture::parse(JsonNode::parse(fuzz::text_of(data, size), "config.json"));
    check(model.parameters() > 0 && model.active_parameters() > 0 &&
              model.active_parameters() <= model.parameters(),
          "a model has parameters, and no more active ones than it has");
    const auto written = models::model_object(model);
    check(models::model_object(models::Architecture::parse(
              JsonNode::from_json(nlohmann::json(written), "written.json"))) == written,
          "what was read is written back");
  });
  return 0;
}
