// Bad recordings: one clear line on stderr, exit 2, nothing on stdout. Other bad input: tests/cases/tools/refused*.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "process.h"
#include "refusal.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::expect_refusal;
using ::testing::HasSubstr;
using testing::read_text;
using testing::run_moesim;
using testing::sample_folder;
using testing::TempFolder;
using Words = std::vector<std::string>;

// A copy of the sample job that a test may spoil.
class BadRecording : public ::testing::Test {
 protected:
  BadRecording() {
    fs::create_directories(folder_.path() / sample_folder().filename());
    fs::copy(sample_folder(), folder_.path() / sample_folder().filename(), fs::copy_options::recursive);
  }
  fs::path job() const { return folder_.path() / sample_folder().filename(); }
  fs::path file(const char* side, int rank) const {
    std::string name = std::to_string(rank);
    if (rank < 10) name.insert(0, 1, '0');
    return job() / side / ("rank" + name + ".txt");
  }
  // Replaces the first `from` after `after` in a rank file.
  void edit(const char* side, int rank, const std::string& from, const std::string& to,
            const std::string& after = "") const {
    std::string text = read_text(file(side, rank));
    const std::size_t start = after.empty() ? 0 : text.find(after);
    ASSERT_NE(start, std::string::npos) << after;
    const std::size_t at = text.find(from, start);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    folder_.write(fs::relative(file(side, rank), folder_.path()).string(), text);
  }
  // Every verb that reads recordings says the same.
  void expect_refused(const char* side, const ::testing::Matcher<std::string>& message) const {
    expect_refusal(run_moesim({"replay", (job() / side).string()}), message);
    expect_refusal(run_moesim({"replay", (job() / side).string(), "--format", "json"}), message);
    const bool scaling = std::string(side) == "scaling";
    expect_refusal(run_moesim({"validate", "--forecast", (job() / (scaling ? side : "scaling")).string(),
                               "--measured", (job() / (scaling ? "realistic" : side)).string()}),
                   message);
  }

  TempFolder folder_;
};

TEST_F(BadRecording, TheCopyItselfIsFine) {
  EXPECT_EQ(run_moesim({"replay", (job() / "scaling").string(), "--quiet"}).exit_code, 0);
  EXPECT_EQ(run_moesim({"replay", (job() / "realistic").string(), "--quiet"}).exit_code, 0);
}

TEST_F(BadRecording, TruncatedLine) {
  const std::string text = read_text(file("scaling", 3));
  folder_.write(fs::relative(file("scaling", 3), folder_.path()).string(), text.substr(0, text.size() / 2));
  expect_refused("scaling", AllOf(HasSubstr("rank03.txt:"), HasSubstr("expected")));
}

TEST_F(BadRecording, NegativeDuration) {
  edit("scaling", 5, "duration=", "duration=-", "forward_step");
  expect_refused("scaling", AllOf(HasSubstr("rank05.txt:"), HasSubstr("-")));
}

TEST_F(BadRecording, ACountOfTenGigabytes) {
  edit("scaling", 2, "input__shape=[", "input__shape=[10000000000, ", "_profiled_all_to_all_single");
  expect_refused("scaling", HasSubstr("rank02.txt:"));
}

TEST_F(BadRecording, NumbersBeyondAnyInteger) {
  edit("scaling", 2, "batch_id=0", "batch_id=99999999999999999999999999");
  expect_refused("scaling", HasSubstr("rank02.txt:"));
}

TEST_F(BadRecording, AMissingRankThatSymmetryCannotFill) {
  // Expert rank 1 of the first stage was rank 1 and its replica rank 5.
  fs::remove(file("scaling", 1));
  EXPECT_EQ(run_moesim({"replay", (job() / "scaling").string(), "--quiet"}).exit_code, 0)
      << "rank 5 stands in";
  fs::remove(file("scaling", 5));
  expect_refusal(run_moesim({"replay", (job() / "scaling").string()}),
                 AllOf(HasSubstr("expert rank 1"), HasSubstr("symmetry")));
}

TEST_F(BadRecording, AMissingRankOfARealRun) {
  fs::remove(file("realistic", 6));
  expect_refusal(run_moesim({"replay", (job() / "realistic").string()}), HasSubstr("rank 6"));
}

TEST_F(BadRecording, RanksThatDisagreeOnACollective) {
  // Rank 6 gathers the counts of 16 experts, its peers those of 8.
  edit("realistic", 6, "input__shape=[8]", "input__shape=[16]", "_gather_along_first_dim_expert_parallel");
  expect_refusal(run_moesim({"replay", (job() / "realistic").string()}),
                 AllOf(HasSubstr("rank06.txt:"), HasSubstr("rank04.txt:"), HasSubstr("all_gather")));
}

TEST_F(BadRecording, ACallThatAPeerNeverMakes) {
  std::string text = read_text(file("realistic", 7));
  const std::size_t last = text.find("exp_dp_allreduce");
  const std::size_t start = text.rfind('\n', last) + 1;
  text.erase(start, text.find('\n', last) + 1 - start);
  folder_.write(fs::relative(file("realistic", 7), folder_.path()).string(), text);
  expect_refusal(run_moesim({"replay", (job() / "realistic").string()}),
                 AllOf(HasSubstr("rank03.txt:"), HasSubstr("rank 7 never makes")));
}

TEST_F(BadRecording, BytesThatAreNoText) {
  folder_.write(fs::relative(file("scaling", 0), folder_.path()).string(), std::string("\xff\x00\x01\n", 4));
  expect_refused("scaling", HasSubstr("rank00.txt:1"));
}

TEST_F(BadRecording, FoldersWithoutRecordings) {
  fs::create_directories(folder_.path() / "empty");
  const std::string empty = (folder_.path() / "empty").string();
  for (const Words& words :
       {Words{"replay", empty}, Words{"trace", "info", empty}, Words{"trace", "check", empty},
        Words{"validate", "--forecast", empty, "--measured", empty}, Words{"validate", "--all", empty}})
    expect_refusal(run_moesim(words), HasSubstr("empty"));
  expect_refusal(run_moesim({"replay", empty + "/nowhere"}), HasSubstr("nowhere"));
}

TEST_F(BadRecording, OtherJobsDoNotMix) {
  const fs::path other = folder_.path() / "pp2_tp1_ep2_expn8_dp8_nl8_hs4096_sl1024";
  fs::rename(job(), other);
  expect_refusal(run_moesim({"validate", "--forecast", (sample_folder() / "scaling").string(), "--measured",
                             (other / "realistic").string()}),
                 HasSubstr("expected pp2 tp1 ep2"));
}

TEST_F(BadRecording, TheNameOfAnotherJobIsNoticed) {
  // The folder's name says how many expert ranks there are.
  const fs::path other = folder_.path() / "pp2_tp1_ep2_expn8_dp8_nl8_hs4096_sl1024";
  fs::rename(job(), other);
  expect_refusal(run_moesim({"replay", (other / "scaling").string()}),
                 HasSubstr("rank02.txt:4: found 3872 rows in call 3 of forward on rank 2, expected 1214"));
}

}  // namespace
}  // namespace moesim::tools
