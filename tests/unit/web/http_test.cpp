// The HTTP server of the coordinator's page, over real connections on loopback: what it answers, and what it keeps out.
#include "transport/web/http.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/catch.hpp"

namespace of_web_http_test {

using namespace atl;

namespace {

// A connection that sends what a test says.
class Connection {
 public:
  explicit Connection(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    const timeval patience{10, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { ::close(fd_); }

  void send(const std::string& text) const { (void)!::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  // Until the other end closes.
  [[nodiscard]] std::string rest() const {
    std::string all;
    char buffer[4096];
    for (ssize_t got = 0; (got = ::recv(fd_, buffer, sizeof buffer, 0)) > 0;) {
      all.append(buffer, static_cast<std::size_t>(got));
    }
    return all;
  }
  // At least once, until `end` has come.
  [[nodiscard]] std::string until(const std::string& end) const {
    std::string all;
    char buffer[4096];
    for (ssize_t got = 0; all.find(end) == std::string::npos && (got = ::recv(fd_, buffer, sizeof buffer, 0)) > 0;) {
      all.append(buffer, static_cast<std::size_t>(got));
    }
    return all;
  }

 private:
  int fd_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

HttpAnswer echo(const HttpRequest& request) {
  const auto found = request.query.find("since");
  return {200, "text/plain", "path " + request.path + " since " + (found == request.query.end() ? "-" : found->second), {}};
}

std::unique_ptr<HttpServer> serve(HttpHandler handler, HttpLimits limits = {}) {
  auto server = HttpServer::start({"127.0.0.1", 0}, std::move(handler), limits);
  REQUIRE(server);
  return std::move(server).value();
}

std::string ask(const HttpServer& server, const std::string& line, const std::string& headers = "Host: localhost\r\n") {
  const Connection connection(server.port());
  connection.send(line + " HTTP/1.1\r\n" + headers + "Connection: close\r\n\r\n");
  return connection.rest();
}

}  // namespace

TEST_CASE("the page's server answers GET and HEAD and nothing else") {
  const auto server = serve(echo);
  const std::string got = ask(*server, "GET /r/my%20run?since=7");
  CHECK(has(got, "HTTP/1.1 200"));
  CHECK(has(got, "path /r/my run since 7"));
  CHECK(has(got, "Content-Security-Policy: default-src 'self'"));
  CHECK(has(got, "X-Content-Type-Options: nosniff"));
  CHECK(has(got, "Referrer-Policy: no-referrer"));
  const std::string head = ask(*server, "HEAD /r/text");
  CHECK(has(head, "HTTP/1.1 200"));
  CHECK_FALSE(has(head, "path /r/text"));
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
    INFO(method);
    CHECK(has(ask(*server, std::string(method) + " /", "Host: localhost\r\nContent-Length: 5\r\n"), "HTTP/1.1 405"));
  }
  // A range is not an order to send the same bytes a thousand times.
  std::string ranges = "Range: bytes=0-";
  for (int i = 0; i < 1000; ++i) {
    ranges += ",0-";
  }
  CHECK(ask(*server, "GET /", "Host: localhost\r\n" + ranges + "\r\n").size() < 2000);
}

TEST_CASE("a request that names another host than loopback is refused, whoever resolves that name to it") {
  const auto server = serve(echo);
  for (const char* host : {"localhost", "localhost:4480", "127.0.0.1:4480", "127.1.2.3", "[::1]:4480", "[::1]"}) {
    INFO(host);
    CHECK(names_loopback(host));
    CHECK(has(ask(*server, "GET /", std::string("Host: ") + host + "\r\n"), "HTTP/1.1 200"));
  }
  for (const char* host :
       {"evil.example", "127.0.0.1.evil.example", "localhost.evil.example:4480", "[::2]", "10.0.0.1", "", "::1", "a:b:c"}) {
    INFO(host);
    CHECK_FALSE(names_loopback(host));
    CHECK(has(ask(*server, "GET /", std::string("Host: ") + host + "\r\n"), "HTTP/1.1 403"));
  }
  CHECK(has(ask(*server, "GET /", ""), "HTTP/1.1 403"));
}

TEST_CASE("a request that does not end, in bytes or in time, costs the page's server nothing") {
  HttpLimits limits;
  limits.header_bytes = 4096;
  limits.request = std::chrono::milliseconds(200);
  const auto server = serve(echo, limits);
  for (const std::string& flood : {"GET /" + std::string(100'000, 'a'), "GET / HTTP/1.1\r\nA: " + std::string(100'000, 'a'), [] {
                                     std::string many = "GET / HTTP/1.1\r\n";
                                     for (int i = 0; i < 5000; ++i) {
                                       many += "A" + std::to_string(i) + ": b\r\n";
                                     }
                                     return many + "\r\n";
                                   }()}) {
    const Connection connection(server->port());
    connection.send(flood);
    CHECK_FALSE(has(connection.rest(), "HTTP/1.1 200"));
  }
  const Connection slow(server->port());
  slow.send("GET / HT");  // and no more
  CHECK_FALSE(has(slow.rest(), "HTTP/1.1 200"));
  const Connection silent(server->port());
  CHECK(silent.rest().empty());
  CHECK(has(ask(*server, "GET /"), "HTTP/1.1 200"));
  CHECK(has(ask(*server, "GET /../../etc/passwd"), "path /../../etc/passwd"));  // a path is a word, and nobody opens it
  CHECK(has(ask(*server, "NONSENSE"), "HTTP/1.1 4"));
}

TEST_CASE("a connection too many is turned away at once, and the others go on") {
  HttpLimits limits;
  limits.connections = 2;
  const auto server = serve(
      [](const HttpRequest&) {
        return HttpAnswer{200, "text/event-stream", "", [](std::string& piece) {
                            piece = "data: x\n\n";
                            return true;
                          }};
      },
      limits);
  const Connection first(server->port());
  const Connection second(server->port());
  for (const Connection* viewer : {&first, &second}) {
    viewer->send("GET /api HTTP/1.1\r\nHost: localhost\r\n\r\n");
    CHECK(has(viewer->until("data: x"), "data: x"));
  }
  CHECK(has(ask(*server, "GET /"), "503 Service Unavailable"));
  CHECK(has(first.until("data: x"), "data: x"));
  CHECK(server->open_connections() == 2);
}

TEST_CASE("a reader who takes nothing is dropped") {
  HttpLimits limits;
  limits.connections = 1;
  limits.write = std::chrono::seconds(1);
  const auto server = serve(
      [](const HttpRequest& request) {
        return request.path == "/" ? HttpAnswer{200, "text/plain", "here", {}}
                                   : HttpAnswer{200, "text/event-stream", "", [](std::string& piece) {
                                                  piece = std::string(1'000'000, 'x');
                                                  return true;
                                                }};
      },
      limits);
  const Connection reader(server->port());
  reader.send("GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK(has(reader.until("\r\n"), "200"));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (server->open_connections() > 0 && std::chrono::steady_clock::now() < until) {
    ::usleep(10'000);
  }
  CHECK(server->open_connections() == 0);
  CHECK(has(ask(*server, "GET /"), "here"));
}

TEST_CASE("at every address means IPv4 and, where the machine has it, IPv6") {
  const auto server = HttpServer::start({"*", 0}, echo);
  REQUIRE(server);
  CHECK(has(ask(**server, "GET /"), "HTTP/1.1 200"));
  const int fd = ::socket(AF_INET6, SOCK_STREAM, 0);
  if (fd >= 0) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    address.sin6_port = htons((*server)->port());
    const bool connected = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    CHECK((connected || errno == EADDRNOTAVAIL || errno == ENETUNREACH));
    ::close(fd);
  }
  const auto second = HttpServer::start({"*", (*server)->port()}, echo);
  REQUIRE_FALSE(second);
  CHECK(second.error().code == Code::conflict);
}

TEST_CASE("a port in use is one clear line, and a server goes whether or not somebody came") {
  const auto server = serve(echo);
  const auto second = HttpServer::start({"127.0.0.1", server->port()}, echo);
  REQUIRE_FALSE(second);
  CHECK(second.error().code == Code::conflict);
  CHECK(has(second.error().why, "the port is in use"));
}

}  // namespace of_web_http_test
