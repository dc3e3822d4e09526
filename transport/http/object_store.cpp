#include "transport/http/object_store.hpp"

#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>

#include "transport/base/check.hpp"
#include "transport/base/store_address.hpp"
#include "transport/http/certificates.hpp"
#include "transport/http/http_proxy.hpp"
#include "transport/http/least_rate.hpp"
#include "transport/identity/sha256.hpp"

namespace atl {
namespace {

constexpr std::size_t kLongestComplaint = 300;
constexpr std::uint64_t kSmall = 1ULL << 20;
constexpr std::size_t kLargestAnswer = 64ULL << 10;  // of what is no file

std::string with_slash(std::string text) {
  if (!text.ends_with('/')) {
    text += '/';
  }
  return text;
}

// The text between <tag> and </tag>; empty if there is none.
std::string element(const std::string& xml, const std::string& tag) {
  const std::size_t begin = xml.find("<" + tag + ">");
  const std::size_t end = xml.find("</" + tag + ">");
  return begin == std::string::npos || end == std::string::npos || end < begin
             ? std::string()
             : xml.substr(begin + tag.size() + 2, end - begin - tag.size() - 2);
}

// How far this machine's clock may be from the store's before signatures are refused: S3's bound, and MinIO's.
constexpr std::time_t kClocksApart = 15 * 60;

// What is wrong with a request that was refused for its keys: who refuses says it in words of its own, or not at all (HEAD).
// clock: the store's, in seconds of Unix; 0: it did not say.
std::string advice_about_keys(const std::string& code, std::time_t clock) {
  if (code == "ExpiredToken" || code == "TokenRefreshRequired") {
    return ": the temporary keys have run out; start with new ones";
  }
  const std::time_t here = std::time(nullptr);
  const bool apart = clock > 0 && std::abs(here - clock) >= kClocksApart;
  if (apart || code == "RequestTimeTooSkewed" || code == "RequestExpired") {
    const auto text = [](std::time_t time) { return iso_time(TimePoint(std::chrono::seconds(time))).substr(0, 19) + "Z"; };
    return ": this machine's clock and the store's differ: set the clock (timedatectl)" +
           (apart ? "; the store's clock says " + text(clock) + ", this one " + text(here) : std::string());
  }
  return ": are the keys right, and may they read and write there?";
}

Error said(long status, const std::string& body, std::time_t clock) {
  const std::string code = element(body, "Code").substr(0, kLongestComplaint);  // S3 says why in XML
  std::string why = "the store says " + std::to_string(status);
  if (!code.empty()) {
    why += " (" + code + ": " + element(body, "Message").substr(0, kLongestComplaint) + ")";
  }
  std::ranges::replace_if(
      why, [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, ' ');
  const bool of_keys =
      code == "RequestTimeTooSkewed" || code == "RequestExpired" || code == "ExpiredToken" || code == "TokenRefreshRequired";
  if (status == 401 || status == 403 || of_keys) {
    return Error{Code::unauthorized, why + advice_about_keys(code, clock)};
  }
  if (code == "NoSuchBucket") {
    return Error{Code::invalid_argument, why + ": is the bucket's name right?"};
  }
  if (status >= 300 && status < 400) {
    return Error{Code::invalid_argument, why + ": what is wanted lies elsewhere (for S3, set AWS_REGION)"};
  }
  const bool later = status >= 500 || status == 408 || status == 425 || status == 429;
  return Error{later ? Code::unavailable : status == 404 ? Code::not_found : Code::invalid_argument, why};
}

// In a query, where all but unreserved characters are signed in this form.
std::string escaped(const std::string& text) {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::strchr("-._~", c) != nullptr) {
      result += c;
    } else {
      result += '%';
      result += kHex[byte >> 4U];
      result += kHex[byte & 15U];
    }
  }
  return result;
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------------- a call

struct ObjectStore::Call {
  std::string name;
  const char* method = "GET";
  std::string query = {};
  // What is sent: a range of a file, or a text.
  std::optional<FileRange> sends = {};
  std::string text = {};
  // What comes: into a range of a file, or into the answer, at most `most`.
  std::optional<FileRange> into = {};
  std::uint64_t at = 0;  // of the object
  std::size_t most = kLargestAnswer;
};

struct ObjectStore::Answer {
  long status = 0;
  std::string body;
  std::string tag;
  std::time_t clock = 0;     // the store's; 0: it did not say
  std::uint64_t length = 0;  // that it says it has
  bool too_much = false;
  std::uint64_t came = 0;  // into a file
  Digest sha256;           // of that
};

namespace {

struct EasyEnd {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};
struct ListEnd {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Headers = std::unique_ptr<curl_slist, ListEnd>;

// The two directions of one transfer, for libcurl's callbacks.
struct StoreTransfer {
  CURL* curl = nullptr;
  // Sending.
  std::string_view text;
  int file = -1;
  std::uint64_t offset = 0;
  std::uint64_t left = 0;
  // Receiving.
  const FileRange* into = nullptr;
  std::size_t most = 0;
  std::uint64_t came = 0;
  bool too_much = false;
  int disk_error = 0;
  std::string body;
  std::string tag;
  std::string date;
  Sha256 hash;

