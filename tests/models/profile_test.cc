// Profiles, the files of their laws and curves over sizes.
#include "models/hardware/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/random.h"
#include "models/costs/collectives.h"
#include "models/costs/gemm.h"
#include "models/costs/kernels.h"
#include "models/costs/size_curve.h"
#include "models/hardware/cluster.h"
#include "models/hardware/laws_file.h"
#include "models/hardware/network.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Named = std::vector<std::pair<std::string, double>>;
using moesim::testing::message_of;

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
  EXPECT_TRUE(Profile::load(std::string("mi355x")).device().has_precision("mxfp4"));
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

// Laws in the files of profiles and networks: what is read is what is written, what is refused.

ParameterSet read(const std::string& text) { return read_law(JsonNode::parse(text, "law.json")); }

constexpr const char* kLaw = R"({"law": "network", "parameters": {"latency": {"value": 2e-6, "sigma": 3e-7},
  "share": {"value": 0.9, "sigma": 0.02}, "fixed": 4}, "correlation": [[], [0.5], [0, 0]],
  "domain": {"bytes": [1024, 1e9], "ranks": [2, 64]}, "residual": 0.1, "systematic": 0.05, "rows": 7,
  "derived": true, "source": "somebody"})";

TEST(ReadLaw, TakesEveryPart) {
  const ParameterSet law = read(kLaw);
  EXPECT_EQ(law.law, "network");
  EXPECT_THAT(law.names, ElementsAre("latency", "share", "fixed"));
  EXPECT_THAT(law.values, ElementsAre(2e-6, 0.9, 4));
  // Covariance: sigma_i * sigma_j * correlation; a bare number is exact.
  EXPECT_DOUBLE_EQ(law.covariance[0], 9e-14);
  EXPECT_DOUBLE_EQ(law.covariance[1], 0.5 * 3e-7 * 0.02);
  EXPECT_EQ(law.covariance[3], law.covariance[1]);
  EXPECT_EQ(law.covariance[8], 0);
  ASSERT_EQ(law.domain.size(), 2u);
  EXPECT_EQ(law.domain[1].quantity, "ranks");
  EXPECT_EQ(law.domain[1].high, 64);
  EXPECT_EQ(law.rows, 7);
  EXPECT_TRUE(law.derived);
  EXPECT_EQ(law.source, "somebody");
}

TEST(WriteLaw, ReadsBackToWhatItWrote) {
  const nlohmann::ordered_json once = write_law(read(kLaw));
  EXPECT_EQ(write_law(read(once.dump())), once);
  EXPECT_EQ(once["correlation"], nlohmann::ordered_json::parse("[[], [0.5], [0.0, 0.0]]"));
  // Six digits of a value, three of its sigma; no correlation where there is none.
  const auto plain =
      write_law(read(R"({"law": "l", "parameters": {"a": {"value": 1.23456789, "sigma": 0.012345}}})"));
  EXPECT_EQ(plain["parameters"]["a"],
            nlohmann::ordered_json::parse(R"({"value": 1.23457, "sigma": 0.0123})"));
  EXPECT_FALSE(plain.contains("correlation"));
  EXPECT_FALSE(plain.contains("derived"));
}

