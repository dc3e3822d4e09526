// A listening socket on loopback with one thread that serves its connections, one after the other: what the tests' HTTP servers stand on.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace atl_test {

class LoopbackServer {
 public:
  // `talk` has one connection, which is closed when it returns. It runs from the beginning, in the server's thread: what it uses must be
  // there before the server is, and outlive it.
  explicit LoopbackServer(std::function<void(int connection)> talk)
      : talk_(std::move(talk)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("a test's server cannot listen");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~LoopbackServer() {
    stop_ = true;
    thread_.join();
    ::close(listener_);
  }
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;

  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] bool stops() const { return stop_; }

  // The head of a request, with the empty line that ends it; less where the client hung up.
  static std::string read_head(int connection) {
    std::string head;
    char byte = 0;
    while (head.find("\r\n\r\n") == std::string::npos && ::recv(connection, &byte, 1, 0) == 1) {
      head += byte;
    }
    return head;
  }
  // All of it, or what the client takes.
  static void send_all(int connection, std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
      if (count <= 0) {
        return;
      }
      text.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  // Sends the text two bytes at a time, ten times a second, until the client gives up or the server stops.
  void drip(int connection, std::string_view text) const {
    while (!stop_ && !text.empty() && ::send(connection, text.data(), std::min<std::size_t>(2, text.size()), MSG_NOSIGNAL) > 0) {
      text.remove_prefix(std::min<std::size_t>(2, text.size()));
      pollfd closed{connection, POLLRDHUP, 0};
      if (::poll(&closed, 1, 100) != 0) {
        return;
      }
    }
  }
  // Says nothing until the client gives up or the server stops.
  void stay_silent(int connection) const {
    char byte = 0;
    while (!stop_ && ::recv(connection, &byte, 1, MSG_DONTWAIT) != 0) {
      pollfd waiting{connection, POLLIN, 0};
      ::poll(&waiting, 1, 20);
    }
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
        talk_(connection);
        ::close(connection);
      }
    }
  }

  std::function<void(int)> talk_;
  int listener_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace atl_test
