#include "tools/moesim/verbs/rerun_result.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Verbs that only compute: their only output files are those of kOutputOptions.
constexpr std::array<std::string_view, 10> kRepeatable{
    "compare", "replay", "validate",   "whatif",      "plan",
    "sweep",   "list",   "trace info", "trace check", "calibrate check"};

// Returns the verb of a command, "trace info".
std::string verb_of(const std::vector<std::string>& command) {
  if (command.empty()) return "";
  const bool inner = command.front() == "trace" || command.front() == "calibrate";
  return inner && command.size() > 1 ? command[0] + " " + command[1] : command[0];
}

}  // namespace

RerunResult read_result(const std::string& file) {
  RerunResult r;
  r.file = file;
  r.text = read_file(file, kMaxJsonBytes);
  r.json = parse_ordered(r.text, file);
  const SourcePlace place{file};
  const char* expected = "a result that moesim wrote with --format json";
  if (!r.json.is_object() || !r.json.contains("schema") || !r.json["schema"].is_string() ||
      !r.json["schema"].get<std::string>().starts_with("moesim."))
    throw InputError(place, "no result of moesim", expected);
  const auto inputs = r.json.find("inputs");
  if (inputs == r.json.end() || !inputs->is_object() || !inputs->contains("command") ||
      !(*inputs)["command"].is_array() || !r.json.contains("version") || !r.json["version"].is_string())
    throw InputError(place, "no inputs to run it again with", expected);
  for (const ordered_json& word : (*inputs)["command"]) {
    if (!word.is_string()) throw InputError(place, "a command that is no list of words", expected);
    r.command.push_back(word);
    if (r.command.back().find('\0') != std::string::npos)
      throw InputError(place, "a command with a word that no program can be given", expected);
  }
  const std::string verb = verb_of(r.command);
  if (std::find(kRepeatable.begin(), kRepeatable.end(), verb) == kRepeatable.end())
    throw InputError(place, "the command " + in_quotes(verb),
                     fmt::format("a verb that only computes ({})", fmt::join(kRepeatable, ", ")));
  const auto rows = r.json.find("rows");
  r.sweep = verb == "sweep" && rows != r.json.end() && rows->is_object() && rows->contains("sha256") &&
            (*rows)["sha256"].is_string() && rows->contains("file") && (*rows)["file"].is_string();
  if (verb == "sweep" && !r.sweep)
    throw InputError(place, "a sweep without its rows", "the record of a table");
  return r;
}

Redirected redirected(const RerunResult& r, const fs::path& scratch) {
  Redirected made;
  std::vector<std::string>& words = made.words;
  const auto elsewhere = [&](const std::string& option, const std::string& file) {
    const fs::path path = scratch / (std::to_string(words.size()) + fs::path(file).extension().string());
    if (option == "--out" && r.sweep)
      made.table = path;
    else
      made.not_compared.push_back(file);
    return path.string();
  };
  for (std::size_t i = 0; i < r.command.size(); ++i) {
    const std::string& word = r.command[i];
    const std::size_t equals = word.find('=');
    const std::string option = word.substr(0, equals);
    const bool written = option == "-o" || std::find(kOutputOptions.begin(), kOutputOptions.end(), option) !=
                                               kOutputOptions.end();
    if (r.sweep && (word == "--resume" || word == "--overwrite")) continue;
    if (written && equals != std::string::npos) {
      const std::string path = elsewhere(option, word.substr(equals + 1));
      words.push_back(fmt::format("{}={}", option, path));
    } else if (written && i + 1 < r.command.size()) {
      const std::string path = elsewhere(option, r.command[++i]);
      words.insert(words.end(), {option, path});
    } else {
      words.push_back(word);
    }
  }
  return made;
}

}  // namespace moesim::tools
