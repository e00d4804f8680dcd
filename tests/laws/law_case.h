// A question that laws are held against: a scenario as a file says it, and the timing. Drawn at random over
// all models, machines, plans, dispatchers and routings, and made smaller where a law breaks.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/random.h"
#include "models/hardware/cluster.h"
#include "models/step/parameter_collectives.h"
#include "models/workload/parallel.h"

namespace moesim::laws {

struct Case {
  nlohmann::json scenario;
  bool flow = false;  // --timing flow
  int draws = 0;
  std::string measured;  // --measured

  bool of_step() const { return scenario.value("scope", "layer") == "step"; }
  // The value at a path of objects, or `fallback`.
  template <class T>
  T get(const std::string& path, T fallback) const {
    const nlohmann::json::json_pointer at(pointer(path));
    return scenario.contains(at) ? scenario.at(at).get<T>() : fallback;
  }
  bool has(const std::string& path) const {
    return scenario.contains(nlohmann::json::json_pointer(pointer(path)));
  }
  // A name on the way ("cluster": "dgx-h100x2") becomes an object on its base.
  Case with(const std::string& path, nlohmann::json value) const;
  // The machine that it names. Throws InputError.
  models::Cluster cluster() const;
  // The command that asks it.
  std::string command() const;

 private:
  static std::string pointer(std::string path) {
    for (char& c : path)
      if (c == '.') c = '/';
    return "/" + path;
  }
};

// The parts of an answer that laws examine.
struct Seen {
  double us = 0;
  double low = 0, high = 0;            // the interval of `us`
  std::map<std::string, double> arms;  // us by dispatcher
  bool batched = false;                // the experts' products are batched, or torch's grouped one
  double calibrated_us = 0;            // of timing flow: without contention
  double bytes = 0;                    // of the fullest rank
  double optimizer = 0;                // bytes of the stage with most
  std::int64_t dense_replicas = 0, expert_replicas = 0;
  int dense_ports = 0, expert_ports = 0;  // members of their rings in the domain with the fewest
  std::int64_t shard_group = 0;           // of HSDP
  bool cut_evenly = false;                // stages have as many layers each
  struct Collective {
    models::ParameterCollective what;
    double us = 0;
    int domains = 1;  // that its groups touch at the least
  };
  std::vector<Collective> collectives;  // of parameters and gradients, of one layer
  models::Parallel plan;                // as it was resolved
  std::int64_t sequences = 0;
  std::string recompute;
  bool fits = false;  // surely
};

// Answers a case as the verbs do; nullopt: it is refused.
using Ask = std::function<std::optional<Seen>(const Case&)>;
std::optional<Seen> ask(const Case& one);

// Legal or not.
Case random_case(Random& draw);

// Whether a case shows what is looked for.
using Shows = std::function<bool(const Case&)>;
// The smallest case that still shows it.
Case shrunk(Case one, const Shows& shows);

template <class T>
const T& one_of(Random& draw, const std::vector<T>& all) {
  return all[draw.below(all.size())];
}

}  // namespace moesim::laws
