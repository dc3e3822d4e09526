// How a round that the coordinator plans closes: with the contributions of all, or with a quorum of them. The path of a round
// (round_path.cpp) asks what follows from it; nothing else does.
//
// To add a way to close: a class of its own beside these, and its line in rules.cpp.
// Threads: owned by one Core.
#pragma once

#include <optional>
#include <vector>

#include "coordinator/core/services.hpp"

namespace atl::coordinator {

// All members contribute, or say that they have nothing; nobody is late.
class Closing : protected Services {
 public:
  explicit Closing(Core::State& core) : Services(core) {}
  virtual ~Closing() = default;
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;

  // ---- what an island says
  // Beyond the newest committed round a contribution may be for so many.
  [[nodiscard]] virtual std::uint64_t rounds_ahead() const;
  // Its data are counted already, with a contribution that its island made later.
  [[nodiscard]] virtual bool is_counted(const Run&, const DataRange&) const { return false; }
  // What a contribution that does not count has counted.
  [[nodiscard]] virtual DataRange withdrawn_data(const DataRange& data) const { return data; }
  // A contribution comes to this round.
  virtual void before_contribution(Run&, const IslandId&, Round, std::uint32_t /*fragment*/) {}
  // An exchange failed by the island's own fault.
  virtual void on_own_fault(OpenRound&, const IslandId&) {}

  // ---- whether the round closes
  // False: what its contributions are formed against is not there yet.
  virtual bool may_close(Run&, Round) { return true; }
  // So many answers close it, of so many members.
  [[nodiscard]] virtual std::size_t needed(const Run& run) const { return run.members.size(); }
  virtual void describe(Run&, const OpenRound&, RoundInput&) const {}
  // Of these the round is made.
  virtual void before_plan(Run&, Round, const std::vector<IslandId>& /*participants*/) {}

  // ---- what counts
  // A contribution is ready to be exchanged.
  [[nodiscard]] virtual Answer answer_in(const Run&, const OpenRound& round, const IslandId& island) const {
    return round.answer_of(island);
  }
  // Its contribution to this round missed earlier ones.
  [[nodiscard]] virtual bool late(const Run&, const OpenRound&, const IslandId&) const { return false; }
  // Rounds of its fragment that a contribution missed, as far as that can be so; those of which it has the movement in it.
  [[nodiscard]] virtual std::uint32_t missed_by(const Run&, const Contribution& contribution) const;
  [[nodiscard]] virtual std::uint32_t spanned_by(const Run&, const Contribution&) const { return 0; }
  // A contribution holds as many steps as a round has, at most.
  [[nodiscard]] virtual bool bounds_steps() const { return true; }
  // An exchange needs the norms of all contributions.
  [[nodiscard]] virtual bool needs_norms() const { return false; }

  // ---- committed
  // The samples that are counted with this contribution.
  [[nodiscard]] virtual DataRange counted_by(const Run&, const ContributionFacts& facts) const { return facts.data; }
  // A round of this fragment is committed, now or by the ledger.
  virtual void on_committed(Run&, Round, std::uint32_t /*fragment*/) {}
};

// The round closes with a quorum, after a grace time for the others; whoever is late contributes to a later one (Decoupled DiLoCo).
class QuorumClosing : public Closing {
 public:
  using Closing::Closing;
  [[nodiscard]] std::uint64_t rounds_ahead() const override;
  [[nodiscard]] bool is_counted(const Run& run, const DataRange& data) const override;
  [[nodiscard]] DataRange withdrawn_data(const DataRange& data) const override;
  void before_contribution(Run& run, const IslandId& island, Round round, std::uint32_t fragment) override;
  void on_own_fault(OpenRound& round, const IslandId& island) override;
  bool may_close(Run& run, Round number) override;
  [[nodiscard]] std::size_t needed(const Run& run) const override;
  void describe(Run& run, const OpenRound& round, RoundInput& input) const override;
  void before_plan(Run& run, Round number, const std::vector<IslandId>& participants) override;
  [[nodiscard]] Answer answer_in(const Run& run, const OpenRound& round, const IslandId& island) const override;
  [[nodiscard]] bool late(const Run& run, const OpenRound& round, const IslandId& island) const override;
  [[nodiscard]] std::uint32_t missed_by(const Run& run, const Contribution& contribution) const override;
  [[nodiscard]] std::uint32_t spanned_by(const Run& run, const Contribution& contribution) const override;
  [[nodiscard]] bool bounds_steps() const override { return false; }
  [[nodiscard]] bool needs_norms() const override { return true; }
  [[nodiscard]] DataRange counted_by(const Run& run, const ContributionFacts& facts) const override;
  void on_committed(Run& run, Round round, std::uint32_t fragment) override;

 private:
  [[nodiscard]] std::optional<Duration> step_of(const Run& run, const IslandId& id) const;
  [[nodiscard]] Duration grace_in(const Run& run, const OpenRound& round) const;
  void tell_of_grace(Run& run);
};

// The quorum is of contributions of any age: none is late (FedBuff).
class BufferClosing final : public QuorumClosing {
 public:
  using QuorumClosing::QuorumClosing;
  [[nodiscard]] bool late(const Run&, const OpenRound&, const IslandId&) const override { return false; }
};

}  // namespace atl::coordinator
