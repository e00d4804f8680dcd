#include "tools/moesim/read/shell_words.h"

#include <algorithm>

#include "base/text.h"
#include "tools/moesim/read/shell_run.h"

namespace moesim::tools {

ShellScript::ShellScript(std::string_view text, const std::string& file,
                         const std::vector<std::string>& variables) {
  ShellRun(*this, file).run(text, variables);
}

std::string ShellScript::unknown(std::string_view word) const {
  const std::size_t from = word.find(kShellUnknown);
  if (from == std::string_view::npos) return "";
  const auto index = parse_int(word.substr(from + 1, word.find(kShellUnknown, from + 1) - from - 1));
  return index && static_cast<std::size_t>(*index) < reasons_.size()
             ? reasons_[static_cast<std::size_t>(*index)].why
             : "it cannot be told";
}

std::string ShellScript::shown(std::string_view word) const {
  std::string text;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] != kShellUnknown) {
      text += word[i];
      continue;
    }
    const std::size_t end = std::min(word.find(kShellUnknown, i + 1), word.size());
    const auto index = parse_int(word.substr(i + 1, end - i - 1));
    if (index && static_cast<std::size_t>(*index) < reasons_.size())
      text += reasons_[static_cast<std::size_t>(*index)].text;
    i = end;
  }
  return text;
}

}  // namespace moesim::tools
