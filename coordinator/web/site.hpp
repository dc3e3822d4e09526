// Site: what is answered at each address of the coordinator's page.
//
//   /, /r/NAME, /r/NAME/summary, /i/NAME   the page; its script reads the address and asks for the rest
//   /NAME.EXT                              a file of the page, of those that the program holds
//   /metrics                               for Prometheus (docs/metrics.md)
//   /api/about                             what the page shows besides documents: the price of sending, and for whose eyes it is
//   /api/runs, /api/runs/NAME, /api/islands, /api/runs/NAME/metrics?after=…, /api/runs/NAME/spans?after=…
//                                          the coordinator's documents, as `-o json` prints them (coordinator/api/documents.md)
//   /api/runs/NAME/strips?from=MS&to=MS    how its islands spent their time, thinned to a screen (time_strips.hpp)
//   /api/runs/NAME/images                  what its tasks' models have drawn: task, step, island; a picture itself (PNG) is at
//   /api/runs/NAME/picture?task=TASK
//   /api/runs/NAME/events?since=SEQ        the run's events from then on, as server-sent events; each has its sequence as id, so that a
//                                          reader that comes back with Last-Event-ID misses none
// An error is {"schema": 1, "error": {"code", "why"}} with the status that fits.
// Threads: any.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "coordinator/web/document_cache.hpp"
#include "coordinator/web/time_strips.hpp"
#include "transport/web/http.hpp"

namespace atl::coordinator {

struct SiteFacts {
  std::filesystem::path state = {};               // the coordinator's folder, whose disk is told of; empty: of none
  std::optional<double> price_per_gigabyte = {};  // of what islands send
};

class Site {
 public:
  explicit Site(AskCoordinator ask, SiteFacts facts = {});

  HttpAnswer answer(const HttpRequest& request);
  // For the owner of one island, who sees what concerns it and nothing else (owner_view.hpp).
  HttpAnswer answer_owner(const HttpRequest& request, const std::string& island);

 private:
  HttpAnswer document(const std::string& verb, const std::string& arguments);
  HttpAnswer of_run(const std::string& run, const std::string& what, const HttpRequest& request);
  HttpAnswer events(const std::string& run, const HttpRequest& request);
  HttpAnswer strips(const std::string& run, const HttpRequest& request);
  HttpAnswer picture(const std::string& run, const HttpRequest& request);
  Result<std::string> read_strips(const std::string& run, const std::string& window);
  std::string metrics();
  [[nodiscard]] HttpAnswer about(const std::string& island) const;

  // Of one run, as far as they have been read.
  struct Kept {
    std::mutex reading;
    TimeStrips strips;
    std::string run_id;
    TimePoint asked;
  };
  std::shared_ptr<Kept> kept(const std::string& run);
  static constexpr std::size_t kMostKept = 4;  // runs

  AskCoordinator ask_;
  SiteFacts facts_;
  DocumentCache documents_;
  DocumentCache strips_;  // by run and window
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Kept>> kept_;
};

}  // namespace atl::coordinator
