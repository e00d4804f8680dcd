#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>

#include "gpu.h"
#include "ranks.h"

namespace moesim::bench {
namespace {

constexpr int kPatience = 120;  // seconds until a process that does not come is given up

Ranks self;
int to_first = -1;           // of the others
std::vector<int> to_others;  // of process 0

std::optional<std::string> variable(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value && *value) return value;
  return std::nullopt;
}
std::optional<int> number(std::initializer_list<const char*> names) {
  const auto text = variable(names);
  return text ? std::optional(std::atoi(text->c_str())) : std::nullopt;
}

void send_all(int socket, const void* data, std::size_t bytes, int peer) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) fail("ranks", ("process " + std::to_string(peer) + " is gone").c_str());
    at += sent, bytes -= static_cast<std::size_t>(sent);
  }
}
void receive_all(int socket, void* data, std::size_t bytes, int peer) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(socket, at, bytes, 0);
    if (got <= 0) fail("ranks", ("process " + std::to_string(peer) + " is gone").c_str());
    at += got, bytes -= static_cast<std::size_t>(got);
  }
}

void no_delay(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int listening(int port) {
  const int socket_of = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(socket_of, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (bind(socket_of, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(socket_of, 1024) != 0)
    fail("ranks", ("cannot listen on port " + std::to_string(port) + ": " + std::strerror(errno)).c_str());
  return socket_of;
}

int connected(const std::string& host, const std::string& port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  for (int second = 0; second < 10 * kPatience; ++second) {
    if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) == 0) {
      const int socket_of = socket(AF_INET, SOCK_STREAM, 0);
      const int failed = connect(socket_of, found->ai_addr, found->ai_addrlen);
      freeaddrinfo(found);
      if (failed == 0) return socket_of;
      close(socket_of);
    }
    usleep(100000);
  }
  fail("ranks", ("found no process 0 at " + host + ":" + port + ", expected it within two minutes").c_str());
}

void connect_all(int listener, const std::string& host, const std::string& port) {
  if (self.index > 0) {
    to_first = connected(host, port);
    no_delay(to_first);
    send_all(to_first, &self.index, sizeof self.index, 0);
    return;
  }
  const timeval limit{kPatience, 0};
  setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  to_others.assign(static_cast<std::size_t>(self.count), -1);
  for (int i = 1; i < self.count; ++i) {
    const int socket_of = accept(listener, nullptr, nullptr);
    if (socket_of < 0)
      fail("ranks",
           ("found " + std::to_string(i) + " processes, expected " + std::to_string(self.count)).c_str());
    no_delay(socket_of);
    int index = 0;
    receive_all(socket_of, &index, sizeof index, i);
    to_others.at(static_cast<std::size_t>(index)) = socket_of;
  }
  close(listener);
}

// Starts the processes of this node and ends with them.
[[noreturn]] void start(int processes, char** argv) {
  const int listener = listening(0);
  sockaddr_in address{};
  socklen_t length = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  std::vector<pid_t> children;
  const pid_t parent = getpid();
  for (int i = 0; i < processes; ++i) {
    const pid_t child = fork();
    if (child < 0) fail("ranks", std::strerror(errno));
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) _exit(1);
      setenv("RANK", std::to_string(i).c_str(), 1);
      setenv("WORLD_SIZE", std::to_string(processes).c_str(), 1);
      setenv("LOCAL_RANK", std::to_string(i).c_str(), 1);
      setenv("MASTER_ADDR", "127.0.0.1", 1);
      setenv("MASTER_PORT", std::to_string(ntohs(address.sin_port)).c_str(), 1);
      setenv("MOESIM_BENCH_LISTENER", std::to_string(listener).c_str(), 1);
      if (i > 0) close(listener);
      execv("/proc/self/exe", argv);
      _exit(127);
    }
    children.push_back(child);
  }
  close(listener);
  int code = 0;
  for (std::size_t left = children.size(); left > 0; --left) {
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(-1, &status, 0)) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (code == 0) {
      const auto at = std::find(children.begin(), children.end(), ended) - children.begin();
      std::fprintf(stderr, "%s: process %d of %d ended with %s %d\n", program_invocation_short_name,
                   static_cast<int>(at), processes, WIFSIGNALED(status) ? "signal" : "exit code",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
      code = WIFSIGNALED(status) ? 1 : WEXITSTATUS(status);
      for (const pid_t child : children)
        if (child != ended) kill(child, SIGKILL);
    }
  }
  std::exit(code);
}

}  // namespace

