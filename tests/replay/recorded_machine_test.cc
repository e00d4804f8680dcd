// The machine of a recording: its sources, and the judgement by its experts' times without any.
#include "replay/run/recorded_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/input_error.h"
#include "echo_data.h"
#include "replay/job/synthesize.h"
#include "tests/message_of.h"
#include "traces/cmd_reader.h"

namespace moesim::replay {
namespace {

using moesim::testing::message_of;
using Told = RecordedMachine::Told;
using ::testing::HasSubstr;

traces::Recording made_on(const std::string& cluster, std::vector<std::string> header) {
  SynthesisSpec spec;
  spec.model = models::Architecture::load("mixtral-8x7b");
  spec.cluster = models::Cluster::load(cluster);
  spec.topology.pp = 2;
  spec.topology.expert = 4;
  spec.topology.expert_dp = 2;
  traces::Recording recording = synthesize(spec).scaling;
  for (traces::RankRecording& rank : recording.ranks)
    if (header.empty() || header.front() != "keep") rank.header = header;
  return recording;
}

RecordedMachine judged(const traces::Recording& recording, const std::string& cluster) {
  const RecordedJob job = interpret(recording);
  return recorded_machine(std::span(&job, 1), recording.named, models::Cluster::load(cluster), {});
}

TEST(RecordedMachine, FilesNameTheirGpu) {
  const RecordedMachine synthetic = judged(made_on("dgx-b200x2", {"keep"}), "dgx-h100x2");
  EXPECT_EQ(synthetic.told, Told::by_files);
  EXPECT_EQ(models::Cluster::load(synthetic.cluster).profile.name(), "b200-sxm");
  const RecordedMachine device =
      judged(made_on("dgx-h100x2", {" device: cuda, NVIDIA H100 80GB HBM3"}), "dgx-b200x2");
  EXPECT_EQ(device.told, Told::by_files);
  EXPECT_EQ(models::Cluster::load(device.cluster).profile.name(), "h100-sxm");
  const RecordedMachine host = judged(made_on("dgx-h100x2", {" device: cpu, AMD EPYC"}), "dgx-b200x2");
  EXPECT_EQ(host.cluster, "");
  EXPECT_THAT(machine_note(host, models::Cluster::load("dgx-b200x2"), false, false),
              HasSubstr("a CPU (AMD EPYC)"));
}

// Every GPU against every other: accepted where the times fit, else asked for, never silent.
TEST(RecordedMachine, TimesTellOneGenerationFromAnother) {
  for (const std::string made : {"dgx-a100x2", "dgx-h800x2", "dgx-b200x2"})
    for (const std::string on : {"dgx-a100x2", "dgx-h800x2", "dgx-b200x2"}) {
      const traces::Recording recording = made_on(made, {});
      if (made == on) {
        EXPECT_EQ(judged(recording, on).told, Told::by_times) << made;
        continue;
      }
      const std::string refusal = message_of([&] { judged(recording, on); });
      EXPECT_THAT(refusal, HasSubstr("expected --recorded-on"));
      EXPECT_THAT(refusal, HasSubstr(made.substr(0, made.size() - 1)));
    }
}

TEST(RecordedMachine, PublicRecordingsAreOfHopper) {
  if (!std::filesystem::exists(testing::echo_folder())) GTEST_SKIP() << "no " << testing::echo_folder();
  for (const char* name : testing::kMoeConfigurations)
    for (const char* side : {"scaling", "realistic"}) {
      const traces::Recording recording = traces::read_cmd(testing::echo_folder() / name / side);
      const RecordedMachine here = judged(recording, "echo-h800x2");
      EXPECT_EQ(here.told, Told::by_times);
      EXPECT_LT(here.sigma, 0.25) << name;  // MI300X, MI325X and H20 would be near on their experts
      EXPECT_THROW(judged(recording, "dgx-b200x2"), InputError) << name;
      EXPECT_THROW(judged(recording, "dgx-a100x2"), InputError) << name;
    }
}

}  // namespace
}  // namespace moesim::replay
