// Identity 20 of docs/spec.md 6.1: no dispatcher is faster than the experts of its busiest rank, nor than
// the slowest link needs for its bytes. 1,000 random layers.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "models/answers/answer.h"
#include "models/costs/gemm.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/workload/scenario.h"

namespace moesim::models {
namespace {

// RapidCheck reads its parameters once, before the first property.
const bool kThousandCases = setenv("RC_PARAMS", "max_success=1000", 0) == 0;

// Roofline of the experts' products on one rank, seconds.
double expert_bound(const Program& program, const GemmModel& gemms, int rank) {
  double seconds = 0;
  for (const auto* pass : {&program.forward(), &program.backward()})
    for (const Op& op : *pass)
      if (op.kind == OpKind::kGemm) {
        std::int64_t rows = 0;
        for (const std::int64_t n : program.expert_rows(op.table, rank)) rows += n;
        seconds += static_cast<double>(op.repeat) * 2 * static_cast<double>(rows * op.n * op.k);
      }
  constexpr std::int64_t kLarge = 1 << 14;  // where the roofline is the peak rate
  return seconds * gemms.roofline_seconds({kLarge, kLarge, kLarge}, DType::kBf16) /
         (2.0 * kLarge * kLarge * kLarge);
}

RC_GTEST_PROP(LowerBound, ExpertsAndLinks, ()) {
  static const std::vector<std::string> kClusters{"dgx-h100x1", "dgx-h800x1", "dgx-h100x2", "dgx-h200x1"};
  const std::string cluster = *rc::gen::elementOf(kClusters);
  const int most = cluster == "dgx-h100x2" ? 4 : 3;
  Scenario s;
  const int ep = 1 << *rc::gen::inRange(0, most + 1);
  s.model.name = "random";
  s.model.hidden = 256 * *rc::gen::inRange(1, 17);
  s.model.layers = 1;
  s.model.attention.heads = s.model.attention.kv_heads = 4;
  s.model.attention.head_dim = 64;
  s.model.expert_ffn = 256 * *rc::gen::inRange(1, 9);
  s.model.experts = ep * *rc::gen::inRange(1, 5);
  s.model.topk = *rc::gen::inRange<std::int64_t>(1, std::min<std::int64_t>(s.model.experts, 4) + 1);
  s.model.gated = *rc::gen::arbitrary<bool>();
  s.set_cluster(cluster);
  s.parallel.ep = ep;
  s.parallel.seq = *rc::gen::inRange(1, 4096);
  s.routing =
      RoutingSpec::parse(*rc::gen::elementOf(std::vector<std::string>{"balanced", "zipf:1.2", "uniform"}));
  s.seed = *rc::gen::inRange(1, 1000);
  const auto registry = dispatcher_registry();
  s.set_dispatchers(std::string(registry[*rc::gen::inRange<std::size_t>(0, registry.size())].name));
  s.all_dispatchers = true;
  s.train = *rc::gen::arbitrary<bool>();
  Comparison c;
  try {
    c = answer(s, {.draws = 0, .breakdown = false});
  } catch (const std::exception&) {
    RC_DISCARD("not legal here");
  }
  const Cluster& machine = *c.scenario->cluster;
  const GemmModel gemms(machine.profile, Clocks::kBurst);
  const Answer& f = c.answers.front();
  const double port = machine.nic.bandwidth * machine.nic.ports_per_node / machine.gpus_per_node;
  const double link = ep > machine.gpus_per_node ? machine.nvlink.bandwidth + port : machine.nvlink.bandwidth;
  for (int r = 0; r < f.program().ranks(); ++r) {
    RC_ASSERT(f.time_us.value * 1e-6 >= expert_bound(f.program(), gemms, r));
    RC_ASSERT(f.time_us.value * 1e-6 >= static_cast<double>(f.tx_bytes[static_cast<std::size_t>(r)]) / link);
  }
}

}  // namespace
}  // namespace moesim::models
