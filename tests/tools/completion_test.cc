// Completions, tried in a shell.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/tools/process.h"

namespace moesim::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns bash's completions after these words, the last of which is being typed.
std::string offered(const std::string& words, int last) {
  const testing::TempFolder folder;
  const std::string script = folder / "script";
  folder.write("script", "source <(" MOESIM_BINARY " completion bash)\nCOMP_WORDS=(" + words +
                             ")\nCOMP_CWORD=" + std::to_string(last) +
                             "\n_moesim\necho \"${COMPREPLY[@]}\" > '" + (folder / "out") + "'\n");
  EXPECT_EQ(std::system(("cd '" + folder.path().string() + "' && bash script").c_str()), 0);
  return testing::read_text(folder.path() / "out");
}

TEST(Completion, OffersVerbsOptionsAndListedValues) {
  EXPECT_THAT(offered("moesim comp", 1), AllOf(HasSubstr("compare"), HasSubstr("completion")));
  EXPECT_THAT(offered("moesim compare --sch", 2), HasSubstr("--schedule"));
  EXPECT_THAT(offered("moesim compare --schedule zero", 3), HasSubstr("zero-bubble"));
}

TEST(Completion, OffersWhatIsBuiltIn) {
  EXPECT_THAT(offered("moesim compare --model mix", 3),
              AllOf(HasSubstr("mixtral-8x7b"), Not(HasSubstr("qwen"))));
  EXPECT_THAT(offered("moesim compare --cluster dgx-h100", 3), HasSubstr("dgx-h100x8"));
  EXPECT_THAT(offered("moesim compare --dispatcher flex", 3), HasSubstr("flex-deepep"));
  EXPECT_THAT(offered("moesim compare --routing zi", 3), HasSubstr("zipf"));
  // A file may stand there, too.
  EXPECT_THAT(offered("moesim compare --model scr", 3), HasSubstr("script"));
}

}  // namespace
}  // namespace moesim::tools
