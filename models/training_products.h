// What a product with a weight takes in training: the GEMM, the conversion of its operands to the element
// type of the products, and the accumulation of weight gradients in fp32.
#pragma once

#include <cstdint>
#include <span>

#include "models/dtype.h"
#include "models/gemm.h"
#include "models/kernels.h"
#include "models/profile.h"

namespace moesim::models {

struct ProductRecipe {
  DType gemm = DType::kBf16;
  int accumulator_bytes = 4;  // of a weight gradient element, read and written by each microbatch
};

class TrainingProducts {
 public:
  TrainingProducts(const Profile& profile, const ProductRecipe& recipe);

  // Seconds of y[m,n] = x[m,k] W[k,n], of its dgrad or its wgrad.
  double dense(std::int64_t m, std::int64_t n, std::int64_t k, GemmPass pass) const;
  // The same in bf16 whatever the recipe (router, head, attention's own projections of a first or last
  // layer).
  double plain(std::int64_t m, std::int64_t n, std::int64_t k, GemmPass pass) const;
  // One product over all local experts; rows[e] is the rows of expert e.
  double grouped(std::span<const std::int64_t> rows, std::int64_t n, std::int64_t k, GemmPass pass,
                 GemmBackend backend) const;
  // Kernels besides the product itself that the host launches.
  int conversions() const { return converts() ? 1 : 0; }

 private:
  bool converts() const { return recipe_.gemm != DType::kBf16 && recipe_.gemm != DType::kFp16; }
  double conversion(double elements) const;
  double accumulated(double seconds, double weights) const;

  ProductRecipe recipe_;
  GemmModel gemms_;
  double seconds_per_byte_ = 0;
  double floor_ = 0;  // seconds of the smallest kernel
  double conversion_bytes_ = 0;
};

}  // namespace moesim::models
