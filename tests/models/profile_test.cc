#include "models/hardware/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/input_error.h"
#include "base/random.h"
#include "models/costs/collectives.h"
#include "models/costs/gemm.h"
#include "models/costs/kernels.h"
#include "models/hardware/cluster.h"
#include "models/hardware/network.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;

constexpr const char* kSmall = R"({
 "schema": "moesim.profile/1", "name": "toy", "gpu": "Toy", "provenance": "made for a test",
 "device": {"sms": 10, "hbm_bandwidth": 1e12, "scaleup_bandwidth": 1e11, "nic_bandwidth": 1e10,
            "peak_flops": {"bf16": 1e14}},
 "laws": {
  "gemm/bf16": {"law": "tiles", "parameters": {"peak_share": {"value": 0.5, "sigma": 0.1},
                "floor": {"value": 1e-6, "sigma": 0.2}}, "correlation": [[], [0.5]],
                "domain": {"m": [1, 100]}, "residual": 0.05, "systematic": 0.1, "rows": 7, "source": "nobody"}
 },
 "constants": {"gap": {"value": 2, "sigma": 0.5, "unit": "us", "source": "a test"}}
})";

std::string with(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string error_of(const std::string& text) {
  return message_of([&] { Profile::parse(text, "toy.json"); });
}

TEST(Profile, ReadsWhatItWrites) {
  const Profile profile = Profile::parse(kSmall, "toy.json");
  const Profile again = Profile::parse(profile.to_json(), "again.json");
  EXPECT_EQ(profile.to_json(), again.to_json());
  const ParameterSet& set = again.at("gemm/bf16");
  EXPECT_DOUBLE_EQ(set.get("peak_share", 0), 0.5);
  EXPECT_NEAR(set.covariance[1], 0.5 * 0.1 * 0.2, 1e-12);
  EXPECT_EQ(set.rows, 7);
  EXPECT_DOUBLE_EQ(again.constant("gap"), 2);
}

TEST(Profile, EveryBuiltInReadsWhatItWritesAndServesItsModels) {
  ASSERT_FALSE(Profile::names().empty());
  for (const std::string& name : Profile::names()) {
    SCOPED_TRACE(name);
    const Profile profile = Profile::load(name);
    EXPECT_TRUE(Profile::parse(profile.to_json(), name).to_json() == profile.to_json());
    EXPECT_EQ(profile.name(), name);
    EXPECT_FALSE(profile.provenance().empty());
    for (const auto& [key, set] : profile.sets()) {
      EXPECT_TRUE(set.rows > 0 || set.derived) << key << " is neither fitted nor marked as derived";
      EXPECT_FALSE(set.source.empty()) << key;
    }
    Cluster cluster;
    cluster.profile = profile;
    cluster.nodes = 2;
    cluster.gpus_per_node = profile.device().gpus_per_node;
    cluster.nvlink.domain = profile.device().scaleup_domain;
    cluster.nic.ports_per_node = cluster.gpus_per_node;
    cluster.nic.bandwidth = profile.device().nic_bandwidth;
    use_network(cluster, NetworkProfile::load(usual_network(profile)));
    const CollectiveModel collectives(cluster);
    EXPECT_GT(collectives.seconds(sim::CollectiveOp::all_to_all, GroupShape::uniform(2, 4), 1e6), 0);
    EXPECT_GT(GemmModel(profile).seconds({256, 1024, 1024}, DType::kBf16), 0);
  }
}

// One table of what the GPUs can do: a type has a peak where its products can be asked for.
TEST(Profile, SaysWhichPrecisionsTheGpuHas) {
  for (const std::string& name : Profile::names()) {
    const DeviceLimits device = Profile::load(name).device();
    EXPECT_TRUE(device.has_precision("bf16")) << name;
    for (const DType type : {DType::kFp8, DType::kFp8Block, DType::kMxFp8})
      EXPECT_EQ(device.has_precision(name_of(type)), device.peak_flops[static_cast<std::size_t>(type)] > 0)
          << name << " " << name_of(type);
  }
  EXPECT_FALSE(Profile::load(std::string("h100-sxm")).device().has_precision("nvfp4"));
  EXPECT_TRUE(Profile::load(std::string("gb200")).device().has_precision("nvfp4"));
  EXPECT_FALSE(Profile::load(std::string("mi355x")).device().has_precision("nvfp4"));
  DeviceLimits own;  // of a file without the list
  own.peak_flops[static_cast<std::size_t>(DType::kMxFp8)] = 1e15;
  EXPECT_TRUE(own.has_precision("mxfp8"));
  EXPECT_FALSE(own.has_precision("fp8"));
}

TEST(Profile, NamesWhatIsWrongWithItsLine) {
  EXPECT_THAT(error_of(with(kSmall, "\"sms\"", "\"smss\"")), HasSubstr("sms"));
  EXPECT_THAT(error_of(with(kSmall, "moesim.profile/1", "moesim.profile/9")), HasSubstr("toy.json:2"));
  EXPECT_THAT(error_of(with(kSmall, "\"value\": 0.5", "\"value\": -1")), HasSubstr("toy.json:6"));
  EXPECT_THAT(error_of(with(kSmall, "[0.5]", "[1.5]")), HasSubstr("1.5"));
  EXPECT_THAT(error_of(with(kSmall, "[[], [0.5]]", "[[], [0.5, 1]]")), HasSubstr("2 numbers"));
  EXPECT_THAT(error_of(with(kSmall, "[1, 100]", "[100, 1]")), HasSubstr("ends before it starts"));
  EXPECT_THAT(error_of(with(kSmall, "\"bf16\"", "\"bf61\"")), HasSubstr("bf61"));
}

TEST(Profile, UnknownNameSuggestsTheClosest) {
  EXPECT_THAT(message_of([&] { Profile::load("h100-smx"); }), HasSubstr("h100-sxm"));
}

TEST(Profile, DrawsRepeatAndHaveTheStatedSpread) {
  const Profile profile = Profile::parse(kSmall, "toy.json");
  Random one(7), two(7);
  EXPECT_EQ(profile.draw(one).to_json(), profile.draw(two).to_json());
  constexpr int kDraws = 4000;
  double sx = 0, sxx = 0, sy = 0, syy = 0, sxy = 0, factor = 0;
  Random random(3);
  for (int i = 0; i < kDraws; ++i) {
    const Profile drawn = profile.draw(random);
    const double x = std::log(drawn.at("gemm/bf16").values[0] / 0.5);
    const double y = std::log(drawn.at("gemm/bf16").values[1] / 1e-6);
    sx += x;
    sxx += x * x;
    sy += y;
    syy += y * y;
    sxy += x * y;
    factor += std::pow(std::log(drawn.at("gemm/bf16").factor), 2);
  }
  EXPECT_NEAR(sx / kDraws, 0, 0.01);
  EXPECT_NEAR(sy / kDraws, 0, 0.02);
  EXPECT_NEAR(std::sqrt(sxx / kDraws), 0.1, 0.01);
  EXPECT_NEAR(std::sqrt(syy / kDraws), 0.2, 0.02);
  EXPECT_NEAR(sxy / std::sqrt(sxx * syy), 0.5, 0.05);
  EXPECT_NEAR(std::sqrt(factor / kDraws), 0.1, 0.01);
}

// Laws of another GPU, and what no profile has a law for.
TEST(Profile, DrawsMoveWhatWasNotMeasuredHere) {
  Profile measured = Profile::parse(kSmall, "toy.json");
  measured.launch().kernel = 4e-6;
  const Profile derived =
      Profile::parse(with(kSmall, R"("rows": 7)", R"("rows": 0, "derived": true)"), "toy.json");
  constexpr int kDraws = 4000;
  struct Squares {
    double factor = 0, derived_factor = 0, beyond = 0, copy = 0, sort = 0, both = 0, attention = 0,
           launch = 0;
  } of;
  Random random(3), same(3);
  for (int i = 0; i < kDraws; ++i) {
    const Profile one = measured.draw(random), other = derived.draw(same);
    const auto squared = [](double factor) { return std::pow(std::log(factor), 2); };
    of.factor += squared(one.at("gemm/bf16").factor);
    of.derived_factor += squared(other.at("gemm/bf16").factor);
    of.beyond += std::pow(one.at("gemm/bf16").beyond, 2);
    const auto kernel_seconds = [](const Profile& p, KernelClass kernel) {
      return KernelModel(p).seconds(kernel, 1e12, 0, 0);
    };
    const double copy =
        kernel_seconds(one, KernelClass::kScatterAdd) / kernel_seconds(measured, KernelClass::kScatterAdd);
    const double sort =
        kernel_seconds(one, KernelClass::kSort) / kernel_seconds(measured, KernelClass::kSort);
    of.copy += squared(copy);
    of.sort += squared(sort);
    of.both += std::log(copy) * std::log(sort);
    of.attention += squared(one.attention_factor());
    of.launch += squared(one.launch().kernel / measured.launch().kernel);
  }
  const auto sigma = [](double squares) { return std::sqrt(squares / kDraws); };
  EXPECT_NEAR(sigma(of.factor), 0.1, 0.01);
  EXPECT_NEAR(sigma(of.derived_factor), std::hypot(0.1, 0.05), 0.01);
  EXPECT_NEAR(sigma(of.beyond), 1, 0.05);
  EXPECT_NEAR(sigma(of.copy), 0.25, 0.02);
  EXPECT_NEAR(sigma(of.sort), 0.25, 0.02);
  EXPECT_NEAR(of.both / kDraws, 0, 0.005);  // each by itself
  EXPECT_NEAR(sigma(of.attention), 0.12, 0.01);
  EXPECT_NEAR(sigma(of.launch), 0.15, 0.01);
  EXPECT_EQ(measured.attention_factor(), 1);
  EXPECT_EQ(measured.at("gemm/bf16").beyond, 0);
  // A constant of its own says how sure it is.
  Profile stated = measured;
  stated.set_constant("attention_forward_efficiency", {0.6, 0.01, "", "a test"});
  EXPECT_EQ(stated.draw(random).attention_factor(), 1);
}

}  // namespace
}  // namespace moesim::models
