// Time of a product with a weight in training: the GEMM, the conversion of its operands to the type of the
// products, and the accumulation of weight gradients in fp32.
#pragma once

#include <cstdint>
#include <span>

#include "models/costs/gemm.h"
#include "models/costs/kernels.h"
#include "models/hardware/dtype.h"
#include "models/hardware/profile.h"

namespace moesim::models {

struct ProductRecipe {
  DType gemm = DType::kBf16;
  bool fused = false;         // the kernels around the products convert
  int accumulator_bytes = 4;  // per weight gradient element, read and written by each microbatch
  double slowest = 1;         // slowest_of() the GPUs that wait for each other
  double conversions = 1;     // share of the operands' conversions that is counted
  friend bool operator==(const ProductRecipe&, const ProductRecipe&) = default;
};

// Returns the slowdown of compute-bound kernels on the slowest of `gpus` equal GPUs, for which a step waits.
// GPUs of one kind spread by 8 % between the whiskers (5.4 standard deviations) of large machines (arXiv
// 2208.11035); the mean of the largest of n normal numbers follows extreme value theory.
double slowest_of(std::int64_t gpus);

class TrainingProducts {
 public:
  TrainingProducts(const Profile& profile, const ProductRecipe& recipe);

  // Returns seconds of y[m,n] = x[m,k] W[k,n], of its dgrad or its wgrad.
  double dense(std::int64_t m, std::int64_t n, std::int64_t k, GemmPass pass) const;
  // Likewise in bf16 whatever the recipe (router, head, attention projections of a first or last layer).
  double plain(std::int64_t m, std::int64_t n, std::int64_t k, GemmPass pass) const;
  // Returns seconds of one product over all local experts; rows[e] is the rows of expert e.
  double grouped(std::span<const std::int64_t> rows, std::int64_t n, std::int64_t k, GemmPass pass,
                 GemmBackend backend) const;
  // Returns what the profile did not measure of these products.
  std::optional<OutsideDomain> outside(GemmShape forward, GemmPass pass, bool plain) const;
  std::optional<OutsideDomain> grouped_outside(std::span<const std::int64_t> rows, std::int64_t n,
                                               std::int64_t k, GemmPass pass, GemmBackend backend) const;
  // Launches besides the product itself: the largest element with the scale, and the cast.
  int conversions() const { return converts() ? 2 : 0; }

 private:
  bool converts() const { return recipe_.gemm != DType::kBf16 && recipe_.gemm != DType::kFp16; }
  double conversion(double elements) const;
  double accumulated(double seconds, double weights) const;

  ProductRecipe recipe_;
  GemmModel gemms_;
  double seconds_per_byte_ = 0;
  double floor_ = 0;  // seconds of the smallest kernel
  double conversion_bytes_ = 0;
  double power_ = 1;
};

}  // namespace moesim::models
