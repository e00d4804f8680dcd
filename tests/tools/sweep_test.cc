// `moesim sweep` as a user runs it: what it writes, that interruption loses and repeats nothing, that threads
// and MPI give the same bytes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/csv.h"
#include "base/sha256.h"
#include "process.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_text;
using testing::run_moesim;
using ::testing::StartsWith;
using testing::TempFolder;
using Words = std::vector<std::string>;

constexpr const char* kSweptScenario = R"({"model": "mixtral-8x7b", "parallel": {"ep": 8, "seq": 1024},
 "dispatcher": "allgather,alltoall", "routing": "zipf:1.2", "cluster": "dgx-h100x4"})";

std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

class Sweep : public ::testing::Test {
 protected:
  Sweep() { folder_.write("s.json", kSweptScenario); }
  Words words(const std::string& out, const Words& more) const {
    Words all{"sweep", "s.json"};
    all.insert(all.end(), more.begin(), more.end());
    const Words rows = out.empty() ? Words{"--format", "csv"} : Words{"--out", out};
    all.insert(all.end(), rows.begin(), rows.end());
    return all;
  }
  Outcome run(const std::string& out, const Words& more) const {
    return run_moesim(words(out, more), folder_.path());
  }
  std::string text(const std::string& name) const { return read_text(folder_.path() / name); }
  bool exists(const std::string& name) const { return fs::exists(folder_.path() / name); }

  // Starts a sweep and kills it when some rows are written. False where it was done before.
  bool kill_in_the_middle(const std::string& out, const Words& more) const {
    Words all = words(out, more);
    all.insert(all.begin(), MOESIM_BINARY);
    const pid_t child = fork();
    if (child == 0) {
      std::vector<char*> argv;
      for (std::string& word : all) argv.push_back(word.data());
      argv.push_back(nullptr);
      if (chdir(folder_.path().c_str()) != 0) _exit(126);
      execv(argv[0], argv.data());
      _exit(127);
    }
    const fs::path partial = folder_.path() / (out + ".partial");
    std::error_code none;
    const auto size = [&] {
      const auto bytes = fs::file_size(partial, none);
      return none ? 0 : bytes;
    };
    int status = 0;
    while (size() < 20'000 && waitpid(child, &status, WNOHANG) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return fs::exists(partial);
  }

  TempFolder folder_;
};

const Words kGrid{"--grid", "topk=1..4", "--grid", "routing.gini=0..0.6:0.1"};
const Words kLong{"--grid", "topk=1..8", "--grid", "routing.gini=0..0.6:0.02", "--grid", "seed=1..20"};

TEST_F(Sweep, KilledAndResumedGivesTheSameBytes) {
  for (const std::string name : {"r.csv", "r.jsonl"}) {
    ASSERT_EQ(run("whole_" + name, kLong).exit_code, 0);
    ASSERT_TRUE(kill_in_the_middle(name, kLong)) << "the sweep was too short to be killed";
    EXPECT_FALSE(exists(name));
    const auto before = fs::file_size(folder_.path() / (name + ".partial"));
    EXPECT_GT(before, 0u);
    // These rows cannot be lost by accident.
    const Outcome refused = run(name, kLong);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr("--resume"));
    EXPECT_EQ(fs::file_size(folder_.path() / (name + ".partial")), before);
    // Nor mixes them with those of another sweep.
    Words other = kLong;
    other.insert(other.end(), {"--grid", "micro_batch=1,2", "--resume"});
    EXPECT_THAT(run(name, other).err, HasSubstr("another sweep"));
    // A line that was cut, as a full disk or a lost machine leaves it.
    fs::resize_file(folder_.path() / (name + ".partial"), before - 17);
    Words resumed = kLong;
    resumed.emplace_back("--resume");
    const Outcome done = run(name, resumed);
    ASSERT_EQ(done.exit_code, 0) << done.err;
    EXPECT_TRUE(text(name) == text("whole_" + name)) << name;
    EXPECT_FALSE(exists(name + ".partial"));
  }
}

