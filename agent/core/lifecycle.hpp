// Where this island is in the life of a run: outside its epoch or active in it, standing for a pause, or done.
//
//                enter             put_out            stand              go_on      end
//   outside      active            ·                  standing_outside   ·          ended
//   active       ·                 outside            standing           ·          ended
//   standing     ·                 standing_outside   ·                  active     ended
//   standing_    standing          ·                  ·                  outside    ended
//     outside
//   ended        nothing changes it
//
// An island stands after one round, which is committed or about to be: its trainer takes no step beyond. A pause may be over without
// anybody's having said so: a later epoch of which it is not said that the run is being paused tells.
// Threads: plain values; owned by one Core.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "transport/base/ids.hpp"
#include "transport/control/message.hpp"

namespace atl::agent {

class Lifecycle {
 public:
  enum class Stage : std::uint8_t { outside, active, standing, standing_outside, ended };

  [[nodiscard]] Stage stage() const { return stage_; }
  // In the epoch.
  [[nodiscard]] bool active() const { return stage_ == Stage::active || stage_ == Stage::standing; }
  [[nodiscard]] bool standing() const { return stage_ == Stage::standing || stage_ == Stage::standing_outside; }
  // After which round it stands.
  [[nodiscard]] std::optional<Round> stands_after() const { return standing() ? std::optional(stand_) : std::nullopt; }
  // The newest membership says that the run is being paused, after this round.
  [[nodiscard]] std::optional<Round> pause_after() const { return pause_after_; }
  // It stands for a pause of an older epoch.
  [[nodiscard]] bool pause_is_over() const { return standing() && unpaused_in_ > stood_in_; }
  // How it ended; said until the coordinator releases this island.
  [[nodiscard]] const std::optional<RunEnded>& ended() const { return ended_; }

  void enter() { move(Turn::enter); }
  void put_out() { move(Turn::put_out); }
  // epoch: in which that was said.
  void stand(Round after, Epoch epoch) {
    stand_ = after;
    stood_in_ = epoch;
    move(Turn::stand);
  }
  void go_on() { move(Turn::go_on); }
  void end(RunEnded how) {
    ended_ = std::move(how);
    move(Turn::end);
  }

  void heed(std::optional<Round> pause_after) { pause_after_ = pause_after; }
  // Of this epoch it was said that the run is not being paused.
  void note_unpaused(Epoch epoch) { unpaused_in_ = std::max(unpaused_in_, epoch); }

 private:
  enum class Turn : std::uint8_t { enter, put_out, stand, go_on, end };
  void move(Turn turn) { stage_ = kNext[static_cast<std::size_t>(stage_)][static_cast<std::size_t>(turn)]; }

  static constexpr Stage kNext[5][5] = {
      {Stage::active, Stage::outside, Stage::standing_outside, Stage::outside, Stage::ended},
      {Stage::active, Stage::outside, Stage::standing, Stage::active, Stage::ended},
      {Stage::standing, Stage::standing_outside, Stage::standing, Stage::active, Stage::ended},
      {Stage::standing, Stage::standing_outside, Stage::standing_outside, Stage::outside, Stage::ended},
      {Stage::ended, Stage::ended, Stage::ended, Stage::ended, Stage::ended},
  };

  Stage stage_ = Stage::outside;
  Round stand_;
  Epoch stood_in_;
  Epoch unpaused_in_;
  std::optional<Round> pause_after_;
  std::optional<RunEnded> ended_;
};

}  // namespace atl::agent
