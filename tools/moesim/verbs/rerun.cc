// `moesim rerun`: runs the command recorded in a result, and compares the bytes.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/sha256.h"
#include "base/text.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/command.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/study/sweep_file.h"
#include "tools/moesim/verbs/rerun_result.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct RerunOptions {
  std::string result, folder = ".";
};

// Returns why the table beside a record is not the recorded one; empty where it is.
std::vector<std::string> changed_table(const RerunResult& r) {
  if (!r.sweep) return {};
  const fs::path name = fs::path(r.json["rows"]["file"].get<std::string>()).filename();
  const fs::path table = fs::path(r.file).parent_path() / name;
  if (!is_file(table)) return {fmt::format("{} is not there", table.string())};
  const std::string was = r.json["rows"]["sha256"], is = sha256_hex_of_file(table);
  if (was == is) return {};
  return {fmt::format("{} is another table: SHA-256 {}, was {}", table.string(), is.substr(0, 16),
                      was.substr(0, 16))};
}

// Returns why the inputs are not those of the result; empty where they are.
std::vector<std::string> changed_inputs(const RerunResult& r, const fs::path& folder) {
  std::vector<std::string> reasons;
  const ordered_json& inputs = r.json["inputs"];
  if (!inputs.contains("files") || !inputs["files"].is_object()) return reasons;
  for (const auto& [name, file] : inputs["files"].items()) {
    if (!file.is_object() || !file.contains("sha256") || !file["sha256"].is_string()) continue;
    const fs::path path = fs::path(name).is_absolute() ? fs::path(name) : folder / name;
    std::error_code unknown;
    if (!fs::exists(path, unknown) && !unknown) {
      reasons.push_back(fmt::format("{} is not there", path.string()));
      continue;
    }
    std::string is;
    try {
      is = sha256_hex_of_file(path);
    } catch (const InputError& error) {
      reasons.emplace_back(error.what());
      continue;
    }
    const std::string was = file["sha256"];
    if (was != is)
      reasons.push_back(fmt::format("{} is another file: SHA-256 {}, was {}", path.string(), is.substr(0, 16),
                                    was.substr(0, 16)));
  }
  return reasons;
}

