// The Flex dispatcher over HybridEP's kernels (docs/spec.md 2.4), which NCCL EP reuses: an all-gather of the
// routing map replaces the notification; dispatch writes rows expert-major; exact sizes, a static budget, or
// drop and pad.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/dispatchers/parts/common.h"
#include "models/dispatchers/parts/deduplicated.h"

namespace moesim::models {

class FlexHybrid : public Dispatcher {
 public:
  // Reads the back end's options. `library`: kHybridEp or kNcclEp.
  FlexHybrid(DispatcherOptions& options, ExchangeLibrary library);

  std::optional<std::string> illegal(const MoeLayer& layer) const override;
  bool balances() const override { return mode_ == kDynamic; }
  Program build(const MoeLayer& given) const override;

 private:
  enum Mode : std::size_t { kDynamic, kStatic, kDropAndPad };

  // Bytes that travel with a token besides its row: probabilities of every local expert of a node, or NCCL
  // EP's K indices and weights.
  std::int64_t beside(const LayerSizes& sizes, std::int64_t per_node) const;
  // Tokens for which buffers and maps of a rank with `tokens` are sized.
  std::int64_t counted(std::int64_t tokens) const;

  ExchangeLibrary library_;
  std::size_t mode_;
  double rank_factor_, capacity_factor_ = 1;
  std::int64_t align_;
  int sms_;
  bool batch_overlap_;
};

}  // namespace moesim::models
