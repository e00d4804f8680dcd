// Costs on a cluster: by domain, and never below the bound of the hardware.
#include "models/costs/cluster_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "models/answers/answer.h"
#include "models/costs/domain_report.h"
#include "models/costs/gemm.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/workload/scenario.h"

namespace moesim::models {
namespace {

using sim::CollectiveOp;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Cluster& cluster() {
  static const Cluster two_nodes = Cluster::load(std::string("dgx-h100x2"));
  return two_nodes;
}

std::vector<sim::RankId> ranks(std::uint32_t count, std::uint32_t stride = 1) {
  std::vector<sim::RankId> list;
  for (std::uint32_t i = 0; i < count; ++i) list.emplace_back(i * stride);
  return list;
}

std::vector<sim::Time> priced(const ClusterCosts& costs, const sim::CollectiveShape& shape) {
  std::vector<sim::Time> out(shape.members());
  costs.price_collective(shape, out);
  return out;
}

sim::Traffic uniform(std::uint64_t bytes) { return {.bytes = bytes}; }

// The graph's rank numbers say who is on which node.
TEST(ClusterCosts, EqualCollectivesArePricedByTheLawOfTheirPlaces) {
  const ClusterCosts costs(cluster());
  const auto inside = ranks(8), across = ranks(16), rails = ranks(2, 8);
  for (const CollectiveOp op : {CollectiveOp::all_gather, CollectiveOp::all_reduce, CollectiveOp::all_to_all})
    for (const auto& [members, shape] :
         {std::pair{&inside, GroupShape::uniform(1, 8)}, std::pair{&across, GroupShape::uniform(2, 8)},
          std::pair{&rails, GroupShape::uniform(2, 1)}})
      for (const sim::Time time : priced(costs, {op, *members, uniform(1 << 24)}))
        EXPECT_EQ(time, sim::Time::from_seconds(costs.collectives().seconds(op, shape, 1 << 24)))
            << sim::name(op) << " " << shape.domains;
}

TEST(ClusterCosts, WhatARecorderAddsComesWithEveryCallButPointToPoint) {
  const ClusterCosts plain(cluster()), recorded(cluster(), 30e-6);
  const auto two = ranks(2);
  const auto more = [&](CollectiveOp op) {
    const sim::CollectiveShape shape{op, two, uniform(1 << 20)};
    return (priced(recorded, shape)[0] - priced(plain, shape)[0]).us();
  };
  EXPECT_NEAR(more(CollectiveOp::all_gather), 30, 1e-5);
  EXPECT_NEAR(more(CollectiveOp::all_to_all), 30, 1e-5);
  EXPECT_EQ(more(CollectiveOp::send_recv), 0);
}

TEST(ClusterCosts, EqualPiecesAndRowsCostWhatUniformTrafficDoes) {
  const ClusterCosts costs(cluster());
  const auto group = ranks(8);
  const std::vector<std::uint64_t> pieces(8, 1 << 20);
  EXPECT_EQ(priced(costs,
                   {CollectiveOp::all_gather, group, {.kind = sim::Traffic::Kind::pieces, .pieces = pieces}}),
            priced(costs, {CollectiveOp::all_gather, group, uniform(1 << 20)}));
  const std::vector<std::uint32_t> rows(64, 1024);
  const auto matrix = priced(
      costs,
      {CollectiveOp::all_to_all, group, {.kind = sim::Traffic::Kind::matrix, .bytes = 1024, .rows = rows}});
  const auto equal = priced(costs, {CollectiveOp::all_to_all, group, uniform(8 << 20)});
  for (std::size_t m = 0; m < 8; ++m) EXPECT_NEAR(matrix[m].us(), equal[m].us(), 1e-5);
}

// While nothing contends a plan for flows keeps to the price: `alone` is the last member's end.
RC_GTEST_PROP(ClusterCosts, PlansKeepToThePrices, ()) {
  const ClusterCosts costs(cluster(), *rc::gen::elementOf(std::vector<double>{0, 30e-6}));
  const auto group = ranks(*rc::gen::elementOf(std::vector<std::uint32_t>{2, 4, 8, 16}));
  const std::size_t g = group.size();
  const auto rows =
      *rc::gen::container<std::vector<std::uint32_t>>(g * g, rc::gen::inRange<std::uint32_t>(0, 5000));
  const auto op = *rc::gen::elementOf(
      std::vector<CollectiveOp>{CollectiveOp::all_gather, CollectiveOp::reduce_scatter,
                                CollectiveOp::all_reduce, CollectiveOp::all_to_all, CollectiveOp::broadcast});
  const bool uneven = op == CollectiveOp::all_to_all && *rc::gen::arbitrary<bool>();
  const sim::CollectiveShape shape{
      op, group,
      uneven ? sim::Traffic{.kind = sim::Traffic::Kind::matrix, .bytes = 8192, .rows = rows}
             : uniform(*rc::gen::inRange<std::uint64_t>(1, 1 << 28))};
  const auto times = priced(costs, shape);
  const sim::FlowParameters plan = costs.plan_collective(shape);
  RC_ASSERT(plan.alone == *std::max_element(times.begin(), times.end()));
  RC_ASSERT(plan.launch <= plan.alone);
  RC_ASSERT(plan.efficiency > 0 && plan.efficiency <= 1);
  RC_ASSERT(plan.port_within <= cluster().nvlink.bandwidth * (1 + 1e-9));
  RC_ASSERT(plan.port_across <= cluster().nic.bandwidth * (1 + 1e-9));
}

// Messages inside a node start when an exchange there does; those to other nodes when one across them does.
TEST(ClusterCosts, AnExchangeInsideANodeDoesNotWaitForTheNetwork) {
  const ClusterCosts costs(cluster(), 30e-6);
  const auto launch = [&](const GroupShape& group) {
    return 1e6 * (costs.collectives().seconds(CollectiveOp::all_to_all, group, 0) + 30e-6);
  };
  const double inside = launch(GroupShape::uniform(1, 8)), across = launch(GroupShape::uniform(2, 8));
  ASSERT_GT(across, inside);
  const sim::FlowParameters both =
      costs.plan_collective({CollectiveOp::all_to_all, ranks(16), uniform(1 << 26)});
  EXPECT_NEAR(both.launch.us(), inside, 1e-5);
  EXPECT_NEAR((both.launch + both.step).us(), across, 1e-5);
  // One rank a node has nothing inside, and eight of one node nothing across.
  const sim::FlowParameters one =
      costs.plan_collective({CollectiveOp::all_to_all, ranks(2, 8), uniform(1 << 26)});
  EXPECT_NEAR(one.launch.us(), launch(GroupShape::uniform(2, 1)), 1e-5);
  EXPECT_EQ(one.step, sim::Time::kZero);
  const sim::FlowParameters node =
      costs.plan_collective({CollectiveOp::all_to_all, ranks(8), uniform(1 << 26)});
  EXPECT_NEAR(node.launch.us(), inside, 1e-5);
  EXPECT_EQ(node.step, sim::Time::kZero);
}

TEST(ClusterCosts, OverlapIsTheProfiles) {
  Cluster slow = cluster();
  slow.profile.overlap() = {1.2, 1.5};
  const sim::Overlap overlap = ClusterCosts(slow).overlap(sim::RankId(0));
  EXPECT_EQ(overlap.compute, 1.2);
  EXPECT_EQ(overlap.communication, 1.5);
}

// H100's exchanges inside a node were measured on 2 and 8 GPUs: rows of the busiest sender are held against
// it.
TEST(ClusterCosts, SaysWhatWasNotMeasured) {
  const ClusterCosts costs(cluster());
  const auto group = ranks(8);
  EXPECT_FALSE(costs.outside({CollectiveOp::all_gather, group, uniform(1 << 20)}));
  std::vector<std::uint32_t> rows(64, 0);
  const sim::CollectiveShape shape{
      CollectiveOp::all_to_all, group, {.kind = sim::Traffic::Kind::matrix, .bytes = 1 << 20, .rows = rows}};
  rows[8 * 3 + 1] = 1 << 10;  // rank 3 sends 1 GiB
  EXPECT_FALSE(costs.outside(shape));
  rows[8 * 3 + 2] = 1 << 20;  // and 1 TiB
  const auto outside = costs.outside(shape);
  ASSERT_TRUE(outside);
  EXPECT_EQ(outside->measured.quantity, "bytes");
  EXPECT_EQ(outside->value, static_cast<double>((std::uint64_t{1} << 40) + (1 << 30)));
}

// Reports of a forecast about prices outside of a profile's measurements.

OutsideDomain outside_ranks(std::string price, double value) {
  return {std::move(price), "", {"ranks", 2, 8}, value};
}

TEST(DomainReport, OneLineForEachPriceWithTheLongestValue) {
  DomainReport report;
  report.add(1, std::nullopt);
  report.add(2, outside_ranks("a gather", 16));
  report.add(5, outside_ranks("a gather", 12));
  report.add(1, outside_ranks("a reduction", 64));
  report.add(1, OutsideDomain::derived("a product", "derived from h100-sxm: somebody"));
  EXPECT_THAT(report.lines(), ElementsAre("a gather extrapolates to 12 ranks (measured 2 to 8)",
                                          "a reduction extrapolates to 64 ranks (measured 2 to 8)",
                                          "a product is derived from h100-sxm: somebody"));
  EXPECT_DOUBLE_EQ(report.share(), 0.9);
}

TEST(DomainReport, UnmeasuredPartsAreThoseWithoutAMeasurementOfTheirOwn) {
  DomainReport report;
  report.add(5, std::nullopt);
  report.add(2, outside_ranks("a gather", 16));
  report.add(2, OutsideDomain{"a kernel", "was not measured", {}, 0});
  report.add(1, OutsideDomain::derived("a product", "derived from h100-sxm: somebody"));
  const auto parts = report.unmeasured();
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].part, "a kernel was not measured");
  EXPECT_DOUBLE_EQ(parts[0].share, 0.2);
  EXPECT_FALSE(parts[0].drawn);
  EXPECT_TRUE(parts[1].drawn);

