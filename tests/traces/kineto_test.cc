// PyTorch profiler traces become recordings: made-up ones line by line, the public sample, and broken ones.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "tests/message_of.h"
#include "tests/traces/temporary_folder.h"
#include "traces/cmd_reader.h"
#include "traces/cmd_writer.h"
#include "traces/kineto_events.h"
#include "traces/kineto_reader.h"
#include "traces/recording_facts.h"

namespace moesim::traces {
namespace {

namespace fs = std::filesystem;
using moesim::testing::message_of;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// `cut` bytes are missing at its end.
void write_gzip(const fs::path& path, const std::string& text, std::size_t cut = 0) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  if (cut > 0) fs::resize_file(path, fs::file_size(path) - cut);
}

constexpr int kMain = 10, kAutograd = 11;

// A trace made event by event; times in microseconds.
class TraceText {
 public:
  TraceText(int rank, int world, double origin_us = 1e9) : origin_(origin_us) {
    head_ = fmt::format(
        R"({{"schemaVersion":1,"distributedInfo":{{"backend":"nccl","rank":{},"world_size":{}}},)", rank,
        world);
    host("user_annotation", "ProfilerStep#1", kMain, 0, 1000);
  }
  void host(const std::string& category, const std::string& name, int thread, double start, double us) {
    add(fmt::format(R"({{"ph":"X","cat":"{}","name":"{}","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
                    category, name, thread, origin_ + start, us));
  }
  // A kernel launched 5 us before it starts (or at `launched`).
  void kernel(const std::string& name, int stream, int thread, double start, double us,
              const std::string& more = "", double launched = -1) {
    ++correlation_;
    add(fmt::format(
        R"({{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":{},"ts":{:.3f},"dur":2,"args":{{"correlation":{}}}}})",
        thread, origin_ + (launched >= 0 ? launched : std::max(0.0, start - 5)), correlation_));
    add(fmt::format(
        R"({{"ph":"X","cat":"kernel","name":"{}","pid":0,"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"stream":{},"correlation":{}{}}}}})",
        name, stream, origin_ + start, us, stream, correlation_, more));
  }
  void autograd(double start, double us) {
    host("cpu_op", "autograd::engine::evaluate_function: MmBackward0", kAutograd, start, us);
  }
  std::string str() const {
    std::string out = head_ + "\"traceEvents\":[\n";
    for (std::size_t i = 0; i < events_.size(); ++i)
      out += events_[i] + (i + 1 < events_.size() ? ",\n" : "\n");
    return out + "]}\n";
  }

 private:
  void add(std::string event) { events_.push_back(std::move(event)); }
  double origin_;
  int correlation_ = 100;
  std::string head_;
  std::vector<std::string> events_;
};

std::string group_of(const std::vector<int>& ranks, const std::string& description = "",
                     long elements = 4096) {
  std::string list;
  for (const int rank : ranks) list += (list.empty() ? "" : ", ") + std::to_string(rank);
  return fmt::format(
      R"(,"Group size":{},"Process Group Ranks":"[{}]","Process Group Description":"{}","In msg nelems":{},"dtype":"BFloat16")",
      ranks.size(), list, description, elements);
}

// Forward with an all-to-all that the stream waits for, backward with a reduction that hides behind it,
// optimizer. `late`: the rank comes to the all-to-all this much later than the other.
std::string small_trace(int rank, double late = 0, double origin = 1e9) {
  TraceText trace(rank, 2, origin);
  trace.kernel("gemm", 7, kMain, 10, 90 + late);
  trace.kernel("ncclDevKernel_SendRecv(x)", 20, kMain, 100 + late, 60 - late,
               R"(,"Collective name":"all_to_allv")" + group_of({0, 1}, "EXPERT_MODEL_PARALLEL_GROUP"));
  trace.kernel("gemm", 7, kMain, 165, 35);
  trace.autograd(205, 190);
  trace.kernel("gemm", 7, kAutograd, 210, 190);
  trace.kernel("ncclDevKernel_AllReduce(x)", 21, kAutograd, 250, 100,
               R"(,"Collective name":"allreduce")" + group_of({0, 1}, "DATA_PARALLEL_GROUP", 777), 230);
  trace.host("user_annotation", "Optimizer.step#Adam.step", kMain, 410, 100);
  trace.kernel("adam", 7, kMain, 420, 80);
  return trace.str();
}

