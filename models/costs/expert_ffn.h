// The whole expert FFN of one GPU as inference libraries run and benchmark it (law "expert-ffn"): permute, up
// and gate GEMM, activation, down GEMM, weighted unpermute. Training programs are made of the single kernels
// instead (models/programs/program.h); this is how grouped GEMMs are calibrated, since no table of them alone
// is large enough.
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
  std::int64_t tokens = 0;  // presented to the layer, over all ranks
  std::int64_t hidden = 0;
  std::int64_t inter = 0;  // of one expert on this GPU (divided by TP)
  int topk = 1;
  // Rows of kept tokens that other ranks' experts take (EP): some libraries carry or even compute them here.
  double remote_rows = 0;
};

class ExpertFfnModel {
 public:
  // `key`: a law of the profile, "ffn/bf16" or "ffn/bf16@<kernel>", which holds the parameters of its grouped
  // GEMMs and besides: "overhead" (seconds of the small kernels), "row_pass" (multiple of the bytes that
  // permute, activation and unpermute move at least), "token_pass" (the same for the output of all tokens),
  // "slot_pass" (the same for every choice of every token, wherever its expert lives), "remote_share" (how
  // many of the rows that belong to other ranks are multiplied all the same).
  ExpertFfnModel(const Profile& profile, const std::string& key, DType dtype);

  // Seconds for the given rows of each local expert.
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
