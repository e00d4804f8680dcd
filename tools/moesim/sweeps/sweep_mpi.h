// A sweep on processes started by mpirun (or srun): rank 0 deals blocks of scenarios to requesting ranks and
// writes. MPI is loaded on demand, so that every other command starts without it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tools/moesim/sweeps/sweep_run.h"

namespace moesim::tools {

struct MpiTransport;

class SweepMpi {
 public:
  // Returns nullptr where this process was not started as one of several. Throws InputError where it was, but
  // MPI support was not built, cannot be loaded, or does not find the others. `parts_of_their_own`: tasks of
  // Slurm that need not find each other.
  static std::unique_ptr<SweepMpi> start(bool parts_of_their_own);
  ~SweepMpi();

  int rank() const;
  int size() const;

  // Rank 0: computes on `threads` threads itself and deals blocks to all others. Takes back the blocks of a
  // process that is silent for `patience` seconds. Returns when all rows are written.
  void deal(const SweepJob& job, int threads, const std::string& definition, double patience,
            const SweepWrite& write, const std::function<void(const std::string&)>& warn);
  // Other ranks: computes blocks until there are none. Returns the exit code. Ends all processes where rank 0
  // is silent for `patience` seconds.
  int work(SweepJob& job, int threads, const std::string& definition, double patience);
  // Ends MPI on every rank after its result is safe. Where a process is gone, the others are ended.
  void finish(const std::function<void(const std::string&)>& warn);

 private:
  explicit SweepMpi(const MpiTransport* transport) : transport_(transport) {}
  const MpiTransport* transport_;
  bool together_ = true;   // every process is still there
  bool finished_ = false;  // ended normally
};

}  // namespace moesim::tools
