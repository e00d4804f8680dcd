#include "tools/moesim/verbs/validate_chunk.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "calibration/rows/csv_table.h"
#include "models/hardware/cluster.h"
#include "models/step/step_forecast.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

// Layers of the published chunk, forward and backward (deepseek-ai/profile-data, train.json).
constexpr int kLayers = 4;

// Classes that are compared, and those that are only listed: a kernel's wait for its peers is not its own
// cost, and a framework's other work is not modelled one by one.
struct KernelClass {
  std::string_view name;
  std::vector<std::string_view> kinds;
  bool compared;
};

const std::vector<KernelClass>& classes() {
  static const std::vector<KernelClass> kClasses{
      {"products", {"gemm_fp8", "gemm_bf16", "grouped_gemm_m", "grouped_gemm_wgrad"}, true},
      {"attention", {"flash_fwd", "flash_bwd", "flash_bwd_pre", "flash_bwd_post"}, true},
      {"dispatch", {"ep_dispatch"}, true},
      {"combine", {"ep_combine"}, true},
      {"conversions", {"cast_fp8", "cast_back"}, false},
      {"other kernels",
       {"norm", "rope", "swiglu", "permute", "unpermute", "topk", "route_map", "route_count", "other"},
       false},
      {"waiting for peers", {"ep_cached_notify", "ep_notify_dispatch", "ep_layout"}, false}};
  return kClasses;
}

// The chunk from its file's header and its kernels: EP 64, TP 1, one sequence of 4,096 tokens, fp8 with block
// scales, fp8 dispatch on 20 SMs; norms, MLA's up projections and the experts' activation are recomputed (16
// fp8 products per layer and pass pair: 5 of MLA twice, 2 up projections again, 4 of the shared expert).
models::Scenario chunk_scenario() {
  models::Scenario s;
  s.model = models::Architecture::load("deepseek-v3");
  s.parallel.ep = 64;
  s.parallel.dp = 64;
  s.parallel.seq = 4096;
  s.give("parallel.dp"), s.give("parallel.seq");
  s.training.set_precision("fp8_block");
  s.training.recompute = models::StepRecompute::parse("layernorm+mla_up_proj+moe_act");
  s.training.fused_kernels = true;
  s.cluster = std::make_shared<const models::Cluster>(models::Cluster::load("dgx-h800x8"));
  s.set_dispatchers("flex-deepep:fp8_dispatch=true");
  s.scope = models::Scenario::Scope::kStep;
  s.resolve();
  return s;
}

double forecast_us(const models::LayerWork& work, std::string_view name) {
  const double seconds = name == "products"        ? work.products
                         : name == "attention"     ? work.attention
                         : name == "dispatch"      ? work.dispatch
                         : name == "combine"       ? work.combine
                         : name == "conversions"   ? work.conversions
                         : name == "other kernels" ? work.kernels
                                                   : 0;
  return seconds * kLayers * 1e6;
}

}  // namespace

bool lists_kernels(const calibration::CsvTable& table) { return table.has("dur_us") && table.has("kind"); }

int validate_chunk(const calibration::CsvTable& table, const TrainingValidation& options,
                   const CommonOptions& common) {
  std::map<std::string, double> measured;
  for (std::size_t r = 0; r < table.rows(); ++r)
    measured[table.text(r, "kind")] += table.number(r, "dur_us", 0, 1e12);
  const models::Scenario scenario = chunk_scenario();
  const models::StepForecaster forecaster(scenario, scenario.dispatchers.front());
  models::LayerKind kind;
  kind.ffn = models::LayerKind::Ffn::kMoe;
  const models::LayerWork work = forecaster.layer_work(kind, true);

  double worst = 0;
  std::vector<std::string> unknown;
  Table out({{"class", Table::Align::kLeft}, {"measured [us]"}, {"forecast [us]"}, {"error"}});
  ordered_json rows = ordered_json::array();
  for (const KernelClass& c : classes()) {
    double sum = 0;
    for (const std::string_view k : c.kinds) {
      sum += measured[std::string(k)];
      measured.erase(std::string(k));
    }
    const double forecast = forecast_us(work, c.name);
    const double error = sum > 0 ? forecast / sum - 1 : 0;
    if (c.compared && sum > 0) worst = std::max(worst, std::abs(error));
    out.row({std::string(c.name) + (c.compared ? "" : " (listed only)"), fmt::format("{:.0f}", sum),
             forecast > 0 ? fmt::format("{:.0f}", forecast) : "-",
             forecast > 0 && sum > 0 ? percent(error) : "-"});
    ordered_json row{{"class", c.name}, {"measured_us", sum}, {"compared", c.compared}};
    if (forecast > 0) row["forecast_us"] = forecast;
    if (forecast > 0 && sum > 0) row["error"] = error;
    rows.push_back(std::move(row));
  }
  for (const auto& [name, us] : measured)
    if (us > 0) unknown.push_back(fmt::format("kernels of kind {} ({:.0f} us) belong to no class", name, us));
  if (common.format == Format::kJson) {
    ordered_json inputs = describe_inputs(common);
    ordered_json result = envelope("validate", inputs, unknown);
    result["classes"] = rows;
    result["worst_error"] = worst;
    print_json(result);
  } else if (common.format == Format::kCsv) {
    print(out.csv());
  } else {
    for (const std::string& warning : unknown) warn(common, warning);
    print(fmt::format(
        "{} layers of {} forward and backward on {}, computing and communication beside each other\n\n",
        kLayers, scenario.model.name, scenario.cluster->name));
    print(out.text());
    print(fmt::format("\nlargest error of products, attention, dispatch and combine: {}\n",
                      percent(worst).substr(1)));
  }
  return options.max_error > 0 && worst > options.max_error ? 1 : 0;
}

}  // namespace moesim::tools
