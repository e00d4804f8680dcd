// Any bytes as a file of constants: refused with one line, or constants with a unit and a source.
#include "calibration/fit/machine_numbers.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  fuzz::accepted([&] {
    for (const auto& [profile, constants] :
         calibration::parse_constants(fuzz::text_of(data, size), "constants.json"))
      for (const auto& [name, constant] : constants)
        check(!constant.unit.empty() && !constant.source.empty(), "a constant says where it is from");
  });
  return 0;
}
