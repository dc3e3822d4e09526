// CheckpointCopier: copies checkpoints to the stores of runs that ask for it ([checkpoint] copy), and fetches copies, on a thread of its
// own.
//
// It writes and reads only below places that the island's owner named (--allow-copy). A copy that is slower than the run is brought to its
// end, and the newest checkpoint follows; those between are left out. A copy that failed is tried again later, a bounded number of times,
// unless a newer one came. What was not brought to its end when the agent ended goes on with the agent's next start. Fetching goes first.
// Threads: all functions on one. No function waits for a disk or a network but `finish` and the constructor.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "agent/core/effect.hpp"
#include "agent/core/event.hpp"
#include "agent/service/checkpoint_copy.hpp"
#include "agent/service/value_queue.hpp"
#include "transport/base/file_descriptor.hpp"

namespace atl::agent {

inline constexpr Duration kLastCopy = std::chrono::seconds(20);  // that the agent's end waits for a copy

struct CopierSettings {
  std::string island;                // its name: where copies of its own state lie
  std::filesystem::path runs;        // STATE/runs
  std::vector<std::string> allowed;  // where the owner lets it write and read, and below
  StoreCredentials credentials = {};
  StoreTimes times = {};
  CopyPatience patience = {};                      // of one request
  Duration again_after = std::chrono::minutes(1);  // a copy that failed; doubles each time
  unsigned tries = 6;                              // of a copy
  std::uint64_t part_bytes = kCopyPartBytes;
};

class CheckpointCopier {
 public:
  // Goes on with what an earlier life of the agent had begun.
  explicit CheckpointCopier(CopierSettings settings);
  ~CheckpointCopier();  // breaks off what is under way
  CheckpointCopier(const CheckpointCopier&) = delete;
  CheckpointCopier& operator=(const CheckpointCopier&) = delete;

  // This island has this checkpoint now. It is opened here, so it may be pruned. → CopyEnded, once it is there, and when a try failed.
  void copy(const CopyCheckpoint& order);
  // → CopyFetched.
  void fetch(const FetchCopy& order);

  // CopyEnded or CopyFetched.
  [[nodiscard]] std::optional<Event> take() { return news_.pop(); }
  // Readable while there is one.
  [[nodiscard]] int fd() const { return news_.fd(); }
  // A copy is under way, or will be tried again, or something is fetched.
  [[nodiscard]] bool busy();
  // Until no copy is under way or due, or the time is over. For the agent's end.
  void finish(Duration at_most);

 private:
  struct Pending {
    CopyCheckpoint order;
    FileDescriptor file;
    TimePoint due;
    unsigned failures = 0;
  };
  void work();
  void resume();
  void copy(Pending pending);
  void put_back(Pending pending);
  [[nodiscard]] Event fetched(const FetchCopy& order);
  [[nodiscard]] Result<ObjectStore> open(const std::string& place, const std::function<bool()>& go_on) const;
  [[nodiscard]] bool allows(const std::string& place) const;
  [[nodiscard]] std::filesystem::path folder_of(const RunId& run) const { return settings_.runs / run.text; }
  // False if the thread is to do something else.
  bool wait(Duration time, bool for_fetch);

  const CopierSettings settings_;
  ValueQueue<Event> news_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RunId, Pending> pending_;  // the newest of each run
  std::optional<FetchCopy> to_fetch_;
  std::set<RunId> refused_;  // told that this island may not
  bool busy_ = false;
  std::atomic<bool> fetch_waits_ = false;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace atl::agent
