#include "models/hardware/ownership.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json_reader.h"
#include "models/hardware/cluster.h"
#include "models/hardware/price_text.h"
#include "models/hardware/rental_list.h"
#include "models/workload/fields.h"

namespace moesim::models {
namespace {

// 16 GPUs of DGX H100, 10.2 kW a node: 20.4 kW.
struct TwoNodes {
  Cluster cluster = Cluster::load("dgx-h100x2");
  PriceTable rent;
  Ownership own;
  HourCost hour() const { return hour_cost(rent, own, cluster, 16); }
};

// At the share from which it pays, an hour of work costs what it costs rented.
TEST(Ownership, PaysFromWhereItCostsTheRent) {
  TwoNodes m;
  m.rent = parse_prices("2.5");
  m.own.buy = parse_prices("35000", Ownership::kKeys);
  m.own.kwh = 0.08;
  const double share = m.hour().pays_from;
  ASSERT_GT(share, 0.1);
  ASSERT_LT(share, 1);
  m.own.idle_share = 1 - share;
  EXPECT_NEAR(m.hour().total(), m.hour().rent, 1e-9);
  EXPECT_NEAR(m.hour().rent, 16 * 2.5, 1e-12);
  m.rent = parse_prices("0.01");
  EXPECT_GT(m.hour().pays_from, 1);
}

TEST(Ownership, WhatIsNotBoughtIsRented) {
  TwoNodes m;
  m.rent = parse_prices("h100=2,b200=5");
  m.own.buy = parse_prices("b200=50000", Ownership::kKeys);
  m.own.kwh = 0.1;
  EXPECT_FALSE(m.hour().bought);
  EXPECT_DOUBLE_EQ(m.hour().total(), 32);  // the rent has its power in it where others are bought
  EXPECT_TRUE(hour_cost(m.rent, m.own, Cluster::load("dgx-b200x2"), 16).bought);
  m.own.buy = {};
  EXPECT_NEAR(m.hour().total(), 32 + 20.4 * Ownership::kPue * 0.1, 1e-9);
  m.own.buy = PriceTable::parse(JsonNode::parse(R"({"node": 300000})", "b.json"), Ownership::kKeys);
  EXPECT_DOUBLE_EQ(m.hour().purchase, 600'000);
  EXPECT_TRUE(has_price({}, m.own, m.cluster));
  EXPECT_FALSE(has_price({}, {}, m.cluster));
}

// The help says what is used.
TEST(Ownership, DefaultsStandInTheTableOfFields) {
  EXPECT_EQ(find_field("ownership.years")->fallback, std::to_string(static_cast<int>(Ownership::kYears)));
  EXPECT_EQ(std::stod(std::string(find_field("ownership.pue")->fallback)), Ownership::kPue);
}

// A node takes more than its GPUs' boards, whose other parts no data sheet says for all.
TEST(RentalList, NodesTakeMoreThanTheirBoards) {
  const RentalList& list = RentalList::shipped();
  for (const std::string& profile : Profile::names()) {
    ASSERT_TRUE(list.watts.contains(profile)) << profile;
    const double ratio = list.node_watts_of(profile) / list.watts.at(profile).value;
    EXPECT_GT(ratio, 1.25) << profile;
    EXPECT_LT(ratio, 2.1) << profile;
  }
  EXPECT_DOUBLE_EQ(list.node_watts_of("h100-sxm"), 1275);
  EXPECT_EQ(list.node_watts_of("no such"), 0);
}

}  // namespace
}  // namespace moesim::models
