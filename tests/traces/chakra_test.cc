// Chakra execution traces in JSON: as chakra_jsonizer writes them, as the feeder's graphs, and what is wrong
// with others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/message_of.h"
#include "tests/traces/temporary_folder.h"
#include "traces/cmd_reader.h"
#include "traces/cmd_writer.h"
#include "traces/kineto_events.h"
#include "traces/kineto_reader.h"

namespace moesim::traces {
namespace {

namespace fs = std::filesystem;
using moesim::testing::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A node as protobuf's JSON says it: numbers of 64 bits as texts, what is zero left out.
std::string node(int id, const std::string& type, const std::string& name, int micros,
                 const std::string& waits_for, const std::string& attributes, int caller = -1) {
  return "{\n  \"id\": \"" + std::to_string(id) + "\",\n  \"name\": \"" + name + "\",\n  \"type\": \"" +
         type + "\"," + (caller < 0 ? "" : "\n  \"ctrlDeps\": [\"" + std::to_string(caller) + "\"],") +
         "\n  \"dataDeps\": [" + waits_for + "],\n  \"durationMicros\": \"" + std::to_string(micros) +
         "\",\n  \"attr\": [" + attributes + "]\n}";
}

constexpr const char* kGpu = R"({"name": "is_cpu_op", "boolVal": false})";
constexpr const char* kHost = R"({"name": "is_cpu_op", "boolVal": true}, {"name": "tid", "int64Val": "1"})";
constexpr const char* kBackwardHost =
    R"({"name": "is_cpu_op", "boolVal": true}, {"name": "tid", "int64Val": "2"})";

std::string collective(int kind, long bytes, const std::string& group) {
  return std::string(kGpu) + R"(, {"name": "comm_type", "int64Val": ")" + std::to_string(kind) +
         R"("}, {"name": "comm_size", "int64Val": ")" + std::to_string(bytes) +
         R"("}, {"name": "stream", "int64Val": "20"}, {"name": "pg_name", "stringVal": ")" + group + R"("})";
}

// A forward and a backward product with an all-to-all between, gradients summed at the end; in microseconds.
std::string rank_of(const std::string& pair, int slower = 0) {
  const std::string stream = std::string(kGpu) + R"(, {"name": "stream", "int64Val": "7"})";
  return "{\n  \"version\": \"0.0.4\"\n}" + node(1, "COMP_NODE", "aten::mm", 1, "", kHost) +
         node(2, "COMP_NODE", "gemm forward", 100 + slower, "", stream, 1) +
         node(3, "COMM_COLL_NODE", "ncclDevKernel_SendRecv", 50, "\"2\"", collective(6, 4096, pair), 1) +
         node(4, "COMP_NODE", "autograd::engine::evaluate_function: MmBackward0", 1, "\"1\"", kBackwardHost) +
         node(5, "COMP_NODE", "gemm backward", 200, "\"3\"", stream, 4) +
         node(6, "COMM_COLL_NODE", "ncclDevKernel_AllReduce_Sum_bf16", 30, "\"5\"", collective(0, 8192, "0"),
              4) +
         node(7, "METADATA_NODE", "## process_group:init ##", 0, "", kHost);
}

