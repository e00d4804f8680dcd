#include "models/hardware/laws_file.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"

namespace moesim::models {

namespace {

constexpr double kHuge = 1e30;
constexpr std::size_t kMostParameters = 200;
constexpr double kRoundingSlack = 0.05;  // correlations are written with three digits

using Json = nlohmann::ordered_json;

std::vector<double> read_covariance(JsonObject& law, const std::vector<double>& sigmas) {
  const std::size_t n = sigmas.size();
  std::vector<double> covariance(n * n, 0);
  for (std::size_t i = 0; i < n; ++i) covariance[i * n + i] = sigmas[i] * sigmas[i];
  const auto correlation = law.find("correlation");
  if (!correlation) return covariance;
  // Row i holds the correlations with parameters 0 .. i-1.
  const auto rows = correlation->items();
  if (rows.size() != n) correlation->fail(std::to_string(rows.size()) + " rows", std::to_string(n));
  for (std::size_t i = 0; i < n; ++i) {
    const auto cells = rows[i].items();
    if (cells.size() != i) rows[i].fail(std::to_string(cells.size()) + " numbers", std::to_string(i));
    for (std::size_t j = 0; j < i; ++j) {
      const double value = cells[j].number(-1, 1) * sigmas[i] * sigmas[j];
      covariance[i * n + j] = covariance[j * n + i] = value;
    }
  }
  std::vector<double> lower;
  if (!lower_factor(covariance, n, lower)) correlation->fail("a matrix that is no correlation");
  return covariance;
}

// Rounds to the precision of the data: a difference of 10^-6 in a fitted value is noise, and diffs stay
// readable.
double rounded(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10.0, digits - 1 - static_cast<int>(std::floor(std::log10(std::abs(value)))));
  return std::round(value * scale) / scale;
}

}  // namespace

bool lower_factor(const std::vector<double>& matrix, std::size_t n, std::vector<double>& lower) {
  lower.assign(n * n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = matrix[i * n + j];
      for (std::size_t k = 0; k < j; ++k) sum -= lower[i * n + k] * lower[j * n + k];
      if (i == j) {
        const double scale = std::max(matrix[i * n + i], 1e-300);
        if (sum < -kRoundingSlack * scale) return false;
        lower[i * n + i] = std::sqrt(std::max(sum, 0.0));
      } else {
        lower[i * n + j] = lower[j * n + j] > 0 ? sum / lower[j * n + j] : 0;
      }
    }
  }
  return true;
}

ParameterSet read_law(const JsonNode& node) {
  ParameterSet set;
  JsonObject object(node);
  set.law = object.at("law").string();
  const JsonNode parameters = object.at("parameters");
  if (!parameters.is_object()) parameters.fail(parameters.describe(), "an object");
  if (parameters.size() > kMostParameters)
    parameters.fail(std::to_string(parameters.size()) + " parameters",
                    "at most " + std::to_string(kMostParameters));
  std::vector<double> sigmas;
  for (const std::string& name : parameters.keys()) {
    const JsonNode entry = *parameters.find(name);
    set.names.push_back(name);
    if (entry.is_number()) {
      set.values.push_back(entry.number(0, kHuge));
      sigmas.push_back(0);
      continue;
    }
    JsonObject parameter(entry);
    set.values.push_back(parameter.at("value").number(0, kHuge));
    sigmas.push_back(parameter.number("sigma", 0, 0, 10));
    parameter.finish();
  }
  set.covariance = read_covariance(object, sigmas);
  if (const auto domain = object.find("domain")) {
    for (const std::string& quantity : domain->keys()) {
      const JsonNode range = *domain->find(quantity);
      const auto ends = range.items();
      if (ends.size() != 2) range.fail(range.describe(), "[low, high]");
      DomainRange read{quantity, ends[0].number(), ends[1].number()};
      if (read.low > read.high) range.fail("a range that ends before it starts", "[low, high]");
      set.domain.push_back(std::move(read));
    }
  }
  set.residual = object.number("residual", 0, 0, 10);
  set.systematic = object.number("systematic", 0, 0, 10);
  set.rows = static_cast<int>(object.integer("rows", 0, 0, std::numeric_limits<int>::max()));
  set.derived = object.boolean("derived", false);
  set.own_share = object.number("own_share", 0, 0, 1);
  set.source = object.string("source", "");
  object.finish();
  return set;
}

Json write_law(const ParameterSet& set) {
  const std::size_t n = set.names.size();
  Json law;
  law["law"] = set.law;
  Json parameters = Json::object();
  std::vector<double> sigmas(n, 0);
  bool correlated = false;
  for (std::size_t i = 0; i < n; ++i) {
    if (!set.covariance.empty()) sigmas[i] = std::sqrt(set.covariance[i * n + i]);
    parameters[set.names[i]] = {{"value", rounded(set.values[i], 6)}, {"sigma", rounded(sigmas[i], 3)}};
    for (std::size_t j = 0; j < i && !set.covariance.empty(); ++j)
      correlated = correlated || std::abs(set.covariance[i * n + j]) > 5e-4 * sigmas[i] * sigmas[j];
  }
  law["parameters"] = std::move(parameters);
  if (correlated) {
    Json rows = Json::array();
    for (std::size_t i = 0; i < n; ++i) {
      Json row = Json::array();
      for (std::size_t j = 0; j < i; ++j) {
        const double scale = sigmas[i] * sigmas[j];
        row.push_back(scale > 0
                          ? std::clamp(std::round(set.covariance[i * n + j] / scale * 1e3) / 1e3, -1.0, 1.0)
                          : 0.0);
      }
      rows.push_back(std::move(row));
    }
    law["correlation"] = std::move(rows);
  }
  Json domain = Json::object();
  for (const DomainRange& range : set.domain) domain[range.quantity] = {range.low, range.high};
  if (!domain.empty()) law["domain"] = std::move(domain);
  law["residual"] = rounded(set.residual, 4);
  law["systematic"] = rounded(set.systematic, 4);
  law["rows"] = set.rows;
  if (set.derived) law["derived"] = true;
  if (set.own_share > 0) law["own_share"] = rounded(set.own_share, 3);
  law["source"] = set.source;
  return law;
}

}  // namespace moesim::models
