#include "transport/web/http.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
// Of connections that nobody has taken yet: with the library's five a crowd is reset before it can be told that it is one.
#define CPPHTTPLIB_LISTEN_BACKLOG 1024
#include <httplib.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace atl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRequestsOnAConnection = 100;
constexpr Duration kLookForStop = std::chrono::milliseconds(200);

// A connection as cpp-httplib sees it, with an end to everything: what arrives is bounded in bytes and in time.
class BoundedStream : public httplib::Stream {
 public:
  BoundedStream(int socket, const HttpLimits& limits, const std::atomic<bool>& stopping, const TlsContext* tls)
      : socket_(socket), limits_(limits), stopping_(stopping) {
    if (tls != nullptr) {
      tls_ = std::make_unique<TlsConnection>(*tls, socket);
    }
  }

  // False: the other side does not speak TLS as it has to.
  bool begin() {
    const auto until = Clock::now() + limits_.request;
    return tls_ == nullptr || tls_->accept([&](bool reading) { return wait(reading ? POLLIN : POLLOUT, until); });
  }

  // The next request on the connection: its own bytes and time. False: none begins.
  bool next_request() {
    left_ = limits_.header_bytes;
    deadline_ = Clock::now() + limits_.request;
    return is_readable();
  }

  bool is_readable() const override { return begin_ < end_ || (tls_ && tls_->has_pending()) || wait(POLLIN, deadline_); }
  bool is_writable() const override { return wait(POLLOUT, Clock::now() + limits_.write); }
  // Of newer versions of cpp-httplib.
  virtual bool wait_readable() const { return is_readable(); }
  virtual bool wait_writable() const { return is_writable(); }
  virtual time_t duration() const { return 0; }

  ssize_t read(char* to, std::size_t size) override {
    if (left_ == 0) {
      return -1;
    }
    if (begin_ == end_) {
      if (!is_readable()) {
        return -1;
      }
      const ssize_t got =
          tls_ ? tls_->read(buffer_.data(), buffer_.size(), [&](bool reading) { return wait(reading ? POLLIN : POLLOUT, deadline_); })
               : ::recv(socket_, buffer_.data(), buffer_.size(), 0);
      if (got <= 0) {
        return got;
      }
      begin_ = 0;
      end_ = static_cast<std::size_t>(got);
    }
    const std::size_t taken = std::min({size, end_ - begin_, left_});
    std::memcpy(to, buffer_.data() + begin_, taken);
    begin_ += taken;
    left_ -= taken;
    return static_cast<ssize_t>(taken);
  }

  ssize_t write(const char* from, std::size_t size) override {
    if (!tls_) {
      return is_writable() ? ::send(socket_, from, size, MSG_NOSIGNAL) : -1;
    }
    const auto until = Clock::now() + limits_.write;
    return tls_->write(from, size, [&](bool reading) { return wait(reading ? POLLIN : POLLOUT, until); });
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  void get_local_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  int socket() const override { return socket_; }

 private:
  bool wait(short what, Clock::time_point until) const {
    while (!stopping_) {
      const auto left = std::min<Duration>(until - Clock::now(), kLookForStop);
      pollfd one{socket_, what, 0};
      const int ready = ::poll(&one, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(std::max(left, Duration{})).count()));
      if (ready > 0) {
        return (one.revents & what) != 0;
      }
      if (ready < 0 || Clock::now() >= until) {
        return false;
      }
    }
    return false;
  }

  int socket_;
  const HttpLimits& limits_;
  const std::atomic<bool>& stopping_;
  std::unique_ptr<TlsConnection> tls_;
  std::array<char, 4096> buffer_{};
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t left_ = 0;
  Clock::time_point deadline_;
};

// A thread for each connection, up to a number. Beyond it the accepting thread takes the connection itself, and turns it away.
class ConnectionThreads : public httplib::TaskQueue {
 public:
  ConnectionThreads(std::size_t most, std::atomic<std::size_t>& open) : most_(most), open_(open) {}

