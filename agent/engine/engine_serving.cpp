// What the sync engine serves, and to whom: checkpoints, and results for joiners.
#include <algorithm>

#include "agent/engine/sync_engine_state.hpp"
#include "transport/base/log.hpp"
#include "transport/identity/identity.hpp"

namespace atl::agent {

std::optional<std::set<IslandId>> SyncEngine::State::first_partners(const OpenedRun& open, const Audience& audience) const {
  const Composition& parts = open.run->composition();
  switch (parts.group) {
    case Group::all:
      return partners_among(parts.aggregator, audience.members, {});
    case Group::pairs:
    case Group::nobody:
      if (audience.members.size() > settings.one_level_members) {
        return std::set<IslandId>(audience.met.begin(), audience.met.end());
      }
      return std::nullopt;
    case Group::expert:
      return std::nullopt;
  }
  return std::nullopt;
}

// Of many members it dials those of whom it takes rounds, and the last ones of whom it did: they may still read what it had for them.
void SyncEngine::State::meet(const RunId& run, const std::vector<IslandId>& group) {
  const auto found = audiences.find(run);
  if (found == audiences.end() || !found->second.partners) {
    return;
  }
  Audience& audience = found->second;
  for (const IslandId& island : group) {
    if (island != settings.self) {
      std::erase(audience.met, island);
      audience.met.push_back(island);
    }
  }
  const std::size_t kept = settings.one_level_members + group.size();
  if (audience.met.size() > kept) {
    audience.met.erase(audience.met.begin(), audience.met.end() - static_cast<std::ptrdiff_t>(kept));
  }
  std::set<IslandId> partners(audience.met.begin(), audience.met.end());
  if (partners != audience.partners) {
    audience.partners = std::move(partners);
    set_peers();
  }
}

std::optional<std::set<IslandId>> SyncEngine::State::partners_among(Aggregator aggregator, const std::vector<Member>& members,
                                                                    std::span<const std::uint8_t> shares) const {
  if (!sums_by_groups(aggregator)) {
    return std::nullopt;
  }
  const std::optional<ExchangeGrid> grid = cut_grid(members.size(), shares, settings.one_level_members);
  if (!grid) {
    return std::nullopt;
  }
  std::set<IslandId> partners;
  const auto self = std::ranges::find(members, settings.self, &Member::island);
  if (self != members.end()) {
    for (const std::size_t place : peers_in(*grid, static_cast<std::size_t>(self - members.begin()))) {
      partners.insert(members[place].island);
    }
  }
  return partners;
}

// The newest address that was told of an island holds for all runs: a list of members may be older than what a joiner's Serve says.
void SyncEngine::State::adopt_address(const IslandId& island, const std::string& before, const std::string& told) {
  if (!told.empty() && told != before) {
    addresses[island] = told;
  }
}

void SyncEngine::State::adopt_addresses(const std::vector<Member>& before, const std::vector<Member>& told) {
  for (const Member& member : told) {
    const auto known = std::ranges::find(before, member.island, &Member::island);
    adopt_address(member.island, known == before.end() ? "" : known->bulk_address, member.bulk_address);
  }
}

void SyncEngine::State::set_peers() {
  std::map<IslandId, Member> all;
  std::map<IslandId, RunId> tried;
  const auto admit = [&](Member member, bool dialled) {
    const auto known = addresses.find(member.island);
    const std::string address = dialled && known != addresses.end() ? known->second : "";
    member.bulk_address.clear();
    Member& peer = all.try_emplace(member.island, std::move(member)).first->second;
    peer.bulk_address = peer.bulk_address.empty() ? address : peer.bulk_address;
  };
  for (const auto& [run, audience] : audiences) {
    for (const Member& member : audience.members) {
      const bool talks = audience.talks_to(member.island);
      if (talks) {
        tried.try_emplace(member.island, run);
      }
      admit(member, talks && !member.bulk_address.empty());
    }
    for (const Reader& reader : audience.readers) {
      const IslandId island = island_of(reader.key);
      if (audience.talks_to(island)) {
        tried.try_emplace(island, run);
      }
      admit(Member{island, "", reader.key, ""}, !reader.bulk_address.empty());
    }
  }
  for (const Member& member : neighbours) {
    tried.try_emplace(member.island);
    admit(member, !member.bulk_address.empty());
  }
  if (settings.probe_paths) {
    tried.erase(settings.self);
    probes.set_peers(tried, now());
    std::set<IslandId> peers;
    std::ranges::transform(tried, std::inserter(peers, peers.end()), [](const auto& peer) { return peer.first; });
    watch.keep_only(peers);
  }
  std::vector<Member> peers;
  std::set<IslandId> seen;
  for (auto& [island, member] : all) {
    seen.insert(island);
    peers.push_back(std::move(member));
  }
  std::erase_if(addresses, [&](const auto& known) { return !seen.contains(known.first); });
  wants.paths->keep_only(seen);
  if (const Status set = link->set_peers(peers); !set) {
    log_warning("not every peer can be admitted to the bulk link: " + set.error().why);
  }
}

void SyncEngine::State::way_changed(const IslandId& peer, const std::optional<Way>& way) {
  if (way) {
    ways.insert_or_assign(peer, *way);
  } else {
    ways.erase(peer);
  }
  WaysChanged changed;
  for (const auto& [island, chosen] : ways) {
    if (changed.ways.peers.size() < kMaxListItems) {
      changed.ways.peers.push_back({island, chosen});
    }
  }
  answers.emplace_back(std::move(changed));
}

void SyncEngine::State::carry_out(const SetUplink& order) {
  owners_uplink = order.bits_per_second;
  set_uplink();
}

// The tightest budget of the owner's and those of the runs that are open.
void SyncEngine::State::set_uplink() {
  double tightest = owners_uplink;
  for (const auto& [id, open] : runs) {
    if (open.uplink_bits_per_second > 0 && (tightest == 0 || open.uplink_bits_per_second < tightest)) {
      tightest = open.uplink_bits_per_second;
    }
  }
  link->set_uplink(tightest);
}

void SyncEngine::State::serve_checkpoints(const RunId& run, const std::vector<CheckpointMeta>& stored, const DiskPath& folder) {
  const auto blob_of = [&](Round round) {
    BlobId blob;
    blob.run = run;
    blob.round = round;
    blob.kind = BlobKind::checkpoint_file;
    return blob;
  };
  std::set<Round> now_served;
  for (const CheckpointMeta& meta : stored) {
    const Status put = link->store().put_file(blob_of(meta.round), folder / std::to_string(meta.round.value) / kOuterFile);
    if (put) {
      now_served.insert(meta.round);
    } else {
      log_warning("run " + run.text + ": the checkpoint of " + round_text(meta.round) + " cannot be served: " + put.error().why);
    }
  }
  for (const Round round : served[run]) {
    if (!now_served.contains(round)) {
      link->store().withdraw(blob_of(round));
    }
  }
  served[run] = std::move(now_served);
}

// Forgets what the store knows of the run's rounds (which it refuses once they are over) and serves its checkpoints.
void SyncEngine::State::serve_anew(const RunId& run, const std::vector<CheckpointMeta>& stored, const DiskPath& folder) {
  link->store().forget(run);
  served.erase(run);
  if (const auto audience = audiences.find(run); audience != audiences.end()) {
    carry_out(AllowPeers{run, {}, std::vector(audience->second.members), std::vector(audience->second.readers)});
  }
  serve_checkpoints(run, stored, folder);
}

// The outer state is about to become another round's: exchanges end, and rounds may come again.
void SyncEngine::State::start_over(OpenedRun& open) {
  complete_checkpoints(open);
  open.exchanges.clear();
  open.pairs.clear();
  open.run->forget_rounds();
  open.not_begun.clear();
  open.catching_up.reset();
  drop_results(open, 0);
  open.told_served = 0;
  serve_anew(open.run->id(), open.run->checkpoints().list(), open.run->checkpoints().folder());
}

void SyncEngine::State::keep_result(OpenedRun& open, const RoundResult& result) {
  if (const Status kept = store_result(open, result); !kept) {
    log_warning("run " + open.run->id().text + ": the result of " + round_text(result.round) +
                " cannot be kept for joiners: " + kept.error().why);
  }
  link->store().expect_results_after(open.run->id(), result.round);  // who asked for it too early is answered
  drop_results(open, settings.kept_results_bytes);
}

DiskPath SyncEngine::State::kept_results(const OpenedRun& open) { return open.run->folder() / "results"; }

Status SyncEngine::State::store_result(OpenedRun& open, const RoundResult& result) {
  ATOLL_TRY(kept_results(open).make_folders());
  const DiskPath path = kept_results(open) / std::to_string(result.round.value);
  ATOLL_TRY(write_result_for_now(path, result));
  BlobId blob;
  blob.run = open.run->id();
  blob.round = result.round;
  blob.kind = BlobKind::result;
  ATOLL_TRY(link->store().put_file(blob, path));
  std::uint64_t bytes = header_of(result).size();
  for (const EncodedTerm& term : result.terms) {
    bytes += term.bytes.size();
  }
  open.kept.emplace_back(result.round, bytes);
  open.kept_bytes += bytes;
  return {};
}

void SyncEngine::State::drop_results(OpenedRun& open, std::uint64_t down_to_bytes) {
  while (!open.kept.empty() && open.kept_bytes > down_to_bytes) {
    const auto [round, bytes] = open.kept.front();
    open.kept.pop_front();
    open.kept_bytes -= bytes;
    link->store().withdraw_results_up_to(open.run->id(), round);
    if (const Status removed = (kept_results(open) / std::to_string(round.value)).remove(); !removed) {
      log_warning(removed.error().why);
    }
  }
}

}  // namespace atl::agent
