#include "models/answers/portions.h"

#include <algorithm>

namespace moesim::models {

namespace {

using sim::Category;

const Portion kComputing{"computing",
                         {Category::attention, Category::router, Category::permute, Category::expert,
                          Category::unpermute, Category::embedding, Category::loss}};
const Portion kWaiting{"waiting", {Category::straggler_wait}};

}  // namespace

double Portion::us(const Breakdown& breakdown_us) const {
  double sum = 0;
  for (const Category c : categories) sum += breakdown_us[static_cast<std::size_t>(c)];
  return sum;
}

std::vector<Portion> comparable(std::vector<Portion> portions, const Breakdown& a, const Breakdown& b) {
  const double computing = kComputing.us(b) - kComputing.us(a), waiting = kWaiting.us(b) - kWaiting.us(a);
  if (computing * waiting >= 0) return portions;
  Portion one{"computing and waiting for it", kComputing.categories};
  one.categories.insert(one.categories.end(), kWaiting.categories.begin(), kWaiting.categories.end());
  std::erase_if(portions, [&](const Portion& portion) {
    return std::find(one.categories.begin(), one.categories.end(), portion.categories.front()) !=
           one.categories.end();
  });
  portions.push_back(std::move(one));
  return portions;
}

}  // namespace moesim::models
