#include "coordinator/service/notices.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace atl::coordinator {
namespace {

using nlohmann::json;

std::string text_of(const json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
}

double number_of(const json& row, const char* key, double otherwise) {
  const auto found = row.find(key);
  return found != row.end() && found->is_number() ? found->get<double>() : otherwise;
}

// The rows that can be told apart.
std::vector<json> rows_of(const json& document, const char* key) {
  std::vector<json> rows;
  if (document.is_object() && document.contains(key) && document[key].is_array()) {
    std::ranges::copy_if(document[key], std::back_inserter(rows),
                         [](const json& row) { return row.is_object() && !text_of(row, "id").empty(); });
  }
  return rows;
}

double milliseconds(Duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

bool is_over(const std::string& state) { return state == "completed" || state == "failed" || state == "cancelled"; }

}  // namespace

const std::vector<std::string>& notice_names() {
  static const std::vector<std::string> kNames = {"run_ended", "run_interrupted", "run_continues", "island_lost", "island_back"};
  return kNames;
}

NoticeBook::NoticeBook(NoticeSettings settings, const json& memory)
    : settings_(std::move(settings)), first_(!memory.is_object()), memory_(memory.is_object() ? memory : json::object()) {
  for (const char* kind : {"runs", "islands"}) {
    if (!memory_[kind].is_object()) {
      memory_[kind] = json::object();
    }
  }
}

std::vector<json> NoticeBook::look(const json& runs, const json& islands) {
  std::vector<json> notices;
  for (const json& row : rows_of(runs, "runs")) {
    look_at_run(row, number_of(runs, "now_unix_ms", 0), notices);
  }
  for (const json& row : rows_of(islands, "islands")) {
    look_at_island(row, number_of(islands, "now_unix_ms", 0), notices);
  }
  if (std::exchange(first_, false)) {
    notices.clear();
  }
  return notices;
}

void NoticeBook::look_at_run(const json& row, double now_ms, std::vector<json>& notices) {
  const std::string id = text_of(row, "id");
  const std::string state = text_of(row, "state");
  json& known = memory_["runs"][id];
  const std::string told = text_of(known, "told");
  const std::string reason = text_of(row, "reason");
  const std::string what = "run " + text_of(row, "name") + " (" + id + ") ";
  const std::string because = reason.empty() ? "" : ": " + reason;
  if (is_over(state)) {
    if (told != state) {
      known = {{"told", state}};
      add("run_ended", now_ms, what + (state == "cancelled" ? "was " : "has ") + state + because, "run", row, notices);
    }
  } else if (state == "interrupted") {
    const double since = number_of(known, "since", now_ms);
    known["since"] = since;
    if (told != state && now_ms - since >= milliseconds(settings_.interrupted_after)) {
      known["told"] = state;
      add("run_interrupted", now_ms, what + "is interrupted" + because, "run", row, notices);
    }
  } else {
    known = {{"told", ""}};
    if (told == "interrupted") {
      add("run_continues", now_ms, what + "goes on", "run", row, notices);
    }
  }
}

void NoticeBook::look_at_island(const json& row, double now_ms, std::vector<json>& notices) {
  const std::string id = text_of(row, "id");
  json& lost = memory_["islands"];
  const bool connected = row.value("connected", json()) == true;
  if (connected || text_of(row, "link") == "revoked") {
    if (lost.erase(id) > 0 && connected) {
      add("island_back", now_ms, "island " + text_of(row, "name") + " is back", "island", row, notices);
    }
    return;
  }
  const double silent_ms = now_ms - number_of(row, "last_seen_unix_ms", now_ms);
  if (!lost.contains(id) && silent_ms >= milliseconds(settings_.island_lost_after)) {
    lost[id] = true;
    add("island_lost", now_ms,
        "nothing was heard of island " + text_of(row, "name") + " for " + std::to_string(static_cast<long>(silent_ms / 1000)) + " s",
        "island", row, notices);
  }
}

void NoticeBook::add(const char* event, double now_ms, const std::string& text, const char* kind, const json& row,
                     std::vector<json>& notices) const {
  if (settings_.events.empty() || std::ranges::find(settings_.events, event) != settings_.events.end()) {
    notices.push_back({{"event", event}, {"time_unix_ms", static_cast<std::int64_t>(now_ms)}, {"text", text}, {kind, row}});
  }
}

}  // namespace atl::coordinator
