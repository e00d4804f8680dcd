#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "calibration/fit/fit_collectives.h"
#include "calibration/fit/fit_dispatch.h"
#include "calibration/fit/fit_kernels.h"
#include "calibration/fit/machine_numbers.h"
#include "calibration/fit/refine_law.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/ep_kernel.h"
#include "models/costs/gemm.h"
#include "models/costs/kernels.h"

namespace moesim::calibration {
namespace {

using models::ParameterSet;
using models::Profile;

constexpr std::size_t kOwnCurve = 20;   // rows needed for a new curve where the base has none
constexpr double kOtherElements = 0.2;  // additional error of a law of another element type

std::vector<double> grouped_residuals(const Profile& profile, const std::vector<GroupedGemmRow>& rows) {
  const models::GemmModel model(profile, models::Clocks::kBurst);
  return values_of(rows, [&](const GroupedGemmRow& row) {
    return std::log(model.grouped_seconds(experts_of(row), static_cast<std::int64_t>(row.n),
                                          static_cast<std::int64_t>(row.k), dtype_of(row.dtype), pass_of(row),
                                          backend_of(row)) /
                    row.seconds);
  });
}

class GpuRefining : public Refining {
 public:
  GpuRefining(const Profile& base, RefineReport& report) : Refining(report), base_(base), profile_(base) {}

  Profile run(const Measurements& all) {
    // Kernels of a model have the host's costs as floors and bounds, so these are set first.
    const std::vector<MachineNumber> numbers = set_machine_numbers(profile_, own(all.machine));
    collectives(own(all.collectives));
    products(all);
    ffns(own(all.ffns));
    dispatches(own(all.dispatches));
    kernels(own(all.kernels));
    report_numbers(numbers);
    if (!all.exposed_calls.empty()) skip(Measurements::kExposedAreFitted, all.exposed_calls.size());
    return std::move(profile_);
  }

 private:
  template <class Row>
  std::vector<Row> own(const std::vector<Row>& rows) {
    std::vector<Row> result;
    for (const Row& row : rows)
      if (const std::string why = not_of(base_, row.origin); why.empty())
        result.push_back(row);
      else
        skip(why);
    return result;
  }

  // Returns the law of the rows' library where all have the same, else the profile's own; `key` receives its
  // name.
  const ParameterSet* closest(const std::vector<CollectiveRow>& rows, std::string& key) const {
    for (const std::string& candidate : law_keys(rows.front(), false)) {
      const bool all = std::all_of(rows.begin(), rows.end(), [&](const CollectiveRow& row) {
        const auto keys = law_keys(row, false);
        return std::find(keys.begin(), keys.end(), candidate) != keys.end();
      });
      if (!all || !base_.find(candidate)) continue;
      key = candidate;
      return base_.find(candidate);
    }
    return nullptr;
  }

  // Returns whether a law covers such sizes and ranks.
  static bool covers(const ParameterSet& law, const std::vector<CollectiveRow>& own) {
    constexpr double kNear = 4;
    const models::DomainRange *bytes = law.range("bytes"), *ranks = law.range("ranks");
    return !bytes || !ranks || std::all_of(own.begin(), own.end(), [&](const CollectiveRow& row) {
      return row.bytes * kNear >= bytes->low && row.bytes <= kNear * bytes->high &&
             row.ranks() >= ranks->low && row.ranks() <= ranks->high;
    });
  }

  // Fits a new curve to the rows where the base covers a different range.
  ParameterSet own_curve(const std::vector<CollectiveRow>& own, const ParameterSet& moved) {
    ParameterSet set = fit_size_curve(own);
    set.source = moved.source;
    set.own_share = 1;
    set.rows = static_cast<int>(own.size());
    RefinedLaw& law = report_.laws.back();
    law.own_share = 1;
    law.error_left_out = set.residual;
    return set;
  }

  void collectives(const std::vector<CollectiveRow>& rows) {
    std::vector<CollectiveRow> inside;
    for (const CollectiveRow& row : rows) {
      if (!inside_domain(row, base_))
        skip(kOfNetwork);
      else if (integer_reduction(row))
        skip("integer reductions, which no forecast uses");
      else
        inside.push_back(row);
    }
    if (inside.empty()) return;
    const models::Cluster cluster = cluster_of(base_, nullptr, 1, base_.device().gpus_per_node);
    for (const auto& [op, own] : by_operation(inside)) {
      std::string from;
      const ParameterSet* law = closest(own, from);
      const std::string key = collective_key(op, false);
      if (!law) {
        skip(key + ": the profile has no law to refine", own.size());
        continue;
      }
      ParameterSet moved = take(collective_case(cluster, own, false, *law));
      if (own.size() >= kOwnCurve && !covers(*law, own)) moved = own_curve(own, moved);
      profile_.set(key, std::move(moved));
      if (from != key) profile_.erase(from);  // the refined law now represents this library
    }
  }

