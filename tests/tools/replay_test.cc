// moesim replay and validate through the command line: what can be changed about a recording, what is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"
#include "tools/moesim/show/report_template.h"

namespace moesim::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_moesim;
using testing::sample_folder;
using testing::TempFolder;

std::vector<std::string> replay(const char* side, std::vector<std::string> more) {
  std::vector<std::string> arguments{"replay", (sample_folder() / side).string(), "--quiet", "--draws", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

json replayed(const char* side, std::vector<std::string> more) {
  more.insert(more.end(), {"--format", "json"});
  const Outcome outcome = run_moesim(replay(side, more));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.exit_code == 0 ? json::parse(outcome.out) : json::object();
}

// The sample without the lines that say what it is, as public recordings are.
std::string anonymous(const TempFolder& folder, const std::string& side) {
  const std::filesystem::path job = folder.path() / sample_folder().filename() / side;
  std::filesystem::create_directories(job);
  for (const auto& file : std::filesystem::directory_iterator(sample_folder() / side)) {
    std::string text = testing::read_text(file.path());
    while (text.starts_with('#')) text.erase(0, text.find('\n') + 1);
    std::ofstream(job / file.path().filename()) << text;
  }
  return job.string();
}

TEST(Replay, WhatItWasRecordedOnIsToldOrAsked) {
  const TempFolder folder;
  const auto said = [](std::vector<std::string> more) {
    more.insert(more.begin(), "replay");
    more.insert(more.end(), {"--draws", "16", "--format", "json", "--quiet"});
    const Outcome outcome = run_moesim(more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.exit_code == 0 ? json::parse(outcome.out) : json::object();
  };
  const auto us = [](const json& result, const char* what) {
    return result.at("iteration_us").at(what).get<double>();
  };
  for (const char* side : {"scaling", "realistic"}) {
    const std::string job = anonymous(folder, side);
    // The experts' times are H800's: told in the first line, refused elsewhere.
    const Outcome here = run_moesim({"replay", job, "--cluster", "echo-h800x2", "--draws", "0"});
    EXPECT_EQ(here.exit_code, 0);
    EXPECT_TRUE(here.out.starts_with("warning: nothing says what this was recorded on")) << here.out;
    for (const char* other : {"dgx-b200x2", "dgx-a100x2"}) {
      const Outcome there = run_moesim({"replay", job, "--cluster", other});
      EXPECT_EQ(there.exit_code, 2) << other;
      EXPECT_EQ(there.error_lines(), 1u);
      EXPECT_THAT(there.err, HasSubstr("expected --recorded-on"));
      EXPECT_THAT(there.err, HasSubstr("h800"));
    }
    const json guessed = said({job, "--cluster", "echo-h800x2"});
    const json told = said({job, "--cluster", "echo-h800x2", "--recorded-on", "dgx-h800x1"});
    EXPECT_EQ(guessed.at("recorded_on").at("told_by"), "times");
    EXPECT_EQ(told.at("recorded_on").at("told_by"), "user");
    EXPECT_EQ(us(guessed, "value"), us(told, "value"));
    EXPECT_FALSE(told.contains("changes"));
    // A time of another machine, or of one that nobody named, is no measurement of the forecast.
    EXPECT_FALSE(guessed.at("recorded_on").at("same_machine"));
    EXPECT_FALSE(said({job, "--cluster", "dgx-h100x2"}).at("recorded_on").at("same_machine"));
    EXPECT_TRUE(said({job, "--recorded-on", "echo-h800x2"}).at("recorded_on").at("same_machine"));
    if (std::string(side) == "realistic") {
      EXPECT_THAT(here.out, HasSubstr("ms where it was recorded"));
      EXPECT_THAT(here.out, Not(HasSubstr(", measured ")));
      EXPECT_THAT(run_moesim({"replay", job, "--recorded-on", "echo-h800x2"}).out, HasSubstr(", measured "));
    }
    if (std::string(side) == "scaling") {
      EXPECT_GT(us(guessed, "high") - us(guessed, "low"), us(told, "high") - us(told, "low"));
    }
  }
  // Facts from files and from the user give the same computing on other machines.
  const std::string job = anonymous(folder, "scaling");
  const json by_user = said({job, "--cluster", "dgx-b200x2", "--recorded-on", "echo-h800x2"});
  const json by_files = said({(sample_folder() / "scaling").string(), "--cluster", "dgx-b200x2"});
  EXPECT_EQ(by_files.at("recorded_on").at("told_by"), "files");
  EXPECT_EQ(us(by_user, "value"), us(by_files, "value"));
  EXPECT_THAT(by_user.at("changes").get<std::string>(),
              HasSubstr("B200-SXM6-180GB instead of H800-SXM5-80GB"));
  EXPECT_LT(us(by_user, "high"), us(said({job, "--cluster", "echo-h800x2"}), "value"));
}

// The paths of a scenario change a recording, in every verb, and what a replay has not is refused by name.
void expect_refusals(const std::vector<std::pair<std::vector<std::string>, std::string>>& all) {
  for (const auto& [words, refusal] : all) {
    const Outcome outcome = run_moesim(words);
    EXPECT_EQ(outcome.exit_code, 2) << ::testing::PrintToString(words);
    EXPECT_THAT(outcome.err, HasSubstr(refusal)) << ::testing::PrintToString(words);
  }
}

TEST(Replay, ARunKeepsItsMachine) {
  const std::string real = (sample_folder() / "realistic").string();
  const std::string other = "another machine for a realistic recording";
  EXPECT_EQ(run_moesim({"replay", real, "--cluster", "dgx-h100x2", "--draws", "0"}).exit_code, 0);
  expect_refusals({{{"replay", real, "--cluster", "echo-h800x1"}, "8 GPUs and 16 ranks for a realistic"},
                   {{"replay", real, "--set", "cluster.nic.bandwidth=x2"}, other},
                   {{"whatif", real, "--set", "cluster.nic.bandwidth=x2"}, other},
                   {{"whatif", real, "--set", "cluster=dgx-h100x2"}, other}});
  const Outcome swept = run_moesim(
      {"sweep", "replay", real, "--grid", "cluster=echo-h800x2,dgx-h100x2", "--format", "csv", "--quiet"});
  for (const char* row : {"echo-h800x2,,", "dgx-h100x2,,"}) EXPECT_THAT(swept.out, HasSubstr(row));
  EXPECT_THAT(swept.out, HasSubstr(other));
}

TEST(Replay, OneMachineMadeTheRecordingOnBothSidesOfAChange) {
  const TempFolder folder;
  const std::string job = anonymous(folder, "scaling");
  const auto us = [](std::vector<std::string> words, const char* told) {
    words.insert(words.end(), {"--draws", "0", "--format", "json", "--quiet"});
    const Outcome outcome = run_moesim(words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const json result = json::parse(outcome.out, nullptr, false);
    EXPECT_EQ(result.at("recorded_on").at("told_by"), told);
    return result.at("iteration_us").at("value").get<double>();
  };
  const double scaled =
      us({"replay", job, "--cluster", "dgx-b200x2", "--recorded-on", "echo-h800x2"}, "user");
  const std::vector<std::string> change{"whatif",      job,     "--cluster",
                                        "echo-h800x2", "--set", "cluster=dgx-b200x2"};
  EXPECT_EQ(us(change, "times"), scaled);
  std::vector<std::string> told = change;
  told.insert(told.end(), {"--recorded-on", "echo-h800x2"});
  EXPECT_EQ(us(told, "user"), scaled);
  us({"compare", job, "--cluster", "echo-h800x2", "--recorded-on", "echo-h800x2"}, "user");
  const std::vector<std::string> sweep{
      "sweep", "replay", job, "--grid", "cluster=echo-h800x2,dgx-b200x2", "--format", "csv", "--quiet"};
  EXPECT_THAT(run_moesim(sweep).out, HasSubstr("expected --recorded-on"));
  told = sweep;
  told.insert(told.end(), {"--recorded-on", "echo-h800x2"});
  EXPECT_THAT(run_moesim(told).out, Not(HasSubstr("expected --recorded-on")));
  expect_refusals(
      {{{"compare", "--model", "mixtral-8x7b", "--recorded-on", "echo-h800x2"}, "found no recording"}});
}

TEST(Replay, WhatDoesNotFitIsSaidAndNotTheBest) {
  const std::string scaling = (sample_folder() / "scaling").string();
  EXPECT_THAT(run_moesim({"whatif", scaling, "--set", "parallel.seq=65536", "--draws", "0", "--quiet"}).out,
              HasSubstr("It does not fit into memory: "));
  const Outcome swept = run_moesim({"sweep", "replay", scaling, "--grid", "seq=1024,65536", "--quiet"});
  EXPECT_THAT(swept.out, ::testing::ContainsRegex("Best of 2 replays: .*seq = 1024"));
  EXPECT_THAT(swept.out, HasSubstr("for want of memory"));
}

TEST(Replay, JobsOfOtherSizesAreNotOneJob) {
  const TempFolder folder;
  const std::string scaling = (sample_folder() / "scaling").string();
  for (const std::vector<std::string>& size :
       {std::vector<std::string>{"--seq", "2048"}, {"--layers", "4"}, {"--model", "qwen3-30b-a3b"}}) {
    std::vector<std::string> words{"trace", "synthesize", "--out", folder.path().string(), "--quiet"};
    words.insert(words.end(), size.begin(), size.end());
    ASSERT_EQ(run_moesim(words).exit_code, 0);
  }
  const auto made = [&](const char* job) { return folder / (std::string("pp2_tp1_ep4_") + job); };
  const std::string longer = made("expn8_dp8_nl8_hs4096_sl2048"), fewer = made("expn8_dp8_nl4_hs4096_sl1024");
  expect_refusals(
      {{{"replay", scaling, longer + "/scaling"}, "sequences of 2048, expected one of sequences of 1024"},
       {{"replay", scaling, fewer + "/scaling"}, "4 layers, expected one of 8 layers"},
       {{"replay", scaling, made("expn128_dp8_nl8_hs2048_sl1024") + "/scaling"},
        "128 experts, expected one of 8"},
       {{"validate", "--forecast", scaling, "--measured", longer + "/realistic"},
        "sequences of 1024, expected one of sequences of 2048"},
       {{"validate", "--forecast", scaling, "--measured", fewer + "/realistic", "--rescale"},
        "8 layers, expected one of 4 layers"},
       {{"replay", scaling, "--model", "qwen3-30b-a3b"}, "expected one of 128 experts as --model has it"}});
  EXPECT_EQ(run_moesim({"validate", "--forecast", scaling, "--measured", longer + "/realistic", "--seq",
                        "2048", "--draws", "0", "--quiet"})
                .exit_code,
            0);
}

TEST(Replay, EveryOptionIsUsedOrRefused) {
  const std::string scaling = (sample_folder() / "scaling").string();
  for (const std::vector<std::string>& asked : std::vector<std::vector<std::string>>{
           {"compare", "--dispatcher", "allgather"}, {"whatif", "--set", "dispatcher=allgather"}}) {
    std::vector<std::string> words = asked;
    words.insert(words.begin() + 1, scaling);
    words.insert(words.end(), {"--draws", "0", "--quiet", "--tolerance", "1%", "--format", "json"});
    const Outcome outcome = run_moesim(words);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(json::parse(outcome.out).at("recommendation").at("tolerance"), 0.01);
  }
  for (const std::vector<std::string>& option :
       std::vector<std::vector<std::string>>{{"--top", "3"},
                                             {"--under", "memory"},
                                             {"--most", "5"},
                                             {"--baseline", "alltoall"},
                                             {"--between", "alltoall,allgather"},
                                             {"--picture", "p.svg"},
                                             {"--search"}}) {
    std::vector<std::string> words{"whatif", scaling, "--set", "parallel.seq=x2"};
    words.insert(words.end(), option.begin(), option.end());
    expect_refusals({{words, "whatif: found " + option.front() + " with a recording"}});
  }
  expect_refusals(
      {{{"compare", scaling, "--search"}, "compare: found --search with a recording"},
       {{"compare", scaling, "--no-slower-than", "5%"}, "found --no-slower-than with a recording"}});
}

TEST(Replay, AllDispatchersAreThoseThatAreLegal) {
  const Outcome outcome = run_moesim({"compare", (sample_folder() / "scaling").string(), "--dispatcher",
                                      "all", "--draws", "0", "--quiet", "--format", "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json all = json::parse(outcome.out);
  EXPECT_GT(all.at("scenarios").size(), 5u);
  const auto local = [](const json& one) { return one.at("dispatcher") == "torchtitan-local"; };
  EXPECT_TRUE(std::ranges::any_of(all.at("excluded"), local));
  // The job ran in Megatron.
  EXPECT_THAT(all.at("recommendation").at("dispatcher").get<std::string>(),
              ::testing::ContainsRegex("^(allgather|alltoall|flex-|nccl-ep)"));
}

// "Who sends how much to whom" on the page is what the shapes of the recording say.
TEST(Replay, ThePageShowsTheBytesOfTheShapes) {
  if (!report_missing().empty()) GTEST_SKIP() << report_missing();
  const TempFolder folder;
  const std::string page = folder / "page.html";
  ASSERT_EQ(run_moesim(replay("realistic", {"--report", page})).exit_code, 0);
  const std::string text = testing::read_text(page);
  const std::size_t from = text.find("\"bytes\":[", text.find("\"matrices\""));
  ASSERT_NE(from, std::string::npos);
  const std::size_t begin = from + std::string("\"bytes\":").size();
  const json bytes = json::parse(text.substr(begin, text.find(']', begin) + 1 - begin));
  ASSERT_EQ(bytes.size(), 256u);
  // Four activations of [1024, 1, 4096] in bfloat16 from stage to stage, and their gradients back.
  EXPECT_EQ(bytes.at(0 * 16 + 8).get<double>(), 4.0 * 1024 * 4096 * 2);
  EXPECT_EQ(bytes.at(8 * 16 + 0).get<double>(), 4.0 * 1024 * 4096 * 2);
  // Dispatch group of four: 2048 rows of 8 KiB in each of 4 exchanges a layer and microbatch, the own part
  // left out.
  double sent = 0;
  for (int to = 0; to < 4; ++to) sent += bytes.at(to).get<double>();
  EXPECT_GT(sent, 0.5 * 4 * 4 * 2 * 2048 * 8192);
}

TEST(Replay, RanksThatWereNotRecordedAreFilledOnRequest) {
  const TempFolder folder;
  const std::string job = anonymous(folder, "realistic");
  const double whole = replayed("realistic", {}).at("iteration_us").at("value").get<double>();
  for (const char* rank : {"rank03.txt", "rank07.txt", "rank12.txt"})
    std::filesystem::remove(job + "/" + rank);
  const Outcome refused = run_moesim({"replay", job, "--recorded-on", "echo-h800x2"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--ranks-missing"));
  const Outcome filled = run_moesim(
      {"replay", job, "--recorded-on", "echo-h800x2", "--ranks-missing", "--format", "json", "--quiet"});
  ASSERT_EQ(filled.exit_code, 0) << filled.err;
  const json result = json::parse(filled.out);
  EXPECT_NEAR(result.at("iteration_us").at("value").get<double>() / whole, 1, 0.05);
  EXPECT_EQ(result.at("ranks").size(), 16u);
  EXPECT_THAT(result.at("warnings").dump(), HasSubstr("3 of 16 ranks were not recorded"));
  // One rank stands for all.
  for (const auto& file : std::filesystem::directory_iterator(job))
    if (file.path().filename() != "rank05.txt") std::filesystem::remove(file.path());
  const Outcome alone = run_moesim({"replay", job, "--recorded-on", "echo-h800x2", "--ranks-missing"});
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.err, HasSubstr("15 of 16 ranks"));
  EXPECT_THAT(alone.err, HasSubstr("not all stages were recorded"));
}

TEST(Validate, AllFindsRecordingsAtAnyDepth) {
  const auto names = [](const std::string& root, const std::vector<std::string>& more) {
    std::vector<std::string> words{"validate", "--all", root, "--draws", "0", "--quiet", "--format", "json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run_moesim(words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const json result = json::parse(outcome.out, nullptr, false);
    std::vector<std::string> all;
    for (const json& one : result.at("recordings")) all.push_back(one.at("recording"));
    return all;
  };
  const std::string job = "/pp1_tp1_exp4_expn8_dp4_nl2_hs256_sl256";
  EXPECT_EQ(names((std::filesystem::path(MOESIM_SOURCE_DIR) / "traces/samples/host").string(),
                  {"--cluster", "dgx-h100x1", "--only", "balanced"}),
            (std::vector<std::string>{"allgather-balanced" + job, "alltoall-balanced" + job}));
  // Links are followed, what they lead to again is not repeated.
  const TempFolder folder;
  const std::string name = sample_folder().filename().string();
  std::filesystem::create_directories(folder / "b/c");
  std::filesystem::create_directory_symlink(sample_folder(), folder / ("b/c/" + name));
  std::filesystem::create_directory_symlink(sample_folder().parent_path(), folder / "d");
  std::filesystem::create_directory_symlink(folder.path(), folder / "b/c/loop");
  std::filesystem::create_directory_symlink("self", folder / "self");
  EXPECT_EQ(names(folder.path().string(), {}), (std::vector<std::string>{"b/c/" + name}));
}

// A trace of the PyTorch profiler, converted and replayed.
TEST(TraceConvert, ProfilersTracesBecomeRecordingsThatReplay) {
  const TempFolder folder;
  std::filesystem::create_directories(folder.path() / "traces");
  for (const char* rank : {"0", "1"})
    folder.write(
        std::string("traces/rank") + rank + ".json",
        std::string(R"({"distributedInfo":{"rank":)") + rank +
            R"(,"world_size":2},"traceEvents":[)"
            R"({"ph":"X","cat":"kernel","name":"gemm","ts":100,"dur":50,"tid":7,"args":{"stream":7}},)"
            R"({"ph":"X","cat":"kernel","name":"ncclDevKernel_AllGather","ts":150,"dur":20,"tid":8,"args":)"
            R"({"stream":8,"Collective name":"_allgather_base","In msg nelems":64,"dtype":"Half"}},)"
            R"({"ph":"X","cat":"kernel","name":"gemm","ts":175,"dur":25,"tid":7,"args":{"stream":7}}]})");
  const Outcome trace =
      run_moesim({"trace", "convert", "--from", "kineto", folder / "traces", folder / "cmd"});
  EXPECT_EQ(trace.exit_code, 0) << trace.err;
  const Outcome again = run_moesim({"replay", folder / "cmd", "--format", "json", "--quiet"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_NEAR(json::parse(again.out).at("iteration_us").at("value").get<double>(), 100, 1);

  folder.write("traces/rank1.json", R"({"traceEvents":[{"ph":"X","cat":"ker)");
  for (const std::vector<std::string>& broken :
       {std::vector<std::string>{"trace", "convert", folder / "traces", folder / "never"},
        {"trace", "convert", "--from", "pprof", folder / "traces", folder / "never"}}) {
    const Outcome refused = run_moesim(broken);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_EQ(refused.error_lines(), 1u) << refused.err;
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "never"));
}

}  // namespace
}  // namespace moesim::tools
