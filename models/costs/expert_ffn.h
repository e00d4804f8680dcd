// The whole expert FFN of one GPU as inference libraries run and benchmark it (law "expert-ffn"): permute, up
// and gate GEMM, activation, down GEMM, weighted unpermute. Training programs consist of the single kernels
// instead (models/programs/program.h); this law calibrates grouped GEMMs, since no table of them alone is
// large enough.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "models/costs/gemm.h"
#include "models/hardware/dtype.h"
#include "models/hardware/profile.h"

namespace moesim::models {

struct FfnShape {
  std::int64_t tokens = 0;  // input of the layer, over all ranks
  std::int64_t hidden = 0;
  std::int64_t inter = 0;  // per expert on this GPU (divided by TP)
  int topk = 1;
  // Rows of the kept tokens that go to experts of other ranks (EP): some libraries copy or even compute them
  // here.
  double remote_rows = 0;
};

class ExpertFfnModel {
 public:
  // `key`: a law of the profile, "ffn/bf16" or "ffn/bf16@<kernel>", with the parameters of its grouped GEMMs
  // and "overhead" (seconds of the small kernels), "row_pass" (multiple of the compulsory bytes of permute,
  // activation and unpermute), "token_pass" (the same for the output of all tokens), "slot_pass" (the same
  // for every choice of every token, wherever its expert lies) and "remote_share" (share of the rows of other
  // ranks that is multiplied here).
  ExpertFfnModel(const Profile& profile, const std::string& key, DType dtype);

  // Returns seconds for the given rows of each local expert.
  double seconds(const FfnShape& shape, std::span<const std::int64_t> rows) const;

 private:
  GemmModel gemm_;
  DType dtype_;
  double overhead_ = 0;
  double row_pass_ = 1;
  double token_pass_ = 1;
  double slot_pass_ = 0;
  double remote_share_ = 0;
  double memory_ = 0;  // seconds per byte
};

}  // namespace moesim::models