  // A part is off by one factor under a draw, in every time that contains it; derived parts are unchanged.
  std::vector<double> a(400, 10.0), b(400, 30.0);
  doubt_unmeasured(parts, 10, a);
  doubt_unmeasured(parts, 30, b);
  double squares = 0;
  for (std::size_t d = 0; d < a.size(); ++d) {
    EXPECT_NEAR(b[d], 3 * a[d], 1e-9);
    const double factor = (a[d] - 8) / 2;
    ASSERT_GT(factor, 0);
    squares += std::log(factor) * std::log(factor);
  }
  EXPECT_NEAR(std::sqrt(squares / 400), 0.365, 0.04);

  // Also where draws are far below the value, and nearly all of it is in doubt.
  const std::vector<DomainReport::Unmeasured> all{{"a", 0.6, false, false, false},
                                                  {"b", 0.4, false, false, false}};
  std::vector<double> low(400, 3.0);
  doubt_unmeasured(all, 10, low);
  EXPECT_GT(*std::ranges::min_element(low), 0);
}

TEST(DomainReport, PartsBelowOnePercentDoNotWarn) {
  DomainReport report;
  report.add(99.5, std::nullopt);
  for (int i = 0; i < 4; ++i) report.add(0.1, outside_ranks("a gather", 16));
  report.add(0.05, outside_ranks("a reduction", 16));
  EXPECT_THAT(report.lines(), IsEmpty());
  report.add(1, outside_ranks("a gather", 16));  // together they are enough
  EXPECT_THAT(report.lines(), ElementsAre(HasSubstr("a gather")));
  EXPECT_THAT(DomainReport().lines(), IsEmpty());
  EXPECT_EQ(DomainReport().share(), 0);
}

