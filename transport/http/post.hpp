// Posting a small document to a web address, by libcurl.
// Threads: any; each call is on its own. It blocks until it is answered.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

struct PostSettings {
  std::string url;                   // https, or http of this machine
  std::string body;                  // JSON
  std::vector<std::string> headers;  // "Name: value"
  Duration patience = std::chrono::seconds(10);
  std::function<bool()> go_on;  // called about once a second; false cancels
};

// Whether documents can be posted to this address. Errors: invalid_argument saying why not.
Status check_post_address(const std::string& url);

// One try. It follows no redirect and proves the server's certificate. Errors: unavailable (worth another try: nobody answered, or the
// server says 408, 425, 429 or 500 and up), invalid_argument (the address cannot be, or the server refuses what was posted), unauthorized,
// cancelled.
Status post(const PostSettings& settings);

}  // namespace atl
