#include "tools/moesim/serve/request_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tools/moesim/serve/limits.h"

namespace moesim::tools {

namespace {

bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

bool is_plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c == '\t' || (c >= ' ' && c != 0x7f); });
}

bool is_figures(std::string_view host) {
  if (host.starts_with('[')) return host.find_first_not_of("[]0123456789abcdef:.") == std::string_view::npos;
  return !host.empty() && host.find_first_not_of("0123456789.") == std::string_view::npos;
}

struct Head {
  std::string method, target;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case

  std::vector<std::string> all(std::string_view name) const {
    std::vector<std::string> found;
    for (const auto& [key, value] : headers)
      if (key == name) found.push_back(value);
    return found;
  }
  // Returns empty where there is none.
  std::string one(std::string_view name) const {
    const auto found = all(name);
    return found.empty() ? "" : found.front();
  }
};

std::optional<Refusal> read_request_line(std::string_view line, Head& head) {
  const auto words = split(line, ' ');
  if (words.size() != 3 || !words[2].starts_with("HTTP/1.") || !words[1].starts_with('/') ||
      !is_plain(line) || line.find('\t') != std::string_view::npos)
    return Refusal{400, "found no request of HTTP/1.1"};
  head.method = words[0];
  head.target = words[1];
  if (head.method != "GET" && head.method != "HEAD" && head.method != "POST")
    return Refusal{405, fmt::format("found {}, expected GET or POST", in_quotes(head.method))};
  if (head.target.size() > kMostTargetBytes)
    return Refusal{414, fmt::format("found a path of {} bytes, expected at most {}", head.target.size(),
                                    kMostTargetBytes)};
  return std::nullopt;
}

std::optional<Refusal> read_headers(std::string_view text, Head& head) {
  while (!text.empty()) {
    const std::size_t end = text.find("\r\n");
    if (end == std::string_view::npos) return Refusal{400, "found a header without its end"};
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 2);
    if (line.empty()) break;
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon)) || !is_plain(line))
      return Refusal{400, fmt::format("found {}, expected a header", in_quotes(line))};
    if (head.headers.size() == kMostHeaders)
      return Refusal{431, fmt::format("found more than {} headers", kMostHeaders)};
    head.headers.emplace_back(lower(line.substr(0, colon)), trim(line.substr(colon + 1)));
  }
  return std::nullopt;
}

// A body must be uncompressed JSON with a declared length.
std::optional<Refusal> refuse_body(const Head& head) {
  for (const char* name : {"transfer-encoding", "content-encoding", "expect", "upgrade", "range"})
    if (!head.all(name).empty()) return Refusal{400, fmt::format("found the header {}, expected none", name)};
  const auto lengths = head.all("content-length");
  const std::int64_t length = lengths.empty() ? 0 : parse_int(lengths.front()).value_or(-1);
  if (lengths.size() > 1 || length < 0) return Refusal{400, "content-length: found no single length"};
  if (head.method != "POST") {
    if (length > 0) return Refusal{400, fmt::format("found {} with a body, expected none", head.method)};
    return std::nullopt;
  }
  if (lengths.empty()) return Refusal{411, "found no content-length, expected one"};
  if (static_cast<std::uint64_t>(length) > kMostBodyBytes)
    return Refusal{413, fmt::format("found a body of {} bytes, expected at most {}", length, kMostBodyBytes)};
  const auto types = head.all("content-type");
  const std::string type = types.size() == 1 ? lower(types.front()) : "";
  if (trim(std::string_view(type).substr(0, type.find(';'))) != "application/json")
    return Refusal{415, fmt::format("content-type: found {}, expected application/json", in_quotes(type))};
  return std::nullopt;
}

const char* reason_of(int status) {
  switch (status) {
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Bad Request";
  }
}

}  // namespace

bool KnownHosts::knows(std::string_view host) const {
  std::string name = lower(host);
  const std::size_t colon = name.rfind(':');
  if (colon != std::string::npos && name.find(']', colon) == std::string::npos) {
    const auto said = parse_int(std::string_view(name).substr(colon + 1));
    if (!said || *said != port) return false;
    name.resize(colon);
  } else if (port != 80) {
    return false;
  }
  return std::ranges::find(names, name) != names.end() || (any_address && is_figures(name));
}

std::optional<Refusal> refuse_head(std::string_view text, const KnownHosts& hosts) {
  const std::size_t end = text.find("\r\n");
  if (end == std::string_view::npos) return Refusal{400, "found no request of HTTP/1.1"};
  Head head;
  if (auto refusal = read_request_line(text.substr(0, end), head)) return refusal;
  if (auto refusal = read_headers(text.substr(end + 2), head)) return refusal;
  const auto named = head.all("host");
  if (named.size() != 1)
    return Refusal{400, fmt::format("found {} headers Host, expected one", named.size())};
  if (!hosts.knows(named.front()))
    return Refusal{403, fmt::format("Host: found {}, expected the address that `moesim serve` printed",
                                    in_quotes(named.front()))};
  for (const std::string& origin : head.all("origin"))
    if (lower(origin) != "http://" + lower(named.front()))
      return Refusal{403,
                     fmt::format("Origin: found {}, expected this server's own page", in_quotes(origin))};
  const std::string site = lower(head.one("sec-fetch-site"));
  if (head.method == "POST" && !site.empty() && site != "same-origin" && site != "none")
    return Refusal{403,
                   fmt::format("Sec-Fetch-Site: found {}, expected this server's own page", in_quotes(site))};
  return refuse_body(head);
}

std::string refusal_text(const Refusal& refusal) {
  const std::string body =
      nlohmann::json{{"error", refusal.why}}.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
      "\n";
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", refusal.status, reason_of(refusal.status));
  for (const auto& [name, value] : reply_headers("default-src 'none'"))
    text += fmt::format("{}: {}\r\n", name, value);
  return text +
         fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                     body.size(), body);
}

std::vector<std::pair<std::string, std::string>> reply_headers(std::string_view policy) {
  return {{"Content-Security-Policy", std::string(policy)},
          {"X-Content-Type-Options", "nosniff"},
          {"X-Frame-Options", "DENY"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Opener-Policy", "same-origin"},
          {"Cross-Origin-Resource-Policy", "same-origin"},
          {"Cache-Control", "no-store"}};
}

}  // namespace moesim::tools
