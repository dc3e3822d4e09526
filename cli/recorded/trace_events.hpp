// Spans as Chrome's trace events ("JSON Object Format"), which Perfetto reads: an island is a process, and on it trainer, synchronisation
// and each direction of the link are threads. Viewers want the events of a thread one after the other: where rounds in flight make some
// overlap, the thread has further ones beside it ("sends", "sends 2").
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace atl {

class TraceEvents {
 public:
  // A span as the coordinator's `spans` document holds it (coordinator/api/documents.md). One that is not whole is left out.
  void add(const nlohmann::json& span);
  [[nodiscard]] std::size_t count() const { return count_; }
  // The file: times in microseconds since the first span.
  [[nodiscard]] std::string text() const;

 private:
  struct Event {
    std::int64_t start_ns = 0;
    std::int64_t length_ns = 0;
    std::string fields;  // JSON of an object's inside, without times and thread
  };
  using Track = std::pair<int, std::string>;  // its place from top to bottom, its name

  std::map<std::string, std::map<Track, std::vector<Event>>> islands_;
  std::size_t count_ = 0;
};

}  // namespace atl