int Ranks::node_count() const {
  return std::max(1, static_cast<int>(std::set<std::string>(nodes.begin(), nodes.end()).size()));
}

const Ranks& ranks() { return self; }

void join_ranks(int own, char** argv) {
  // torchrun; Open MPI; MPICH and Intel MPI; Slurm. What stands in a batch script's environment without srun
  // is one process of SLURM_NTASKS, and no launcher: SLURM_STEP_ID is srun's.
  const bool step = std::getenv("SLURM_STEP_ID") != nullptr && std::getenv("SLURM_STEP_NUM_TASKS") != nullptr;
  const auto size = step && !variable({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
                        ? number({"SLURM_STEP_NUM_TASKS"})
                        : number({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  if (!size && own > 1) start(own, argv);
  if (size) {
    self.count = *size;
    self.index = number({"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}).value_or(0);
    self.on_node =
        number({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}).value_or(0);
    if (self.index < 0 || self.index >= self.count)
      fail("ranks",
           ("found process " + std::to_string(self.index) + " of " + std::to_string(self.count)).c_str());
  }
  if (self.count > 1) {
    const bool one_node =
        number({"OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"}).value_or(0) == self.count;
    auto host = variable({"MASTER_ADDR", "SLURM_LAUNCH_NODE_IPADDR"});
    if (!host && one_node) host = "127.0.0.1";
    if (!host)
      fail("ranks",
           "found processes on several nodes and no MASTER_ADDR, expected the host name of process 0 "
           "(mpirun -x MASTER_ADDR=node0)");
    const std::string port = variable({"MASTER_PORT"}).value_or("29517");
    const auto listener = number({"MOESIM_BENCH_LISTENER"});
    connect_all(self.index > 0 ? -1 : listener ? *listener : listening(std::atoi(port.c_str())), *host, port);
  }
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  self.nodes = all_of(name);
}

void broadcast(void* data, std::size_t bytes) {
  if (self.index > 0) receive_all(to_first, data, bytes, 0);
  for (int i = 1; i < static_cast<int>(to_others.size()); ++i)
    send_all(to_others[static_cast<std::size_t>(i)], data, bytes, i);
}

std::vector<std::string> all_of(const std::string& mine) {
  std::vector<std::string> all(static_cast<std::size_t>(self.count));
  const auto put = [](int socket_of, const std::string& text, int peer) {
    const std::size_t size = text.size();
    send_all(socket_of, &size, sizeof size, peer);
    send_all(socket_of, text.data(), size, peer);
  };
  const auto take = [](int socket_of, int peer) {
    std::size_t size = 0;
    receive_all(socket_of, &size, sizeof size, peer);
    std::string text(size, ' ');
    receive_all(socket_of, text.data(), size, peer);
    return text;
  };
  all[static_cast<std::size_t>(self.index)] = mine;
  if (self.index > 0) {
    put(to_first, mine, 0);
    for (std::string& one : all) one = take(to_first, 0);
    return all;
  }
  for (int i = 1; i < self.count; ++i)
    all[static_cast<std::size_t>(i)] = take(to_others[static_cast<std::size_t>(i)], i);
  for (int i = 1; i < self.count; ++i)
    for (const std::string& one : all) put(to_others[static_cast<std::size_t>(i)], one, i);
  return all;
}

double slowest(double seconds) {
  double most = seconds;
  if (self.index > 0) send_all(to_first, &seconds, sizeof seconds, 0);
  for (int i = 1; i < static_cast<int>(to_others.size()); ++i) {
    double other = 0;
    receive_all(to_others[static_cast<std::size_t>(i)], &other, sizeof other, i);
    most = std::max(most, other);
  }
  broadcast(&most, sizeof most);
  return most;
}

bool all_agree(bool yes) { return slowest(yes ? 0 : 1) == 0; }

}  // namespace moesim::bench
