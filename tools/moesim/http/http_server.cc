// The library behind http_server.h. Every request is read up to its body and checked (request_guard.h) before
// cpp-httplib sees any of it, and every connection has a deadline, which ends slow senders.
#include "tools/moesim/serve/http_server.h"

#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/helper_threads.h"
#include "tools/moesim/serve/limits.h"

namespace moesim::tools {

namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// A connection with fixed deadlines for reads and for writes.
class TimedStream final : public httplib::Stream {
 public:
  TimedStream(int fd, const std::atomic<bool>& stopping)
      : fd_(fd), stopping_(stopping), receive_until_(after(kHeadSeconds)) {}

  // Reads up to the empty line after the headers. Returns an HTTP status: 0 on success.
  int read_head() {
    for (;;) {
      const std::size_t from = buffer_.size() < 3 ? 0 : buffer_.size() - 3;
      std::array<char, 4096> some;
      const ssize_t got = receive(some.data(), some.size());
      if (got == 0) return buffer_.empty() ? -1 : 400;
      if (got < 0) return buffer_.empty() ? -1 : 408;
      buffer_.append(some.data(), static_cast<std::size_t>(got));
      const std::size_t end = buffer_.find("\r\n\r\n", from);
      if (end != std::string::npos && end + 4 <= kMostHeadBytes) {
        head_ = end + 4;
        receive_until_ = after(kReceiveSeconds);
        return 0;
      }
      if (buffer_.size() > kMostHeadBytes) return 431;
    }
  }
  std::string_view head() const { return std::string_view(buffer_).substr(0, head_); }

  void begin_reply() {
    if (send_until_ == Clock::time_point()) send_until_ = after(kSendSeconds);
  }

  // Signals the end and briefly drains the peer's remaining bytes: closing earlier would lose the reply.
  void end() {
    ::shutdown(fd_, SHUT_WR);
    receive_until_ = std::min(after(0.5), std::max(receive_until_, after(0.1)));
    std::array<char, 16384> some;
    std::size_t taken = 0;
    for (ssize_t got = 1; got > 0 && taken < 4 * kMostBodyBytes;
         taken += static_cast<std::size_t>(std::max<ssize_t>(got, 0)))
      got = receive(some.data(), some.size());
  }

  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, std::size_t size) override {
    if (at_ == buffer_.size()) return receive(to, size);
    const std::size_t some = std::min(size, buffer_.size() - at_);
    std::memcpy(to, buffer_.data() + at_, some);
    at_ += some;
    return static_cast<ssize_t>(some);
  }
  ssize_t write(const char* from, std::size_t size) override {
    begin_reply();
    std::size_t done = 0;
    while (done < size) {
      if (!wait(POLLOUT, send_until_)) return -1;
      const ssize_t sent = ::send(fd_, from + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (sent <= 0) return -1;
      done += static_cast<std::size_t>(sent);
    }
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return fd_; }

 private:
  bool wait(short what, Clock::time_point until) const {
    while (!stopping_ || what == POLLOUT) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
      if (left <= 0) return false;
      pollfd one{fd_, what, 0};
      const int ready = ::poll(&one, 1, static_cast<int>(std::min<long>(left, 200)));
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return false;
    }
    return false;
  }
  ssize_t receive(char* to, std::size_t size) {
    for (;;) {
      if (!wait(POLLIN, receive_until_)) return -1;
      const ssize_t got = ::recv(fd_, to, size, MSG_DONTWAIT);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      return got;
    }
  }

  int fd_;
  const std::atomic<bool>& stopping_;
  Clock::time_point receive_until_, send_until_{};
  std::string buffer_;
  std::size_t head_ = 0, at_ = 0;
};

// Whether the task of this thread is one beyond the limit.
thread_local bool refusing = false;

// kConnections threads, fewer where the system limits them, and a queue of kWaitingConnections; further ones are
// refused at once.
class Pool final : public httplib::TaskQueue {
 public:
  Pool() : threads_(kConnections, [this] { work(); }) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() override { shutdown(); }

