// moesim-bench-cuda on a GPU that does not exist (virtual_gpu/): what it prints is what was planted, it is
// done in time, and what is wrong with a machine is told in a line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/calibration/virtual_gpu/laws.h"

namespace moesim::virtual_gpu {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kPlanted = 0.03;  // how near a row is to its law

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

struct Row {
  std::string name;
  std::map<std::string, std::string> values;
  std::vector<std::string> parts;
  double seconds = 0;
  std::string error;
  nlohmann::json json;

  double number(const std::string& key) const { return std::stod(values.at(key)); }
  bool has(const std::string& key) const { return values.count(key) > 0; }
};

Row row_of(const nlohmann::json& json) {
  Row row;
  row.json = json;
  row.name = json.at("run_name");
  std::stringstream in(row.name);
  for (std::string part; std::getline(in, part, '/');) {
    const std::size_t colon = part.find(':');
    if (colon == std::string::npos)
      row.parts.push_back(part);
    else
      row.values[part.substr(0, colon)] = part.substr(colon + 1);
  }
  row.error = json.value("error_message", std::string());
  row.seconds = json.value("real_time", 0.0) * 1e-6;
  return row;
}

struct Outcome {
  int code = 0;
  std::string errors;
  std::vector<Row> rows;
  nlohmann::json context;
  double virtual_seconds = 0;
};

class BenchVirtual : public ::testing::Test {
 protected:
  BenchVirtual() {
    folder_ = fs::temp_directory_path() / ("bench-virtual-" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  ~BenchVirtual() override { fs::remove_all(folder_); }

  Outcome run(const std::string& machine, const std::string& arguments,
              const std::string& environment = "") const {
    const fs::path out = folder_ / "out.json", errors = folder_ / "errors.txt", clock = folder_ / "clock.txt";
    fs::remove(out);
    fs::remove(clock);
    const std::string command =
        "VIRTUAL_GPU='" + machine + "' VIRTUAL_GPU_CLOCK=" + clock.string() +
        " LD_LIBRARY_PATH=" + fs::path(MOESIM_BENCH_VIRTUAL).parent_path().string() + " " + environment +
        " " MOESIM_BENCH_VIRTUAL " --benchmark_out=" + out.string() + " --benchmark_out_format=json " +
        arguments + " >/dev/null 2>" + errors.string();
    Outcome done;
    const int status = std::system(command.c_str());
    done.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    done.errors = text_of(errors);
    const auto json = nlohmann::json::parse(text_of(out), nullptr, false);
    if (!json.is_discarded()) {
      done.context = json.at("context");
      for (const auto& row : json.at("benchmarks")) done.rows.push_back(row_of(row));
    }
    std::stringstream clocks(text_of(clock));
    for (double seconds; clocks >> seconds;) done.virtual_seconds = std::max(done.virtual_seconds, seconds);
    return done;
  }

  fs::path folder_;
};

Units units_of(const std::string& dtype, bool fast) {
  return dtype == "bf16"    ? Units::kBf16
         : dtype == "mxfp8" ? Units::kMxFp8
         : fast             ? Units::kFp8Fast
                            : Units::kFp8;
}

// Returns the planted value of a row; 0 where the row has no law.
double truth(const Row& row) {
  const std::string& kind = row.parts.front();
  if (kind == "latency") {
    const std::map<std::string, double> planted{
        {"launch", kLaunch}, {"host_sync", kHostSync}, {"smallest_kernel", kFloor}, {"d2h_copy", kD2hCopy}};
    const auto found = planted.find(row.parts.at(1));
    return found == planted.end() ? 0 : found->second;
  }
  if (kind == "kernel") {
    const std::string of = row.values.at("class");
    const double bytes = row.number("bytes");
    // Memory that a kernel reads several times and that stays in the L2 follows no law of its bytes.
    if (of == "scatter_add" || of == "sort" || of == "histogram" || row.has("padded")) return 0;
    return row.has("cache") ? memory_seconds(0, bytes) : memory_seconds(bytes);
  }
  if (kind == "gemm") {
    const double m = row.number("m"), n = row.number("n"), k = row.number("k");
    const Units units = units_of(row.values.at("dtype"), true);
    const double bytes = (units == Units::kBf16 ? 2 : 1) * (m * k + k * n) + 2 * m * n;
    const double clock = row.json.at("sm_MHz").get<double>() / row.json.at("most_sm_MHz").get<double>();
    return row.has("cache") ? product_seconds(2 * m * n * k, units, 0, bytes, clock)
                            : product_seconds(2 * m * n * k, units, bytes, 0, clock);
  }
  if (kind == "grouped_gemm") {
    const double m = row.number("m"), n = row.number("n"), k = row.number("k"), g = row.number("groups");
    const bool skewed = row.values.at("skew") == "half";
    const double clock = row.json.at("sm_MHz").get<double>() / row.json.at("most_sm_MHz").get<double>();
    const std::string dtype = row.values.at("dtype"), pass = row.values.at("pass");
    if (dtype != "bf16") {
      // Rows are padded to blocks of 32; gradients sum with all bits.
      const double padded = std::ceil(m / 32) * 32,
                   in = pass == "dgrad"   ? n
                        : pass == "wgrad" ? padded
                                          : k,
                   lines = pass == "fwd" ? n : k, columns = pass == "wgrad" ? n : padded;
      const double one = 2 * padded * n * k, moved = in * (lines + columns) + 2 * lines * columns;
      return skewed ? 0 : g * product_seconds(one, units_of(dtype, pass == "fwd"), moved, 0, clock);
    }
    // Half of all rows to one expert, a quarter to the next; the last ones of few rows get none.
    double experts = g;
    if (skewed)
      for (double left = g * m / std::pow(2, g); left < 1; left *= 2) --experts;
    const double flops = 2 * g * m * n * k, bytes = 2 * (g * m * k + experts * k * n + g * m * n);
    if (row.values.at("backend") == "grouped" || row.values.at("backend") == "cutlass")
      return product_seconds(flops, row.values.at("backend") == "grouped" ? Units::kBf16 : Units::kCutlass,
                             bytes, 0, clock);
    if (skewed) return 0;
    return row.values.at("backend") == "loop"
               ? g * product_seconds(flops / g, Units::kBf16, bytes / g, 0, clock)
               : product_seconds(flops, Units::kBf16, bytes, 0, clock);
  }
  if (!row.has("ranks")) return 0;
  const int nodes = static_cast<int>(row.number("nodes")), n = static_cast<int>(row.number("ranks"));
  const double bytes = row.number("bytes"), per_node = static_cast<double>(n) / nodes;
  const std::string op = kind == "overlap" ? row.parts.at(1) : kind;
  if (op == "all_gather") return collective_seconds(Collective::kAllGather, nodes, n, bytes);
  if (op == "reduce_scatter") return collective_seconds(Collective::kReduceScatter, nodes, n, bytes);
  if (op == "all_reduce") return collective_seconds(Collective::kAllReduce, nodes, n, bytes);
  if (op == "all_to_all")
    return collective_seconds(Collective::kExchange, nodes, n, bytes / n * (per_node - 1),
                              bytes / n * (n - per_node));
  if (op == "send_recv")
    return collective_seconds(Collective::kExchange, nodes, n, per_node > 1 ? bytes : 0,
                              nodes > 1 ? bytes : 0);
  if (op == "uneven_all_to_all")
    return collective_seconds(Collective::kExchange, nodes, n, bytes / 2 * (per_node - 1),
                              bytes / 2 * (n - per_node));
  return 0;
}

// Every row is near its law; the number of those that have one.
int near_their_laws(const Outcome& done) {
  int checked = 0;
  for (const Row& row : done.rows) {
    if (!row.error.empty()) {
      EXPECT_THAT(row.error, ::testing::StartsWith("skipped:")) << row.name;
      continue;
    }
    const double planted = truth(row);
    if (planted == 0) continue;
    ++checked;
    EXPECT_NEAR(row.seconds / planted, 1, kPlanted) << row.name << " took " << row.seconds * 1e6 << " us";
  }
  return checked;
}

const Row* find(const Outcome& done, const std::string& part) {
  for (const Row& row : done.rows)
    if (row.name.find(part) != std::string::npos) return &row;
  return nullptr;
}

TEST_F(BenchVirtual, OneGpuPrintsWhatWasPlanted) {
  const Outcome done = run("gpus=1", "");
  ASSERT_EQ(done.code, 0) << done.errors;
  EXPECT_GT(near_their_laws(done), 300);
  EXPECT_EQ(done.context.at("gpu"), "NVIDIA H100 80GB HBM3");
  // Beside copies a product takes so much longer, and copies beside products.
  const auto ratio = [&](const char* beside, const char* alone) {
    return find(done, beside)->seconds / find(done, alone)->seconds;
  };
  EXPECT_NEAR(ratio("product_beside_copies", "product_alone") / kComputeUnderCopies, 1, kPlanted);
  EXPECT_NEAR(ratio("copies_beside_products", "copies_alone") / kCopiesUnderCompute, 1, kPlanted);
  // A warm input is read faster, and says that it is warm.
  EXPECT_LT(find(done, "gemm/m:1/n:1536/k:2048/dtype:bf16/library:cublas/clocks:burst/cache:warm")->seconds,
            0.85 * find(done, "gemm/m:1/n:1536/k:2048/dtype:bf16/library:cublas/clocks:burst/iter")->seconds);
  // Rows carry their clocks: a hot GPU's are lower, and products that do not say so are no hot GPU's.
  int hot = 0;
  for (const Row& row : done.rows)
    if (row.error.empty() && row.name.find("gemm") != std::string::npos &&
        row.name.find("clocks:sustained") == std::string::npos)
      EXPECT_GT(row.json.at("sm_MHz").get<double>() / kMostMhz, 0.975) << row.name;
    else if (row.name.find("clocks:sustained") != std::string::npos && row.error.empty()) {
      ++hot;
      EXPECT_NEAR(row.json.at("sm_MHz").get<double>() / kMostMhz, kHotClock, 0.02) << row.name;
      EXPECT_GT(row.json.at("power_W").get<double>(), 500) << row.name;
    }
  EXPECT_EQ(hot, 36);
  // CUTLASS's products are rows of their own.
  EXPECT_GT(
      find(done, "m:2048/n:28672/k:4096/dtype:bf16/backend:cutlass/pass:fwd/skew:none")->seconds,
      1.05 * find(done, "m:2048/n:28672/k:4096/dtype:bf16/backend:grouped/pass:fwd/skew:none")->seconds);
  EXPECT_GE(find(done, "gemm/m:16/")->json.at("repeats").get<double>(), 5);
  EXPECT_LT(find(done, "gemm/m:16/")->json.at("spread").get<double>(), 0.01);
}

// Forward, dgrad and wgrad in fp8 and in MXFP8, where the card has it: sums of gradients with all bits.
TEST_F(BenchVirtual, Fp8HasEveryPass) {
  const std::string some =
      "--benchmark_filter='^(gemm/m:4096/n:4096/k:4096/.*fp8.*burst|grouped_gemm.*m:2048/n:4096/k:7168/.*fp8)'";
  const Outcome hopper = run("gpus=1", some), blackwell = run("gpus=1,name=NVIDIA B200", some);
  EXPECT_EQ(near_their_laws(hopper), 4) << hopper.errors;
  EXPECT_EQ(find(hopper, "mxfp8"), nullptr);
  EXPECT_EQ(near_their_laws(blackwell), 8) << blackwell.errors;
  for (const char* type : {"fp8", "mxfp8"})
    for (const char* pass : {"fwd", "dgrad", "wgrad"})
      EXPECT_NE(find(blackwell, std::string("dtype:") + type + "/backend:loop/pass:" + pass + "/skew:half"),
                nullptr)
          << type << " " << pass;
  // Hopper's gradients take longer than its forward products, which sum with fewer bits.
  EXPECT_GT(find(hopper, "pass:dgrad/skew:none")->seconds,
            1.15 * find(hopper, "pass:fwd/skew:none")->seconds);
  const Outcome computed =
      run("gpus=1,effects=1,name=NVIDIA B200",
          "--benchmark_min_time=0.0001 --benchmark_filter='^gemm/m:1/n:1536/k:2048/dtype:mxfp8.*burst'");
  ASSERT_EQ(computed.rows.size(), 1u) << computed.errors;
  EXPECT_EQ(computed.rows.front().error, "");
}

TEST_F(BenchVirtual, EightGpusAreDoneInTwelveMinutes) {
  const Outcome done = run("gpus=8", "");
  ASSERT_EQ(done.code, 0) << done.errors;
  EXPECT_GT(near_their_laws(done), 600);
  EXPECT_LT(done.virtual_seconds, 12 * 60);
  RecordProperty("virtual_seconds", std::to_string(done.virtual_seconds));
  EXPECT_NE(find(done, "all_to_all/nodes:1/ranks:8/bytes:1073741824"), nullptr);
}

TEST_F(BenchVirtual, ShortIsDoneInTwo) {
  const Outcome done = run("gpus=8", "--short");
  ASSERT_EQ(done.code, 0) << done.errors;
  EXPECT_GT(near_their_laws(done), 120);
  EXPECT_LT(done.virtual_seconds, 2 * 60);
  EXPECT_NE(find(done, "all_to_all/nodes:1/ranks:8/bytes:67108864"), nullptr);
  EXPECT_NE(find(done, "pass:wgrad"), nullptr);
}

TEST_F(BenchVirtual, TheMinimumTimeIsWhatACaseTakes) {
  const std::string filter = " --benchmark_filter='^gemm/m:16384/n:4096/k:4096.*burst'";
  const Outcome brief = run("gpus=1", "--benchmark_min_time=0.02" + filter),
                longer = run("gpus=1", "--benchmark_min_time=2" + filter);
  EXPECT_GT(longer.virtual_seconds, brief.virtual_seconds + 3);
  EXPECT_LT(brief.virtual_seconds, 3);
}

// Two nodes of four, each process started by a launcher.
TEST_F(BenchVirtual, NodesAreToldApart) {
  // gethostname is the same here: the virtual library answers with VIRTUAL_NODE.
  const std::string port = std::to_string(20000 + getpid() % 20000);
  std::string others;
  for (int rank = 1; rank < 8; ++rank)
    others += "VIRTUAL_GPU=gpus=4 VIRTUAL_NODE=" + std::to_string(rank / 4) +
              " WORLD_SIZE=8 RANK=" + std::to_string(rank) + " LOCAL_RANK=" + std::to_string(rank % 4) +
              " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port +
              " LD_LIBRARY_PATH=" + fs::path(MOESIM_BENCH_VIRTUAL).parent_path().string() +
              " " MOESIM_BENCH_VIRTUAL " & ";
  const Outcome done = run(
      "gpus=4", "--benchmark_filter='^(all_|reduce|send|overlap/uneven).*bytes:(4096|1048576|268435456)/'",
      "VIRTUAL_NODE=0 WORLD_SIZE=8 RANK=0 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 "
      "MASTER_PORT=" +
          port + " sh -c '" + others + "exec \"$0\" \"$@\"'");
  ASSERT_EQ(done.code, 0) << done.errors;
  EXPECT_EQ(near_their_laws(done), 36);
  EXPECT_NE(find(done, "all_gather/nodes:2/ranks:8/bytes:1048576"), nullptr);
  EXPECT_NE(find(done, "all_gather/nodes:2/ranks:2/bytes:1048576"), nullptr);
}

// Everything really computes: small cases.
constexpr const char* kSmall =
    "--benchmark_min_time=0.0001 "
    "--benchmark_filter='^(all_|reduce_scatter|send_recv|overlap/uneven).*bytes:(1024|65536)/|"
    "^gemm/m:1/n:1536/k:2048.*burst/iter|^kernel/class:(gather_rows/bytes:8390656|scatter_rows/bytes:8390656|"
    "scatter_add_deterministic/bytes:6293504|scatter_add/bytes:14682112|sort/bytes:262144|histogram/"
    "bytes:65536|copy/bytes:65536)'";

TEST_F(BenchVirtual, RightResultsAreRight) {
  const Outcome done = run("gpus=4,effects=1", kSmall);
  ASSERT_EQ(done.code, 0) << done.errors;
  EXPECT_GE(done.rows.size(), 30u);
  for (const Row& row : done.rows) EXPECT_EQ(row.error, "") << row.name;
}

TEST_F(BenchVirtual, OneWrongElementIsFound) {
  for (const char* what : {"gemm", "collective", "kernel"}) {
    const Outcome done = run("gpus=2,effects=1,wrong=" + std::string(what), kSmall);
    int wrong = 0;
    for (const Row& row : done.rows) wrong += row.error == "wrong result";
    EXPECT_EQ(wrong, 1) << what;
  }
}

TEST_F(BenchVirtual, FaultsOfAMachineAreALineEach) {
  const std::string collectives = "--benchmark_filter='^all_gather.*bytes:(1024|2048)/'";
  const auto line = [&](const std::string& machine, const std::string& arguments) {
    const Outcome done = run(machine, arguments);
    return std::to_string(done.code) + ": " + done.errors;
  };
  EXPECT_THAT(line("gpus=4,dead=2", collectives), HasSubstr("process 2 of 4 ended with exit code 9"));
  EXPECT_THAT(line("gpus=4,hang=2,patience=1", collectives), HasSubstr("another process is gone or hangs"));
  EXPECT_THAT(line("gpus=4,nccl=1", collectives), HasSubstr("ncclAllGather: unhandled system error"));
  EXPECT_THAT(
      line("gpus=2,peers=0", collectives),
      HasSubstr("GPUs 0 and 1 have no access to each other's memory: collectives go through the host"));
  EXPECT_THAT(line("gpus=1,foreign=4242", "--benchmark_filter='latency/launch'"),
              HasSubstr("another process computes on it (pid 4242), times will be wrong"));
  EXPECT_THAT(line("gpus=0", ""), HasSubstr("1: moesim-bench-cuda: found no GPU, expected one"));
  EXPECT_THAT(line("gpus=2", "--gpus 3"),
              HasSubstr("2: moesim-bench-cuda: found --gpus 3, expected at most the 2"));
  EXPECT_THAT(line("gpus=1", "--sleep"), HasSubstr("2: moesim-bench-cuda: found --sleep"));
  const Outcome little =
      run("gpus=1,memory=2", "--benchmark_filter='^(gemm/m:16384/n:14336|latency/launch)'");
  EXPECT_EQ(little.code, 0) << little.errors;
  EXPECT_THAT(find(little, "gemm/m:16384/n:14336")->error, HasSubstr("skipped: needs 2."));
  EXPECT_EQ(find(little, "latency/launch")->error, "");
  const Outcome limited = run("gpus=1", "--time-limit 5");
  EXPECT_EQ(limited.code, 0);
  EXPECT_EQ(limited.rows.back().error, "skipped: the time limit is over");
  EXPECT_LT(limited.virtual_seconds, 7);
  const Outcome throttled =
      run("gpus=1,throttled=0.6", "--benchmark_filter='^gemm/m:8192/n:4096/k:4096.*burst'");
  EXPECT_NEAR(throttled.rows.front().json.at("sm_MHz").get<double>() /
                  throttled.rows.front().json.at("most_sm_MHz").get<double>(),
              0.6, 0.05);
}

TEST_F(BenchVirtual, CardsHaveTheirDriversNameAndSensorsTheirGpu) {
  const std::string few = "--benchmark_filter='latency/launch'";
  EXPECT_EQ(run("name=NVIDIA H100 NVL", few).context.at("gpu"), "NVIDIA H100 NVL");
  // The virtual GPU's number is in its temperature.
  for (const char* visible : {"3", "GPU-00000003"}) {
    const Outcome third = run("gpus=8", few, "CUDA_VISIBLE_DEVICES=" + std::string(visible));
    EXPECT_EQ(third.rows.front().json.at("temperature_C").get<double>(), 43) << visible;
  }
}

}  // namespace
}  // namespace moesim::virtual_gpu
