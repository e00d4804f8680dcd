// Megatron's arguments of the precision of products.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "models/workload/scenario.h"
#include "tools/moesim/read/megatron_rules.h"

namespace moesim::tools::megatron {

namespace {

using models::Scenario;

struct Fp8 {
  std::string_view recipe, precision;
};
constexpr std::array<Fp8, 4> kFp8{
    {{"delayed", "fp8"}, {"tensorwise", "fp8"}, {"blockwise", "fp8_block"}, {"mxfp8", "mxfp8"}}};

void read_precision(JobReader& r) {
  const std::string precision = precision_of(r);
  if (precision.empty()) {
    if (has_model(r))
      r.fail_without("neither --bf16 nor --fp16", "one of them: training in fp32 is not modelled here");
    return;
  }
  r.flag("bf16");
  r.set("training.precision", precision);
  const bool fused = r.flag("use_transformer_engine_op_fuser");
  if (precision == "bf16") {
    if (fused)
      r.approximate("use_transformer_engine_op_fuser",
                    "operations that it fuses in bf16 are priced apart here");
    return;
  }
  if (fused) r.set("training.fused_kernels", true);
  // Transformer Engine's attention layers run in it, too.
  r.set("training.fp8_attention", true);
  if (!switched(r, "fp8_wgrad", "no_fp8_wgrad", true))
    r.approximate(r.has("no_fp8_wgrad") ? "no_fp8_wgrad" : "fp8_wgrad",
                  "weight gradients, a third of all products, are of the same precision here");
}

void write_precision(const Scenario& s, Arguments& out) {
  out.emplace_back("bf16", true);
  const std::string& p = s.training.precision;
  if (p == "bf16") return;
  put_flag(out, s.training.fused_kernels, "use_transformer_engine_op_fuser");
  if (p == "nvfp4") {
    out.emplace_back("fp4_format", "e2m1");
    out.emplace_back("fp4_recipe", "nvfp4");
    return;
  }
  out.emplace_back("fp8_format", p == "fp8" ? "hybrid" : "e4m3");
  out.emplace_back("fp8_recipe", p == "fp8" ? "tensorwise" : p == "fp8_block" ? "blockwise" : "mxfp8");
}

}  // namespace

std::string precision_of(JobReader& r) {
  const std::string mixed = r.text("mixed_precision");
  const auto has = [&](std::string_view part) { return mixed.find(part) != std::string::npos; };
  if (!mixed.empty()) {
    if (has("nvfp4")) return "nvfp4";
    if (has("mxfp8")) return "mxfp8";
    if (has("blockwise") || has("subchannel")) return "fp8_block";
    if (has("fp8")) return "fp8";
    if (!has("bf16") && !has("fp16") && !has("16"))
      r.fail("mixed_precision", "bf16, fp16, or a recipe of fp8 or fp4");
  }
  if (!r.text("fp4").empty() || !r.text("fp4_format").empty()) return "nvfp4";
  std::string fp8 = r.text("fp8_format");
  if (fp8.empty()) fp8 = r.text("fp8");
  if (r.flag("fp8_hybrid") || r.flag("fp8_e4m3")) fp8 = "hybrid";
  if (!fp8.empty() && fp8 != "false") {
    const std::string recipe =
        r.choice("fp8_recipe", "delayed", {"delayed", "tensorwise", "blockwise", "mxfp8"});
    return std::string(std::ranges::find(kFp8, recipe, &Fp8::recipe)->precision);
  }
  if (r.flag("fp16")) r.approximate("fp16", "priced as bf16: as many bytes, and as fast");
  if (r.flag("bf16") || r.flag("fp16") || !mixed.empty()) return "bf16";
  return "";
}

std::vector<ArgumentRule> precision_rules() {
  return {{{"bf16", "fp16", "fp8_format", "fp8", "fp8_hybrid", "fp8_e4m3", "fp8_recipe", "fp4", "fp4_format",
            "mixed_precision", "fp8_wgrad", "no_fp8_wgrad", "use_transformer_engine_op_fuser"},
           read_precision,
           write_precision}};
}

}  // namespace moesim::tools::megatron
