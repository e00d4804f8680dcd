// Threads that do the same work as the caller.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace moesim {

class HelperThreads {
 public:
  // Starts `count` threads that each run `work` once; fewer, possibly none, where the system limits threads:
  // the caller works as well, or checks size().
  HelperThreads(std::size_t count, const std::function<void()>& work);

  std::size_t size() const { return threads_.size(); }
  void join() { threads_.clear(); }  // also done by the destructor

 private:
  std::vector<std::jthread> threads_;
};

}  // namespace moesim
