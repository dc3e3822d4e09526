// An HTTP server for the coordinator's page and for metrics: connections, requests, answers. What is answered is somebody else's.
//
// cpp-httplib reads the requests and writes the answers; this file keeps its promises small. Only GET and HEAD, no bodies, no ranges. A
// request has at most 16 KiB of header and five seconds to arrive; an answer must be taken within ten seconds at each step, or the
// connection is closed. At most so many connections are open at a time; others get "503" at once. On loopback a request must name a
// loopback host, so that a web site cannot reach the page under a name of its own (DNS rebinding).
// Threads: each connection has one. Who makes the server may be any; the handler is called on the connections' threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/web/tls.hpp"

namespace atl {

struct HttpRequest {
  std::string path;                          // decoded: "/api/runs/text"; whatever was sent: it may be empty
  std::map<std::string, std::string> query;  // decoded
  std::string last_event_id;
  std::string token = {};  // of a viewer: of "Authorization: Bearer …", else of the cookie; "": none
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  // Instead of a body: called again and again, each time for the next piece, until it says that it was the last. It may wait for a while,
  // and an empty piece is fine.
  std::function<bool(std::string& piece)> stream = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

inline constexpr const char* kViewerCookie = "atoll_viewer";

using HttpHandler = std::function<HttpAnswer(const HttpRequest&)>;

struct HttpLimits {
  std::size_t connections = 256;
  std::size_t header_bytes = 16 * 1024;
  Duration request = std::chrono::seconds(5);  // for a request to arrive, and for the next one on the same connection to begin
  Duration write = std::chrono::seconds(10);   // for a reader to take what is sent
};

class HttpServer {
 public:
  // Listens at once. Errors: conflict if the port is in use, saying what to do; io.
  // With a certificate it speaks TLS, and answers to any host.
  static Result<std::unique_ptr<HttpServer>> start(const Address& address, HttpHandler handler, const HttpLimits& limits = {},
                                                   std::shared_ptr<TlsContext> tls = nullptr);
  // Ends all connections, streams within the time that their next piece takes.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::size_t open_connections() const;

 private:
  struct Body;
  explicit HttpServer(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

// Whether the text of a Host header names this machine's loopback: localhost, 127.0.0.0/8 or [::1], with any port.
bool names_loopback(std::string_view host);

}  // namespace atl
