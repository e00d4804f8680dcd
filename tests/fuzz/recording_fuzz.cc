// Any bytes as the rank files of a recording, a line with nothing but "=" between them, after a comment with
// the name of its folder: refused with one line, or brought to steps, made noise-free and simulated as
// recorded.
#include "replay/recording/steps.h"
#include "replay/run/iteration.h"
#include "replay/run/recorded_run.h"
#include "tests/fuzz/one_line.h"
#include "traces/cmd_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  std::string_view text = fuzz::text_of(data, size);
  const std::string_view name = text.substr(0, std::min(text.find('\n'), std::size_t{255}));
  traces::Recording recording;
  recording.source = "fuzz";
  fuzz::accepted([&] {
    for (int rank = 0; !text.empty() && rank < 16; ++rank) {
      const std::size_t end = text.find("=\n");
      recording.ranks.push_back(
          traces::read_cmd_text(text.substr(0, end), "rank" + std::to_string(rank) + ".txt", recording.pool));
      text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 2);
    }
    if (name.starts_with("# ")) recording.named = traces::named_topology("/" + std::string(name.substr(2)));
    recording.named.world = static_cast<int>(recording.ranks.size());
    const replay::RecordedJob job = replay::interpret(recording);
    std::vector<replay::RankSteps> plans = replay::recorded_plans(job, 8);
    replay::couple_optimizers(job.topology, plans, 8);
    replay::RecordedPricing pricing;
    const replay::Iteration iteration = replay::simulate(job.topology, plans, pricing);
    check(iteration.us() >= 0, "time does not run backwards");
  });
  return 0;
}
