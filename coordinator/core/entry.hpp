// How an island comes into a run: from what it starts, how far it has caught up, and what went wrong before.
//
//   begin ─► told(initial state) ............................ round 0
//        └─► ordered(CatchUp) ─► come_to(round) ─► let_in ..... later, from peers
//        └─► come_to(round of its checkpoint) ─► let_in ....... a restore
//   and from each of these: failed or expelled ─► not before retry_at()
//
// Threads: a plain value; owned by one Core.
#pragma once

#include <optional>
#include <utility>

#include "coordinator/core/outbox.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"
#include "transport/control/message.hpp"

namespace atl::coordinator {

class Entry {
 public:
  // ---- how it stands
  // No two of an island have the same, also of two lives of the coordinator; 0: it was in the ledger.
  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] StartFrom from() const { return from_; }
  [[nodiscard]] bool from_checkpoint() const { return from_ == StartFrom::checkpoint; }
  // While it is starting: of round 0, as it says.
  [[nodiscard]] const std::optional<Digest>& initial() const { return initial_; }
  // The committed round that its invitation named, and the epoch in which it was assigned last: older answers are stale.
  [[nodiscard]] Round assigned() const { return assigned_; }
  [[nodiscard]] Epoch assigned_epoch() const { return assigned_epoch_; }
  // While it is joining: the last order, and the newest verified round.
  [[nodiscard]] const std::optional<CatchUp>& catch_up() const { return catch_up_; }
  [[nodiscard]] const std::optional<Round>& caught_up() const { return caught_up_; }
  [[nodiscard]] bool lacks(Round round) const { return !caught_up_ || *caught_up_ < round; }
  // Rounds that were committed since, and that were held for it.
  [[nodiscard]] unsigned boundaries_missed() const { return boundaries_missed_; }
  [[nodiscard]] unsigned holds() const { return holds_; }
  // Expulsions and failed catch-ups in a row; catch-ups that failed because the run's state is none for its trainer.
  [[nodiscard]] bool has_failed() const { return failures_ > 0; }
  [[nodiscard]] unsigned failures() const { return failures_; }
  [[nodiscard]] unsigned misfits() const { return misfits_; }
  [[nodiscard]] TimePoint retry_at() const { return retry_at_; }
  // It came with a round that the ledger does not know, and knew no older epoch than the ledger.
  [[nodiscard]] bool ahead() const { return ahead_; }
  // Its hello said that its state is live: worth a look.
  [[nodiscard]] bool memory_offered() const { return memory_offered_; }
  // It was away when rounds were adopted: how far its part of the data was by then it says when it comes.
  [[nodiscard]] bool unheard() const { return unheard_; }

  // ---- what becomes of it
  // Another one, of the same island.
  void begin(StartFrom from, Round committed, const Outbox& out);
  // It was in the ledger.
  void recover(StartFrom from, const Outbox& out);
  void start_from(StartFrom from) { from_ = from; }
  void assign(Round round) { assigned_ = round; }
  void invited_in(Epoch epoch) { assigned_epoch_ = epoch; }
  void told(const Digest& initial) { initial_ = initial; }
  void forget_initial() { initial_.reset(); }
  void ordered(CatchUp order, const Outbox& out);
  // The order as it is said, in the present epoch.
  const CatchUp& repeat_order(Epoch epoch, std::uint32_t part, std::uint64_t position);
  void drop_order() { catch_up_.reset(); }
  // Nor has it caught up.
  void drop_progress();
  void come_to(Round round, TimePoint now);
  void missed_boundary() { ++boundaries_missed_; }
  void held() { ++holds_; }
  void let_in();
  void vacated();
  // Its state in memory is worth a look, or is not.
  void offer_memory(bool offered) { memory_offered_ = offered; }
  void is_ahead(bool ahead) { ahead_ = ahead; }
  // Rounds were adopted, and it was there or not.
  void adopted(bool heard, bool live, TimePoint now);
  void misfit() { ++misfits_; }
  void fits() { misfits_ = 0; }
  void retry(TimePoint at) { retry_at_ = at; }
  // Later each time: twice `after`, up to `most`.
  void fail(TimePoint now, Duration after, Duration most);
  // It holds a result of the run.
  void succeeded();
  void forgive(TimePoint now);

  // ---- its invitation and its order are repeated until they are answered
  [[nodiscard]] bool due(const Outbox& out) { return out.due(resend_); }  // and schedules the next
  [[nodiscard]] TimePoint next_repeat() const { return resend_.next; }
  void repeat_at(TimePoint time) { resend_.next = time; }
  void repeat_anew(const Outbox& out) { out.restart(resend_); }

 private:
  std::uint64_t number_ = 0;
  StartFrom from_ = StartFrom::scratch;
  std::optional<Digest> initial_;
  Round assigned_;
  Epoch assigned_epoch_;
  Resend resend_;
  std::optional<CatchUp> catch_up_;
  std::optional<Round> caught_up_;
  unsigned boundaries_missed_ = 0;
  unsigned holds_ = 0;
  unsigned failures_ = 0;
  unsigned misfits_ = 0;
  TimePoint retry_at_;
  bool ahead_ = false;
  bool memory_offered_ = false;
  bool unheard_ = false;
};

}  // namespace atl::coordinator
