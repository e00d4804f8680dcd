// Exchange of deduplicated rows (DeepEP, HybridEP): one copy of a token per destination rank; between nodes
// one copy per destination node, to the GPU with the same local index, which forwards it over NVLink.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/dispatchers/parts/common.h"

namespace moesim::models {

class DeduplicatedExchange {
 public:
  DeduplicatedExchange(ProgramBuilder& builder, const MoeLayer& layer, const LayerSizes& sizes,
                       ExchangeLibrary library, int sms);

  // Returns the rule that a group violates, if any: it must lie inside one node or fill whole nodes.
  static std::optional<std::string> illegal(const MoeLayer& layer);

  const std::vector<std::int64_t>& received() const { return received_; }  // U_d
  int nodes() const { return nodes_; }

  // Adds an exchange of `row_bytes` payload per row in `dtype` and `extra_bytes` per row of `extra` (0: none)
  // inside the same kernel.
  void dispatch(std::string_view name, Category category, DType dtype, std::int64_t row_bytes,
                std::string_view extra, std::int64_t extra_bytes) const;
  void combine(std::string_view name, Category category, DType dtype, std::int64_t row_bytes,
               std::string_view extra, std::int64_t extra_bytes) const;

 private:
  void exchange(std::string_view name, Category category, DType dtype, bool back, std::int64_t row_bytes,
                std::string_view extra, std::int64_t extra_bytes) const;

  ProgramBuilder& b_;
  ExchangeLibrary library_;
  int sms_;
  int nodes_ = 1;
  std::vector<std::int64_t> received_;
  int network_ = -1;  // rank -> forwarding rank of another node
  int local_ = -1;    // (forwarding) rank -> rank of the same node
};

// The Flex dispatcher over HybridEP's kernels (docs/spec.md 2.4), which NCCL EP reuses: an all-gather of the
// routing map replaces the notification; dispatch writes rows expert-major; exact sizes, a static budget, or
// drop and pad.

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
  bool batch_overlap_, paged_;
};

}  // namespace moesim::models
