// Notices: what somebody who does not look at the moment wants to hear of. Made of the coordinator's documents, as `runs` and `islands`
// have them, by comparing them with what was told before.
//
//   run_ended        a run has completed, failed, or was cancelled
//   run_interrupted  a run has had too few islands for `interrupted_after`;  run_continues: it goes on after that was told
//   island_lost      nothing was heard of an island for `island_lost_after`; island_back: it is there after that was told
// Threads: pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "transport/base/time.hpp"

namespace atl::coordinator {

struct NoticeSettings {
  std::vector<std::string> events;  // empty: all
  Duration interrupted_after = std::chrono::seconds(30);
  Duration island_lost_after = std::chrono::minutes(5);
};

// The names above.
const std::vector<std::string>& notice_names();

class NoticeBook {
 public:
  // `memory` of an earlier life; null: what is there at the first look is known already, and nothing of it is told.
  NoticeBook(NoticeSettings settings, const nlohmann::json& memory);

  // The notices of what is new, oldest first: {"event", "time_unix_ms", "text", "run" or "island": the document's row}.
  std::vector<nlohmann::json> look(const nlohmann::json& runs, const nlohmann::json& islands);

  // What has to be remembered so that nothing is told twice.
  [[nodiscard]] const nlohmann::json& memory() const { return memory_; }

 private:
  void look_at_run(const nlohmann::json& row, double now_ms, std::vector<nlohmann::json>& notices);
  void look_at_island(const nlohmann::json& row, double now_ms, std::vector<nlohmann::json>& notices);
  void add(const char* event, double now_ms, const std::string& text, const char* kind, const nlohmann::json& row,
           std::vector<nlohmann::json>& notices) const;

  NoticeSettings settings_;
  bool first_ = false;
  nlohmann::json memory_;  // {"runs": {ID: {"told": STATE, "since": MS}}, "islands": {ID: true while it was told as lost}}
};

}  // namespace atl::coordinator
