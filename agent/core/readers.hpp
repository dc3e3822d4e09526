// Who may fetch a run's checkpoints and results from this island, beside its members: the newest few that the coordinator named.
// Threads: plain value.
#pragma once

#include <string>
#include <vector>

#include "transport/control/message.hpp"

namespace atl::agent {

struct Reader {
  std::string key;
  std::string bulk_address = {};  // of a joiner, which may not reach this island; empty: it is not dialled
  friend bool operator==(const Reader&, const Reader&) = default;
};

class Readers {
 public:
  void heed(const Serve& message) {
    std::erase_if(readers_, [&](const Reader& reader) { return reader.key == message.reader_key; });
    if (message.allowed) {
      readers_.push_back({message.reader_key, message.reader_address});
    }
    if (readers_.size() > kMost) {
      readers_.erase(readers_.begin());
    }
  }
  void clear() { readers_.clear(); }
  [[nodiscard]] const std::vector<Reader>& all() const { return readers_; }

 private:
  static constexpr std::size_t kMost = 64;
  std::vector<Reader> readers_;  // oldest first
};

}  // namespace atl::agent
