#include "calibration/fit/leave_out.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "base/text.h"
#include "calibration/fit/derive.h"
#include "calibration/fit/fit_dispatch.h"
#include "calibration/fit/fit_networks.h"
#include "calibration/fit/fit_profile.h"
#include "calibration/fit/least_squares.h"
#include "calibration/fit/own_rows.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/publication.h"
#include "calibration/rows/row_laws.h"
#include "models/hardware/network.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {
namespace {

using models::ParameterSet;
using models::Profile;

// Forecasts `held` from a fit of `rest`; rows of other devices in `rest` may help the fit.
CheckReport forecast(const Device& device, const Measurements& rest, const Measurements& held) {
  FitProfileOptions options;
  options.leave_out_shapes = false;
  Profile profile = fit_profile(device, rest, options);
  // Cost models need the main collective laws even where only one operation was measured. A law of the held
  // operation itself never comes from the built-in profile, which was fitted to these rows.
  if (!held.collectives.empty()) {
    Profile shipped = Profile::load(std::string(device.profile));
    const CollectiveRow& row = held.collectives.front();
    const std::string key = collective_key(row.op, !inside_domain(row, shipped));
    if (!device.relative.empty()) {
      const Profile relative = Profile::load(std::string(device.relative));
      if (const ParameterSet* law = relative.find(key)) {
        Profile only;
        only.describe(relative.name(), relative.gpu(), "", {});
        only.device() = relative.device();
        only.set(key, *law);
        derive_missing(profile, only, rest);
      }
    }
    const bool fitted = std::any_of(profile.sets().begin(), profile.sets().end(),
                                    [&](const auto& entry) { return entry.first.starts_with(key); });
    if (fitted) derive_missing(profile, shipped);
  }
  return check_rows(held, [&](const std::string&) { return &profile; });
}

void append(CheckReport& report, CheckReport part) {
  report.rows.insert(report.rows.end(), std::make_move_iterator(part.rows.begin()),
                     std::make_move_iterator(part.rows.end()));
  for (const auto& [reason, count] : part.skipped) report.skipped[reason] += count;
}

// Intervals as from a fit of the other values: `systematic` of a law comes from leaving out one value after
// another, here from all parts but its own.
void widen_by_others(std::vector<CheckReport>& parts) {
  if (parts.size() < 3) return;
  std::vector<double> sigmas;
  for (std::size_t own = 0; own < parts.size(); ++own) {
    std::vector<double> residuals;
    for (std::size_t other = 0; other < parts.size(); ++other)
      if (other != own)
        for (const CheckedRow& row : parts[other].rows)
          residuals.push_back(std::log(row.forecast.value / row.measured));
    sigmas.push_back(covering_sigma(residuals));
  }
  for (std::size_t own = 0; own < parts.size(); ++own)
    for (CheckedRow& row : parts[own].rows)
      row.forecast = models::Estimate::log_normal(row.forecast.value, sigmas[own]);
}

// For each device and group: holds out the rows with one value of `value_of` after another (or those with
// `only`).
template <class Row, class GroupOf, class ValueOf>
void each_value(std::vector<Row> Measurements::*member, const Measurements& all, bool inner_only, bool widen,
                const GroupOf& group_of, const ValueOf& value_of, CheckReport& report,
                std::optional<decltype(value_of(std::declval<const Row&>()))> only = {}) {
  using Value = decltype(value_of(std::declval<const Row&>()));
  std::map<std::pair<const Device*, std::string>, std::set<Value>> groups;
  for (const Row& row : all.*member) {
    const Device* device = device_of_gpu(row.origin.gpu);
    const std::string group = device ? group_of(row, *device) : std::string();
    if (!group.empty()) groups[{device, group}].insert(value_of(row));
  }
  for (const auto& [key, values] : groups) {
    if (values.size() < (inner_only ? 3u : 2u)) continue;
    std::vector<CheckReport> parts;
    for (auto value = values.begin(); value != values.end(); ++value) {
      if (inner_only && (value == values.begin() || std::next(value) == values.end())) continue;
      if (only && *value != *only) continue;
      Measurements rest, held;
      for (const Row& row : all.*member) {
        const Device* device = device_of_gpu(row.origin.gpu);
        if (!device) continue;
        const bool mine = device == key.first && group_of(row, *device) == key.second;
        if (mine && value_of(row) == *value)
          (held.*member).push_back(row);
        else if (mine || device != key.first)
          (rest.*member).push_back(row);
      }
      parts.push_back(forecast(*key.first, rest, held));
    }
    if (widen) widen_by_others(parts);
    for (CheckReport& part : parts) append(report, std::move(part));
  }
}

// Whole GPUs: each one with a relative is forecast from its data sheet and the relative's rows alone.
void each_gpu(const Measurements& all, CheckReport& report) {
  const auto rows_of = [&](const Device& device) {
    Measurements own;
    const auto copy = [&](auto member) {
      for (const auto& row : all.*member)
        if (device_of_gpu(row.origin.gpu) == &device) (own.*member).push_back(row);
    };
    copy(&Measurements::collectives);
    copy(&Measurements::gemms);
    copy(&Measurements::grouped);
    return own;
  };
  FitProfileOptions options;
  options.leave_out_shapes = false;
  for (const Device& device : devices()) {
    if (device.relative.empty()) continue;
    Measurements held = rows_of(device);
    // A profile derived from its relative only has laws of collectives inside a domain and of matrix
    // products.
    const Profile relative =
        fit_profile(*find_device(device.relative), rows_of(*find_device(device.relative)), options);
    Profile profile = fit_profile(device, {}, options);
    derive_missing(profile, relative);
    std::erase_if(held.collectives, [&](const CollectiveRow& row) { return !inside_domain(row, profile); });
    if (held.size() > 0) append(report, check_rows(held, [&](const std::string&) { return &profile; }));
  }
}

// Forecasts rank counts measured on one GPU from neighbouring counts on another one with the same links: the
// nearest substitute for leaving out a middle count where no GPU measured three.
void each_sibling(const Measurements& all, CheckReport& report) {
  using Key = std::pair<sim::CollectiveOp, std::string>;  // operation, library
  std::map<const Device*, std::map<Key, Measurements>> rows;
  for (const CollectiveRow& row : all.collectives)
    if (const Device* device = device_of_gpu(row.origin.gpu); device && row.nodes == 1)
      rows[device][{row.op, row.library}].collectives.push_back(row);
  const auto counts_of = [](const Measurements& some) {
    std::set<int> counts;
    for (const CollectiveRow& row : some.collectives) counts.insert(row.ranks());
    return counts;
  };
  for (const Device& device : devices())
    for (const Device& sibling : devices()) {
      if (&device == &sibling || device.limits.scaleup_bandwidth != sibling.limits.scaleup_bandwidth)
        continue;
      Measurements known, held;
      for (const auto& [key, others] : rows[&sibling]) {
        const auto own = rows[&device].find(key);
        if (own == rows[&device].end()) continue;
        const auto counts = counts_of(others);
        for (const CollectiveRow& row : own->second.collectives)
          if (*counts.begin() < row.ranks() && row.ranks() < *counts.rbegin() &&
              !counts.contains(row.ranks()))
            held.collectives.push_back(row);
        known.append(others);
      }
      if (held.size() > 0) append(report, forecast(sibling, known, held));
    }
}

bool inside_domain_of(const Device& device, const CollectiveRow& row) {
  Profile limits;
  limits.device() = device.limits;
  return inside_domain(row, limits);
}

std::string collective_group(const CollectiveRow& row, const Device& device) {
  if (!inside_domain_of(device, row)) return "";
  const std::string group = collective_key(row.op, false) + "@" + row.library;
  return integer_reduction(row) ? group + ",int" : group;
}

// Rows between domains under one law of one network.
struct NetworkGroup {
  std::string network, law;
  auto operator<=>(const NetworkGroup&) const = default;
};

std::optional<NetworkGroup> group_of(const CollectiveRow& row) {
  const Device* device = device_of_gpu(row.origin.gpu);
  const Machine* machine = machine_of(row.origin);
  if (!device || !machine || integer_reduction(row) || inside_domain_of(*device, row)) return std::nullopt;
  return NetworkGroup{std::string(machine->network), collective_key(row.op, true)};
}

std::optional<NetworkGroup> group_of(const DispatchRow& row) {
  const Machine* machine = machine_of(row.origin);
  if (!device_of_gpu(row.origin.gpu) || !machine || !across_domains(row) || suspect(row) || !call_of(row))
    return std::nullopt;
  return NetworkGroup{std::string(machine->network), law_key(row) + std::string(models::kNetworkLaw)};
}

// Rows of one group: those left out together, and the rest of the group.
template <class Row>
struct Part {
  std::vector<Row> held, kept;
};

// Returns one part for a node count, for all but the two smallest counts, for a cluster, or for the whole
// network.
template <class Row>
std::vector<Part<Row>> parts_of(const std::vector<Row>& rows, const std::string& what) {
  std::set<int> nodes;
  for (const Row& row : rows) nodes.insert(row.nodes);
  const auto far = [&](const Row& row) { return nodes.size() > 2 && row.nodes > *std::next(nodes.begin()); };
  const auto name = [&](const Row& row) -> std::string {
    if (what == "nodes") return std::to_string(row.nodes);
    if (what == "networks") return "all";
    if (what == "far") return far(row) ? "far" : "near";
    return std::string(machine_of(row.origin)->name) + ", " +
           row.origin.source.substr(0, row.origin.source.find(' '));
  };
  std::set<std::string> names;
  for (const Row& row : rows) names.insert(name(row));
  names.erase("near");
  std::vector<Part<Row>> parts;
  for (const std::string& one : names) {
    Part<Row> part;
    for (const Row& row : rows) (name(row) == one ? part.held : part.kept).push_back(row);
    // Some rows of the network must be left to fit.
    if (what == "networks" || !part.kept.empty()) parts.push_back(std::move(part));
  }
  return parts;
}

// Takes only the laws inside a domain from the built-in profiles: they were fitted to the rows between
// domains.
template <class Row>
void each_network_of(std::vector<Row> Measurements::*member, const Measurements& all, const std::string& what,
                     CheckReport& report) {
  std::map<NetworkGroup, std::vector<Row>> groups;
  for (const Row& row : all.*member)
    if (const auto group = group_of(row)) groups[*group].push_back(row);
  std::map<std::string, Profile> profiles;
  const auto shipped = [&](const Device& device) -> const Profile& {
    const std::string name(device.profile);
    return profiles.try_emplace(name, Profile::load(name)).first->second;
  };
  for (const auto& entry : groups) {
    const NetworkGroup& group = entry.first;
    for (const Part<Row>& part : parts_of(entry.second, what)) {
      Measurements rest, out;
      out.*member = part.held;
      rest.*member = part.kept;
      for (const auto& [other, others] : groups)
        if (other.law == group.law && other.network != group.network)
          (rest.*member).insert((rest.*member).end(), others.begin(), others.end());
      if ((rest.*member).empty()) continue;
      const std::vector<models::NetworkProfile> fitted = fit_networks(rest, shipped);
      const auto law_of = [&](const std::string& network) -> const ParameterSet* {
        for (const models::NetworkProfile& one : fitted)
          if (one.name == network && one.laws.contains(group.law)) return &one.laws.at(group.law);
        return nullptr;
      };
      const ParameterSet* law = law_of(group.network);
      if (!law) law = law_of(std::string(models::kLineRate));
      if (!law) continue;
      std::map<std::string, Profile> with_law;
      append(report, check_rows(out, [&](const std::string& gpu) -> const Profile* {
               const Device* device = device_of_gpu(gpu);
               const auto [known, added] = with_law.try_emplace(gpu, shipped(*device));
               if (added)
                 known->second.set(group.law, group.law.starts_with("ep/")
                                                  ? models::with_links(*law, known->second, group.law)
                                                  : *law);
               return &known->second;
             }));
    }
  }
}

void each_network(const Measurements& all, const std::string& what, CheckReport& report) {
  each_network_of(&Measurements::collectives, all, what, report);
  each_network_of(&Measurements::dispatches, all, what, report);
}

template <class Row>
void split_by_source(const std::vector<Row>& rows, const std::string& publication, std::vector<Row>& held,
                     std::vector<Row>& rest) {
  for (const Row& row : rows) (publication_of(row.origin.source) == publication ? held : rest).push_back(row);
}

// Profiles and networks fitted without one publication, on demand.
class FittedWithout {
 public:
  explicit FittedWithout(const Measurements& rest) : rest_(rest) {}

