#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/input_error.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/row_laws.h"

namespace moesim::calibration {
namespace {

using sim::CollectiveOp;
using ::testing::ElementsAre;

CollectiveRow all_reduce(const char* datatype) {
  CollectiveRow row;
  row.origin = {{}, "H100-SXM5-80GB", "somebody"};
  row.op = CollectiveOp::all_reduce;
  row.datatype = datatype;
  row.library = "NCCL 2.29.2";
  return row;
}

TEST(Variants, IntegersThatAreReducedAskForLawsOfTheirOwnFirst) {
  EXPECT_THAT(law_keys(all_reduce("half"), false),
              ElementsAre("collective/all_reduce/scaleup@NCCL 2.29.2", "collective/all_reduce/scaleup"));
  EXPECT_THAT(
      law_keys(all_reduce("int8"), false),
      ElementsAre("collective/all_reduce/scaleup@NCCL 2.29.2,int", "collective/all_reduce/scaleup@int",
                  "collective/all_reduce/scaleup@NCCL 2.29.2", "collective/all_reduce/scaleup"));
  CollectiveRow gather = all_reduce("int8");
  gather.op = CollectiveOp::all_gather;  // moves bytes, whatever they are
  EXPECT_FALSE(integer_reduction(gather));
  EXPECT_EQ(law_keys(gather, false).size(), 2u);
}

TEST(Variants, MachinesHaveNetworkLawsOfTheirOwn) {
  CollectiveRow row = all_reduce("half");
  EXPECT_THAT(law_keys(row, true), ElementsAre("collective/all_reduce/network"));
  row.origin.source = "xxrjun/nccl-tests-cluster, README";
  EXPECT_THAT(law_keys(row, true),
              ElementsAre("collective/all_reduce/network@xxrjun", "collective/all_reduce/network"));
}

TEST(Variants, SustainedProductsAndKernelsHaveLawsOfTheirOwn) {
  GemmRow row;
  row.dtype = "bfloat16";
  row.kernel = "torch";
  EXPECT_THAT(law_keys(row), ElementsAre("gemm/bf16@torch", "gemm/bf16"));
  row.sustained = true;
  EXPECT_THAT(law_keys(row), ElementsAre("gemm/bf16@sustained", "gemm/bf16"));
  FfnRow ffn;
  ffn.dtype = "fp8";
  ffn.kernel = "triton";
  EXPECT_THAT(law_keys(ffn), ElementsAre("ffn/fp8@triton", "ffn/fp8"));
}

TEST(Variants, AnElementTypeMayHaveARemark) {
  EXPECT_EQ(dtype_of("fp16 (not stated clearly)"), models::DType::kFp16);
  EXPECT_EQ(dtype_of("half"), models::DType::kFp16);
  EXPECT_TRUE(known_dtype("fp8"));
  EXPECT_FALSE(known_dtype("w4a16"));
  EXPECT_THROW(dtype_of("w4a16"), InputError);
}

// Two nodes of four GPUs each lie in one NVLink domain of a rack, not of eight-GPU machines.
TEST(Variants, ARackIsOneDomain) {
  models::Profile rack, machine;
  rack.device() = find_device("gb200")->limits;
  machine.device() = find_device("h100-sxm")->limits;
  CollectiveRow row = all_reduce("half");
  row.gpus_per_node = 4;
  EXPECT_TRUE(inside_domain(row, machine));
  row.nodes = 2;
  EXPECT_TRUE(inside_domain(row, rack));
  EXPECT_FALSE(inside_domain(row, machine));
  row.nodes = 18;  // 72 GPUs: all of the rack
  EXPECT_TRUE(inside_domain(row, rack));
  row.nodes = 19;
  EXPECT_FALSE(inside_domain(row, rack));
  // 32 nodes: two racks of 64, not 32 domains of 4.
  row.nodes = 32;
  const models::GroupShape racks = shape_of(row, rack.device()), machines = shape_of(row, machine.device());
  EXPECT_EQ(racks.domains, 2);
  EXPECT_EQ(racks.max_per_domain, 64);
  EXPECT_EQ(racks.nodes, 32);
  EXPECT_EQ(racks.max_per_node, 4);
  EXPECT_EQ(machines.domains, 32);
  EXPECT_EQ(machines.max_per_domain, 4);
}

}  // namespace
}  // namespace moesim::calibration
