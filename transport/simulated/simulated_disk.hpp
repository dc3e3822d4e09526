// A disk in memory that fails as disks do: it is full, it is slow, its power goes. For the simulator.
//
// What survives a loss of power is what POSIX promises and no more. Bytes of a file: those of its last sync; of what was written after it
// all, nothing, or a torn part. Names: what was made, renamed or removed in a folder is there for sure once that folder was synced; of what
// was not, any part may be there, in any order, but a rename is there wholly or not at all. A seed draws which.
// A process that dies without the power loses nothing.
// Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/disk.hpp"
#include "transport/base/rng.hpp"
#include "transport/base/time.hpp"

namespace atl {

class SimulatedDisk final : public Disk {
 public:
  SimulatedDisk();
  ~SimulatedDisk() override;

  // ---- faults
  // While it is full, no file grows and nothing is made.
  void set_full(bool full) { full_ = full; }
  // How long each call takes, and each sync beyond that; counted, not waited for.
  void set_delays(Duration call, Duration sync);
  [[nodiscard]] Duration take_time_spent();
  // After so many calls that change something every call fails, until the power comes back: for a crash in the middle.
  void set_power_until(std::uint64_t changes) { changes_left_ = changes; }
  // The power goes, and comes back.
  void lose_power(Rng& rng);
  // One bit of a file is another one from now on.
  void flip_bit(const Path& path, std::uint64_t bit);

  Result<std::unique_ptr<DiskFile>> open(const Path& path, OpenFor purpose) override;
  [[nodiscard]] Result<DiskEntry> look(const Path& path) const override;
  [[nodiscard]] Result<std::vector<DiskEntry>> list(const Path& folder) const override;
  Status make_folders(const Path& path) override;
  Status rename(const Path& from, const Path& to) override;
  Status exchange(const Path& a, const Path& b) override;
  Status remove(const Path& path) override;
  Status sync_folder(const Path& path) override;
  [[nodiscard]] std::string text_of(const Path& path) const override { return path.string(); }

  struct Node;

 private:
  friend class SimulatedFile;
  // A change of names that may not be durable yet: the name `at` in `folder` becomes `now`, and at once `other` that of `other_now`.
  struct Place {
    std::shared_ptr<Node> folder;
    std::string name;
  };
  struct Change {
    Place at;
    std::shared_ptr<Node> now;  // null: nothing any more
    std::optional<Place> other;
    std::shared_ptr<Node> other_now;
  };

  [[nodiscard]] std::shared_ptr<Node> find(const Path& path) const;
  // The folder of a path, and the path's last name. Errors: not_found; io for a path that leads out.
  [[nodiscard]] Result<Place> place_of(const Path& path) const;
  [[nodiscard]] Status spend(const Path& path, bool changes, bool sync = false) const;
  void make(Change change);
  static void keep(const Change& change);
  Status move(const Path& from, const Path& to, bool exchange);
  void remove_all(const Place& place);

  std::shared_ptr<Node> root_;
  std::vector<Change> pending_;  // in their order
  bool full_ = false;
  Duration per_call_{};
  Duration per_sync_{};
  mutable Duration spent_{};
  mutable std::optional<std::uint64_t> changes_left_;
};

}  // namespace atl
