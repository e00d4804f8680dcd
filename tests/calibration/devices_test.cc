// What rows say of themselves: GPU, variant of a kernel, and the edges at which a law changes.
#include "calibration/rows/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "base/statistics.h"
#include "calibration/rows/measurements.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/gemm.h"
#include "models/hardware/profile.h"
#include "tests/cases.h"
#include "tests/message_of.h"

namespace moesim::calibration {
namespace {

using moesim::testing::message_of;
using sim::CollectiveOp;
using ::testing::ElementsAre;

TEST(Devices, NamesMeanTheirProfiles) {
  const auto names = moesim::testing::cases("calibration/device_names.json", "profiles");
  for (const auto& [gpu, expected] : names.items()) {
    const Device* device = device_of_gpu(gpu);
    EXPECT_EQ(device ? device->profile : "", expected.get<std::string>()) << gpu;
  }
  EXPECT_EQ(device_of_path("runs/h800_pcie_8x/x.csv"), find_device("h800-pcie"));
  EXPECT_EQ(device_of_path("runs/rtx_4090_8x/x.csv"), find_device("rtx-4090"));
}

TEST(Devices, DriversNamesBecomeThoseOfTables) {
  const auto names = moesim::testing::cases("calibration/device_names.json", "tables");
  for (const auto& [driver, table] : names.items())
    EXPECT_EQ(table_name(driver), table.get<std::string>()) << driver;
}

// Rows keep the GPU that they name; --gpu names that of the others.
TEST(Devices, WhatTheUserSaysNamesUnknownGpusOnly) {
  const auto rows_of = [](const std::string& gpu) {
    return read_table(
        "gpu,source,dtype,kernel,m,n,k,time_us,tflops\n" + gpu + ",me,bf16,cublas,4096,4096,4096,200,\n",
        "own.csv");
  };
  Measurements driver = rows_of("NVIDIA H200"), unknown = rows_of("my box"),
               other = rows_of("H100-SXM5-80GB");
  EXPECT_EQ(driver.gemms.front().origin.gpu, "H200-SXM5-141GB");
  const std::string said = "H200-SXM5-141GB";
  take_gpu(driver, said);
  take_gpu(unknown, said);
  EXPECT_EQ(driver.gemms.front().origin.gpu, said);
  EXPECT_EQ(unknown.gemms.front().origin.gpu, said);
  EXPECT_EQ(message_of([&] { take_gpu(other, said); }),
            "own.csv:2: found a row of 'H100-SXM5-80GB', expected 'H200-SXM5-141GB', as --gpu says");
}

TEST(Devices, AGpusTextNamesItsNetwork) {
  const auto network = [](std::string_view source, std::string_view gpu) {
    const Machine* machine = machine_of(source, gpu);
    return machine ? machine->network : "";
  };
  EXPECT_EQ(network("awslabs", "B200 (p6-b200, EFA 8x400G)"), "efa-p6-b200");
  EXPECT_EQ(network("uccl-project/uccl PR #441", "H200 (8x400G)"), models::kLineRate);
  EXPECT_EQ(network("uccl-project/uccl issue #956", "GH200 (Slingshot 4x200G; presumed)"), "slingshot-alps");
  EXPECT_EQ(network("ROCm/mori README.md", "MI355X (AINIC (Pollara) 400G)"), "roce-pollara");
  EXPECT_EQ(network("deepseek-ai/DeepEP issue #82", "H100-SXM5-80GB (RoCE 400G)"), models::kLineRate);
}

TEST(Devices, FoldersAreNamedAfterThem) {
  EXPECT_EQ(device_of_path("echo/a800_old/h800_2x8/all_reduce.csv"), find_device("h800-sxm"));
  EXPECT_EQ(device_of_path("GB200_nvl72/x.csv"), find_device("gb200"));
  EXPECT_EQ(device_of_path("runs/h8001/x.csv"), nullptr);
}

TEST(Devices, EveryOneHasAProfileAndRelativesHaveLinksAndEnd) {
  std::set<std::string_view> names;
  for (const Device& device : devices()) {
    EXPECT_TRUE(names.insert(device.profile).second) << device.profile;
    EXPECT_EQ(find_device(device.profile), &device);
    EXPECT_EQ(device_of_gpu(device.gpu), &device);
    const models::Profile shipped = models::Profile::load(std::string(device.profile));
    EXPECT_EQ(shipped.gpu(), device.gpu);
    EXPECT_EQ(shipped.device().hbm_bandwidth, device.limits.hbm_bandwidth);
    std::set<std::string_view> seen = {device.profile};
    for (std::string_view next = device.relative; !next.empty(); next = find_device(next)->relative) {
      ASSERT_NE(find_device(next), nullptr) << next;
      ASSERT_TRUE(seen.insert(next).second) << "a circle of relatives at " << next;
    }
  }
  EXPECT_EQ(find_device("gtx"), nullptr);
}

TEST(Devices, AMachineGivesItsPortsAnUnknownOneThoseOfTheGpu) {
  const Machine* p4d = machine_of("aws-samples, README", "A100-SXM4-40GB");
  ASSERT_NE(p4d, nullptr);
  EXPECT_EQ(p4d->name, "aws-p4d");
  EXPECT_EQ(machine_of("aws-samples, README", "H100-SXM5-80GB")->name, "aws-p5");
  EXPECT_EQ(machine_of("somebody", "A100-SXM4-40GB"), nullptr);
  models::Profile profile;
  profile.device() = find_device("a100-sxm")->limits;
  const models::Cluster theirs = cluster_of(profile, p4d, 16, 8);
  EXPECT_EQ(theirs.nic.ports_per_node, 4);
  EXPECT_DOUBLE_EQ(theirs.nic.bandwidth, 12.5e9);  // 100 Gbit/s
  EXPECT_EQ(theirs.nodes, 16);
  const models::Cluster usual = cluster_of(profile, nullptr, 2, 8);
  EXPECT_EQ(usual.nic.ports_per_node, profile.device().gpus_per_node);
  EXPECT_EQ(usual.nic.bandwidth, profile.device().nic_bandwidth);
}

// A node of four of a rack's GPUs is no NVLink domain; four of an eight-GPU machine are.
TEST(Devices, ARackIsOneDomain) {
  models::Profile rack, node;
  rack.device() = find_device("gb200")->limits;
  node.device() = find_device("h100-sxm")->limits;
  EXPECT_EQ(cluster_of(rack, nullptr, 4, 4).nvlink.domain, rack.device().scaleup_domain);
  EXPECT_EQ(cluster_of(node, nullptr, 4, 4).nvlink.domain, 4);
}

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

TEST(FfnRows, CountsAddUpAndRespectTheCap) {
  FfnRow row;
  row.experts = 64;
  row.topk = 6;
  row.ep = 1;
  for (const std::int64_t tokens : {1, 5, 11, 64, 1000, 16384}) {
    row.tokens = tokens;
    for (const char* routing : {"balanced", "power_law_1.2"}) {
      row.routing = routing;
      for (const auto& rows : expert_rows(row)) {
        EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), tokens * 6)
            << routing << tokens;
        EXPECT_LE(*std::max_element(rows.begin(), rows.end()), tokens);
      }
    }
  }
  // Few tokens: balanced routing still spreads over distinct experts.
  row.tokens = 2;
  row.routing = "balanced";
  const auto few = expert_rows(row).front();
  EXPECT_EQ(std::count(few.begin(), few.end(), 1), 12);
  // The most loaded of eight ranks holds at least an eighth.
  row.tokens = 4096;
  row.ep = 8;
  row.routing = "power_law_1.2";
  for (const auto& rows : expert_rows(row)) {
    EXPECT_EQ(rows.size(), 8u);
    EXPECT_GE(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), 4096 * 6 / 8);
  }
  row.routing = "zipf";
  EXPECT_THROW(expert_rows(row), InputError);
}

