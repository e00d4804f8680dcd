#include "calibration/rows/devices.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "tests/message_of.h"

namespace moesim::calibration {
namespace {

using moesim::testing::message_of;

TEST(Devices, GpusHaveShortNamesAndOtherMemorySizes) {
  const auto profile = [](std::string_view gpu) {
    const Device* device = device_of_gpu(gpu);
    return device ? device->profile : "";
  };
  EXPECT_EQ(profile("H100"), "h100-sxm");
  EXPECT_EQ(profile("A100-SXM4-40GB"), "a100-sxm");
  EXPECT_EQ(profile("H100-SXM5-80GB (p5, EFA 32x100G)"), "h100-sxm");
  EXPECT_EQ(profile("B200"), "b200-sxm");
  EXPECT_EQ(profile("GH200"), "h100-sxm");
  EXPECT_EQ(profile("A100-PCIe-80GB"), "");
  EXPECT_EQ(profile("H800-or-H100 (SM90)"), "");
  EXPECT_EQ(profile("H20-SXM5-96GB"), "h20-sxm");
  EXPECT_EQ(profile("MI308X"), "");
  EXPECT_EQ(profile("B200 (p6-b200, EFA 8x400G)"), "b200-sxm");
  EXPECT_EQ(profile("H100 or H200 + ConnectX-7 400G"), "");  // the machine is not named
}

// As drivers and people write them; a card of a PCIe slot is no SXM module, and no other card of its series.
TEST(Devices, CardsHaveTheirOwnProfiles) {
  const auto profile = [](std::string_view gpu) {
    const Device* device = device_of_gpu(gpu);
    return device ? device->profile : "";
  };
  const std::pair<std::string_view, std::string_view> names[] = {
      {"L40S", "l40s"},
      {"NVIDIA L40S", "l40s"},
      {"RTX4090", "rtx-4090"},
      {"NVIDIA GeForce RTX 4090", "rtx-4090"},
      {"NVIDIA GeForce RTX 5090", "rtx-5090"},
      {"RTX PRO 6000", "rtx-pro-6000"},
      {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"},
      {"H100-PCIe", "h100-pcie"},
      {"H100-PCIe-80GB", "h100-pcie"},
      {"NVIDIA H100 PCIe", "h100-pcie"},
      {"H100 NVL", "h100-nvl"},
      {"H100-NVL-94GB", "h100-nvl"},
      {"H800-PCIe", "h800-pcie"},
      {"H800-PCIe-80GB (8 in one node)", "h800-pcie"},
      {"MI325X", "mi325x"},
      {"AMD Instinct MI325X", "mi325x"},
      {"AMD Instinct MI350X", "mi350x"},
      {"H800", "h800-sxm"},
      {"NVIDIA GeForce RTX 4090 D", ""},
      {"NVIDIA GeForce RTX 5090 Laptop GPU", ""},
      {"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", ""},
      {"NVIDIA RTX 6000 Ada Generation", ""},
      {"H200-NVL-141GB", ""},
      {"NVIDIA H100 80GB HBM3", "h100-sxm"},
      {"NVIDIA H200", "h200-sxm"},
      {"NVIDIA H200 NVL", ""},
      {"NVIDIA H100 NVL", "h100-nvl"},
      {"NVIDIA H800", "h800-sxm"},
      {"NVIDIA H20", "h20-sxm"},
      {"NVIDIA B200", "b200-sxm"},
      {"NVIDIA B300 SXM6 AC", "b300-sxm"},
      {"NVIDIA GB200", "gb200"},
      {"NVIDIA A100-SXM4-40GB", "a100-sxm"},
      {"NVIDIA A100 80GB PCIe", ""},
      {"NVIDIA GH200 480GB", "h100-sxm"},
      {"NVIDIA H100 80GB HBM3 MIG 1g.10gb", ""},
      {"AMD Instinct MI300X", "mi300x"},
      {"Tesla V100-SXM2-16GB", ""},
      {"L40", ""},
  };
  for (const auto& [gpu, expected] : names) EXPECT_EQ(profile(gpu), expected) << gpu;
  EXPECT_EQ(device_of_path("runs/h800_pcie_8x/x.csv"), find_device("h800-pcie"));
  EXPECT_EQ(device_of_path("runs/rtx_4090_8x/x.csv"), find_device("rtx-4090"));
}

TEST(Devices, DriversNamesBecomeThoseOfTables) {
  const std::pair<std::string_view, std::string_view> names[] = {
      {"NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"},
      {"NVIDIA H200", "H200-SXM5-141GB"},
      {"NVIDIA H100 PCIe", "H100-PCIe-80GB"},
      {"NVIDIA H100 NVL", "H100-NVL-94GB"},
      {"NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"},
      {"A100-SXM-80GB", "A100-SXM4-80GB"},
      {"NVIDIA GB200", "GB200"},
      {"NVIDIA GH200 480GB", "GH200"},
      {"AMD Instinct MI300X", "MI300X"},
      {"NVIDIA GeForce RTX 4090", "RTX-4090-24GB"},
      {"NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe"},
      {"NVIDIA RTX 9999", "NVIDIA RTX 9999"},
      {"HOST", "HOST"},
  };
  for (const auto& [driver, table] : names) EXPECT_EQ(table_name(driver), table) << driver;
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

}  // namespace
}  // namespace moesim::calibration
