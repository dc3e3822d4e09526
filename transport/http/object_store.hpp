// ObjectStore: files kept by name at an S3-compatible store, or at an HTTPS server that takes PUT, GET, HEAD and DELETE.
//
//   s3://BUCKET/PREFIX         AWS, or with an endpoint another store; each request is signed (AWS Signature Version 4, by libcurl)
//   https://HOST/PATH          below that path; with a token as "Authorization: Bearer …"
//
// Whoever may write where is not decided here. What is sent to S3 carries its SHA-256, signed with the request: the store refuses other
// bytes. No redirect is followed: keys and tokens go nowhere but where they are meant to go.
// Threads: any; each call is on its own and blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

// What proves to a store who asks. Secret: never logged, never in a message.
struct StoreCredentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // of temporary keys; may be empty
  std::string bearer_token;   // of an HTTPS server; may be empty
  std::string endpoint;       // of an S3-compatible store: https://HOST[:PORT]; empty: AWS
  std::string region = "us-east-1";

  // From variables as AWS's own tools read them: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION (or
  // AWS_DEFAULT_REGION), AWS_ENDPOINT_URL_S3 (or AWS_ENDPOINT_URL); and ATOLL_STORE_TOKEN, or the file that ATOLL_STORE_TOKEN_FILE names.
  // Errors: io; unauthorized if others than its owner may read that file.
  using Variables = std::function<std::optional<std::string>(const std::string&)>;
  static Result<StoreCredentials> from(const Variables& variables);
};

// A range of an open file, which is sent, or received into.
struct FileRange {
  int file = -1;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  Digest sha256;  // of it
};

struct StoreTimes {
  Duration connect = std::chrono::seconds(15);
  Duration stall = std::chrono::seconds(30);  // without a byte; of a part of a file: slower than kLeastRate
  Duration note = std::chrono::minutes(10);   // for a request that moves no part of a file, all of it
};

class ObjectStore {
 public:
  // go_on: called about once a second and more; false ends what is under way. Errors: invalid_argument; unauthorized without keys for S3.
  static Result<ObjectStore> open(const std::string& address, StoreCredentials credentials, std::function<bool()> go_on = {},
                                  StoreTimes times = {});

  // Errors of all: unauthorized (401, 403), unavailable (the server cannot be reached, is silent, breaks off, or says 408, 425, 429 or
  // 5xx: worth trying again), not_found, cancelled, invalid_argument (anything else that it says).
  // How many bytes it has; nothing: it is not there.
  [[nodiscard]] Result<std::optional<std::uint64_t>> size_of(const std::string& name) const;
  [[nodiscard]] Status put(const std::string& name, const std::string& text) const;
  [[nodiscard]] Status put(const std::string& name, const FileRange& content) const;
  // Corrupt if it is larger than `most`.
  [[nodiscard]] Result<std::string> get(const std::string& name, std::size_t most) const;
  // What lies from `at` on in an object of this name, `into.bytes` of it; without a file it is read and not kept. Corrupt if what comes is
  // shorter, longer, or another than the digest says.
  [[nodiscard]] Status get(const std::string& name, std::uint64_t at, const FileRange& into) const;
  // Success if it was not there.
  [[nodiscard]] Status remove(const std::string& name) const;

  // ---- an object in parts, which is there once all are (S3's multipart upload): numbers from 1, of 5 MiB and more each but the last
  [[nodiscard]] bool takes_parts() const { return s3_; }
  // The id of a new upload.
  [[nodiscard]] Result<std::string> begin_upload(const std::string& name) const;
  // The part's tag, which finish_upload needs. not_found: the store does not know the upload any more.
  [[nodiscard]] Result<std::string> put_part(const std::string& name, const std::string& upload, std::size_t number,
                                             const FileRange& content) const;
  [[nodiscard]] Status finish_upload(const std::string& name, const std::string& upload, const std::vector<std::string>& tags) const;
  [[nodiscard]] Status drop_upload(const std::string& name, const std::string& upload) const;

  // As people know it, without secrets.
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  struct Call;
  struct Answer;
  ObjectStore(std::string address, std::string base, bool s3, StoreCredentials credentials, std::function<bool()> go_on, StoreTimes times);
  [[nodiscard]] Result<Answer> perform(const Call& call) const;
  // An error for an answer that is no success.
  [[nodiscard]] Result<Answer> succeed(const Call& call) const;

  std::string address_;
  std::string base_;  // the URL of what all names are below, with a slash at the end
  bool s3_;
  StoreCredentials credentials_;
  std::function<bool()> go_on_;
  StoreTimes times_;
};

}  // namespace atl
