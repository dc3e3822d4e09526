#include "agent/engine/sync_engine.hpp"

#include <algorithm>
#include <utility>

#include "agent/engine/sync_engine_state.hpp"

namespace atl::agent {
namespace {

constexpr int kFramesPerTurn = 64;
constexpr auto kLookEvery = std::chrono::milliseconds(2);        // while a rehearsed fault waits for the phase `sending`
constexpr auto kClosingLook = std::chrono::milliseconds(4);      // while a checkpoint is being written
constexpr auto kRehearsedPause = std::chrono::milliseconds(50);  // within which a rehearsed cut ends
constexpr auto kLongestPause = std::chrono::seconds(1);          // within which a stall is noticed
constexpr auto kMissedLook = std::chrono::milliseconds(1500);    // so late this end was stopped, or busy with something else

}  // namespace

bool SyncEngine::State::turn() {
  look_for_readers();
  bool busy = false;
  for (int i = 0; i < kFramesPerTurn && link->receive(now(), *this); ++i) {
    busy = true;
  }
  busy = reduce() || busy;
  const TimePoint at = now();
  looks_since = at - looked > kMissedLook ? at : looks_since;
  looked = at;
  each_transfer([&](Transfer& transfer) { send_wants(*link, transfer, at); });
  settle_exchanges(at);
  settle_pairs(at);
  settle_catching_up(at);
  settle_content();
  for (auto& [id, open] : runs) {
    settle_checkpoints(open);
  }
  settle_prunings();
  settle_probes(at);
  return busy || hash();
}

std::optional<TimePoint> SyncEngine::State::next_deadline() {
  std::optional<TimePoint> next;
  const auto sooner = [&](TimePoint time) { next = next ? std::min(*next, time) : time; };
  if (settings.rehearsal) {
    sooner(now() + (settings.rehearsal->awaits(RoundPhase::sending) ? kLookEvery : kRehearsedPause));
  }
  if (!prunings.empty() || std::ranges::any_of(runs, [](const auto& open) { return !open.second.closing.empty(); })) {
    sooner(now() + kClosingLook);
  }
  each_transfer([&](const Transfer& transfer) {
    const std::optional<TimePoint> deadline = transfer.next_deadline();
    if (&transfer != &probes && &transfer != &measure && &transfer != &watch) {
      sooner(now() + kLongestPause);
    }
    if (deadline) {
      sooner(*deadline);
    }
  });
  return next;
}

SyncEngine::SyncEngine(EngineSettings settings, std::unique_ptr<BulkLink> link)
    : state_(std::make_unique<State>(std::move(settings), std::move(link))) {}
SyncEngine::~SyncEngine() = default;

void SyncEngine::step(const EngineCommand& command) {
  state_->look_for_readers();
  std::visit([this](const auto& order) { state_->carry_out(order); }, command);
}

bool SyncEngine::turn() { return state_->turn(); }

std::vector<EngineAnswer> SyncEngine::take_answers() { return std::exchange(state_->answers, {}); }

std::optional<TimePoint> SyncEngine::next_deadline() const { return state_->next_deadline(); }

int SyncEngine::pollable_fd() const { return state_->link->pollable_fd(); }

std::uint64_t SyncEngine::pieces_sent() const {
  std::uint64_t pieces = 0;
  for (const PeerTraffic& peer : state_->link->traffic()) {
    pieces += peer.pieces_sent;
  }
  return pieces;
}

const IslandRun* SyncEngine::run(const RunId& run) const {
  const OpenedRun* open = state_->find(run);
  return open != nullptr ? open->run.get() : nullptr;
}

const PairRound* SyncEngine::pair(const RunId& run, Round round) const {
  const OpenedRun* open = state_->find(run);
  const auto found = open != nullptr ? open->pairs.find(round) : decltype(open->pairs.end())();
  return open != nullptr && found != open->pairs.end() ? &found->second : nullptr;
}

}  // namespace atl::agent
