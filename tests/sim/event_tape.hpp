// The events of a run, replayed: who was a member, what was planned, what was committed. That the ledger's records say the same
// is the proof that `atoll events` is enough to replay a run's decisions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/record.hpp"

namespace atl::sim {

class EventTape {
 public:
  // The first round that is planned and committed for all; those before it (in pairs) islands take by themselves.
  explicit EventTape(std::uint64_t first = 1) : first_(first) {}
  // The next event of the run, in order. What does not follow from the events before it is in failure().
  void take(const coordinator::EventRecord& event);
  // A transaction's other records, after its events: they must say what the events said.
  void compare(const coordinator::EpochRecord& record);
  void compare(const coordinator::RoundRecord& record);
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  struct Planned {
    std::uint64_t attempt = 0;
    std::vector<std::string> members;
    std::vector<std::uint64_t> tokens;
    bool given_up = false;
  };
  struct Decided {
    std::uint64_t attempt = 0;
    std::vector<std::string> members;
    std::vector<std::uint64_t> tokens;
    std::string digest;
  };
  void fail(const std::string& what);

  std::uint64_t first_;
  std::uint64_t epoch_ = 0;
  std::map<std::uint64_t, std::vector<std::string>> memberships_;  // by epoch
  std::map<std::uint64_t, Planned> planned_;                       // by round; newest attempt
  std::map<std::uint64_t, Decided> committed_;
  bool restored_ = false;  // from an older copy of the ledger
  std::string failure_;
};

}  // namespace atl::sim
