// A store of objects on loopback, in memory, that misbehaves as told: for tests of what cannot be had from a real one on demand.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tests/loopback_server.hpp"

namespace atl_test {

class StoreServer {
 public:
  struct Request {
    std::string method;
    std::string path;                            // without its query
    std::string query_text;                      // as it came
    std::map<std::string, std::string> query;    // of S3's uploads in parts
    std::map<std::string, std::string> headers;  // names in lower case
    std::size_t number = 0;                      // 0, 1, …
  };
  // How to fail; nothing: as a store should.
  struct Failure {
    int status = 0;                                 // answers so; 0: not
    bool silent = false;                            // says nothing until the server ends
    std::string body = {};                          // of that answer
    std::string header = {};                        // further lines of that answer, each with its end
    std::size_t half_after = std::string::npos;     // of a body that it sends: then the connection is closed
    std::size_t hang_up_after = std::string::npos;  // of a body that it receives: then the connection is closed
    bool drips = false;                             // sends a body two bytes at a time
    bool spoils = false;                            // keeps another body than it receives
    bool forgets = false;                           // of an upload in parts: says that it took one, and does not keep it
  };
  using Chaos = std::function<Failure(const Request&)>;

  explicit StoreServer(Chaos chaos = {}) : chaos_(std::move(chaos)), server_([this](int connection) { talk(connection); }) {}
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  [[nodiscard]] std::string url() const { return server_.url(); }
  [[nodiscard]] std::map<std::string, std::string> objects() const {
    const std::scoped_lock lock(mutex_);
    return objects_;
  }
  // How many uploads in parts are neither finished nor dropped.
  [[nodiscard]] std::size_t uploads() const {
    const std::scoped_lock lock(mutex_);
    return uploads_.size();
  }
  void forget_uploads() {
    const std::scoped_lock lock(mutex_);
    uploads_.clear();
  }
  void set(const std::string& path, const std::string& bytes) {
    const std::scoped_lock lock(mutex_);
    objects_[path] = bytes;
  }
  // Those that a request of this method was for, with how it was answered.
  [[nodiscard]] std::vector<Request> requests(const std::string& method) const {
    const std::scoped_lock lock(mutex_);
    std::vector<Request> found;
    std::ranges::copy_if(requests_, std::back_inserter(found), [&](const Request& request) { return request.method == method; });
    return found;
  }

 private:
  static Request read_request(int connection) {
    const std::string head = LoopbackServer::read_head(connection);
    Request request;
    const std::size_t method_end = head.find(' ');
    request.method = head.substr(0, method_end);
    request.path = head.substr(method_end + 1, head.find(' ', method_end + 1) - method_end - 1);
    if (const std::size_t mark = request.path.find('?'); mark != std::string::npos) {
      for (std::size_t at = mark; at < request.path.size();) {
        const std::size_t end = std::min(request.path.find('&', at + 1), request.path.size());
        const std::string item = request.path.substr(at + 1, end - at - 1);
        const std::size_t equals = std::min(item.find('='), item.size());
        request.query[item.substr(0, equals)] = item.substr(std::min(equals + 1, item.size()));
        at = end;
      }
      request.query_text = request.path.substr(mark + 1);
      request.path.resize(mark);
    }
    for (std::size_t at = head.find("\r\n"); at + 2 < head.size(); at = head.find("\r\n", at + 2)) {
      const std::string line = head.substr(at + 2, head.find("\r\n", at + 2) - at - 2);
      if (const std::size_t colon = line.find(": "); colon != std::string::npos) {
        std::string name = line.substr(0, colon);
        std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        request.headers[name] = line.substr(colon + 2);
      }
    }
    return request;
  }

