// `moesim trace synthesize`: recordings made by the models, to try things out without a GPU.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "models/workload/model_summary.h"
#include "replay/job/synthesize.h"
#include "tools/moesim/questions/recordings.h"
#include "tools/moesim/show/inputs.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/verbs/trace.h"
#include "traces/cmd_writer.h"

namespace moesim::tools {

namespace {

struct SynthesizeOptions {
  std::string out;
  std::string model = "mixtral-8x7b";
  std::string cluster = "echo-h800x2";
  std::string routing = "zipf:1.2";
  int tp = 1, pp = 2, ep = 4, dp = 8, layers = 8, microbatches = 8;
  std::int64_t seq = 1024;
  double noise = 0.02;
};

int run(const SynthesizeOptions& options, const CommonOptions& common) {
  replay::SynthesisSpec spec;
  spec.model = mixture_named(options.model);
  spec.cluster = models::Cluster::load(options.cluster);
  if (spec.cluster.node_count == models::Cluster::NodeCount::kOpen)
    spec.cluster = spec.cluster.holding(std::int64_t{options.tp} * options.pp * options.dp);
  spec.routing = models::RoutingSpec::parse(options.routing);
  if (options.dp % options.ep != 0)
    throw InputError(
        fmt::format("found --ep {} with --dp {}, expected an ep that divides dp", options.ep, options.dp));
  spec.topology.tp = options.tp;
  spec.topology.pp = options.pp;
  spec.topology.expert = options.ep;
  spec.topology.expert_dp = options.dp / options.ep;
  spec.topology.check_sizes("moesim trace synthesize");
  spec.layers = options.layers;
  spec.seq = options.seq;
  spec.microbatches = options.microbatches;
  spec.seed = common.seed;
  spec.noise = options.noise;
  if (spec.routing.kind == models::RoutingSpec::Kind::kFile)
    throw InputError("found --routing " + options.routing + ", expected a named distribution");
  const auto made = replay::synthesize(spec);

  namespace fs = std::filesystem;
  // The layout of public recordings, whose names say what the lines do not: sizes of the job.
  const fs::path folder =
      fs::path(options.out) / fmt::format("pp{}_tp{}_ep{}_expn{}_dp{}_nl{}_hs{}_sl{}", options.pp, options.tp,
                                          options.ep, spec.model.experts, options.dp, options.layers,
                                          spec.model.hidden, options.seq);
  traces::write_cmd_job(made.scaling, made.realistic, folder);
  if (common.format == Format::kJson) {
    auto result = envelope("trace-synthesize", describe_inputs(common), {});
    result["model"] = models::model_summary(spec.model);
    result["folder"] = folder.string();
    result["topology"] = spec.topology.str();
    result["synthetic"] = true;
    print_json(result);
  } else if (!common.quiet) {
    print(fmt::format("synthetic recordings of {} ({}), not measured on any machine:\n  {}\n  {}\n",
                      options.model, spec.topology.str(), (folder / "scaling").string(),
                      (folder / "realistic").string()));
  }
  return 0;
}

}  // namespace

TraceCommand declare_trace_synthesize(CLI::App& trace) {
  auto options = std::make_shared<SynthesizeOptions>();
  CLI::App* command =
      trace.add_subcommand("synthesize", "make recordings from the models, to try things out");
  command->footer(
      "Examples:\n"
      "  moesim trace synthesize --out synthetic --routing zipf:1.2 --seed 7\n"
      "  moesim trace synthesize --out synthetic --model qwen3-30b-a3b --pp 4 --ep 2 --dp 4 --seq 2048");
  command
      ->add_option("--out", options->out,
                   "gets a folder named by the job's sizes, with scaling/ and realistic/")
      ->required()
      ->type_name("DIR");
  command->add_option("--model", options->model)->capture_default_str();
  command->add_option("--cluster", options->cluster)->capture_default_str();
  command->add_option("--routing", options->routing, "a named distribution")->capture_default_str();
  const auto size = CLI::Range(1, 1 << 20).description("");
  command->add_option("--tp", options->tp)->check(size)->capture_default_str();
  command->add_option("--pp", options->pp)->check(size)->capture_default_str();
  command->add_option("--ep", options->ep)->check(size)->capture_default_str();
  command->add_option("--dp", options->dp, "contains ep")->check(size)->capture_default_str();
  command->add_option("--layers", options->layers)->check(size)->capture_default_str();
  command->add_option("--microbatches", options->microbatches)->check(size)->capture_default_str();
  command->add_option("--seq", options->seq)->check(size)->capture_default_str();
  command->add_option("--noise", options->noise, "standard deviation of computing times, as a share")
      ->check(CLI::Range(0.0, 1.0).description(""))
      ->capture_default_str();
  return {command, [options](const CommonOptions& common) { return run(*options, common); }};
}

}  // namespace moesim::tools