  // Newer versions of cpp-httplib want to know whether it was taken.
  using Enqueued = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));
  Enqueued enqueue(std::function<void()> connection) override {
    if (!begin(connection)) {
      turned_away() = true;
      connection();
      turned_away() = false;
    }
    return Enqueued(!std::is_void_v<Enqueued>);
  }
  void shutdown() override {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return open_ == 0; });
  }

  static bool& turned_away() {
    static thread_local bool flag = false;
    return flag;
  }

 private:
  // False: there are too many, or there is no thread to be had.
  bool begin(const std::function<void()>& connection) {
    const std::lock_guard lock(mutex_);
    if (open_ >= most_) {
      return false;
    }
    try {
      std::thread([this, connection] {
        connection();
        const std::lock_guard ending(mutex_);
        --open_;
        idle_.notify_all();
      }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    ++open_;
    return true;
  }

  std::size_t most_;
  std::atomic<std::size_t>& open_;
  std::mutex mutex_;
  std::condition_variable idle_;
};

class Server : public httplib::Server {
 public:
  Server(const HttpLimits& limits, const std::atomic<bool>& stopping, const std::shared_ptr<TlsContext>& tls)
      : limits_(limits), stopping_(stopping), tls_(tls) {}

 private:
  bool process_and_close_socket(int socket) override {
    if (ConnectionThreads::turned_away()) {
      static constexpr std::string_view kBusy =
          "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Type: text/plain\r\nContent-Length: 49\r\nConnection: "
          "close\r\n\r\n"
          "too many viewers at the moment; try again later\r\n";
      if (!tls_) {
        take_request(socket);
        (void)!::send(socket, kBusy.data(), kBusy.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      }
    } else {
      serve(socket);
    }
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return true;
  }

  // What was asked is read before the connection is closed: else the answer is lost with it. Nobody waits for long here, for this is the
  // thread that accepts.
  static void take_request(int socket) {
    constexpr int kMomentMs = 20;
    std::array<char, 4096> dropped{};
    pollfd one{socket, POLLIN, 0};
    if (::poll(&one, 1, kMomentMs) == 1) {
      (void)!::recv(socket, dropped.data(), dropped.size(), MSG_DONTWAIT);
    }
  }

  void serve(int socket) {
    const int flags = ::fcntl(socket, F_GETFL);
    ::fcntl(socket, F_SETFL, tls_ ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
    const timeval patience{std::chrono::duration_cast<std::chrono::seconds>(limits_.write).count(), 0};
    ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    BoundedStream stream(socket, limits_, stopping_, tls_.get());
    if (!stream.begin()) {
      return;
    }
    for (int count = 1; count <= kRequestsOnAConnection && stream.next_request(); ++count) {
      bool closed = false;
      bool plain = true;  // a request that may be followed by another
      const bool answered = one_request(stream, count == kRequestsOnAConnection, closed, [&](httplib::Request& request) {
        plain = (request.method == "GET" || request.method == "HEAD") && !request.has_header("Content-Length") &&
                !request.has_header("Transfer-Encoding");
        request.ranges.clear();
      });
      if (!answered || closed || !plain) {
        return;
      }
    }
  }

  template <typename Setup>
  bool one_request(httplib::Stream& stream, bool last, bool& closed, const Setup& setup) {
    const auto call = [&](auto& self) {
      if constexpr (requires { self.process_request(stream, last, closed, setup); }) {
        return self.process_request(stream, last, closed, setup);
      } else {  // newer versions of cpp-httplib
        return self.process_request(stream, std::string(), 0, std::string(), 0, last, closed, setup);
      }
    };
    return call(*this);
  }

  const HttpLimits& limits_;
  const std::atomic<bool>& stopping_;
  const std::shared_ptr<TlsContext>& tls_;
};

// A viewer's token, as programs and browsers say it.
std::string token_of(const httplib::Request& request) {
  const std::string bearer = request.get_header_value("Authorization");
  if (bearer.starts_with("Bearer ")) {
    return bearer.substr(7);
  }
  const std::string cookies = "; " + request.get_header_value("Cookie");
  const std::string name = std::string("; ") + kViewerCookie + "=";
  const std::size_t found = cookies.find(name);
  if (found == std::string::npos) {
    return "";
  }
  const std::size_t begin = found + name.size();
  return cookies.substr(begin, cookies.find(';', begin) - begin);
}

void refuse(httplib::Response& response, int status, const std::string& why) {
  response.status = status;
  response.set_content(why + "\n", "text/plain; charset=utf-8");
}

// The same for every answer: nothing from elsewhere, nothing guessed, nothing told to other sites.
void set_headers(httplib::Server& server) {
  server.set_default_headers(
      {{"Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"},
       {"X-Content-Type-Options", "nosniff"},
       {"Referrer-Policy", "no-referrer"},
       {"Cross-Origin-Resource-Policy", "same-origin"}});
}

}  // namespace

struct HttpServer::Body {
  HttpLimits limits;
  HttpHandler handler;
  std::atomic<bool> stopping = false;
  std::atomic<bool> ended = false;
  std::atomic<std::size_t> open = 0;
  std::shared_ptr<TlsContext> tls;
  Server server{limits, stopping, tls};
  int port = 0;
  std::thread accepting;

  void answer(const httplib::Request& request, httplib::Response& response);
};

bool names_loopback(std::string_view host) {
  if (host.starts_with('[')) {
    return host.starts_with("[::1]") && (host.size() == 5 || host[5] == ':');
  }
  const std::string name(host.substr(0, host.rfind(':')));
  return Address{name, 1}.is_loopback() && name.find(':') == std::string::npos;
}

void HttpServer::Body::answer(const httplib::Request& request, httplib::Response& response) {
  if (request.method != "GET" && request.method != "HEAD") {
    response.set_header("Allow", "GET, HEAD");
    return refuse(response, 405, "the page changes nothing: only GET and HEAD");
  }
  if (!tls && !names_loopback(request.get_header_value("Host"))) {
    return refuse(response, 403,
                  "this page answers to localhost, 127.0.0.1 and [::1] only; a proxy in front of it must send one of them as Host");
  }
  HttpRequest asked{request.path, {}, request.get_header_value("Last-Event-ID"), tls ? token_of(request) : ""};
  for (const auto& [key, value] : request.params) {
    asked.query.emplace(key, value);
  }
  HttpAnswer answer = handler(asked);
  response.status = answer.status;
  response.set_header("Cache-Control", "no-store");
  for (const auto& [name, value] : answer.headers) {
    response.set_header(name, value);
  }
  if (!answer.stream) {
    response.set_content(answer.body, answer.type);
    return;
  }
  response.set_chunked_content_provider(answer.type, [this, next = std::move(answer.stream)](std::size_t, httplib::DataSink& sink) {
    std::string piece;
    const bool more = !stopping && next(piece) && !stopping;
    if (!piece.empty() && !sink.write(piece.data(), piece.size())) {
      return false;
    }
    if (!more) {
      sink.done();
    }
    return true;
  });
}

HttpServer::HttpServer(std::unique_ptr<Body> body) : body_(std::move(body)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::start(const Address& address, HttpHandler handler, const HttpLimits& limits,
                                                      std::shared_ptr<TlsContext> tls) {
  auto body = std::make_unique<Body>();
  body->limits = limits;
  body->handler = std::move(handler);
  body->tls = std::move(tls);
  httplib::Server& server = body->server;
  server.new_task_queue = [raw = body.get()] { return new ConnectionThreads(raw->limits.connections, raw->open); };
  server.set_payload_max_length(0);
  server.set_socket_options([](int socket) {  // not what it does by default: another process may not share the port
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  });
  set_headers(server);
  server.set_pre_routing_handler([raw = body.get()](const httplib::Request& request, httplib::Response& response) {
    raw->answer(request, response);
    return httplib::Server::HandlerResponse::Handled;
  });
  server.set_exception_handler([](const httplib::Request&, httplib::Response& response, const std::exception_ptr&) {
    refuse(response, 500, "the page has a defect here");
  });
  errno = 0;
  const auto bind_at = [&](const std::string& host) {
    return address.port == 0 ? server.bind_to_any_port(host) : server.bind_to_port(host, address.port) ? address.port : -1;
  };
  const bool everywhere = address.host == "*";
  body->port = bind_at(everywhere ? "::" : address.host);
  if (everywhere && body->port <= 0 && errno != EADDRINUSE) {
    body->port = bind_at("0.0.0.0");  // a machine without IPv6
  }
  if (body->port <= 0) {
    const std::string where = address.host + ":" + std::to_string(address.port);
    return errno == EADDRINUSE
               ? Error{Code::conflict,
                       "the page cannot be served at " + where + ": the port is in use; choose another one, or stop who has it (ss -ltnp)"}
               : Error{Code::io, "the page cannot be served at " + where + (errno == 0 ? "" : std::string(": ") + std::strerror(errno))};
  }
  body->accepting = std::thread([raw = body.get()] {
    raw->server.listen_after_bind();
    raw->ended = true;
  });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(body)));
}

HttpServer::~HttpServer() {
  body_->stopping = true;
  while (!body_->server.is_running() && !body_->ended) {  // a server that does not accept yet cannot be told to stop
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  body_->server.stop();
  body_->accepting.join();
}

std::uint16_t HttpServer::port() const { return static_cast<std::uint16_t>(body_->port); }
std::size_t HttpServer::open_connections() const { return body_->open; }

}  // namespace atl
