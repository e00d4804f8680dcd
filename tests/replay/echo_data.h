// The public recordings of MOESIM_DATA_DIR; tests that need them skip visibly where they are absent.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>

namespace moesim::replay::testing {

inline std::filesystem::path echo_folder() { return std::filesystem::path(MOESIM_DATA_DIR) / "echo"; }

// The five configurations that have a scaling and a realistic side.
inline constexpr std::array kMoeConfigurations{
    "pp2_tp1_ep2_expn8_dp8_nl8_hs4096_sl1024", "pp2_tp1_ep4_expn16_dp8_nl8_hs4096_sl1024",
    "pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024", "pp2_tp1_ep8_expn16_dp8_nl8_hs4096_sl1024",
    "pp2_tp1_ep8_expn8_dp8_nl8_hs4096_sl1024"};
// Real runs at four times the sequence; the last has its twin among those above.
inline constexpr std::array kLongSequences{"pp2_tp1_ep2_expn4_dp8_nl8_hs4096_sl4096",
                                           "pp4_tp1_ep2_expn4_dp4_nl8_hs4096_sl4096",
                                           "pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl4096"};
// And every recording of a real run: also those of dense models.
inline constexpr std::array kRealRuns{kMoeConfigurations[0],
                                      kMoeConfigurations[1],
                                      kMoeConfigurations[2],
                                      kMoeConfigurations[3],
                                      kMoeConfigurations[4],
                                      "dense_wd4_tp2_pp2_nl40_hs5120_sl4096",
                                      "dense_wd8_tp1_pp4_nl32_hs4096_sl256"};

// A test of one recorded job, by folder name.
class EchoTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(folder()))
      GTEST_SKIP() << "no " << folder() << ": the public recordings are not here";
  }
  static std::filesystem::path folder() { return echo_folder() / GetParam(); }
};

inline std::string test_name(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

}  // namespace moesim::replay::testing
