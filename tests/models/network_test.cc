// Networks, and the laws that give their times.
#include "models/hardware/network.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/answers/answer.h"
#include "models/costs/collectives.h"
#include "models/costs/network_law.h"
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

// Eight ports of 10 GB/s a node.
Cluster cluster() {
  Cluster c;
  c.name = "made";
  c.nodes = 16;
  c.gpus_per_node = 8;
  c.nic.ports_per_node = 8;
  c.nic.bandwidth = 10e9;
  return c;
}

NetworkCurve law(const std::string& op, const std::vector<std::pair<std::string, double>>& parameters,
                 const Cluster& on = cluster()) {
  ParameterSet set;
  set.law = "network";
  for (const auto& [name, value] : parameters) {
    set.names.push_back(name);
    set.values.push_back(value);
  }
  return NetworkCurve::from(set, "collective/" + op + "/network", on);
}

// Four nodes of eight: 31 of 32 parts of 32 MB are 31 MB. A rank's connection reaches half its port, 5 GB/s,
// so that a node's eight carry 40 GB/s, below the 72 GB/s of its ports.
TEST(NetworkLaw, ARingByHand) {
  const NetworkCurve ring =
      law("all_gather",
          {{"latency", 20e-6}, {"latency_per_rank", 1e-6}, {"connection_share", 0.5}, {"node_share", 0.9}});
  const GroupShape shape = GroupShape::uniform(4, 8);
  EXPECT_NEAR(ring.seconds(shape, 0), 20e-6 + 31 * 1e-6, 1e-15);
  EXPECT_NEAR(ring.seconds(shape, 32e6), 51e-6 + 31e6 / 40e9, 1e-12);
  // One rank a node: its connection.
  EXPECT_NEAR(ring.seconds(GroupShape::uniform(4, 1), 4e6), 23e-6 + 3e6 / 5e9, 1e-12);
  // The node binds with all of its port.
  const NetworkCurve wide = law("all_gather", {{"connection_share", 1}, {"node_share", 0.9}});
  EXPECT_NEAR(wide.seconds(shape, 32e6), 31e6 / 72e9, 1e-12);
}