  // Takes the case from the first of these laws that the base has; skips the rows without any.
  void from_first(const std::vector<std::string>& bases, LawCase one) {
    const auto known =
        std::find_if(bases.begin(), bases.end(), [&](const std::string& key) { return base_.find(key); });
    if (known == bases.end()) {
      skip(one.key + ": the profile has no law to refine", one.origins.size());
      return;
    }
    one.added = !base_.find(one.key);
    one.before = base_.at(*known);
    if (element_of(*known) != element_of(one.key)) {
      one.before.derived = true;
      one.before.residual = std::max(one.before.residual, kOtherElements);
    }
    profile_.set(one.key, take(one));
  }

  // "bf16" of "grouped_gemm/bf16" and of "gemm/bf16@cublas".
  static std::string_view element_of(std::string_view key) {
    key.remove_prefix(key.find('/') + 1);
    return key.substr(0, key.find('@'));
  }

  // Products of one element type that one law prices.
  struct Products {
    std::vector<GemmRow> dense;
    std::vector<GroupedGemmRow> grouped;
  };

  // Groups products by their law: a loop over experts and a strided batch run the library's dense kernel, and
  // one launch for all experts a kernel of its own.
  std::map<std::string, Products> by_law(const Measurements& all) {
    std::map<std::string, Products> groups;
    for (const GemmRow& row : own(all.gemms))
      if (multiplies(row.dtype))
        groups["gemm/" + std::string(models::name_of(dtype_of(row.dtype)))].dense.push_back(row);
    for (const GroupedGemmRow& row : own(all.grouped))
      if (multiplies(row.dtype)) groups[grouped_law_key(row)].grouped.push_back(row);
    return groups;
  }

  // Returns whether the GPU has matrix units for the element type; otherwise skips a row.
  bool multiplies(const std::string& dtype) {
    const bool known = known_dtype(dtype);
    const bool has = known && base_.device().peak_flops[static_cast<std::size_t>(dtype_of(dtype))] > 0;
    if (!has)
      skip(known ? "products in " + dtype + ", for which the GPU has no matrix units"
                 : "products of an unknown element type");
    return has;
  }

  void products(const Measurements& all) {
    for (const auto& [key, rows] : by_law(all)) {
      const std::string element(element_of(key));
      std::vector<std::string> bases = {key};
      if (!rows.dense.empty())
        for (const std::string& special : law_keys(rows.dense.front())) bases.push_back(special);
      // As models/costs prices a type or a kernel without a law of its own.
      bases.push_back("gemm/" + element);
      if (element == models::name_of(models::DType::kMxFp8)) bases.emplace_back("gemm/fp8");
      bases.emplace_back("gemm/bf16");
      LawCase one;
      one.key = key;
      one.origins = origins_of(rows.dense);
      for (const Origin& origin : origins_of(rows.grouped)) one.origins.push_back(origin);
      one.ranges = {{"m", values_of(rows.dense, [](const GemmRow& r) { return r.m; })},
                    {"n", values_of(rows.dense, [](const GemmRow& r) { return r.n; })},
                    {"k", values_of(rows.dense, [](const GemmRow& r) { return r.k; })}};
      one.residuals = [trial_profile = small_profile(), name = key,
                       own = rows](const ParameterSet& trial) mutable {
        trial_profile.set(name, trial);
        std::vector<double> r = gemm_residuals(trial_profile, own.dense);
        for (const double more : grouped_residuals(trial_profile, own.grouped)) r.push_back(more);
        return r;
      };
      from_first(bases, std::move(one));
      // The refined law now represents these rows' library and clocks.
      for (const GemmRow& row : rows.dense)
        for (const std::string& special : law_keys(row))
          if (special != key && profile_.find(special)) profile_.erase(special);
    }
  }

  void ffns(const std::vector<FfnRow>& rows) {
    std::map<std::string, std::vector<FfnRow>> groups;
    for (const FfnRow& row : rows) {
      const std::string key = known_dtype(row.dtype) ? law_keys(row).front() : "";
      if (!base_.find(key))
        skip("expert FFNs of an element type or kernel that the profile has no law for");
      else
        groups[key].push_back(row);
    }
    for (const auto& [key, own] : groups) {
      LawCase one;
      one.key = key;
      one.before = base_.at(key);
      one.origins = origins_of(own);
      one.ranges = {{"tokens", values_of(own, [](const FfnRow& r) { return r.tokens; })}};
      one.residuals = [trial_profile = small_profile(), name = key,
                       own = own](const ParameterSet& trial) mutable {
        trial_profile.set(name, trial);
        return ffn_residuals(trial_profile, own, name);
      };
      const ParameterSet set = take(one);
      profile_.set(key, set);
      // The grouped products of training are those inside of this kernel (fit_profile.cc).
      const std::string plain = "grouped_gemm/" + key.substr(4, key.find('@') - 4);
      const ParameterSet* inside = base_.find(plain);
      if (!inside || inside->values != one.before.values) continue;
      ParameterSet products = set;
      products.law = inside->law;
      profile_.set(plain, std::move(products));
    }
  }

