// An island's real sync engine in the simulator: what stands around it in an agent's process is its links, its disk and its thread's turns,
// which come in virtual time here.
#include <algorithm>

#include "tests/sim/cluster.hpp"
#include "tests/sim/island_host.hpp"
#include "tests/sim/troubled_link.hpp"

namespace atl::sim {

using std::chrono::milliseconds;

void IslandHost::open_engine() {
  agent::EngineSettings settings;
  settings.self = id_;
  settings.clock = [this] { return now(); };
  settings.runs = runs();
  settings.probe_paths = true;
  settings.one_level_members = cluster_.scenario().one_level_members;
  settings.make_arena = [this](const RunId&, std::uint64_t bytes) {
    Result<island_link::Arena> arena = island_link::Arena::of_this_process(bytes);
    process_->arena = arena ? arena->floats() : std::span<float>();
    return arena;
  };
  // Of two islands each reads the other's contribution, and computes the result by itself; of more each reads what others computed.
  const BlobKind spoilt = cluster_.islands() == 2 ? BlobKind::contribution : BlobKind::reduced;
  const bool all = cluster_.scenario().spec.strategy.group != Group::pairs;
  Rng beside(cluster_.scenario().seed ^ stream_of(name_, process_->boot), stream_of("beside"));
  if (beside.chance(0.5)) {
    settings.beside = [this](std::function<bool()> some) { process_->beside.push_back(std::move(some)); };
    settings.snapshots = {50 + beside.below(400), 1 + beside.below(5)};
  }
  auto link = std::make_unique<TroubledLink>(
      cluster_.network().bulk_link(id_, std::make_shared<BlobStore>()),
      [this, spoilt, all](const IslandId& from, const BlobPiece& piece, std::span<std::byte> bytes) {
        if (piece.blob.kind == spoilt && !bytes.empty() && deceived_by_.contains(from)) {
          bytes.front() ^= static_cast<std::byte>(1 + index_);  // the last bits of a number
        }
        if (all && piece.blob.kind == spoilt && bytes.size() >= sizeof(float) && cluster_.troubled() &&
            cluster_.scenario().flipped_bits > 0 && cluster_.rng().chance(cluster_.scenario().flipped_bits)) {
          // Bits of its own: two islands that flip the same one would be a majority.
          const std::span<std::byte> value = bytes.subspan(cluster_.rng().below(bytes.size() / sizeof(float)) * sizeof(float));
          for (std::size_t i = 0; i < 2; ++i) {
            value[i] ^= static_cast<std::byte>(1 + cluster_.rng().below(255));
          }
        }
      });
  process_->link = link.get();
  process_->engine = std::make_unique<agent::SyncEngine>(std::move(settings), std::move(link));
}

void IslandHost::order(const agent::EngineCommand& command) {
  const bool fails = std::holds_alternative<agent::WriteCheckpoint>(command) && cluster_.troubled() &&
                     cluster_.rng().chance(cluster_.scenario().broken_disk);
  before(command);
  disk_->set_full(fails || cluster_.timeline().now() < disk_full_until_);
  process_->engine->step(command);
  disk_->set_full(cluster_.timeline().now() < disk_full_until_);
  turn_engine();
}

void IslandHost::receive() {
  if (process_ && process_->link->wait(Duration(0))) {
    turn_engine();
  }
}

// A part of what an agent's other thread does.
void IslandHost::work_beside() {
  if (process_->beside.empty()) {
    return;
  }
  disk_->set_full(cluster_.timeline().now() < disk_full_until_);
  if (!process_->beside.front()()) {
    process_->beside.pop_front();
  }
}

void IslandHost::turn_engine() {
  listen();
  if (process_) {
    work_beside();
  }
  while (process_ && process_->engine->turn()) {
    listen();
  }
  if (process_) {
    listen();
  }
  if (process_) {
    arm_engine();
  }
}

void IslandHost::arm_engine() {
  std::optional<TimePoint> next = process_->engine->next_deadline();
  if (!next) {
    return;
  }
  next = std::max(process_->clock.when(*next), cluster_.timeline().now() + milliseconds(1));
  if (process_->engine_timer && *process_->engine_timer <= *next && *process_->engine_timer > cluster_.timeline().now()) {
    return;
  }
  process_->engine_timer = next;
  cluster_.timeline().at(*next, [this, boot = process_->boot, time = *next] {
    if (process_ && process_->boot == boot && process_->engine_timer == time) {
      process_->engine_timer.reset();
      turn_engine();
    }
  });
}

void IslandHost::listen() {
  const std::uint64_t boot = process_->boot;
  for (agent::EngineAnswer& answer : process_->engine->take_answers()) {
    if (!process_ || process_->boot != boot) {
      return;
    }
    if (const auto* event = std::get_if<agent::Event>(&answer)) {
      after(*event);
      feed(*event);
    } else if (const auto* arena = std::get_if<agent::ArenaPrepared>(&answer)) {
      hear(*arena);
    } else {
      hear(std::get<agent::ArenaFilled>(answer));
    }
  }
}

void IslandHost::hear(const agent::ArenaPrepared& answer) {
  const std::optional<agent::StartTrainer> starting = process_->trainer.starting;
  if (!starting || starting->incarnation != answer.incarnation || starting->run != answer.run) {
    return;  // another start came, or a stop
  }
  process_->trainer.starting.reset();
  if (!answer.layout) {
    feed(agent::TrainerExited{answer.run, answer.incarnation, answer.layout.error().code == Code::invalid_argument, answer.layout.error()});
    return;
  }
  process_->fragments = answer.layout->fragments;
  trainer_is_ready(*starting);
}

void IslandHost::hear(const agent::ArenaFilled& answer) {
  const std::optional<agent::LoadTrainer> loading = process_->trainer.loading;
  if (!loading || loading->incarnation != answer.incarnation || !trainer_up()) {
    return;
  }
  process_->trainer.loading.reset();
  if (!answer.status) {
    cluster_.checkers().fail(name_ + " was asked to load a trainer with a state that is not there: " + answer.status.error().why);
    return;
  }
  load_trainer(*loading);
}

}  // namespace atl::sim