  void talk(int connection) {
    Request request = read_request(connection);
    if (request.method.empty()) {
      return;
    }
    {
      const std::scoped_lock lock(mutex_);
      request.number = requests_.size();
      requests_.push_back(request);
    }
    const Failure failure = chaos_ ? chaos_(request) : Failure{};
    std::string body;
    if (request.headers.contains("content-length")) {
      const std::size_t length = std::min<std::size_t>(std::stoul(request.headers["content-length"]), failure.hang_up_after);
      body.resize(length);
      for (std::size_t got = 0; got < length;) {
        const ssize_t some = ::recv(connection, body.data() + got, length - got, 0);
        if (some <= 0) {
          return;
        }
        got += static_cast<std::size_t>(some);
      }
      if (failure.hang_up_after != std::string::npos) {
        return;
      }
    }
    if (failure.silent) {
      server_.stay_silent(connection);
      return;
    }
    if (failure.drips) {
      LoopbackServer::send_all(connection, "HTTP/1.1 200 Whatever\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n");
      server_.drip(connection, std::string(100'000, ' '));
      return;
    }
    if (failure.status != 0) {
      reply(connection, request, failure.status, failure.body, failure.header);
      return;
    }
    if (failure.forgets) {
      reply(connection, request, 200, "", "ETag: \"" + request.query.at("partNumber") + "\"\r\n");
      return;
    }
    if (failure.spoils && !body.empty()) {
      body[body.size() / 2] = static_cast<char>(body[body.size() / 2] ^ 1);
    }
    act(connection, request, std::move(body), failure.half_after);
  }

  void act(int connection, const Request& request, std::string body, std::size_t half_after) {
    const std::scoped_lock lock(mutex_);
    const auto known = objects_.find(request.path);
    if (!request.query.empty()) {
      act_on_upload(connection, request, std::move(body));
    } else if (request.method == "PUT") {
      objects_[request.path] = std::move(body);
      reply(connection, request, 200, "");
    } else if (request.method == "DELETE") {
      const bool was = objects_.erase(request.path) > 0;
      reply(connection, request, was ? 204 : 404, "");
    } else if (known == objects_.end()) {
      reply(connection, request, 404, "<Error><Code>NoSuchKey</Code><Message>there is no such key</Message></Error>");
    } else if (const auto range = request.headers.find("range"); range != request.headers.end()) {
      std::size_t from = 0;
      std::size_t to = 0;
      std::sscanf(range->second.c_str(), "bytes=%zu-%zu", &from, &to);
      from = std::min(from, known->second.size());
      reply(connection, request, 206, known->second.substr(from, to - from + 1), "", half_after);
    } else {
      reply(connection, request, 200, known->second, "", half_after);
    }
  }

  // S3's objects in parts.
  void act_on_upload(int connection, const Request& request, std::string body) {
    static const std::string kGone = "<Error><Code>NoSuchUpload</Code><Message>there is no such upload</Message></Error>";
    if (request.query.contains("uploads")) {
      const std::string id = "upload-" + std::to_string(++uploads_begun_);
      uploads_[id] = {};
      reply(connection, request, 200, "<InitiateMultipartUploadResult><UploadId>" + id + "</UploadId></InitiateMultipartUploadResult>");
      return;
    }
    const auto upload = uploads_.find(request.query.at("uploadId"));
    if (upload == uploads_.end()) {
      reply(connection, request, 404, kGone);
    } else if (request.method == "PUT") {
      const int number = std::stoi(request.query.at("partNumber"));
      upload->second[number] = std::move(body);
      reply(connection, request, 200, "", "ETag: \"" + std::to_string(number) + "\"\r\n");
    } else if (request.method == "DELETE") {
      uploads_.erase(upload);
      reply(connection, request, 204, "");
    } else {
      std::string whole;
      for (const auto& [number, part] : upload->second) {
        const std::string text = std::to_string(number);
        const bool named = body.find("<PartNumber>" + text + "</PartNumber><ETag>\"" + text + "\"</ETag>") != std::string::npos;
        whole += named ? part : "";
      }
      objects_[request.path] = std::move(whole);
      uploads_.erase(upload);
      reply(connection, request, 200, "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>");
    }
  }

  static void reply(int connection, const Request& request, int status, const std::string& body, const std::string& header = "",
                    std::size_t half_after = std::string::npos) {
    LoopbackServer::send_all(connection, "HTTP/1.1 " + std::to_string(status) + " Whatever\r\nConnection: close\r\nContent-Length: " +
                                             std::to_string(body.size()) + "\r\n" + header + "\r\n");
    if (request.method != "HEAD") {
      LoopbackServer::send_all(connection, std::string_view(body).substr(0, half_after));
    }
  }

  Chaos chaos_;
  mutable std::mutex mutex_;
  std::vector<Request> requests_;
  std::map<std::string, std::string> objects_;
  std::map<std::string, std::map<int, std::string>> uploads_;
  int uploads_begun_ = 0;
  LoopbackServer server_;  // ends before the others
};

}  // namespace atl_test
