#include "agent/core/committed_state.hpp"

#include <algorithm>

namespace atl::agent {

void CommittedState::enter(std::uint64_t entry) {
  if (entry != entry_ && said_ && said_->error) {
    said_.reset();
  }
  entry_ = entry;
}

bool CommittedState::ask_initial() {
  if (from_ != StartFrom::scratch || initial_ || asked_) {
    return false;
  }
  asked_ = true;
  return true;
}

bool CommittedState::form_initial(const Digest& digest) {
  if (held_ || from_ != StartFrom::scratch) {
    return false;
  }
  initial_ = digest;
  return true;
}

void CommittedState::agree(const Digest& digest) {
  held_ = true;
  committed_ = Round(0);
  digest_ = digest;
  initial_.reset();
}

void CommittedState::join(bool active) {
  if (active || from_ != StartFrom::peers) {
    said_.reset();
  }
  from_ = StartFrom::peers;
  initial_.reset();
}

void CommittedState::restore(Round round) {
  from_ = StartFrom::checkpoint;
  said_.reset();
  initial_.reset();
  catching_up_.reset();  // the engine ends it, and does not answer
  restoring_ = round;
}

void CommittedState::loaded(Round round, const Digest& digest, Epoch epoch) {
  restoring_.reset();
  copied_.reset();
  since_ = epoch;
  held_ = true;
  committed_ = round;
  digest_ = digest;
  count(assigned_);
}

bool CommittedState::needs(const CatchUp& order) const {
  return !(catching_up_ && catching_up_->committed >= order.committed && catching_up_->epoch >= order.epoch &&
           catching_up_->digest == order.digest);
}

CatchUpFromPeers CommittedState::catch_up(const CatchUp& order, std::uint64_t number) {
  catching_up_ = order;
  catch_up_number_ = number;
  said_.reset();
  return CatchUpFromPeers{order, held_ && of_ == StateOf::everybody, committed_, digest_, number};
}

void CommittedState::caught_up(Round round, const Digest& digest, Epoch epoch, std::uint32_t part) {
  // The island may have been assigned another part of the data while it copied: the order's position is of the part that it had then.
  count(catching_up_->part == part ? catching_up_->position : assigned_);
  catching_up_.reset();
  initial_.reset();
  copied_ = round;
  since_ = epoch;
  held_ = true;
  committed_ = round;
  digest_ = digest;
}

// The position is that after the assigned round: it holds once that round's state is here. An island with a state of its own knows best
// what it trained on.
void CommittedState::assign(const Invite& message, bool same_part) {
  assigned_ = message.position;
  const bool there = is(message.committed, message.digest);
  if (of_ == StateOf::island ? message.from == StartFrom::peers : there || !same_part || !held_) {
    counted_ = message.position;
  }
}

void CommittedState::count(std::uint64_t told) { counted_ = of_ == StateOf::island ? counted_ : told; }

void CommittedState::count_own(std::uint64_t position) { counted_ = of_ == StateOf::island ? position : counted_; }

void CommittedState::advance(Round round, const Digest& digest, std::uint64_t data_to) {
  committed_ = round;
  digest_ = digest;
  counted_ = std::max(counted_, data_to);
}

void CommittedState::lose(Epoch epoch, Error error) {
  held_ = false;
  from_ = StartFrom::peers;
  say_failure(epoch, committed_, std::move(error));
}

}  // namespace atl::agent
