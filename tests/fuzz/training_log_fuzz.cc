// Any bytes as a training job's log: refused with one line, or steps, and arguments that are refused or a
// job.
#include "base/statistics.h"
#include "tests/fuzz/one_line.h"
#include "tools/moesim/read/arguments.h"
#include "tools/moesim/read/training_log.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  tools::TrainingLog log;
  if (!fuzz::accepted([&] { log = tools::read_training_log(fuzz::text_of(data, size), "fuzz.log"); }))
    return 0;
  const std::vector<double> kept = tools::steady(log.steps);
  check(!kept.empty() && kept.size() <= log.steps.size(), "some steps are left");
  check(quantile_of(kept, 0.1) <= quantile_of(kept, 0.9), "quantiles are in order");
  check(quantile_of(kept, 0) > 0, "a step takes time");
  if (log.arguments) fuzz::accepted([&] { tools::read_job(*log.arguments, tools::JobFramework::kMegatron); });
  return 0;
}
