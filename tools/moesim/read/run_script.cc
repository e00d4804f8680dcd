// Runs a script under bash with launchers that only record their arguments.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

#include "base/input_error.h"
#include "base/text.h"
#include "tools/moesim/read/shell_words.h"

namespace moesim::tools {

namespace {

namespace fs = std::filesystem;

// Records the values of the job's variables and its words. Shells that it starts have the same launchers.
constexpr std::string_view kLauncher = R"(
name=${0##*/}
slurm() {
  while read -r mark option value _; do
    [ "$mark" = "#SBATCH" ] || continue
    case $option in *=*) value=${option#*=} option=${option%%=*} ;; esac
    case $option in
      --nodes | -N) export SLURM_NNODES=$value SLURM_JOB_NUM_NODES=$value ;;
      --ntasks-per-node) export SLURM_NTASKS_PER_NODE=$value ;;
      --gpus-per-node) export SLURM_GPUS_PER_NODE=$value ;;
    esac
  done
}
if [ "$name" = start ]; then
  set=$(export -p)
  slurm < "$1"
  eval "$set"
  exec "$MOESIM_BASH" "$@"
fi
printf '%s\0' $(($# + 1)) "${SLURM_NNODES-}" "${SLURM_NTASKS_PER_NODE-}" @VARIABLES@ "$name" "$@" \
  >> "$MOESIM_LAUNCHES"
case $name in
  srun | sbatch | salloc | mpirun | mpiexec* | orterun)
    at=0
    for word in "$@"; do
      at=$((at + 1))
      case $word in
        --wrap=*) exec "$MOESIM_BASH" -c "${word#*=}" ;;
        bash | sh | */bash | */sh) exec "$MOESIM_BASH" "${@:at+1}" ;;
        *.py | python* | torchrun) exit 0 ;;
        -*) ;;
        *) [ -f "$word" ] && case $word in *.sh | *.slurm | *.sbatch)
             [ "$name" != sbatch ] || slurm < "$word"
             exec "$MOESIM_BASH" "${@:at}" ;;
           esac ;;
      esac
    done
    if [ "$name" = sbatch ]; then
      text=$(cat)
      slurm <<< "$text"
      exec "$MOESIM_BASH" -c "$text"
    fi ;;
esac
exit 0
)";

// Every bash reads this first: launchers stay first, whatever the script does to its PATH.
std::string environment_file() {
  std::string text;
  for (const std::string& name : script_words("launchers"))
    text += fmt::format("{}() {{ \"$MOESIM_BIN/{}\" \"$@\"; }}\n", name, name);
  return text + "trap '[[ $PATH == \"$MOESIM_BIN\":* ]] || PATH=$MOESIM_BIN:$PATH' DEBUG\nset -T\n";
}

// Returns the first launcher that the text calls by its path; empty: none.
std::string called_by_path(std::string_view text) {
  for (std::string_view line : split(text, '\n')) {
    line = trim(line);
    if (line.starts_with('#')) continue;
    const auto ends = [](char c) {
      return std::string_view(" \t\"'=;:&|()`$").find(c) != std::string_view::npos;
    };
    for (std::size_t from = 0; from < line.size();) {
      std::size_t to = from;
      while (to < line.size() && !ends(line[to])) ++to;
      const std::string_view word = line.substr(from, to - from);
      const std::size_t slash = word.rfind('/');
      const bool path = from > 0 && line[from - 1] == '=' && line.substr(0, from - 1).ends_with("PATH");
      if (slash != std::string_view::npos && !path && is_script_word("launchers", word.substr(slash + 1)))
        return std::string(word);
      from = to + 1;
    }
  }
  return "";
}

std::string found_bash() {
  const char* path = std::getenv("PATH");
  const std::string folders = path ? path : "/usr/bin:/bin";
  for (const std::string_view folder : split(folders, ':')) {
    const fs::path bash = fs::path(folder) / "bash";
    if (!folder.empty() && ::access(bash.c_str(), X_OK) == 0) return bash.string();
  }
  throw InputError("--by-running: found no bash on the PATH, expected one, which runs the script");
}

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "moesim-run-XXXXXX").string();
    if (!::mkdtemp(name.data()))
      throw InputError("--by-running: cannot make a temporary folder: " + std::string(std::strerror(errno)));
    path_ = name;
  }
  ~Folder() {
    std::error_code none;
    fs::remove_all(path_, none);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }
  void write(const fs::path& name, std::string_view text, bool runs = false) const {
    std::ofstream(path_ / name) << text;
    if (runs) fs::permissions(path_ / name, fs::perms::owner_all);
  }

 private:
  fs::path path_;
};