TEST(ReadLaw, NamesWhatIsWrong) {
  const auto error = [](const std::string& parameters, const std::string& more = "") {
    return message_of([&] { read(R"({"law": "l", "parameters": )" + parameters + more + "}"); });
  };
  EXPECT_EQ(error(R"({"a": 1})"), "");
  EXPECT_THAT(error("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error(R"({"a": -1})"), HasSubstr("-1"));
  EXPECT_THAT(error(R"({"a": {"value": 1, "sigmas": 1}})"), HasSubstr("sigmas"));
  EXPECT_THAT(error(R"({"a": 1})", R"(, "correlation": [[], [1]])"),
              HasSubstr("found correlation 2 rows, expected 1"));
  EXPECT_THAT(error(R"({"a": 1, "b": 1})", R"(, "correlation": [[], []])"),
              HasSubstr("found correlation[1] 0 numbers, expected 1"));
  EXPECT_THAT(error(R"({"a": 1, "b": 1})", R"(, "correlation": [[], [1.5]])"), HasSubstr("1.5"));
  EXPECT_THAT(error(R"({"a": 1})", R"(, "domain": {"bytes": [2, 1]})"),
              HasSubstr("found domain.bytes a range that ends before it starts, expected [low, high]"));
  EXPECT_THAT(error(R"({"a": 1})", R"(, "row": 3)"), HasSubstr("row"));
  // Three parameters that cannot be correlated like that: a with b and with c, b against c.
  const char* three =
      R"({"a": {"value": 1, "sigma": 1}, "b": {"value": 1, "sigma": 1}, "c": {"value": 1, "sigma": 1}})";
  EXPECT_THAT(error(three, R"(, "correlation": [[], [0.9], [0.9, -0.9]])"),
              HasSubstr("a matrix that is no correlation"));
  EXPECT_EQ(error(three, R"(, "correlation": [[], [0.9], [0.9, 0.9]])"), "");
}

// L * L^T is the matrix again, of any matrix that is made as one.
RC_GTEST_PROP(LowerFactor, MultipliesBackToTheMatrix, ()) {
  const std::size_t n = *rc::gen::inRange<std::size_t>(1, 6);
  std::vector<double> root(n * n), matrix(n * n, 0), lower;
  for (double& value : root) value = *rc::gen::inRange(-100, 101) / 100.0;
  for (std::size_t i = 0; i < n; ++i) root[i * n + i] += 2;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t k = 0; k < n; ++k) matrix[i * n + j] += root[i * n + k] * root[j * n + k];
  RC_ASSERT(lower_factor(matrix, n, lower));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < n; ++k) sum += lower[i * n + k] * lower[j * n + k];
      RC_ASSERT(std::abs(sum - matrix[i * n + j]) < 1e-9 * (1 + std::abs(matrix[i * n + j])));
      if (j > i) RC_ASSERT(lower[i * n + j] == 0);
    }
}

TEST(LowerFactor, RefusesWhatIsNoCovariance) {
  std::vector<double> lower;
  EXPECT_FALSE(lower_factor({1, 2, 2, 1}, 2, lower));
  EXPECT_TRUE(lower_factor({1, 1, 1, 1}, 2, lower));  // fully correlated
  EXPECT_TRUE(lower_factor({0, 0, 0, 0}, 2, lower));
}

ParameterSet set_of(const Named& parameters) {
  ParameterSet set;
  set.law = "size-curve";
  for (const auto& [name, value] : parameters) {
    set.names.push_back(name);
    set.values.push_back(value);
  }
  return set;
}

// Two ranks: 1 us up to 100 bytes, 3 us at 300; eight ranks: 2 us and 10 us at the same sizes.
Named two_and_eight() {
  return {{"latency", 5e-6},      {"latency_per_rank", 1e-6}, {"excess/2/100", 1e-6},
          {"excess/2/300", 3e-6}, {"excess/8/100", 2e-6},     {"excess/8/300", 10e-6}};
}

TEST(SizeCurve, AtAMeasuredCountByHand) {
  const SizeCurve curve = SizeCurve::from(set_of(two_and_eight()), "key");
  EXPECT_NEAR(curve.floor(2), 6e-6, 1e-18);
  EXPECT_NEAR(curve.floor(8), 12e-6, 1e-18);
  EXPECT_NEAR(curve.seconds(2, 50), 7e-6, 1e-18);    // constant below the first knot
  EXPECT_NEAR(curve.seconds(2, 200), 8e-6, 1e-18);   // half way between the knots
  EXPECT_NEAR(curve.seconds(2, 500), 11e-6, 1e-18);  // 10 ns a byte go on
  EXPECT_NEAR(curve.seconds(8, 200), 18e-6, 1e-18);
  EXPECT_TRUE(curve.measured(8));
  EXPECT_FALSE(curve.measured(4));
}

// Sizes between which a measurement fell stand at their mean.
TEST(SizeCurve, ALargerMessageTakesNoLess) {
  const SizeCurve curve = SizeCurve::from(
      set_of({{"latency", 0}, {"excess/8/100", 3e-6}, {"excess/8/200", 1e-6}, {"excess/8/300", 5e-6}}),
      "key");
  EXPECT_NEAR(curve.seconds(8, 100), 2e-6, 1e-18);
  EXPECT_NEAR(curve.seconds(8, 200), 2e-6, 1e-18);
  EXPECT_NEAR(curve.seconds(8, 300), 5e-6, 1e-18);
}

