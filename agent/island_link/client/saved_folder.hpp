// The folder that a trainer saves its state in, whole or not at all.
//
// A trainer writes into NAME.writing; then every file is synced, the counters go beside them as `atoll-counts.json`, and the folder takes
// its name by one rename. A crash leaves the old folder or none, and never half a state. The agent's checkpoint holds the digests.
// Threads: plain functions.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <string_view>

#include "agent/island_link/messages.hpp"
#include "transport/base/result.hpp"

namespace atl::island_link {

// Makes the folder to write into, empty; its path. Errors: io.
Result<std::string> begin_saving(const std::string& directory);
// All is written: syncs it and gives it its name. Errors: io; nothing is left behind then.
Status finish_saving(const std::string& directory, std::string_view counts);
// Gives it up.
void abandon_saving(const std::string& directory);
// The counters of a saved folder; empty if it has none. Errors: io.
Result<std::string> saved_counts(const std::string& directory);

// A folder that a trainer writes into beside its steps: one at a time. begin() when the trainer has its state in hand, written() when all
// is in the folder; then a thread syncs and names it, and outcome() is what the agent hears, once it has heard that the save goes on
// (announce()).
class FolderBeside {
 public:
  void begin(Saved said, std::string counts);
  void announce() { announced_ = true; }
  void written(const std::string& error);
  [[nodiscard]] bool going_on() const { return going_on_; }
  // The trainer has nothing more to do for it.
  [[nodiscard]] bool finishing() const { return finished_.valid(); }
  // Once, when it is finished and was announced; `wait`: until it is, if it is finishing.
  std::optional<Saved> outcome(bool wait);

 private:
  Saved said_;
  std::string counts_;
  bool going_on_ = false;
  bool announced_ = false;
  std::future<Status> finished_;
};

}  // namespace atl::island_link
