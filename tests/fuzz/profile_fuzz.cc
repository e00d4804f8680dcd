// Any bytes as a profile: refused with one line, or read, and then the same after writing and reading.
#include "base/random.h"
#include "models/hardware/profile.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  fuzz::accepted([&] {
    const auto profile = models::Profile::parse(fuzz::text_of(data, size), "fuzz.json");
    const std::string written = profile.to_json();
    check(models::Profile::parse(written, "written.json").to_json() == written,
          "what was read is written back");
    Random random(1);
    profile.draw(random);
  });
  return 0;
}
