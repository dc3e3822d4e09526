// What the classes that decide by a run's rule use of the core: its islands and runs, the time, and what it says.
// Threads: owned by one Core.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coordinator/core/core.hpp"
#include "coordinator/core/islands.hpp"
#include "coordinator/core/outbox.hpp"
#include "coordinator/core/run.hpp"

namespace atl::coordinator {

class Services {
 protected:
  // core: outlives it.
  explicit Services(Core::State& core);
  ~Services() = default;
  Services(const Services&) = default;
  Services& operator=(const Services&) = delete;

  [[nodiscard]] TimePoint now() const { return out_.now(); }
  void wake_at(TimePoint time) { out_.wake_at(time); }
  void send(const IslandId& island, Message message) { islands_.send(island, std::move(message), out_); }
  void record(Record value) { out_.record(std::move(value)); }
  void event(const RunId& run, const IslandId& island, std::string level, std::string kind, std::string text,
             std::vector<Field> fields = {}) {
    out_.event(run, island, std::move(level), std::move(kind), std::move(text), std::move(fields));
  }
  void told(const RunId& run, const IslandId& island, std::string level, std::string kind, const std::string& text,
            std::vector<Field> fields = {}) {
    islands_.tell(run, island, std::move(level), std::move(kind), text, std::move(fields), out_);
  }
  [[nodiscard]] bool due(Resend& resend) const { return out_.due(resend); }  // and schedules the next
  void restart(Resend& resend) const { out_.restart(resend); }
  // Something about the run changed that another decision may depend on: it is looked at again.
  void touch(const Run& run);

  Core::State& core_;
  const Settings& settings_;
  Islands& islands_;
  std::map<RunId, Run>& runs_;
  Outbox& out_;
};

}  // namespace atl::coordinator