// 8 experts, top-2: the second choice lies four experts on. Three tokens take 0 4, 1 5, 2 6 (tokens are fewer
// than the stride, so spread over it: 0, 4/3, 8/3); sixteen fill two turns of all.
TEST(FfnRows, BalancedRowsByHand) {
  FfnRow row;
  row.experts = 8;
  row.topk = 2;
  row.ep = 1;
  row.routing = "balanced";
  row.tokens = 3;
  EXPECT_EQ(expert_rows(row), (std::vector<std::vector<std::int64_t>>{{1, 1, 1, 0, 1, 1, 1, 0}}));
  row.tokens = 5;
  EXPECT_EQ(expert_rows(row), (std::vector<std::vector<std::int64_t>>{{2, 1, 1, 1, 2, 1, 1, 1}}));
  row.tokens = 16;
  EXPECT_EQ(expert_rows(row), (std::vector<std::vector<std::int64_t>>{std::vector<std::int64_t>(8, 4)}));
  row.tokens = 5;
  row.ep = 4;  // of four ranks with two experts each the first of the busiest
  EXPECT_EQ(expert_rows(row), (std::vector<std::vector<std::int64_t>>{{2, 1}}));
}

// Under EP a token with a choice here comes with its other choice, too: 60 rows are of at most 60 tokens,
// whose choices are 120.
TEST(FfnRows, ChoicesElsewhereComeAlong) {
  FfnRow row;
  row.tokens = 100;
  row.topk = 2;
  row.experts = 8;
  row.hidden = 4096;
  row.inter = 1536;
  row.tp = 2;
  row.ep = 4;
  const models::FfnShape shape = ffn_shape(row, {{40, 20}, {10, 30}});
  EXPECT_EQ(shape.inter, 768);
  EXPECT_DOUBLE_EQ(shape.remote_rows, 50);  // the mean of 60 x 2 - 60 and 40 x 2 - 40
  // Never more tokens than there are: 150 rows are of all 100 tokens, whose choices are 200.
  EXPECT_DOUBLE_EQ(ffn_shape(row, {{100, 50}}).remote_rows, 50);
  row.ep = 1;
  EXPECT_DOUBLE_EQ(ffn_shape(row, {{40, 20}}).remote_rows, 0);
}

