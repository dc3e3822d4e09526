// Where the authorities lie that this system trusts: each distribution has a place of its own, and a program that runs on all of them looks
// for it when it runs. Only for this folder's own sources.
#pragma once

#include <curl/curl.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace atl {

// $SSL_CERT_FILE, else the first place of the list that is a file. Nothing where there is none, or $SSL_CERT_DIR names a folder: libcurl's
// own place, and OpenSSL's, count then.
std::optional<std::string> certificate_file(const std::function<const char*(const char*)>& variable, std::span<const char* const> places);

// Tells a handle of libcurl.
void trust_authorities(CURL* handle);

}  // namespace atl
