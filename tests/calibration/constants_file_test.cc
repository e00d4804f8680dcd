#include "calibration/fit/constants_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "calibration/fit/fit_profile.h"
#include "calibration/rows/devices.h"
#include "tests/message_of.h"

namespace moesim::calibration {
namespace {

using moesim::testing::message_of;

TEST(Constants, SurviveAFitAndNameTheirMistakes) {
  const std::string text =
      R"({"schema": "moesim.constants/1", "profiles": {"h800-sxm": {"gap": {"value": 3, "sigma": 1, "unit": "us", "source": "me"}}}})";
  models::Profile profile = fit_profile(*find_device("h800-sxm"), {});
  add_constants(profile, parse_constants(text, "c.json"));
  EXPECT_EQ(profile.constant("gap"), 3);
  EXPECT_EQ(models::Profile::parse(profile.to_json(), "p.json").find_constant("gap")->source, "me");
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return message_of([&] { parse_constants(changed, "c.json"); });
  };
  EXPECT_NE(error("h800-sxm", "h80-sxm").find("h80-sxm"), std::string::npos);
  EXPECT_NE(error("\"source\": \"me\"", "\"source\": \"\"").find("empty source"), std::string::npos);
  EXPECT_NE(error("sigma", "sigm").find("sigm"), std::string::npos);
}

TEST(Constants, AFittedOneOfTheSameNameStays) {
  const auto constants = parse_constants(
      R"({"schema": "moesim.constants/1", "profiles": {"h800-sxm": {
        "gap": {"value": 3, "unit": "us", "source": "file"}, "hop": {"value": 4, "unit": "us", "source": "file"}}}})",
      "c.json");
  EXPECT_EQ(constants.at("h800-sxm").at("gap").sigma, 0);
  models::Profile profile = fit_profile(*find_device("h800-sxm"), {});
  profile.set_constant("gap", {7, 1, "us", "fit"});
  add_constants(profile, constants);
  EXPECT_EQ(profile.constant("gap"), 7);
  EXPECT_EQ(profile.constant("hop"), 4);
  models::Profile other = fit_profile(*find_device("h100-sxm"), {});
  add_constants(other, constants);
  EXPECT_EQ(other.find_constant("hop"), nullptr);
}

TEST(Constants, CommunicationUnderComputingGoesIntoTheOverlap) {
  models::Profile profile = fit_profile(*find_device("h800-sxm"), {});
  add_constants(profile, parse_constants(
                             R"({"schema": "moesim.constants/1", "profiles": {"h800-sxm": {
        "communication_under_compute": {"value": 1.3, "unit": "times", "source": "a chunk"}}}})",
                             "c.json"));
  EXPECT_EQ(profile.overlap().communication_under_compute, 1.3);
  EXPECT_EQ(profile.find_constant("communication_under_compute"), nullptr);
  const auto about = std::ranges::count_if(
      profile.gaps(), [](const std::string& gap) { return gap.starts_with("overlap:"); });
  EXPECT_EQ(about, 1);
}

}  // namespace
}  // namespace moesim::calibration
