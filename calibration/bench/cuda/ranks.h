// One process a GPU, as jobs run: who the others are, and a few words with them over TCP. Started by mpirun,
// srun or torchrun, which say so in the environment; where none of them did, by this program itself, one
// process for each GPU of this node. Needs no MPI.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace moesim::bench {

struct Ranks {
  int index = 0, count = 1;
  int on_node = 0;                 // number among the processes of this node
  std::vector<std::string> nodes;  // host name of every process, once they have met
  int node_count() const;
};
const Ranks& ranks();

// Reads the environment. Without a launcher there, starts `own` processes (each this program with the same
// arguments), waits for them and ends with their exit code; one that fails ends all, with a line. Returns in
// every process that measures, connected to process 0.
void join_ranks(int own, char** argv);

void broadcast(void* data, std::size_t bytes);  // from process 0
std::vector<std::string> all_of(const std::string& mine);
bool all_agree(bool yes);
double slowest(double seconds);

}  // namespace moesim::bench
