#include "transport/http/fetch.hpp"

#include <curl/curl.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <thread>

#include "transport/base/address.hpp"
#include "transport/base/file_descriptor.hpp"
#include "transport/http/certificates.hpp"
#include "transport/http/http_proxy.hpp"
#include "transport/http/least_rate.hpp"
#include "transport/http/url_part.hpp"
#include "transport/identity/sha256.hpp"

namespace atl {
namespace {

constexpr long kMaxRedirects = 5;
constexpr std::uint64_t kGainBytes = 1U << 20U;   // an attempt that brought this much is not counted
constexpr std::uint64_t kRoomEvery = 16U << 20U;  // bytes between two looks at how much room the disk has
constexpr Duration kLongestWait = std::chrono::seconds(30);
constexpr Duration kLockPoll = std::chrono::milliseconds(100);

Error system_error(const std::string& what, const std::filesystem::path& path) {
  const int code = errno;
  const std::string advice = code == ENOSPC || code == EDQUOT ? "; make room and try again, what is there is kept" : "";
  return Error{Code::io, "cannot " + what + " " + path.string() + ": " + std::strerror(code) + advice};
}

Error cancelled() { return Error{Code::cancelled, "the download was cancelled; what is there is kept"}; }

// A URL that was checked, and how people see it: without credentials or query, which may be secret.
struct Source {
  std::string url;
  std::string shown;
};

Result<Source> check_source(const FetchSettings& settings) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url(curl_url(), &curl_url_cleanup);
  if (!url || settings.url.empty() || curl_url_set(url.get(), CURLUPART_URL, settings.url.c_str(), CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK) {
    return Error{Code::invalid_argument, "'" + settings.url.substr(0, 200) + "' is not a URL: write https://host/path"};
  }
  const std::string scheme = url_part(url.get(), CURLUPART_SCHEME);
  std::string host = url_part(url.get(), CURLUPART_HOST);
  const std::string port = url_part(url.get(), CURLUPART_PORT);
  const Source source{settings.url, scheme + "://" + host + (port.empty() ? "" : ":" + port) + url_part(url.get(), CURLUPART_PATH)};
  if (host.starts_with('[')) {
    host = host.substr(1, host.size() - 2);
  }
  const bool local = scheme == "http" && settings.allow_loopback_http && Address{host, 0}.is_loopback();
  if (scheme != "https" && !local) {
    return Error{Code::invalid_argument, "data is fetched by https only, not from " + source.shown};
  }
  if (settings.sha256.empty()) {
    return Error{Code::invalid_argument,
                 "the SHA-256 of " + source.shown + " has to be given: it is what makes the data the same everywhere"};
  }
  return source;
}

// The unfinished file: bytes on disk, and their digest so far.
class Partial {
 public:
  explicit Partial(std::filesystem::path path) : path_(std::move(path)) {}

  // False if another process has it now.
  Result<bool> lock() {
    file_ = FileDescriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!file_.is_open()) {
      return system_error("write", path_);
    }
    if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
      return errno == EWOULDBLOCK ? Result<bool>(false) : Result<bool>(system_error("lock", path_));
    }
    struct stat held {};
    struct stat named {};
    if (::fstat(file_.get(), &held) == 0 && !S_ISREG(held.st_mode)) {
      return Error{Code::io, path_.string() + " is not a file: remove it"};
    }
    // Whoever had it before may have renamed or removed it meanwhile.
    const bool same = ::fstat(file_.get(), &held) == 0 && ::stat(path_.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
                      held.st_dev == named.st_dev;
    return same;
  }
  // Hashes what an earlier call left.
  Status load() {
    Bytes buffer(256U << 10U);
    size_ = 0;
    for (;;) {
      const ssize_t count = ::pread(file_.get(), buffer.data(), buffer.size(), static_cast<off_t>(size_));
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count < 0) {
        return system_error("read", path_);
      }
      if (count == 0) {
        return {};
      }
      hash_.update(ByteView(buffer).first(static_cast<std::size_t>(count)));
      size_ += static_cast<std::uint64_t>(count);
    }
  }
  Status clear() {
    if (::ftruncate(file_.get(), 0) != 0) {
      return system_error("empty", path_);
    }
    size_ = 0;
    hash_ = Sha256();
    return {};
  }
  Status append(ByteView bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(size_));
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count < 0) {
        return system_error("write", path_);
      }
      const auto written = static_cast<std::size_t>(count);
      hash_.update(bytes.first(written));
      bytes = bytes.subspan(written);
      size_ += written;
    }
    return {};
  }
  // The digest of the whole; only `clear` may follow.
  Digest finish() { return hash_.finish(); }
  Status publish(const std::filesystem::path& path) {
    if (::fsync(file_.get()) != 0) {
      return system_error("sync", path_);
    }
    if (::rename(path_.c_str(), path.c_str()) != 0) {
      return system_error("rename", path_);
    }
    const std::filesystem::path parent = path.has_parent_path() ? path.parent_path() : ".";
    const FileDescriptor folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return folder.is_open() && ::fsync(folder.get()) == 0 ? Status{} : Status{system_error("sync", parent)};
  }
  void remove() { ::unlink(path_.c_str()); }
  [[nodiscard]] std::uint64_t size() const { return size_; }

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  Sha256 hash_;
  std::uint64_t size_ = 0;
};

