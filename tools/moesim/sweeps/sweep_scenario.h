// Makes one scenario after the other out of a base and the values of some paths, and reads each distinct part
// (a cluster, a model, ...) of them once. One per thread.
#pragma once

#include <bitset>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/moesim/questions/scenario_document.h"

namespace moesim::tools {

class ScenarioMaker {
 public:
  // Throws InputError for paths that exclude each other.
  ScenarioMaker(ScenarioDocument base, std::vector<ScenarioPath> paths);

  // The scenario with one value per path. Throws InputError as reading the changed file would.
  models::Scenario make(const std::vector<PathValue>& values);

 private:
  // Paths below one key of the file, the shorter (the whole) before its parts.
  struct Group {
    std::string key;
    std::vector<std::size_t> paths;
    std::vector<const models::Field*> fields;  // all of the key
    std::bitset<models::kMostFields> given;    // their bits
    std::unordered_map<std::string, std::shared_ptr<const models::Scenario>> read;
  };
  const models::Scenario& part(Group& group, const std::vector<PathValue>& values);

  ScenarioDocument base_;
  models::Scenario scenario_;
  std::vector<ScenarioPath> paths_;
  std::vector<Group> groups_;
  bool whole_ = false;  // a part follows from another: everything is read each time
};

// Applies changes to a document in an order that keeps all of them: wholes before their parts, the cluster
// last (without one, it follows from the plan).
void set_all(ScenarioDocument& document, const std::vector<ScenarioPath>& paths,
             const std::vector<PathValue>& values);

}  // namespace moesim::tools
