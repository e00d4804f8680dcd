// Threads that do the same work beside the caller.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace moesim {

class HelperThreads {
 public:
  // Starts `count` threads that each run `work` once; fewer where the system starts no more, none at worst:
  // the caller works, too, or asks size().
  HelperThreads(std::size_t count, const std::function<void()>& work);

  std::size_t size() const { return threads_.size(); }
  void join() { threads_.clear(); }  // the destructor does it, too

 private:
  std::vector<std::jthread> threads_;
};

}  // namespace moesim
