#include "tools/moesim/serve/answerer.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <new>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"

namespace moesim::tools {

namespace {

using Clock = std::chrono::steady_clock;

// First byte of a reply.
constexpr char kDone = 'd', kRefused = 'r', kFailed = 'f';

std::ptrdiff_t turns() {
  return std::max<std::ptrdiff_t>(2, static_cast<std::ptrdiff_t>(std::thread::hardware_concurrency()));
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

// Reads until the end of input, at most `most` bytes and until `until`.
bool read_all(int fd, std::string& bytes, std::size_t most, Clock::time_point until) {
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd one{fd, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&one, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) return true;
    if (got < 0 || bytes.size() + static_cast<std::size_t>(got) > most) return false;
    bytes.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

// A message of one byte that carries a descriptor.
struct OneDescriptor {
  OneDescriptor() {
    head.msg_iov = &data;
    head.msg_iovlen = 1;
    head.msg_control = space.data();
    head.msg_controllen = space.size();
  }
  OneDescriptor(const OneDescriptor&) = delete;
  OneDescriptor& operator=(const OneDescriptor&) = delete;

  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr head{};
};

bool send_descriptor(int over, int fd) {
  OneDescriptor message;
  cmsghdr* header = CMSG_FIRSTHDR(&message.head);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  return ::sendmsg(over, &message.head, MSG_NOSIGNAL) == 1;
}

// Returns -1 when the sender has closed.
int receive_descriptor(int over) {
  OneDescriptor message;
  ssize_t got = 0;
  do got = ::recvmsg(over, &message.head, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  const cmsghdr* header = got == 1 ? CMSG_FIRSTHDR(&message.head) : nullptr;
  if (header == nullptr) return -1;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
  return fd;
}

void limit(int resource, rlim_t most) {
  const rlimit both{most, most};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

// Returns the used bytes of address space.
std::size_t mapped_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Restricts the rest of this process's life.
void confine(const AnswerLimits& limits, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the parent ended before this could be set up
  // The alarm's default action ends the process; no handler of ours is needed.
  std::signal(SIGALRM, SIG_DFL);
  itimerval alarm{};
  alarm.it_value.tv_sec = static_cast<time_t>(limits.seconds);
  alarm.it_value.tv_usec = static_cast<suseconds_t>(std::fmod(limits.seconds, 1.0) * 1e6);
  ::setitimer(ITIMER_REAL, &alarm, nullptr);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  limit(RLIMIT_AS, mapped_bytes() + limits.bytes);
#endif
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, 0);
  if (limits.files) return;
  limit(RLIMIT_NOFILE, 0);
  forbid_reading();  // gives proper messages, and hides which files exist
}

[[noreturn]] void answer_one(int fd, const AnswerLimits& limits, const Answerer::Question& question,
                             pid_t parent) {
  std::string asked, out;
  if (!read_all(fd, asked, kMostBodyBytes + 1, Clock::now() + std::chrono::seconds(5)) || asked.empty())
    ::_exit(1);
  confine(limits, parent);  // afterwards poll() has no more files to wait for
  try {
    out = kDone + question(asked.front(), asked.substr(1));
  } catch (const InputError& error) {
    out = kRefused + std::string(error.what());
  } catch (const std::bad_alloc&) {
    out = std::string(1, kFailed) + "it needs more memory than an answer may take";
  } catch (const std::exception& error) {
    out = kFailed + one_line(error.what());
  }
  write_all(fd, out);
  ::_exit(0);
}

[[noreturn]] void fork_on_request(int control, const AnswerLimits& limits,
                                  const Answerer::Question& question) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Ctrl-C reaches every process of a terminal; these end with their server.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGCHLD, SIG_IGN);  // children need no wait
  const pid_t self = ::getpid();
  for (;;) {
    const int fd = receive_descriptor(control);
    if (fd < 0) ::_exit(0);
    if (::fork() == 0) {
      ::close(control);
      answer_one(fd, limits, question, self);
    }
    ::close(fd);
  }
}

}  // namespace

Answerer::Answerer(const AnswerLimits& limits, const Question& question, const std::function<void()>& prepare)
    : limits_(limits), turns_(turns()) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw InputError(fmt::format("serve: cannot start: {}", std::strerror(errno)));
  forker_ = ::fork();
  if (forker_ < 0) throw InputError(fmt::format("serve: cannot start: {}", std::strerror(errno)));
  if (forker_ == 0) {
    ::close(ends[0]);
    try {
      prepare();
    } catch (const std::exception& error) {
      say(fmt::format("moesim: serve: {}\n", one_line(error.what())));
      ::_exit(1);
    }
    fork_on_request(ends[1], limits, question);
  }
  ::close(ends[1]);
  control_ = ends[0];
}

void Answerer::stop() {
  stopping_ = true;
  ::kill(forker_, SIGKILL);  // its questions end with it
}

Answerer::~Answerer() {
  ::close(control_);
  stop();
  while (::waitpid(forker_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Reply Answerer::reply_of(int fd, std::chrono::steady_clock::time_point start) const {
  // The process ends itself; the wait ends a little later.
  const auto limit = std::chrono::duration<double>(limits_.seconds);
  const auto until = start + std::chrono::duration_cast<Clock::duration>(limit) + std::chrono::seconds(1);
  std::string text;
  const bool whole = read_all(fd, text, kMostReplyBytes, until);
  if (whole && !text.empty()) {
    const char kind = text.front();
    text.erase(0, 1);
    if (kind == kDone) return {Reply::Kind::kDone, std::move(text)};
    if (kind == kRefused) return {Reply::Kind::kRefused, std::move(text)};
    return {Reply::Kind::kFailed, std::move(text)};
  }
  if (stopping_) return {Reply::Kind::kBusy, "the server ends"};
  if (Clock::now() - start >= limit)
    return {Reply::Kind::kTooLong,
            fmt::format("the answer takes more than {:g} s, the most of this server", limits_.seconds)};
  return {Reply::Kind::kFailed, "no answer came back: see what the server wrote"};
}

Reply Answerer::ask(char kind, std::string_view body) {
  if (!turns_.try_acquire_for(std::chrono::milliseconds(static_cast<int>(kWaitSeconds * 1e3))))
    return {Reply::Kind::kBusy, "others are being answered; come again"};
  std::array<int, 2> ends{};
  Reply reply{Reply::Kind::kFailed, "no process could be started"};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0) {
    const auto start = Clock::now();  // before the process can set its alarm
    const bool sent = send_descriptor(control_, ends[1]);
    ::close(ends[1]);
    if (sent && write_all(ends[0], kind + std::string(body)) && ::shutdown(ends[0], SHUT_WR) == 0)
      reply = reply_of(ends[0], start);
    ::close(ends[0]);
  }
  turns_.release();
  return reply;
}

}  // namespace moesim::tools
