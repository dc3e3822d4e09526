// A part of a URL that libcurl has taken apart. Only for this folder's own sources.
#pragma once

#include <curl/curl.h>

#include <string>

namespace atl {

// Empty if the URL has no such part.
inline std::string url_part(CURLU* url, CURLUPart what) {
  char* text = nullptr;
  if (curl_url_get(url, what, &text, 0) != CURLUE_OK || text == nullptr) {
    return {};
  }
  std::string value = text;
  curl_free(text);
  return value;
}

}  // namespace atl
