#include "calibration/fit/machine_numbers.h"

#include <algorithm>
#include <map>

#include "base/statistics.h"

namespace moesim::calibration {
namespace {

template <class Profile>
auto number_in(Profile& profile, const std::string& what) -> decltype(&profile.launch().kernel) {
  if (what == "launch") return &profile.launch().kernel;
  if (what == "host_sync") return &profile.launch().host_sync;
  if (what == "smallest_kernel") return &profile.launch().kernel_floor;
  if (what == "d2h_copy") return &profile.launch().d2h_copy;
  if (what == "compute_under_communication") return &profile.overlap().compute_under_communication;
  return nullptr;
}

}  // namespace

std::optional<double> machine_number(const models::Profile& profile, const std::string& what) {
  const double* number = number_in(profile, what);
  return number ? std::optional(*number) : std::nullopt;
}

std::vector<MachineNumber> set_machine_numbers(models::Profile& profile,
                                               const std::vector<Measurements::MachineRow>& rows) {
  std::map<std::string, std::vector<double>> values;
  for (const auto& row : rows) values[row.what].push_back(row.value);
  std::vector<MachineNumber> set;
  for (auto& [what, list] : values) {
    double* number = number_in(profile, what);
    if (!number) continue;
    double after = median(list);
    // Computing is never faster because of other work.
    if (what == "compute_under_communication") after = std::max(1.0, after);
    set.push_back({what, *number, after, list.size()});
    *number = after;
  }
  return set;
}

}  // namespace moesim::calibration
