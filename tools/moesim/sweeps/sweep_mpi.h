// A sweep on the processes that mpirun (or srun) started: rank 0 deals blocks of scenarios out to whoever
// asks, and writes. MPI is loaded when it is needed, so that every other command starts without it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tools/moesim/sweeps/sweep_run.h"

namespace moesim::tools {

struct MpiTransport;

class SweepMpi {
 public:
  // nullptr where this process was not started as one of several. Throws InputError where it was, but MPI
  // support was not built, cannot be loaded, or does not find the others. `parts_of_their_own`: tasks of
  // Slurm that need not find each other.
  static std::unique_ptr<SweepMpi> start(bool parts_of_their_own);
  ~SweepMpi();

  int rank() const;
  int size() const;

  // Rank 0: computes on `threads` threads itself and deals blocks out to all others. The blocks of a
  // process that is not heard of for `patience` seconds are done here. Returns when all rows are written.
  void deal(const SweepJob& job, int threads, const std::string& definition, double patience,
            const SweepWrite& write, const std::function<void(const std::string&)>& warn);
  // The other ranks: computes blocks until there are none. Returns the exit code. Ends all processes where
  // rank 0 is not heard of for `patience` seconds.
  int work(SweepJob& job, int threads, const std::string& definition, double patience);
  // Ends MPI, on every rank, when its result is safe. Where a process is gone, the others are ended.
  void finish(const std::function<void(const std::string&)>& warn);

 private:
  explicit SweepMpi(const MpiTransport* transport) : transport_(transport) {}
  const MpiTransport* transport_;
  bool together_ = true;   // every process is still there
  bool finished_ = false;  // as it should
};

}  // namespace moesim::tools
