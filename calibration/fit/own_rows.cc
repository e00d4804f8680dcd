#include "calibration/fit/own_rows.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include "calibration/fit/choose_base.h"
#include "calibration/fit/derive.h"
#include "calibration/fit/fit_dispatch.h"
#include "calibration/fit/fit_networks.h"
#include "calibration/fit/fit_profile.h"
#include "calibration/fit/refine.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/row_laws.h"

namespace moesim::calibration {
namespace {

using models::Profile;

constexpr std::size_t kFewestOthers = 8;  // rows to score

const Profile& shipped(const Device& device) {
  static std::map<std::string, Profile> profiles;
  const std::string name(device.profile);
  const auto found = profiles.find(name);
  return found != profiles.end() ? found->second : profiles.emplace(name, Profile::load(name)).first->second;
}

std::string owner_of(const Origin& origin) {
  return origin.source.substr(0, origin.source.find_first_of(" ,;"));
}

// An owner's clusters differ in their library, and another version chooses other algorithms.
const std::string& library_of(const CollectiveRow& row) { return row.library; }
std::string library_of(const DispatchRow&) { return ""; }

// Takes every n-th of the sorted rows.
template <class Row>
std::set<std::size_t> chosen(const std::vector<Row>& rows, std::size_t count) {
  std::set<std::size_t> result;
  for (std::size_t i = 0; i < count; ++i) result.insert((2 * i + 1) * rows.size() / (2 * count));
  return result;
}

void sort_rows(std::vector<CollectiveRow>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const CollectiveRow& a, const CollectiveRow& b) {
    return std::tuple(a.op, a.nodes, a.gpus_per_node, a.bytes) <
           std::tuple(b.op, b.nodes, b.gpus_per_node, b.bytes);
  });
}
void sort_rows(std::vector<DispatchRow>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const DispatchRow& a, const DispatchRow& b) {
    return std::tuple(law_key(a), a.ep, a.sms, a.hidden, a.tokens) <
           std::tuple(law_key(b), b.ep, b.sms, b.hidden, b.tokens);
  });
}

// The few rows and those on which they are scored.
template <class Row>
bool parted(std::vector<Row> rows, std::vector<Row>& own, std::vector<Row>& held) {
  if (rows.size() < kOwnRows + kFewestOthers) return false;
  sort_rows(rows);
  const auto few = chosen(rows, kOwnRows);
  for (std::size_t i = 0; i < rows.size(); ++i) (few.contains(i) ? own : held).push_back(rows[i]);
  return true;
}

// ---- inside a domain ----

struct InsideKey {
  const Device* device;
  std::string owner, library, law;  // law: empty where all operations count together
  auto operator<=>(const InsideKey&) const = default;
};

void inside(const Measurements& all, bool by_law, std::vector<OwnRowsCase>& cases) {
  std::map<InsideKey, std::vector<CollectiveRow>> machines;
  for (const CollectiveRow& row : all.collectives) {
    const Device* device = device_of_gpu(row.origin.gpu);
    if (!device || integer_reduction(row) || !inside_domain(row, shipped(*device))) continue;
    machines[{device, owner_of(row.origin), row.library, by_law ? collective_key(row.op, false) : ""}]
        .push_back(row);
  }
  for (const auto& [key, rows] : machines) {
    // Operations that another owner measured on this GPU.
    Measurements rest;
    std::set<sim::CollectiveOp> known;
    for (const CollectiveRow& row : all.collectives)
      if (device_of_gpu(row.origin.gpu) == key.device && inside_domain(row, shipped(*key.device)) &&
          (owner_of(row.origin) != key.owner || row.library != key.library)) {
        rest.collectives.push_back(row);
        if (!integer_reduction(row)) known.insert(row.op);
      }
    std::vector<CollectiveRow> usable;
    for (const CollectiveRow& row : rows)
      if (known.contains(row.op)) usable.push_back(row);
    FitProfileOptions options;
    options.leave_out_shapes = options.networks = false;
    Profile base = fit_profile(*key.device, rest, options);
    // A curve does not cover messages far below its own.
    std::erase_if(usable, [&](const CollectiveRow& row) {
      const models::ParameterSet* law = base.find(collective_key(row.op, false));
      return !law || row.bytes < law->range("bytes")->low;
    });
    Measurements own, held;
    if (!parted(usable, own.collectives, held.collectives)) continue;
    derive_missing(base, shipped(*key.device));
    OwnRowsCase one;
    one.gpu = key.device->gpu;
    one.machine = key.owner + ", " + key.library + (by_law ? ", " + key.law : "");
    one.base = key.device->profile;
    one.before = check_rows(held, [&](const std::string&) { return &base; });
    RefineReport report;
    const Profile mine = refine(base, own, report);
    one.after = check_rows(held, [&](const std::string&) { return &mine; });
    cases.push_back(std::move(one));
  }
}

// ---- between domains ----

template <class Row>
using LawOf = std::function<std::string(const Row&)>;

struct NetworkKey {
  std::string network, owner;
  const Device* device;
  std::string library, law;
  auto operator<=>(const NetworkKey&) const = default;
};

