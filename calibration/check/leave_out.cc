#include "calibration/check/leave_out.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/input_error.h"
#include "base/text.h"
#include "calibration/fit/derive.h"
#include "calibration/fit/fit_dispatch.h"
#include "calibration/fit/fit_networks.h"
#include "calibration/fit/fit_profile.h"
#include "calibration/fit/least_squares.h"
#include "calibration/fit/refine.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/row_laws.h"
#include "models/hardware/network.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

std::string publication_of(std::string_view source) {
  constexpr std::string_view kArxiv = "arXiv ";
  if (source.starts_with(kArxiv))
    return std::string(source.substr(0, source.find_first_of(" (,", kArxiv.size())));
  return std::string(source.substr(0, source.find_first_of(" (,")));
}

namespace {

using models::NetworkProfile;
using models::ParameterSet;
using models::Profile;
using Laws = decltype(NetworkProfile::laws);

template <class Row>
using List = std::vector<Row> Measurements::*;

FitProfileOptions plain_fit(bool networks = true) {
  FitProfileOptions options;
  options.leave_out_shapes = false;
  options.networks = networks;
  return options;
}

void append(CheckReport& report, CheckReport part) {
  report.rows.insert(report.rows.end(), std::make_move_iterator(part.rows.begin()),
                     std::make_move_iterator(part.rows.end()));
  for (const auto& [reason, count] : part.skipped) report.skipped[reason] += count;
}

CheckReport check_under(const Measurements& rows, const Profile& profile) {
  return check_rows(rows, [&](const std::string&) { return &profile; });
}

void set_law(Profile& profile, const std::string& key, const ParameterSet& law) {
  profile.set(key, key.starts_with("ep/") ? models::with_links(law, profile, key) : law);
}

// Checks rows between domains of any GPU under laws of a network; what is inside a domain comes from the
// built-in profiles, which were fitted to the rows between domains as well.
CheckReport check_on_network(const Measurements& rows, const Laws& laws) {
  std::map<std::string, Profile> with_laws;
  return check_rows(rows, [&](const std::string& gpu) -> const Profile* {
    const auto [at, added] = with_laws.try_emplace(gpu, built_in(*device_of_gpu(gpu)));
    if (added)
      for (const auto& [key, law] : laws) set_law(at->second, key, law);
    return &at->second;
  });
}

const NetworkProfile* named(const std::vector<NetworkProfile>& networks, std::string_view name) {
  const auto at = std::ranges::find(networks, name, &NetworkProfile::name);
  return at == networks.end() ? nullptr : &*at;
}

// The rows that a refit reads, for which `is_held` holds, and the others.
template <class IsHeld>
std::pair<Measurements, Measurements> split(const Measurements& all, const IsHeld& is_held) {
  std::pair<Measurements, Measurements> parts;
  const auto split_list = [&](auto list) {
    for (const auto& row : all.*list)
      ((is_held(row.origin) ? parts.first : parts.second).*list).push_back(row);
  };
  split_list(&Measurements::collectives);
  split_list(&Measurements::gemms);
  split_list(&Measurements::grouped);
  split_list(&Measurements::ffns);
  split_list(&Measurements::dispatches);
  return parts;
}

// ---- one value of a GPU's rows ----

// Forecasts `held` from a fit of `rest`; rows of other devices in `rest` may help the fit.
CheckReport forecast(const Device& device, const Measurements& rest, const Measurements& held) {
  Profile profile = fit_profile(device, rest, plain_fit());
  // Cost models need the main collective laws even where only one operation was measured. A law of the held
  // operation itself never comes from the built-in profile, which was fitted to these rows.
  if (!held.collectives.empty()) {
    const Profile& shipped = built_in(device);
    const CollectiveRow& row = held.collectives.front();
    const std::string key = collective_key(row.op, !inside_domain(row, shipped));
    if (!device.relative.empty()) {
      const Profile& relative = built_in(*find_device(device.relative));
      if (const ParameterSet* law = relative.find(key)) {
        Profile only;
        only.describe(relative.name(), relative.gpu(), "", {});
        only.device() = relative.device();
        only.set(key, *law);
        derive_missing(profile, only, rest);
      }
    }
    if (std::ranges::any_of(profile.sets(), [&](const auto& one) { return one.first.starts_with(key); }))
      derive_missing(profile, shipped);
  }
  return check_under(held, profile);
}

// Intervals as from a fit of the other values: `systematic` of a law comes from leaving out one value after
// another, here from all parts but its own.
void widen_by_others(std::vector<CheckReport>& parts) {
  if (parts.size() < 3) return;
  std::vector<double> sigmas;
  for (const CheckReport& own : parts) {
    std::vector<double> residuals;
    for (const CheckReport& other : parts)
      if (&other != &own)
        for (const CheckedRow& row : other.rows)
          residuals.push_back(std::log(row.forecast.value / row.measured));
    sigmas.push_back(covering_sigma(residuals));
  }
  for (std::size_t own = 0; own < parts.size(); ++own)
    for (CheckedRow& row : parts[own].rows)
      row.forecast = models::Estimate::log_normal(row.forecast.value, sigmas[own]);
}

enum class Values { kAll, kInner };
enum class Intervals { kOwn, kOfOthers };

// For each device and group: holds out the rows with one value of `value_of` after another. Rows of group ""
// belong to none.
template <class Row, class GroupOf, class ValueOf>
void each_value(List<Row> list, const Measurements& all, Values which, Intervals intervals,
                const GroupOf& group_of, const ValueOf& value_of, CheckReport& report) {
  using Value = decltype(value_of(std::declval<const Row&>()));
  std::map<std::pair<const Device*, std::string>, std::set<Value>> groups;
  for (const Row& row : all.*list) {
    const Device* device = device_of_gpu(row.origin.gpu);
    const std::string group = device ? group_of(row, *device) : std::string();
    if (!group.empty()) groups[{device, group}].insert(value_of(row));
  }
  const bool inner = which == Values::kInner;
  for (const auto& [key, values] : groups) {
    if (values.size() < (inner ? 3u : 2u)) continue;
    std::vector<CheckReport> parts;
    for (auto value = values.begin(); value != values.end(); ++value) {
      if (inner && (value == values.begin() || std::next(value) == values.end())) continue;
      Measurements rest, held;
      for (const Row& row : all.*list) {
        const Device* device = device_of_gpu(row.origin.gpu);
        if (!device) continue;
        const bool mine = device == key.first && group_of(row, *device) == key.second;
        if (mine && value_of(row) == *value)
          (held.*list).push_back(row);
        else if (mine || device != key.first)
          (rest.*list).push_back(row);
      }
      parts.push_back(forecast(*key.first, rest, held));
    }
    if (intervals == Intervals::kOfOthers) widen_by_others(parts);
    for (CheckReport& part : parts) append(report, std::move(part));
  }
}

// Whole GPUs: each one with a relative is forecast from its data sheet and the relative's rows alone.
void each_gpu(const Measurements& all, CheckReport& report) {
  // A profile derived from its relative only has laws of collectives inside a domain and of products.
  const auto rows_of = [&](const Device& device) {
    Measurements own =
        split(all, [&](const Origin& origin) { return device_of_gpu(origin.gpu) == &device; }).first;
    own.ffns.clear();
    own.dispatches.clear();
    return own;
  };
  for (const Device& device : devices()) {
    if (device.relative.empty()) continue;
    const Device& relative = *find_device(device.relative);
    Profile profile = fit_profile(device, {}, plain_fit());
    derive_missing(profile, fit_profile(relative, rows_of(relative), plain_fit()));
    Measurements held = rows_of(device);
    std::erase_if(held.collectives, [&](const CollectiveRow& row) { return !inside_domain(row, profile); });
    if (held.size() > 0) append(report, check_under(held, profile));
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
  for (const Device& device : devices())
    for (const Device& sibling : devices()) {
      if (&device == &sibling || device.limits.scaleup_bandwidth != sibling.limits.scaleup_bandwidth)
        continue;
      Measurements known, held;
      for (const auto& [key, others] : rows[&sibling]) {
        const auto own = rows[&device].find(key);
        if (own == rows[&device].end()) continue;
        std::set<int> counts;
        for (const CollectiveRow& row : others.collectives) counts.insert(row.ranks());
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

// ---- parts of a network's rows ----

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
  const auto name = [&](const Row& row) -> std::string {
    if (what == "nodes") return std::to_string(row.nodes);
    if (what == "networks") return "all";
    if (what == "far") return nodes.size() > 2 && row.nodes > *std::next(nodes.begin()) ? "far" : "near";
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

template <class Row>
void each_network(List<Row> list, const Measurements& all, const std::string& what, CheckReport& report) {
  std::map<NetworkGroup, std::vector<Row>> groups;
  for (const Row& row : all.*list)
    if (const auto group = group_of(row)) groups[*group].push_back(row);
  for (const auto& [group, rows] : groups)
    for (const Part<Row>& part : parts_of(rows, what)) {
      Measurements rest, out;
      out.*list = part.held;
      rest.*list = part.kept;
      for (const auto& [other, others] : groups)
        if (other.law == group.law && other.network != group.network)
          (rest.*list).insert((rest.*list).end(), others.begin(), others.end());
      if ((rest.*list).empty()) continue;
      const std::vector<NetworkProfile> fitted = fit_networks(rest, built_in);
      for (const std::string& network : {group.network, std::string(models::kLineRate)})
        if (const NetworkProfile* one = named(fitted, network); one && one->laws.contains(group.law)) {
          append(report, check_on_network(out, {{group.law, one->laws.at(group.law)}}));
          break;
        }
    }
}

// ---- whole publications ----

// Profiles and networks fitted without one publication, on demand.
class FittedWithout {
 public:
  explicit FittedWithout(const Measurements& rest) : rest_(rest) {}

  const Profile& profile(const Device& device) {
    const auto [at, added] = profiles_.try_emplace(&device);
    if (!added) return at->second;
    Profile fitted = fit_profile(device, rest_, plain_fit(false));
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
    if (networks_.empty())
      networks_ = fit_networks(rest_, [&](const Device& of) -> const Profile& { return profile(of); });
    if (const NetworkProfile* one = named(networks_, network))
      for (const auto& [key, law] : one->laws) set_law(at->second, key, law);
    return at->second;
  }

 private:
  const Measurements& rest_;
  std::map<const Device*, Profile> profiles_;
  std::map<std::pair<const Device*, std::string>, Profile> on_network_;
  std::vector<NetworkProfile> networks_;
};

// Checks rows between nodes with the laws of their network, and the others without. Rows whose law no other
// publication has are counted as skipped: the built-in law was fitted to them. For collectives and products
// there always is one.
template <class Row, class Across>
void check_without(List<Row> list, const Measurements& held, FittedWithout& without, const Across& across,
                   CheckReport& report) {
  std::map<std::tuple<const Device*, const Machine*, bool>, std::vector<Row>> groups;
  for (const Row& row : held.*list) {
    const Device* device = device_of_gpu(row.origin.gpu);
    if (!device) continue;
    const bool between = across(*device, row);
    groups[{device, between ? machine_of(row.origin) : nullptr, between}].push_back(row);
  }
  for (const auto& [key, rows] : groups) {
    const bool between = std::get<bool>(key);
    const Device& device = *std::get<0>(key);
    const Profile& profile = between ? without.profile_on(device, std::get<1>(key)) : without.profile(device);
    Measurements known;
    for (const Row& row : rows) {
      if constexpr (std::is_same_v<Row, DispatchRow>)
        if (!profile.find(law_key(row) + std::string(between ? models::kNetworkLaw : ""))) {
          ++report.skipped["no other publication has its law"];
          continue;
        }
      (known.*list).push_back(row);
    }
    append(report, check_under(known, profile));
  }
}

// Everything is fitted without the rows of one publication, which are forecast.
void each_source(const Measurements& all, CheckReport& report) {
  std::set<std::string> publications;
  all.each_list([&](const auto& rows) {
    for (const auto& row : rows) publications.insert(publication_of(row.origin.source));
  });
  for (const std::string& publication : publications) {
    const auto [held, rest] =
        split(all, [&](const Origin& origin) { return publication_of(origin.source) == publication; });
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

// ---- machines with a few rows of their own ----

constexpr std::size_t kFewestOthers = 8;  // rows to score

std::string owner_of(const Origin& origin) {
  return origin.source.substr(0, origin.source.find_first_of(" ,;"));
}

// An owner's clusters differ in their library, and another version chooses other algorithms.
const std::string& library_of(const CollectiveRow& row) { return row.library; }
std::string library_of(const DispatchRow&) { return ""; }

auto order_of(const CollectiveRow& r) { return std::tuple(r.op, r.nodes, r.gpus_per_node, r.bytes); }
auto order_of(const DispatchRow& r) { return std::tuple(law_key(r), r.ep, r.sms, r.hidden, r.tokens); }

// Every n-th of the sorted rows, and those on which they are scored.
template <class Row>
bool few_and_others(std::vector<Row> rows, std::vector<Row>& own, std::vector<Row>& held) {
  if (rows.size() < kOwnRows + kFewestOthers) return false;
  std::ranges::stable_sort(rows, [](const Row& a, const Row& b) { return order_of(a) < order_of(b); });
  std::set<std::size_t> few;
  for (std::size_t i = 0; i < kOwnRows; ++i) few.insert((2 * i + 1) * rows.size() / (2 * kOwnRows));
  for (std::size_t i = 0; i < rows.size(); ++i) (few.contains(i) ? own : held).push_back(rows[i]);
  return true;
}

// A machine's rows on one GPU; the law is empty where all operations count together.
struct MachineKey {
  std::string network;  // empty inside a domain
  std::string owner;
  const Device* device;
  std::string library, law;
  auto operator<=>(const MachineKey&) const = default;
};

void own_inside(const Measurements& all, bool by_law, std::vector<OwnRowsCase>& cases) {
  std::map<std::pair<const Device*, MachineKey>, std::vector<CollectiveRow>> machines;
  for (const CollectiveRow& row : all.collectives) {
    const Device* device = device_of_gpu(row.origin.gpu);
    if (!device || integer_reduction(row) || !inside_domain(row, built_in(*device))) continue;
    const std::string law = by_law ? collective_key(row.op, false) : "";
    machines[{device, {"", owner_of(row.origin), device, row.library, law}}].push_back(row);
  }
  for (const auto& [device_and_key, rows] : machines) {
    const MachineKey& key = device_and_key.second;
    // Operations that another owner measured on this GPU.
    Measurements rest;
    std::set<sim::CollectiveOp> known;
    for (const CollectiveRow& row : all.collectives)
      if (device_of_gpu(row.origin.gpu) == key.device && inside_domain(row, built_in(*key.device)) &&
          (owner_of(row.origin) != key.owner || row.library != key.library)) {
        rest.collectives.push_back(row);
        if (!integer_reduction(row)) known.insert(row.op);
      }
    Profile base = fit_profile(*key.device, rest, plain_fit(false));
    // A curve does not cover messages far below its own.
    std::vector<CollectiveRow> usable = rows;
    std::erase_if(usable, [&](const CollectiveRow& row) {
      const ParameterSet* law = base.find(collective_key(row.op, false));
      return !known.contains(row.op) || !law || row.bytes < law->range("bytes")->low;
    });
    Measurements own, held;
    if (!few_and_others(usable, own.collectives, held.collectives)) continue;
    derive_missing(base, built_in(*key.device));
    RefineReport report;
    cases.push_back({std::string(key.device->gpu),
                     key.owner + ", " + key.library + (by_law ? ", " + key.law : ""),
                     std::string(key.device->profile), "", check_under(held, base),
                     check_under(held, refine(base, own, report))});
  }
}

template <class Row, class LawOf>
void own_between(List<Row> list, const Measurements& all, bool by_law, bool choose, const LawOf& law_of,
                 std::vector<OwnRowsCase>& cases) {
  const auto network_of = [](const Row& row) -> std::string {
    const Machine* machine = machine_of(row.origin);
    const bool known = machine && std::ranges::count(networks(), machine->network, &NetworkFacts::name) > 0;
    return known ? std::string(machine->network) : "";
  };
  std::map<MachineKey, std::vector<Row>> machines;
  for (const Row& row : all.*list) {
    const Device* device = device_of_gpu(row.origin.gpu);
    const std::string network = network_of(row), law = law_of(row);
    if (device && !network.empty() && !law.empty())
      machines[{network, owner_of(row.origin), device, library_of(row), by_law ? law : ""}].push_back(row);
  }
  for (auto& [key, rows] : machines) {
    if constexpr (std::is_same_v<Row, CollectiveRow>) rows = fastest_algorithms(rows);
    Measurements own, held, rest;
    std::set<std::string> laws;
    for (const Row& row : rows) laws.insert(law_of(row));
    for (const Row& row : all.*list) {
      const Device* device = device_of_gpu(row.origin.gpu);
      const std::string law = law_of(row);
      // A law may be bounded by another operation's, so all are fitted where a network is chosen. The owner's
      // other GPUs are in other machines.
      if (device && !law.empty() && (choose || laws.contains(law)) &&
          (network_of(row) != key.network || owner_of(row.origin) != key.owner || device != key.device))
        (rest.*list).push_back(row);
    }
    if (rows.size() < kOwnRows + kFewestOthers || (rest.*list).empty()) continue;
    const std::vector<NetworkProfile> fitted = fit_networks(rest, built_in);
    const NetworkProfile& pooled = *named(fitted, models::kLineRate);
    // Rows whose law was measured on another machine.
    std::vector<Row> usable;
    std::ranges::copy_if(rows, std::back_inserter(usable),
                         [&](const Row& row) { return pooled.laws.contains(law_of(row)); });
    if (!few_and_others(usable, own.*list, held.*list)) continue;
    // Without rows of a network: the pooled law at its line rate.
    const auto completed = [&](NetworkProfile network) {
      for (const auto& [law, set] : pooled.laws)
        if (const auto [at, added] = network.laws.try_emplace(law, set); added) {
          at->second.derived = true;
          at->second.rows = 0;
        }
      return network;
    };
    const NetworkProfile base = completed(*named(fitted, key.network));
    std::vector<BaseEvidence> evidence;
    RefineReport report;
    NetworkProfile mine;
    if (choose) {
      // The network is treated as unknown: the few rows choose the one with the nearest laws. Laws come from
      // the candidate, ports from the machine.
      std::vector<NetworkProfile> candidates;
      for (const NetworkProfile& one : fitted) {
        NetworkProfile& candidate = candidates.emplace_back(completed(one));
        candidate.ports_per_node = base.ports_per_node;
        candidate.line_rate = base.line_rate;
        candidate.gpus_per_node = base.gpus_per_node;
      }
      mine = refine_nearest(candidates, own, built_in, evidence, report);
    } else {
      mine = refine(base, own, built_in, report);
    }
    std::string machine = key.owner;
    for (const std::string& part : {key.library, key.law})
      if (!part.empty()) machine += ", " + part;
    cases.push_back({std::string(key.device->gpu), machine, key.network, choose ? evidence.front().name : "",
                     check_on_network(held, base.laws), check_on_network(held, mine.laws)});
  }
}

}  // namespace

std::vector<OwnRowsCase> own_rows_cases(const Measurements& all, bool by_law, bool choose) {
  std::vector<OwnRowsCase> cases;
  own_inside(all, by_law, cases);
  own_between(
      &Measurements::collectives, all, by_law, choose,
      [](const CollectiveRow& row) -> std::string {
        const Device* device = device_of_gpu(row.origin.gpu);
        if (!device || integer_reduction(row) || inside_domain(row, built_in(*device))) return "";
        return collective_key(row.op, true);
      },
      cases);
  own_between(
      &Measurements::dispatches, all, by_law, choose,
      [](const DispatchRow& row) -> std::string {
        if (!across_domains(row) || suspect(row) || !call_of(row) || seconds_of(row) <= 0) return "";
        return law_key(row) + std::string(models::kNetworkLaw);
      },
      cases);
  return cases;
}

CheckReport leave_out(const Measurements& all, const std::string& what) {
  CheckReport report;
  const auto decade = [](double value) { return static_cast<int>(std::floor(std::log10(value))); };
  const auto ranks = [](const CollectiveRow& row) { return row.ranks(); };
  const auto collectives = [&](Values which, const auto& value_of) {
    const auto group = [](const CollectiveRow& row, const Device& device) -> std::string {
      if (!inside_domain_of(device, row)) return "";
      return collective_key(row.op, false) + "@" + row.library + (integer_reduction(row) ? ",int" : "");
    };
    each_value(&Measurements::collectives, all, which, Intervals::kOwn, group, value_of, report);
  };
  const auto ffns = [&](Values which, const auto& value_of) {
    const auto group = [](const FfnRow& row, const Device&) {
      return known_dtype(row.dtype) ? row.dtype + "@" + row.kernel : std::string();
    };
    each_value(&Measurements::ffns, all, which, Intervals::kOfOthers, group, value_of, report);
  };
  const auto dispatches = [&](Values which, Intervals intervals, const auto& value_of) {
    const auto group = [](const DispatchRow& row, const Device&) {
      return call_of(row) ? law_key(row) : std::string();
    };
    each_value(&Measurements::dispatches, all, which, intervals, group, value_of, report);
  };
  if (what == "sizes") {
    collectives(Values::kInner, [](const CollectiveRow& row) { return row.bytes; });
  } else if (what == "decades") {
    collectives(Values::kInner, [&](const CollectiveRow& row) { return decade(row.bytes); });
  } else if (what == "ranks") {
    collectives(Values::kAll, ranks);
  } else if (what == "between") {
    collectives(Values::kInner, ranks);
    each_sibling(all, report);
  } else if (what == "nodes" || what == "far" || what == "clusters" || what == "networks") {
    each_network(&Measurements::collectives, all, what, report);
    each_network(&Measurements::dispatches, all, what, report);
  } else if (what == "shapes") {
    const auto group = [](const GemmRow& row, const Device&) {
      return row.sustained || !known_dtype(row.dtype) ? std::string() : row.dtype + "@" + row.kernel;
    };
    each_value(
        &Measurements::gemms, all, Values::kAll, Intervals::kOfOthers, group,
        [](const GemmRow& row) { return std::pair(row.n, row.k); }, report);
    ffns(Values::kAll, [](const FfnRow& row) { return std::tuple(row.hidden, row.inter, row.experts); });
  } else if (what == "tokens") {
    ffns(Values::kInner, [&](const FfnRow& row) { return decade(static_cast<double>(row.tokens)); });
    dispatches(Values::kInner, Intervals::kOfOthers,
               [&](const DispatchRow& row) { return decade(std::max(row.tokens, 1.0)); });
  } else if (what == "ep") {
    dispatches(Values::kAll, Intervals::kOwn, [](const DispatchRow& row) { return row.ep; });
  } else if (what == "routing") {
    ffns(Values::kAll, [](const FfnRow& row) { return row.routing; });
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
