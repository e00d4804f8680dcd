// Any bytes as the result that `rerun` is given: refused with one line, or a command that computes only and
// whose files all stand in the folder that rerun made; what was read is written and read to the same.
#include <algorithm>

#include "base/json_reader.h"
#include "base/json_text.h"
#include "tests/fuzz/as_file.h"
#include "tests/fuzz/one_line.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/verbs/rerun_result.h"
#include "tools/moesim/verbs/verb.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  const fuzz::AsFile file(fuzz::text_of(data, size));
  fuzz::accepted([&] {
    const tools::RerunResult result = tools::read_result(file.path());
    check(parse_ordered(json_text(result.json), "written") == result.json, "what was read is read back");
    const auto [words, table, not_compared] = tools::redirected(result, "/scratch");
    check(!words.empty(), "a command has a verb");
    const auto inside = [](std::string_view path) { return path.starts_with("/scratch/"); };
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string_view word = words[i];
      const std::size_t equals = word.find('=');
      const std::string_view option = word.substr(0, equals);
      if (std::find(tools::kOutputOptions.begin(), tools::kOutputOptions.end(), option) ==
          tools::kOutputOptions.end())
        continue;
      if (equals != std::string_view::npos)
        check(inside(word.substr(equals + 1)), "an output in the folder");
      else if (i + 1 < words.size())
        check(inside(words[++i]), "an output in the folder");
    }
    check(table.empty() || inside(table.string()), "so is the table");
  });
  return 0;
}
