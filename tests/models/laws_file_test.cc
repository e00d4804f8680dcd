// Laws in the files of profiles and networks: what is read is what is written, what is refused.
#include "models/hardware/laws_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace moesim::models
