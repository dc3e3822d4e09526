#include "coordinator/core/rules/rule.hpp"

#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {

std::uint32_t Rule::part_for(Run& run, const IslandId& island, std::optional<std::uint32_t> had) {
  return run.data.part_of(island, had, out_);
}

bool Rule::remembers(const Run& run, const HeldRun& held) const { return run.lineage.remembers(held); }

void Rule::compare_held(Run& run, Membership& membership, const HeldRun* held) {
  membership.entry.is_ahead(core_.is_ahead(run, held));
  if (run.lineage.number() > 0 && !run.lineage.restored()) {
    core_.follow_epoch(run, membership.record.island, held);
  }
  core_.follow_position(run, membership, held);
}

std::string Rule::pauses_after(const Run& run) const { return stops_after(*run.life.pauses_after(), !run.life.enough().empty()); }

bool Rule::lacks_members(const Run& run) const {
  return run.lineage.initialised() && run.members.size() < run.spec.islands.min && (!run.at_end() || run.members.empty());
}

bool Rule::is_done(const Run& run, const RunEnded& message) const { return run.at_end() && message.digest == run.lineage.digest(); }

Round Rule::furthest_known(const Run& run) const { return run.lineage.committed(); }

bool Rule::exports(const Run& run, const HeldCheckpoint& held, bool /*alone*/) const {
  return run.lineage.confirms(held.round, held.digest);
}

Result<std::vector<TaskResult>> Rule::serve_results(const Run& run, const std::string& /*reader_key*/) {
  return Error{Code::invalid_argument, "run " + run.about.name + " has no ensemble; `atoll export` writes its model"};
}

StartFrom Rule::recovered_start(MembershipState state) const {
  return state == MembershipState::starting ? StartFrom::scratch : StartFrom::peers;
}

}  // namespace atl::coordinator
