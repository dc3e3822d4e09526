// Checkers: watch a cluster from outside. They see what was made durable, what islands formed, and what their outer states became; they
// know nothing of the cores' inside.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/record.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/ids.hpp"

namespace atl::sim {

using Vector = std::vector<float>;

// The digest of round r: that of the round before and the reduced result.
Digest chain_after(const Digest& before, const Vector& result);
// The digest of round 0.
Digest chain_of_initial(const Vector& parameters);
// Σ tokens·contribution / Σ tokens, in member order, in float32. Empty without any contribution.
Vector reduce(const std::vector<const Vector*>& contributions, const std::vector<std::uint64_t>& tokens);

class Checkers {
 public:
  // An island formed its contribution to a round, from the state whose digest is `base`.
  void contribution(const IslandId& island, Round round, const Digest& base, const Vector& values, std::uint64_t tokens);
  // An island's outer state is now this.
  void outer_state(const IslandId& island, Round round, const Digest& chain, const Vector& parameters, const Vector& momentum);
  // A committed result was applied to the state of the round before.
  void applied(const IslandId& island, Round before, Round round, const Digest& chain, bool alone);
  // A transaction of the ledger is durable.
  void durable(const std::vector<coordinator::Record>& records, bool alone);
  void fail(const std::string& what);

  [[nodiscard]] const std::string& failure() const { return failure_; }
  [[nodiscard]] std::size_t commits() const { return commits_; }
  [[nodiscard]] std::size_t rejected() const { return rejected_; }

 private:
  void check_commit(const coordinator::RoundRecord& record);

  struct Formed {
    Vector values;
    std::uint64_t tokens = 0;
  };
  std::map<std::tuple<IslandId, Round, Digest>, Formed> formed_;
  std::map<Digest, std::pair<Vector, Vector>> states_;
  std::map<std::tuple<RunId, std::uint32_t, Round>, Digest> committed_;  // by lineage
  std::set<Digest> committed_chains_;
  std::map<RunId, coordinator::RunRecord> runs_;
  std::size_t commits_ = 0;
  std::size_t rejected_ = 0;
  std::string failure_;
};

}  // namespace atl::sim