TEST(Chakra, AStepOfFourRanksBecomesARecording) {
  const TemporaryFolder folder;
  for (int rank = 0; rank < 4; ++rank)
    folder.write("step." + std::to_string(rank) + ".json", rank_of(rank < 2 ? "1" : "2", rank == 3 ? 40 : 0));
  const Recording recording = read_chakra(folder.path());
  ASSERT_EQ(recording.ranks.size(), 4u);
  EXPECT_EQ(recording.named.world, 4);
  EXPECT_EQ(recording.named.ep, 2);  // who calls the all-to-alls
  const RankRecording& first = recording.ranks[0];
  std::vector<std::string> names;
  for (const Operation& operation : first.operations) names.push_back(operation.name.str());
  EXPECT_THAT(names, ElementsAre("forward_step", "backward_step"));
  ASSERT_EQ(first.sub_operations.size(), 2u);
  const SubOperation& exchange = first.sub_operations[0];
  EXPECT_EQ(exchange.comm_func, "all_to_all");
  EXPECT_EQ(exchange.group, "exp");
  EXPECT_EQ(exchange.shape.str(), "[4096]");  // bytes, as no node says a type
  EXPECT_EQ(exchange.dtype, "torch.uint8");
  EXPECT_DOUBLE_EQ(exchange.duration.value(), 0.05);
  EXPECT_EQ(first.sub_operations[1].comm_func, "allreduce");
  EXPECT_EQ(first.sub_operations[1].group, "dp");
  // A launch of a microsecond, a product, the exchange: nothing overlaps, as each waits for the one before.
  EXPECT_DOUBLE_EQ(first.operations[0].duration.value(), 0.15);
  EXPECT_DOUBLE_EQ(first.operations[1].duration.value(), 0.23);
  EXPECT_DOUBLE_EQ(recording.ranks[3].operations[0].duration.value(), 0.19);
  const std::string written = write_cmd_text(first);
  Pool pool;
  EXPECT_EQ(write_cmd_text(read_cmd_text(written, "written.txt", pool)), written);
  EXPECT_THAT(recording.warnings, ::testing::Contains(HasSubstr("names no times")));
}

TEST(Chakra, TypesOfInputsSayElements) {
  const TemporaryFolder folder;
  for (int rank = 0; rank < 2; ++rank) {
    std::string text = rank_of("1");
    const std::string at = "\"name\": \"ncclDevKernel_SendRecv\",";
    text.replace(text.find(at), at.size(), at + R"( "inputs": {"types": "['Tensor(c10::BFloat16)']"},)");
    folder.write("t." + std::to_string(rank) + ".json", text);
  }
  const Recording recording = read_chakra(folder.path());
  EXPECT_EQ(recording.ranks[0].sub_operations[0].shape.str(), "[2048]");
  EXPECT_EQ(recording.ranks[0].sub_operations[0].dtype, "torch.bfloat16");
}

// The graphs of Chakra's feeder, whose keys are spelled otherwise; a transfer without a duration counts.
TEST(Chakra, WorkloadGraphsAreReadToo) {
  const TemporaryFolder folder;
  for (int rank = 0; rank < 2; ++rank)
    folder.write("g." + std::to_string(rank) + ".json", R"({"workload_graph": [
      {"Id": 1, "Name": "compute", "NodeType": 4, "ctrlDeps": [99], "data_deps": [], "runtime": 10, "is_cpu_op": false},
      {"Id": 2, "Name": "gather", "NodeType": 7, "data_deps": [1], "is_cpu_op": false, "comm_type": 2, "comm_size": 64},
      {"Id": 3, "Name": "compute", "NodeType": 4, "data_deps": [2], "runtime": 10, "is_cpu_op": false}], "ngpus": 2})");
  const Recording recording = read_chakra(folder.path());
  ASSERT_EQ(recording.ranks.size(), 2u);
  ASSERT_EQ(recording.ranks[0].sub_operations.size(), 1u);
  EXPECT_EQ(recording.ranks[0].sub_operations[0].comm_func, "allgather");
  EXPECT_THAT(recording.warnings, ::testing::Contains(HasSubstr("1 transfers without a duration")));
}

TEST(Chakra, PipelinesSendToNamedRanks) {
  const TemporaryFolder folder;
  const std::string stream = std::string(kGpu) + R"(, {"name": "stream", "int64Val": "7"})";
  folder.write(
      "p.0.json",
      node(1, "COMP_NODE", "stage", 10, "", stream) +
          node(2, "COMM_SEND_NODE", "send", 5, "\"1\"",
               std::string(kGpu) +
                   R"(, {"name": "comm_dst", "int32Val": 1}, {"name": "comm_size", "uint64Val": "128"})"));
  folder.write(
      "p.1.json",
      node(1, "COMM_RECV_NODE", "receive", 15, "",
           std::string(kGpu) +
               R"(, {"name": "comm_src", "int32Val": 0}, {"name": "comm_size", "uint64Val": "128"})") +
          node(2, "COMP_NODE", "stage", 10, "\"1\"", stream));
  const Recording recording = read_chakra(folder.path());
  EXPECT_EQ(recording.named.pp, 2);
  EXPECT_EQ(recording.ranks[0].operations[1].name, "send_forward");
  EXPECT_EQ(recording.ranks[1].operations[0].name, "recv_forward");
  EXPECT_EQ(recording.ranks[1].operations[0].shape.str(), "[128]");
}