template <class Row>
void between(std::vector<Row> Measurements::*member, const Measurements& all, bool by_law, bool choose,
             const LawOf<Row>& law_of, std::vector<OwnRowsCase>& cases) {
  std::map<NetworkKey, std::vector<Row>> machines;
  const auto network_of = [](const Row& row) -> std::string {
    const Machine* machine = machine_of(row.origin);
    if (!machine) return "";
    for (const NetworkFacts& facts : networks())
      if (facts.name == machine->network) return std::string(machine->network);
    return "";
  };
  for (const Row& row : all.*member) {
    const Device* device = device_of_gpu(row.origin.gpu);
    const std::string network = network_of(row);
    if (device && !network.empty() && !law_of(row).empty())
      machines[{network, owner_of(row.origin), device, library_of(row), by_law ? law_of(row) : ""}].push_back(
          row);
  }
  for (auto& [key, rows] : machines) {
    if constexpr (std::is_same_v<Row, CollectiveRow>) rows = fastest_algorithms(rows);
    Measurements own, held, rest;
    bool same_kind = false;
    std::set<std::string> laws;
    for (const Row& row : rows) laws.insert(law_of(row));
    for (const Row& row : all.*member) {
      const std::string law = law_of(row);
      // A law may be bounded by another operation's, so all are fitted where a network is chosen.
      if (!device_of_gpu(row.origin.gpu) || law.empty() || (!choose && !laws.contains(law))) continue;
      // The owner's other GPUs are in other machines.
      if (network_of(row) == key.network && owner_of(row.origin) == key.owner &&
          device_of_gpu(row.origin.gpu) == key.device)
        continue;
      same_kind = same_kind || network_of(row) == key.network;
      (rest.*member).push_back(row);
    }
    if (rows.size() < kOwnRows + kFewestOthers || (rest.*member).empty()) continue;
    const std::vector<models::NetworkProfile> fitted = fit_networks(rest, shipped);
    const auto named = [&](std::string_view name) {
      return std::find_if(fitted.begin(), fitted.end(),
                          [&](const models::NetworkProfile& one) { return one.name == name; });
    };
    // Rows whose law was measured on another machine.
    std::vector<Row> usable;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(usable),
                 [&](const Row& row) { return named(models::kLineRate)->laws.contains(law_of(row)); });
    if (!parted(usable, own.*member, held.*member)) continue;
    models::NetworkProfile base = *named(key.network);
    // Without rows of the network: the pooled law at its line rate.
    for (const auto& [law, set] : named(models::kLineRate)->laws)
      if (!base.laws.contains(law)) {
        base.laws[law] = set;
        base.laws[law].derived = true;
        base.laws[law].rows = 0;
      }
    // The network is treated as unknown: the few rows choose the one with the nearest laws.
    std::vector<models::NetworkProfile> candidates;
    for (models::NetworkProfile candidate : fitted) {
      for (const auto& [law, set] : named(models::kLineRate)->laws)
        if (!candidate.laws.contains(law)) {
          candidate.laws[law] = set;
          candidate.laws[law].derived = true;
          candidate.laws[law].rows = 0;
        }
      // Laws come from the candidate, ports from the machine.
      candidate.ports_per_node = base.ports_per_node;
      candidate.line_rate = base.line_rate;
      candidate.gpus_per_node = base.gpus_per_node;
      candidates.push_back(std::move(candidate));
    }
    std::vector<BaseEvidence> evidence;
    RefineReport report;
    const models::NetworkProfile mine = choose ? refine_nearest(candidates, own, shipped, evidence, report)
                                               : refine(base, own, shipped, report);
    const auto checked = [&](const models::NetworkProfile& network) {
      std::map<std::string, Profile> with_laws;
      return check_rows(held, [&](const std::string& gpu) -> const Profile* {
        const Device* device = device_of_gpu(gpu);
        const auto [at, added] = with_laws.try_emplace(gpu, shipped(*device));
        if (added)
          for (const auto& [law, set] : network.laws)
            at->second.set(law, law.starts_with("ep/") ? models::with_links(set, at->second, law) : set);
        return &at->second;
      });
    };
    OwnRowsCase one;
    one.gpu = key.device->gpu;
    one.machine = key.owner;
    for (const std::string& part : {key.library, key.law})
      if (!part.empty()) one.machine += ", " + part;
    one.base = key.network;
    if (choose) one.nearest = evidence.front().name;
    one.same_kind = same_kind;
    one.before = checked(base);
    one.after = checked(mine);
    cases.push_back(std::move(one));
  }
}

}  // namespace

std::vector<OwnRowsCase> own_rows_cases(const Measurements& all, bool by_law, bool choose) {
  std::vector<OwnRowsCase> cases;
  inside(all, by_law, cases);
  between<CollectiveRow>(
      &Measurements::collectives, all, by_law, choose,
      [](const CollectiveRow& row) -> std::string {
        const Device* device = device_of_gpu(row.origin.gpu);
        if (!device || integer_reduction(row) || inside_domain(row, shipped(*device))) return "";
        return collective_key(row.op, true);
      },
      cases);
  between<DispatchRow>(
      &Measurements::dispatches, all, by_law, choose,
      [](const DispatchRow& row) -> std::string {
        if (!across_domains(row) || suspect(row) || !call_of(row) || seconds_of(row) <= 0) return "";
        return law_key(row) + std::string(models::kNetworkLaw);
      },
      cases);
  return cases;
}

}  // namespace moesim::calibration
