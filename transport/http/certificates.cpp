#include "transport/http/certificates.hpp"

#include <array>
#include <cstdlib>
#include <system_error>

#include "transport/base/check.hpp"

namespace atl {
namespace {

constexpr std::array kPlaces = {
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",                   // Red Hat, Fedora, Amazon
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // the same, newer
    "/etc/ssl/ca-bundle.pem",                             // SUSE
    "/etc/ssl/cert.pem",                                  // Alpine
};

}  // namespace

std::optional<std::string> certificate_file(const std::function<const char*(const char*)>& variable, std::span<const char* const> places) {
  if (const char* const file = variable("SSL_CERT_FILE"); file != nullptr && *file != '\0') {
    return file;
  }
  if (const char* const folder = variable("SSL_CERT_DIR"); folder != nullptr && *folder != '\0') {
    return std::nullopt;
  }
  for (const char* const place : places) {
    std::error_code failure;
    if (std::filesystem::is_regular_file(place, failure)) {
      return place;
    }
  }
  return std::nullopt;
}

void trust_authorities(CURL* handle) {
  const std::optional<std::string> file = certificate_file([](const char* name) -> const char* { return std::getenv(name); }, kPlaces);
  if (file) {
    ATOLL_CHECK(curl_easy_setopt(handle, CURLOPT_CAINFO, file->c_str()) == CURLE_OK, "libcurl takes a file of authorities");
  }
}

}  // namespace atl
