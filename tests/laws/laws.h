// What must hold of an answer whatever is asked: each law names what is changed, in which direction the
// answer may move, by how much it may err, and where it holds.
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
  // What is wrong, empty where it holds; nullopt where the law says nothing of the case. What the law chooses
  // itself it draws. `seen`: the case's own answer.
  std::function<std::optional<std::string>(const Case&, const Seen& seen, Random& draw, const Ask& ask)>
      check;
  int often = 1;  // in how many of the cases, relative to others
};

const std::vector<Law>& laws();

}  // namespace moesim::laws