  std::size_t threads() const { return threads_.size(); }
  void enqueue(std::function<void()> task) override {
    {
      const std::lock_guard lock(mutex_);
      if (tasks_.size() < kWaitingConnections) {
        tasks_.push_back(std::move(task));
        some_.notify_one();
        return;
      }
    }
    refusing = true;
    task();
    refusing = false;
  }
  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    some_.notify_all();
    threads_.join();
  }

 private:
  void work() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        some_.wait(lock, [this] { return ended_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable some_;
  std::deque<std::function<void()>> tasks_;
  bool ended_ = false;
  HelperThreads threads_;  // destroyed before the objects that they use
};

class Server final : public HttpServer, private httplib::Server {
 public:
  explicit Server(const HttpSetup& setup) : setup_(setup) {
    // Overrides the library's SO_REUSEPORT, with which two servers share a port unnoticed.
    set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    new_task_queue = [this] { return pool_.release(); };  // the library's own, once it runs
    set_tcp_nodelay(true);
    set_payload_max_length(kMostBodyBytes);
    httplib::Headers headers;
    for (const auto& [name, value] : reply_headers(setup.policy)) headers.emplace(name, value);
    set_default_headers(headers);
    // Path patterns of the library are regular expressions, which long paths make expensive: none is used.
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      if (request.method == "POST") return HandlerResponse::Unhandled;  // the body comes first
      reply(request, response);
      return HandlerResponse::Handled;
    });
    // All paths of POST; the guard has bounded their length.
    Post(".*",
         [this](const httplib::Request& request, httplib::Response& response) { reply(request, response); });
    set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (response.body.empty())
        response.set_content("{\"error\": \"the request cannot be read\"}\n", "application/json");
    });
  }

  bool listen_now(std::string& why) {
    errno = 0;
    port_ = setup_.port > 0 ? (bind_to_port(setup_.address, setup_.port) ? setup_.port : -1)
                            : bind_to_any_port(setup_.address);
    if (port_ <= 0) {
      why = errno ? std::strerror(errno) : "no such address";
      return false;
    }
    pool_ = std::make_unique<Pool>();
    if (pool_->threads() == 0) {
      why = "the system starts no more threads";
      return false;
    }
    ::listen(svr_sock_, 128);  // the library requests a queue of five
    setup_.hosts.port = port_;
    return true;
  }

  int port() const override { return port_; }
  void run() override {
    if (!stopping_) listen_after_bind();
    ended_ = true;
  }
  // The library ignores a stop() before it accepts.
  void stop() override {
    stopping_ = true;
    for (bool told = false; !ended_; std::this_thread::sleep_for(std::chrono::milliseconds(5)))
      if (!told && is_running()) {
        told = true;
        httplib::Server::stop();
      }
  }

 private:
  void reply(const httplib::Request& request, httplib::Response& response) {
    HttpReply made =
        setup_.reply(request.method == "HEAD" ? "GET" : request.method, request.path, request.body);
    response.status = made.status;
    if (made.status >= 400) return response.set_content(made.body, made.type);
    // The library compresses a body set as one text with brotli, which takes longer than most answers.
    const std::size_t size = made.body.size();
    response.set_content_provider(
        size, made.type,
        [body = std::move(made.body)](std::size_t offset, std::size_t length, httplib::DataSink& sink) {
          return sink.write(body.data() + offset, length);
        });
  }

  bool process_and_close_socket(socket_t socket) override {
    TimedStream stream(socket, stopping_);
    const auto refuse = [&](const Refusal& refusal) {
      const std::string text = refusal_text(refusal);
      stream.write(text.data(), text.size());
    };
    if (refusing) {
      const std::string text = refusal_text({503, "too many connections; come again"});
      (void)!::send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      ::close(socket);
      return false;
    }
    const int status = stream.read_head();
    if (status == 0) {
      if (const auto refusal = refuse_head(stream.head(), setup_.hosts)) {
        refuse(*refusal);
      } else {
        bool closed = false;
        process_request(stream, true, closed, [](httplib::Request& request) { request.ranges.clear(); });
      }
    } else if (status > 0) {
      refuse({status, status == 408   ? "the request did not come in time"
                      : status == 431 ? "found more headers than are read"
                                      : "found no whole request"});
    }
    if (status >= 0) stream.end();
    ::close(socket);
    return true;
  }

  HttpSetup setup_;
  std::unique_ptr<Pool> pool_;  // until it runs
  int port_ = -1;
  std::atomic<bool> stopping_ = false, ended_ = false;
};

}  // namespace

}  // namespace moesim::tools

extern "C" __attribute__((visibility("default"))) moesim::tools::HttpServer* moesim_http_listen(
    const moesim::tools::HttpSetup* setup, std::string* why) {
  auto server = std::make_unique<moesim::tools::Server>(*setup);
  return server->listen_now(*why) ? server.release() : nullptr;
}
