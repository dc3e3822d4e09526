#include "agent/faults/rehearsal.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sstream>

#include "transport/base/log.hpp"

namespace atl::agent {
namespace {

constexpr std::string_view kStrikeWord = "rehearsal-strike";
constexpr auto kLongest = std::chrono::hours(24 * 365);

// The place of a word in a list; empty if it is none of them.
template <std::size_t count>
std::optional<std::size_t> place_of(const std::array<std::string_view, count>& words, std::string_view word) {
  const auto found = std::find(words.begin(), words.end(), word);
  return found == words.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - words.begin()));
}

// Whole at once, so that no line of the log falls into it.
void tell(const Strike& strike) {
  const std::string line = strike_text(strike) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, line.data(), line.size());
}

}  // namespace

std::string faults_text(std::span<const Fault> faults) {
  std::ostringstream text;
  for (const Fault& fault : faults) {
    text << fault.number << ' ' << fault.round.value << ' ' << kRoundPhases[static_cast<std::size_t>(fault.phase)] << ' '
         << kFaultActions[static_cast<std::size_t>(fault.action)] << ' '
         << std::chrono::duration_cast<std::chrono::milliseconds>(fault.length).count() << ' '
         << static_cast<std::uint64_t>(fault.bits_per_second) << ' ' << kFaultLinks[static_cast<std::size_t>(fault.link)] << '\n';
  }
  return text.str();
}

Result<std::vector<Fault>> parse_faults(std::string_view text) {
  std::vector<Fault> faults;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Fault fault;
    std::string phase;
    std::string action;
    std::string link;
    std::int64_t length_ms = 0;
    words >> fault.number >> fault.round.value >> phase >> action >> length_ms >> fault.bits_per_second >> link;
    const auto phase_place = place_of(kRoundPhases, phase);
    const auto action_place = place_of(kFaultActions, action);
    const auto link_place = place_of(kFaultLinks, link);
    if (!words || !phase_place || !action_place || !link_place || length_ms < 0 ||
        length_ms > std::chrono::milliseconds(kLongest).count()) {
      return Error{Code::invalid_argument,
                   std::string(kRehearsalVariable) + ": '" + line + "' is no fault; `atoll local --faults` sets this variable"};
    }
    fault.phase = static_cast<RoundPhase>(*phase_place);
    fault.action = static_cast<FaultAction>(*action_place);
    fault.link = static_cast<FaultLink>(*link_place);
    fault.length = std::chrono::milliseconds(length_ms);
    faults.push_back(fault);
  }
  return faults;
}

std::string strike_text(const Strike& strike) {
  return std::string(kStrikeWord) + " " + std::to_string(strike.number) + " " + std::to_string(strike.round.value) + " " +
         std::to_string(strike.unix_ms);
}

std::optional<Strike> parse_strike(std::string_view line) {
  std::istringstream words{std::string(line)};
  std::string word;
  Strike strike;
  words >> word >> strike.number >> strike.round.value >> strike.unix_ms;
  return words && word == kStrikeWord ? std::optional(strike) : std::nullopt;
}

void Rehearsal::reached(RoundPhase phase, Round round) {
  while (true) {
    Fault fault;
    {
      const std::lock_guard lock(mutex_);
      const auto due =
          std::find_if(waiting_.begin(), waiting_.end(), [&](const Fault& other) { return other.phase == phase && other.round <= round; });
      if (due == waiting_.end()) {
        return;
      }
      fault = *due;
      waiting_.erase(due);
    }
    strike(fault, round);
  }
}

void Rehearsal::strike(const Fault& fault, Round round) {
  log_warning("rehearsal: " + std::string(kFaultActions[static_cast<std::size_t>(fault.action)]) + " at " +
              std::string(kRoundPhases[static_cast<std::size_t>(fault.phase)]) + " of round " + std::to_string(round.value));
  tell({fault.number, round, unix_ms(now())});
  if (fault.action == FaultAction::kill) {
    ::kill(::getpid(), SIGKILL);
    return;
  }
  if (fault.action == FaultAction::pause) {
    ::kill(::getpid(), SIGSTOP);
    return;
  }
  const TimePoint until = now() + fault.length;
  const std::lock_guard lock(mutex_);
  if (fault.action == FaultAction::slow) {
    slow_until_ = until;
    slow_bits_per_second_ = fault.bits_per_second;
  } else if (fault.action == FaultAction::cut_off) {
    bulk_cut_until_ = fault.link != FaultLink::control ? until : bulk_cut_until_;
    control_cut_until_ = fault.link != FaultLink::bulk ? until : control_cut_until_;
  } else {
    (fault.phase == RoundPhase::checkpointing ? corrupt_file_ : corrupt_piece_) = true;
  }
}

bool Rehearsal::awaits(RoundPhase phase) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const Fault& fault) { return fault.phase == phase; });
}

void Rehearsal::exchange_begins(std::size_t members) {
  const std::lock_guard lock(mutex_);
  sums_come_ = members > 2;
}

bool Rehearsal::corrupts(const BlobPiece& piece) {
  const std::lock_guard lock(mutex_);
  const bool own_result = piece.blob.kind == (sums_come_ ? BlobKind::reduced : BlobKind::contribution) && piece.length > 0;
  return own_result && std::exchange(corrupt_piece_, false);
}

void Rehearsal::checkpoint_written(const std::filesystem::path& outer) {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(corrupt_file_, false)) {
      return;
    }
  }
  std::fstream file(outer, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const int last = file.get();
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(last ^ 1));
}

bool Rehearsal::bulk_is_cut(TimePoint now) const {
  const std::lock_guard lock(mutex_);
  return now < bulk_cut_until_;
}

bool Rehearsal::control_is_cut(TimePoint now) const {
  const std::lock_guard lock(mutex_);
  return now < control_cut_until_;
}

double Rehearsal::uplink_bits_per_second(TimePoint now) const {
  const std::lock_guard lock(mutex_);
  return now < slow_until_ ? slow_bits_per_second_ : 0;
}

}  // namespace atl::agent
