#include "process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "terminal_run.h"

namespace moesim::tools::testing {

namespace fs = std::filesystem;

namespace {

// GCC says by macros, clang by features, that a sanitizer slows everything down.
#if defined(__has_feature)
#define MOESIM_SLOW (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MOESIM_SLOW 1
#else
#define MOESIM_SLOW 0
#endif
constexpr std::chrono::seconds kPatience{MOESIM_SLOW ? 600 : 150};

struct Pipe {
  int read = -1;
  int write = -1;

  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    close_end(read);
    close_end(write);
  }
  static void close_end(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
};

// A terminal in the place of a pipe: what is written to `write` comes out at `read` as it was.
void open_terminal(Pipe& ends, int columns) {
  Pipe::close_end(ends.read);
  Pipe::close_end(ends.write);
  ends.read = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (ends.read < 0 || grantpt(ends.read) != 0 || unlockpt(ends.read) != 0)
    throw std::runtime_error("no terminal");
  std::array<char, 128> name{};
  if (ptsname_r(ends.read, name.data(), name.size()) != 0) throw std::runtime_error("no terminal");
  ends.write = open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  termios settings{};
  if (ends.write < 0 || tcgetattr(ends.write, &settings) != 0) throw std::runtime_error("no terminal");
  cfmakeraw(&settings);
  tcsetattr(ends.write, TCSANOW, &settings);
  const winsize size{24, static_cast<unsigned short>(columns), 0, 0};
  ioctl(ends.write, TIOCSWINSZ, &size);
}

// Reads what there is; false at the end.
bool drain(int from, std::string& into) {
  std::array<char, 65536> buffer;
  const ssize_t got = ::read(from, buffer.data(), buffer.size());
  if (got < 0) return errno == EINTR;
  into.append(buffer.data(), static_cast<std::size_t>(got));
  return got > 0;
}

}  // namespace

std::size_t Outcome::error_lines() const {
  return static_cast<std::size_t>(std::count(err.begin(), err.end(), '\n'));
}

namespace {
Outcome run(const std::vector<std::string>& arguments, const fs::path& directory, Output output,
            int columns) {
  std::vector<std::string> words{MOESIM_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  Pipe out, err;
  if (output == Output::kClosedPipe) Pipe::close_end(out.read);
  if (output == Output::kTerminal) open_terminal(out, columns);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  if (child == 0) {
    // Only calls that are safe between fork and exec.
    const int target = output == Output::kFullDisk ? open("/dev/full", O_WRONLY) : out.write;
    if (target < 0 || dup2(target, STDOUT_FILENO) < 0 || dup2(err.write, STDERR_FILENO) < 0) _exit(126);
    if (!directory.empty() && chdir(directory.c_str()) != 0) _exit(126);
    execv(argv[0], argv.data());
    _exit(127);
  }
  Pipe::close_end(out.write);
  Pipe::close_end(err.write);

  Outcome outcome;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  bool killed = false;
  while (out.read >= 0 || err.read >= 0) {
    std::array<pollfd, 2> waiting{{{out.read, POLLIN, 0}, {err.read, POLLIN, 0}}};
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const int ready =
        poll(waiting.data(), waiting.size(), static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready == 0 && !killed) {
      kill(child, SIGKILL);
      killed = true;
    }
    // The other end of a terminal stays readable after the last writer went; then reading fails.
    if (waiting[0].revents != 0 && !drain(out.read, outcome.out)) Pipe::close_end(out.read);
    if (waiting[1].revents != 0 && !drain(err.read, outcome.err)) Pipe::close_end(err.read);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}
}  // namespace

Outcome run_moesim(const std::vector<std::string>& arguments, const fs::path& directory, Output output) {
  return run(arguments, directory, output, kTerminalColumns);
}

Outcome run_in_terminal(const std::vector<std::string>& arguments, int columns) {
  return run(arguments, {}, Output::kTerminal, columns);
}

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

nlohmann::json parsed(const std::vector<std::string>& words, const fs::path& directory) {
  const Outcome outcome = run_moesim(with(words, {"--format", "json", "--quiet"}), directory);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out, nullptr, false);
}

fs::path sample_folder() {
  return fs::path(MOESIM_SOURCE_DIR) / "traces/samples/synthetic/pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024";
}

TempFolder::TempFolder() {
  std::string pattern = (fs::temp_directory_path() / "moesim_test_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder for the test");
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void TempFolder::write(const std::string& name, const std::string& content) const {
  fs::create_directories((path_ / name).parent_path());
  std::ofstream(path_ / name, std::ios::binary) << content;
}

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace moesim::tools::testing
