// Epochs: how this island comes into one, with which state and part of the data, and out of it.
#include <algorithm>

#include "agent/core/core_state.hpp"
#include "agent/core/rules/rule.hpp"

namespace atl::agent {

// Its part of the data, and how far that is committed. On another part than before the trainer starts anew; what it has formed is of the
// old one.
void Rule::take_part(const Invite& message) {
  const bool same = !run->members.take_part(message.part);
  deal(message.share);
  run->outer.assign(message, same);
  if (same) {
    // A contribution that was counted without this island's hearing of it would be refused again and again.
    if (run->rounds.overlap(run->members.part(), run->outer.counted())) {
      drop_rounds();
    }
    return;
  }
  drop_rounds();
  if (run->trainer.runs()) {
    start_trainer();
    beat();
  }
}

// Who is in the run trains on all of the data: what of them is this island's changes as others come and go.
void Rule::deal(const DataShare& share) {
  if (share.stretches.empty()) {
    return;  // nothing is dealt until it is let in
  }
  run->members.deal(share);
  run->trainer.deal(run->members.share());
}

// Not active any more, or not yet: it needs the state that the others have. What it has in memory stays.
void Rule::join() {
  run->outer.join(run->life.active());
  run->life.put_out();
  if (!run->trainer.runs() && !run->trainer.restart_at()) {
    start_trainer();
  }
}

void Rule::restore(const Invite& message) {
  run->life.put_out();
  drop_rounds();
  run->checkpoints.end_offer();  // as where it copies them from its peers
  run->outer.restore(message.committed);
  read_checkpoint(message);
}

void Rule::use_epoch(Epoch epoch, const std::vector<Member>& members, const PlaceCouples& avoid) {
  if (run->members.use(epoch, members, avoid)) {
    on_epoch();
  }
}

// Of which only the number was said.
void Rule::advance_epoch(Epoch epoch) {
  if (run->members.advance(epoch)) {
    on_epoch();
  }
}

void Rule::on_new_epoch(const NewEpoch& message) {
  const bool newer = message.epoch > run->members.epoch();
  run->life.heed(message.pause_after);
  run->trainer.hear_tokens(message.tokens);
  use_epoch(message.epoch, message.members, message.avoid);
  if (message.share && message.epoch >= run->members.epoch()) {
    deal(*message.share);
  }
  if (goes_alone()) {
    heed_pause(message);
    return;  // nobody waits for anybody
  }
  if (!run->members.includes(island())) {
    be_left_out();
    return;
  }
  own_up();
  heed_pause(message);
  if (!run->life.active() && run->outer.held() && !run->outer.coming()) {
    be_let_in(message.committed);
  } else if (newer) {
    if (run->life.active()) {
      note_word();
    }
    say_all();
  }
}

void Rule::be_left_out() { run->life.put_out(); }

void Rule::become_active() {
  if (!run->life.active()) {
    run->life.enter();
    note_word();
    run->outer.unsay();
    prepare_next();
    finish_if_done();
  }
  say_all();
}

void Rule::begin_from_seed(const Invite& message, bool newer) {
  use_epoch(message.epoch, message.members, message.avoid);
  if (!run->outer.held() && (newer || !run->life.active())) {
    run->outer.begin_anew();
    run->life.enter();
    take_part(message);
    say_all();
  }
}

void Rule::go_on_from_checkpoint(const Invite& message, bool newer) {
  const bool anew = !run->life.active() || newer;
  if (anew) {
    use_epoch(message.epoch, message.members, message.avoid);
  }
  if (has_gone_on()) {
    return;  // repeated
  }
  const std::optional<CaughtUp>& said = run->outer.said();
  const bool there = said && said->round == message.committed && !said->error;
  if (anew && !run->outer.restoring() && !there) {
    take_part(message);
    restore(message);
  }
}

void Rule::copy_from_peers(const Invite& message, bool newer) {
  if (!run->life.active() || newer) {
    use_epoch(message.epoch, message.members, message.avoid);
    take_part(message);
    join();
  }
}

}  // namespace atl::agent