  const Profile& profile(const Device& device) {
    const auto [at, added] = profiles_.try_emplace(&device);
    if (!added) return at->second;
    FitProfileOptions options;
    options.leave_out_shapes = false;
    options.networks = false;
    Profile fitted = fit_profile(device, rest_, options);
    for (const Device* relative = &device; !relative->relative.empty();) {
      relative = find_device(relative->relative);
      derive_missing(fitted, profile(*relative), rest_);
    }
    return profiles_.at(&device) = std::move(fitted);
  }

  // Adds the laws of the network of the row's machine.
  const Profile& profile_on(const Device& device, const Machine* machine) {
    const std::string network = machine ? std::string(machine->network) : std::string(models::kLineRate);
    const auto [at, added] = on_network_.try_emplace({&device, network}, profile(device));
    if (!added) return at->second;
    for (const models::NetworkProfile& one : networks())
      if (one.name == network)
        for (const auto& [key, law] : one.laws)
          at->second.set(key, key.starts_with("ep/") ? models::with_links(law, at->second, key) : law);
    return at->second;
  }

 private:
  const std::vector<models::NetworkProfile>& networks() {
    if (networks_.empty())
      networks_ =
          fit_networks(rest_, [&](const Device& device) -> const Profile& { return profile(device); });
    return networks_;
  }

