// A coordinator that says what a test wants, over the real control link on loopback, with keys.
#pragma once

#include <poll.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cli/settings/state_directory.hpp"
#include "tests/catch.hpp"
#include "tests/cli/command_call.hpp"
#include "tests/places.hpp"
#include "transport/zmq/control_server.hpp"

namespace atl {

class ScriptedCoordinator {
 public:
  // Answers a verb with a document or an error.
  using Answer = std::function<Reply(const std::string& verb, const nlohmann::json& arguments)>;

  explicit ScriptedCoordinator(Answer answer) : answer_(std::move(answer)) {
    static std::atomic<int> count = 0;
    state_ = std::filesystem::temp_directory_path() / ("atoll-scripted-" + std::to_string(::getpid()) + "-" + std::to_string(++count));
    const KeyPair keys = make_key_pair().value();
    server_ = ZmqControlServer::open({"tcp://127.0.0.1:*", keys, false}).value();
    address_ = server_->bound_address();
    REQUIRE(write_key_file(state_ / "keys" / "operator", make_key_pair().value()));
    REQUIRE(write_operator_file(state_, address_, keys.public_key));
    public_key_ = keys.public_key;
    thread_ = std::thread([this] { serve(); });
  }
  ScriptedCoordinator(const ScriptedCoordinator&) = delete;
  ScriptedCoordinator& operator=(const ScriptedCoordinator&) = delete;
  ~ScriptedCoordinator() {
    stop_ = true;
    thread_.join();
    std::filesystem::remove_all(state_);
  }

  Called call(std::vector<std::string> arguments) const { return atl::call(std::move(arguments), {{"ATOLL_STATE", state_.string()}}); }
  [[nodiscard]] const std::filesystem::path& state() const { return state_; }
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] const std::string& public_key() const { return public_key_; }
  // The arguments of each request of a verb, in order.
  std::vector<nlohmann::json> asked(const std::string& verb) {
    const std::lock_guard lock(mutex_);
    return asked_[verb];
  }

 private:
  void serve() {
    while (!stop_) {
      pollfd entry{server_->fd(), POLLIN, 0};
      ::poll(&entry, 1, 10);
      while (std::optional<Received> received = server_->receive()) {
        if (received->message) {
          take(*received);
        }
      }
    }
  }
  void take(const Received& received) {
    if (const auto* request = std::get_if<Request>(&*received.message)) {
      const nlohmann::json arguments = nlohmann::json::parse(request->arguments);
      {
        const std::lock_guard lock(mutex_);
        asked_[request->verb].push_back(arguments);
      }
      Reply reply = answer_(request->verb, arguments);
      reply.id = request->id;
      (void)server_->send(received.connection, reply);
    } else if (const auto* enrol = std::get_if<Enrol>(&*received.message)) {
      if (enrol->token_secret == "goodgoodgoodgoodgoodgoodgoodgood") {
        (void)server_->send(received.connection, Enrolled{"operator", {}, {}});
      } else {
        (void)server_->send(received.connection, Refused{Error{Code::unauthorized, "this token was used already"}});
      }
    }
  }

  Answer answer_;
  std::filesystem::path state_;
  std::string address_;
  std::string public_key_;
  std::unique_ptr<ZmqControlServer> server_;
  std::mutex mutex_;
  std::map<std::string, std::vector<nlohmann::json>> asked_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// The first JSON example under "## verb" of the documents' page.
inline nlohmann::json documented(const std::string& verb) {
  std::stringstream page;
  page << std::ifstream(atl_test::source_folder() + "/coordinator/api/documents.md").rdbuf();
  const std::string text = page.str();
  const std::size_t section = text.find("\n## " + verb);
  REQUIRE(section != std::string::npos);
  const std::size_t begin = text.find("```json\n", section) + 8;
  return nlohmann::json::parse(text.substr(begin, text.find("```", begin) - begin));
}

inline Reply document_reply(const nlohmann::json& document) {
  Reply reply;
  reply.document = document.dump();
  return reply;
}
inline Reply error_reply(Code code, std::string why) {
  Reply reply;
  reply.error = Error{code, std::move(why)};
  return reply;
}

}  // namespace atl