RC_GTEST_PROP(DomainReport, FarthestIsTheRangeWithTheMostOctaves, ()) {
  FarthestOutside farthest;
  std::vector<std::pair<DomainRange, double>> tried;
  const int ranges = *rc::gen::inRange(0, 5);
  for (int i = 0; i < ranges; ++i) {
    const double low = *rc::gen::inRange(1, 1000), high = low + *rc::gen::inRange(0, 1000);
    const double value = *rc::gen::inRange(0, 5000);
    tried.push_back({{"q" + std::to_string(i), low, high}, value});
    farthest.try_range(&tried.back().first, value);
  }
  farthest.try_range(nullptr, 5);
  double most = 0;
  for (const auto& [range, value] : tried) {
    const double octaves = octaves_outside(range, value);
    // A value of 0 is a size that is not known.
    RC_ASSERT((octaves > 0) == (value > 0 && (value < range.low || value > range.high)));
    if (octaves > 0.1) most = std::max(most, octaves);  // less is as good as inside
  }
  const auto found = farthest.of("p");
  RC_ASSERT(found.has_value() == (most > 0));
  if (found) RC_ASSERT(octaves_outside(found->measured, found->value) == most);
}

TEST(DomainReport, BytesHaveTheirUnit) {
  OutsideDomain outside;
  outside.price = "a gather";
  outside.measured = {.quantity = "bytes", .low = 512, .high = 536870912};
  outside.value = 14495514624;
  EXPECT_EQ(outside.text(), "a gather extrapolates to 14.50 GB (measured 512 B to 536.87 MB)");
}

