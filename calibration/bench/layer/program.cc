#include "layer/program.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>

#include "layer/check.h"
#include "layer/measure.h"
#include "layer/recording.h"

namespace moesim::bench {
namespace {

struct Options {
  LayerShape shape;
  Repeats plan;
  DeviceChoice device;
  std::string out, profile;
  bool help = false;
  std::string problem;  // with the options read
};

bool read_number(const char* text, int& number) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < 0 || value > 1 << 30) return false;
  number = static_cast<int>(value);
  return true;
}

Options read_options(const Program& program, int argc, char** argv) {
  Options options;
  const std::pair<const char*, int*> sizes[] = {
      {"--ep", &options.shape.ep},           {"--tokens", &options.shape.tokens},
      {"--hidden", &options.shape.hidden},   {"--ffn", &options.shape.ffn},
      {"--experts", &options.shape.experts}, {"--topk", &options.shape.topk},
      {"--warmup", &options.plan.warmup},    {"--iterations", &options.plan.iterations}};
  for (int i = 1; i < argc && options.problem.empty(); ++i) {
    const std::string word = argv[i];
    if (word == "--help" || word == "-h") {
      options.help = true;
      return options;
    }
    if (i + 1 >= argc) {
      options.problem = "found " + word + " without a value, expected one (--help lists the options)";
      break;
    }
    const char* value = argv[++i];
    int seed = 0;
    char* end = nullptr;
    const auto* size = std::begin(sizes);
    while (size != std::end(sizes) && word != size->first) ++size;
    bool good = true;
    if (size != std::end(sizes)) {
      good = read_number(value, *size->second);
    } else if (word == "--seed") {
      good = read_number(value, seed) && seed < 128;
      options.shape.seed = static_cast<unsigned>(seed);
    } else if (word == "--skew") {
      options.shape.skew = std::strtod(value, &end);
      good = end != value && *end == '\0';
    } else if (word == "--out") {
      options.out = value;
    } else if (word == "--profile") {
      options.profile = value;
    } else if (word == "--element" && program.has_choice) {
      good = std::strcmp(value, "bf16") == 0 || std::strcmp(value, "fp32") == 0;
      options.device.element = value[0] == 'b' ? Element::kBf16 : Element::kFloat;
    } else if (word == "--clock" && program.has_choice) {
      good = std::strcmp(value, "core") == 0 || std::strcmp(value, "work") == 0;
      options.device.counts_work = value[0] == 'w';
    } else {
      options.problem = "found " + word + ", expected an option of --help";
    }
    const char* expected = word == "--seed"      ? "0 to 127"
                           : word == "--element" ? "bf16 or fp32"
                           : word == "--clock"   ? "core or work"
                                                 : "a number";
    if (!good) options.problem = "found " + word + " " + value + ", expected " + expected;
  }
  if (options.problem.empty()) options.problem = problem_of(options.shape);
  if (options.problem.empty() && options.out.empty()) options.problem = "found no --out, expected a folder";
  if (options.problem.empty() && options.plan.iterations < 1)
    options.problem = "found --iterations 0, expected at least 1";
  return options;
}

void print_help(const Program& program) {
  const LayerShape s;
  const Repeats p;
  std::printf(
      "usage: %s --out FOLDER [options]\n"
      "Trains one mixture-of-experts layer for a step: router, permute, experts (SwiGLU), combine, and all "
      "of it backward.\n"
      "Plays every rank of an expert-parallel group on one device. Results are held against a reference "
      "first; then\n"
      "operations are timed, and a scaling recording for moesim replay is written below FOLDER.\n"
      "  --ep N           ranks that are played [%d]\n  --tokens N       of a rank [%d]\n  --hidden N       "
      "[%d]\n"
      "  --ffn N          of an expert [%d]\n  --experts N      of all ranks [%d]\n  --topk N         "
      "experts of a token [%d]\n"
      "  --skew S         how much low experts are favoured: a bias of -S ln(1 + e) on the logit [%g]\n"
      "  --seed N         0 to 127 [%u]\n  --warmup N       steps before [%d]\n  --iterations N   steps that "
      "count [%d]\n"
      "  --profile NAME   writes constants.json, which this run adds to that profile (moesim calibrate fit "
      "--constants)\n%s",
      program.name, s.ep, s.tokens, s.hidden, s.ffn, s.experts, s.topk, s.skew, s.seed, p.warmup,
      p.iterations,
      program.has_choice ? "  --element E      bf16 or fp32 [bf16]\n"
                           "  --clock C        core: time on a core; work: what a made-up device would take, "
                           "for tests [core]\n"
                         : "");
}