// With five ranks, three on one node and two on the other, two leave and enter each: a ring is as wide as its
// narrowest domain.
TEST(NetworkLaw, ARingIsAsWideAsItsNarrowestDomain) {
  const NetworkCurve ring = law("all_gather", {{"connection_share", 0.5}, {"node_share", 0.9}});
  const std::vector<std::int32_t> five{5, 6, 7, 8, 9}, ten{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_NEAR(ring.seconds(GroupShape::of(cluster(), five), 5e6), 4e6 / 10e9, 1e-12);
  EXPECT_NEAR(ring.seconds(GroupShape::of(cluster(), ten), 10e6), 9e6 / 10e9, 1e-12);
}

// All_reduce moves twice that, and its latency grows with the logarithm of the nodes.
TEST(NetworkLaw, AnAllReduceByHand) {
  const NetworkCurve plain =
      law("all_reduce", {{"latency", 10e-6}, {"latency_per_octave", 4e-6}, {"connection_share", 0.5}});
  EXPECT_NEAR(plain.seconds(GroupShape::uniform(8, 8), 64e6), 22e-6 + 2 * 63e6 / 40e9, 1e-12);
  // Done inside the nodes first, seven eighths of the buffer cross the network twice.
  const NetworkCurve inside = law("all_reduce", {{"hierarchy", 1}, {"connection_share", 0.5}});
  EXPECT_NEAR(inside.seconds(GroupShape::uniform(8, 8), 64e6), 2 * 56e6 / 40e9, 1e-12);
}

// Two nodes of four: half of a rank's 8 MB leave its node. Four connections of 1 GB/s, a port of 9, a quarter
// of the node's 64 GB/s: the least is 4 GB/s.
TEST(NetworkLaw, AnExchangeByHand) {
  const GroupShape shape = GroupShape::uniform(2, 4);
  const std::vector<std::pair<std::string, double>> shares = {
      {"connection_share", 0.1}, {"port_share", 0.9}, {"node_share", 0.8}};
  EXPECT_NEAR(law("all_to_all", shares).seconds(shape, 8e6), 4e6 / 4e9, 1e-12);
  Cluster one_port = cluster();
  one_port.nic.ports_per_node = 1;  // 8 GB/s for four ranks
  EXPECT_NEAR(law("all_to_all", shares, one_port).seconds(shape, 8e6), 4e6 / 2e9, 1e-12);
}

TEST(NetworkLaw, AMessageCrossesWhole) {
  const NetworkCurve message =
      law("send_recv", {{"latency", 5e-6}, {"connection_share", 0.8}, {"port_share", 1.2}});
  EXPECT_NEAR(message.seconds(GroupShape::uniform(2, 1), 8e6), 5e-6 + 1e-3, 1e-12);
  Cluster capped = cluster();
  capped.nic.per_connection_cap = 2e9;
  EXPECT_NEAR(law("send_recv", {{"connection_share", 0.8}}, capped).seconds(GroupShape::uniform(2, 1), 8e6),
              4e-3, 1e-12);
}

// The bandwidth falls by the nodes beyond two: by 2^-0.5 at four.
TEST(NetworkLaw, AFullerFabricIsSlower) {
  const NetworkCurve spread = law("all_gather", {{"spread", 0.5}, {"connection_share", 0.5}});
  const double two = spread.seconds(GroupShape::uniform(2, 8), 16e6),
               four = spread.seconds(GroupShape::uniform(4, 8), 32e6);
  EXPECT_NEAR(two, 15e6 / 40e9, 1e-12);
  EXPECT_NEAR(four, 31e6 / 40e9 * std::sqrt(2), 1e-12);
}

TEST(NetworkLaw, RefusesAClusterWithoutANetwork) {
  Cluster alone = cluster();
  alone.nic.bandwidth = 0;
  EXPECT_THROW(law("all_gather", {}, alone), InputError);
}

// The law times what was measured at 1 MiB and 4 GiB of two domains of eight.
TEST(NetworkLaw, AMeasuredCallSetsItRight) {
  const std::vector<std::pair<std::string, double>> parameters{{"latency", 20e-6}, {"connection_share", 0.5}};
  std::vector<std::pair<std::string, double>> measured = parameters;
  measured.emplace_back("correction/2/8/1048576", 1.5);
  measured.emplace_back("correction/2/8/4294967296", 0.8);
  const NetworkCurve plain = law("all_gather", parameters), set_right = law("all_gather", measured);
  const GroupShape shape = GroupShape::uniform(2, 8);
  const auto factor = [&](const GroupShape& of, double size) {
    return set_right.seconds(of, size) / plain.seconds(of, size);
  };
  EXPECT_NEAR(factor(shape, 1048576), 1.5, 0.002);
  EXPECT_NEAR(factor(shape, 4294967296), 0.8, 0.002);
  // Between them one and the other fade; beyond them nothing changes.
  EXPECT_GT(factor(shape, 2097152), factor(shape, 4194304));
  EXPECT_GT(factor(shape, 4194304), 1);
  EXPECT_LT(factor(shape, 2147483648), 1);
  EXPECT_DOUBLE_EQ(factor(shape, 0), factor(shape, 1048576));
  EXPECT_DOUBLE_EQ(factor(shape, 1e12), factor(shape, 4294967296));
  // Groups unlike the measured ones know less of it: three octaves of domains are 1/e.
  EXPECT_NEAR(std::log(factor(GroupShape::uniform(16, 8), 1048576)), std::log(1.5) / std::exp(1.0), 0.01);
}

// One call was measured; calls differ from the law by 0.3. Six octaves of size, or three of domains, leave 1/e
// of the correlation: 0.3 sqrt(1 - 1/e^2). The call itself varies by a thousandth of the variance.
TEST(NetworkLaw, DoubtBetweenMeasuredCallsByHand) {
  const GroupShape shape = GroupShape::uniform(2, 8);
  const Corrections one =
      law("all_gather", {{"correction_sigma", 0.3}, {"correction/2/8/1048576", 1.5}}).corrections;
  EXPECT_NEAR(one.sigma(shape, 1048576), 0.3 * std::sqrt(1e-3), 1e-4);
  EXPECT_NEAR(one.sigma(shape, 1048576.0 * 64), 0.27896, 2e-4);
  EXPECT_NEAR(one.sigma(GroupShape::uniform(16, 8), 1048576), 0.27896, 2e-4);
  EXPECT_NEAR(one.sigma(shape, 1e30), 0.3, 1e-4);
  // A law without the parameter, and one without corrections, have none of it.
  EXPECT_EQ(law("all_gather", {{"correction/2/8/1048576", 1.5}}).corrections.sigma(shape, 1e6), 0);
  EXPECT_EQ(law("all_gather", {{"correction_sigma", 0.3}}).corrections.sigma(shape, 1e6), 0);
}

RC_GTEST_PROP(NetworkLaw, DoubtGrowsAwayFromMeasuredCallsUpToTheirSpread, ()) {
  const double spread = *rc::gen::inRange(1, 100) * 0.01;
  const auto name = [] {
    return fmt::format("correction/{}/{}/{}", 1 << *rc::gen::inRange(1, 8), 1 << *rc::gen::inRange(0, 4),
                       1 << *rc::gen::inRange(10, 30));
  };
  const GroupShape shape = GroupShape::uniform(1 << *rc::gen::inRange(1, 8), 1 << *rc::gen::inRange(0, 4));
  const double size = std::exp2(*rc::gen::inRange(0, 400) * 0.1);
  std::vector<std::pair<std::string, double>> parameters{{"correction_sigma", spread}, {name(), 1.2}};
  const Corrections one = law("all_gather", parameters).corrections;
  const int count = *rc::gen::inRange(1, 12);
  for (int i = 0; i < count; ++i) {
    const std::string other = name();
    if (std::ranges::none_of(parameters, [&](const auto& known) { return known.first == other; }))
      parameters.emplace_back(other, 0.8);
  }
  const Corrections all = law("all_gather", parameters).corrections;
  RC_ASSERT(one.sigma(shape, size) <= spread);
  // A further call makes no other one less certain.
  RC_ASSERT(all.sigma(shape, size) <= one.sigma(shape, size) + 1e-12);
  // Above the largest measured size, twice the size is never more certain.
  const double large = std::exp2(30 + *rc::gen::inRange(0, 100) * 0.1);
  RC_ASSERT(all.sigma(shape, 2 * large) >= all.sigma(shape, large) - 1e-12);
}

TEST(NetworkLaw, AMeasuredCallHasThreeNumbers) {
  for (const char* name :
       {"correction/2/8", "correction/2/x/1024", "correction/2/8/0", "correction/2/8/1024/1"}) {
    try {
      law("all_gather", {{name, 1.1}});
      FAIL() << name;
    } catch (const InputError& error) {
      EXPECT_EQ(error.what(), "law collective/all_gather/network: found the parameter '" + std::string(name) +
                                  "', expected correction/<domains>/<ranks of a domain>/<bytes>");
    }
  }
  EXPECT_THROW(law("all_gather", {{"correction/2/8/1024", 0}}), InputError);
}

}  // namespace
}  // namespace moesim::models
