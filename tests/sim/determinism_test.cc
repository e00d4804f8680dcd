#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/random.h"
#include "base/sha256.h"
#include "sim/run/simulator.h"
#include "tests/bench/workloads.h"
#include "tests/sim/test_costs.h"

namespace moesim::sim {
namespace {

constexpr std::uint32_t kRanks = 16;

struct Job {
  TaskGraph graph;
  std::vector<std::vector<TaskId>> tasks;  // by rank, in stream order
};

// Layers of compute and all-to-alls among 16 ranks, many of which end at the same instant, plus sends between
// neighbours. `backwards` adds ranks' tasks in the opposite order: the same job, other numbers.
Job make_job(bool backwards) {
  TaskGraphBuilder b;
  b.add_ranks(kRanks);
  std::vector<StreamId> compute(kRanks), comm(kRanks);
  std::vector<RankId> all;
  for (std::uint32_t i = 0; i < kRanks; ++i) {
    const std::uint32_t r = backwards ? kRanks - 1 - i : i;
    compute[r] = b.add_stream(RankId(r), StreamKind::compute);
    comm[r] = b.add_stream(RankId(r), StreamKind::comm);
  }
  for (std::uint32_t r = 0; r < kRanks; ++r) all.emplace_back(r);
  const GroupId group = b.add_group(all);
  const LabelId gemm = b.add_label("gemm", Category::expert), a2a = b.add_label("a2a", Category::dispatch),
                p2p = b.add_label("p2p", Category::p2p);
  std::vector<std::vector<TaskId>> tasks(kRanks);
  for (std::uint32_t layer = 0; layer < 6; ++layer) {
    Random random = Random::for_item(7, layer);
    std::vector<std::uint32_t> rows(kRanks * kRanks);
    for (std::uint32_t& n : rows) n = static_cast<std::uint32_t>(random.below(layer % 2 == 0 ? 2 : 900));
    const CollectiveId c =
        b.add_collective(CollectiveOp::all_to_all, group,
                         matrix_traffic(b.add_matrix(kRanks, rows), 2048, layer % 3 == 0), a2a);
    std::vector<CollectiveId> sends;
    for (std::uint32_t r = 0; r + 1 < kRanks; r += 2)
      sends.push_back(b.add_collective(CollectiveOp::send_recv, b.add_group(std::vector{all[r], all[r + 1]}),
                                       uniform_traffic(500'000), p2p));
    for (std::uint32_t i = 0; i < kRanks; ++i) {
      const std::uint32_t r = backwards ? kRanks - 1 - i : i;
      const TaskId work = b.add_compute(compute[r], us(10.0 + r % 3), gemm);
      const TaskId member = b.add_member(comm[r], c, r);
      b.add_dependency(work, member);
      const TaskId send = b.add_member(comm[r], sends[r / 2], r % 2);
      const TaskId after = b.add_compute(compute[r], us(5), gemm);
      b.add_dependency(member, after);
      for (const TaskId task : {work, member, send, after}) tasks[r].push_back(task);
    }
  }
  return {b.finalize(), std::move(tasks)};
}

std::string story(const Job& job, const Timeline& timeline) {
  std::string text = fmt::format("{}\n", timeline.iteration().ps());
  for (const auto& tasks : job.tasks)
    for (const TaskId task : tasks)
      text += fmt::format("{} {} {}\n", timeline.start(task).ps(), timeline.end(task).ps(),
                          name(timeline.cause(task)));
  for (const LinkUse& use : timeline.links()) text += fmt::format("{} {:.6g}\n", use.link.value(), use.bytes);
  return text;
}

Timeline run_job(const Job& job, Timing timing, Algorithm algorithm, const Fabric& fabric,
                 Overlap slowdown = {}) {
  TestCosts costs;
  costs.duration = [](const CollectiveShape& shape, std::size_t member) {
    return us(20.0 + static_cast<double>(shape.traffic.bytes % 5 + member % 4));
  };
  costs.plan = bench::plan(algorithm);
  costs.slowdown = slowdown;
  RunOptions options;
  options.timing = timing;
  options.fabric = &fabric;
  return run(job.graph, costs, options);
}

std::string all_stories(bool backwards) {
  const Job job = make_job(backwards);
  const Fabric island = bench::island(kRanks);
  std::string text;
  text += story(job, run_job(job, Timing::calibrated, Algorithm::direct, island));
  text += story(job, run_job(job, Timing::calibrated, Algorithm::direct, island, {1.2, 1.4}));
  text += story(job, run_job(job, Timing::flow, Algorithm::pairwise, island));
  text += story(job, run_job(job, Timing::flow, Algorithm::direct, island));
  text += story(job, run_job(job, Timing::flow, Algorithm::direct, island, {1.2, 1.4}));
  return text;
}

// Equal bytes on every machine: a change of this digest is a change of results and must be intended.
TEST(Determinism, GoldenTimes) {
  EXPECT_EQ(sha256_hex(all_stories(false)),
            "84dae52d0d8394595885a348dd3349c0a659376bb5e991c0bf1cb07719baef09");
}

TEST(Determinism, TheOrderInWhichRanksAreAddedDoesNotMatter) {
  EXPECT_EQ(all_stories(false), all_stories(true));
}

TEST(Determinism, RunsSideBySideDoNotDisturbEachOther) {
  const std::string alone = all_stories(false);
  std::vector<std::string> results(4);
  std::vector<std::thread> threads;
  for (std::string& result : results) threads.emplace_back([&result] { result = all_stories(false); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) EXPECT_EQ(result, alone);
}

// Threads may share a graph, costs and a fabric.
TEST(Determinism, RunsMayShareWhatTheyRead) {
  const Job job = make_job(false);
  const Fabric island = bench::island(kRanks);
  const std::string alone = story(job, run_job(job, Timing::flow, Algorithm::direct, island));
  std::vector<std::string> results(4);
  std::vector<std::thread> threads;
  for (std::string& result : results)
    threads.emplace_back([&] { result = story(job, run_job(job, Timing::flow, Algorithm::direct, island)); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) EXPECT_EQ(result, alone);
}

}  // namespace
}  // namespace moesim::sim
