// Spans as Chrome's trace events ("JSON Object Format"), which Perfetto reads: an island is a process, and on it trainer, synchronisation
// and each direction of the link are threads.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

namespace atl {

class TraceEvents {
 public:
  // A span as the coordinator's `spans` document holds it (coordinator/documents.md). One that is not whole is left out.
  void add(const nlohmann::json& span);
  [[nodiscard]] std::size_t count() const { return count_; }
  // The file: times in microseconds since the first span.
  [[nodiscard]] std::string text() const;

 private:
  std::map<std::string, std::uint64_t> islands_;                   // name → process
  std::set<std::pair<std::uint64_t, std::string>> tracks_;         // (process, track) in use
  nlohmann::json events_ = nlohmann::json::array();                // with absolute nanoseconds until text()
  std::size_t count_ = 0;
};

}  // namespace atl
