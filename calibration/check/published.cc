#include "calibration/check/published.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/json_reader.h"
#include "base/statistics.h"
#include "models/hardware/cluster.h"
#include "models/hardware/embedded_profiles.h"

namespace moesim::calibration {

namespace {

using Published = std::map<std::string, PublishedRows, std::less<>>;

Published read_published() {
  JsonObject file(JsonNode::parse(models::embedded_table("published_quantiles"), "published_quantiles.json"));
  file.string("about", "");
  std::vector<std::string> sources;
  for (const JsonNode& source : file.at("sources").items()) sources.push_back(source.string());
  Published all;
  for (const JsonNode& node : file.at("cells").items()) {
    const std::vector<JsonNode> parts = node.items();
    PublishedRows rows;
    rows.rows = static_cast<int>(parts.at(1).integer(1));
    const std::vector<JsonNode> quantiles = parts.at(2).items();
    for (std::size_t i = 0; i < rows.speed.size(); ++i) rows.speed[i] = quantiles.at(i).number(0);
    for (const JsonNode& source : parts.at(3).items())
      rows.sources.push_back(sources.at(static_cast<std::size_t>(source.integer(0))));
    all.emplace(parts.at(0).string(), std::move(rows));
  }
  file.finish();
  return all;
}

}  // namespace

double PublishedRows::slower_than(double value) const {
  if (value < speed.front()) return 0;
  for (std::size_t i = 1; i < speed.size(); ++i)
    if (value < speed[i]) {
      const double share = (value - speed[i - 1]) / (speed[i] - speed[i - 1]);
      return std::lerp(kShares[i - 1], kShares[i], share);
    }
  return 1;
}

std::string step_cell(const models::Scenario& s) {
  return "step, " + s.cluster->profile.name() + ", " + s.model.name;
}

const PublishedRows* published_rows(const std::string& cell) {
  static const Published all = read_published();
  const auto at = all.find(cell);
  return cell.empty() || at == all.end() ? nullptr : &at->second;
}

const PublishedRows* published_steps(const models::Scenario& s) {
  for (const std::string& cell : {step_cell(s), "step, any, " + s.model.name})
    if (const PublishedRows* rows = published_rows(cell); rows && rows->rows >= kEnoughRows) return rows;
  return nullptr;
}

models::Estimate JudgedRow::usual_bandwidth() const {
  const double forecast = row.bandwidth / speed();
  if (published)
    return {forecast * published->speed[3], forecast * published->speed[1], forecast * published->speed[5]};
  const double bytes = row.bandwidth * row.measured;
  return {forecast, bytes / row.forecast.high, bytes / row.forecast.low};
}

double JudgedRow::ratio() const { return (published ? published->speed[3] : 1) / speed(); }

double share_slower(const models::Estimate& forecast, double time) {
  const double sigma = std::log(forecast.high / forecast.low) / (2 * kZ90);
  return normal_below(std::log(forecast.value / time) / std::max(sigma, 1e-6));
}

JudgedRow judge(const CheckedRow& row) {
  JudgedRow judged{row, published_rows(row.cell), true, 0};
  const double untuned = row.bytes > 0 ? 1 : 1 + kUntuned;
  const bool beyond = row.measured > row.forecast.high * (1 + kSlack) * untuned;
  if (const PublishedRows* all = judged.published) {
    judged.slower = all->slower_than(judged.speed());
    const bool enough = all->rows >= kEnoughRows && all->sources.size() > 1;
    const double least = all->speed[enough ? 3 : 0] / (1 + kSlack);
    judged.normal = judged.speed() >= least || !(enough ? judged.slower < kSlowestShare : beyond);
    return judged;
  }
  judged.slower = share_slower(row.forecast, row.measured);
  judged.normal = !beyond;
  return judged;
}

}  // namespace moesim::calibration
