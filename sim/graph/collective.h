// A collective: operation, members, and bytes between members.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "sim/graph/ids.h"

namespace moesim::sim {

enum class CollectiveOp : std::uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  broadcast,  // member 0 is the root
  send_recv,  // member 0 sends to member 1
  barrier,
};

std::string_view name(CollectiveOp op);

// Bytes of a collective with g members, one of:
//   uniform: all_gather, reduce_scatter: the piece of one rank; all_reduce: the buffer; all_to_all: the whole
//            send buffer of one rank (1/g of it for every member, itself included); broadcast, send_recv: the
//            message.
//   pieces:  all_gather, reduce_scatter with the piece of every member (AG-V, RS-V).
//   matrix:  all_to_all with rows[sender * g + receiver] rows of `bytes` bytes; `transposed` swaps the roles,
//            so that dispatch, combine and their backward share one matrix.
struct Traffic {
  enum class Kind : std::uint8_t { uniform, pieces, matrix };

  Kind kind = Kind::uniform;
  bool transposed = false;
  std::uint64_t bytes = 0;                     // uniform: as above; matrix: bytes of one row
  std::span<const std::uint64_t> pieces = {};  // g bytes
  std::span<const std::uint32_t> rows = {};    // g x g rows
  // Number by which the graph's builder identifies this collective to its own Costs.
  std::uint32_t price = kNoPrice;

  static constexpr std::uint32_t kNoPrice = ~std::uint32_t{0};

  // For a matrix, or a uniform all_to_all (bytes / g, rounded down): bytes that `sender` sends to `receiver`.
  std::uint64_t between(std::size_t sender, std::size_t receiver, std::size_t members) const {
    if (kind == Kind::uniform) return bytes / members;
    return bytes * (transposed ? rows[receiver * members + sender] : rows[sender * members + receiver]);
  }
};

struct CollectiveShape {
  CollectiveOp op = CollectiveOp::barrier;
  std::span<const RankId> ranks;  // the members in group order
  Traffic traffic;

  std::size_t members() const { return ranks.size(); }
};

// The algorithm by which a collective moves its bytes as messages or flows.
enum class Algorithm : std::uint8_t {
  ring,          // g-1 steps to the next member (all_reduce: twice that)
  tree,          // up and down a binary tree
  pairwise,      // all_to_all in g-1 sequential steps: to member i+s, from member i-s
  direct,        // all messages of an all_to_all at once (NCCL's grouped send and receive)
  hierarchical,  // rings inside the nodes and between nodes at the same time
  nvls,          // the switches gather, reduce and multicast (NVLS, SHARP)
};

}  // namespace moesim::sim