std::vector<std::string> names(const RankRecording& rank) {
  std::vector<std::string> out;
  for (const Operation& operation : rank.operations) out.push_back(operation.name.str());
  return out;
}

std::string refusal(const fs::path& path, const KinetoReadOptions& options = {}) {
  return message_of([&] { read_kineto(path, options); });
}

KinetoReadOptions with_ep(std::int64_t ep) {
  KinetoReadOptions options;
  options.ep = ep;
  return options;
}

KinetoReadOptions with_step(std::size_t step) {
  KinetoReadOptions options;
  options.step = step;
  return options;
}

TEST(Kineto, CutsAStepByWhoLaunchedItsKernels) {
  const TemporaryFolder folder;
  folder.write("trace_rank0.json", small_trace(0));
  write_gzip(folder.path() / "trace_rank1.json.gz", small_trace(1, 30));
  const Recording recording = read_kineto(folder.path());
  ASSERT_EQ(recording.ranks.size(), 2u);
  EXPECT_THAT(recording.warnings, ::testing::IsEmpty());
  EXPECT_EQ(recording.named.ep, 2);
  const RankRecording& rank = recording.ranks[0];
  EXPECT_THAT(names(rank), ElementsAre("forward_step", "backward_step", "optimizer_step"));
  const Operation& forward = rank.operations[0];
  EXPECT_DOUBLE_EQ(forward.duration.value(), 0.190);
  ASSERT_EQ(forward.sub_count, 1u);
  const SubOperation& exchange = rank.subs(forward)[0];
  EXPECT_EQ(exchange.comm_func, "all_to_all");
  EXPECT_EQ(exchange.group, "exp");
  EXPECT_EQ(exchange.shape.str(), "[4096]");
  EXPECT_EQ(exchange.dtype, "torch.bfloat16");
  EXPECT_DOUBLE_EQ(exchange.duration.value(), 0.060)
      << "from the end of the computing to the end of the transfer";
  EXPECT_DOUBLE_EQ(recording.ranks[1].subs(recording.ranks[1].operations[0])[0].duration.value(), 0.030);
  // The reduction hides behind backward on both ranks.
  const SubOperation& reduction = rank.subs(rank.operations[1])[0];
  EXPECT_EQ(reduction.source, "nccl_allreduce_async");
  EXPECT_EQ(reduction.group, "dp");
  EXPECT_EQ(rank.operations[2].duration.value(), 0.080);
  EXPECT_EQ(describe(recording).side, Side::kRealistic);
}

TEST(Kineto, WhatIsWrittenIsReadBackAsTheSameBytes) {
  const TemporaryFolder folder;
  fs::create_directories(folder.path() / "in");
  folder.write("in/rank0.json", small_trace(0));
  folder.write("in/rank1.json", small_trace(1, 10.25));
  const Recording made = read_kineto(folder.path() / "in");
  write_cmd(made, folder.path() / "out");
  const Recording again = read_cmd(folder.path() / "out");
  ASSERT_EQ(again.ranks.size(), 2u);
  for (std::size_t r = 0; r < 2; ++r)
    EXPECT_EQ(write_cmd_text(again.ranks[r]), write_cmd_text(made.ranks[r]));
  EXPECT_EQ(again.named.world, 2);
  EXPECT_EQ(again.named.ep, 2);
}

TEST(Kineto, OlderKernelsTakeTheirNameFromTheAnnotationAroundTheirLaunch) {
  const TemporaryFolder folder;
  for (int rank = 0; rank < 2; ++rank) {
    std::string text = small_trace(rank);
    TraceText trace(rank, 2);
    trace.kernel("gemm", 7, kMain, 10, 90);
    trace.kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", 20, kMain, 100, 60);
    trace.kernel("gemm", 7, kMain, 165, 35);
    text = trace.str();
    const std::string annotation =
        R"({"ph":"X","cat":"user_annotation","name":"nccl:all_to_all","pid":1,"tid":10,"ts":1000000090,"dur":20,)"
        R"("args":{"External id":3,"Input Dims":[[64, 32], []],"Input type":["long int","Scalar"]}},)";
    text.insert(text.find("\"traceEvents\":[") + 15, annotation);
    folder.write(fmt::format("worker{}.json", rank), text);
  }
  const Recording recording = read_kineto(folder.path());
  const SubOperation& call = recording.ranks[0].sub_operations.at(0);
  EXPECT_EQ(call.comm_func, "all_to_all");
  EXPECT_EQ(call.shape.str(), "[2048]");
  EXPECT_EQ(call.dtype, "torch.int64");
}

