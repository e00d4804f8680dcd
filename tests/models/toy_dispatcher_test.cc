// The example of docs/contributing.md compiles and does what it says.
#include <gtest/gtest.h>

#include "base/input_error.h"
#include "docs/examples/toy_broadcast.cc"
#include "tests/models/check_bytes.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(ToyDispatcher, GathersAndReduces) {
  const DispatcherEntry entry = toy_broadcast();
  DispatcherOptions options("toy-broadcast", {}, "test");
  const auto toy = entry.make(options);
  options.finish();
  const Routing routing = example_1();
  const MoeLayer layer = example_layer(routing);
  ASSERT_FALSE(rule_against(*toy, layer));
  const Program p = toy->build(layer);
  EXPECT_EQ(total_tx(p, p.forward()), Numbers(4, 2 * 768));
  EXPECT_EQ(p.computed_rows, (Numbers{30, 14, 11, 9}));
  EXPECT_TRUE(check_bytes(p).empty());
}

TEST(ToyDispatcher, HalvesTheGatherInFp8) {
  DispatcherOptions options("toy-broadcast", {{"fp8", "true"}}, "test");
  const auto toy = toy_broadcast().make(options);
  const Routing routing = example_1();
  const Program p = toy->build(example_layer(routing));
  EXPECT_EQ(numbers(p, messages(p.forward())[0].tx), Numbers(4, 384));
}

}  // namespace
}  // namespace moesim::models::testing
