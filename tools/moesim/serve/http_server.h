// The HTTP interface of `moesim serve`. Only that verb loads the library that implements it (cpp-httplib).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tools/moesim/serve/request_guard.h"

namespace moesim::tools {

struct HttpReply {
  int status = 200;
  std::string type, body;
};

struct HttpSetup {
  std::string address;
  int port = 0;        // 0: any free port
  KnownHosts hosts;    // its port is filled in
  std::string policy;  // Content-Security-Policy
  // The method is GET or POST (HEAD arrives as GET); the path has no query. Called from several threads.
  std::function<HttpReply(const std::string& method, const std::string& path, const std::string& body)> reply;
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;
  virtual int port() const = 0;
  virtual void run() = 0;   // returns after stop() and the end of running requests
  virtual void stop() = 0;  // thread-safe
};

}  // namespace moesim::tools

// Listens; the only symbol looked up. Returns nullptr and sets `why` on failure.
extern "C" moesim::tools::HttpServer* moesim_http_listen(const moesim::tools::HttpSetup* setup,
                                                         std::string* why);