TEST(Kineto, SendsAndReceivesMakeAPipeline) {
  const TemporaryFolder folder;
  for (int rank = 0; rank < 2; ++rank) {
    TraceText trace(rank, 2);
    const auto p2p = [&](const char* what, int from, int to, double start) {
      trace.kernel("ncclDevKernel_SendRecv(x)", 30, kMain, start, 20,
                   fmt::format(R"(,"Collective name":"{}","Src Rank":{},"Dst Rank":{})", what, from, to) +
                       group_of({0, 1}, "PIPELINE", 512));
    };
    if (rank == 0) {
      trace.kernel("gemm", 7, kMain, 10, 90);
      p2p("send", 0, 1, 100);
      p2p("recv", 1, 0, 400);
      trace.autograd(420, 100);
      trace.kernel("gemm", 7, kAutograd, 430, 90);
    } else {
      p2p("recv", 0, 1, 100);
      trace.kernel("gemm", 7, kMain, 130, 100);
      trace.autograd(235, 120);
      trace.kernel("gemm", 7, kAutograd, 240, 120);
      p2p("send", 1, 0, 400);
    }
    folder.write(fmt::format("rank{}.json", rank), trace.str());
  }
  const Recording recording = read_kineto(folder.path());
  EXPECT_EQ(recording.named.pp, 2);
  EXPECT_THAT(names(recording.ranks[0]),
              ElementsAre("forward_step", "send_forward", "recv_backward", "backward_step"));
  EXPECT_THAT(names(recording.ranks[1]),
              ElementsAre("recv_forward", "forward_step", "backward_step", "send_backward"));
  EXPECT_EQ(recording.ranks[1].operations[0].stage_id, 1);
  EXPECT_EQ(recording.ranks[0].operations[1].shape.str(), "[512]");
}

TEST(Kineto, GroupsThatFitNothingStayComputingAndAreNamed) {
  const TemporaryFolder folder;
  for (int rank = 0; rank < 4; ++rank) {
    TraceText trace(rank, 4);
    trace.kernel("gemm", 7, kMain, 10, 90);
    const bool outer = rank == 0 || rank == 3;
    trace.kernel("ncclDevKernel_AllReduce(x)", 20, kMain, 100, 50,
                 R"(,"Collective name":"allreduce","Process Group Name":"odd")" +
                     group_of(outer ? std::vector{0, 3} : std::vector{1, 2}));
    trace.kernel("gemm", 7, kMain, 160, 10);
    folder.write(fmt::format("rank{}.json", rank), trace.str());
  }
  const Recording recording = read_kineto(folder.path());
  EXPECT_TRUE(recording.ranks[0].sub_operations.empty());
  EXPECT_THAT(recording.warnings, Contains(AllOf(HasSubstr("odd"), HasSubstr("stays in the computing"))));
  EXPECT_THAT(refusal(folder.path(), with_ep(3)), HasSubstr("4 ranks with tp 1, ep 3"));
}

