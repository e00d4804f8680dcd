#include "calibration/training/row_notes.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace moesim::calibration {
namespace {

std::map<std::string, std::string> said(const char* note) {
  std::map<std::string, std::string> all;
  for (const RowSetting& s : settings_of_note(note)) all[s.path] = s.value.dump();
  return all;
}

TEST(RowNotes, ANoteSaysHowTheRunWasLaunchedAndWhatOverlapped) {
  const auto all = said(
      "closed division; expert-parallel overlap (1F1B), full-iteration graphs; microbatch size not read; "
      "recompute mlp");
  EXPECT_EQ(all, (std::map<std::string, std::string>{{"training.launch", "\"graphs\""},
                                                     {"training.overlap.expert_communication", "true"},
                                                     {"training.recompute", "\"mlp\""}}));
  EXPECT_EQ(said("A2A overlap; weight gradients delayed").at("training.overlap.delayed_wgrad"), "true");
  EXPECT_EQ(said("EDP 4, no recompute"),
            (std::map<std::string, std::string>{{"training.recompute", "\"none\""}}));
  EXPECT_EQ(
      said("no expert-communication overlap; A2A overlap later").at("training.overlap.expert_communication"),
      "false");
}

TEST(RowNotes, SizesAreTakenWhereTheyStandAlone) {
  EXPECT_EQ(said("full recomputation, DP8/EP8; one node").at("parallel.ep"), "8");
  EXPECT_EQ(said("mbs 1 and 32 SMs are defaults").at("parallel.micro_batch"), "1");
  EXPECT_TRUE(said("DeepEP is said to be faster over EP8-64").empty());
  EXPECT_TRUE(said("DeepEP 2, step time derived").empty());
  EXPECT_TRUE(said("").empty());
}

TEST(RowNotes, DispatchersAreNamedAsTablesWriteThem) {
  EXPECT_EQ(dispatcher_of_text("flex (HybridEP)", "alltoall"), "flex-hybridep");
  EXPECT_EQ(dispatcher_of_text("flex (DeepEP API over UCCL)", "alltoall"), "flex-deepep");
  EXPECT_EQ(dispatcher_of_text("NCCL alltoall", "torchtitan-alltoall"), "torchtitan-alltoall");
  EXPECT_EQ(dispatcher_of_text("TP", "alltoall"), "allgather:permute_fusion=false");
  EXPECT_EQ(dispatcher_of_text("recipe default", "alltoall"), "");
}

}  // namespace
}  // namespace moesim::calibration
