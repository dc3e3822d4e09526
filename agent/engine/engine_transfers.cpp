// What arrives at the sync engine, and for whom: pieces for whatever reads them, findings of probes, the end of catching up.
#include <algorithm>

#include "agent/engine/sync_engine_state.hpp"

namespace atl::agent {
namespace {

constexpr Duration kInDoubt = std::chrono::milliseconds(900);
constexpr Duration kUnconnected = std::chrono::seconds(1);  // so long nothing has come from a peer that a probe finds unconnected

}  // namespace

void SyncEngine::State::settle_probes(TimePoint at) {
  for (PathFinding& finding : probes.take_findings(at)) {
    if (!finding.linked) {
      give_up_on(finding, at);
    }
    say(PathTried{finding.from, finding.whole, std::move(finding.why)});
  }
  for (const WatchedPath& path : watch.take_findings(at)) {
    say(PathWatched{path.from, path.available});
  }
  for (const MeasuredPath& path : measure.take_findings(at)) {
    say(PathMeasured{measurement, path.from, path.round_trip, path.bytes_per_second});
  }
}

// Whose own contribution does not come for a moment is watched: its path may come and go. A sum may itself wait for a third.
void SyncEngine::State::doubt(const ExchangeAttempt& attempt, TimePoint at) {
  for (const Stall& stall : stalled(attempt, at, kInDoubt)) {
    if (stall.contribution) {
      watch.doubt(stall.accused, at);
    }
  }
}

// There is no connection to this peer: an exchange that waits for its pieces would wait in vain, and the next attempt goes over a third
// island.
void SyncEngine::State::give_up_on(const PathFinding& finding, TimePoint at) {
  for (auto& [id, open] : runs) {
    for (auto& [round, exchange] : open.exchanges) {
      if (exchange->reported) {
        continue;
      }
      for (const Stall& stall : stalled(exchange->attempt(), at, kUnconnected)) {
        if (stall.accused == finding.from && !exchange->reported) {
          report_broken(*exchange, stall.accused, {Code::timeout, finding.why},
                        stall.contribution ? std::vector{stall.accused} : std::vector<IslandId>{});
        }
      }
    }
  }
}

// Of a fetch that brought nothing: whether data pass from its sources is tried anew, and told.
void SyncEngine::State::suspect(const std::vector<DroppedSource>& sources) {
  for (const DroppedSource& source : sources) {
    probes.suspect(source.source, now());
  }
}

void SyncEngine::State::look_for_readers() {
  if (!settings.rehearsal || !settings.rehearsal->awaits(RoundPhase::sending)) {
    return;
  }
  for (const auto& [id, open] : runs) {
    const auto look = [&, &run = id](Round round) {
      if (link->store().read_of_round(run, round)) {
        reach(RoundPhase::sending, round);
      }
    };
    for (const auto& [round, exchange] : open.exchanges) {
      look(round);
    }
    for (const auto& [round, pair] : open.pairs) {
      look(round);
    }
  }
}

void SyncEngine::State::settle_catching_up(TimePoint at) {
  for (auto& [id, open] : runs) {
    if (!open.catching_up || !open.catching_up->advance(at, *open.run)) {
      continue;
    }
    const std::unique_ptr<CatchUpWork> work = std::move(open.catching_up);
    if (work->failure()) {
      for (const Member& source : work->order().sources) {
        probes.suspect(source.island, at);
      }
      say(CatchUpBroke{id, *work->failure(), open.catch_up_number});
    } else {
      note(id, SpanKind::catch_up, open.run->round(), 0, open.catch_up_since);
      say(CatchUpDone{id, open.run->round(), open.run->digest(), open.catch_up_number});
    }
  }
}

Transfer* SyncEngine::State::reader_of(const BlobId& blob) {
  Transfer* reader = nullptr;
  each_transfer([&](Transfer& transfer) { reader = reader == nullptr && transfer.reads(blob) ? &transfer : reader; });
  return reader;
}

std::span<std::byte> SyncEngine::State::destination(const IslandId& from, const BlobPiece& piece) {
  Transfer* reader = reader_of(piece.blob);
  return reader != nullptr ? reader->destination(from, piece) : std::span<std::byte>();
}

void SyncEngine::State::arrived(TimePoint at, const IslandId& from, const BlobPiece& piece) {
  watch.heard(from, at);
  Transfer* reader = reader_of(piece.blob);
  if (reader == nullptr) {
    return;
  }
  reader->arrived(at, from, piece);
  if (belongs_to_exchange(piece.blob.kind)) {
    RoundMeter::Arrival& arrival = find(piece.blob.run)->meters[piece.blob.round].arrivals[from];
    arrival.last = at;
    arrival.bytes += piece.length;
  }
}

void SyncEngine::State::note(const RunId& run, SpanKind kind, Round round, std::uint32_t fragment, TimePoint start, std::uint64_t amount) {
  note(run, Span{kind, round, fragment, {}, start, now() - start, amount});
}

void SyncEngine::State::gone(TimePoint at, const IslandId& from, const Gone& gone) {
  if (Transfer* reader = reader_of(gone.blob)) {
    reader->gone(at, from, gone);
  }
}

void SyncEngine::State::connected(TimePoint at, const IslandId& peer) {
  each_transfer([&](Transfer& transfer) { transfer.connected(at, peer); });
}

}  // namespace atl::agent
