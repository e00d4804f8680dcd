// One row more than a multiple of the tiles: how much longer a product takes, measured and by the law, over
// all widths and depths of the published tables. What a layer jumps by where its rows pass a tile's edge is
// real.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/statistics.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/measurements.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/gemm.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {
namespace {

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
