// The bytes of a replay's transfers are those of the recording's shapes, whatever the source of the times.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "echo_data.h"
#include "made_job.h"
#include "replay/job/synthesize.h"
#include "replay/run/forecast_recording.h"
#include "replay/run/iteration.h"
#include "traces/cmd_reader.h"

namespace moesim::replay {
namespace {

struct Bytes {
  double exchanged = 0;  // into all-to-alls, the own share included
  double sent = 0;       // to other stages
  double reduced = 0;    // gradient buffers
  double gathered = 0;

  friend bool operator==(const Bytes&, const Bytes&) = default;
};
std::ostream& operator<<(std::ostream& out, const Bytes& b) {
  return out << b.exchanged << " exchanged, " << b.sent << " sent, " << b.reduced << " reduced, "
             << b.gathered << " gathered";
}

double bytes_of(traces::Shape shape, traces::Name dtype) {
  return static_cast<double>(shape.elements()) * traces::dtype_bytes(dtype.view()).value_or(0);
}

// Bytes of every rank from the lines of its file only; `times`: how often its microbatch runs.
std::map<int, Bytes> in_lines(const traces::Recording& recording, const Topology& topology, int times) {
  std::map<int, Bytes> all;
  for (const traces::RankRecording& rank : recording.ranks) {
    Bytes& mine = all[rank.rank];
    for (const traces::Operation& op : rank.operations) {
      if (op.name == "send_forward" || op.name == "send_backward") mine.sent += bytes_of(op.shape, op.dtype);
      if (op.name == "dp_allreduce" && topology.dp() > 1) mine.reduced += bytes_of(op.shape, op.dtype);
      if (op.name.view().ends_with("p_dp_allreduce") && op.name != "dp_allreduce" && topology.expert_dp > 1)
        mine.reduced += bytes_of(op.shape, op.dtype);
      for (const traces::SubOperation& sub : rank.subs(op)) {
        if (sub.comm_func == "all_to_all") mine.exchanged += times * bytes_of(sub.shape, sub.dtype);
        if (sub.comm_func == "allgather") mine.gathered += times * bytes_of(sub.shape, sub.dtype);
      }
    }
  }
  return all;
}

std::map<int, Bytes> in_graph(const sim::TaskGraph& graph) {
  std::map<int, Bytes> all;
  for (std::uint32_t c = 0; c < graph.collective_count(); ++c) {
    const sim::CollectiveShape shape = graph.shape(sim::CollectiveId(c));
    for (std::size_t m = 0; m < shape.members(); ++m) {
      Bytes& mine = all[static_cast<int>(shape.ranks[m].value())];
      const auto bytes = static_cast<double>(shape.traffic.bytes);
      if (shape.op == sim::CollectiveOp::all_to_all)
        for (std::size_t to = 0; to < shape.members(); ++to)
          mine.exchanged += static_cast<double>(shape.traffic.between(m, to, shape.members()));
      if (shape.op == sim::CollectiveOp::all_gather) mine.gathered += bytes;
      if (shape.op == sim::CollectiveOp::send_recv && m == 0) mine.sent += bytes;
      if (shape.op == sim::CollectiveOp::all_reduce && bytes > 4) mine.reduced += bytes;  // not the loss
    }
  }
  return all;
}

void hold_bytes(const traces::Recording& recording, const char* cluster) {
  const RecordedJob job = interpret(recording);
  RecordingQuestion question;
  testing::say(question, "cluster", cluster);
  question.recorded_there = true;
  testing::say(question, "parallel.microbatches", job.realistic ? 0 : 8);
  const RecordingForecast answer = forecast_recording(std::span(&job, 1), recording.named, question);
  auto lines = in_lines(recording, job.topology, job.realistic ? 1 : 8);
  const auto graph = in_graph(answer.iteration.graph);
  for (const auto& [rank, mine] : graph) {
    Bytes expected = lines.at(rank);
    // A recording of one GPU has no sends, and early ones the sum of both gradients in another type.
    if (!job.realistic) expected.sent = mine.sent, expected.reduced = mine.reduced;
    EXPECT_EQ(mine, expected) << "rank " << rank;
    EXPECT_GT(mine.reduced, 1e9) << "rank " << rank;
  }
  EXPECT_EQ(graph.size(), static_cast<std::size_t>(job.topology.world()));
}

TEST(InstanceTraffic, IsThatOfTheShapes) {
  const SyntheticRecordings made = synthesize(testing::replicated_job());
  hold_bytes(made.realistic, "echo-h800x2");
  hold_bytes(made.scaling, "echo-h800x2");
}

TEST(InstanceTraffic, IsThatOfTheShapesInPublicRecordings) {
  if (!std::filesystem::exists(testing::echo_folder())) GTEST_SKIP() << "no " << testing::echo_folder();
  for (const char* name : {testing::kMoeConfigurations[0], testing::kMoeConfigurations[2]})
    for (const char* side : {"realistic", "scaling2"}) {
      SCOPED_TRACE(std::string(name) + "/" + side);
      hold_bytes(traces::read_cmd(testing::echo_folder() / name / side), "echo-h800x2");
    }
}

}  // namespace
}  // namespace moesim::replay
