#include "agent/service/fetch_data.hpp"

#include "transport/base/log.hpp"
#include "transport/base/time.hpp"
#include "transport/http/fetch.hpp"

namespace atl::agent {
namespace {

constexpr auto kTellEvery = std::chrono::seconds(5);

}  // namespace

Result<std::filesystem::path> fetch_data(const std::string& url, const std::string& sha256, const std::filesystem::path& cache,
                                         bool loopback_http, const RunId& run) {
  FetchSettings settings;
  settings.url = url;
  ATOLL_ASSIGN(settings.sha256, digest_from_hex(sha256));
  settings.cache = cache;
  settings.allow_loopback_http = loopback_http;
  TimePoint told = now();
  settings.progress = [&](const FetchProgress& progress) {
    if (now() - told >= kTellEvery) {
      told = now();
      log_info("run " + run.text + ": " + human_bytes(progress.received_bytes) + " of " +
               (progress.total_bytes > 0 ? human_bytes(progress.total_bytes) : std::string("?")) + " fetched from " + url);
    }
    return true;
  };
  return fetch(settings);
}

}  // namespace atl::agent
