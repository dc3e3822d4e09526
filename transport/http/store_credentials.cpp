#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <initializer_list>

#include "transport/base/plain_text.hpp"
#include "transport/http/object_store.hpp"

namespace atl {
namespace {

Result<std::string> read_token(const std::string& path) {
  struct stat facts {};
  std::ifstream file(path);
  std::string token;
  if (!file || ::stat(path.c_str(), &facts) != 0 || !std::getline(file, token)) {
    return Error{Code::io, "cannot read a token from " + path + " (ATOLL_STORE_TOKEN_FILE)" +
                               (errno != 0 ? std::string(": ") + std::strerror(errno) : "")};
  }
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return Error{Code::unauthorized, path + " (ATOLL_STORE_TOKEN_FILE) can be read by others: chmod 600 " + path};
  }
  if (const std::string other = settle_encoding(token); !other.empty()) {
    return Error{Code::invalid_argument, path + " (ATOLL_STORE_TOKEN_FILE) " + other};
  }
  const std::size_t last = token.find_last_not_of(" \t\r");
  return token.substr(0, last == std::string::npos ? 0 : last + 1);
}

}  // namespace

Result<StoreCredentials> StoreCredentials::from(const Variables& variables) {
  const auto first_of = [&](std::initializer_list<const char*> names, const std::string& otherwise) {
    for (const char* name : names) {
      if (const std::optional<std::string> value = variables(name); value && !value->empty()) {
        return *value;
      }
    }
    return otherwise;
  };
  StoreCredentials credentials;
  credentials.access_key = first_of({"AWS_ACCESS_KEY_ID"}, "");
  credentials.secret_key = first_of({"AWS_SECRET_ACCESS_KEY"}, "");
  credentials.session_token = first_of({"AWS_SESSION_TOKEN"}, "");
  credentials.region = first_of({"AWS_REGION", "AWS_DEFAULT_REGION"}, "us-east-1");
  credentials.endpoint = first_of({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "");
  credentials.bearer_token = first_of({"ATOLL_STORE_TOKEN"}, "");
  if (const std::string path = first_of({"ATOLL_STORE_TOKEN_FILE"}, ""); credentials.bearer_token.empty() && !path.empty()) {
    ATOLL_ASSIGN(credentials.bearer_token, read_token(path));
  }
  return credentials;
}

}  // namespace atl
