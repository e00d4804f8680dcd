// Derives many questions from one: a base with other values at some paths, for changes, sweeps, maps and
// crossovers.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/question/paths.h"
#include "models/question/question.h"

namespace moesim::models {

// Sets values at paths of a question, whole objects before their parts. Relative file paths start from the
// folder of the question's file. Throws InputError for invalid values and for paths that exclude each other.
void set_all(Question& question, const std::vector<ScenarioPath>& paths, const std::vector<PathValue>& values,
             const Origin& origin);

// Makes questions for many rows of values and parses each distinct object (a cluster, a model, ...) once. One
// per thread.
class Changes {
 public:
  // Throws InputError for paths that exclude each other.
  Changes(Question base, std::vector<ScenarioPath> paths, const Origin& origin);

  // Returns the question with one value per path. Throws InputError as set_all() does.
  Question make(const std::vector<PathValue>& values);

  const Question& base() const { return base_; }

 private:
  // Paths below one object of the scenario, the whole object before its parts.
  struct Group {
    std::string top;
    std::vector<std::size_t> paths;
    std::vector<const Field*> fields;
    std::unordered_map<std::string, std::shared_ptr<const Scenario>> read;  // by the values' texts
  };
  const Scenario& part(Group& group, const std::vector<PathValue>& values);

  Question base_;
  std::vector<ScenarioPath> paths_;
  Origin origin_;
  std::vector<std::size_t> plain_;  // paths of scalar fields
  std::vector<Group> groups_;
};

}  // namespace moesim::models
