#include "base/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moesim {
namespace {

using ::testing::ElementsAre;

TEST(Csv, CellsAreNoFormulas) {
  EXPECT_EQ(csv_cell("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
  EXPECT_EQ(csv_cell("@SUM(1,2)"), "\"'@SUM(1,2)\"");
  EXPECT_EQ(csv_cell("-1+cmd|x"), "'-1+cmd|x");
  for (const std::string same : {"-1.5", "+3.1 %", "-", "alltoall:capacity=1", "1e-3", ""})
    EXPECT_EQ(csv_cell(same), same);
  EXPECT_EQ(csv_cell("a,\"b\"\nc"), "\"a,\"\"b\"\" c\"");
}

TEST(Csv, CellsAreReadBack) {
  EXPECT_THAT(csv_cells("a,,\"b,\"\"c\"\"\", d ", {}), ElementsAre("a", "", "b,\"c\"", " d "));
  EXPECT_THAT(csv_cells("", {}), ElementsAre(""));
  EXPECT_THAT(csv_cells("5\" disk,1", {}), ElementsAre("5\" disk", "1"));
  EXPECT_THAT(csv_cells(R"( "a,b",c)", {}), ElementsAre(" a,b", "c"));
  for (const char* text : {"plain", "a,b", "say \"so\"", ""})
    EXPECT_THAT(csv_cells(csv_cell(text), {}), ElementsAre(text));
  EXPECT_THROW(csv_cells("a,\"b", {"t.csv", 3}), InputError);
}

}  // namespace
}  // namespace moesim