// Between two counts at the same piece: 4 ranks and 400 bytes are pieces of 100; two ranks had them at 200
// bytes (2 us), eight at 800 (10 us and 500 bytes more at 40 ns each: 30 us); a third of the way is 11.333
// us.
TEST(SizeCurve, BetweenCountsAtTheSamePiece) {
  const SizeCurve curve = SizeCurve::from(set_of(two_and_eight()), "key");
  EXPECT_NEAR(curve.excess_at(4, 400), 2e-6 + (30e-6 - 2e-6) / 3, 1e-15);
  EXPECT_NEAR(curve.seconds(4, 400), 8e-6 + 2e-6 + 28e-6 / 3, 1e-15);
  EXPECT_NEAR(curve.excess_at(14, 1400), 2e-6 + 28e-6 * 2, 1e-15);  // beyond the last the line goes on
}

// From eight ranks alone: a ring of n - 1 steps and 0.37 of one more, each with 1/n of the bytes.
TEST(SizeCurve, FromOneCountTheRingGoesOn) {
  const SizeCurve curve =
      SizeCurve::from(set_of({{"latency", 0}, {"excess/8/100", 1e-6}, {"excess/8/300", 3e-6}}), "key");
  EXPECT_NEAR(curve.excess_at(4, 200), 2e-6 * (3.37 / 4) / (7.37 / 8), 1e-15);
  EXPECT_NEAR(curve.excess_at(8, 200), 2e-6, 1e-15);
  // One knot is a bandwidth.
  const SizeCurve line = SizeCurve::from(set_of({{"excess/8/100", 1e-6}}), "key");
  EXPECT_NEAR(line.seconds(8, 400), 4e-6, 1e-15);
}

TEST(SizeCurve, ADrawnErrorIsAQuarterAtMeasuredCounts) {
  ParameterSet drawn = set_of(two_and_eight());
  drawn.factor = std::exp(0.4);
  const SizeCurve plain = SizeCurve::from(set_of(two_and_eight()), "key"),
                  curve = SizeCurve::from(drawn, "key");
  EXPECT_NEAR(curve.seconds(8, 200) / plain.seconds(8, 200), std::exp(0.1), 1e-12);
  EXPECT_NEAR(curve.seconds(4, 400) / plain.seconds(4, 400), std::exp(0.4), 1e-12);
}

RC_GTEST_PROP(SizeCurve, MoreBytesNeverTakeLess, ()) {
  Named parameters = {{"latency", 1e-6}, {"latency_per_rank", 1e-7}};
  for (const int ranks : {2, 4, 8}) {
    double excess = 0;
    for (const int bytes : {1000, 8000, 100000}) {
      excess += *rc::gen::inRange(0, 1000) * 1e-7;
      parameters.emplace_back("excess/" + std::to_string(ranks) + "/" + std::to_string(bytes), excess);
    }
  }
  const SizeCurve curve = SizeCurve::from(set_of(parameters), "key");
  const double ranks = *rc::gen::inRange(2, 9);
  const double bytes = *rc::gen::inRange(1, 1000000), more = bytes + *rc::gen::inRange(0, 1000000);
  RC_ASSERT(curve.seconds(ranks, more) >= curve.seconds(ranks, bytes) * (1 - 1e-12));
}

TEST(SizeCurve, RefusesWhatIsNoCurve) {
  const auto error = [](const Named& parameters) -> std::string {
    return message_of([&] { SizeCurve::from(set_of(parameters), "collective/all_gather/scaleup"); });
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(error({{"latency", 1e-6}}), HasSubstr("law collective/all_gather/scaleup: found 0 knots"));
  EXPECT_THAT(error({{"excess/2/100", 1e-6}, {"excess/8/100", 1e-6}, {"excess/8/300", 1e-6}}),
              HasSubstr("3 knots"));
  EXPECT_THAT(error({{"excess/2/100", 1e-6}, {"excess/8/200", 1e-6}}), HasSubstr("different sizes"));
  for (const char* name : {"excess/2", "excess/1/100", "excess/2/0", "excess/two/100", "excess/2/100/3"})
    EXPECT_THAT(error({{name, 1e-6}}), HasSubstr("expected excess/<ranks>/<bytes>")) << name;
  Named many;
  for (int i = 0; i < 9; ++i) many.emplace_back("excess/" + std::to_string(2 + i) + "/100", 1e-6);
  EXPECT_THAT(error(many), HasSubstr("at most 8"));
  many.clear();
  for (int i = 0; i < 33; ++i) many.emplace_back("excess/2/" + std::to_string(100 + i), 1e-6);
  EXPECT_THAT(error(many), HasSubstr("at most 32"));
}

}  // namespace
}  // namespace moesim::models
