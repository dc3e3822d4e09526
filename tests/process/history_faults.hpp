// What happens to a coordinator and three islands while clients ask: processes that die or stop, links, clocks and disks that fail, a store
// that is put back to an older one, an island that is drained, or revoked and enrolled anew. Nothing happens to the first island, `a`:
// somebody has the newest state.
//
// Faults of links need networks of their own, a full disk needs a mount: both need root, and are left out where they cannot be had.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/process/bridge.hpp"
#include "tests/process/cluster.hpp"
#include "tests/process/faulty_libc.hpp"
#include "tests/process/history.hpp"
#include "tests/process/small_disk.hpp"
#include "transport/base/rng.hpp"

namespace atl_test {

class Trouble {
 public:
  // Makes the cluster, with its islands. `now`: seconds since the history's begin. `environment`: of every process. `only`: the faults
  // that there are, by their names; empty: all.
  Trouble(std::uint64_t seed, std::function<double()> now, std::map<std::string, std::string> environment, std::set<std::string> only = {});

  // The names of half of the faults, the first or the second one of each two: of the store's two copies one is in each half.
  static std::set<std::string> every_second(std::uint64_t which);

  [[nodiscard]] Cluster& cluster() { return *cluster_; }
  // One fault, of some seconds at most; afterwards it is mended, or lasts if it can be lived with. `before_restore` is called before a
  // store is put back.
  void strike(const std::function<void()>& before_restore);
  // Everything is as it should be, but for clocks.
  void mend();
  [[nodiscard]] const std::vector<Restore>& restores() const { return restores_; }
  // What happened, in order.
  [[nodiscard]] const std::string& told() const { return told_; }
  [[nodiscard]] const std::set<std::string>& kinds() const { return kinds_; }

 private:
  using Fault = void (Trouble::*)();
  enum class Needs { nothing, links, disk, no_copy };  // networks of its own, a disk of its own, no copy of the store kept already
  struct Named {
    const char* name;
    Fault fault;
    Needs needs;
  };
  static const std::array<Named, 14> kFaults;
  void start(const std::string& island);
  void stop_for_a_while(const Process& process);
  void with_link(void (*fault)(int), void (*repair)(int));
  FaultyLibc& of(const std::string& process);
  [[nodiscard]] std::map<std::string, std::string> environment_of(const std::string& process) const;
  void wait_a_while(int most_milliseconds);
  std::string some_island();
  std::string some_process();

  void kill_coordinator();
  void stop_coordinator();
  void kill_island();
  void stop_island();
  void cut_link();
  void deafen_island();
  void lower_mtu();
  void set_clock();
  void fill_disk();
  void slow_disk();
  void copy_store();
  void back_store_up();
  void put_store_back();
  void make_newest();
  void drain_island();
  void revoke_island();

  atl::Rng rng_;
  std::function<double()> now_;
  std::map<std::string, std::string> environment_;
  std::set<std::string> only_;
  Bridge bridge_{3};
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<SmallDisk> disk_;
  std::map<std::string, FaultyLibc*> libc_;
  std::function<void()> before_restore_;
  struct Kept {
    fs::path path;
    bool backup = false;
    double copied = 0;
  };
  std::optional<Kept> kept_;
  std::vector<Restore> restores_;
  std::set<std::string> kinds_;
  std::string told_;
};

}  // namespace atl_test
