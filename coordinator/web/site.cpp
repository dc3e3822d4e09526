#include "coordinator/web/site.hpp"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/web/metrics_text.hpp"
#include "coordinator/web/owner_view.hpp"
#include "coordinator/web/page_files.hpp"
#include "transport/base/bytes.hpp"
#include "transport/web/prometheus_text.hpp"

namespace atl::coordinator {
namespace {

using nlohmann::json;

constexpr const char* kJson = "application/json";
constexpr std::size_t kEventsAtOnce = 500;
constexpr Duration kBetweenEvents = std::chrono::seconds(1);
constexpr int kQuietPolls = 15;  // then a comment shows that the connection lives
constexpr Duration kStripsFreshFor = std::chrono::seconds(4);
constexpr int kPagesAtOnce = 5;
constexpr std::size_t kSpansOfAPage = 4000;  // as many as the coordinator gives
constexpr std::size_t kRunsWithMetrics = 100;
constexpr std::int64_t kEndedAwhileMs = 10 * 60 * 1000;  // an ended run is told of for so long, so that its last figures are scraped

int status_of(Code code) {
  switch (code) {
    case Code::not_found:
      return 404;
    case Code::invalid_argument:
      return 400;
    case Code::conflict:
      return 409;
    case Code::unauthorized:
      return 403;
    case Code::unavailable:
    case Code::timeout:
      return 503;
    default:
      return 500;
  }
}

std::string dump(const json& document) { return document.dump(-1, ' ', false, json::error_handler_t::replace); }

HttpAnswer failure(const Error& error) {
  return {status_of(error.code), kJson, dump({{"schema", 1}, {"error", {{"code", to_string(error.code)}, {"why", error.why}}}}), {}};
}

// The HTTP library compresses what is called application/json and nothing more. A small document is sent as it is: to compress it would be
// most of what a viewer costs.
HttpAnswer answer_with(const DocumentCache::Document& document) {
  constexpr std::size_t kWorthCompressing = 16'384;
  if (!*document) {
    return failure(document->error());
  }
  const std::string& text = **document;
  return {200, text.size() < kWorthCompressing ? "application/json; charset=utf-8" : kJson, text, {}};
}

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (std::size_t at = 1; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    parts.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::optional<std::int64_t> whole_number(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

const char* type_of(std::string_view name) {
  return name.ends_with(".html")  ? "text/html; charset=utf-8"
         : name.ends_with(".js")  ? "text/javascript; charset=utf-8"
         : name.ends_with(".css") ? "text/css; charset=utf-8"
         : name.ends_with(".svg") ? "image/svg+xml"
                                  : "text/plain; charset=utf-8";
}

HttpAnswer page_file(std::string_view name) {
  const auto files = page_files();
  const auto found = std::ranges::find(files, name, &EmbeddedFile::name);
  return found == files.end() ? failure({Code::not_found, "there is nothing at this address; the page begins at /"})
                              : HttpAnswer{200, type_of(name), std::string(found->bytes), {}};
}

json parsed(const Result<std::string>& document) {
  json value = document ? json::parse(*document, nullptr, false) : json();
  return value.is_object() ? value : json::object();
}

// Events as server-sent events, from a sequence number on, until the run has ended and all is told.
class EventStream {
 public:
  EventStream(DocumentCache& documents, std::string run, std::int64_t after) : documents_(documents), run_(std::move(run)), after_(after) {}

  bool next(std::string& piece) {
    if (polls_++ > 0) {
      std::this_thread::sleep_for(kBetweenEvents);
    }
    const auto answer = documents_.get("events", dump({{"run", run_}, {"after", after_}, {"limit", kEventsAtOnce}}));
    const json document = parsed(*answer);
    const json events = document.value("events", json::array());
    for (const json& event : events) {
      piece += "id: " + std::to_string(event.value("sequence", std::uint64_t{0})) + "\ndata: " + dump(event) + "\n\n";
    }
    after_ = document.value("next", after_);
    quiet_ = events.empty() ? quiet_ + 1 : 0;
    if (piece.empty() && (polls_ == 1 || quiet_ % kQuietPolls == 0)) {
      piece = ": nothing new\n\n";
    }
    if (events.size() == kEventsAtOnce) {
      polls_ = 0;  // there is more
    }
    if (document.value("ended", false) && events.empty()) {
      piece += "event: ended\ndata: {}\n\n";
      return false;
    }
    return true;
  }

 private:
  DocumentCache& documents_;
  std::string run_;
  std::int64_t after_;
  int polls_ = 0;
  int quiet_ = 0;
};

}  // namespace

Site::Site(AskCoordinator ask, SiteFacts facts)
    : ask_(ask),
      facts_(std::move(facts)),
      documents_(std::move(ask)),
      strips_([this](const std::string& run, const std::string& window) { return read_strips(run, window); }, now, kStripsFreshFor) {}

HttpAnswer Site::document(const std::string& verb, const std::string& arguments) { return answer_with(documents_.get(verb, arguments)); }

HttpAnswer Site::events(const std::string& run, const HttpRequest& request) {
  const auto since = request.query.find("since");
  const std::string from = !request.last_event_id.empty() ? request.last_event_id : since == request.query.end() ? "0" : since->second;
  const std::optional<std::int64_t> after = whole_number(from);
  if (!after || *after < 0) {
    return failure({Code::invalid_argument, "since: a sequence number, 0 for all events"});
  }
  const DocumentCache::Document first = documents_.get("events", dump({{"run", run}, {"after", *after}, {"limit", kEventsAtOnce}}));
  if (!*first) {
    return failure(first->error());
  }
  auto stream = std::make_shared<EventStream>(documents_, run, *after);
  return {200, "text/event-stream", "", [stream](std::string& piece) { return stream->next(piece); }};
}

std::shared_ptr<Site::Kept> Site::kept(const std::string& run) {
  const std::lock_guard lock(mutex_);
  if (kept_.size() >= kMostKept && !kept_.contains(run)) {
    kept_.erase(std::ranges::min_element(kept_, {}, [](const auto& item) { return item.second->asked; }));
  }
  std::shared_ptr<Kept>& found = kept_[run];
  found = found ? found : std::make_shared<Kept>();
  found->asked = now();
  return found;
}

// Reads on where it had come to, some pages at a time: a long run's past is there after a few requests, and the coordinator does other
// things in between.
Result<std::string> Site::read_strips(const std::string& run, const std::string& window) {
  const std::shared_ptr<Kept> found = kept(run);
  const std::lock_guard lock(found->reading);
  bool complete = false;
  for (int page = 0; page < kPagesAtOnce && !complete; ++page) {
    ATOLL_ASSIGN(const std::string text, ask_("spans", dump({{"run", run}, {"after", found->strips.next()}})));
    const json document = parsed(text);
    const std::string id = document.value("run", "");
    const bool another = !found->run_id.empty() && found->run_id != id;  // the name is another run's now
    found->run_id = id;
    if (another) {
      found->strips = TimeStrips();
      continue;
    }
    found->strips.take(document);
    complete = document.value("spans", json::array()).size() < kSpansOfAPage;
  }
  const json wanted = json::parse(window);
  json document = found->strips.strips(wanted["from"].get<std::int64_t>(), wanted["to"].get<std::int64_t>());
  document["schema"] = 1;
  document["now_unix_ms"] = unix_ms(now());
  document["run"] = found->run_id;
  document["complete"] = complete;
  return dump(document);
}

HttpAnswer Site::strips(const std::string& run, const HttpRequest& request) {
  json window = {{"from", 0}, {"to", 0}};
  for (const char* end : {"from", "to"}) {
    if (const auto given = request.query.find(end); given != request.query.end()) {
      const std::optional<std::int64_t> number = whole_number(given->second);
      if (!number) {
        return failure({Code::invalid_argument, std::string(end) + ": milliseconds of Unix time, 0 for all"});
      }
      window[end] = *number;
    }
  }
  return answer_with(strips_.get(run, dump(window)));
}

HttpAnswer Site::picture(const std::string& run, const HttpRequest& request) {
  const auto task = request.query.find("task");
  if (task == request.query.end() || task->second.empty()) {
    return failure({Code::invalid_argument, "task: whose picture, for example experts/0"});
  }
  const auto document = documents_.get("images", dump({{"run", run}, {"task", task->second}}));
  if (!*document) {
    return failure(document->error());
  }
  const json images = parsed(*document).value("images", json::array());
  const Result<Bytes> png = from_hex(images.empty() ? std::string() : images[0].value("png_hex", std::string()));
  if (!png || png->empty()) {
    return failure({Code::not_found, "there is no picture of this task"});
  }
  return {200, "image/png", std::string(reinterpret_cast<const char*>(png->data()), png->size()), {}};
}

HttpAnswer Site::of_run(const std::string& run, const std::string& what, const HttpRequest& request) {
  if (what == "events") {
    return events(run, request);
  }
  if (what == "strips") {
    return strips(run, request);
  }
  if (what == "picture") {
    return picture(run, request);
  }
  if (what == "images") {
    return document(what, dump({{"run", run}}));
  }
  if (what != "metrics" && what != "spans") {
    return failure({Code::not_found, "of a run there are metrics, spans, strips, images and events"});
  }
  json arguments = {{"run", run}};
  if (const auto after = request.query.find("after"); after != request.query.end()) {
    const std::optional<std::int64_t> number = whole_number(after->second);
    if (!number) {
      return failure({Code::invalid_argument, "after: a whole number"});
    }
    arguments["after"] = *number;
  }
  if (const auto island = request.query.find("island"); island != request.query.end() && what == "metrics") {
    arguments["island"] = island->second;
  }
  return document(what, dump(arguments));
}

std::string Site::metrics() {
  const json runs = parsed(*documents_.get("runs", "{}"));
  std::vector<json> statuses;
  for (const json& run : runs.value("runs", json::array())) {
    const json ended = run.value("ended_unix_ms", json());
    const bool told = !ended.is_number() || runs.value("now_unix_ms", std::int64_t{0}) - ended.get<std::int64_t>() < kEndedAwhileMs;
    if (told && statuses.size() < kRunsWithMetrics) {
      statuses.push_back(parsed(*documents_.get("status", dump({{"run", run.value("id", "")}}))));
    }
  }
  return metrics_text(parsed(*documents_.get("ping", "{}")).value("version", ""), runs, parsed(*documents_.get("islands", "{}")),
                      statuses) +
         (facts_.state.empty() ? "" : prometheus::disk_lines(facts_.state, prometheus::label("of", "coordinator")));
}

HttpAnswer Site::about(const std::string& island) const {
  const json price = facts_.price_per_gigabyte ? json(*facts_.price_per_gigabyte) : json();
  return {200, kJson, dump({{"schema", 1}, {"price_per_gigabyte", price}, {"island", island.empty() ? json() : json(island)}}), {}};
}

HttpAnswer Site::answer_owner(const HttpRequest& request, const std::string& island) {
  const std::vector<std::string> parts = request.path.starts_with('/') ? parts_of(request.path) : std::vector<std::string>{"?"};
  if (request.path == "/") {
    HttpAnswer answer;
    answer.status = 303;
    answer.headers = {{"Location", "/i/" + island}};
    return answer;
  }
  if ((parts.size() == 2 && parts[0] == "i" && parts[1] == island) || (parts.size() == 1 && request.path != "/metrics")) {
    return answer(request);
  }
  if (request.path == "/api/about") {
    return about(island);
  }
  const bool islands = request.path == "/api/islands";
  if (islands || (parts.size() == 3 && parts[0] == "api" && parts[1] == "runs")) {
    const auto document = islands ? documents_.get("islands", "{}") : documents_.get("status", dump({{"run", parts[2]}}));
    const std::optional<json> view = islands ? islands_for_owner(parsed(*document), island) : status_for_owner(parsed(*document), island);
    if (view) {
      return {200, kJson, dump(*view), {}};
    }
  }
  return failure({Code::unauthorized, "this link is for the owner of island " + island + " and shows nothing else"});
}

HttpAnswer Site::answer(const HttpRequest& request) {
  if (!request.path.starts_with('/')) {  // of "GET # HTTP/1.1" nothing is left
    return failure({Code::invalid_argument, "an address begins with /"});
  }
  const std::vector<std::string> parts = parts_of(request.path);
  const std::size_t count = parts.size();
  if (request.path == "/" || (count == 2 && (parts[0] == "r" || parts[0] == "i")) ||
      (count == 3 && parts[0] == "r" && parts[2] == "summary")) {
    return page_file("index.html");
  }
  if (request.path == "/metrics") {
    return {200, prometheus::kType, metrics(), {}};
  }
  if (parts[0] != "api") {
    return page_file(count == 1 ? parts[0] : "");
  }
  if (request.path == "/api/about") {
    return about("");
  }
  if (count == 2 && (parts[1] == "runs" || parts[1] == "islands")) {
    return document(parts[1], "{}");
  }
  if (count >= 3 && parts[1] == "runs") {
    return count == 3   ? document("status", dump({{"run", parts[2]}}))
           : count == 4 ? of_run(parts[2], parts[3], request)
                        : failure({Code::not_found, "there is nothing at this address"});
  }
  return failure({Code::not_found, "there is nothing at this address; see docs/web.md"});
}

}  // namespace atl::coordinator
