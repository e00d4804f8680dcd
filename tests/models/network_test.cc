#include "models/hardware/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/answers/answer.h"
#include "models/hardware/cluster.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;

constexpr const char* kSmall = R"({
 "schema": "moesim.network/1", "name": "toy", "kind": "roce", "nics_per_gpu": 2, "line_rate": "25GBps",
 "laws": {"collective/all_gather/network": {"law": "network", "parameters": {"latency": 1e-5}, "rows": 7,
          "source": "nobody"}}
})";

std::string error_of(std::string json, const std::string& from, const std::string& to) {
  json.replace(json.find(from), from.size(), to);
  return message_of([&] { NetworkProfile::parse(json, "toy.json"); });
}

TEST(NetworkProfile, ReadsWhatItWrites) {
  const NetworkProfile toy = NetworkProfile::parse(kSmall, "toy.json");
  EXPECT_EQ(toy.ports_per_node, 16);
  EXPECT_EQ(toy.line_rate, 25e9);
  EXPECT_EQ(NetworkProfile::parse(toy.to_json(), "again.json").to_json(), toy.to_json());
  for (const std::string& name : NetworkProfile::names()) {
    const NetworkProfile network = NetworkProfile::load(name);
    EXPECT_EQ(network.name, name);
    EXPECT_EQ(NetworkProfile::parse(network.to_json(), name).to_json(), network.to_json());
    for (const auto& [key, law] : network.laws) {
      EXPECT_FALSE(law.source.empty()) << name << " " << key;
      EXPECT_TRUE(law.rows > 0 || law.derived) << name << " " << key;
    }
  }
}

TEST(NetworkProfile, NamesWhatIsWrong) {
  EXPECT_THAT(error_of(kSmall, "roce", "token-ring"), HasSubstr("infiniband"));
  EXPECT_THAT(error_of(kSmall, "\"kind\"", "\"kin\""), HasSubstr("kin"));
  EXPECT_THAT(error_of(kSmall, "all_gather/network", "all_gather/scaleup"), HasSubstr("/network"));
  EXPECT_THROW(NetworkProfile::load("infiniband-nrd"), InputError);
}

TEST(NetworkProfile, AClusterNamesAGpuAndANetwork) {
  const auto cluster = [](const std::string& json) { return Cluster::load(JsonNode::parse(json, "c.json")); };
  const Cluster p5 = Cluster::load(std::string("aws-p5x4"));
  EXPECT_EQ(p5.network, "efa-p5");
  EXPECT_EQ(p5.profile.name(), "h100-sxm");
  const Cluster own = cluster(R"({"profile": "h100-sxm", "nodes": 4, "network": "efa-p5"})");
  EXPECT_EQ(own.network, "efa-p5");
  EXPECT_EQ(own.nic.ports_per_node, 32);
  EXPECT_EQ(own.gpu_network(), 50e9);
  EXPECT_EQ(Cluster::load(std::string("dgx-h100x4")).network, "infiniband-ndr");
  EXPECT_EQ(cluster(R"({"base": "dgx-h100x4", "profile": "b200-sxm"})").network, "infiniband-ndr");
  EXPECT_EQ(cluster(R"({"base": "aws-p5x4", "nodes": 2})").network, "efa-p5");
}

TEST(NetworkProfile, WhatNobodyMeasuredIsDerivedAndWide) {
  const Cluster measured = Cluster::load(std::string("dgx-h100x4")),
                guessed = Cluster::load(std::string("aws-p6-b200x4"));
  EXPECT_EQ(network_note(measured), "");
  EXPECT_THAT(network_note(guessed), HasSubstr("efa-p6-b200"));
  const ParameterSet& law = guessed.profile.at("collective/all_to_all/network");
  EXPECT_TRUE(law.derived);
  EXPECT_GT(law.residual, 2 * measured.profile.at("collective/all_to_all/network").residual);
}

bool guesses_kernel(const Answer& a) {
  const std::vector<std::string> parts = a.unmeasured_parts();
  return std::any_of(parts.begin(), parts.end(), [](const std::string& part) {
    return part.find(" kernel was not measured on network ") != std::string::npos;
  });
}

// A dispatch kernel without rows on a network is marked, and is never surely the fastest.
TEST(NetworkProfile, AKernelThatNobodyMeasuredThereCannotWinForSure) {
  for (const char* name : {"aws-p6-b200x4", "gcp-a3-megax4"}) {
    Scenario s;
    s.set_model("deepseek-v2-lite");
    s.set_cluster(name);
    s.set_dispatchers("alltoall,flex-deepep,flex-hybridep");
    s.parallel.ep = 32;
    const Comparison c = answer(s);
    EXPECT_FALSE(guesses_kernel(c.answers[0])) << name;
    for (const std::size_t i : {1u, 2u}) ASSERT_TRUE(c.answers[i].ok()) << c.answers[i].error;
    EXPECT_EQ(guesses_kernel(c.answers[1]), std::string(name) == "gcp-a3-megax4");  // DeepEP was, on B200
    EXPECT_TRUE(guesses_kernel(c.answers[2])) << name;
    if (guesses_kernel(c.answers[static_cast<std::size_t>(c.decision.winner)])) {
      EXPECT_LT(c.decision.probability().value(), Decision::kSure) << name;
    }
  }
}

// MoRI-EP does not run on NVIDIA's GPUs: no row is of it there, and the price of another operation wins
// nothing.
TEST(NetworkProfile, AnArmWithoutAnyRowNeverWins) {
  for (const char* name : {"dgx-h100x1", "dgx-h100x4"}) {
    Scenario s;
    s.set_model("deepseek-v2-lite");
    s.set_cluster(name);
    s.set_dispatchers("alltoall,flex-deepep:transport=mori");
    s.parallel.ep = std::string(name) == "dgx-h100x1" ? 8 : 32;
    const Comparison c = answer(s);
    ASSERT_TRUE(c.answers[1].ok()) << c.answers[1].error;
    EXPECT_THAT(c.answers[1].unmeasured_parts(),
                ::testing::Contains(HasSubstr("priced as an all-to-all of its rows")));
    EXPECT_EQ(c.decision.winner, 0) << name;
  }
}

}  // namespace
}  // namespace moesim::models