TEST_F(Sweep, AFinishedTableSaysWhatMadeItAndIsNotMadeTwice) {
  ASSERT_EQ(run("r.csv", kGrid).exit_code, 0);
  const std::string rows = text("r.csv");
  const auto record = nlohmann::json::parse(text("r.csv.json"));
  EXPECT_EQ(record["schema"], "moesim.sweep/1");
  EXPECT_EQ(record["rows"]["file"], "r.csv");
  EXPECT_EQ(record["rows"]["sha256"], sha256_hex(rows));
  EXPECT_EQ(record["rows"]["scenarios"], 28);
  EXPECT_EQ(record["inputs"]["files"]["s.json"]["sha256"], sha256_hex(kSweptScenario));
  // The time of the file would change.
  const fs::file_time_type made = fs::last_write_time(folder_.path() / "r.csv");
  Words again = kGrid;
  again.emplace_back("--resume");
  const Outcome done = run("r.csv", again);
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_THAT(done.err, HasSubstr("r.csv is complete"));
  EXPECT_EQ(fs::last_write_time(folder_.path() / "r.csv"), made);
  // Another sweep is made.
  EXPECT_EQ(run("r.csv", {"--grid", "topk=1..2", "--resume"}).exit_code, 0);
  EXPECT_EQ(lines(text("r.csv")), 5u);
}

TEST_F(Sweep, AClosedPipeEndsIt) {
  const std::string command =
      "cd '" + folder_.path().string() +
      "' && bash -c 'set -o pipefail; " MOESIM_BINARY
      " sweep s.json --format csv --grid topk=1..8 --grid seed=1..2000 2>err | head -3 >out'";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGPIPE);
  EXPECT_EQ(lines(text("out")), 3u);
  EXPECT_EQ(text("err"), "");
}

TEST_F(Sweep, ResumingAtEveryByteGivesTheSameBytes) {
  const Words small{"--grid", "topk=1..3", "--grid", "parallel.ep=4,8,7"};
  ASSERT_EQ(run("whole.csv", small).exit_code, 0);
  const std::string whole = text("whole.csv");
  ASSERT_TRUE(kill_in_the_middle("r.csv", kLong));  // for a definition to start from
  Words resumed = small;
  resumed.emplace_back("--overwrite");
  // The definition of this sweep, kept by ending it in the middle of a strict one.
  Words strict = small;
  strict.insert(strict.end(), {"--strict", "--overwrite"});
  EXPECT_EQ(run("r.csv", strict).exit_code, 2);
  ASSERT_TRUE(exists("r.csv.partial.json"));
  const std::string definition = text("r.csv.partial.json");
  for (std::size_t cut = 0; cut < whole.size(); cut += 37) {
    folder_.write("r.csv.partial", whole.substr(0, cut));
    folder_.write("r.csv.partial.json", definition);
    Words more = small;
    more.emplace_back("--resume");
    ASSERT_EQ(run("r.csv", more).exit_code, 0) << cut;
    ASSERT_TRUE(text("r.csv") == whole) << "cut at " << cut;
  }
}

// A row that fits is in the front, or one of the front is at least as good in both columns.
TEST_F(Sweep, TheFrontIsWhatNothingBeats) {
  const Words grid{"--grid",   "topk=1..4",
                   "--grid",   "parallel.seq=512,1024,2048",
                   "--pareto", "time_us.value,-tokens_per_s_per_gpu",
                   "--format", "json"};
  const Outcome done = run("r.jsonl", grid);
  EXPECT_THAT(done.err, HasSubstr("found no CSV file"));
  const Outcome made = run("r.csv", grid);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto front = nlohmann::json::parse(made.out)["pareto"];
  EXPECT_GT(front.size(), 1u);
  const auto beaten = [&](double time, double speed) {
    return std::any_of(front.begin(), front.end(), [&](const auto& one) {
      return one["time_us.value"] <= time && one["tokens_per_s_per_gpu"] >= speed;
    });
  };
  std::size_t rows = 0, within = 0;
  const std::vector<std::string> header = csv_cells(text("r.csv").substr(0, text("r.csv").find('\n')), {});
  const auto at = [&](const char* name) {
    return static_cast<std::size_t>(std::find(header.begin(), header.end(), name) - header.begin());
  };
  std::istringstream file(text("r.csv"));
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = csv_cells(line, {});
    if (cells[at("fits")] != "true") continue;
    ++rows;
    const double time = std::stod(cells[at("time_us.value")]),
                 speed = std::stod(cells[at("tokens_per_s_per_gpu")]);
    EXPECT_TRUE(beaten(time, speed)) << line;
    for (const auto& one : front) within += one["time_us.value"] == time ? 1 : 0;
  }
  EXPECT_GT(rows, front.size());
  EXPECT_EQ(within, front.size());
}

