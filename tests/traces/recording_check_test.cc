// Checks of a recording, the roles of its calls, and the sizes that it names.
#include "traces/recording_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/message_of.h"
#include "traces/call_roles.h"
#include "traces/cmd_reader.h"
#include "traces/recording_facts.h"
#include "traces/recording_rules.h"

namespace moesim::traces {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Writes the lines of a small job as a recorder would, two stages by two expert ranks, so that tests can bend
// it.
struct Job {
  bool realistic = false;
  int microbatches = 1;
  std::int64_t received[2] = {5, 3};
  std::string dp_dtype = "torch.float32";

  Recording recording(const std::string& name = "pp2_tp1_ep2_expn4_dp2_nl4_hs8_sl4") const {
    Recording out;
    out.source = name;
    out.named = named_topology("/x/" + name + "/scaling");
    for (int rank = 0; rank < 4; ++rank)
      out.ranks.push_back(read_cmd_text(text(rank), "rank0" + std::to_string(rank) + ".txt", out.pool));
    return out;
  }

  std::string text(int rank) const {
    const int stage = rank / 2;
    std::string out;
    double clock = 1000.0 * (stage + 1);
    const auto line = [&](const std::string& op, int batch, const std::string& group, const std::string& subs,
                          const std::string& dtype, double duration) {
      clock += duration + 1.0;
      out += "rank:" + std::to_string(rank) + ":" + op + "(stage_id=" + std::to_string(stage) +
             ",batch_id=" + std::to_string(batch) + ",mg_state=" + (realistic ? "steady" : "None") +
             ",duration=" + Decimal::from_ms(duration).str() +
             ",description=" + (realistic ? "None" : "simulation") + ",group_kind=" + group +
             ",input__shape=" + (dtype == "None" ? "None" : "[16]") + ",input__dtype=" + dtype +
             ",timestamp=" + Decimal::from_ms(clock).str() + ",sub_operations=[" + subs + "])\n";
    };
    int called = 0;  // in this operation, which begins at clock + 1
    const auto sub = [&](const std::string& func, const std::string& shape, const std::string& comm) {
      return "'trace_src_func=" + func +
             ",duration=0.01,timestamp=" + Decimal::from_ms(clock + 1.0 + 0.5 * ++called).str() +
             ",input__shape=" + shape + ",input__dtype=torch.bfloat16,group=exp,comm_func=" + comm + "'";
    };
    const std::string rows = "[" + std::to_string(received[rank % 2]) + ", 8]";
    for (int batch = 0; batch < microbatches; ++batch) {
      if (realistic && stage == 1) line("recv_forward", batch, "pp", "", "torch.bfloat16", 1.0);
      std::string subs;
      called = 0;
      for (int layer = 0; layer < 2; ++layer) {
        if (layer > 0) subs += ", ";
        subs += sub("_gather_along_first_dim_expert_parallel", "[4]", "allgather") + ", ";
        subs += sub("_profiled_all_to_all_single", "[4, 8]", "all_to_all") + ", ";
        subs += sub("_profiled_all_to_all_single", rows, "all_to_all");
      }
      line("forward_step", batch, "None", subs, "None", 10.0);
      if (realistic && stage == 0) line("send_forward", batch, "pp", "", "torch.bfloat16", 1.0);
      if (stage == 1) line("loss_func", batch, "None", "", "None", 0.5);
      line("backward_step", batch, "None", "", "None", 20.0);
    }
    line("dp_allreduce", 0, "dp", "", dp_dtype, 1.0);
    line("exp_dp_allreduce", 0, "exp_dp", "", "torch.float32", 1.0);
    line("optimizer_step", 0, "None", "", "None", 2.0);
    return out;
  }
};

std::vector<std::string> texts(const Recording& recording, Severity severity) {
  std::vector<std::string> out;
  for (const Finding& finding : examine(recording, describe(recording)))
    if (finding.severity == severity) out.push_back(finding.place.str() + ": " + finding.text);
  return out;
}

Operation& operation(Recording& recording, std::size_t rank, std::string_view name) {
  auto& operations = recording.ranks[rank].operations;
  return *std::find_if(operations.begin(), operations.end(),
                       [&](const Operation& op) { return op.name == name; });
}

TEST(RecordingFacts, TellsWhatAScalingRecordingIs) {
  const RecordingFacts facts = describe(Job().recording());
  EXPECT_EQ(facts.side, Side::kScaling);
  EXPECT_FALSE(facts.newer_writer);
  EXPECT_EQ(facts.stages, 2);
  EXPECT_EQ(facts.microbatches, 1);
  EXPECT_EQ(facts.world, 4);
  EXPECT_TRUE(facts.missing_ranks.empty());
  EXPECT_EQ(facts.expert.dispatcher, "alltoall");
  EXPECT_EQ(facts.expert.experts, 4);
  EXPECT_EQ(facts.expert.moe_layers, 4);
  ASSERT_EQ(facts.expert.ranks.size(), 4u);
  EXPECT_EQ(facts.expert.ranks[1].sent, 4);
  EXPECT_EQ(facts.expert.ranks[1].received, 3);
  EXPECT_TRUE(facts.expert.ranks[1].constant);
  EXPECT_EQ(facts.operations[0].name, "forward_step");
  EXPECT_EQ(facts.operations[0].count, 4);
  EXPECT_DOUBLE_EQ(facts.operations[0].mean_ms, 10.0);
  EXPECT_EQ(facts.sub_operations[1].count, 16);
  EXPECT_EQ(facts.sub_operations[1].comm_func, "all_to_all");
}

TEST(RecordingFacts, TellsWhatARealisticRecordingIs) {
  Job job;
  job.realistic = true;
  job.microbatches = 3;
  const RecordingFacts facts = describe(job.recording());
  EXPECT_EQ(facts.side, Side::kRealistic);
  EXPECT_EQ(facts.microbatches, 3);
  EXPECT_EQ(facts.clock_domains.size(), 1u);
}

TEST(RecordingFacts, NodesWithOtherBootTimesAreOtherClocks) {
  Recording recording = Job().recording();
  for (std::size_t rank : {2u, 3u})
    for (Operation& op : recording.ranks[rank].operations)
      op.timestamp = Decimal::from_ms(op.timestamp.value() + 6e8);
  EXPECT_THAT(describe(recording).clock_domains, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

TEST(RecordingCheck, WholeRecordingsHaveNoProblems) {
  EXPECT_THAT(texts(Job().recording(), Severity::kProblem), ElementsAre());
  Job job;
  job.realistic = true;
  job.microbatches = 3;
  EXPECT_THAT(texts(job.recording(), Severity::kProblem), ElementsAre());
}

TEST(RecordingCheck, ABatchLeftOutIsAProblem) {
  Recording recording = Job().recording();
  operation(recording, 2, "backward_step").batch_id = 1;
  EXPECT_THAT(texts(recording, Severity::kProblem),
              ElementsAre("rank02.txt:3: backward_step has batch_id 1 after 0 lines of that name"));
}

TEST(RecordingCheck, TimeRunningBackwardsIsAProblem) {
  Recording recording = Job().recording();
  operation(recording, 0, "backward_step").timestamp = Decimal::from_ms(1.0);
  EXPECT_THAT(texts(recording, Severity::kProblem),
              ElementsAre(HasSubstr("rank00.txt:2: time runs backwards")));
}

TEST(RecordingCheck, RanksOfOneStageMustRunOneProgram) {
  Recording recording = Job().recording();
  recording.ranks[3].operations.pop_back();
  EXPECT_THAT(texts(recording, Severity::kProblem),
              ElementsAre("rank03.txt: rank 3 ends where rank 2 of the same stage has optimizer_step"));
}

TEST(RecordingCheck, RowsThatGetLostAreAProblem) {
  Job job;
  job.received[0] = 6;
  const std::vector<std::string> problems = texts(job.recording(), Severity::kProblem);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_THAT(problems[0], HasSubstr("ranks 0-1 send 8 rows in the first MoE layer and receive 9"));
}

TEST(RecordingCheck, MissingRanksAreAProblemOnlyWhereNobodyStandsForThem) {
  const std::string name = "pp2_tp1_ep2_expn4_dp4_nl4_hs8_sl4";  // a world of 8
  Job job;
  Recording all = job.recording(name);
  EXPECT_EQ(describe(all).missing_ranks.size(), 4u);
  // Ranks 0-3 are all on stage 0 of this world, so stage 1 has no representative.
  EXPECT_THAT(texts(all, Severity::kProblem),
              ::testing::Contains(
                  HasSubstr("2 of 4 pairs of pipeline stage and expert rank have no representative")));
  // Ranks 0, 1 and 4, 5: one of each stage and expert rank.
  all.ranks[2].rank = 4;
  all.ranks[3].rank = 5;
  EXPECT_THAT(texts(all, Severity::kProblem), ElementsAre());
  EXPECT_THAT(texts(all, Severity::kNote),
              ::testing::Contains(HasSubstr("4 of 8 ranks are missing: 2-3, 6-7; every pipeline stage")));
}

TEST(RecordingCheck, AMissingStageIsAProblemWithoutAnyName) {
  Recording first = Job().recording("recording");
  first.ranks.resize(2);
  EXPECT_THAT(texts(first, Severity::kProblem),
              ElementsAre("rank00.txt: rank 0 of stage 0, the last one recorded, has no loss_func: later "
                          "stages are missing"));
}

TEST(RecordingCheck, OutliersAreJudgedAmongRanksOfEqualWork) {
  Recording recording = Job().recording();
  operation(recording, 2, "forward_step").duration = Decimal::from_ms(19.0);
  EXPECT_THAT(
      texts(recording, Severity::kWarning),
      ElementsAre(
          "rank02.txt:1: 1 of 2 forward_step that do equal work took more than 1.5 times their median of "
          "10.00 ms; this one 19.00 ms"));
  // Both ranks that receive more rows take longer: that is imbalance, not noise.
  operation(recording, 0, "forward_step").duration = Decimal::from_ms(19.0);
  EXPECT_THAT(texts(recording, Severity::kWarning), ElementsAre());
}

TEST(RecordingCheck, Float16GradientsOfScalingRunsAreDoubted) {
  Job job;
  job.dp_dtype = "torch.float16";
  EXPECT_THAT(texts(job.recording(), Severity::kWarning),
              ElementsAre(HasSubstr("dp_allreduce is written as torch.float16")));
}

// Calls with the times that a test gives them, in one v1 operation from 1000 to 1010 ms.
Recording with_calls(const std::string& subs) {
  Recording out;
  out.source = "recording";
  const std::string head = "rank:0:", fields = "stage_id=0,batch_id=0,mg_state=None,duration=";
  const std::string rest =
      ",description=simulation,group_kind=None,input__shape=None,input__dtype=None,timestamp=";
  out.ranks.push_back(
      read_cmd_text(head + "forward_step(" + fields + "10.0" + rest + "1010.0,sub_operations=[" + subs +
                        "])\n" + head + "loss_func(" + fields + "1.0" + rest + "1012.0,sub_operations=[])\n" +
                        head + "backward_step(" + fields + "1.0" + rest + "1014.0,sub_operations=[])\n" +
                        head + "optimizer_step(" + fields + "1.0" + rest + "1016.0,sub_operations=[])\n",
                    "rank00.txt", out.pool));
  return out;
}

std::string call(const std::string& source, double duration, double end) {
  return "'trace_src_func=" + source + ",duration=" + Decimal::from_ms(duration).str() +
         ",timestamp=" + Decimal::from_ms(end).str() +
         ",input__shape=[4, 8],input__dtype=torch.bfloat16,group=exp,comm_func=all_to_all'";
}

TEST(RecordingCheck, CallsStandInTheOrderOfTheirTimes) {
  EXPECT_THAT(texts(with_calls(call("a", 2, 1004) + ", " + call("b", 2, 1008)), Severity::kProblem),
              ElementsAre());
  // Host clocks stamp late: that is repaired, and listed.
  const auto late = with_calls(call("a", 2, 1006) + ", " + call("b", 2, 1007.4));
  EXPECT_THAT(texts(late, Severity::kProblem), ElementsAre());
  EXPECT_THAT(
      texts(late, Severity::kWarning),
      Contains("rank00.txt:1: found a call of b at 1005.40 ms, before 1006.00 ms where the one before "
               "ends (repaired)"));
  // Windows that computing hides may lie anywhere.
  EXPECT_THAT(texts(with_calls(call("a_async", 8, 1010) + ", " + call("b", 2, 1008)), Severity::kProblem),
              ElementsAre());
}

TEST(RecordingCheck, CallsStandInsideTheirOperation) {
  EXPECT_THAT(texts(with_calls(call("a", 2, 1010.1)), Severity::kProblem),
              ElementsAre());  // clocks are rounded
  EXPECT_THAT(texts(with_calls(call("a", 2, 1011)), Severity::kWarning),
              Contains("rank00.txt:1: found calls that end 1.00 ms after forward_step (repaired)"));
}

TEST(RecordingCheck, ARunWithoutSomeOfItsRanksIsFilledOnRequest) {
  Job job;
  job.realistic = true;
  job.microbatches = 2;
  Recording recording = job.recording();
  recording.ranks.erase(recording.ranks.begin() + 1);
  EXPECT_THAT(texts(recording, Severity::kProblem),
              ::testing::Contains(
                  HasSubstr("1 of 4 ranks are missing: 1; replay --ranks-missing fills them by symmetry")));
}

TEST(RecordingCheck, ManyRanksWithoutATransferAreSuspect) {
  Recording recording = Job().recording();
  for (RankRecording& rank : recording.ranks) {
    rank.sub_operations.clear();
    for (Operation& op : rank.operations) {
      op.first_sub = op.sub_count = 0;
      op.shape = recording.pool.shape_none();
    }
  }
  EXPECT_EQ(describe(recording).transfers, 0);
  EXPECT_THAT(texts(recording, Severity::kWarning),
              ElementsAre(HasSubstr("suspect: 4 ranks and not one transfer between them")));
  recording.ranks.resize(1);
  recording.named = {};
  EXPECT_THAT(texts(recording, Severity::kWarning), ElementsAre());  // one rank has no partner
}

TEST(RecordingCheck, WhatTheRecorderDidNotSeeIsDoubted) {
  Recording recording = Job().recording();
  operation(recording, 1, "backward_step").description = recording.pool.name("run; 2 calls not seen; more");
  EXPECT_THAT(texts(recording, Severity::kWarning),
              ElementsAre(HasSubstr(
                  "rank01.txt:2: backward_step: the recorder says that it did not see all transfers")));
}

TEST(RecordingFacts, CountsOfAnAllToAllAreNoDispatch) {
  Recording recording = Job().recording();
  for (RankRecording& rank : recording.ranks)
    for (SubOperation& sub : rank.sub_operations)
      if (sub.comm_func == "allgather") {
        sub.source = recording.pool.name("all_to_all_single");
        sub.comm_func = recording.pool.name("all_to_all");
        sub.dtype = recording.pool.name("torch.int64");
      }
  const RecordingFacts facts = describe(recording);
  EXPECT_EQ(facts.expert.dispatcher, "alltoall");
  EXPECT_EQ(facts.expert.moe_layers, 4);
  ASSERT_EQ(facts.expert.ranks.size(), 4u);
  EXPECT_EQ(facts.expert.ranks[1].sent, 4);
  EXPECT_EQ(facts.expert.ranks[1].received, 3);
  EXPECT_THAT(texts(recording, Severity::kProblem), ElementsAre());
}

TEST(RecordingFacts, AnAllReduceOfWhatWasGatheredIsADispatcher) {
  Recording recording = Job().recording();
  for (RankRecording& rank : recording.ranks)
    for (std::size_t i = 0; i < rank.sub_operations.size(); ++i) {
      SubOperation& sub = rank.sub_operations[i];
      sub.source =
          recording.pool.name(i % 3 == 2 ? "_reduce_along_first_dim_moe" : "_gather_along_first_dim_moe");
      sub.comm_func = recording.pool.name(i % 3 == 2 ? "allreduce" : "allgather");
      const std::int64_t rows[] = {i % 3 == 2 ? 8 : 4, 8};
      sub.shape = recording.pool.shape(rows);
    }
  const RecordingFacts facts = describe(recording);
  EXPECT_EQ(facts.expert.dispatcher, "allgather");
  EXPECT_EQ(facts.expert.moe_layers, 4);
}

TEST(RecordingFacts, TheHeaderNamesTheDevice) {
  RankRecording rank;
  EXPECT_EQ(device_of(rank), std::nullopt);
  rank.header = {" moesim-capture 0.2.0, realistic recording of rank 0, CUDA events",
                 " device: cuda, NVIDIA H100 80GB HBM3"};
  EXPECT_EQ(device_of(rank), (Device{false, "NVIDIA H100 80GB HBM3"}));
  rank.header[1] = " device: cpu, AMD EPYC";
  EXPECT_EQ(device_of(rank), (Device{true, "AMD EPYC"}));
  // Before it did, the clock told.
  rank.header = {" moesim-capture 0.1.0, realistic recording of rank 0, host clock",
                 " host: AMD EPYC, 2 cores"};
  EXPECT_EQ(device_of(rank), (Device{true, "AMD EPYC"}));
  rank.header = {" synthetic"};
  EXPECT_EQ(device_of(rank), std::nullopt);
}

TEST(RecordingFacts, PublicRecordingsAreWhatTheirDescriptionsSay) {
  const fs::path folder = fs::path(MOESIM_DATA_DIR) / "echo" / "pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024";
  if (!fs::exists(folder)) GTEST_SKIP() << "no recordings under " << MOESIM_DATA_DIR;
  for (const char* side : {"scaling", "scaling2", "realistic"}) {
    const Recording recording = read_cmd(folder / side);
    const RecordingFacts facts = describe(recording);
    EXPECT_EQ(facts.side, side == std::string("realistic") ? Side::kRealistic : Side::kScaling);
    EXPECT_EQ(facts.expert.moe_layers, 8);
    EXPECT_EQ(facts.expert.experts, 8);
    EXPECT_EQ(facts.expert.dispatcher, "alltoall");
    EXPECT_EQ(facts.microbatches, side == std::string("realistic") ? 8 : 1);
    EXPECT_EQ(facts.clock_domains.size(), side == std::string("realistic") ? 2u : 1u);
    // Received rows per EP rank, as the description of the data lists them, on every group of four.
    const std::int64_t received[] = {2173, 3667, 2167, 185};
    ASSERT_EQ(facts.expert.ranks.size(), 16u);
    for (const RankRows& rows : facts.expert.ranks) {
      EXPECT_EQ(rows.sent, 2048);
      EXPECT_EQ(rows.received, received[rows.rank % 4]);
      EXPECT_TRUE(rows.constant);
    }
    EXPECT_THAT(texts(recording, Severity::kProblem), ElementsAre()) << side;
  }
  // Mean durations over all ranks and microbatches that the description gives for the realistic run.
  std::map<std::string, double> mean_ms;
  for (const DurationStats& stats : describe(read_cmd(folder / "realistic")).operations)
    mean_ms[stats.name] = stats.mean_ms;
  EXPECT_NEAR(mean_ms["forward_step"], 25.37, 0.006);
  EXPECT_NEAR(mean_ms["backward_step"], 33.16, 0.006);
  EXPECT_NEAR(mean_ms["optimizer_step"], 33.45, 0.006);
}

TEST(RecordingCheck, NoPublicRecordingHasProblems) {
  const fs::path root = fs::path(MOESIM_DATA_DIR) / "echo";
  if (!fs::exists(root)) GTEST_SKIP() << "no recordings under " << MOESIM_DATA_DIR;
  int recordings = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (!fs::exists(entry.path() / "rank00.txt")) continue;
    EXPECT_THAT(texts(read_cmd(entry.path()), Severity::kProblem), ElementsAre()) << entry.path();
    ++recordings;
  }
  EXPECT_GT(recordings, 0);
}

class CallRoles : public ::testing::Test {
 protected:
  SubOperation call(const char* comm, const char* group, const std::vector<std::int64_t>& shape,
                    const char* dtype = "torch.bfloat16", const char* source = "f",
                    const char* func_name = nullptr) {
    SubOperation made;
    made.source = pool_.name(source);
    made.shape = pool_.shape(shape);
    made.dtype = pool_.name(dtype);
    if (func_name != nullptr) made.func_name = pool_.name(func_name);
    if (group != nullptr) made.group = pool_.name(group);
    if (comm != nullptr) made.comm_func = pool_.name(comm);
    return made;
  }

 private:
  Pool pool_;
};

TEST_F(CallRoles, TheLabelOfExpertsStandsForTwoGroups) {
  EXPECT_EQ(role_of(call("all_to_all", "exp", {64, 8}))->group, CallGroup::expert);
  EXPECT_EQ(role_of(call("allgather", "exp", {64, 8}))->group, CallGroup::tp_expert);
  EXPECT_EQ(role_of(call("reduce_scatter", "exp", {256, 8}))->group, CallGroup::tp_expert);
  EXPECT_TRUE(role_of(call("reduce_scatter", "exp", {256, 8}))->combines_gathered());
  // Counts, and what profilers write without rows.
  const auto counts = role_of(call("allgather", "exp", {8}, "torch.int64"));
  EXPECT_EQ(counts->group, CallGroup::expert);
  EXPECT_TRUE(counts->counts);
  EXPECT_FALSE(role_of(call("allgather", "exp", {8}))->counts);
  EXPECT_FALSE(role_of(call("alltoall", "exp", {8}, "torch.int64"))->exchanges_tokens());
  EXPECT_TRUE(role_of(call("alltoall", "exp", {8, 4}))->exchanges_tokens());
  EXPECT_EQ(role_of(call("allreduce", "dp", {1}))->group, CallGroup::dp);
  EXPECT_EQ(role_of(call("allreduce", "ep_dp", {1}))->group, CallGroup::expert_dp);
}

// An exchange of as many numbers after rows carries their probabilities, in backward before or after them.
TEST_F(CallRoles, ProbabilitiesOfRowsAreNoExchangeOfTokens) {
  const std::vector<SubOperation> subs{
      call("allgather", "exp", {8}, "torch.int64"),        call("all_to_all", "exp", {64, 16}),
      call("all_to_all", "exp", {64}, "torch.float32"),    call("all_to_all", "exp", {40, 16}),
      call("all_to_all", "exp", {40, 1}, "torch.float32"), call("all_to_all", "exp", {40, 16}),
      call("all_to_all", "exp", {7}, "torch.float32"),
  };
  std::vector<bool> tokens, probabilities;
  for (const auto& role : roles_of(subs)) {
    ASSERT_TRUE(role);
    tokens.push_back(role->exchanges_tokens());
    probabilities.push_back(role->probabilities);
  }
  EXPECT_THAT(tokens, ::testing::ElementsAre(false, true, false, true, false, true, true));
  EXPECT_THAT(probabilities, ::testing::ElementsAre(false, false, true, false, true, false, false));
}

// Profilers write elements and no rows: the row of one hidden size in every layer tells.
TEST_F(CallRoles, ProbabilitiesAreToldByElementsWhereThereAreNoRows) {
  const auto marked = [&](const std::vector<std::int64_t>& elements) {
    std::vector<SubOperation> subs;
    subs.reserve(elements.size());
    for (const std::int64_t each : elements) subs.push_back(call("all_to_all", "exp", {each}));
    std::string out;
    for (const auto& role : roles_of(subs)) out += role->probabilities ? 'p' : '-';
    return out;
  };
  const std::int64_t h = 4096;
  EXPECT_EQ(marked({100 * h, 100, 70 * h, 100 * h, 100, 130 * h}), "-p--p-") << "forward";
  EXPECT_EQ(marked({100 * h, 70 * h, 70, 100 * h, 130 * h, 130}), "--p--p") << "backward";
  EXPECT_EQ(marked({100 * h, 70, 70 * h, 100 * h, 130, 130 * h}), "-p--p-") << "backward, in the other order";
  EXPECT_EQ(marked({100 * h, 70 * h, 100 * h, 130 * h, 100 * h, 90 * h}), "------") << "tokens only";
  EXPECT_EQ(marked({100 * h, 100, 70 * h, 100 * h, 101, 130 * h}), "------") << "not in every layer";
  const std::int64_t most = Shape::kMaxElements;
  EXPECT_EQ(marked({most, 1, most, most, most, most}), "------");
  EXPECT_EQ(marked({1024, 1024}), "--");
  EXPECT_EQ(marked({h, 0, h}), "---") << "no rows at all";
  EXPECT_EQ(marked({}), "");
}

TEST_F(CallRoles, NamesDecideWhereFieldsAreSilent) {
  const char* gather = "gather_from_sequence_parallel_region_to_moe";
  EXPECT_EQ(role_of(call("allgather", "None", {64, 8}, "torch.bfloat16", "f", gather))->group,
            CallGroup::tp_expert);
  EXPECT_EQ(role_of(call(nullptr, "exp", {64, 8}, "torch.bfloat16", gather))->kind, CommKind::all_gather);
  // Indices of top-1 choices are a list, too.
  EXPECT_FALSE(role_of(call("allgather", "exp", {64}, "torch.int64", gather))->counts);
  EXPECT_EQ(role_of(call("allgather", "None", {64, 8})), std::nullopt);
  EXPECT_EQ(role_of(call(nullptr, "tp", {64, 8})), std::nullopt);
  EXPECT_FALSE(is_communication(call(nullptr, nullptr, {64, 8})));
}

TEST_F(CallRoles, WhatHasNoRoleIsCounted) {
  Recording recording;
  RankRecording rank;
  rank.file = "rank0.txt";
  Operation forward;
  forward.line = 3;
  rank.add(forward,
           std::vector<SubOperation>{call("allgather", "pp", {4, 4}), call("allgather", "exp", {4, 4}),
                                     call("allgather", "pp", {4, 4})});
  recording.ranks.push_back(rank);
  const CallsWithoutRole strangers = calls_without_role(recording);
  EXPECT_EQ(strangers.count, 2);
  EXPECT_THAT(strangers.sentence(), HasSubstr("2 communication calls cannot be given a role: rank0.txt:3"));
  EXPECT_EQ(calls_without_role(Recording{}).sentence(), "");
}

// Names of recordings against their lines: what contradicts is found, what agrees or is not said is not.

// One rank of a run with TP 2: an exchange of half the columns, a send of half the sequence, four experts in
// one MoE layer, two sequences of 6 tokens in a microbatch.
constexpr const char* kLines =
    "rank:0:forward_step(stage_id=0,batch_id=0,mg_state=steady,duration=10,description=None,group_kind=None,"
    "input__shape=None,input__dtype=None,timestamp=1010,sub_operations=["
    "'trace_src_func=_gather_along_first_dim_expert_parallel,duration=0.1,timestamp=1001,input__shape=[4],"
    "input__dtype=torch.int64,group=exp,comm_func=allgather', "
    "'trace_src_func=_all_to_all,duration=0.1,timestamp=1002,input__shape=[24, 8],"
    "input__dtype=torch.bfloat16,group=exp,comm_func=all_to_all', "
    "'trace_src_func=_all_to_all,duration=0.1,timestamp=1003,input__shape=[24, 1],"
    "input__dtype=torch.float32,group=exp,comm_func=all_to_all'])\n"
    "rank:0:send_forward(stage_id=0,batch_id=0,mg_state=steady,duration=1,description=None,group_kind=pp,"
    "input__shape=[3, 2, 16],input__dtype=torch.bfloat16,timestamp=1012,sub_operations=[])\n";

Recording named(const std::string& name) {
  Recording out;
  out.source = name;
  out.named = named_topology("/x/" + name + "/realistic");
  out.ranks.push_back(read_cmd_text(kLines, "rank00.txt", out.pool));
  return out;
}

std::string fault(const Recording& recording) {
  return moesim::testing::message_of([&] { require_names(recording, expert_rows(recording)); });
}

TEST(NamedSizes, AgreeWithTheLines) {
  EXPECT_EQ(fault(named("pp2_tp2_ep2_expn4_dp2_nl4_hs16_sl6_bs2")), "");
  EXPECT_EQ(fault(named("pp2_tp2_ep2_expn4_dp2_nl4_hs16_sl12_bs1")), "") << "who batched is not seen";
  EXPECT_EQ(fault(named("pp2_tp1_ep2_expn4_dp2_nl1_hs16_sl6_bs1")), "");
  EXPECT_EQ(fault(named("tp2_hs16_sl6")), "") << "undivided by TP";
  EXPECT_EQ(fault(named("recording")), "") << "sizes that are not named are not doubted";
}

TEST(NamedSizes, AreRefusedWhereTheyDiffer) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"tp2_expn8_nl4", "tp2_expn8_nl4: found 4 experts in the lines, expected 8 of the name"},
      {"tp1_hs16_sl3",
       "rank00.txt:2: found 6 tokens in what is sent ([3, 2, 16]), expected 3 of sl3 in the name, or a name "
       "with bs"},
      {"tp2_hs16_sl6_bs4",
       "rank00.txt:2: found 6 tokens in what is sent ([3, 2, 16]), expected 24 of sl6 and bs4 in the name"},
      {"tp2_hs64_sl12",
       "rank00.txt:2: found 16 columns in what is sent ([3, 2, 16]), expected the hidden size 64 of the "
       "name"},
  };
  for (const auto& [name, message] : cases) EXPECT_EQ(fault(named(name)), message);
  const Recording recording = named("nl4");
  ExpertRows shown;
  shown.moe_layers = 4;
  require_names(recording, shown);
  shown.moe_layers = 5;
  EXPECT_THAT(moesim::testing::message_of([&] { require_names(recording, shown); }),
              HasSubstr("at most the 4 layers of the name"));
}

