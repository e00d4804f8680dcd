#include "models/answers/breakdown_parts.h"

#include <algorithm>

namespace moesim::models {

namespace {

using sim::Category;

const BreakdownPart kComputing{"computing",
                               {Category::attention, Category::router, Category::permute, Category::expert,
                                Category::unpermute, Category::embedding, Category::loss}};
const BreakdownPart kWaiting{"waiting", {Category::straggler_wait}};

}  // namespace

double BreakdownPart::us(const Breakdown& breakdown_us) const {
  double sum = 0;
  for (const Category c : categories) sum += breakdown_us[static_cast<std::size_t>(c)];
  return sum;
}

std::vector<BreakdownPart> comparable_parts(std::vector<BreakdownPart> parts, const Breakdown& a,
                                            const Breakdown& b) {
  const double computing = kComputing.us(b) - kComputing.us(a), waiting = kWaiting.us(b) - kWaiting.us(a);
  if (computing * waiting >= 0) return parts;
  BreakdownPart one{"computing and waiting for it", kComputing.categories};
  one.categories.insert(one.categories.end(), kWaiting.categories.begin(), kWaiting.categories.end());
  std::erase_if(parts, [&](const BreakdownPart& part) {
    return std::find(one.categories.begin(), one.categories.end(), part.categories.front()) !=
           one.categories.end();
  });
  parts.push_back(std::move(one));
  return parts;
}

}  // namespace moesim::models
