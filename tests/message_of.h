// The message with which an input is refused.
#pragma once

#include <string>
#include <utility>

#include "base/input_error.h"

namespace moesim::testing {

// Empty where nothing is refused.
template <class Function>
std::string message_of(Function&& function) {
  try {
    std::forward<Function>(function)();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace moesim::testing