// A scaling recording sends nothing: what its experts exchange has the hidden size.
TEST(NamedSizes, OfAScalingRecordingAreHeldAgainstItsExchanges) {
  Recording scaling = named("tp1_hs16_sl6");
  scaling.ranks[0].operations.pop_back();
  EXPECT_EQ(
      fault(scaling),
      "rank00.txt:1: found 8 columns in what experts exchange ([24, 8]), expected the hidden size 16 of "
      "the name");
  scaling.named.tp = 2;
  EXPECT_EQ(fault(scaling), "");
  scaling.named.hidden = 1;
  EXPECT_EQ(fault(scaling), "") << "the probabilities have one column";
  scaling.named.hidden.reset();
  EXPECT_EQ(fault(scaling), "");
}

TEST(NamedSizes, TensorParallelismThatNobodySawIsSaid) {
  EXPECT_EQ(unseen_tensor_parallelism(named("tp1")), "");
  EXPECT_THAT(unseen_tensor_parallelism(named("tp2")),
              HasSubstr("the name says tp 2 and no line has a call"));
  Recording seen = named("tp2");
  seen.ranks[0].sub_operations[1].group = seen.pool.name("tp");
  EXPECT_EQ(unseen_tensor_parallelism(seen), "");
}

}  // namespace
}  // namespace moesim::traces
