// Any bytes as a scenario file: refused with one line, or read, and then answered where it is small.
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "models/answers/answer.h"
#include "models/answers/invariants.h"
#include "models/hardware/cluster.h"
#include "models/workload/scenario.h"
#include "tests/fuzz/one_line.h"

namespace {

// Small enough for a second under sanitizers.
bool is_small(const moesim::models::Scenario& s) {
  const auto& p = s.parallel;
  const bool step = s.is_step();
  if (step && (p.pp * p.microbatches > 64 || s.model.layers > 64)) return false;
  return p.ep * p.tp * p.etp <= 64 && p.seq <= 8192 && p.micro_batch <= 8 && s.model.experts <= 512 &&
         s.dispatchers.size() <= 3 && !s.all_dispatchers &&
         s.routing.kind != moesim::models::RoutingSpec::Kind::kFile;  // read by replay
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  fuzz::accepted([&] {
    models::Scenario scenario =
        models::Scenario::parse(JsonNode::parse(fuzz::text_of(data, size), "fuzz.json"));
    models::Scenario resolved = scenario;
    resolved.resolve();
    const auto written = to_json(resolved);
    models::Scenario again =
        models::Scenario::parse(JsonNode::from_json(nlohmann::json(written), "written.json"));
    again.resolve();
    check(to_json(again) == written, "what was read is written back");
    if (!is_small(resolved)) return;
    models::Comparison compared;
    try {
      compared = models::answer(scenario, {.draws = 0, .each = true});
    } catch (const InputError& error) {
      check(std::string_view(error.what()).find("cannot be right") == std::string_view::npos,
            "an answer keeps what holds of all answers");
      throw;
    }
    for (const models::Answer& answer : compared.answers)
      if (answer.ok()) check(models::impossible(*compared.scenario, answer).empty(), "an answer can be");
  });
  return 0;
}
