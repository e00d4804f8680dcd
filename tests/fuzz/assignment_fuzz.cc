// Any bytes as what a user writes behind --set and --grid: refused with one line, or understood.
#include "models/study/study.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  fuzz::accepted([&] {
    const auto range = models::StudyAxis::parse_assignment(std::string(fuzz::text_of(data, size)), "--grid");
    check(range.values.empty() == (range.range && !range.stepped), "lists and stepped ranges have values");
    check(!range.spread(3).empty() && range.low <= range.high, "and any other range is as long as one likes");
  });
  return 0;
}