// mpirun of Debian's OpenMPI; the shared libraries of the test machine may lack it.
class SweepMpi : public Sweep {
 protected:
  void SetUp() override {
    if (!fs::exists(fs::path(MOESIM_BINARY).parent_path() / "libmoesim_mpi.so"))
      GTEST_SKIP() << "built without MPI";
    if (std::system("mpirun --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no mpirun";
    // OpenMPI 4 leaks its own tables and takes its own locks in two orders.
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
    setenv("TSAN_OPTIONS", "detect_deadlocks=0", 0);
  }
  int mpirun(const std::string& arguments, int ranks) const {
    return mpirun_sweep("s.json " + arguments, ranks);
  }
  int mpirun_sweep(const std::string& words, int ranks) const {
    return mpirun_program(MOESIM_BINARY " sweep " + words, ranks);
  }
  int mpirun_program(const std::string& words, int ranks) const {
    const std::string command = "cd '" + folder_.path().string() +
                                "' && OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 "
                                "mpirun --oversubscribe -n " +
                                std::to_string(ranks) + " " + words + " 2>mpi.err >mpi.out";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
};

TEST_F(SweepMpi, GivesTheBytesOfThreads) {
  ASSERT_EQ(run("threads.csv", kGrid).exit_code, 0);
  for (const int ranks : {2, 3, 16}) {
    ASSERT_EQ(mpirun("--grid topk=1..4 --grid routing.gini=0..0.6:0.1 --out r.csv", ranks), 0)
        << text("mpi.err");
    EXPECT_TRUE(text("r.csv") == text("threads.csv")) << ranks;
  }
}

TEST_F(SweepMpi, RecordingsAndPlansGiveTheBytesOfThreads) {
  const std::string replays = "replay '" + testing::sample_folder().string() +
                              "/scaling' --grid cluster=echo-h800x2,dgx-h100x2 --grid microbatches=1..4";
  const std::string plans =
      "plan --model mixtral-8x7b --tokens 1T --cluster h100 --grid gpus=8,64 --grid seq=2048,4096 --most 20";
  for (const std::string& words : {replays, plans}) {
    const std::string alone = "cd '" + folder_.path().string() + "' && " MOESIM_BINARY " sweep " + words +
                              " --out threads.csv --overwrite >/dev/null 2>&1";
    ASSERT_EQ(std::system(alone.c_str()), 0);
    ASSERT_EQ(mpirun_sweep(words + " --out r.csv --overwrite", 3), 0) << text("mpi.err");
    EXPECT_TRUE(text("r.csv") == text("threads.csv")) << words;
  }
}

// OpenMPI knows nothing of this launcher: the process finds itself alone.
TEST_F(SweepMpi, AProcessThatFindsNobodySaysHowToLaunch) {
  const std::string command = "cd '" + folder_.path().string() +
                              "' && PMI_SIZE=2 PMI_RANK=0 " MOESIM_BINARY
                              " sweep s.json --grid topk=1..4 --out r.csv 2>mpi.err >mpi.out";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_THAT(text("mpi.err"), AllOf(HasSubstr("found one process in MPI where the launcher started 2"),
                                     HasSubstr("srun --mpi=pmix")));
  EXPECT_FALSE(exists("r.csv"));
}

// srun without an MPI plugin: every task would make the whole table.
TEST_F(Sweep, TasksOfSlurmThatFindNobodySayHowToLaunch) {
  const auto as_task = [&](const std::string& arguments) {
    const std::string command = "cd '" + folder_.path().string() +
                                "' && SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=3 " MOESIM_BINARY
                                " sweep s.json --grid topk=1..4 --out r.csv " +
                                arguments + " 2>err >out";
    const int status = std::system(command.c_str());
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(as_task(""), 2);
  EXPECT_THAT(text("err"), AllOf(StartsWith("moesim: sweep: found task 3 of 4 of srun"),
                                 HasSubstr("srun --mpi=pmix"), HasSubstr("--shard")));
  EXPECT_FALSE(exists("r.csv"));
  EXPECT_EQ(as_task("--shard 3/4"), 0) << text("err");
  EXPECT_TRUE(exists("r.csv"));
}

// Kills rank 2 of three as soon as there are rows: mpirun ends the others, and nothing is lost.
TEST_F(SweepMpi, AJobThatLostARankIsResumed) {
  const std::string words = "--grid topk=1..8 --grid routing.gini=0..0.6:0.01 --grid seed=1..40 --out r.csv";
  ASSERT_EQ(run("threads.csv",
                {"--grid", "topk=1..8", "--grid", "routing.gini=0..0.6:0.01", "--grid", "seed=1..40"})
                .exit_code,
            0);
  std::thread killer([&] {
    const fs::path partial = folder_.path() / "r.csv.partial";
    std::error_code none;
    for (int i = 0; i < 60'000 && (!fs::exists(partial, none) || fs::file_size(partial, none) < 20'000); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (const auto& entry : fs::directory_iterator("/proc", none)) {
      const std::string environment = read_text(entry.path() / "environ");
      if (environment.find("OMPI_COMM_WORLD_RANK=2") != std::string::npos &&
          environment.find("PWD=" + folder_.path().string()) != std::string::npos)
        kill(std::stoi(entry.path().filename().string()), SIGKILL);
    }
  });
  const int code = mpirun(words, 3);
  killer.join();
  ASSERT_NE(code, 0);
  EXPECT_THAT(text("mpi.err"), HasSubstr("the same command with --resume goes on"));
  EXPECT_FALSE(exists("r.csv"));
  ASSERT_TRUE(exists("r.csv.partial"));
  ASSERT_EQ(mpirun(words + " --resume", 2), 0) << text("mpi.err");
  EXPECT_TRUE(text("r.csv") == text("threads.csv"));
  // Once more: nothing to do, on any number of ranks.
  ASSERT_EQ(mpirun(words + " --resume", 2), 0) << text("mpi.err");
  EXPECT_THAT(text("mpi.err"), HasSubstr("r.csv is complete"));
}

// Each rank reads a scenario of its own, and rank 1 then one that is refused.
TEST_F(SweepMpi, ARankWithOtherFilesOrAnErrorEndsTheSweep) {
  const auto with_rank_1 = [&](const std::string& scenario) {
    folder_.write("s0.json", kSweptScenario);
    folder_.write("s1.json", scenario);
    return mpirun_program(R"(bash -c ")" MOESIM_BINARY
                          R"( sweep s\$OMPI_COMM_WORLD_RANK.json --grid topk=1..8 --out r.csv --overwrite")",
                          2);
  };
  EXPECT_EQ(with_rank_1(std::string(kSweptScenario) + "\n"), 2);
  EXPECT_THAT(text("mpi.err"), HasSubstr("rank 1 found other input files than rank 0"));
  EXPECT_EQ(with_rank_1("{"), 2);
  // mpirun may end rank 0 before it hears of rank 1.
  EXPECT_THAT(text("mpi.err"), AllOf(HasSubstr("s1.json"), AnyOf(HasSubstr("rank 1 ended with an error"),
                                                                 HasSubstr("the sweep was ended"))));
  EXPECT_FALSE(exists("r.csv"));
}

TEST_F(SweepMpi, BadInputEndsAllRanks) {
  EXPECT_NE(mpirun("--grid paralel.ep=8 --out r.csv", 2), 0);
  EXPECT_THAT(text("mpi.err"), HasSubstr("did you mean 'parallel.ep'?"));
  EXPECT_FALSE(exists("r.csv"));
}

}  // namespace
}  // namespace moesim::tools