  [[nodiscard]] bool succeeds() const {
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200 && status < 300;
  }
};

std::size_t send_bytes(char* to, std::size_t size, std::size_t count, void* user) {
  auto& transfer = *static_cast<StoreTransfer*>(user);
  const std::size_t most = std::min<std::uint64_t>(size * count, transfer.left);
  if (transfer.file < 0) {
    std::memcpy(to, transfer.text.data() + transfer.offset, most);
  } else if (::pread(transfer.file, to, most, static_cast<off_t>(transfer.offset)) != static_cast<ssize_t>(most)) {
    transfer.disk_error = errno == 0 ? EIO : errno;
    return CURL_READFUNC_ABORT;
  }
  transfer.offset += most;
  transfer.left -= most;
  return most;
}

// What was read may have to be sent once more, on another connection.
int rewind_bytes(void* user, curl_off_t offset, int origin) {
  auto& transfer = *static_cast<StoreTransfer*>(user);
  if (origin != SEEK_SET || offset != 0 || transfer.file >= 0) {
    return CURL_SEEKFUNC_FAIL;  // the whole request is tried again
  }
  transfer.left += transfer.offset;
  transfer.offset = 0;
  return CURL_SEEKFUNC_OK;
}

std::size_t receive_bytes(char* from, std::size_t size, std::size_t count, void* user) {
  auto& transfer = *static_cast<StoreTransfer*>(user);
  const std::size_t bytes = size * count;
  const bool good = transfer.succeeds();
  if (transfer.into == nullptr || !good) {
    const std::size_t most = good ? transfer.most : kLargestAnswer;
    transfer.too_much = transfer.too_much || transfer.body.size() + bytes > most;
    transfer.body.append(from, std::min(bytes, most - transfer.body.size()));
    return transfer.too_much && good ? 0 : bytes;  // of a complaint the beginning is enough
  }
  if (transfer.came + bytes > transfer.into->bytes) {
    transfer.too_much = true;
    return 0;
  }
  const auto place = static_cast<off_t>(transfer.into->offset + transfer.came);
  if (transfer.into->file >= 0 && ::pwrite(transfer.into->file, from, bytes, place) != static_cast<ssize_t>(bytes)) {
    transfer.disk_error = errno == 0 ? ENOSPC : errno;
    return 0;
  }
  transfer.hash.update(ByteView(reinterpret_cast<const std::byte*>(from), bytes));
  transfer.came += bytes;
  return bytes;
}

// The value of a header's line, if it is of this name (in lower case, with its colon).
std::optional<std::string> value_of(std::string_view line, std::string_view name) {
  const bool same = line.size() > name.size() && std::ranges::equal(line.substr(0, name.size()), name, [](char a, char b) {
                      return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b;
                    });
  if (!same) {
    return std::nullopt;
  }
  std::string_view value = line.substr(name.size());
  const std::size_t begin = std::min(value.find_first_not_of(" \t\r\n"), value.size());
  value = value.substr(begin, value.find_last_not_of(" \t\r\n") + 1 - begin);
  return std::string(value.substr(0, kLongestComplaint));
}

std::size_t receive_header(char* line, std::size_t size, std::size_t count, void* user) {
  const std::string_view text(line, size * count);
  auto& transfer = *static_cast<StoreTransfer*>(user);
  if (std::optional<std::string> tag = value_of(text, "etag:")) {
    transfer.tag = *std::move(tag);
  } else if (std::optional<std::string> date = value_of(text, "date:")) {
    transfer.date = *std::move(date);
  }
  return size * count;
}

int heed(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& go_on = *static_cast<const std::function<bool()>*>(user);
  return !go_on || go_on() ? 0 : 1;
}

template <typename Value>
void set_option(CURL* curl, CURLoption option, Value value) {
  ATOLL_CHECK(curl_easy_setopt(curl, option, value) == CURLE_OK, "libcurl refuses an option");
}

void add_header(Headers& headers, const std::string& line) { headers.reset(curl_slist_append(headers.release(), line.c_str())); }

// What went wrong on the way; nothing if the server answered.
std::optional<Error> trouble(CURLcode code, const StoreTransfer& transfer, const char* message) {
  if (code == CURLE_OK || transfer.too_much) {
    return std::nullopt;
  }
  const std::string why = message[0] != '\0' ? message : curl_easy_strerror(code);
  if (code == CURLE_ABORTED_BY_CALLBACK && transfer.disk_error == 0) {
    return Error{Code::cancelled, "stopped"};
  }
  if (transfer.disk_error != 0) {
    return Error{Code::io, std::string("the file cannot be read or written: ") + std::strerror(transfer.disk_error)};
  }
  if (code == CURLE_PEER_FAILED_VERIFICATION) {
    return Error{Code::unauthorized, "the store does not prove who it is: " + why};
  }
  return Error{Code::unavailable, "the store cannot be reached, or broke off: " + why};
}

// A store that drips keeps a request alive for ever. Whoever puts together an upload of many parts may drip, too, and for minutes.
void set_times(CURL* curl, const StoreTimes& times, bool moves_file) {
  const auto seconds_of = [](Duration time) { return std::max<long>(1, std::chrono::ceil<std::chrono::seconds>(time).count()); };
  set_option(curl, CURLOPT_CONNECTTIMEOUT, seconds_of(times.connect));
  set_option(curl, CURLOPT_LOW_SPEED_LIMIT, moves_file ? kLeastRate : 1L);
  set_option(curl, CURLOPT_LOW_SPEED_TIME, seconds_of(times.stall));
  if (!moves_file) {
    set_option(curl, CURLOPT_TIMEOUT, seconds_of(times.note));
  }
}

void set_direction(CURL* curl, std::string_view method, bool sends, StoreTransfer& transfer) {
  if (sends) {
    set_option(curl, CURLOPT_UPLOAD, 1L);
    set_option(curl, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(transfer.left));
    set_option(curl, CURLOPT_READFUNCTION, &send_bytes);
    set_option(curl, CURLOPT_READDATA, static_cast<void*>(&transfer));
    set_option(curl, CURLOPT_SEEKFUNCTION, &rewind_bytes);
    set_option(curl, CURLOPT_SEEKDATA, static_cast<void*>(&transfer));
  }
  if (method == "HEAD") {
    set_option(curl, CURLOPT_NOBODY, 1L);
  } else if (method != "GET" && method != "PUT") {
    set_option(curl, CURLOPT_CUSTOMREQUEST, method.data());
  }
  set_option(curl, CURLOPT_WRITEFUNCTION, &receive_bytes);
  set_option(curl, CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  set_option(curl, CURLOPT_HEADERFUNCTION, &receive_header);
  set_option(curl, CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
}

}  // namespace

ObjectStore::ObjectStore(std::string address, std::string base, bool s3, StoreCredentials credentials, std::function<bool()> go_on,
                         StoreTimes times)
    : address_(std::move(address)),
      base_(std::move(base)),
      s3_(s3),
      credentials_(std::move(credentials)),
      go_on_(std::move(go_on)),
      times_(times) {}

Result<ObjectStore> ObjectStore::open(const std::string& address, StoreCredentials credentials, std::function<bool()> go_on,
                                      StoreTimes times) {
  ATOLL_TRY(check_store_address(address));
  const std::optional<S3Place> place = s3_place(address);
  if (!place) {
    return ObjectStore(address, with_slash(address), false, std::move(credentials), std::move(go_on), times);
  }
  if (credentials.access_key.empty() || credentials.secret_key.empty()) {
    return Error{Code::unauthorized, "there are no keys for " + address + ": set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"};
  }
  std::string base;
  const bool dotted = place->bucket.find('.') != std::string::npos;  // no certificate covers such a host
  if (!credentials.endpoint.empty()) {
    if (const Status checked = check_web_address(credentials.endpoint); !checked) {
      return with_context(checked.error(), "AWS_ENDPOINT_URL");
    }
    base = with_slash(credentials.endpoint) + place->bucket + "/";
  } else if (dotted) {
    base = "https://s3." + credentials.region + ".amazonaws.com/" + place->bucket + "/";
  } else {
    base = "https://" + place->bucket + ".s3." + credentials.region + ".amazonaws.com/";
  }
  base += place->prefix.empty() ? "" : with_slash(place->prefix);
  return ObjectStore(address, std::move(base), true, std::move(credentials), std::move(go_on), times);
}

Result<ObjectStore::Answer> ObjectStore::perform(const Call& call) const {
  if (!is_store_name(call.name)) {
    return Error{Code::invalid_argument, "'" + call.name.substr(0, 200) + "' is no name for a file in a store"};
  }
  const std::unique_ptr<CURL, EasyEnd> curl(curl_easy_init());
  ATOLL_CHECK(curl != nullptr, "libcurl starts");
  const std::string_view method = call.method;
  const bool sends = method == "PUT" || method == "POST";
  StoreTransfer transfer;
  transfer.curl = curl.get();
  transfer.text = call.text;
  transfer.file = call.sends ? call.sends->file : -1;
  transfer.offset = call.sends ? call.sends->offset : 0;
  transfer.left = call.sends ? call.sends->bytes : call.text.size();
  transfer.into = call.into ? &*call.into : nullptr;
  transfer.most = call.most;

  Headers headers;
  if (sends) {
    add_header(headers, "Content-Type: application/octet-stream");
  }
  if (s3_) {
    add_header(headers, "x-amz-content-sha256: " + to_hex(call.sends ? call.sends->sha256 : sha256(as_bytes(call.text))));
    if (!credentials_.session_token.empty()) {
      add_header(headers, "x-amz-security-token: " + credentials_.session_token);
    }
  } else if (!credentials_.bearer_token.empty()) {
    add_header(headers, "Authorization: Bearer " + credentials_.bearer_token);
  }
  if (call.into && call.into->bytes > 0) {
    add_header(headers, "Range: bytes=" + std::to_string(call.at) + "-" + std::to_string(call.at + call.into->bytes - 1));
  }
  const std::string url = base_ + call.name + (call.query.empty() ? "" : "?" + call.query);
  const std::string scope = "aws:amz:" + credentials_.region + ":s3";
  char message[CURL_ERROR_SIZE] = "";
  CURL* const handle = curl.get();
  follow_proxy(handle);
  trust_authorities(handle);
  set_option(handle, CURLOPT_URL, url.c_str());
  set_option(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  set_option(handle, CURLOPT_NOSIGNAL, 1L);
  set_option(handle, CURLOPT_NOPROGRESS, 0L);
  set_option(handle, CURLOPT_USERAGENT, "atoll");
  set_option(handle, CURLOPT_ERRORBUFFER, message);
  set_option(handle, CURLOPT_HTTPHEADER, headers.get());
  set_option(handle, CURLOPT_XFERINFOFUNCTION, &heed);
  set_option(handle, CURLOPT_XFERINFODATA, const_cast<void*>(static_cast<const void*>(&go_on_)));
  if (s3_) {
    set_option(handle, CURLOPT_AWS_SIGV4, scope.c_str());
    set_option(handle, CURLOPT_USERNAME, credentials_.access_key.c_str());
    set_option(handle, CURLOPT_PASSWORD, credentials_.secret_key.c_str());
  }
  // With what is large it waits a second for a refusal before it sends.
  set_option(handle, CURLOPT_EXPECT_100_TIMEOUT_MS, transfer.left > kSmall ? 1000L : 1L);
  set_times(handle, times_, call.sends.has_value() || call.into.has_value());
  set_direction(handle, method, sends, transfer);
  const CURLcode code = curl_easy_perform(handle);
  if (std::optional<Error> error = trouble(code, transfer, message)) {
    return *std::move(error);
  }
  Answer answer;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &answer.status);
  curl_off_t length = -1;
  curl_easy_getinfo(handle, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
  answer.length = length > 0 ? static_cast<std::uint64_t>(length) : 0;
  answer.tag = std::move(transfer.tag);
  answer.clock = std::max<std::time_t>(0, curl_getdate(transfer.date.c_str(), nullptr));
  answer.body = std::move(transfer.body);
  answer.too_much = transfer.too_much;
  answer.came = transfer.came;
  answer.sha256 = transfer.hash.finish();
  return answer;
}

Result<ObjectStore::Answer> ObjectStore::succeed(const Call& call) const {
  ATOLL_ASSIGN(Answer answer, perform(call));
  if (answer.status < 200 || answer.status >= 300) {
    return said(answer.status, answer.body, answer.clock);
  }
  return answer;
}

// --------------------------------------------------------------------------------------------------------------- verbs

Result<std::optional<std::uint64_t>> ObjectStore::size_of(const std::string& name) const {
  ATOLL_ASSIGN(const Answer answer, perform(Call{name, "HEAD"}));
  if (answer.status == 404) {
    return std::optional<std::uint64_t>();
  }
  return answer.status == 200 ? Result<std::optional<std::uint64_t>>(std::optional(answer.length))
                              : Result<std::optional<std::uint64_t>>(said(answer.status, "", answer.clock));
}

Status ObjectStore::put(const std::string& name, const std::string& text) const {
  Call call{name, "PUT"};
  call.text = text;
  ATOLL_TRY(succeed(call));
  return {};
}

Status ObjectStore::put(const std::string& name, const FileRange& content) const {
  Call call{name, "PUT"};
  call.sends = content;
  ATOLL_TRY(succeed(call));
  return {};
}

Result<std::string> ObjectStore::get(const std::string& name, std::size_t most) const {
  Call call{name, "GET"};
  call.most = most;
  ATOLL_ASSIGN(Answer answer, succeed(call));
  if (answer.too_much) {
    return Error{Code::corrupt, name + " has more than " + human_bytes(most)};
  }
  return std::move(answer.body);
}

Status ObjectStore::get(const std::string& name, std::uint64_t at, const FileRange& into) const {
  Call call{name, "GET"};
  call.into = into;
  call.at = at;
  ATOLL_ASSIGN(const Answer answer, succeed(call));
  if (answer.status != 206 && at > 0) {
    return Error{Code::invalid_argument, "the store does not give parts of " + name};
  }
  if (answer.too_much || answer.came != into.bytes || answer.sha256 != into.sha256) {
    return Error{Code::corrupt, name + " is not what was put there: from byte " + std::to_string(at) + " on, " + human_bytes(into.bytes) +
                                    " with SHA-256 " + to_hex(into.sha256) + " are expected"};
  }
  return {};
}

Status ObjectStore::remove(const std::string& name) const {
  const Result<Answer> answer = succeed(Call{name, "DELETE"});
  return answer || answer.error().code == Code::not_found ? Status() : Status(answer.error());
}

// --------------------------------------------------------------------------------------------------------------- parts

Result<std::string> ObjectStore::begin_upload(const std::string& name) const {
  Call call{name, "POST"};
  call.query = "uploads=";
  ATOLL_ASSIGN(const Answer answer, succeed(call));
  std::string upload = element(answer.body, "UploadId");
  if (upload.empty() || upload.size() > 1024) {
    return Error{Code::invalid_argument, "the store gives no id for an upload in parts"};
  }
  return upload;
}

Result<std::string> ObjectStore::put_part(const std::string& name, const std::string& upload, std::size_t number,
                                          const FileRange& content) const {
  Call call{name, "PUT"};
  call.query = "partNumber=" + std::to_string(number) + "&uploadId=" + escaped(upload);
  call.sends = content;
  ATOLL_ASSIGN(Answer answer, succeed(call));
  if (answer.tag.empty() || answer.tag.find_first_of("<>&") != std::string::npos) {
    return Error{Code::invalid_argument, "the store gives no tag for a part"};
  }
  return std::move(answer.tag);
}

Status ObjectStore::finish_upload(const std::string& name, const std::string& upload, const std::vector<std::string>& tags) const {
  Call call{name, "POST"};
  call.query = "uploadId=" + escaped(upload);
  call.text = "<CompleteMultipartUpload>";
  for (std::size_t i = 0; i < tags.size(); ++i) {
    call.text += "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>" + tags[i] + "</ETag></Part>";
  }
  call.text += "</CompleteMultipartUpload>";
  ATOLL_ASSIGN(const Answer answer, succeed(call));
  if (answer.body.find("<Error>") != std::string::npos) {
    return said(500, answer.body, answer.clock);  // it began to answer before it knew
  }
  return {};
}

Status ObjectStore::drop_upload(const std::string& name, const std::string& upload) const {
  Call call{name, "DELETE"};
  call.query = "uploadId=" + escaped(upload);
  const Result<Answer> answer = succeed(call);
  return answer || answer.error().code == Code::not_found ? Status() : Status(answer.error());
}

}  // namespace atl
