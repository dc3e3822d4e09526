// The keys that may fetch a run's checkpoints and results from this island, beside its members: the newest few that the coordinator named.
// Threads: plain value.
#pragma once

#include <string>
#include <vector>

#include "transport/control/message.hpp"

namespace atl::agent {

class Readers {
 public:
  void heed(const Serve& message) {
    std::erase(keys_, message.reader_key);
    if (message.allowed) {
      keys_.push_back(message.reader_key);
    }
    if (keys_.size() > kMost) {
      keys_.erase(keys_.begin());
    }
  }
  void clear() { keys_.clear(); }
  [[nodiscard]] const std::vector<std::string>& keys() const { return keys_; }

 private:
  static constexpr std::size_t kMost = 64;
  std::vector<std::string> keys_;  // oldest first
};

}  // namespace atl::agent
