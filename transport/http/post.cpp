#include "transport/http/post.hpp"

#include <curl/curl.h>

#include <memory>

#include "transport/base/address.hpp"
#include "transport/base/check.hpp"
#include "transport/http/certificates.hpp"
#include "transport/http/http_proxy.hpp"
#include "transport/http/url_part.hpp"

namespace atl {
namespace {

int on_progress(void* settings, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& go_on = static_cast<const PostSettings*>(settings)->go_on;
  return !go_on || go_on() ? 0 : 1;
}

std::size_t drop(char*, std::size_t size, std::size_t count, void*) { return size * count; }

Status judge(long status) {
  const std::string says = "the server says " + std::to_string(status);
  if (status >= 200 && status < 300) {
    return {};
  }
  if (status >= 500 || status == 408 || status == 425 || status == 429) {
    return Error{Code::unavailable, says};
  }
  return Error{status == 401 || status == 403 ? Code::unauthorized : Code::invalid_argument, says};
}

}  // namespace

Status check_post_address(const std::string& url) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parts(curl_url(), &curl_url_cleanup);
  if (!parts || curl_url_set(parts.get(), CURLUPART_URL, url.c_str(), CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK) {
    return Error{Code::invalid_argument, "'" + url.substr(0, 200) + "' is not a URL: write https://host/path"};
  }
  const std::string scheme = url_part(parts.get(), CURLUPART_SCHEME);
  std::string host = url_part(parts.get(), CURLUPART_HOST);
  if (host.starts_with('[')) {
    host = host.substr(1, host.size() - 2);
  }
  if (scheme != "https" && !(scheme == "http" && Address{host, 0}.is_loopback())) {
    return Error{Code::invalid_argument, scheme + "://" + host + " is not https, and not on this machine"};
  }
  return {};
}

Status post(const PostSettings& settings) {
  ATOLL_TRY(check_post_address(settings.url));
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(), &curl_easy_cleanup);
  ATOLL_CHECK(curl != nullptr, "libcurl starts");
  curl_slist* list = curl_slist_append(nullptr, "Content-Type: application/json");
  for (const std::string& header : settings.headers) {
    list = curl_slist_append(list, header.c_str());
  }
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(list, &curl_slist_free_all);
  const auto set = [&](CURLoption option, auto value) {
    ATOLL_CHECK(curl_easy_setopt(curl.get(), option, value) == CURLE_OK, "libcurl refuses an option");
  };
  char message[CURL_ERROR_SIZE] = "";
  trust_authorities(curl.get());
  follow_proxy(curl.get());
  set(CURLOPT_URL, settings.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(settings.body.size()));
  set(CURLOPT_POSTFIELDS, settings.body.c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_USERAGENT, "atoll");
  set(CURLOPT_ERRORBUFFER, message);
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(std::chrono::ceil<std::chrono::milliseconds>(settings.patience).count()));
  set(CURLOPT_WRITEFUNCTION, &drop);
  set(CURLOPT_XFERINFOFUNCTION, &on_progress);
  set(CURLOPT_XFERINFODATA, const_cast<void*>(static_cast<const void*>(&settings)));
  const CURLcode code = curl_easy_perform(curl.get());
  if (code == CURLE_ABORTED_BY_CALLBACK) {
    return Error{Code::cancelled, "stopped"};
  }
  if (code == CURLE_PEER_FAILED_VERIFICATION) {
    return Error{Code::unauthorized, std::string("the server does not prove who it is: ") + message};
  }
  if (code != CURLE_OK) {
    return Error{Code::unavailable, message[0] != '\0' ? message : curl_easy_strerror(code)};
  }
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  return judge(status);
}

}  // namespace atl