// A temporary folder, removed at the end.
class Scratch {
 public:
  Scratch() {
    std::error_code missing;
    const fs::path folder = fs::temp_directory_path(missing);
    if (missing)
      throw InputError(
          "TMPDIR: found a folder that cannot be used, expected one for what the command writes");
    std::string name = (fs::absolute(folder) / "moesim-rerun-XXXXXX").string();
    if (!::mkdtemp(name.data()))
      throw InputError(SourcePlace{name}, fmt::format("cannot create: {}", std::strerror(errno)));
    path_ = name;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code none;
    fs::remove_all(path_, none);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

struct Finished {
  int exit_code = 0;
  std::string out, err;
};

Finished run_again(const std::vector<std::string>& words, const fs::path& folder, const fs::path& scratch) {
  const std::string program = own_program().string();
  const std::string out = (scratch / "out").string(), err = (scratch / "err").string();
  std::vector<std::string> all{program};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> argv;
  argv.reserve(all.size() + 1);
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw InputError(fmt::format("rerun: cannot start {}: {}", program, std::strerror(errno)));
  if (child == 0) {
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    // The child does not outlive this program, however that ends.
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(127);
    const int to = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600),
              said = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (to < 0 || said < 0 || ::dup2(to, STDOUT_FILENO) < 0 || ::dup2(said, STDERR_FILENO) < 0 ||
        ::chdir(folder.c_str()) != 0 || ::setenv(kWriteOnlyIn, scratch.c_str(), 1) != 0)
      ::_exit(127);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (SignalsHeld::one_ends()) ::kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_own_file(out),
          read_own_file(err)};
}

// Lists where two values differ, at most `most` places: "winner.speedup.value: 1.1, was 1.2".
void differences(const std::string& path, const ordered_json& was, const ordered_json& is, std::size_t most,
                 std::vector<std::string>& found) {
  if (found.size() >= most || was == is) return;
  const auto below = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  if (was.is_object() && is.is_object()) {
    for (const auto& [key, value] : was.items())
      differences(below(key), value, is.contains(key) ? is[key] : ordered_json(), most, found);
    for (const auto& [key, value] : is.items())
      if (!was.contains(key)) differences(below(key), ordered_json(), value, most, found);
  } else if (was.is_array() && is.is_array() && was.size() == is.size()) {
    for (std::size_t i = 0; i < was.size(); ++i)
      differences(fmt::format("{}[{}]", path, i), was[i], is[i], most, found);
  } else {
    found.push_back(fmt::format("{}: {}, was {}", path, in_quotes(json_text(is)), in_quotes(json_text(was))));
  }
}

// Returns why the same command gave another result; empty where it did not.
std::vector<std::string> compare(const RerunResult& r, const Finished& run, const fs::path& table) {
  constexpr std::size_t kMostDifferences = 5;
  std::vector<std::string> reasons;
  if (run.exit_code > 1) {
    const std::string_view line = trim(std::string_view(run.err).substr(0, run.err.find('\n')));
    reasons.push_back(fmt::format("the command ends with exit code {}: {}", run.exit_code, one_line(line)));
    return reasons;
  }
  ordered_json made;
  try {
    made = r.sweep ? parse_ordered(read_own_file(SweepFile::record_of(table)), "record")
                   : parse_ordered(run.out, "output");
  } catch (const InputError&) {
  }
  if (!made.is_object()) {
    reasons.emplace_back(r.sweep ? "the command writes no table" : "the command prints no JSON");
    return reasons;
  }
  if (made.contains("inputs") && made["inputs"].is_object())
    made["inputs"]["command"] = r.command;  // it wrote its files elsewhere
  if (r.sweep) made["rows"]["file"] = r.json["rows"]["file"];
  differences("", r.json, made, kMostDifferences, reasons);
  if (reasons.empty() && json_text(made) != r.text)
    reasons.emplace_back("the file was written anew: the same values in other bytes");
  return reasons;
}

// Runs the command in a temporary folder and compares. Leaves nothing behind, however it ends.
std::vector<std::string> repeat(const RerunResult& r, const fs::path& folder) {
  const SignalsHeld held;  // a signal ends the child first, and this program when the folder is removed
  const Scratch scratch;
  const Redirected command = redirected(r, scratch.path());
  return compare(r, run_again(command.words, folder, scratch.path()), command.table);
}

struct Repeated {
  std::vector<std::string> command;
  bool same;
  std::vector<std::string> reasons, not_compared;
};

Columns<Repeated> columns_of(Of<Repeated>) {
  return {{"command", &Repeated::command},
          {"same", &Repeated::same},
          {"reasons", &Repeated::reasons, "why the bytes are not the same"},
          {"not_compared", &Repeated::not_compared,
           "files that the command wrote and that the result says nothing of"}};
}

int run_rerun(const RerunOptions& o, const CommonOptions& common) {
  const RerunResult r = read_result(o.result);
  const std::string made_by = r.json["version"];
  std::vector<std::string> reasons = changed_inputs(r, o.folder);
  for (std::string& reason : changed_table(r)) reasons.push_back(std::move(reason));
  const bool as_it_was = reasons.empty();
  if (as_it_was) reasons = repeat(r, o.folder);
  const bool same = reasons.empty();
  const std::vector<std::string> not_compared = redirected(r, "").not_compared;
  if (!same && made_by != version())
    reasons.insert(reasons.begin(), fmt::format("it was made by moesim {}, this is {}", made_by, version()));
  else if (!same && as_it_was)
    reasons.insert(
        reasons.begin(),
        fmt::format("it was made by another build of moesim {}, or edited since: the command and its "
                    "files are the same",
                    version()));
  if (common.format == Format::kJson) {
    print_result("rerun", describe_inputs(common), json_of(Repeated{r.command, same, reasons, not_compared}));
  } else if (same) {
    print(fmt::format("the same bytes: moesim {}\n", one_line(join(r.command, " "))));
    if (!not_compared.empty())
      print(fmt::format("not compared, for the result says nothing of them: {}\n",
                        one_line(join(not_compared, ", "))));
  } else {
    std::string text = "not the same bytes:\n";
    for (const std::string& reason : reasons) text += "  " + one_line(reason) + "\n";
    print(text);
  }
  return same ? 0 : 1;
}

}  // namespace

const ResultSchema kRerunSchema("rerun", "rerun", schema_of<Repeated>);

Verb rerun_verb() {
  return {"rerun", "run a result again and get the same bytes, or the reason why not",
          "  moesim rerun result.json\n"
          "  moesim rerun results.csv.json --in /where/the/sweep/was",
          [](CLI::App& app) -> Run {
            auto o = std::make_shared<RerunOptions>();
            app.add_option("result", o->result,
                           "A result of --format json, or the record beside the table of a sweep")
                ->required();
            app.add_option("--in", o->folder, "Folder that relative paths of its command start from [.]")
                ->check(CLI::ExistingDirectory());
            return [o](const CommonOptions& common) { return run_rerun(*o, common); };
          }};
}

}  // namespace moesim::tools
