// The signature of a request to S3 (AWS Signature Version 4), computed from what a server received, as AWS documents it: for tests of what
// signs the requests.
#pragma once

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "transport/base/bytes.hpp"
#include "transport/identity/sha256.hpp"

namespace atl_test {

inline std::string hmac_sha256(const std::string& key, const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest,
       &size);
  return {reinterpret_cast<const char*>(digest), size};
}

inline std::vector<std::string> split_text(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size() && !text.empty();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// In hexadecimal digits. headers: names in lower case. Which of them are signed, when and for which region says "authorization".
inline std::string signature_of(const std::string& method, const std::string& path, const std::string& query,
                                const std::map<std::string, std::string>& headers, const std::string& secret) {
  const std::string& authorization = headers.at("authorization");
  const auto field = [&](const std::string& name) {
    const std::size_t begin = authorization.find(name + "=") + name.size() + 1;
    return authorization.substr(begin, std::min(authorization.find(',', begin), authorization.size()) - begin);
  };
  std::vector<std::string> parameters = split_text(query, '&');
  std::ranges::sort(parameters);
  std::string canonical = method + "\n" + path + "\n";
  for (const std::string& parameter : parameters) {
    canonical += (&parameter == &parameters.front() ? "" : "&") + parameter + (parameter.find('=') == std::string::npos ? "=" : "");
  }
  canonical += "\n";
  for (const std::string& name : split_text(field("SignedHeaders"), ';')) {
    canonical += name + ":" + headers.at(name) + "\n";
  }
  canonical += "\n" + field("SignedHeaders") + "\n" + headers.at("x-amz-content-sha256");
  const std::vector<std::string> scope = split_text(field("Credential"), '/');  // key, day, region, service, aws4_request
  const std::string text = "AWS4-HMAC-SHA256\n" + headers.at("x-amz-date") + "\n" + scope.at(1) + "/" + scope.at(2) + "/" + scope.at(3) +
                           "/" + scope.at(4) + "\n" + atl::to_hex(atl::sha256(atl::as_bytes(canonical)));
  std::string key = hmac_sha256("AWS4" + secret, scope.at(1));
  for (std::size_t i = 2; i < 5; ++i) {
    key = hmac_sha256(key, scope.at(i));
  }
  std::string hex;
  for (const char c : hmac_sha256(key, text)) {
    static constexpr std::string_view kDigits = "0123456789abcdef";
    hex += kDigits[static_cast<unsigned char>(c) >> 4U];
    hex += kDigits[static_cast<unsigned char>(c) & 15U];
  }
  return hex;
}

}  // namespace atl_test
