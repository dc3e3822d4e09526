#include "agent/engine/sync_engine.hpp"

#include <poll.h>

#include <algorithm>
#include <array>

#include "agent/engine/sync_engine_state.hpp"

namespace atl::agent {
namespace {

constexpr int kFramesPerTurn = 64;
constexpr auto kLookEvery = std::chrono::milliseconds(2);        // while a rehearsed fault waits for the phase `sending`
constexpr auto kRehearsedPause = std::chrono::milliseconds(50);  // within which a rehearsed cut ends

}  // namespace

void SyncEngine::State::loop() {
  while (!ending) {
    turn();
  }
}

void SyncEngine::State::turn() {
  if (settings.rehearsal) {
    look_for_readers();
  }
  while (std::optional<EngineCommand> command = commands.pop()) {
    std::visit([this](const auto& order) { carry_out(order); }, *command);
    {
      const std::lock_guard lock(idle_mutex);
      ++carried;
    }
    idle.notify_all();
    if (ending) {
      return;
    }
  }
  bool busy = false;
  for (int i = 0; i < kFramesPerTurn && link->receive(now(), *this); ++i) {
    busy = true;
  }
  busy = pump_exchanges(now()) || busy;
  pump_pairs(now());
  pump_catch_up(now());
  pump_content(now());
  std::array<pollfd, 2> fds = {{{commands.fd(), POLLIN, 0}, {link->pollable_fd(), POLLIN, 0}}};
  ::poll(fds.data(), fds.size(), timeout_ms(busy));
}

int SyncEngine::State::timeout_ms(bool busy) const {
  if (busy) {
    return 0;
  }
  TimePoint next = now() + std::chrono::seconds(1);
  if (settings.rehearsal) {
    next = now() + (settings.rehearsal->awaits(RoundPhase::sending) ? kLookEvery : kRehearsedPause);
  }
  for (const auto& [id, open] : runs) {
    for (const auto& [round, exchange] : open.exchanges) {
      if (!exchange->reported) {
        next = std::min(next, exchange->attempt().next_deadline().value_or(next));
      }
    }
    for (const auto& [round, pair] : open.pairs) {
      next = std::min(next, pair.next_deadline().value_or(next));
    }
    if (open.catching_up && open.catching_up->fetch() != nullptr) {
      next = std::min(next, open.catching_up->fetch()->next_deadline().value_or(next));
    }
  }
  for (const auto& [blob, work] : content_fetches) {
    next = std::min(next, work.fetch->next_deadline().value_or(next));
  }
  return static_cast<int>(std::clamp<std::int64_t>(std::chrono::ceil<std::chrono::milliseconds>(next - now()).count(), 0, 1000));
}

SyncEngine::SyncEngine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<SyncEngine>> SyncEngine::start(EngineSettings settings, std::unique_ptr<BulkLink> link) {
  ATOLL_TRY(settings.runs.make_folders());
  std::unique_ptr<SyncEngine> engine(new SyncEngine(std::make_unique<State>(std::move(settings), std::move(link))));
  State* state = engine->state_.get();
  state->thread = std::thread([state] { state->loop(); });
  return engine;
}

SyncEngine::~SyncEngine() {
  state_->ending = true;
  state_->commands.push(ServeStored{});  // wakes it
  state_->thread.join();
}

void SyncEngine::post(EngineCommand command) {
  {
    const std::lock_guard lock(state_->idle_mutex);
    ++state_->posted;
  }
  state_->commands.push(std::move(command));
}

std::optional<EngineAnswer> SyncEngine::take_answer() { return state_->answers.pop(); }

int SyncEngine::fd() const { return state_->answers.fd(); }

bool SyncEngine::drain(Duration at_most) {
  std::unique_lock lock(state_->idle_mutex);
  return state_->idle.wait_for(lock, at_most, [this] { return state_->carried >= state_->posted; });
}

}  // namespace atl::agent
