// A core that is constructed from the ledger's records goes on where the old one was.
// Threads: owned by one Core.
#pragma once

#include <vector>

#include "coordinator/core/services.hpp"

namespace atl::coordinator {

class Recovery : protected Services {
 public:
  explicit Recovery(Core::State& core) : Services(core) {}

  void recover(Recovered recovered);

 private:
  void recover_run(const RunRecord& value);
  void recover_memberships(Recovered& recovered);
  void recover_round(const RoundRecord& value);
  static void recover_data(Run& run, const std::vector<RoundRecord>& rounds);
  void settle_recovered(Run& run);
};

}  // namespace atl::coordinator
