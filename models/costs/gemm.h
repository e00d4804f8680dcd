// Time of a matrix product on one GPU, dense or one per expert.
//
// The forecast is never below the roofline of the profile's limits: FLOPs at the peak rate, bytes at the HBM
// rate.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "models/costs/domain_report.h"
#include "models/hardware/device_work.h"
#include "models/hardware/dtype.h"
#include "models/hardware/estimate.h"
#include "models/hardware/profile.h"

namespace moesim::models {

enum class Clocks : std::uint8_t { kBurst, kSustained };

class GemmModel {
 public:
  // `grouped_key`: law of grouped products where it is not "grouped_gemm/<dtype>" (another library's).
  explicit GemmModel(const Profile& profile, Clocks clocks = Clocks::kSustained,
                     std::string_view grouped_key = {});
  ~GemmModel();
  GemmModel(GemmModel&&) noexcept;
  GemmModel& operator=(GemmModel&&) noexcept;

  // Returns seconds of one dense product with the shape passed to the library; 0 if any dimension is 0.
  double seconds(GemmShape shape, DType dtype) const;
  Estimate estimate(GemmShape shape, DType dtype) const;

  // Returns seconds of one expert GEMM over all local experts: rows[e] is M_e (zeros allowed), the weight of
  // each expert is K x N; `pass` maps the shape as docs/spec.md 1.6 does.
  double grouped_seconds(std::span<const std::int64_t> rows, std::int64_t n, std::int64_t k, DType dtype,
                         GemmPass pass = GemmPass::kForward,
                         GemmBackend backend = GemmBackend::kGrouped) const;
  Estimate grouped_estimate(std::span<const std::int64_t> rows, std::int64_t n, std::int64_t k, DType dtype,
                            GemmPass pass = GemmPass::kForward,
                            GemmBackend backend = GemmBackend::kGrouped) const;

  // Lower bound of every forecast: max(FLOPs / peak, compulsory bytes / HBM bandwidth).
  double roofline_seconds(GemmShape shape, DType dtype) const;

  // Returns what the profile did not measure of a dense product or of grouped ones (the number of tokens of
  // the layer is not known here and not checked).
  std::optional<OutsideDomain> outside(GemmShape shape, DType dtype) const;
  std::optional<OutsideDomain> grouped_outside(std::span<const std::int64_t> rows, std::int64_t n,
                                               std::int64_t k, DType dtype,
                                               GemmPass pass = GemmPass::kForward,
                                               GemmBackend backend = GemmBackend::kGrouped) const;

 private:
  struct Resolved;
  std::unique_ptr<const Resolved> resolved_;
};

}  // namespace moesim::models