// Checks small layers in every detail: widths of odd numbers of packs, tokens that do not fill a warp, an
// expert without rows.
std::string check_small(LayerDevice& device, std::vector<Finding>& findings) {
  LayerShape alone;
  alone.ep = 1, alone.tokens = 77, alone.hidden = 136, alone.ffn = 40, alone.experts = 12, alone.topk = 3,
  alone.skew = 1;
  LayerShape group = alone;
  group.ep = 4, group.skew = 4;
  for (const LayerShape& shape : {alone, group}) {
    const std::vector<Finding> found = check_all(device, shape);
    const std::string problem = wrong(found, device.element());
    if (!problem.empty()) return "a small layer of " + std::to_string(shape.ep) + " ranks: " + problem;
    findings.insert(findings.end(), found.begin(), found.end());
  }
  return {};
}

void print_times(World& world, const std::vector<RankTimes>& times) {
  std::size_t longest = 0;
  for (std::size_t r = 0; r < times.size(); ++r)
    if (times[r].step > times[longest].step) longest = r;
  const RankLayer& rank = *world.ranks()[longest];
  std::printf("rank %zu of %zu, which takes longest (%d rows), us\n", longest, times.size(),
              rank.plan().rows());
  for (std::size_t o = 0; o < rank.operations().size(); ++o) {
    const Operation& operation = rank.operations()[o];
    const double seconds = times[longest].operations[o];
    if (operation.transfer) continue;
    std::printf("  %-17s %-34s %10.1f", operation.step.c_str(), operation.name.c_str(), seconds * 1e6);
    operation.flops&& seconds > 0 ? std::printf("  %7.1f TFLOP/s\n", operation.flops() / seconds * 1e-12)
                                  : std::printf("\n");
  }
  std::printf("all operations %.1f us, a step without marks %.1f us\n", sum(times[longest].operations) * 1e6,
              times[longest].step * 1e6);
}

int measure_and_write(const Program& program, const Options& options, LayerDevice& device,
                      const std::string& command) {
  const auto fail = [&](const std::string& why) {
    std::fprintf(stderr, "%s: %s\n", program.name, why.c_str());
    return 1;
  };
  RecordingFacts facts{command, options.profile, options.plan, {}};
  std::string problem = check_small(device, facts.checked);
  if (!problem.empty()) return fail(problem);
  World world(device, options.shape);
  world.step();
  std::vector<Finding> found = check_some(world);
  problem = wrong(found, device.element());
  if (!problem.empty()) return fail(problem);
  const std::vector<RankTimes> times = measure(world, options.plan);
  // Checks again after the last timed step: times of wrong results are worthless.
  found = check_some(world);
  problem = wrong(found, device.element());
  if (!problem.empty()) return fail("after the timed steps: " + problem);
  facts.checked.insert(facts.checked.end(), found.begin(), found.end());
  const std::string folder = recording_folder(options.out, options.shape);
  write_recording(folder, world, times, facts);
  print_times(world, times);
  std::printf("%s\n", folder.c_str());
  return 0;
}

}  // namespace

int run_program(const Program& program, int argc, char** argv) {
  const Options options = read_options(program, argc, argv);
  if (options.help) {
    print_help(program);
    return 0;
  }
  std::string problem = options.problem;
  // Two runs in one folder would be read as one recording.
  const std::filesystem::path ranks =
      std::filesystem::path(recording_folder(options.out, options.shape)) / "scaling";
  std::error_code ignored;
  if (problem.empty() && std::filesystem::exists(ranks, ignored))
    problem = ranks.string() + ": found a recording, expected a new folder";
  if (!problem.empty()) {
    std::fprintf(stderr, "%s: %s\n", program.name, problem.c_str());
    return 2;
  }
  std::string command = program.name;
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  try {
    const auto device = program.device(options.device);
    return measure_and_write(program, options, *device, command);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program.name, error.what());
    return 1;
  }
}

}  // namespace moesim::bench