// One row more than a multiple of the tiles: how much longer a product takes, measured and by the law, over
// all widths and depths of the published tables. What a layer jumps by where its rows pass a tile's edge is
// real.

TEST(GemmEdges, AreAsHighAsTheyWereMeasured) {
  const std::filesystem::path table = std::filesystem::path(MOESIM_DATA_DIR) / "published/gemm_dense.csv";
  if (!std::filesystem::exists(table)) GTEST_SKIP() << table << " is not here";
  using Key = std::tuple<std::string, std::string, double, double, double>;  // gpu, dtype, n, k, m
  std::map<Key, double> seconds;
  for (const GemmRow& row : read_measurements(table).gemms)
    if (!row.sustained) seconds[{row.origin.gpu, row.dtype, row.n, row.k, row.m}] = row.seconds;
  struct Steps {
    std::vector<double> measured, law;
  };
  std::map<std::tuple<std::string, std::string, double>, Steps> all;  // gpu, dtype, m
  std::map<std::string, std::unique_ptr<models::GemmModel>> models;
  for (const auto& [key, before] : seconds) {
    const auto& [gpu, dtype, n, k, m] = key;
    const auto after = seconds.find({gpu, dtype, n, k, m + 1});
    const Device* device = device_of_gpu(gpu);
    if (after == seconds.end() || m < 128 || !device) continue;
    auto& model = models[gpu];
    if (!model)
      model = std::make_unique<models::GemmModel>(models::Profile::load(std::string(device->profile)),
                                                  models::Clocks::kBurst);
    const auto columns = static_cast<std::int64_t>(n), depth = static_cast<std::int64_t>(k);
    const auto law = [&, type = dtype_of(dtype)](double rows) {
      return model->seconds({static_cast<std::int64_t>(rows), columns, depth}, type);
    };
    Steps& steps = all[{gpu, dtype, m}];
    steps.measured.push_back(after->second / before);
    steps.law.push_back(law(m + 1) / law(m));
  }
  ASSERT_GT(all.size(), 40u);
  std::vector<double> apart;
  for (const auto& [key, steps] : all) {
    const double measured = median(steps.measured), law = median(steps.law);
    std::printf("%-16s %-10s %5.0f: measured %.3f, law %.3f (%zu)\n", std::get<0>(key).c_str(),
                std::get<1>(key).c_str(), std::get<2>(key), measured, law, steps.law.size());
    apart.push_back(law / measured - 1);
    EXPECT_LT(std::abs(law / measured - 1), 0.25)
        << std::get<0>(key) << " " << std::get<1>(key) << " " << std::get<2>(key);
  }
  EXPECT_LT(std::abs(median(apart)), 0.03);
}

}  // namespace
}  // namespace moesim::calibration
