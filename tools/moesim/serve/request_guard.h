// Accepts or refuses requests of `moesim serve` by their head, before anything reads the body.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moesim::tools {

// A refused request: HTTP status, and the reason in one line.
struct Refusal {
  int status = 400;
  std::string why;
};

// Names under which a browser may address this server. A foreign page whose name was redirected here (DNS
// rebinding) uses another name and is refused.
struct KnownHosts {
  std::vector<std::string> names;  // lower case, without a port
  bool any_address = false;        // also any numeric address, which cannot be redirected
  int port = 0;

  // `host`: a Host header, "127.0.0.1:8765".
  bool knows(std::string_view host) const;
};

// `head`: everything up to and including the empty line. Returns why the request is refused; nullopt for a
// request whose method is GET, HEAD or POST, that does not come from another site's page, and whose body is
// JSON of a declared length.
std::optional<Refusal> refuse_head(std::string_view head, const KnownHosts& hosts);

// Returns "HTTP/1.1 403 Forbidden ..." with the reason as JSON: {"error": why}.
std::string refusal_text(const Refusal& refusal);

// Returns the headers of every reply, as name and value; `policy`: the Content-Security-Policy.
std::vector<std::pair<std::string, std::string>> reply_headers(std::string_view policy);

}  // namespace moesim::tools