// What one request came to.
enum class Outcome { whole, again, range_refused };

// One HTTP request that appends to a partial file.
class Transfer {
 public:
  Transfer(const FetchSettings& settings, const Source& source, Partial& partial)
      : settings_(settings), source_(source), partial_(partial), curl_(curl_easy_init(), &curl_easy_cleanup), begin_(partial.size()) {}

  // `whole`: the server said it was all; `again`: worth another attempt, `why` says what happened.
  Result<Outcome> run(Error& why) {
    if (!curl_) {
      return Error{Code::internal, "libcurl does not start"};
    }
    configure();
    const CURLcode code = curl_easy_perform(curl_.get());
    if (problem_) {
      return *problem_;
    }
    if (code == CURLE_ABORTED_BY_CALLBACK) {
      return cancelled();
    }
    if (code == CURLE_OK) {
      return Outcome::whole;
    }
    return judge(code, why);
  }

 private:
  template <typename Value>
  void set(CURLoption option, Value value) {
    ATOLL_CHECK(curl_easy_setopt(curl_.get(), option, value) == CURLE_OK, "libcurl refuses an option");
  }

  void configure() {
    const bool https = source_.url.starts_with("https:") || source_.url.starts_with("HTTPS:");
    const char* protocols = https || !settings_.allow_loopback_http ? "https" : "http,https";
    trust_authorities(curl_.get());
    follow_proxy(curl_.get());
    set(CURLOPT_URL, source_.url.c_str());
    set(CURLOPT_PROTOCOLS_STR, protocols);
    set(CURLOPT_REDIR_PROTOCOLS_STR, protocols);
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, kMaxRedirects);
    set(CURLOPT_FAILONERROR, 1L);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_USERAGENT, "atoll");
    set(CURLOPT_ERRORBUFFER, message_);
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(std::chrono::ceil<std::chrono::milliseconds>(settings_.connect_timeout).count()));
    set(CURLOPT_LOW_SPEED_LIMIT, kLeastRate);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(std::chrono::ceil<std::chrono::seconds>(settings_.stall_timeout).count()));
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_data);
    set(CURLOPT_WRITEDATA, static_cast<void*>(this));
    set(CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
    set(CURLOPT_XFERINFODATA, static_cast<void*>(this));
    if (begin_ > 0) {
      range_ = std::to_string(begin_) + "-";
      set(CURLOPT_RANGE, range_.c_str());
    }
  }

  [[nodiscard]] long status() const {
    long status = 0;
    curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &status);
    return status;
  }

  // libcurl's callbacks.
  static std::size_t on_data(char* data, std::size_t size, std::size_t count, void* self) {
    return static_cast<Transfer*>(self)->take(std::as_bytes(std::span(data, size * count))) ? size * count : CURL_WRITEFUNC_ERROR;
  }
  static int on_progress(void* self, curl_off_t total, curl_off_t received, curl_off_t /*sent*/, curl_off_t /*to_send*/) {
    return static_cast<Transfer*>(self)->tell(total, received) ? 0 : 1;
  }

  bool take(ByteView bytes) {
    if (!began_) {
      began_ = true;
      if (begin_ > 0 && status() != 206) {  // it knows no ranges: all of it comes
        begin_ = 0;
        problem_ = failure(partial_.clear());
      }
    }
    if (!problem_ && partial_.size() + bytes.size() > settings_.max_bytes) {
      partial_.remove();
      problem_ = Error{Code::invalid_argument, source_.shown + " has more than the " + human_bytes(settings_.max_bytes) + " allowed"};
    }
    if (!problem_ && partial_.size() >= look_at_) {
      look_at_ = partial_.size() + kRoomEvery;
      problem_ = failure(check_room());
    }
    if (!problem_) {
      problem_ = failure(partial_.append(bytes));
    }
    return !problem_;
  }
  // Whether what is still to come leaves the disk to others. Where the server does not say how much that is, the next piece has to.
  Status check_room() {
    std::error_code unknown;
    const std::filesystem::space_info disk = std::filesystem::space(settings_.cache, unknown);
    if (unknown) {
      return {};
    }
    curl_off_t length = -1;
    curl_easy_getinfo(curl_.get(), CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    const std::uint64_t here = partial_.size() - begin_;
    const std::uint64_t rest =
        length < 0 ? kRoomEvery : static_cast<std::uint64_t>(length) - std::min(here, static_cast<std::uint64_t>(length));
    const std::uint64_t kept_free = settings_.leave_free_bytes;
    if (disk.available >= kept_free && disk.available - kept_free >= rest) {
      return {};
    }
    const std::string what = source_.shown + " does not fit the disk of " + settings_.cache.string() + ": " + human_bytes(disk.available) +
                             " are free there, of which " + human_bytes(kept_free) + " are left to others, ";
    if (length < 0) {
      const std::string came = human_bytes(partial_.size());
      partial_.remove();
      return Error{Code::io, what + "and the server does not say how much comes; the " + came + " that came were removed"};
    }
    return Error{Code::io, what + "and " + human_bytes(rest) + " are still to come; make room and try again, what is there is kept"};
  }
  static std::optional<Error> failure(const Status& status) { return status ? std::nullopt : std::optional<Error>(status.error()); }

  bool tell(curl_off_t total, curl_off_t received) {
    if (!settings_.progress) {
      return true;
    }
    const bool known = total > 0 && began_;
    return settings_.progress(FetchProgress{begin_ + (began_ ? static_cast<std::uint64_t>(received) : 0),
                                            known ? begin_ + static_cast<std::uint64_t>(total) : 0});
  }

  // Whether what went wrong is worth another attempt.
  Result<Outcome> judge(CURLcode code, Error& why) {
    const std::string reason = message_[0] != '\0' ? message_ : curl_easy_strerror(code);
    switch (code) {
      case CURLE_HTTP_RETURNED_ERROR:
        return judge_status(status(), why);
      case CURLE_COULDNT_RESOLVE_HOST:
      case CURLE_COULDNT_RESOLVE_PROXY:
      case CURLE_COULDNT_CONNECT:
      case CURLE_OPERATION_TIMEDOUT:
      case CURLE_PARTIAL_FILE:
      case CURLE_GOT_NOTHING:
      case CURLE_SEND_ERROR:
      case CURLE_RECV_ERROR:
      case CURLE_SSL_CONNECT_ERROR:
      case CURLE_HTTP2:
      case CURLE_HTTP2_STREAM:
        why = Error{Code::unavailable, reason};
        return Outcome::again;
      case CURLE_PEER_FAILED_VERIFICATION:
        return Error{Code::unauthorized, source_.shown + " does not prove who it is: " + reason};
      case CURLE_TOO_MANY_REDIRECTS:
        return Error{Code::invalid_argument, source_.shown + " redirects more than " + std::to_string(kMaxRedirects) + " times"};
      case CURLE_UNSUPPORTED_PROTOCOL:
        return Error{Code::invalid_argument, source_.shown + " redirects to another protocol than https: " + reason};
      default:
        return Error{Code::io, "cannot fetch " + source_.shown + ": " + reason};
    }
  }
  Result<Outcome> judge_status(long status, Error& why) {
    const std::string says = "the server says " + std::to_string(status);
    if (status == 416) {
      return Outcome::range_refused;
    }
    if (status >= 500 || status == 408 || status == 425 || status == 429) {
      why = Error{Code::unavailable, says};
      return Outcome::again;
    }
    if (status == 404 || status == 410) {
      return Error{Code::not_found, "there is nothing at " + source_.shown + " (" + says + ")"};
    }
    if (status == 401 || status == 403 || status == 407) {
      return Error{Code::unauthorized, source_.shown + " may not be fetched (" + says + ")"};
    }
    return Error{Code::invalid_argument, source_.shown + " cannot be fetched (" + says + ")"};
  }

  const FetchSettings& settings_;
  const Source& source_;
  Partial& partial_;
  std::uint64_t look_at_ = 0;  // bytes at which the disk's room is looked at again
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl_;
  std::uint64_t begin_;
  bool began_ = false;
  std::string range_;
  std::optional<Error> problem_;
  char message_[CURL_ERROR_SIZE] = "";
};

