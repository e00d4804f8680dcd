#include "tools/moesim/read/layer_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace moesim::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

// The examples of Megatron's own help.
TEST(LayerList, ReadsMegatronsExpressions) {
  EXPECT_THAT(layer_list("([1]*3+[0]*1)*3"), Optional(ElementsAre(1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0)));
  EXPECT_EQ(layer_list("([0]+[1]*23)")->size(), 24U);
  EXPECT_THAT(layer_list("[0, 1]*2"), Optional(ElementsAre(0, 1, 0, 1)));
}

TEST(LayerList, RefusesOtherTextsAndLongLists) {
  for (const char* text : {"", "1", "[1", "[1]*", "[1]**2", "([1]", "[a]", "[1]-[0]", "[1]*99999999", "[-1]",
                           "([1]*1024)*4096", "[]*"})
    EXPECT_FALSE(layer_list(text)) << text;
  EXPECT_FALSE(layer_list(std::string(100, '(') + "[1]" + std::string(100, ')')));
}

RC_GTEST_PROP(LayerList, FormsAreWrittenAndReadBack, ()) {
  const auto every = *rc::gen::inRange<std::int64_t>(1, 6);
  const auto dense = *rc::gen::inRange<std::int64_t>(0, 6);
  const auto layers =
      dense + every * *rc::gen::inRange<std::int64_t>(2, 20) + *rc::gen::inRange<std::int64_t>(0, every);
  const auto list = layer_list(layer_list_text({dense, every}, layers));
  RC_ASSERT(list && static_cast<std::int64_t>(list->size()) == layers);
  for (std::int64_t i = 0; i < layers; ++i)
    RC_ASSERT((*list)[static_cast<std::size_t>(i)] ==
              (i >= dense && (i - dense) % every == every - 1 ? 1 : 0));
}

}  // namespace
}  // namespace moesim::tools
