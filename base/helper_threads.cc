#include "base/helper_threads.h"

#include <system_error>

namespace moesim {

HelperThreads::HelperThreads(std::size_t count, const std::function<void()>& work) {
  try {
    for (std::size_t t = 0; t < count; ++t) threads_.emplace_back(work);
  } catch (const std::system_error&) {  // fewer threads do the same work
  }
}

}  // namespace moesim
