// What `moesim serve` needs of HTTP, as an interface: the library that holds it (cpp-httplib) is loaded only
// by that verb.
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
  int port = 0;        // 0: a free one
  KnownHosts hosts;    // its port is filled in
  std::string policy;  // Content-Security-Policy
  // The method is GET or POST (HEAD is asked as GET), the path comes without its query. From several threads.
  std::function<HttpReply(const std::string& method, const std::string& path, const std::string& body)> reply;
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;
  virtual int port() const = 0;
  virtual void run() = 0;   // until stop(), and until the requests under way have ended
  virtual void stop() = 0;  // from any thread
};

}  // namespace moesim::tools

// Listens; the only symbol that is looked up. Returns nullptr and says why where it cannot.
extern "C" moesim::tools::HttpServer* moesim_http_listen(const moesim::tools::HttpSetup* setup,
                                                         std::string* why);
