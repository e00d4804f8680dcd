// The list of models and frameworks whose steps were published is that of the tables.
#include "models/answers/published_steps.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibration/rows/publication.h"
#include "calibration/training/row_model.h"
#include "calibration/training/training_rows.h"
#include "models/hardware/embedded_profiles.h"

namespace moesim::calibration {
namespace {

using nlohmann::json;

TEST(PublishedSteps, AreThoseOfTheTables) {
  const std::filesystem::path data = MOESIM_DATA_DIR;
  std::vector<std::string> tables;
  for (const char* name : {"published/moe_training_e2e.csv", "published/moe_training_e2e_2.csv",
                           "decisions/aws_training_decisions.csv", "decisions/mlperf_moe.csv",
                           "decisions/training_decisions.csv", "decisions/training_decisions_3.csv"})
    tables.push_back((data / name).string());
  for (const std::string& table : tables)
    if (!std::filesystem::exists(table)) GTEST_SKIP() << "no " << table;
  std::map<json, std::set<std::string>> models;
  std::map<std::string, std::set<std::string>> recipes;
  for (const TrainingRow& row : read_tables(tables).rows) {
    if (!row.scenario.is_step()) continue;
    std::vector<std::string> notes;
    models[*row_model(row.model, row.source, notes)].insert(publication_of(row.source));
    if (!row.scenario.recipe.empty())
      recipes[row.scenario.recipe.substr(0, row.scenario.recipe.find('@'))].insert(
          publication_of(row.source));
  }
  json expected = {{"models", json::array()}, {"recipes", json::array()}};
  for (const auto& [model, publications] : models)
    expected["models"].push_back({{"model", model}, {"publications", publications}});
  for (const auto& [recipe, publications] : recipes)
    expected["recipes"].push_back({{"recipe", recipe}, {"publications", publications}});
  json shipped = json::parse(models::embedded_table("published_steps"));
  shipped.erase("about");
  EXPECT_EQ(shipped, expected) << "expected:\n" << expected.dump(1);
}

}  // namespace
}  // namespace moesim::calibration
