// Runs programs shared by all ranks of a group: the same operations in the same order, with different
// durations.
//
// Every rank has in-order streams and a host. The host launches the operations one by one in issue order. An
// operation starts when the host has launched it, its stream is free, its dependencies have ended, and its
// rank has finished the previous program. A collective begins when its last member has started, and each
// member ends after its own duration. run() does the same with a task graph of these operations
// (lockstep_graph.h). Since all ranks run the same operations, no graph is needed, and an operation costs a
// few vector instructions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sim/graph/costs.h"
#include "sim/graph/task_graph.h"
#include "sim/graph/time.h"
#include "sim/run/booking.h"

namespace moesim::sim {

struct LockstepOp {
  enum class Kind : std::uint8_t {
    compute,
    transfer,  // a collective, or one rank's transfer where `group` is -1
    delay,     // idle time on a stream without slowing anything (a copy to the host)
    host,      // the host waits for the operation's dependencies, then spends the duration
    nothing,   // ends with its dependencies
  };
  Kind kind = Kind::compute;
  Category category = Category::other;
  std::uint8_t stream = 0;  // below kLockstepStreams; for compute, transfer and delay
  std::int8_t group = -1;   // for a transfer: index into LockstepProgram::groups; -1: no rendezvous
  std::int32_t launches = 1;
  std::array<std::int32_t, 2> after{-1, -1};  // earlier operations of the same program; -1: none
  std::uint32_t first = 0, step = 0;          // rank r takes ps[first + step * r] picoseconds
  // For compute, delay and host: ranks with negative picoseconds neither launch it nor wait for it.
  bool partial = false;
};

inline constexpr std::size_t kLockstepStreams = 4;

// Division of the ranks for one kind of collective.
struct LockstepGroup {
  std::vector<std::int32_t> of_rank;
  std::int32_t count = 1;
};
using LockstepGroups = std::vector<LockstepGroup>;

struct LockstepProgram {
  std::vector<LockstepOp> ops;
  std::vector<std::int64_t> ps;
  std::shared_ptr<const LockstepGroups> groups;  // null: no operation has a group

  bool runs(const LockstepOp& op, std::size_t rank) const {
    return !op.partial || ps[op.first + op.step * rank] >= 0;
  }
  std::int64_t at(const LockstepOp& op, std::size_t rank) const {
    return runs(op, rank) ? ps[op.first + op.step * rank] : 0;
  }
  // Returns the number of host launches.
  std::int64_t launches() const;
  bool waits_on_host() const;  // whether any operation is of kind host
  // Whether every compute and transfer waits for the previously issued one, so that none overlap.
  bool serial() const;
  // Whether all ranks have equal times for all operations.
  bool uniform() const;
  static bool on_device(LockstepOp::Kind kind) {
    return kind == LockstepOp::Kind::compute || kind == LockstepOp::Kind::transfer ||
           kind == LockstepOp::Kind::delay;
  }
};

// Programs that a rank runs one after another. Several chains share the rank's streams and host.
using LockstepChain = std::vector<const LockstepProgram*>;

// Operations [from, to) of the program-th program of a chain. Operations of a program are issued in order.
struct LockstepPiece {
  std::int32_t chain = 0, program = 0;
  std::int32_t from = 0, to = 0;
};
std::vector<LockstepPiece> one_by_one(const LockstepChain& chain);  // whole programs, of chain 0

struct LockstepWatch {
  int rank = -1;                // rank whose spans are kept; -1: none
  std::vector<BusySpan> spans;  // of that rank, over all runs
};

struct LockstepOptions {
  std::int64_t launch_ps = 0;  // of one launch by the host
  Overlap overlap;             // of every rank
};

class Lockstep {
 public:
  Lockstep(std::size_t ranks, const LockstepOptions& options);

  // Runs the programs one after another.
  void run(const LockstepChain& chain);
  // Runs several chains at the same time, with operations issued in the order of the pieces, which name every
  // operation of every chain once. All chains end before anything of a later run starts.
  void run(std::span<const LockstepChain> chains, std::span<const LockstepPiece> order);

  // GPU work of rank r that is issued later starts no earlier than `when[r]`.
  void wait(std::span<const std::int64_t> when);

  std::size_t ranks() const { return ready_.size(); }
  // By rank: time when everything issued so far has ended, and when the host is free.
  std::span<const std::int64_t> ready() const { return ready_; }
  std::span<const std::int64_t> host() const { return host_; }
  void set(std::span<const std::int64_t> ready, std::span<const std::int64_t> host);
  std::int64_t end() const;  // of the rank that is ready last
  int last_rank() const;     // the first of those that are ready last

  // Records events from now on; null: none.
  void watch(LockstepWatch* watch) { watch_ = watch; }

 private:
  struct Chain;
  template <bool kOneRank>  // without its loops over ranks
  void issue(Chain& chain, std::int32_t op);
  void issue_on_some(const LockstepProgram& program, const LockstepOp& op, std::int64_t* end);
  void note(const LockstepOp& op, std::int64_t host_from, std::int64_t host_to, std::int64_t start,
            std::int64_t begin, std::int64_t end);

  LockstepOptions options_;
  std::vector<std::int64_t> ready_, host_;
  std::vector<std::int64_t> streams_;  // [stream * ranks + rank]: time from which it is free
  std::vector<std::int64_t> start_, meeting_;
  LockstepWatch* watch_ = nullptr;
};

}  // namespace moesim::sim
