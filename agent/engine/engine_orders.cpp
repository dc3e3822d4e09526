// What the sync engine does for each command.
#include <algorithm>

#include "agent/engine/sync_engine_state.hpp"
#include "strategies/specification/run_rules.hpp"
#include "transport/base/log.hpp"
#include "transport/identity/identity.hpp"

namespace atl::agent {

void SyncEngine::State::carry_out(const OpenRun& order) {
  carry_out(CloseRun{order.run});
  Result<std::unique_ptr<IslandRun>> run =
      IslandRun::open(order.run, order.spec, settings.self, settings.runs / order.run.text, settings.make_arena);
  if (!run) {
    log_error("run " + order.run.text + ": cannot be opened: " + run.error().why);
    unopened.insert_or_assign(order.run, run.error());  // told when its trainer asks for an arena
    return;
  }
  OpenedRun& open = runs[order.run];
  open.run = *std::move(run);
  if (settings.check_arena) {
    open.run->watch_arena();
  }
  open.uplink_bits_per_second = run_uplink(order.spec);
  set_uplink();
  serve_anew(order.run, open.run->checkpoints().list(), open.run->checkpoints().folder());
}

void SyncEngine::State::carry_out(const AllowPeers& order) {
  Audience& audience = audiences[order.run];
  const bool changed = audience.members != order.members;
  audience.members = order.members;
  audience.readers = order.readers;
  if (const OpenedRun* const open = find(order.run); open != nullptr && (changed || !audience.partners)) {
    std::erase_if(audience.met,
                  [&](const IslandId& island) { return std::ranges::find(order.members, island, &Member::island) == order.members.end(); });
    audience.partners = first_partners(*open, audience);
    audience.sources.clear();
  }
  std::vector<IslandId> members;
  std::vector<IslandId> visitors;
  for (const Member& member : order.members) {
    members.push_back(member.island);
  }
  for (const std::string& key : order.readers) {
    visitors.push_back(island_of(key));
  }
  link->store().set_readers(order.run, std::move(members), std::move(visitors));
  set_peers();
}

void SyncEngine::State::carry_out(const TryPaths& order) {
  neighbours = order.islands;
  set_peers();
  if (order.measurement != 0 && settings.probe_paths) {
    std::vector<IslandId> in_turn;
    for (const Member& member : order.islands) {
      in_turn.push_back(member.island);
    }
    measurement = order.measurement;
    measure.begin(in_turn, order.measure_each, now());
  }
}

void SyncEngine::State::carry_out(const PrepareArena& order) {
  OpenedRun* open = find(order.run);
  Result<island_link::ArenaLayout> layout =
      open != nullptr ? open->run->prepare_arena(order.manifest, order.island) : Result<island_link::ArenaLayout>(why_not_open(order.run));
  answers.emplace_back(ArenaPrepared{order.run, order.incarnation, std::move(layout)});
}

void SyncEngine::State::carry_out(const FillArena& order) {
  OpenedRun* open = find(order.run);
  answers.emplace_back(
      ArenaFilled{order.run, order.incarnation, open != nullptr ? open->run->fill_arena() : Status(why_not_open(order.run))});
}

void SyncEngine::State::carry_out(const FormInitialState& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr) {
    return;
  }
  const Result<Digest> digest = open->run->form_initial_state(order.file);
  if (!digest) {
    say(TrainerExited{order.run, order.incarnation, true, with_context(digest.error(), "the initial parameters")});
    return;
  }
  say(InitialState{order.run, *digest});
}

void SyncEngine::State::carry_out(const AdoptParameters& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr) {
    return;
  }
  const Status adopted = open->run->adopt_parameters();
  say(ParametersAdopted{order.run, order.round, adopted ? std::nullopt : std::optional<Error>(adopted.error())});
}

void SyncEngine::State::carry_out(const BeginCheckpoint& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr || !open->run->has_state() || open->run->round() != order.round || open->run->digest() != order.digest) {
    return;  // WriteCheckpoint says that there is none
  }
  const TimePoint start = now();
  if (const Status begun = open->run->begin_checkpoint(); !begun) {
    log_warning("run " + order.run.text + ": the checkpoint of " + round_text(order.round) + " cannot be begun: " + begun.error().why);
    open->not_begun.insert_or_assign(order.round, begun.error());
    return;
  }
  log_debug("run " + order.run.text + ": checkpoint of " + round_text(order.round) + " begun in " + human_duration(now() - start));
}

