// Document 000, the AllGather dispatcher and scaling mode: rows 0.x of docs/systems.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"

namespace moesim::systems {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using nlohmann::json;
using tools::testing::Outcome;
using tools::testing::parsed;
using tools::testing::read_text;
using tools::testing::run_moesim;
using tools::testing::TempFolder;
using tools::testing::with;

const std::string kHost = std::string(MOESIM_SOURCE_DIR) + "/traces/samples/host/";
constexpr const char* kJob = "pp1_tp1_exp4_expn8_dp4_nl2_hs256_sl256";

std::string host(const std::string& dispatcher, const std::string& side) {
  return kHost + dispatcher + "-zipf1.2/" + kJob + "/" + side;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// The AllGather recording that ships, its text changed; the folder's name tells the job's sizes.
std::string changed(const TempFolder& folder, const std::function<void(std::string&)>& change,
                    const std::string& side = "scaling") {
  const fs::path made = folder.path() / kJob / side;
  fs::create_directories(made);
  for (const auto& file : fs::directory_iterator(host("allgather", side))) {
    std::string text = read_text(file.path());
    change(text);
    folder.write(std::string(kJob) + "/" + side + "/" + file.path().filename().string(), text);
  }
  return made.string();
}

// As section 2 of the document decorates the calls.
void decorate(std::string& text) {
  replace_all(text, "_reduce_scatter_along_first_dim_moe",
              "reduce_scatter_to_sequence_parallel_region_from_moe");
  replace_all(text, "func_name=gather_rows", "func_name=gather_from_sequence_parallel_region_to_moe");
  replace_all(text, "=_gather_along_first_dim_moe", "=gather_from_sequence_parallel_region_to_moe");
}

std::vector<std::string> replay(const std::string& recording, const std::vector<std::string>& more = {}) {
  return with({"replay", recording, "--microbatches", "4", "--draws", "0"}, more);
}

double milliseconds(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.exit_code == 0 ? json::parse(outcome.out).at("iteration_us").at("value").get<double>() / 1e3
                                : 0;
}

double replayed_ms(const std::string& recording, const std::vector<std::string>& more = {}) {
  return milliseconds(run_moesim(with(replay(recording, more), {"--format", "json"})));
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

TEST(Systems, R0_9_CallsAsTheDocumentDecoratesThemAreCallsOfTheDispatcher) {
  const TempFolder folder;
  const std::string decorated = changed(folder, decorate);
  EXPECT_NEAR(replayed_ms(decorated), 440, 1);
  EXPECT_EQ(replayed_ms(decorated), replayed_ms(host("allgather", "scaling")));
  EXPECT_THAT(run_moesim({"trace", "info", decorated}).out, HasSubstr("dispatcher    allgather, "));
  // Another dispatcher takes their place, which needs to know where every layer's calls are.
  const std::vector<std::string> other{"--dispatcher", "alltoall",
                                       "--routing",    kHost + "allgather-zipf1.2/" + kJob + "/dispatching.json",
                                       "--model",      kHost + "model.json"};
  EXPECT_EQ(replayed_ms(decorated, other), replayed_ms(host("allgather", "scaling"), other));
  // The function's own name is nothing to go by.
  const TempFolder elsewhere;
  const std::string renamed = changed(elsewhere, [](std::string& text) {
    replace_all(text, "_reduce_scatter_along_first_dim_moe", "combine");
    replace_all(text, "func_name=gather_rows", "func_name=tokens");
    replace_all(text, "=_gather_along_first_dim_moe", "=collect");
  });
  EXPECT_EQ(replayed_ms(renamed), replayed_ms(host("allgather", "scaling")));
}

TEST(Systems, R0_9_CallsWithoutARoleAreCountedInTheFirstLine) {
  const TempFolder folder;
  const std::string unknown = changed(folder, [](std::string& text) {
    replace_all(text, "_reduce_scatter_along_first_dim_moe", "combine");
    replace_all(text, ",group=exp,comm_func=reduce_scatter", ",group=pp,comm_func=reduce_scatter");
  });
  // 4 ranks x 2 layers x (1 forward); a scaling recording of this recorder has the backward ones too.
  const json info = json::parse(run_moesim({"trace", "info", unknown, "--format", "json"}).out);
  const int count = info.at("calls_without_role").get<int>();
  EXPECT_EQ(count, 4 * 2 * (1 + 2));
  const std::string said = "warning: " + std::to_string(count) + " communication calls cannot be given a role: ";
  for (const std::vector<std::string>& words : {std::vector<std::string>{"trace", "info", unknown},
                                                std::vector<std::string>{"trace", "check", unknown}, replay(unknown)}) {
    const Outcome outcome = run_moesim(words);
    EXPECT_THAT(outcome.out, StartsWith(said)) << words[0] << ' ' << words[1] << outcome.err;
    EXPECT_THAT(first_line(outcome.out), HasSubstr("combine, reduce_scatter over pp"));
  }
  const json result = json::parse(run_moesim(with(replay(unknown), {"--format", "json"})).out);
  EXPECT_THAT(result.at("warnings").at(0).get<std::string>(), HasSubstr("cannot be given a role"));
}

}  // namespace
}  // namespace moesim::systems