// h100-sxm: bf16 products were measured for n of 1,024 to 16,384 and k of 1,536 to 16,384.
TEST(DomainReport, ProductsAreHeldAgainstTheirLaw) {
  const GemmModel h100(Profile::load("h100-sxm")), h800(Profile::load("h800-sxm"));
  const auto why = [](const std::optional<OutsideDomain>& outside) { return outside ? outside->text() : ""; };
  EXPECT_EQ(why(h100.outside({4096, 4096, 4096}, DType::kBf16)), "");
  EXPECT_EQ(why(h100.outside({4096, 128, 4096}, DType::kBf16)),
            "h100-sxm: bf16 GEMM extrapolates to n = 128 (measured 1024 to 16384)");
  EXPECT_EQ(why(h100.outside({4096, 4096, 65536}, DType::kBf16)),
            "h100-sxm: bf16 GEMM extrapolates to k = 65536 (measured 1536 to 16384)");
  EXPECT_EQ(why(h100.outside({4096, 4096, 4096}, DType::kFp16)), "h100-sxm: fp16 GEMM was not measured");
  EXPECT_THAT(why(h800.outside({4096, 4096, 4096}, DType::kBf16)),
              HasSubstr("h800-sxm: bf16 GEMM is derived from h100-sxm"));
  const std::vector<std::int64_t> rows{65536, 0}, none{0, 0};
  EXPECT_EQ(why(h100.grouped_outside(rows, 4096, 4096, DType::kBf16)), "");
  EXPECT_THAT(why(h100.grouped_outside(rows, 4096, 4096, DType::kBf16, GemmPass::kWgrad, GemmBackend::kLoop)),
              HasSubstr("k = 65536"));
  EXPECT_EQ(why(h800.grouped_outside(none, 4096, 4096, DType::kBf16)), "");
  EXPECT_THAT(why(h800.grouped_outside(rows, 4096, 4096, DType::kBf16)),
              HasSubstr("h800-sxm: grouped bf16 GEMM is derived from h100-sxm"));
}

// Identity 20 of docs/spec.md 6.1: no dispatcher is faster than the experts of its busiest rank, nor than
// the slowest link needs for its bytes. 1,000 random layers.

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
