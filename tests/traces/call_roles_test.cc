#include "traces/call_roles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace moesim::traces {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace moesim::traces