TEST(Kineto, BrokenTracesAreOneLine) {
  const std::string whole = small_trace(0);
  struct Case {
    const char* what;
    std::string text;
    const char* expected;
  };
  const std::string no_time = R"({"traceEvents":[{"ph":"X","name":"a","cat":"kernel"}]})";
  const std::vector<Case> cases{
      {"unfinished", whole.substr(0, whole.size() / 2), "the end of the file inside an unfinished trace"},
      {"no JSON", "profile: yes\n", "where it is no JSON"},
      {"empty", "", "the end of the file inside an unfinished trace"},
      {"no events", R"({"schemaVersion": 1})", "no \"traceEvents\""},
      {"no time", no_time, "without \"ts\""},
      {"time as a text", R"({"traceEvents":[{"ph":"X","name":"a","ts":"5"}]})", "\"ts\" that is a text"},
      {"negative time", R"({"traceEvents":[{"ph":"X","name":"a","ts":-5}]})", "microseconds from 0"},
      {"no GPU", R"({"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a","ts":5,"dur":1}]})", "no kernels"},
      {"too deep", "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", "65 levels deep"},
  };
  for (const Case& one : cases) {
    const TemporaryFolder folder;
    folder.write("rank0.json", one.text);
    const std::string error = refusal(folder.path());
    EXPECT_THAT(error, HasSubstr(one.expected)) << one.what;
    EXPECT_THAT(error, HasSubstr("rank0.json")) << one.what;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

// One rank of many is a recording of one rank, and says what fills the others.
TEST(Kineto, OneRankOfManyIsARecordingOfOneRank) {
  const TemporaryFolder folder;
  folder.write("rank0.json", small_trace(0));
  const Recording recording = read_kineto(folder.path());
  ASSERT_EQ(recording.ranks.size(), 1u);
  EXPECT_EQ(recording.named.world, 2);
  EXPECT_THAT(recording.warnings, Contains(AllOf(HasSubstr("1 of 2 ranks"), HasSubstr("--ranks-missing"))));
  EXPECT_THAT(recording.warnings, Not(Contains(HasSubstr("fake process group"))));
  std::string fake = small_trace(0);
  fake.replace(fake.find("\"nccl\""), 6, "\"fake\"");
  folder.write("rank0.json", fake);
  EXPECT_THAT(read_kineto(folder.path()).warnings,
              Contains(HasSubstr("it lacks every transfer between ranks")));
}

// Kernels of DeepEP, in the names that DeepSeek's own trace and the library give them, are exchanges.
TEST(Kineto, KernelsOfExpertsAreCommunication) {
  const TemporaryFolder folder;
  TraceText trace(3, 8);
  trace.kernel("void deep_ep::internode::notify_dispatch(int)", 27, kMain, 10, 20);
  trace.kernel("void dpsk::ep::internode::dispatch(int4*)", 27, kMain, 30, 100);
  trace.kernel("gemm", 7, kMain, 140, 50);
  trace.kernel("hybrid_ep::combine_kernel", 27, kMain, 200, 70);
  trace.kernel("gemm", 7, kMain, 280, 50);
  folder.write("rank3.json", trace.str());
  for (const std::int64_t ep : {0, 4}) {
    const Recording recording = read_kineto(folder.path(), ep > 0 ? with_ep(ep) : KinetoReadOptions{});
    EXPECT_EQ(recording.named.ep, ep > 0 ? ep : 8);
    ASSERT_EQ(recording.ranks.size(), 1u);
    double waited = 0;
    std::vector<std::string> calls;
    for (const SubOperation& sub : recording.ranks[0].sub_operations) {
      EXPECT_EQ(sub.group, "exp");
      calls.push_back(sub.comm_func.str());
      waited += sub.duration.value();
    }
    EXPECT_THAT(calls, ElementsAre("allgather", "all_to_all", "all_to_all"));
    EXPECT_NEAR(waited, 0.19, 0.01);
    EXPECT_EQ(describe(recording).expert.dispatcher, "alltoall");
    if (ep == 0) {
      EXPECT_THAT(recording.warnings, Contains(HasSubstr("--ep tells otherwise")));
    }
  }
}

// Iterations without the profiler's marks are repetitions, or as many as given.
TEST(Kineto, IterationsAreFoundByRepetition) {
  const TemporaryFolder folder;
  TraceText trace(0, 1);
  for (int iteration = 0; iteration < 5; ++iteration)
    for (int k = 0; k < 12; ++k)
      trace.kernel(fmt::format("kernel_{}", k * k % 11), 7, kMain, 2000 + 200 * iteration + 10 * k, 8);
  std::string text = trace.str();
  const std::size_t mark = text.find("ProfilerStep#1");
  text.replace(mark, 14, "something else");
  folder.write("rank0.json", text);
  const Recording recording = read_kineto(folder.path(), with_step(2));
  EXPECT_EQ(recording.passes, 5u);
  EXPECT_THAT(recording.warnings, Contains(HasSubstr("5 iterations, found by repetition")));
  ASSERT_EQ(recording.ranks.size(), 1u);
  EXPECT_NEAR(recording.ranks[0].operations.front().duration.value(), 0.118, 1e-6);
  KinetoReadOptions seven;
  seven.iterations = 7;
  EXPECT_THAT(refusal(folder.path(), seven), HasSubstr("no 7 repetitions"));
  // Nothing of autograd's: said at conversion.
  EXPECT_THAT(recording.warnings, Contains(HasSubstr("part of forward_step")));
}

TEST(Kineto, TracesThatDoNotFitTogetherAreRefused) {
  {
    const TemporaryFolder folder;
    // The last eight bytes are a checksum and a length.
    for (const std::size_t cut : {20, 8, 4, 1}) {
      write_gzip(folder.path() / "rank0.json.gz", small_trace(0), cut);
      EXPECT_THAT(refusal(folder.path()), HasSubstr("compressed data that is cut short")) << cut;
    }
  }
  {
    const TemporaryFolder folder;
    write_gzip(folder.path() / "rank0.json.gz", small_trace(0) + std::string(std::size_t{100} << 20, ' '));
    EXPECT_THAT(refusal(folder.path()), HasSubstr("unpacks to more than 256 times its size"));
  }
  {
    const TemporaryFolder folder;
    folder.write("rank0.json", small_trace(0));
    EXPECT_EQ(refusal(folder.path()), "");
    folder.write("rank1.json", small_trace(1, 0, 5e9));
    EXPECT_THAT(refusal(folder.path()), HasSubstr("one clock and one step for all ranks"));
    folder.write("rank1.json", small_trace(0));
    EXPECT_THAT(refusal(folder.path()), HasSubstr("a second trace of rank 0"));
    std::string other = small_trace(1);
    const std::string name = "\"Collective name\":\"all_to_allv\"";
    other.replace(other.find(name), name.size(), "\"Collective name\":\"all_gather\"");
    folder.write("rank1.json", other);
    EXPECT_THAT(refusal(folder.path()), AnyOf(HasSubstr("calls of rank"), HasSubstr("as call 1 of rank")));
    EXPECT_THAT(refusal(folder.path(), with_step(3)), HasSubstr("1 profiled steps"));
  }
  {
    const TemporaryFolder folder;
    EXPECT_THAT(refusal(folder.path()), HasSubstr("no *.json"));
    EXPECT_THAT(refusal(folder.path() / "nowhere"), HasSubstr("no such file"));
  }
}

TEST(Kineto, ReadsAnyPrefixWithoutCrashing) {
  const std::string whole = small_trace(0);
  const TemporaryFolder folder;
  for (std::size_t size = 0; size + 2 < whole.size(); size += 37) {
    folder.write("rank0.json", whole.substr(0, size));
    EXPECT_NE(refusal(folder.path()), "") << size;
  }
}

// Each rank's own time is what its trace says; the sample has old kernels, no message sizes in them, eight
// ranks.
TEST(Kineto, ThePublicSampleBecomesARealRun) {
  const fs::path archive = fs::path(MOESIM_DATA_DIR) / "published/traces/param_dlrm_v100_8rank_kineto.tar.gz";
  if (!fs::exists(archive)) GTEST_SKIP() << "the public sample is not here";
  const TemporaryFolder folder;
  ASSERT_EQ(std::system(fmt::format("tar xzf {} -C {}", archive.string(), folder.path().string()).c_str()),
            0);
  const Recording recording = read_kineto(folder.path() / "dlrm_kineto");
  ASSERT_EQ(recording.ranks.size(), 8u);
  EXPECT_EQ(recording.named.ep, 8);
  std::size_t exchanges = 0, reductions = 0;
  for (const RankRecording& rank : recording.ranks) {
    EXPECT_THAT(names(rank), ElementsAre("forward_step", "backward_step", "optimizer_step")) << rank.rank;
    for (const SubOperation& sub : rank.sub_operations) {
      exchanges += sub.comm_func == "all_to_all";
      reductions += sub.comm_func == "allreduce";
      EXPECT_TRUE(sub.shape.has_dims());
    }
  }
  EXPECT_EQ(exchanges, 8u * 5);
  EXPECT_EQ(reductions, 8u * 3);
}

// Chakra execution traces in JSON: as chakra_jsonizer writes them, as the feeder's graphs, and what is wrong
// with others.

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