// Starts a program in its own process group, with input and output discarded.
pid_t start(const std::vector<std::string>& words, const std::map<std::string, std::string>& environment) {
  std::vector<std::string> pairs;
  pairs.reserve(environment.size());
  for (const auto& [name, value] : environment) pairs.push_back(fmt::format("{}={}", name, value));
  const auto pointers = [](const std::vector<std::string>& list) {
    std::vector<char*> all;
    all.reserve(list.size() + 1);
    for (const std::string& one : list) all.push_back(const_cast<char*>(one.c_str()));
    all.push_back(nullptr);
    return all;
  };
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int descriptor : {0, 1, 2})
    posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", descriptor == 0 ? O_RDONLY : O_WRONLY,
                                     0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t child = 0;
  const int failed = posix_spawn(&child, words[0].c_str(), &actions, &attributes, pointers(words).data(),
                                 pointers(pairs).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw InputError("--by-running: cannot start bash: " + std::string(std::strerror(failed)));
  return child;
}

// Waits for a group to end and kills the rest of it; returns false where its leader still ran after
// `seconds`.
bool ended(pid_t leader, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto limit = Clock::now() + std::chrono::milliseconds(static_cast<long>(seconds * 1e3));
  bool done = false;
  while (!done && Clock::now() < limit) {
    int status = 0;
    const pid_t got = ::waitpid(leader, &status, WNOHANG);
    done = got == leader || (got < 0 && errno != EINTR);
    if (!done) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  // Launchers in the background may still write.
  const auto grace = std::min<Clock::time_point>(limit, Clock::now() + std::chrono::seconds(2));
  while (done && ::kill(-leader, 0) == 0 && Clock::now() < grace)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(-leader, SIGKILL);
  if (!done) ::waitpid(leader, nullptr, 0);
  return done;
}

}  // namespace

std::vector<ShellCommand> run_with_launchers(std::string_view text, const std::string& file,
                                             const std::vector<std::string>& variables, double seconds) {
  if (const std::string called = called_by_path(text); !called.empty())
    throw InputError(SourcePlace{file},
                     called + ", a launcher by its path, which --by-running cannot replace",
                     "it by its name alone");
  const std::string bash = found_bash();
  const Folder folder;
  const fs::path bin = folder.path() / "bin";
  fs::create_directory(bin);
  constexpr std::string_view kVariables = "@VARIABLES@";
  std::string launcher(kLauncher), noted_variables;
  for (const std::string& one : script_words("variables"))
    noted_variables += fmt::format(" \"${{{}-}}\"", one);
  launcher.replace(launcher.find(kVariables), kVariables.size(), noted_variables);
  folder.write("bin/start", "#!" + bash + launcher, true);
  for (const std::string& name : script_words("launchers")) fs::create_symlink("start", bin / name);
  folder.write("environment", environment_file());
  folder.write("launches", "");

  std::map<std::string, std::string> environment;
  for (char** pair = environ; *pair; ++pair) {
    const ShellValue one(*pair);
    environment[one.name] = one.value;
  }
  std::vector<std::string> words{(bin / "start").string(), file};
  for (const std::string& text : variables) {
    const ShellValue one(text);
    if (one.argument == 0) {
      environment[one.name] = one.value;
      continue;
    }
    words.resize(std::max(words.size(), one.argument + 2));
    words[one.argument + 1] = one.value;
  }
  environment["MOESIM_BIN"] = bin.string();
  environment["MOESIM_BASH"] = bash;
  environment["MOESIM_LAUNCHES"] = (folder.path() / "launches").string();
  environment["BASH_ENV"] = (folder.path() / "environment").string();
  environment["PATH"] = bin.string() + ":" + environment["PATH"];
  if (!ended(start(words, environment), seconds))
    throw InputError(SourcePlace{file}, fmt::format("a script that still runs after {} s", seconds),
                     "one that ends by then");

  std::ifstream in(folder.path() / "launches", std::ios::binary);
  const std::string noted{std::istreambuf_iterator<char>(in), {}};
  const std::vector<std::string_view> parts = split(noted, '\0');
  std::vector<ShellCommand> commands;
  // The count of words, Slurm's two variables, the job's.
  const std::size_t head = 3 + script_words("variables").size();
  for (std::size_t at = 0; at + head < parts.size();) {
    const auto count = parse_int(parts[at]);
    if (!count || *count < 1 || at + head + static_cast<std::size_t>(*count) > parts.size()) break;
    ShellCommand one;
    one.place = {file};
    one.nodes = parts[at + 1];
    one.tasks = parts[at + 2];
    for (std::size_t i = 3; i < head; ++i) one.environment.emplace_back(parts[at + i]);
    at += head;
    for (long long i = 0; i < *count; ++i) one.words.emplace_back(parts[at++]);
    commands.push_back(std::move(one));
  }
  return commands;
}

}  // namespace moesim::tools
