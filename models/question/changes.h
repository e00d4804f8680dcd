// Many questions out of one: a base with other values at some paths, for changes, sweeps, maps and
// crossovers.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/question/paths.h"
#include "models/question/question.h"

namespace moesim::models {

// Sets values at paths of a question, wholes before their parts. Paths of files are taken from the folder of
// the question's file. Throws InputError for values that are none and for paths that exclude each other.
void set_all(Question& question, const std::vector<ScenarioPath>& paths, const std::vector<PathValue>& values,
             const Origin& origin);

// Makes questions for many rows of values: it reads each distinct object (a cluster, a model, ...) once.
// Each thread has its own.
class Changes {
 public:
  // Throws InputError for paths that exclude each other.
  Changes(Question base, std::vector<ScenarioPath> paths, const Origin& origin);

  // The question with one value per path. Throws InputError as set_all() does.
  Question make(const std::vector<PathValue>& values);

  const Question& base() const { return base_; }

 private:
  // Paths below one object of the scenario, the whole before its parts.
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
  std::vector<std::size_t> plain_;  // paths of fields that are one value
  std::vector<Group> groups_;
};

}  // namespace moesim::models
