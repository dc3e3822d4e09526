// A tiny HTTP/1.1 server on loopback, in a thread of its own, that misbehaves as told: for tests of fetching.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace atl_test {

class HttpServer {
 public:
  struct Request {
    std::string path;
    std::size_t begin = 0;  // of the range asked for
    bool ranged = false;
    std::size_t number = 0;  // 0, 1, …
  };
  // What to do with a request. `content` is the whole file; a range of it is sent unless `ignore_range`.
  struct Answer {
    int status = 200;
    std::string content;
    std::string header;                          // one more, "Location: …"
    std::size_t drop_after = std::string::npos;  // of the body: then the connection is closed
    bool ignore_range = false;
    bool silent = false;  // never answers
  };
  using Handler = std::function<Answer(const Request&)>;

  explicit HttpServer(Handler handler) : handler_(std::move(handler)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("the test's HTTP server cannot listen");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() {
    stop_ = true;
    thread_.join();
    ::close(listener_);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] std::string url(const std::string& path) const { return "http://127.0.0.1:" + std::to_string(port_) + path; }
  [[nodiscard]] std::vector<Request> requests() const {
    const std::scoped_lock lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    while (!stop_) {
      pollfd waiting{listener_, POLLIN, 0};
      if (::poll(&waiting, 1, 20) <= 0) {
        continue;
      }
      const int connection = ::accept(listener_, nullptr, nullptr);
      if (connection >= 0) {
        talk(connection);
        ::close(connection);
      }
    }
  }

  void talk(int connection) {
    std::string head;
    char byte = 0;
    while (head.find("\r\n\r\n") == std::string::npos && ::recv(connection, &byte, 1, 0) == 1) {
      head += byte;
    }
    Request request;
    request.path = head.substr(4, head.find(' ', 4) - 4);
    if (const std::size_t at = head.find("Range: bytes="); at != std::string::npos) {
      request.ranged = true;
      request.begin = std::stoul(head.substr(at + 13));
    }
    {
      const std::scoped_lock lock(mutex_);
      request.number = requests_.size();
      requests_.push_back(request);
    }
    const Answer answer = handler_(request);
    if (answer.silent) {
      while (!stop_ && ::recv(connection, &byte, 1, MSG_DONTWAIT) != 0) {  // until the client gives up
        pollfd waiting{connection, POLLIN, 0};
        ::poll(&waiting, 1, 20);
      }
      return;
    }
    reply(connection, request, answer);
  }

  static void reply(int connection, const Request& request, const Answer& answer) {
    int status = answer.status;
    std::string body = answer.content;
    std::string range;
    if (status == 200 && request.ranged && !answer.ignore_range) {
      status = request.begin >= body.size() ? 416 : 206;
      range = "Content-Range: bytes " + std::to_string(request.begin) + "-" + std::to_string(body.size() - 1) + "/" +
              std::to_string(body.size()) + "\r\n";
      body = status == 416 ? "" : body.substr(request.begin);
    }
    send_all(connection, "HTTP/1.1 " + std::to_string(status) + " Whatever\r\nConnection: close\r\nContent-Length: " +
                             std::to_string(body.size()) + "\r\n" + range + (answer.header.empty() ? "" : answer.header + "\r\n") + "\r\n");
    send_all(connection, body.substr(0, answer.drop_after));
  }

  static void send_all(int connection, std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
      if (count <= 0) {
        return;
      }
      text.remove_prefix(static_cast<std::size_t>(count));
    }
  }

  Handler handler_;
  int listener_;
  std::uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::vector<Request> requests_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace atl_test
