// Who an agent is, and the times that it keeps.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/generation.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"

namespace atl::agent {

// Who this agent is, for its hello.
struct Identity {
  IslandId island;
  std::string name;
  std::string version;
  std::uint64_t boot = 0;  // random per process start
  std::string bulk_address;
  std::string platform;
  std::vector<std::string> data_sets;
  std::uint32_t codec_version = 0;
  double uplink_bits_per_second = 0;       // its owner's budget; 0: none
  std::string kernels = {};                // what its trainers multiply matrices with, for people
  std::vector<std::string> trainers = {};  // names of the training programs that its owner lets runs start
  Generation generation = {};              // the newest of its coordinator that it has met
  std::uint64_t link_memory_bytes = 0;     // for pieces on their way
  std::vector<std::string> copies = {};    // places where its owner lets it keep and read copies of checkpoints
  std::string place = {};                  // StateLock::place
};

struct Settings {
  Duration hello_again = std::chrono::seconds(1);    // until welcomed
  Duration resend = std::chrono::seconds(2);         // what is not answered is said again
  Duration restart_delay = std::chrono::seconds(1);  // of a crashed trainer; doubles with each crash
  std::uint32_t crashes = 5;                        // without a committed round, or of a task a checkpoint, in between: the island gives up
  Duration leave_limit = std::chrono::seconds(60);  // after SIGTERM, without an answer: go anyway
  std::uint64_t rounds_ahead = 2;                   // orders that the trainer has beyond the round in hand
  Duration ask_over = std::chrono::minutes(10);     // which of the runs that lie here are over
  std::optional<Duration> keep_ended = std::chrono::hours(24 * 30);  // of runs that ended; nothing: for ever
  bool keep_removed = false;                                         // also what an operator removes stays
};

// Numbers the starts of trainers, of runs, of tasks and of catching up alike: what comes of an earlier start is known by its number.
class Starts {
 public:
  std::uint64_t next() { return ++newest_; }

 private:
  std::uint64_t newest_ = 0;
};

}  // namespace atl::agent
