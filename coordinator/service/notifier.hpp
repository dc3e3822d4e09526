// Web hooks: notices (notices.hpp) posted as JSON to an address of the operator's.
//
// A notice is posted until the address takes it, again after pauses that double from one second to five minutes, for a day; one that is
// refused (a status of 4xx) is given up at once. What was told and what waits stands in STATE/notices.json, so a restart loses and repeats
// nothing but what was being posted, and whoever gets a notice twice knows it by its id. With a secret each is signed: the header
// X-Atoll-Signature is "sha256=" and the HMAC-SHA-256 of the body in hex.
// Threads: one of its own. It asks for documents as the page does, and the core never waits for it.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "coordinator/service/notices.hpp"
#include "transport/base/result.hpp"

namespace atl::coordinator {

struct NotifySettings {
  std::string url;     // https, or http of this machine; empty: nobody is told
  std::string secret;  // empty: not signed
  NoticeSettings notices;
};

class Notifier {
 public:
  using Ask = std::function<Result<std::string>(const std::string& verb, const std::string& arguments)>;

  Notifier(NotifySettings settings, const std::filesystem::path& state, Ask ask);
  // Ends a post that is under way.
  ~Notifier();
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

 private:
  void run();
  void look();
  void remember();
  // False: it is to be tried again.
  bool deliver(const nlohmann::json& notice);
  bool wait(Duration time);  // false: it is to stop

  NotifySettings settings_;
  std::filesystem::path file_;
  Ask ask_;
  NoticeBook book_;
  std::deque<nlohmann::json> waiting_;  // to be posted, oldest first
  std::string remembered_;              // what stands in the file
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;  // starts last
};

}  // namespace atl::coordinator
