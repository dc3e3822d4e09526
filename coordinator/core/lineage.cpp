#include "coordinator/core/lineage.hpp"

#include <algorithm>

#include "transport/base/planted.hpp"

namespace atl::coordinator {
namespace {

// How many committed rounds a run remembers in which way.
constexpr std::size_t kPlainDigests = 64;
constexpr std::size_t kCheckpointDigests = 1024;
constexpr std::size_t kRecent = 16;
constexpr std::size_t kKnownFiles = 16;

}  // namespace

void Lineage::recover(const RunRecord& record) {
  number_ = record.lineage;
  recovered_ = decided_ = record.epoch;
  decided_by_ = record.decided;
  initialised_ = record.initialised;
  restored_ = record.restored;
  tokens_ = record.tokens;
  committed_ = record.committed;
  digest_ = record.digest;
}

void Lineage::write_to(RunRecord& record) const {
  record.lineage = number_;
  record.decided = decided_by_;
  record.initialised = initialised_;
  record.restored = restored_;
  record.tokens = tokens_;
  record.committed = committed_;
  record.digest = digest_;
}

void Lineage::recover_data(Round round, std::vector<DataRange> parts, std::uint64_t tokens) {
  if (const auto past = past_.find(round); past != past_.end()) {
    past->second.parts = std::move(parts);
    past->second.tokens = tokens;
  }
}

void Lineage::commit(Committed committed) {
  initialised_ = true;
  trust_ledger();
  committed_ = committed.round;
  digest_ = committed.digest;
  remember(std::move(committed));
  past_.at(committed_).tokens = tokens_;
}

void Lineage::remember(Committed committed) {
  const Round round = committed.round;
  past_[round] = Past{committed.digest, committed.parts};
  if (committed.checkpoint) {
    checkpoints_.insert(round);
  }
  recent_.push_back(std::move(committed));
  if (recent_.size() > kRecent) {
    recent_.pop_front();
  }
  while (checkpoints_.size() > kCheckpointDigests) {
    checkpoints_.erase(checkpoints_.begin());
  }
  if (round.value >= kPlainDigests) {
    const Round old(round.value - kPlainDigests);
    if (!checkpoints_.contains(old)) {
      past_.erase(old);
    }
  }
  if (checkpoints_.size() == kCheckpointDigests) {
    past_.erase(past_.begin(), past_.lower_bound(std::min(*checkpoints_.begin(), round)));
  }
}

std::vector<DataRange> Lineage::roll_back(Round round) {
  const std::vector<DataRange> parts = past_.at(round).parts.value_or(std::vector<DataRange>{});
  number_ += ATOLL_PLANTED(commits_again) ? 0 : 1;
  committed_ = round;
  digest_ = past_.at(round).digest;
  tokens_ = past_.at(round).tokens.value_or(tokens_);
  past_.erase(past_.upper_bound(round), past_.end());
  checkpoints_.erase(checkpoints_.upper_bound(round), checkpoints_.end());
  files_.erase(files_.upper_bound(round), files_.end());
  while (!recent_.empty() && recent_.back().round > round) {
    recent_.pop_back();
  }
  return parts;
}

void Lineage::start_over() {
  Lineage next;
  next.number_ = number_ + 1;
  next.recovered_ = recovered_;
  next.decided_ = decided_;
  next.decided_by_ = decided_by_;
  next.restored_ = restored_;
  next.tokens_ = tokens_;
  *this = std::move(next);
}

void Lineage::adopt(const KnownRound& round, std::vector<DataRange> parts) {
  trust_ledger();
  number_ += 1;
  committed_ = round.round;
  digest_ = round.digest;
  remember(Committed{round.round, Attempt(0), round.digest, true, {}, {}, std::move(parts)});
}

bool Lineage::tell_file(Round round, const IslandId& island, const Digest& file) {
  const bool first = files_[round].insert_or_assign(island, file).second;
  while (files_.size() > kKnownFiles) {
    files_.erase(files_.begin());
  }
  return first;
}

Lineage::OtherFiles Lineage::other_files(Round round, const std::vector<IslandId>& members) const {
  const auto told = files_.find(round);
  std::vector<std::pair<IslandId, Digest>> files;
  for (const IslandId& id : told == files_.end() ? std::vector<IslandId>() : members) {
    if (const auto file = told->second.find(id); file != told->second.end()) {
      files.emplace_back(*file);
    }
  }
  OtherFiles others;
  if (files.empty()) {
    return others;
  }
  const auto of_most = std::ranges::find_if(files, [&](const auto& one) {
    return static_cast<std::size_t>(std::ranges::count(files, one.second, &std::pair<IslandId, Digest>::second)) * 2 > members.size();
  });
  others.known = of_most != files.end();
  const Digest& usual = others.known ? of_most->second : files.front().second;
  for (const auto& [id, file] : files) {
    if (file != usual) {
      others.islands.push_back(id);
    }
  }
  return others;
}

std::optional<Digest> Lineage::digest_of(Round round) const {
  const auto past = past_.find(round);
  return past == past_.end() ? std::nullopt : std::optional<Digest>(past->second.digest);
}

bool Lineage::confirms(Round round, const Digest& digest) const {
  const auto past = past_.find(round);
  return past != past_.end() && past->second.digest == digest;
}

std::optional<std::uint64_t> Lineage::tokens_after(Round round) const {
  const auto past = past_.find(round);
  return past == past_.end() ? std::nullopt : past->second.tokens;
}

const std::vector<DataRange>* Lineage::parts_after(Round round) const {
  const auto past = past_.find(round);
  return past == past_.end() || !past->second.parts || round == committed_ ? nullptr : &*past->second.parts;
}

const Committed* Lineage::recent(Round round) const {
  const auto found = std::ranges::find(recent_, round, &Committed::round);
  return found == recent_.end() ? nullptr : &*found;
}

bool Lineage::on_history(const Digest& digest) const { return std::ranges::find(recent_, digest, &Committed::digest) != recent_.end(); }

std::vector<RoundTimes> Lineage::times_until(Round round) const {
  std::vector<RoundTimes> times;
  for (auto past = recent_.rbegin(); past != recent_.rend(); ++past) {
    if (past->times && past->round.value + times.size() == round.value) {
      times.push_back(*past->times);
    }
  }
  return times;
}

bool Lineage::lost_before(const HeldCheckpoint& checkpoint) const {
  const bool beside = checkpoint.round > committed_ && superseded(checkpoint.generation);
  return beside || (number_ > 0 && checkpoint.epoch > Epoch(0) && checkpoint.epoch < recovered_);
}

bool Lineage::verified(const IslandId& island, const HeldRun& held) const {
  if (!held.live || !initialised_) {
    return false;
  }
  if (held.committed == committed_) {
    return held.digest == digest_;
  }
  return held.committed.next() == committed_ && confirms(held.committed, held.digest) && !recent_.empty() &&
         std::ranges::find(recent_.back().members, island) != recent_.back().members.end();
}

}  // namespace atl::coordinator