TEST(Chakra, WhatIsWrongIsNamed) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "x.0.json";
  const auto refusal = [&](const std::string& text) {
    folder.write("x.0.json", text);
    return message_of([&] { read_chakra(path); });
  };
  EXPECT_THAT(refusal(rank_of("1")), HasSubstr("transfers between ranks in the trace of one"));
  EXPECT_THAT(refusal(node(1, "COMP_NODE", "a", 1, "\"2\"", kGpu)),
              HasSubstr("depends on node 2, which is not there"));
  EXPECT_THAT(
      refusal(node(1, "COMP_NODE", "a", 1, "\"2\"", kGpu) + node(2, "COMP_NODE", "b", 1, "\"1\"", kGpu)),
      HasSubstr("x.0.json:1: found node 1 ('a') waits for itself in a circle"));
  EXPECT_THAT(refusal(node(1, "COMP_NODE", "a", 1, "", kGpu) + "\n" + node(1, "COMP_NODE", "a", 1, "", kGpu)),
              HasSubstr("stands there twice"));
  EXPECT_THAT(refusal(node(1, "COMP_NODE", "a", 1, "", kHost)), HasSubstr("without work of a GPU"));
  EXPECT_THAT(refusal(node(1, "COMP_NODE", "a", 0, "",
                           std::string(kGpu) + R"(, {"name": "num_ops", "int64Val": "7"})")),
              HasSubstr("operations to price and no durations"));
  EXPECT_THAT(refusal(node(1, "COMM_SEND_NODE", "a", 1, "", kGpu)), HasSubstr("a send without \"comm_dst\""));
  EXPECT_THAT(refusal(node(1, "STRANGE_NODE", "a", 1, "", kGpu)), HasSubstr("a NodeType of et_def.proto"));
  EXPECT_THAT(refusal("{\"id\": \"1\", \"type\": \"COMP_NODE\""), HasSubstr("x.0.json:"));
  EXPECT_THAT(refusal("{\"id\": \"-4\", \"type\": \"COMP_NODE\"}"), HasSubstr("a whole number"));
}

TEST(Chakra, IsKnownByItsContent) {
  const TemporaryFolder folder;
  const auto known = [&](const std::string& text) {
    folder.write("x.0.json", text);
    return is_chakra(folder.path() / "x.0.json");
  };
  EXPECT_TRUE(known(rank_of("1")));
  EXPECT_FALSE(known(R"({"traceEvents": [{"name": "COMM_COLL_NODE"}]})"));
  EXPECT_FALSE(known(R"({"schema": "1.0.2-chakra.0.0.4", "nodes": []})"));
  EXPECT_THAT(message_of([&] { read_cmd(folder.path()); }),
              HasSubstr("found a folder without rank files, expected files like rank00.txt"));
  EXPECT_THAT(message_of([&] { read_cmd(folder.path()); }), HasSubstr("`moesim trace convert"));
}

TEST(Chakra, PublicGraphOfOneRankIsReadOrNamed) {
  const fs::path path = fs::path(MOESIM_DATA_DIR) / "foreign/kineto/chakra__x__jsonData__small_chakra.0.json";
  if (!fs::exists(path)) GTEST_SKIP() << "no " << path;
  // One rank of eight, with a broadcast between them.
  EXPECT_THAT(message_of([&] { read_chakra(path); }), HasSubstr("of one"));
}

}  // namespace
}  // namespace moesim::traces