// Waits in small steps that `progress` can end.
Status pause(const FetchSettings& settings, const Partial* partial, Duration duration) {
  const TimePoint end = now() + duration;
  for (;;) {
    if (settings.progress && !settings.progress(FetchProgress{partial == nullptr ? 0 : partial->size(), 0})) {
      return cancelled();
    }
    const Duration left = end - now();
    if (left <= Duration::zero()) {
      return {};
    }
    std::this_thread::sleep_for(std::min(left, kLockPoll));
  }
}

// Requests until the server says that all of it came.
Status fetch_rest(const FetchSettings& settings, const Source& source, Partial& partial) {
  unsigned in_a_row = 0;
  bool range_refused = false;
  for (;;) {
    const std::uint64_t before = partial.size();
    Error why;
    ATOLL_ASSIGN(const Outcome outcome, Transfer(settings, source, partial).run(why));
    if (outcome == Outcome::whole) {
      return {};
    }
    if (outcome == Outcome::range_refused) {
      if (range_refused || before == 0) {
        return Error{Code::invalid_argument, source.shown + " cannot be fetched (the server says 416)"};
      }
      range_refused = true;
      return {};  // nothing beyond what is here: whether that is the file, its digest will tell
    }
    in_a_row = partial.size() >= before + kGainBytes ? 1 : in_a_row + 1;
    if (in_a_row >= std::max(1U, settings.attempts)) {
      return Error{Code::unavailable, "cannot fetch " + source.shown + ": " + why.why + "; " + human_bytes(partial.size()) +
                                          " are kept, the next try goes on from there"};
    }
    ATOLL_TRY(pause(settings, &partial, std::min(settings.retry_first * (1U << std::min(in_a_row - 1, 10U)), kLongestWait)));
  }
}

