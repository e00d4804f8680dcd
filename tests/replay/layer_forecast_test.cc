// The operation-by-operation recursion of time_layer() against the event-driven simulator on the same
// programs.
#include "replay/run/layer_forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "models/dispatchers/dispatcher.h"
#include "models/programs/program_builder.h"
#include "models/routing/routing.h"
#include "sim/run/simulator.h"

namespace moesim::replay {
namespace {

using models::Op;
using models::OpKind;
using models::Program;

// Prices of collectives by a number that stands in place of their bytes.
class TableCosts final : public sim::Costs {
 public:
  std::vector<std::vector<sim::Time>> table;
  void price_works(std::span<const std::uint64_t>, std::span<sim::Time>) const override {}
  void price_collective(const sim::CollectiveShape& shape, std::span<sim::Time> out) const override {
    std::copy(table[shape.traffic.bytes].begin(), table[shape.traffic.bytes].end(), out.begin());
  }
  sim::FlowPlan plan_collective(const sim::CollectiveShape&) const override { return {}; }
};

// The segments as tasks: a host task launches each operation, a blocking wait is a host task behind a copy.
sim::Time simulate(std::span<const LayerSegment> segments, std::int64_t launch_ps) {
  const int R = segments.front().program->ranks();
  sim::TaskGraphBuilder b;
  b.add_ranks(static_cast<std::size_t>(R));
  std::vector<std::array<sim::StreamId, models::kStreams>> streams(R);
  for (int r = 0; r < R; ++r)
    for (int s = 0; s < models::kStreams; ++s)
      streams[r][s] = b.add_stream(sim::RankId(static_cast<std::uint32_t>(r)),
                                   s == static_cast<int>(models::Stream::kHost)   ? sim::StreamKind::host
                                   : s == static_cast<int>(models::Stream::kComm) ? sim::StreamKind::comm
                                                                                  : sim::StreamKind::compute);
  const sim::LabelId label = b.add_label("op", sim::Category::other);
  TableCosts costs;
  std::vector<std::vector<sim::TaskId>> barrier(R), tasks;
  for (const LayerSegment& segment : segments) {
    const Program& p = *segment.program;
    tasks.assign(segment.ops->size(), std::vector<sim::TaskId>(R));
    std::vector<std::array<bool, models::kStreams>> entered(R);
    for (std::size_t i = 0; i < segment.ops->size(); ++i) {
      const Op& op = (*segment.ops)[i];
      if (op.kind == OpKind::kAllocate || op.kind == OpKind::kFree) continue;
      const bool host = op.kind == OpKind::kHostWait || op.kind == OpKind::kHost;
      std::vector<sim::CollectiveId> collectives;
      if (op.kind == OpKind::kCollective && !op.fused)
        for (int g = 0; g < p.group_count(op.group); ++g) {
          std::vector<sim::RankId> members;
          std::vector<sim::Time> prices;
          for (int m = 0; m < p.group_size(op.group); ++m) {
            const int rank = p.rank_of(op.group, g, m);
            members.push_back(sim::RankId(static_cast<std::uint32_t>(rank)));
            prices.push_back(sim::Time::from_ps(segment.prices->at(i, rank)));
          }
          costs.table.push_back(prices);
          collectives.push_back(b.add_collective(sim::CollectiveOp::all_to_all, b.add_group(members),
                                                 sim::uniform_traffic(costs.table.size() - 1), label));
        }
      for (int r = 0; r < R; ++r) {
        const sim::StreamId stream = streams[r][static_cast<int>(op.stream)];
        const sim::Time price = sim::Time::from_ps(segment.prices->at(i, r));
        sim::TaskId launched;
        if (!host && !(op.kind == OpKind::kCollective && op.fused)) {
          const int launches = op.kind == OpKind::kKernel || op.kind == OpKind::kGemm ? op.launches : 1;
          launched = b.add_host(streams[r][static_cast<int>(models::Stream::kHost)],
                                sim::Time::from_ps(launch_ps * launches), label);
        }
        sim::TaskId& task = tasks[i][r];
        if (host) {
          task = b.add_host(streams[r][static_cast<int>(models::Stream::kHost)], price, label);
        } else if (op.kind == OpKind::kCollective && !op.fused) {
          task = b.add_member(stream, collectives[p.group_index(op.group, r)],
                              static_cast<std::uint32_t>(p.member_index(op.group, r)));
        } else {
          task = b.add_compute(stream, op.fused ? sim::Time::kZero : price, label);
        }
        if (launched.valid()) b.add_dependency(launched, task);
        for (const std::int32_t other : op.after)
          if (other >= 0) b.add_dependency(tasks[other][r], task);
        if (!host && !entered[r][static_cast<int>(op.stream)]) {
          entered[r][static_cast<int>(op.stream)] = true;
          for (const sim::TaskId before : barrier[r]) b.add_dependency(before, task);
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      barrier[r].clear();
      for (int s = 0; s < models::kStreams; ++s)
        if (s != static_cast<int>(models::Stream::kHost))
          if (const sim::TaskId last = b.last_on_stream(streams[r][s]); last.valid())
            barrier[r].push_back(last);
    }
  }
  return sim::run(b.finalize(), costs).iteration();
}

// Prices that differ by operation and rank, so that every wait matters.
models::PricedPass made_up_prices(const Program& p, const std::vector<Op>& pass, std::uint64_t seed) {
  models::PricedPass prices;
  prices.ranks = p.ranks();
  for (std::size_t i = 0; i < pass.size(); ++i)
    for (int r = 0; r < p.ranks(); ++r) {
      seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
      const bool nothing =
          pass[i].kind == OpKind::kAllocate || pass[i].kind == OpKind::kFree || pass[i].fused;
      prices.ps.push_back(nothing ? 0 : static_cast<std::int64_t>((seed >> 33) % 20'000'000));
    }
  return prices;
}

TEST(LayerForecast, EqualsTheSimulatorOnEveryDispatcher) {
  int compared = 0;
  for (const models::DispatcherEntry& entry : models::dispatcher_registry())
    for (const auto& [ep, etp] : {std::pair{4, 1}, std::pair{2, 2}, std::pair{1, 1}})
      for (const int per_node : {2, 8})
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
          models::RoutingSpec spec;
          spec.kind = models::RoutingSpec::Kind::kUniform;
          const models::Routing routing = models::make_routing(spec, ep * etp, 64, 8, 2, seed);
          models::MoeLayer layer;
          layer.hidden = 64;
          layer.expert_ffn = 256;
          layer.shared_ffn = 128;
          layer.ep = ep;
          layer.etp = etp;
          layer.ranks_per_node = per_node;
          layer.routing = &routing;
          for (const char* option : {"", ":shared_overlap=true"}) {
            const std::string name = std::string(entry.name) + option;
            if (*option != '\0' && entry.name != "alltoall" && entry.name != "flex-deepep") continue;
            const auto dispatcher = models::make_dispatcher(models::DispatcherSpec::parse(name));
            if (models::rule_against(*dispatcher, layer)) continue;
            const Program p = dispatcher->build(layer);
            const models::PricedPass forward = made_up_prices(p, p.forward(), seed);
            const models::PricedPass backward = made_up_prices(p, p.backward(), seed + 17);
            const std::vector<LayerSegment> segments{{&p, &p.forward(), &forward},
                                                     {&p, &p.backward(), &backward}};
            const LayerTiming timing = time_layer(segments, 3'000'000);
            EXPECT_EQ(timing.total_ps, simulate(segments, 3'000'000).ps())
                << name << " ep " << ep << " etp " << etp;
            std::int64_t booked = 0;
            for (const std::int64_t ps : timing.breakdown_ps) booked += ps;
            EXPECT_EQ(booked, timing.total_ps) << name;
            ++compared;
          }
        }
  EXPECT_GT(compared, 100);
}

// A pair of passes with a dense part in front and behind, priced by hand.
struct Priced {
  models::Routing routing;
  Program program, dense;
  std::array<models::PricedPass, 4> prices;
  std::vector<LayerSegment> segments;
};

Priced priced_layer(const std::string& name, std::uint64_t seed) {
  Priced p;
  models::RoutingSpec spec;
  spec.kind = models::RoutingSpec::Kind::kUniform;
  p.routing = models::make_routing(spec, 4, 64, 8, 2, seed);
  models::MoeLayer layer;
  layer.hidden = 64;
  layer.expert_ffn = 256;
  layer.ep = 4;
  layer.routing = &p.routing;
  p.program = models::make_dispatcher(models::DispatcherSpec::parse(name))->build(layer);
  models::ProgramBuilder b(4, 1);
  for (const auto pass : {models::ProgramBuilder::Pass::kForward, models::ProgramBuilder::Pass::kBackward}) {
    b.begin(pass);
    for (int i = 0; i < 3; ++i)
      b.kernel("dense", sim::Category::attention, models::KernelClass::kCopy, b.uniform(1), b.uniform(1));
  }
  p.dense = b.finish();
  p.prices = {made_up_prices(p.dense, p.dense.forward(), seed),
              made_up_prices(p.program, p.program.forward(), seed + 1),
              made_up_prices(p.program, p.program.backward(), seed + 2),
              made_up_prices(p.dense, p.dense.backward(), seed + 3)};
  return p;
}

std::vector<LayerSegment> segments_of(const Priced& p) {
  return {{&p.dense, &p.dense.forward(), &p.prices[0]},
          {&p.program, &p.program.forward(), &p.prices[1]},
          {&p.program, &p.program.backward(), &p.prices[2]},
          {&p.dense, &p.dense.backward(), &p.prices[3]}};
}

// Interleaving two microbatches hides communication under computing: never slower than one after the other,
// never faster than what any rank computes or transfers.
TEST(LayerForecast, BatchOverlapIsBetweenItsBounds) {
  for (const char* name :
       {"alltoall:batch_overlap", "flex-deepep:batch_overlap", "flex-hybridep:batch_overlap"})
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const Priced p = priced_layer(name, seed);
      ASSERT_TRUE(p.program.overlaps_batches);
      const std::vector<LayerSegment> segments = segments_of(p);
      std::vector<SegmentTrace> trace;
      const LayerTiming apart = time_layer(segments, 1000);
      const LayerTiming together = time_layer(segments, 1000, {.overlap_batches = true, .trace = &trace});
      EXPECT_LT(together.total_ps, apart.total_ps) << name << ' ' << seed;
      for (int r = 0; r < 4; ++r) {
        std::int64_t computing = 0, transferring = 0;
        for (const LayerSegment& segment : segments)
          for (std::size_t i = 0; i < segment.ops->size(); ++i) {
            const OpKind kind = (*segment.ops)[i].kind;
            if (kind == OpKind::kKernel || kind == OpKind::kGemm) computing += segment.prices->at(i, r);
            if (kind == OpKind::kCollective) transferring += segment.prices->at(i, r);
          }
        EXPECT_GE(together.total_ps, std::max(computing, transferring));
      }
      std::int64_t booked = 0, last = 0;
      for (const std::int64_t ps : together.breakdown_ps) booked += ps;
      EXPECT_EQ(booked, together.total_ps);
      for (const SegmentTrace& t : trace)
        last = std::max(last, *std::max_element(t.end.begin(), t.end.end()));
      EXPECT_EQ(last, together.total_ps);
    }
}

// Nothing overlaps in a plain layer, so that slow-downs change nothing; where batches overlap they cost time,
// at most their factor.
TEST(LayerForecast, OverlapSlowsBothSides) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Priced p = priced_layer("torchtitan-alltoall", seed);
    const std::vector<LayerSegment> segments = segments_of(p);
    EXPECT_EQ(time_layer(segments, 1000, {.compute_slowdown = 1.3, .communication_slowdown = 1.2}).total_ps,
              time_layer(segments, 1000).total_ps);
    const std::int64_t free = time_layer(segments, 1000, {.overlap_batches = true}).total_ps;
    const std::int64_t slowed =
        time_layer(segments, 1000,
                   {.overlap_batches = true, .compute_slowdown = 1.3, .communication_slowdown = 1.2})
            .total_ps;
    EXPECT_GT(slowed, free);
    EXPECT_LT(static_cast<double>(slowed), 1.3 * static_cast<double>(free));
  }
}

}  // namespace
}  // namespace moesim::replay
