// Any bytes as the words behind `moesim`, one a line: refused with one line, or understood, twice the same.
// Verbs that only look something up run, too.
#include <cstdlib>

#include "base/text.h"
#include "tests/fuzz/one_line.h"
#include "tests/fuzz/parts.h"
#include "tests/fuzz/quiet.h"
#include "tools/moesim/verbs/command_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  fuzz::say_nothing();
  static const fuzz::Folder folder;
  static const bool guarded = ::setenv(kWriteOnlyIn, folder.path().c_str(), 1) == 0;
  check(guarded, "nothing is written elsewhere");
  std::string_view text = fuzz::text_of(data, size);
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::vector<std::string> words;
  for (const std::string_view word : split(text, '\n')) words.emplace_back(word);
  fuzz::accepted([&] {
    tools::CommandLine line(words);
    check(tools::CommandLine(words).verb() == line.verb(), "the same words are the same command");
    if (line.verb() == "list" || line.verb() == "completion" || line.verb().empty()) {
      const int code = line.run();
      check(code == 0, "what is looked up is there");
    }
  });
  return 0;
}