  void dispatches(const std::vector<DispatchRow>& rows) {
    for (const auto& [key, own] : dispatches_by_law(rows, false)) {
      LawCase one = dispatch_case(key, own);
      if (const ParameterSet* law = base_.find(key)) {
        one.before = *law;
      } else {
        // Falls back to the kernel with other elements: the law counts bytes.
        const std::string prefix = key.substr(0, key.find('@') + 1);
        for (const auto& [other, set] : base_.sets())
          if (other.starts_with(prefix) && !other.ends_with(models::kNetworkLaw)) {
            one.before = set;
            one.before.derived = true;
            one.before.residual = std::max(one.before.residual, kOtherElements);
          }
        one.added = true;
      }
      if (one.before.names.empty()) {
        ParameterSet set = fit_dispatch(base_, own, key);
        set.systematic = kOtherElements;
        set.own_share = 1;
        profile_.set(key, set);
        report_.rows += own.size();
        RefinedLaw law;
        law.key = key;
        law.rows = static_cast<int>(own.size());
        law.own_share = 1;
        law.added = true;
        report_.laws.push_back(law);
        continue;
      }
      one.residuals = [trial_profile = small_profile(), name = key,
                       own = own](const ParameterSet& trial) mutable {
        trial_profile.set(name, trial);
        const models::EpKernelModel model(trial_profile, name, trial_profile.device().nic_bandwidth);
        return values_of(own, [&](const DispatchRow& row) {
          return std::log(model.seconds(*call_of(row)) / seconds_of(row));
        });
      };
      profile_.set(key, take(one));
    }
  }

  // An unmeasured class starts from its estimated share.
  ParameterSet judged(models::KernelClass kind) const {
    ParameterSet set;
    set.law = "memory-bound";
    set.names = {"floor", "share"};
    set.values = {std::max(profile_.launch().kernel_floor, 1e-7), models::judged_share(kind)};
    const double sigma = models::kUnmeasuredKernelSigma;
    set.covariance = {sigma * sigma, 0, 0, sigma * sigma};
    set.residual = kMostScatter;
    set.source = "judged (models/costs/kernels.cc)";
    return set;
  }

  void kernels(const std::vector<Measurements::KernelRow>& rows) {
    std::map<std::string, std::vector<Measurements::KernelRow>> groups;
    for (const auto& row : rows) {
      if (!models::parse_kernel_class(row.kernel))
        skip("kernels of an unknown class");
      else
        groups[row.kernel].push_back(row);
    }
    for (const auto& [name, own] : groups) {
      const models::KernelClass kind = *models::parse_kernel_class(name);
      LawCase one;
      one.key = "kernel/" + name;
      const ParameterSet* law = base_.find(one.key);
      one.before = law ? *law : judged(kind);
      one.added = !law;
      one.origins = origins_of(own);
      one.ranges = {{"bytes", values_of(own, [](const auto& r) { return r.bytes; })}};
      one.residuals = [trial_profile = small_profile(), key = one.key, kind,
                       own = own](const ParameterSet& trial) mutable {
        trial_profile.set(key, trial);
        const models::KernelModel model(trial_profile);
        return values_of(own, [&](const auto& row) {
          return std::log(model.seconds(kind, row.bytes, 0, row.launches) / row.seconds);
        });
      };
      profile_.set(one.key, take(one));
    }
  }

  void report_numbers(const std::vector<MachineNumber>& numbers) {
    for (const MachineNumber& number : numbers) {
      RefinedLaw law;
      law.key = "machine/" + number.what;
      law.rows = static_cast<int>(number.rows);
      law.own_share = 1;
      law.moved = number.before > 0 ? std::log(number.after / number.before) : 0;
      law.moved_sigma = law.moved / kHostSigma;
      law.error_before = std::abs(law.moved);
      report_.rows += number.rows;
      report_.laws.push_back(law);
    }
  }

  // Inputs of the single kernels' models besides the trial law: the device's limits and its host's costs as
  // measured.
  Profile small_profile() const {
    Profile small;
    small.describe(base_.name(), base_.gpu(), "", {});
    small.device() = base_.device();
    small.launch() = profile_.launch();
    return small;
  }

  const Profile& base_;
  Profile profile_;
};

}  // namespace

std::string not_of(const Profile& profile, const Origin& origin) {
  if (origin.gpu == profile.gpu()) return "";
  const Device* device = device_of_gpu(origin.gpu);
  if (!device)
    return "rows of " + in_quotes(origin.gpu) +
           ", a GPU without a profile (calibrate import --gpu says of which)";
  return device == device_of_gpu(profile.gpu()) ? "" : "rows of another GPU than " + profile.gpu();
}

Profile refine(const Profile& base, const Measurements& rows, RefineReport& report) {
  return GpuRefining(base, report).run(rows);
}

}  // namespace moesim::calibration
