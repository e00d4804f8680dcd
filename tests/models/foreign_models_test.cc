// Model files as people have them: the parameters that their authors publish, or one line that names the key
// which makes the model another one than we can describe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "base/input_error.h"
#include "models/workload/architecture.h"

namespace moesim::models {
namespace {

namespace fs = std::filesystem;

// Half a unit of the last digit that somebody wrote: of "3.3" 0.05.
double half_unit(const std::string& text) {
  const std::size_t point = text.find('.');
  const auto digits = point == std::string::npos ? 0 : static_cast<int>(text.size() - point - 1);
  return 0.5 * std::pow(10, -digits);
}

TEST(ForeignModels, AreUnderstoodOrRefusedByName) {
  const fs::path folder = fs::path(MOESIM_DATA_DIR) / "foreign/configs";
  if (!fs::exists(folder)) GTEST_SKIP() << "no model files under " << folder;
  std::ifstream table(folder / "expected.csv");
  std::string line;
  std::getline(table, line);
  int understood = 0, refused = 0;
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string file, total, active;
    std::getline(fields, file, ',');
    std::getline(fields, total, ',');
    std::getline(fields, active, ',');
    try {
      const Architecture a = Architecture::load((folder / file).string());
      ++understood;
      if (total.empty()) continue;
      const double all = static_cast<double>(a.parameters()) * 1e-9 / std::stod(total),
                   met = static_cast<double>(a.active_parameters()) * 1e-9 / std::stod(active),
                   table = static_cast<double>(a.vocabulary * a.hidden) * 1e-9 / std::stod(active);
      // Totals of multimodal models count the vision part, which is not taken, and the answer says so.
      const bool text_alone = !a.remarks.empty() && all < 0.97;
      EXPECT_LT(all, 1.01) << file;
      if (text_alone) continue;
      EXPECT_GT(all, 0.99) << file;
      // Published with one to three digits, some without the tables of the input and the output.
      double nearest = 1e9;
      for (int left_out = 0; left_out < 3; ++left_out) {
        const double off = std::abs(met - left_out * table - 1);
        if (off * std::stod(active) <= half_unit(active)) nearest = 0;
        nearest = std::min(nearest, off);
      }
      EXPECT_LT(nearest, 0.03) << file;
    } catch (const InputError& error) {
      ++refused;
      std::cout << error.what() << '\n';
      EXPECT_GT(error.place().line, 0) << file;
    }
  }
  std::cout << understood << " understood, " << refused << " refused\n";
  EXPECT_GT(understood, refused);
}

}  // namespace
}  // namespace moesim::models
