// Addresses of places where files are kept by name: s3://BUCKET/PREFIX, or https://HOST/PATH.
//
// Names in them are of letters, digits, ".", "-", "_" and "/", so that every implementation signs them alike. http:// passes for this
// machine only. Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "transport/base/result.hpp"

namespace atl {

// Errors: invalid_argument saying what is expected.
Status check_store_address(std::string_view address);
// The same for an HTTP server's address alone.
Status check_web_address(std::string_view address);

struct S3Place {
  std::string bucket;
  std::string prefix;  // may be empty
};
// Nothing if the address is not an S3 one.
std::optional<S3Place> s3_place(std::string_view address);

// Whether what this address names is `allowed`, or lies below it.
bool is_below(std::string_view address, std::string_view allowed);

// Whether a file may be called so in a store.
bool is_store_name(std::string_view name);

}  // namespace atl
