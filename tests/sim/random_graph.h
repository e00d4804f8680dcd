// Random graphs that can finish: tasks are added in one global order that every stream and dependency
// respects.
#pragma once

#include <rapidcheck.h>

#include "sim/graph/task_graph.h"
#include "tests/sim/test_costs.h"

namespace moesim::sim {

inline TestCosts member_dependent_costs() {
  TestCosts costs;
  costs.duration = [](const CollectiveShape& shape, std::size_t member) {
    return us(static_cast<double>(3 + shape.traffic.bytes % 7 + 2 * member));
  };
  return costs;
}

inline rc::Gen<TaskGraph> random_graph() {
  // At full size whatever the size of the test case: small graphs exercise nothing.
  return rc::gen::resize(100, rc::gen::exec([] {
                           TaskGraphBuilder b;
                           const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 6);
                           b.add_ranks(ranks);
                           std::vector<StreamId> compute, comm, host;
                           std::vector<TaskId> last_comm(ranks), last_compute(ranks);
                           for (std::uint32_t r = 0; r < ranks; ++r) {
                             compute.push_back(b.add_stream(RankId(r), StreamKind::compute));
                             comm.push_back(b.add_stream(RankId(r), StreamKind::comm));
                             host.push_back(b.add_stream(RankId(r), StreamKind::host));
                           }
                           const LabelId gemm = b.add_label("gemm", Category::expert),
                                         sync = b.add_label("sync", Category::host_sync),
                                         a2a = b.add_label("a2a", Category::dispatch),
                                         gap = b.add_label("gap", Category::other);
                           const auto steps = *rc::gen::inRange<int>(1, 40);
                           for (int i = 0; i < steps; ++i) {
                             const auto r = *rc::gen::inRange<std::uint32_t>(0, ranks);
                             const Time time = us(*rc::gen::inRange<int>(0, 20));
                             switch (*rc::gen::inRange<int>(0, 5)) {
                               case 0:
                               case 1: {
                                 const TaskId task = b.add_compute(compute[r], time, gemm);
                                 if (last_comm[r].valid() && *rc::gen::arbitrary<bool>())
                                   b.add_dependency(last_comm[r], task);
                                 last_compute[r] = task;
                                 break;
                               }
                               case 2:
                                 b.add_delay(compute[r], time, gap);
                                 break;
                               case 3: {
                                 if (!last_compute[r].valid()) break;
                                 const TaskId wait = b.add_host(host[r], time, sync);
                                 b.add_dependency(last_compute[r], wait);
                                 last_compute[r] = b.add_compute(compute[r], time, gemm);
                                 b.add_dependency(wait, last_compute[r]);
                                 break;
                               }
                               case 4: {
                                 std::vector<RankId> members;
                                 for (std::uint32_t m = 0; m < ranks; ++m)
                                   if (m == r || *rc::gen::arbitrary<bool>()) members.emplace_back(m);
                                 const CollectiveId c = b.add_collective(
                                     CollectiveOp::all_to_all, b.add_group(members),
                                     uniform_traffic(*rc::gen::inRange<std::uint64_t>(0, 1000)), a2a);
                                 for (std::uint32_t m = 0; m < members.size(); ++m) {
                                   const std::uint32_t rank = members[m].value();
                                   last_comm[rank] = b.add_member(comm[rank], c, m);
                                   if (last_compute[rank].valid())
                                     b.add_dependency(last_compute[rank], last_comm[rank]);
                                 }
                                 break;
                               }
                             }
                           }
                           return b.finalize();
                         }));
}

}  // namespace moesim::sim
