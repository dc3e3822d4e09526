// Rehearsed faults: what goes wrong on this island, and at which moment of which round, when `atoll local --faults` says so.
//
// The phases of a round are named here, and the sync engine says when it reaches one: `reached` is the only hook. What a fault does to a
// link it does through the link's own interface (rehearsed_links.hpp). An agent that rehearses nothing has no Rehearsal: its links are the
// bare ones, and what is left is one comparison with a null pointer for each phase of a round. Faults come from the environment variable
// kRehearsalVariable, which `atoll local` sets for the agents it starts. No message, run file or option leads here. Each fault strikes
// once, and is told on stdout by one line (strike_text) before it does. Threads: Rehearsal: any; the rest are plain values and pure
// functions.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/bulk/piece.hpp"

namespace atl::agent {

inline constexpr const char* kRehearsalVariable = "ATOLL_REHEARSAL";

enum class RoundPhase : std::uint8_t {
  before_send,    // its contribution is formed; nobody knows yet
  sending,        // another island has read the first piece of it
  reducing,       // it has begun to sum: its shard's first piece is done; of two islands, all of the other's has come
  receiving,      // the first piece of another's contribution, or of a sum, has come
  before_commit,  // it has the result and its digest, and has told nobody
  checkpointing,  // a checkpoint is about to be completed
};
inline constexpr std::array<std::string_view, 6> kRoundPhases = {"before-send", "sending",       "reducing",
                                                                 "receiving",   "before-commit", "checkpointing"};

enum class FaultAction : std::uint8_t {
  kill,     // SIGKILL to the agent; its trainer dies with it
  pause,    // SIGSTOP to the agent; whoever started it lets it go on
  slow,     // what it sends to other islands leaves at `bits_per_second`
  cut_off,  // its links carry nothing either way
  // One bit changes behind all checks of the link, as in bad memory: the lowest of the last byte of the next piece that it takes over into
  // its own result (a reduced one; the other's contribution where two islands exchange). At checkpointing: of outer.safetensors, once it is
  // written.
  corrupt,
};
inline constexpr std::array<std::string_view, 5> kFaultActions = {"kill", "pause", "slow", "cut-off", "corrupt"};

enum class FaultLink : std::uint8_t { both, bulk, control };
inline constexpr std::array<std::string_view, 3> kFaultLinks = {"both", "bulk", "control"};

struct Fault {
  std::uint32_t number = 0;  // what it is called in strike_text
  Round round;               // strikes in this round, or the first later one in which this island reaches the phase
  RoundPhase phase = RoundPhase::before_send;
  FaultAction action = FaultAction::kill;
  Duration length{};                 // slow, cut_off
  double bits_per_second = 0;        // slow
  FaultLink link = FaultLink::both;  // cut_off
  friend bool operator==(const Fault&, const Fault&) = default;
};

// What kRehearsalVariable holds. Reading it back: invalid_argument naming the first thing that is none.
std::string faults_text(std::span<const Fault> faults);
Result<std::vector<Fault>> parse_faults(std::string_view text);

// A fault has struck.
struct Strike {
  std::uint32_t number = 0;
  Round round;
  std::int64_t unix_ms = 0;
  friend bool operator==(const Strike&, const Strike&) = default;
};
std::string strike_text(const Strike& strike);
// Empty for a line that tells of no strike.
std::optional<Strike> parse_strike(std::string_view line);

class Rehearsal {
 public:
  explicit Rehearsal(std::vector<Fault> faults) : waiting_(std::move(faults)) {}

  // This island has come to this phase of this round: what was to strike here does. A kill and a pause do not return before their end.
  void reached(RoundPhase phase, Round round);
  // Whether a fault of this phase is still to strike.
  [[nodiscard]] bool awaits(RoundPhase phase) const;

  // What `corrupt` is to change: the form of the exchange decides which pieces become this island's own result.
  void exchange_begins(std::size_t members);
  // True for the piece that is to be changed, once.
  bool corrupts(const BlobPiece& piece);
  // Changes the file if that was asked for.
  void checkpoint_written(const std::filesystem::path& outer);

  // What holds of the links now. uplink: 0 if it is not slowed.
  [[nodiscard]] bool bulk_is_cut(TimePoint now) const;
  [[nodiscard]] bool control_is_cut(TimePoint now) const;
  [[nodiscard]] double uplink_bits_per_second(TimePoint now) const;

 private:
  void strike(const Fault& fault, Round round);

  mutable std::mutex mutex_;
  std::vector<Fault> waiting_;
  TimePoint bulk_cut_until_{};
  TimePoint control_cut_until_{};
  TimePoint slow_until_{};
  double slow_bits_per_second_ = 0;
  bool corrupt_piece_ = false;
  bool corrupt_file_ = false;
  bool sums_come_ = false;  // more than two exchange: reduced pieces come
};

}  // namespace atl::agent