void SyncEngine::State::carry_out(const WriteCheckpoint& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr) {
    return;
  }
  IslandRun& run = *open->run;
  const auto fail = [&](const Error& error) {
    log_warning("run " + order.run.text + ": " + error.why + "; older checkpoints are still good");
    say(CheckpointFailed{order.run, order.round, error});
  };
  const auto written = [&](const CheckpointMeta& meta) {
    say(CheckpointWritten{order.run, order.round, meta.digest, meta.outer()->sha256, meta.outer()->bytes, meta.has_trainer_state(),
                          meta.step, meta.position, meta.part});
  };
  const bool begun = run.checkpoint_begun(order.round, order.digest);
  const std::vector<CheckpointMeta> stored = run.checkpoints().list();
  const auto same = std::find_if(stored.begin(), stored.end(), [&](const CheckpointMeta& meta) {
    return meta.round == order.round && meta.digest == order.digest && (meta.has_trainer_state() || !order.trainer_state);
  });
  if (!begun && same != stored.end() && run.checkpoints().verify(order.round)) {
    serve_checkpoints(order.run, stored, run.checkpoints().folder());
    written(*same);
    return;
  }
  const auto cause = open->not_begun.extract(order.round);
  if (!begun && (!run.has_state() || run.round() != order.round || run.digest() != order.digest)) {
    fail(cause ? cause.mapped() : Error{Code::conflict, "the outer state is no longer that of " + round_text(order.round)});
    return;
  }
  reach(RoundPhase::checkpointing, order.round);
  const TimePoint start = now();
  Result<CheckpointMeta> meta =
      begun ? run.finish_checkpoint(order.round, order.epoch, order.trainer_state, order.step, {order.part, order.position}, order.keep,
                                    order.needed)
            : run.write_checkpoint(order.epoch, order.trainer_state, order.step, {order.part, order.position}, order.keep, order.needed);
  if (!meta) {
    fail(meta.error());
    return;
  }
  if (settings.rehearsal) {
    settings.rehearsal->checkpoint_written((run.checkpoints().folder_of(order.round) / kOuterFile).text());
  }
  note(order.run, SpanKind::checkpoint, order.round, 0, start, meta->outer()->bytes);
  log_info("run " + order.run.text + ": checkpoint of " + round_text(order.round) + ", " + human_bytes(meta->outer()->bytes) + " in " +
           human_duration(now() - start));
  serve_checkpoints(order.run, run.checkpoints().list(), run.checkpoints().folder());
  written(*meta);
}

void SyncEngine::State::carry_out(const LoadCheckpoint& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr) {
    return;
  }
  start_over(*open);
  const Status taken = order.fetched ? open->run->take_fetched(order.round, order.digest, *order.fetched) : Status();
  if (order.fetched && taken) {
    serve_checkpoints(order.run, open->run->checkpoints().list(), open->run->checkpoints().folder());  // others copy the state from here
  }
  Result<std::vector<PendingRound>> loaded =
      taken ? open->run->load_checkpoint(order.round, order.digest) : Result<std::vector<PendingRound>>(taken.error());
  if (!loaded) {
    log_warning("run " + order.run.text + ": the checkpoint of " + round_text(order.round) + " is refused: " + loaded.error().why);
    say(CheckpointBroken{order.run, order.round, loaded.error()});
    return;
  }
  say(CheckpointLoaded{order.run, order.round, order.digest, *std::move(loaded)});
}

void SyncEngine::State::carry_out(const CatchUpFromPeers& order) {
  OpenedRun* open = find(order.order.run);
  if (open == nullptr) {
    return;
  }
  start_over(*open);
  Result<std::unique_ptr<CatchUpWork>> work = CatchUpWork::begin(order, *open->run, open->run->folder() / "incoming", now(), wants);
  if (!work) {
    say(CatchUpBroke{order.order.run, work.error(), order.number});
    return;
  }
  open->catching_up = *std::move(work);
  open->catch_up_since = now();
  open->catch_up_number = order.number;
  for (const Member& source : order.order.sources) {
    audiences[order.order.run].sources.insert(source.island);
  }
  set_peers();
}

void SyncEngine::State::carry_out(const KeepResults& order) {
  if (OpenedRun* open = find(order.run)) {
    open->keep_results = order.keep;
    if (!order.keep) {
      drop_results(*open, 0);
    }
  }
}

void SyncEngine::State::carry_out(const CloseRun& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr) {
    return;
  }
  drop_results(*open, 0);
  const std::vector<CheckpointMeta> stored = open->run->checkpoints().list();
  const DiskPath folder = open->run->checkpoints().folder();
  runs.erase(order.run);
  if (runs.empty()) {
    buffers->clear();
  }
  set_uplink();
  serve_anew(order.run, stored, folder);  // for exports
}

void SyncEngine::State::carry_out(const ServeStored& order) {
  const Result<CheckpointStore> store = CheckpointStore::open(settings.runs / order.run.text / "checkpoints");
  if (store) {
    serve_checkpoints(order.run, store->list(), store->folder());
  }
}

}  // namespace atl::agent
