// What goes on in the sync engine beside its commands: exchanges, catching up, and the pieces that arrive.
#include <algorithm>

#include "agent/engine/sync_engine_state.hpp"

namespace atl::agent {

// One piece of each exchange; false if none was complete.
bool SyncEngine::State::reduce() {
  bool busy = false;
  for (auto& [id, open] : runs) {
    for (auto& [round, exchange] : open.exchanges) {
      const TimePoint start = now();
      if (!exchange->reported && exchange->attempt().reduce_one()) {
        busy = true;
        RoundMeter& meter = open.meters[round];
        meter.reduce_start = meter.reduce_start.value_or(start);
        meter.reduce_end = now();
        reach(RoundPhase::reducing, round);
      }
    }
  }
  return busy;
}

void SyncEngine::State::settle_exchanges(TimePoint at) {
  for (auto& [id, open] : runs) {
    for (auto& [round, exchange] : open.exchanges) {
      if (!exchange->reported) {
        settle(open, *exchange, at);
      }
    }
  }
}

void SyncEngine::State::settle(OpenedRun& open, RoundExchange& exchange, TimePoint at) {
  ExchangeAttempt& attempt = exchange.attempt();
  if (attempt.failure()) {
    report_broken(exchange, attempt.failure()->accused, attempt.failure()->error);
  } else if (attempt.done()) {
    if (open.run->has_state() && open.run->round().next() == exchange.order().round) {
      report_done(open, exchange);
    }
  } else if (const std::vector<Stall> stalls = attempt.stalled(at, exchange.order().stall_after.value_or(settings.stall_after));
             !stalls.empty()) {
    report_broken(exchange, stalls.front().accused, {Code::timeout, stalls.front().why});
  }
}

void SyncEngine::State::report_done(OpenedRun& open, RoundExchange& exchange) {
  const BeginExchange& order = exchange.order();
  const RoundResult& result = exchange.result();
  if (result.terms.size() > 1) {
    reach(RoundPhase::reducing, order.round);  // the sum of two is taken now, not piece by piece
  }
  const TimePoint start = now();
  RoundMeter& meter = open.meters[order.round];
  meter.exchange = seconds(start - exchange.started()) * 1000.0;
  std::vector<IslandId> contributors;
  for (std::size_t i = 0; i < order.members.size(); ++i) {
    if (order.tokens[i] > 0) {
      contributors.push_back(order.members[i].island);
    }
  }
  for (std::size_t i = 0; i < result.terms.size(); ++i) {
    if (const Status finite = check_encoded(result.codec, result.terms[i].bytes, result.values); !finite) {
      const bool whole = result.terms.size() == contributors.size();  // terms are contributions, not their sum
      report_broken(exchange, whole ? contributors[i] : IslandId(), finite.error());
      return;
    }
  }
  const Digest digest = exchange.digest(open.run->digest_before(order.round));
  meter.digest = ms_since(start);
  reach(RoundPhase::before_commit, order.round);
  exchange.reported = true;
  // Others may still be reading; what they have not read yet is counted now, and not again with the next round.
  const std::uint64_t read_so_far = link->store().bytes_served(order.run);
  const std::uint64_t served_in_all = std::max(read_so_far, exchange.served_before() + exchange.bytes_to_serve());
  const std::uint64_t sent = served_in_all - std::min(open.told_served, served_in_all);
  open.told_served = std::max(open.told_served, served_in_all);
  ExchangeDone done{
      order.run, order.round, order.attempt, digest, sent, exchange.attempt().progress().bytes_received, meter.exchange / 1000.0};
  done.slowest = exchange.attempt().progress().slowest;
  if (const auto last = meter.arrivals.find(done.slowest); last != meter.arrivals.end()) {
    done.arrived_seconds = seconds(last->second.last - exchange.started());
  }
  say(std::move(done));
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

void SyncEngine::State::report_broken(RoundExchange& exchange, const IslandId& accused, Error error) {
  const BeginExchange& order = exchange.order();
  exchange.reported = true;
  say(ExchangeBroke{order.run, order.round, order.attempt, accused, std::move(error)});
}

void SyncEngine::State::settle_catching_up(TimePoint at) {
  for (auto& [id, open] : runs) {
    if (!open.catching_up || !open.catching_up->advance(at, *open.run)) {
      continue;
    }
    const std::unique_ptr<CatchUpWork> work = std::move(open.catching_up);
    if (work->failure()) {
      say(CatchUpBroke{id, *work->failure()});
    } else {
      note(id, SpanKind::catch_up, open.run->round(), 0, open.catch_up_since);
      say(CatchUpDone{id, open.run->round(), open.run->digest()});
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
  Transfer* reader = reader_of(piece.blob);
  if (reader == nullptr) {
    return;
  }
  reader->arrived(at, from, piece);
  if (piece.blob.kind == BlobKind::contribution || piece.blob.kind == BlobKind::reduced) {
    RoundMeter::Arrival& arrival = find(piece.blob.run)->meters[piece.blob.round].arrivals[from];
    arrival.last = at;
    arrival.bytes += piece.length;
  }
}

void SyncEngine::State::note(const RunId& run, SpanKind kind, Round round, std::uint32_t fragment, TimePoint start, std::uint64_t amount) {
  note(run, Span{kind, round, fragment, {}, start, now() - start, amount});
}

void SyncEngine::State::note_exchange(const RunId& run, const RoundExchange& exchange, const RoundMeter& meter) {
  if (!settings.spans) {
    return;
  }
  const BeginExchange& order = exchange.order();
  for (const auto& [peer, arrival] : meter.arrivals) {
    note(run,
         Span{SpanKind::receive, order.round, order.fragment, peer, exchange.started(), arrival.last - exchange.started(), arrival.bytes});
  }
  if (meter.reduce_start) {
    note(run, Span{SpanKind::reduce, order.round, order.fragment, {}, *meter.reduce_start, meter.reduce_end - *meter.reduce_start, 0});
  }
  if (const std::optional<BlobStore::Reading> read = link->store().read_of_round(run, order.round)) {
    note(run, Span{SpanKind::send, order.round, order.fragment, {}, read->first, read->last - read->first, read->bytes});
  }
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
