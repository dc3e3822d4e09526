// Which proxy downloads and stores are reached through. Only for this folder's own sources.
#pragma once

#include <curl/curl.h>

namespace atl {

// Tells a handle of libcurl what --proxy said; without that, libcurl itself follows https_proxy, all_proxy and no_proxy.
void follow_proxy(CURL* handle);

}  // namespace atl