  const Measurements& rest_;
  std::map<const Device*, Profile> profiles_;
  std::map<std::pair<const Device*, std::string>, Profile> on_network_;
  std::vector<models::NetworkProfile> networks_;
};

// Returns whether the fit has a law for the row; for collectives and products there always is one.
template <class Row>
bool has_law(const Row& row, const Profile& profile, bool across) {
  if constexpr (std::is_same_v<Row, DispatchRow>)
    return profile.find(law_key(row) + std::string(across ? models::kNetworkLaw : "")) != nullptr;
  return true;
}

// Checks rows between nodes with the laws of their network, and the others without. Rows whose law no other
// publication has are counted as skipped: the built-in law was fitted to them.
template <class Row, class Across>
void check_without(std::vector<Row> Measurements::*member, const Measurements& held, FittedWithout& without,
                   const Across& across, CheckReport& report) {
  std::map<std::tuple<const Device*, const Machine*, bool>, Measurements> groups;
  for (const Row& row : held.*member) {
    const Device* device = device_of_gpu(row.origin.gpu);
    if (!device) continue;
    const bool between = across(*device, row);
    (groups[{device, between ? machine_of(row.origin) : nullptr, between}].*member).push_back(row);
  }
  for (const auto& [key, rows] : groups) {
    const auto& [device, machine, across_network] = key;
    const bool between = across_network;  // clang-16 captures no structured binding
    const Profile& profile = between ? without.profile_on(*device, machine) : without.profile(*device);
    Measurements known;
    std::ranges::copy_if((rows.*member), std::back_inserter(known.*member),
                         [&](const Row& row) { return has_law(row, profile, between); });
    if (const std::size_t unknown = (rows.*member).size() - (known.*member).size(); unknown > 0)
      report.skipped["no other publication has its law"] += unknown;
    append(report, check_rows(known, [&](const std::string&) { return &profile; }));
  }
}

// Whole publications: everything is fitted without the rows of one, which are forecast.
void each_source(const Measurements& all, CheckReport& report) {
  std::set<std::string> publications;
  all.each_list([&](const auto& rows) {
    for (const auto& row : rows) publications.insert(publication_of(row.origin.source));
  });
  for (const std::string& publication : publications) {
    Measurements held, rest;
    split_by_source(all.collectives, publication, held.collectives, rest.collectives);
    split_by_source(all.gemms, publication, held.gemms, rest.gemms);
    split_by_source(all.grouped, publication, held.grouped, rest.grouped);
    split_by_source(all.ffns, publication, held.ffns, rest.ffns);
    split_by_source(all.dispatches, publication, held.dispatches, rest.dispatches);
    if (rest.size() == 0) continue;
    FittedWithout without(rest);
    const auto inside = [](const Device&, const auto&) { return false; };
    check_without(
        &Measurements::collectives, held, without,
        [](const Device& device, const CollectiveRow& row) { return !inside_domain_of(device, row); },
        report);
    check_without(
        &Measurements::dispatches, held, without,
        [](const Device&, const DispatchRow& row) { return across_domains(row); }, report);
    check_without(&Measurements::gemms, held, without, inside, report);
    check_without(&Measurements::grouped, held, without, inside, report);
    check_without(&Measurements::ffns, held, without, inside, report);
  }
}

}  // namespace

