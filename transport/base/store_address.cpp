#include "transport/base/store_address.hpp"

#include <algorithm>
#include <cstring>

#include "transport/base/address.hpp"

namespace atl {
namespace {

constexpr std::string_view kS3 = "s3://";
constexpr std::string_view kHttps = "https://";
constexpr std::string_view kHttp = "http://";
constexpr std::size_t kLongestAddress = 1024;

std::string_view without_slash(std::string_view text) { return text.ends_with('/') ? text.substr(0, text.size() - 1) : text; }

Error wrong(std::string_view address) {
  return Error{Code::invalid_argument,
               "'" + std::string(address.substr(0, 200)) +
                   "' is not s3://BUCKET/PREFIX or https://HOST/PATH, with letters, digits and . - _ / in its names"};
}

}  // namespace

bool is_store_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestAddress && name.find("..") == std::string_view::npos &&
         name.find("//") == std::string_view::npos && !name.starts_with('/') && std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || std::strchr(".-_/", c) != nullptr;
         });
}

std::optional<S3Place> s3_place(std::string_view address) {
  if (!address.starts_with(kS3)) {
    return std::nullopt;
  }
  const std::string_view rest = without_slash(address.substr(kS3.size()));
  const std::size_t slash = rest.find('/');
  return S3Place{std::string(rest.substr(0, slash)), slash == std::string_view::npos ? "" : std::string(rest.substr(slash + 1))};
}

Status check_web_address(std::string_view address) {
  const bool secure = address.starts_with(kHttps);
  if (!secure && !address.starts_with(kHttp)) {
    return wrong(address);
  }
  const std::string_view rest = without_slash(address.substr(secure ? kHttps.size() : kHttp.size()));
  const std::size_t slash = rest.find('/');
  const Result<Address> host =
      parse_address(std::string(rest.substr(0, slash)) + (rest.substr(0, slash).find(':') == std::string_view::npos ? ":443" : ""));
  if (!host || rest.find('@') != std::string_view::npos || (slash != std::string_view::npos && !is_store_name(rest.substr(slash + 1)))) {
    return wrong(address);
  }
  if (!secure && !host->is_loopback()) {
    return Error{Code::invalid_argument, "'" + std::string(address.substr(0, 200)) + "' is not https, and not on this machine"};
  }
  return {};
}

Status check_store_address(std::string_view address) {
  const std::optional<S3Place> place = s3_place(address);
  if (!place) {
    return check_web_address(address);
  }
  const bool good = is_store_name(place->bucket) && (place->prefix.empty() || is_store_name(place->prefix));
  return good ? Status() : Status(wrong(address));
}

bool is_below(std::string_view address, std::string_view allowed) {
  const std::string_view place = without_slash(address);
  const std::string_view above = without_slash(allowed);
  return place == above || (place.starts_with(above) && place.size() > above.size() && place[above.size()] == '/');
}

}  // namespace atl
