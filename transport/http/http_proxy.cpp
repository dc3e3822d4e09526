#include "transport/http/http_proxy.hpp"

#include "transport/base/check.hpp"
#include "transport/proxy/proxy_rules.hpp"

namespace atl {

void follow_proxy(CURL* handle) {
  const ProxyRules& rules = own_proxy();
  if (!rules.given()) {
    return;
  }
  const std::string url = rules.proxy() ? rules.proxy()->url : "";
  const std::string spared = rules.spared() + (rules.spared().empty() ? "" : ",") + "localhost,127.0.0.0/8,::1";
  ATOLL_CHECK(curl_easy_setopt(handle, CURLOPT_PROXY, url.c_str()) == CURLE_OK, "libcurl takes a proxy");
  ATOLL_CHECK(curl_easy_setopt(handle, CURLOPT_NOPROXY, spared.c_str()) == CURLE_OK, "libcurl takes what goes without it");
  ATOLL_CHECK(curl_easy_setopt(handle, CURLOPT_PROXYAUTH, static_cast<long>(CURLAUTH_ANY)) == CURLE_OK, "libcurl takes kinds of proof");
}

}  // namespace atl
