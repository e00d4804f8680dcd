// Any bytes as the table of --list: refused with one line, or a plan whose every point has its values.
#include "models/study/study.h"
#include "tests/fuzz/as_file.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  const fuzz::AsFile file(fuzz::text_of(data, size));
  fuzz::accepted([&] {
    models::PointOptions options;
    options.lists = {file.path()};
    const models::Points points(options);
    check(points.size() > 0, "a list has rows");
    std::vector<models::PathValue> first, last;
    points.point(0, first);
    points.point(points.size() - 1, last);
    check(first.size() == points.paths().size() && last.size() == first.size(), "a value of every path");
  });
  return 0;
}
