// Catching up: from whatever this island has to the outer state of a committed round, with its peers' help.
//
// If its own state is on the run's history, the results of the rounds it missed are enough; else a peer's checkpoint and the results after
// it. What is fetched lies in FOLDER and stays there until it is used, so that an interrupted or repeated order goes on where it was.
// Nothing is applied before everything is there and leads to the digest that the coordinator named; then it is applied without a pause.
// Sans-I/O towards the network: the owner passes what its bulk link received, sends the wants, and asks `advance`.
// Threads: one.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/effect.hpp"
#include "agent/engine/island_run.hpp"
#include "transport/base/disk.hpp"
#include "transport/bulk/blob_fetch.hpp"

namespace atl {

class CatchUpWork {
 public:
  // `folder` is kept between orders. Errors: io.
  static Result<std::unique_ptr<CatchUpWork>> begin(agent::CatchUpFromPeers order, const IslandRun& run, DiskPath folder, TimePoint now,
                                                    const WantSettings& wants);

  // The fetch under way, for the link's switchboard; null between two.
  [[nodiscard]] BlobFetch* fetch() { return fetch_.get(); }
  // Moves on: takes a finished fetch, starts the next, at last verifies and applies. True once it is over: `run` is then at
  // order().committed, or `failure` says why not.
  bool advance(TimePoint now, IslandRun& run);
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }
  [[nodiscard]] const CatchUp& order() const { return order_.order; }

 private:
  CatchUpWork(agent::CatchUpFromPeers order, DiskPath folder, const WantSettings& wants)
      : order_(std::move(order)), folder_(std::move(folder)) {
    fetching_.wants = wants;
  }
  void plan_results(Round after);
  Status start_next(TimePoint now, const IslandRun& run);
  Status finish(IslandRun& run);
  Status verify_results(Digest digest) const;
  Status apply_results(IslandRun& run) const;
  [[nodiscard]] DiskPath checkpoint_path() const;
  [[nodiscard]] DiskPath result_path(Round round) const;
  bool fall_back(const Error& why, const IslandRun& run);

  agent::CatchUpFromPeers order_;
  DiskPath folder_;
  BlobFetch::Settings fetching_;
  bool from_checkpoint_ = false;
  bool checkpoint_verified_ = false;  // as it was fetched, by this order
  std::deque<BlobFetchPlan> to_fetch_;
  std::vector<Round> results_;  // to apply, in order
  std::unique_ptr<BlobFetch> fetch_;
  std::optional<Error> failure_;
};

}  // namespace atl
