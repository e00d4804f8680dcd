// Which requests `moesim serve` listens to: what stands before a body, checked before anything else reads it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moesim::tools {

// A request that is not answered: an HTTP status, and why in one line.
struct Refusal {
  int status = 400;
  std::string why;
};

// Names under which a browser may know this server. A page of somebody else whose name was made to lead here
// (DNS rebinding) calls it by that name, and is refused.
struct KnownHosts {
  std::vector<std::string> names;  // lower case, without a port
  bool any_address = false;        // an address in figures is fine, too: it is no name that could be moved
  int port = 0;

  // Of a Host header: "127.0.0.1:8765".
  bool knows(std::string_view host) const;
};

// `head`: everything up to and with the empty line. Returns why the request is refused, or nullopt: one whose
// method is GET, HEAD or POST, that came of no other site's page, and whose body is JSON of a length that it
// says.
std::optional<Refusal> refuse_head(std::string_view head, const KnownHosts& hosts);

// "HTTP/1.1 403 Forbidden ..." with the reason as JSON: {"error": why}.
std::string refusal_text(const Refusal& refusal);

// Headers of every reply, as "Name: value" without line ends; `policy`: the Content-Security-Policy.
std::vector<std::pair<std::string, std::string>> reply_headers(std::string_view policy);

}  // namespace moesim::tools