CheckReport leave_out(const Measurements& all, const std::string& what) {
  CheckReport report;
  const auto inside = [](const CollectiveRow& row, const Device& device) {
    return collective_group(row, device);
  };
  const auto ffn_law = [](const FfnRow& row, const Device&) {
    return known_dtype(row.dtype) ? row.dtype + "@" + row.kernel : std::string();
  };
  const auto dispatch_law = [](const DispatchRow& row, const Device&) {
    return call_of(row) ? law_key(row) : std::string();
  };
  const auto decade = [](double value) { return static_cast<int>(std::floor(std::log10(value))); };
  if (what == "sizes") {
    each_value(
        &Measurements::collectives, all, true, false, inside,
        [](const CollectiveRow& row) { return row.bytes; }, report);
  } else if (what == "decades") {
    each_value(
        &Measurements::collectives, all, true, false, inside,
        [&](const CollectiveRow& row) { return decade(row.bytes); }, report);
  } else if (what == "ranks") {
    each_value(
        &Measurements::collectives, all, false, false, inside,
        [](const CollectiveRow& row) { return row.ranks(); }, report);
  } else if (what == "between") {
    each_value(
        &Measurements::collectives, all, true, false, inside,
        [](const CollectiveRow& row) { return row.ranks(); }, report);
    each_sibling(all, report);
  } else if (what == "nodes" || what == "far" || what == "clusters" || what == "networks") {
    each_network(all, what, report);
  } else if (what == "shapes") {
    each_value(
        &Measurements::gemms, all, false, true,
        [](const GemmRow& row, const Device&) {
          return row.sustained || !known_dtype(row.dtype) ? std::string() : row.dtype + "@" + row.kernel;
        },
        [](const GemmRow& row) { return std::pair(row.n, row.k); }, report);
    each_value(
        &Measurements::ffns, all, false, true, ffn_law,
        [](const FfnRow& row) { return std::tuple(row.hidden, row.inter, row.experts); }, report);
  } else if (what == "tokens") {
    each_value(
        &Measurements::ffns, all, true, true, ffn_law,
        [&](const FfnRow& row) { return decade(static_cast<double>(row.tokens)); }, report);
    each_value(
        &Measurements::dispatches, all, true, true, dispatch_law,
        [&](const DispatchRow& row) { return decade(std::max(row.tokens, 1.0)); }, report);
  } else if (what == "ep") {
    each_value(
        &Measurements::dispatches, all, false, false, dispatch_law,
        [](const DispatchRow& row) { return row.ep; }, report);
  } else if (what == "routing") {
    each_value(
        &Measurements::ffns, all, false, true, ffn_law, [](const FfnRow& row) { return row.routing; },
        report);
  } else if (what == "machines" || what == "own") {
    for (OwnRowsCase& one : own_rows_cases(all, false))
      append(report, std::move(what == "own" ? one.after : one.before));
  } else if (what == "gpus") {
    each_gpu(all, report);
  } else if (what == "source") {
    each_source(all, report);
  } else {
    throw InputError("found " + in_quotes(what) + ", expected " + join(kLeaveOut, ", ") + " to leave out");
  }
  if (report.rows.empty() && report.skipped.empty())
    throw InputError("nothing can be left out: every group has one value of " + what);
  return report;
}

}  // namespace moesim::calibration
