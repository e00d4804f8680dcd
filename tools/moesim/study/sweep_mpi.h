// A sweep on processes started by mpirun (or srun): rank 0 deals blocks of scenarios to requesting ranks and
// writes. Where a rank is lost, the launcher ends the others, and the same command with --resume goes on. MPI
// is loaded on demand, so that every other command starts without it.
#pragma once

#include <memory>
#include <string>

#include "tools/moesim/study/sweep_run.h"

namespace moesim::tools {

struct MpiMessage;
struct MpiTransport;

class SweepMpi {
 public:
  // Returns nullptr where this process was not started as one of several. Throws InputError where it was, but
  // MPI support was not built, cannot be loaded, or does not find the others. `parts_of_their_own`: tasks of
  // Slurm that need not find each other.
  static std::unique_ptr<SweepMpi> start(bool parts_of_their_own);
  // Tells the other ranks, also after an error, and ends MPI.
  ~SweepMpi();
  SweepMpi(const SweepMpi&) = delete;
  SweepMpi& operator=(const SweepMpi&) = delete;

  int rank() const;
  int size() const;

  // Rank 0: computes on `threads` threads itself and deals blocks to all others. Returns when all rows are
  // written. Throws InputError where another rank has other input files or ends with an error.
  void deal(const SweepJob& job, int threads, const std::string& definition, const SweepWrite& write);
  // Other ranks: computes blocks until rank 0 ends it.
  void work(SweepJob& job, int threads, const std::string& definition);

 private:
  explicit SweepMpi(const MpiTransport* transport) : transport_(transport) {}
  MpiMessage wait() const;

  const MpiTransport* transport_;
  int gone_ = 0;          // rank 0: ranks that send no more
  bool stopped_ = false;  // other ranks: rank 0 sends no more
};

}  // namespace moesim::tools
