// What lies on this disk, for those who may read it.
#include "agent/core/core_state.hpp"
#include "agent/core/retention.hpp"

namespace atl::agent {

void Core::State::on_serve(const Serve& message) {
  if (message.allowed && stored.knows(message.run)) {
    stored.read_until(message.run, now + kReadersTime);
  }
  if (run && run->terms.id == message.run) {
    if (message.allowed) {
      run->checkpoints.keep_for_reader(message.round, now);
    }
    run->members.heed(message);
  } else if (tasks && tasks->run() == message.run) {
    tasks->heed(message);
  } else if (std::optional<AllowPeers> allowed = stored.heed(message)) {
    effect(std::move(*allowed));
  }
}

// It was being written when the run left this island's hands: it is on the disk, in place of the oldest.
void Core::State::note_stored(const CheckpointWritten& event) {
  const std::vector<StoredCheckpoint>& others = stored.checkpoints(event.run);
  const Epoch epoch = others.empty() ? Epoch(0) : others.back().epoch;
  const Generation generation = others.empty() ? Generation{} : others.back().generation;
  stored.add(event.run,
             StoredCheckpoint{event.round, event.digest, epoch, event.trainer_state, event.step, event.position, event.file,
                              event.file_bytes, event.part, generation},
             std::max<std::size_t>(others.size(), 1));
}

}  // namespace atl::agent
