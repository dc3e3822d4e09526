#include "agent/core/checkpoints.hpp"

#include <algorithm>
#include <iterator>

namespace atl::agent {
namespace {

constexpr Duration kLease = std::chrono::seconds(60);          // of an offer; the coordinator renews it more often
constexpr Duration kOrderOnItsWay = std::chrono::seconds(10);  // from telling of a checkpoint to the order to serve it
constexpr Duration kReading = std::chrono::minutes(10);        // after the coordinator last named the reader

}  // namespace

std::size_t Checkpoints::keep() const { return std::max<std::uint32_t>(terms_->spec.checkpoint.keep, 1); }

void Checkpoints::write(WriteCheckpoint order, TimePoint now) {
  if (!writing_.insert(order.round).second) {
    return;
  }
  order.keep = static_cast<std::uint32_t>(keep());
  std::erase_if(read_until_, [now](const auto& reading) { return reading.second <= now; });
  for (const auto& [kept, until] : read_until_) {
    order.needed.insert(kept);
  }
  if (order.trainer_save == TrainerSave::going_on) {
    trainer_saving_.insert(order.round);
  }
  out_->effect(std::move(order));
}

void Checkpoints::end_trainer_state(Round round, bool saved) {
  if (trainer_saving_.erase(round) > 0) {
    out_->effect(EndTrainerState{terms_->id, round, saved});
  }
}

void Checkpoints::lose_trainer() {
  while (!trainer_saving_.empty()) {
    end_trainer_state(*trainer_saving_.begin(), false);
  }
}

void Checkpoints::on(const CheckpointWritten& event, std::optional<Round> stands_after, TimePoint now) {
  writing_.erase(event.round);
  trainer_saving_.erase(event.round);
  if (lease_ && event.round < lease_from_ && stands_after != event.round) {
    return;  // begun before the results after it were kept: of no use to a joiner, and newer ones follow
  }
  newest_ = Checkpointed{event.run, event.round, event.digest, event.file, event.file_bytes, std::nullopt};
  lease_served_ = lease_served_ || lease_.has_value();
  tell(now);
}

void Checkpoints::on(const CheckpointFailed& event) {
  writing_.erase(event.round);
  trainer_saving_.erase(event.round);
  out_->send(Checkpointed{event.run, event.round, Digest{}, Digest{}, 0, event.error});
}

void Checkpoints::note(const StoredCheckpoint& stored) {
  newest_ = Checkpointed{terms_->id, stored.round, stored.digest, stored.file, stored.file_bytes, std::nullopt};
}

void Checkpoints::tell(TimePoint now) {
  if (newest_ && lease_) {
    keep_until(newest_->round, now + kOrderOnItsWay);
  }
  repeat();
}

void Checkpoints::repeat() const {
  if (newest_) {
    out_->send(*newest_);
  }
}

void Checkpoints::offer(Round from, TimePoint now) {
  if (!lease_) {
    lease_served_ = false;
    lease_from_ = from;
    out_->effect(KeepResults{terms_->id, true});
  }
  lease_ = now + kLease;
}

bool Checkpoints::end_offer() {
  if (!lease_) {
    return false;
  }
  lease_.reset();
  out_->effect(KeepResults{terms_->id, false});
  return true;
}

void Checkpoints::expire(TimePoint now) {
  if (lease_ && now >= *lease_) {
    end_offer();
  }
}

bool Checkpoints::serves(Round committed, const Digest& digest, bool newer_wanted) {
  if (lease_served_ && !newer_wanted) {
    return true;
  }
  if (!has(committed, digest) || committed < lease_from_) {
    return false;
  }
  lease_served_ = true;
  return true;
}

void Checkpoints::begin_copy(const CheckpointWritten& event, Epoch epoch) {
  const std::string& to = terms_->spec.checkpoint.copy;
  std::vector<DataRange> data = {DataRange{event.part, 0, event.position}};
  if (const auto asked = to_copy_.find(event.round); asked != to_copy_.end()) {
    data = std::move(asked->second);
    to_copy_.erase(to_copy_.begin(), std::next(asked));
  } else if (!copy_own_ || event.round == Round(0)) {
    return;
  }
  if (!to.empty()) {
    out_->effect(CopyCheckpoint{event.run, to, copy_own_, static_cast<std::uint32_t>(keep()), event.round, epoch, event.digest, event.file,
                                event.file_bytes, std::move(data)});
  }
}

void Checkpoints::keep_for_reader(Round round, TimePoint now) { keep_until(round, now + kReading); }

void Checkpoints::keep_until(Round round, TimePoint until) {
  TimePoint& kept = read_until_[round];
  kept = std::max(kept, until);
}

}  // namespace atl::agent
