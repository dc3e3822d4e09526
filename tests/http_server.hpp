// A tiny HTTP/1.1 server on loopback, in a thread of its own, that misbehaves as told: for tests of fetching.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "tests/loopback_server.hpp"

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
    bool silent = false;     // never answers
    bool drips = false;      // sends two bytes at a time
    bool no_length = false;  // the end of the connection is the end of the file
  };
  using Handler = std::function<Answer(const Request&)>;

  explicit HttpServer(Handler handler) : handler_(std::move(handler)), server_([this](int connection) { talk(connection); }) {}
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] std::string url(const std::string& path) const { return server_.url() + path; }
  [[nodiscard]] std::vector<Request> requests() const {
    const std::scoped_lock lock(mutex_);
    return requests_;
  }

 private:
  void talk(int connection) {
    const std::string head = LoopbackServer::read_head(connection);
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
      server_.stay_silent(connection);
      return;
    }
    reply(connection, request, answer);
  }

  void reply(int connection, const Request& request, const Answer& answer) const {
    int status = answer.status;
    std::string body = answer.content;
    std::string range;
    if (status == 200 && request.ranged && !answer.ignore_range) {
      status = request.begin >= body.size() ? 416 : 206;
      range = "Content-Range: bytes " + std::to_string(request.begin) + "-" + std::to_string(body.size() - 1) + "/" +
              std::to_string(body.size()) + "\r\n";
      body = status == 416 ? "" : body.substr(request.begin);
    }
    LoopbackServer::send_all(connection, "HTTP/1.1 " + std::to_string(status) + " Whatever\r\nConnection: close\r\n" +
                                             (answer.no_length ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") + range +
                                             (answer.header.empty() ? "" : answer.header + "\r\n") + "\r\n");
    if (answer.drips) {
      server_.drip(connection, body);
      return;
    }
    LoopbackServer::send_all(connection, body.substr(0, answer.drop_after));
  }

  Handler handler_;
  mutable std::mutex mutex_;
  std::vector<Request> requests_;
  LoopbackServer server_;  // ends before the others
};

}  // namespace atl_test
