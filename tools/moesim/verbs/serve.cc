// `moesim serve`: the same questions as a live page on this machine.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <pthread.h>

#include <csignal>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file_io.h"
#include "base/helper_threads.h"
#include "base/input_error.h"
#include "base/json_text.h"
#include "base/text.h"
#include "tools/moesim/serve/answerer.h"
#include "tools/moesim/serve/http_server.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/report_template.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/study/plugin_path.h"
#include "tools/moesim/verbs/command_line.h"
#include "tools/moesim/verbs/serve_questions.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

struct ServeOptions {
  int port = 8765;
  std::string address = "127.0.0.1";
  std::vector<std::string> names;
  bool files = false;
  double seconds = kAnswerSeconds;
};

std::unique_ptr<HttpServer> listen(const HttpSetup& setup) {
  const std::filesystem::path library = plugin_path("libmoesim_http.so");
  if (!path_exists(library))
    throw InputError(
        fmt::format("serve: this moesim was built without cpp-httplib (no {}); install "
                    "libcpp-httplib-dev, configure and build again",
                    library.string()));
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) throw InputError(fmt::format("serve: cannot load HTTP: {}", one_line(::dlerror())));
  auto* begin = reinterpret_cast<HttpServer* (*)(const HttpSetup*, std::string*)>(
      ::dlsym(handle, "moesim_http_listen"));
  check(begin != nullptr, "libmoesim_http.so has moesim_http_listen");
  std::string why;
  std::unique_ptr<HttpServer> server(begin(&setup, &why));
  if (!server)
    throw InputError(fmt::format("serve: cannot listen at {} port {}: {}", setup.address, setup.port, why));
  return server;
}

HttpReply as_http(Reply reply, const char* type) {
  const auto error = [&](int status) {
    return HttpReply{status, "application/json", json_text({{"error", reply.text}})};
  };
  switch (reply.kind) {
    case Reply::Kind::kDone:
      return {200, type, std::move(reply.text)};
    case Reply::Kind::kRefused:
      return error(400);
    case Reply::Kind::kTooLong:
      return error(504);
    case Reply::Kind::kBusy:
      return error(503);
    case Reply::Kind::kFailed:
      break;
  }
  return error(500);
}

HttpReply reply_to(Answerer& answerer, const std::string& page, const std::string& method,
                   const std::string& path, const std::string& body) {
  constexpr const char *kHtml = "text/html; charset=utf-8", *kJson = "application/json";
  if (path == "/" && method == "GET") return {200, kHtml, page};
  if (method == "POST") {
    if (path == "/answer") return as_http(answerer.ask(kAnswerQuestion, body), kJson);
    if (path == "/crossover") return as_http(answerer.ask(kCrossoverQuestion, body), kJson);
    if (path == "/plan") return as_http(answerer.ask(kPlanQuestion, body), kJson);
    if (path == "/report") return as_http(answerer.ask(kReportQuestion, body), kHtml);
  }
  return {404, kJson,
          json_text({{"error",
                      "found another path, expected GET /, or POST /answer, /crossover, /plan or /report"}})};
}

// Reads shared data once, before the answering processes are forked.
void warm_up() {
  answer_question(kAnswerQuestion,
                  R"({"model": "mixtral-8x7b", "parallel": {"ep": 8}, "dispatcher": "all", "draws": 1})");
}

// Waits for Ctrl-C or SIGTERM; does not wait for a second one.
void wait_for_end(const sigset_t& ends) {
  int which = 0;
  while (::sigwait(&ends, &which) != 0) {
  }
  ::pthread_sigmask(SIG_UNBLOCK, &ends, nullptr);
}

// Returns whether the address is reachable only from this machine.
bool is_loopback(const std::string& address) {
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, address.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  if (::inet_pton(AF_INET6, address.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  return address == "localhost";
}

struct Served {
  std::string url;
  int port;
};

Columns<Served> columns_of(Of<Served>) {
  return {{"url", &Served::url, "where the page is"}, {"port", &Served::port}};
}

int run_serve(const ServeOptions& o, const CommonOptions& common) {
  if (!report_missing().empty()) throw InputError(fmt::format("serve: {}", report_missing()));
  if (common.format == Format::kCsv) throw InputError("serve: found --format csv, expected table or json");
  AnswerLimits limits;
  limits.files = o.files;
  limits.seconds = o.seconds;
  Answerer answerer(limits, answer_question, warm_up);
  // Threads inherit the mask, so that the thread below receives them.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);

  const std::string page = with_data(live_template(), page_data(limits.files));
  HttpSetup setup;
  // localhost is the loopback address also where no hosts file names it (RFC 6761, 6.3).
  setup.address = o.address == "localhost" ? "127.0.0.1" : o.address;
  setup.port = o.port;
  setup.hosts.names = {"localhost", "127.0.0.1", "[::1]"};
  setup.hosts.names.insert(setup.hosts.names.end(), o.names.begin(), o.names.end());
  const std::string shown = o.address.find(':') == std::string::npos ? o.address : "[" + o.address + "]";
  const bool open = !is_loopback(o.address);
  if (!open) setup.hosts.names.push_back(shown);
  setup.hosts.any_address = open;
  setup.policy = live_policy();
  setup.reply = [&](const std::string& method, const std::string& path, const std::string& body) {
    return reply_to(answerer, page, method, path, body);
  };
  const std::unique_ptr<HttpServer> server = listen(setup);
  HelperThreads running(1, [&] { server->run(); });
  if (running.size() == 0) throw InputError("serve: found no thread to run in: the system starts no more");
  // Before joining the thread, even where the URL cannot be printed.
  const auto stop = [](HttpServer* running_one) { running_one->stop(); };
  const std::unique_ptr<HttpServer, decltype(stop)> stopped(server.get(), stop);
  const std::string url = fmt::format("http://{}:{}/", shown, server->port());
  if (common.format == Format::kJson) {
    print_result("serve", describe_inputs(common), json_of(Served{url, server->port()}));
  } else {
    print(fmt::format("moesim serve: {} (Ctrl-C ends it)\n", url));
  }
  if (open) warn(common, "everybody who reaches " + url + " may ask; there is no password and no encryption");
  wait_for_end(ends);
  answerer.stop();
  return 0;
}

}  // namespace

const ResultSchema kServeSchema("serve", "serve", schema_of<Served>);

Verb serve_verb() {
  return {
      "serve", "the same questions as a live page on this machine",
      "  moesim serve --port 8765\n"
      "  moesim serve --port 0 --format json",
      [](CLI::App& app) -> Run {
        auto o = std::make_shared<ServeOptions>();
        app.add_option("--port", o->port, "Where to listen; 0: a free one, which is printed [8765]")
            ->check(CLI::Range(0, 65535).description(""));
        app.add_option(
               "--listen", o->address,
               "Address of this machine; any other than a loopback one lets other machines ask [127.0.0.1]")
            ->type_name("ADDRESS");
        app.add_option("--name", o->names, "With --listen: a name under which browsers may call this machine")
            ->type_name("NAME")
            ->allow_extra_args(false);
        app.add_flag("--allow-files", o->files, "Scenarios may name files of this machine");
        app.add_option("--seconds", o->seconds, "The most that one answer may take [10]")
            ->check(CLI::Range(0.1, 600.0).description(""));
        return [o](const CommonOptions& common) { return run_serve(*o, common); };
      }};
}

}  // namespace moesim::tools
