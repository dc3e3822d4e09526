#include "coordinator/service/notifier.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <utility>

#include "coordinator/ledger/durable_file.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/log.hpp"
#include "transport/base/random_number.hpp"
#include "transport/http/post.hpp"
#include "transport/identity/hmac.hpp"

namespace atl::coordinator {
namespace {

using nlohmann::json;

constexpr Duration kLookEvery = std::chrono::seconds(2);
constexpr Duration kFirstPause = std::chrono::seconds(1);
constexpr Duration kLongestPause = std::chrono::minutes(5);
constexpr double kGivenUpAfterMs = 24 * 3600 * 1000.0;
constexpr std::size_t kMostWaiting = 1000;

// What an earlier life left; null where there is nothing that can be read.
json read_memory(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return stream ? json::parse(stream, nullptr, false) : json();
}

// As `look` writes them: whatever else the file has is not posted.
bool is_notice(const json& notice) {
  return notice.is_object() && notice.contains("text") && notice["text"].is_string() && notice.contains("event") &&
         notice["event"].is_string() && notice.contains("time_unix_ms") && notice["time_unix_ms"].is_number();
}

json member(const json& memory, const char* key) { return memory.is_object() && memory.contains(key) ? memory[key] : json(); }

std::string random_id() {
  const std::array<std::uint64_t, 2> words{random_number(), random_number()};
  return to_hex(std::as_bytes(std::span(words)));
}

std::string text_of(const json& document) { return document.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace

Notifier::Notifier(NotifySettings settings, const std::filesystem::path& state, Ask ask)
    : settings_(std::move(settings)),
      file_(state / "notices.json"),
      ask_(std::move(ask)),
      book_(settings_.notices, member(read_memory(file_), "told")) {
  for (const json& notice : member(read_memory(file_), "waiting")) {
    if (is_notice(notice) && waiting_.size() < kMostWaiting) {
      waiting_.push_back(notice);
    }
  }
  thread_ = std::thread([this] { run(); });
}

Notifier::~Notifier() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

bool Notifier::wait(Duration time) {
  std::unique_lock lock(mutex_);
  return !stopped_.wait_for(lock, time, [&] { return stop_; });
}

void Notifier::run() {
  Duration pause = kFirstPause;
  TimePoint next_try = now();
  do {
    look();
    while (!waiting_.empty() && now() >= next_try) {
      if (deliver(waiting_.front())) {
        waiting_.pop_front();
        pause = kFirstPause;
        remember();
      } else {
        next_try = now() + pause;
        pause = std::min(2 * pause, kLongestPause);
      }
    }
  } while (wait(waiting_.empty() ? kLookEvery : std::clamp<Duration>(next_try - now(), Duration::zero(), kLookEvery)));
}

void Notifier::look() {
  const Result<std::string> runs = ask_("runs", "{}");
  const Result<std::string> islands = ask_("islands", "{}");
  if (!runs || !islands) {
    return;  // it is asked again soon
  }
  for (json& notice : book_.look(json::parse(*runs, nullptr, false), json::parse(*islands, nullptr, false))) {
    notice["schema"] = 1;
    notice["id"] = random_id();
    waiting_.push_back(std::move(notice));
  }
  while (waiting_.size() > kMostWaiting) {
    log_warning("a notice is given up, for too many wait: " + waiting_.front().value("text", ""));
    waiting_.pop_front();
  }
  remember();
}

void Notifier::remember() {
  std::string text = text_of({{"told", book_.memory()}, {"waiting", waiting_}});
  if (text == remembered_) {
    return;
  }
  if (const Status kept = write_durable(file_, text); !kept) {
    log_warning("notices may be posted twice after a restart: " + kept.error().why);
  }
  remembered_ = std::move(text);
}

bool Notifier::deliver(const json& notice) {
  PostSettings posted;
  posted.url = settings_.url;
  posted.body = text_of(notice);
  posted.headers = {"X-Atoll-Event: " + notice.value("event", "")};
  if (!settings_.secret.empty()) {
    posted.headers.push_back("X-Atoll-Signature: sha256=" + to_hex(hmac_sha256(as_bytes(settings_.secret), as_bytes(posted.body))));
  }
  posted.go_on = [this] {
    const std::lock_guard lock(mutex_);
    return !stop_;
  };
  const Status done = post(posted);
  if (done || done.error().code == Code::cancelled) {
    return done.ok();
  }
  const double age_ms = static_cast<double>(unix_ms(now())) - notice.value("time_unix_ms", 0.0);
  const bool again = done.error().code == Code::unavailable && age_ms < kGivenUpAfterMs;
  log_warning("a notice was not taken" + std::string(again ? " and is posted again later: " : ", and is given up: ") + done.error().why +
              " (" + notice.value("text", "") + ")");
  return !again;
}

}  // namespace atl::coordinator