Result<std::filesystem::path> fetch_locked(const FetchSettings& settings, const Source& source, Partial& partial,
                                           const std::filesystem::path& whole) {
  ATOLL_TRY(partial.load());
  // What another version of the file, or a crash, left behind deserves one more try from the start.
  bool old = partial.size() > 0;
  for (;;) {
    ATOLL_TRY(fetch_rest(settings, source, partial));
    const std::uint64_t size = partial.size();
    const Digest digest = partial.finish();
    if (digest == settings.sha256) {
      ATOLL_TRY(partial.publish(whole));
      return whole;
    }
    if (!old) {
      partial.remove();
      return Error{Code::corrupt, source.shown + " is not what was asked for: its " + human_bytes(size) + " have the SHA-256 " +
                                      to_hex(digest) + ", expected is " + to_hex(settings.sha256) + "; check the URL and the digest"};
    }
    old = false;
    ATOLL_TRY(partial.clear());
  }
}

// A file that rotted in the cache counts as absent; the new one takes its place.
Result<bool> is_there(const std::filesystem::path& whole, const Digest& expected) {
  const Result<Digest> digest = sha256_of_file(whole);
  if (!digest && digest.error().code != Code::not_found) {
    return digest.error();
  }
  return digest && *digest == expected;
}

}  // namespace

Result<std::filesystem::path> fetch(const FetchSettings& settings) {
  static const CURLcode kStarted = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (kStarted != CURLE_OK) {
    return Error{Code::internal, "libcurl does not start"};
  }
  ATOLL_ASSIGN(const Source source, check_source(settings));
  std::error_code problem;
  std::filesystem::create_directories(settings.cache, problem);
  if (problem) {
    return Error{Code::io, "cannot make the folder " + settings.cache.string() + ": " + problem.message()};
  }
  const std::filesystem::path whole = std::filesystem::absolute(settings.cache) / to_hex(settings.sha256);
  Partial partial(whole.string() + ".partial");
  for (;;) {
    ATOLL_ASSIGN(const bool present, is_there(whole, settings.sha256));
    if (present) {
      return whole;
    }
    ATOLL_ASSIGN(const bool locked, partial.lock());
    if (!locked) {
      ATOLL_TRY(pause(settings, nullptr, kLockPoll));
      continue;
    }
    ATOLL_ASSIGN(const bool meanwhile, is_there(whole, settings.sha256));
    if (meanwhile) {
      partial.remove();
      return whole;
    }
    return fetch_locked(settings, source, partial, whole);
  }
}

}  // namespace atl
