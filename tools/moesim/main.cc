// The moesim command: runs the command line and turns every error into one line and an exit code.
#include <fmt/format.h>

#include <csignal>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "tools/moesim/verbs/command_line.h"

namespace {

constexpr int kUsageError = 2;
constexpr int kInternalError = 3;

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // print() sees the error and exits like a pipe's writer
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit is an error of write()
  try {
    return moesim::tools::CommandLine({argv + (argc > 0 ? 1 : 0), argv + argc}).run();
  } catch (const moesim::InputError& error) {
    moesim::say(fmt::format("moesim: {}\n", error.what()));
    return kUsageError;
  } catch (const std::bad_alloc&) {
    moesim::say("moesim: out of memory\n");
    return kInternalError;
  } catch (const std::exception& error) {
    moesim::say(fmt::format("moesim: internal error: {}\n", moesim::one_line(error.what())));
    return kInternalError;
  }
}
