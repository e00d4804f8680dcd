// Any bytes as a table of measured peaks: refused with one line, or the memory of every job forecast and
// compared; what is said keeps what holds of every answer.
#include "tests/fuzz/as_file.h"
#include "tests/fuzz/one_line.h"
#include "tests/fuzz/quiet.h"
#include "tools/moesim/validation/validation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  fuzz::say_nothing();
  const fuzz::AsFile file(fuzz::text_of(data, size));
  tools::CommonOptions common;
  common.format = tools::Format::kJson;
  common.quiet = true;
  fuzz::accepted([&] {
    const int code = tools::validate_memory({.tables = {file.path()}, .detail = "causes"}, common);
    check(code == 0, "no check was asked for");
  });
  return 0;
}
