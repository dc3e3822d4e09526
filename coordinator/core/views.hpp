// What people see of runs and islands.
// Threads: owned by one Core.
#pragma once

#include <string>

#include "coordinator/core/services.hpp"
#include "coordinator/core/view.hpp"

namespace atl::coordinator {

class Views : protected Services {
 public:
  explicit Views(Core::State& core) : Services(core) {}

  [[nodiscard]] RunView view_of(const Run& run) const;
  // For whom an island waited.
  [[nodiscard]] std::string text_of(const WaitKey& key) const;

 private:
  [[nodiscard]] MembershipView membership_view(const Run& run, const IslandId& id, const Membership& membership) const;
};

}  // namespace atl::coordinator
