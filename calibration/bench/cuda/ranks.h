// One process per GPU as in jobs, with small messages over TCP. mpirun, srun or torchrun start the processes
// and describe them in the environment; without a launcher this program starts one process for each GPU of
// the node. Needs no MPI.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace moesim::bench {

struct Ranks {
  int index = 0, count = 1;
  int on_node = 0;                 // index among the processes of this node
  std::vector<std::string> nodes;  // host name of every process, known after they have met
  int node_count() const;
};
const Ranks& ranks();

// Reads the environment. Without a launcher, starts `own` processes (this program with the same arguments),
// waits for them and exits with their code; a failing process ends all with a message. Returns in every
// measuring process, connected to process 0.
void join_ranks(int own, char** argv);

void broadcast(void* data, std::size_t bytes);  // from process 0
std::vector<std::string> all_of(const std::string& mine);
bool all_agree(bool yes);
double slowest(double seconds);

}  // namespace moesim::bench
