// Names of recordings against their lines: what contradicts is found, what agrees or is not said is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/message_of.h"
#include "traces/cmd_reader.h"
#include "traces/recording_rules.h"

namespace moesim::traces {
namespace {

using ::testing::HasSubstr;

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
