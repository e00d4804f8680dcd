#include "calibration/rows/csv_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "tests/message_of.h"

namespace moesim::calibration {
namespace {

using moesim::testing::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string parse_error(const std::string& text) {
  return message_of([&] { CsvTable::parse(text, "t.csv"); });
}

TEST(CsvTable, RowsKeepTheirLinesPastCommentsAndEmptyOnes) {
  const CsvTable table =
      CsvTable::parse("# who measured\n\n name , x \r\na,1\n# between\nb,2\r\n\nc,3", "t.csv");
  EXPECT_THAT(table.columns(), ElementsAre("name", "x"));
  ASSERT_EQ(table.rows(), 3u);
  EXPECT_EQ(table.text(2, "name"), "c");
  EXPECT_EQ(table.place(0).line, 4);
  EXPECT_EQ(table.place(1).line, 6);
  EXPECT_EQ(table.place(2).line, 8);
  EXPECT_TRUE(table.has("x"));
  EXPECT_FALSE(table.has("y"));
}

TEST(CsvTable, NumbersAreHeldAgainstTheirRange) {
  const CsvTable table = CsvTable::parse("x,n,o\n 1.5e3 ,-7, \ninf,1.0,2\n", "t.csv");
  EXPECT_EQ(table.number(0, "x", 0, 1e4), 1500);
  EXPECT_EQ(table.number(0, "x", 1500, 1500), 1500);  // both ends belong to the range
  EXPECT_EQ(table.integer(0, "n", -7, 7), -7);
  EXPECT_EQ(table.optional_number(0, "o", 0, 1), std::nullopt);
  EXPECT_EQ(table.optional_number(1, "o", 0, 2), 2);
  const auto error = [&](const std::function<void()>& read) { return message_of(read); };
  EXPECT_EQ(error([&] { table.number(0, "x", 0, 1000); }),
            "t.csv:2: found ' 1.5e3 ' as x, expected a number from 0 to 1000");
  EXPECT_THAT(error([&] { table.number(1, "x", 0, 1e300); }), HasSubstr("t.csv:3: found 'inf' as x"));
  EXPECT_THAT(error([&] { table.integer(1, "n", 0, 2); }), HasSubstr("an integer from 0 to 2"));
  EXPECT_THAT(error([&] { table.integer(0, "n", 0, 2); }), HasSubstr("t.csv:2: found '-7' as n"));
  EXPECT_THAT(error([&] { table.optional_number(1, "o", 0, 1); }), HasSubstr("from 0 to 1"));
  EXPECT_THAT(error([&] { table.text(0, "y"); }), HasSubstr("no column 'y', expected columns x,n,o"));
}

TEST(CsvTable, MistakesOfTheTableAreNamedByLine) {
  EXPECT_EQ(parse_error("# nothing\n"), "t.csv: found no column names, expected a table with a header line");
  EXPECT_THAT(parse_error("a,,c\n"), HasSubstr("t.csv:1: found an empty column name"));
  EXPECT_THAT(parse_error("a, a\n"), HasSubstr("t.csv:1: found the column 'a' twice"));
  EXPECT_THAT(parse_error("#\na,b\n1,2\n1\n"), HasSubstr("t.csv:4: found 1 fields, expected 2"));
  EXPECT_THAT(parse_error("a\n\"1\n"), HasSubstr("t.csv:2: found an unfinished quote"));
}

// A field of any characters but line ends comes back as it was written in quotes.
RC_GTEST_PROP(CsvTable, QuotedFieldsComeBack, ()) {
  const auto fields = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(
      rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab ,\"#\\;\t'0")))));
  std::string header, row;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    header += (i ? "," : "") + std::string("c") + std::to_string(i);
    row += i ? ",\"" : "\"";
    for (const char c : fields[i]) row += c == '"' ? std::string("\"\"") : std::string(1, c);
    row += '"';
  }
  const CsvTable table = CsvTable::parse(header + "\n" + row + "\n", "t.csv");
  RC_ASSERT(table.rows() == 1u);
  for (std::size_t i = 0; i < fields.size(); ++i)
    RC_ASSERT(table.text(0, "c" + std::to_string(i)) == fields[i]);
}

}  // namespace
}  // namespace moesim::calibration
