// Laws that hold for every answer: each names a change, the direction in which the answer may move, the
// tolerance, and where it holds.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/laws/law_case.h"

namespace moesim::laws {

struct Law {
  std::string name;
  std::string says;
  std::string holds;  // where, and why not elsewhere; empty: everywhere
  // Returns the violation, empty where it holds; nullopt where the law does not apply to the case. The law
  // draws its own choices. `seen`: the case's own answer.
  std::function<std::optional<std::string>(const Case&, const Seen& seen, Random& draw, const Ask& ask)>
      check;
  int often = 1;  // in how many of the cases, relative to others
};

const std::vector<Law>& laws();
// Returns the laws of intervals, measurements, GPUs and host launches. Each list draws its own cases.
const std::vector<Law>& laws_of_parts();

}  // namespace moesim::laws
