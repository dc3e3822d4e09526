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
  open.run->let_work(settings.in_parts);
  if (const Status removed = kept_results(open).remove(); !removed) {  // of an agent that was killed; nobody is told of them any more
    log_warning(removed.error().why);
  }
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
  adopt_addresses(audience.members, order.members);
  for (const Reader& reader : order.readers) {
    const auto known = std::ranges::find(audience.readers, reader.key, &Reader::key);
    adopt_address(island_of(reader.key), known == audience.readers.end() ? "" : known->bulk_address, reader.bulk_address);
  }
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
  for (const Reader& reader : order.readers) {
    visitors.push_back(island_of(reader.key));
  }
  link->store().set_readers(order.run, std::move(members), std::move(visitors));
  set_peers();
}

void SyncEngine::State::carry_out(const TryPaths& order) {
  adopt_addresses(neighbours, order.islands);
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
    link->store().expect_results_after(order.run, order.keep ? std::optional(open->run->round()) : std::nullopt);
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
  complete_checkpoints(*open);
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
