#include "agent/engine/catch_up.hpp"

#include <algorithm>
#include <utility>

#include "transport/base/bytes.hpp"
#include "transport/base/log.hpp"
#include "transport/base/planted.hpp"
#include "transport/identity/sha256.hpp"

namespace atl {
namespace {

// More results than this are not worth fetching one by one: the next checkpoint will be nearer.
constexpr std::uint64_t kMostResults = 10'000;

std::vector<IslandId> ids_of(const std::vector<Member>& members) {
  std::vector<IslandId> ids(members.size());
  std::ranges::transform(members, ids.begin(), &Member::island);
  return ids;
}

std::map<IslandId, std::string> names_of(const std::vector<Member>& members) {
  std::map<IslandId, std::string> names;
  for (const Member& member : members) {
    names[member.island] = member.name;
  }
  return names;
}

void clear_folder(const DiskPath& folder) {
  if (const Status removed = folder.remove(); !removed) {
    log_warning(removed.error().why);
  }
}

}  // namespace

DiskPath CatchUpWork::checkpoint_path() const {
  return folder_ /
         (std::to_string(order_.order.checkpoint_round.value) + "-" + to_hex(order_.order.checkpoint_file).substr(0, 16) + ".safetensors");
}

DiskPath CatchUpWork::result_path(Round round) const { return folder_ / (std::to_string(round.value) + ".result"); }

Result<std::unique_ptr<CatchUpWork>> CatchUpWork::begin(agent::CatchUpFromPeers order, const IslandRun& run, DiskPath folder, TimePoint now,
                                                        const WantSettings& wants) {
  ATOLL_TRY(folder.make_folders());
  std::unique_ptr<CatchUpWork> work(new CatchUpWork(std::move(order), std::move(folder), wants));
  const agent::CatchUpFromPeers& asked = work->order_;
  const bool own = asked.has_state && run.has_state() && run.round() == asked.own_round && asked.own_round <= asked.order.committed;
  const bool few = asked.order.committed.value - asked.own_round.value <= kMostResults;
  if (own && few && run.composition().payload != PayloadKind::gradient) {
    work->plan_results(asked.own_round);
  } else {
    ATOLL_TRY(work->fall_back({Code::not_found, "no own state on the run's history"}, run) ? Status() : Status(*work->failure_));
  }
  ATOLL_TRY(work->start_next(now, run));
  return work;
}

void CatchUpWork::plan_results(Round after) {
  results_.clear();
  for (Round round = after.next(); round <= order_.order.committed; round = round.next()) {
    results_.push_back(round);
    if (result_path(round).exists()) {
      continue;
    }
    BlobFetchPlan plan;
    plan.blob.run = order_.order.run;
    plan.blob.round = round;
    plan.blob.kind = BlobKind::result;
    plan.path = result_path(round);
    plan.durable = false;
    plan.sources = ids_of(order_.order.sources);
    plan.names = names_of(order_.order.sources);
    to_fetch_.push_back(std::move(plan));
  }
}

// The other way: a peer's checkpoint, and the results after it. False if that was it already.
bool CatchUpWork::fall_back(const Error& why, const IslandRun& run) {
  if (from_checkpoint_) {
    failure_ = why;
    return false;
  }
  from_checkpoint_ = true;
  to_fetch_.clear();
  results_.clear();
  const CatchUp& order = order_.order;
  if (run.composition().payload == PayloadKind::gradient && order.committed != order.checkpoint_round) {
    failure_ = Error{Code::unavailable,
                     "the results of rounds of a run that exchanges gradients cannot be applied without its optimiser; waiting for a "
                     "checkpoint of round " +
                         std::to_string(order.committed.value)};
    return false;
  }
  if (order.committed < order.checkpoint_round || order.committed.value - order.checkpoint_round.value > kMostResults) {
    failure_ = Error{Code::unavailable, "the offered checkpoint is of round " + std::to_string(order.checkpoint_round.value) +
                                            ", too far from round " + std::to_string(order.committed.value)};
    return false;
  }
  if (!checkpoint_path().exists()) {
    BlobFetchPlan plan;
    plan.blob.run = order.run;
    plan.blob.round = order.checkpoint_round;
    plan.blob.kind = BlobKind::checkpoint_file;
    plan.size = order.checkpoint_bytes;
    plan.digest = order.checkpoint_file;
    plan.path = checkpoint_path();
    plan.durable = false;
    plan.sources = ids_of(order.sources);
    plan.names = names_of(order.sources);
    to_fetch_.push_back(std::move(plan));
  }
  plan_results(order.checkpoint_round);
  return true;
}

Status CatchUpWork::start_next(TimePoint now, const IslandRun& run) {
  if (to_fetch_.empty()) {
    return {};
  }
  BlobFetchPlan plan = std::move(to_fetch_.front());
  to_fetch_.pop_front();
  const std::string what = "run " + run.id().text + ": fetching the " + describe(plan.blob) + " from " +
                           std::to_string(plan.sources.size()) + (plan.sources.size() == 1 ? " island" : " islands");
  plan.blob.kind == BlobKind::checkpoint_file ? log_info(what) : log_debug(what);  // of results there may be thousands
  ATOLL_ASSIGN(fetch_, BlobFetch::begin(std::move(plan), now, fetching_));
  return {};
}

bool CatchUpWork::advance(TimePoint now, IslandRun& run) {
  if (failure_) {
    return true;
  }
  if (fetch_) {
    if (fetch_->failure()) {
      const Error why = *fetch_->failure();
      fetch_.reset();
      if (!fall_back(why, run)) {
        return true;
      }
    } else if (!fetch_->done()) {
      return false;
    } else if (fetch_->blob().kind == BlobKind::checkpoint_file) {
      checkpoint_verified_ = true;
      const BlobFetchProgress progress = fetch_->progress(now);
      log_info("run " + run.id().text + ": fetched " + human_bytes(progress.bytes_done) + ", " +
               human_bytes(static_cast<std::uint64_t>(progress.bytes_per_second)) + "/s");
    }
    fetch_.reset();
  }
  if (!to_fetch_.empty()) {
    if (const Status started = start_next(now, run); !started) {
      failure_ = started.error();
    }
    return failure_.has_value();
  }
  const Status applied = finish(run);
  if (applied) {
    clear_folder(folder_);
    return true;
  }
  clear_folder(folder_);  // what was fetched does not fit together
  if (!fall_back(applied.error(), run)) {
    return true;
  }
  Status started = folder_.make_folders();
  if (started) {
    started = start_next(now, run);
  }
  if (!started) {
    failure_ = started.error();
  }
  return failure_.has_value();
}

Status CatchUpWork::verify_results(Digest digest) const {
  for (const Round round : results_) {
    ATOLL_ASSIGN(const StoredResult stored, StoredResult::open(result_path(round)));
    if (stored.result().round != round) {
      return Error{Code::corrupt, "the fetched result of round " + std::to_string(round.value) + " is another round's"};
    }
    digest = digest_after(digest, stored.result());
  }
  if (digest != order_.order.digest) {
    return Error{Code::corrupt, "the fetched results do not lead to the digest of round " + std::to_string(order_.order.committed.value)};
  }
  return {};
}

Status CatchUpWork::apply_results(IslandRun& run) const {
  for (const Round round : results_) {
    ATOLL_ASSIGN(const StoredResult stored, StoredResult::open(result_path(round)));
    ATOLL_TRY(run.apply(stored.result(), digest_after(run.digest(), stored.result())));
  }
  return {};
}

Status CatchUpWork::finish(IslandRun& run) {
  if (from_checkpoint_) {
    if (!checkpoint_verified_) {  // it was there before this order
      ATOLL_ASSIGN(const FileFacts found, facts_of(checkpoint_path()));
      if (found.sha256 != order_.order.checkpoint_file) {
        return Error{Code::corrupt, "the fetched checkpoint does not have the digest the coordinator named"};
      }
    }
    std::vector<std::string> islands;
    for (const Member& source : order_.order.sources) {
      islands.push_back(source.name);
    }
    ATOLL_TRY(run.load_outer(checkpoint_path(), islands));
    if (run.round() != order_.order.checkpoint_round) {
      return Error{Code::corrupt, "the fetched checkpoint is of round " + std::to_string(run.round().value)};
    }
  } else if (!run.has_state() || run.round() != order_.own_round) {
    return Error{Code::conflict, "the own state changed while catching up"};
  }
  if (!ATOLL_PLANTED(results_unverified)) {
    ATOLL_TRY(verify_results(run.digest()));
  }
  return apply_results(run);
}

}  // namespace atl
