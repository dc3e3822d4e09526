#include "transport/simulated/simulated_disk.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace atl {

struct SimulatedDisk::Node {
  bool folder = false;
  Bytes bytes;   // of a file
  Bytes synced;  // as of its last sync
  std::map<std::string, std::shared_ptr<Node>> entries;
  std::map<std::string, std::shared_ptr<Node>> synced_entries;
};

namespace {

using Node = SimulatedDisk::Node;

Error not_there(const Disk::Path& path) { return {Code::not_found, path.string() + ": no such file or directory"}; }
Error no_space(const Disk::Path& path) { return {Code::io, path.string() + ": no space left on device; free some space"}; }

// Of bytes that were written over others and not synced: none, all, or some from the beginning.
Bytes torn(const Bytes& synced, const Bytes& written, Rng& rng) {
  const std::uint64_t how = rng.below(3);
  if (how == 0 || synced == written) {
    return synced;
  }
  if (how == 1) {
    return written;
  }
  Bytes result = rng.chance(0.5) ? synced : Bytes(written.size());
  const auto cut = static_cast<std::ptrdiff_t>(rng.below(std::min(written.size(), result.size()) + 1));
  std::copy(written.begin(), written.begin() + cut, result.begin());
  return result;
}

void settle(Node& node, Rng& rng, std::set<const Node*>& seen) {
  if (!seen.insert(&node).second) {
    return;
  }
  if (!node.folder) {
    node.bytes = torn(node.synced, node.bytes, rng);
    node.synced = node.bytes;
  }
  node.entries = node.synced_entries;
  for (const auto& [name, child] : node.entries) {
    settle(*child, rng, seen);
  }
}

}  // namespace

class SimulatedFile final : public DiskFile {
 public:
  SimulatedFile(SimulatedDisk& disk, std::shared_ptr<Node> node, Disk::Path path)
      : disk_(disk), node_(std::move(node)), path_(std::move(path)) {}

  [[nodiscard]] Result<std::uint64_t> size() const override { return static_cast<std::uint64_t>(node_->bytes.size()); }
  [[nodiscard]] Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> into) const override {
    ATOLL_TRY(disk_.spend(path_, false));
    const Bytes& bytes = node_->bytes;
    const std::size_t at = static_cast<std::size_t>(std::min<std::uint64_t>(offset, bytes.size()));
    const std::size_t count = std::min(into.size(), bytes.size() - at);
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count, into.begin());
    return count;
  }
  Status write(std::uint64_t offset, ByteView bytes) override {
    ATOLL_TRY(disk_.spend(path_, true));
    const std::size_t end = static_cast<std::size_t>(offset) + bytes.size();
    if (end > node_->bytes.size()) {
      if (disk_.full_) {
        return no_space(path_);
      }
      node_->bytes.resize(end);
    }
    std::copy(bytes.begin(), bytes.end(), node_->bytes.begin() + static_cast<std::ptrdiff_t>(offset));
    return {};
  }
  Status resize(std::uint64_t bytes) override {
    ATOLL_TRY(disk_.spend(path_, true));
    if (disk_.full_ && bytes > node_->bytes.size()) {
      return no_space(path_);
    }
    node_->bytes.resize(static_cast<std::size_t>(bytes));
    return {};
  }
  Status sync() override {
    ATOLL_TRY(disk_.spend(path_, true, true));
    node_->synced = node_->bytes;
    return {};
  }
  [[nodiscard]] Result<MappedBytes> map() const override {
    ATOLL_TRY(disk_.spend(path_, false));
    const auto copy = std::make_shared<const Bytes>(node_->bytes);
    return MappedBytes{*copy, copy};
  }

 private:
  SimulatedDisk& disk_;
  std::shared_ptr<Node> node_;
  Disk::Path path_;
};

SimulatedDisk::SimulatedDisk() : root_(std::make_shared<Node>()) { root_->folder = true; }
SimulatedDisk::~SimulatedDisk() = default;

void SimulatedDisk::set_delays(Duration call, Duration sync) {
  per_call_ = call;
  per_sync_ = sync;
}

Duration SimulatedDisk::take_time_spent() { return std::exchange(spent_, Duration{}); }

Status SimulatedDisk::spend(const Path& path, bool changes, bool sync) const {
  spent_ += per_call_ + (sync ? per_sync_ : Duration{});
  if (changes_left_ && (*changes_left_ == 0 || (changes && (*changes_left_)-- == 0))) {
    changes_left_ = 0;
    return Error{Code::io, path.string() + ": the disk has no power"};
  }
  return {};
}

std::shared_ptr<Node> SimulatedDisk::find(const Path& path) const {
  std::shared_ptr<Node> node = root_;
  for (const Path& part : path) {
    if (part.empty() || part == ".") {
      continue;
    }
    const auto found = node->entries.find(part.string());
    if (found == node->entries.end()) {
      return nullptr;
    }
    node = found->second;
  }
  return node;
}

Result<SimulatedDisk::Place> SimulatedDisk::place_of(const Path& path) const {
  if (path.empty() || path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end()) {
    return Error{Code::io, path.string() + ": it leads out of the folder that it belongs to"};
  }
  std::shared_ptr<Node> folder = find(path.parent_path());
  if (!folder || !folder->folder) {
    return not_there(path);
  }
  return Place{std::move(folder), path.filename().string()};
}

// Changes the names of the present, and remembers that a loss of power may undo it.
void SimulatedDisk::make(Change change) {
  const auto set = [](const Place& place, const std::shared_ptr<Node>& node) {
    if (node) {
      place.folder->entries[place.name] = node;
    } else {
      place.folder->entries.erase(place.name);
    }
  };
  set(change.at, change.now);
  if (change.other) {
    set(*change.other, change.other_now);
  }
  pending_.push_back(std::move(change));
}

void SimulatedDisk::keep(const Change& change) {
  const auto set = [](const Place& place, const std::shared_ptr<Node>& node) {
    if (node) {
      place.folder->synced_entries[place.name] = node;
    } else {
      place.folder->synced_entries.erase(place.name);
    }
  };
  set(change.at, change.now);
  if (change.other) {
    set(*change.other, change.other_now);
  }
}

void SimulatedDisk::lose_power(Rng& rng) {
  // A journal keeps a beginning of the changes; another file system may keep any of them.
  const bool journal = rng.chance(0.5);
  const std::uint64_t beginning = rng.below(pending_.size() + 1);
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    if (journal ? i < beginning : rng.chance(0.5)) {
      keep(pending_[i]);
    }
  }
  pending_.clear();
  std::set<const Node*> seen;
  settle(*root_, rng, seen);
  changes_left_.reset();
}

void SimulatedDisk::flip_bit(const Path& path, std::uint64_t bit) {
  const std::shared_ptr<Node> node = find(path);
  if (node && !node->bytes.empty()) {
    std::byte& byte = node->bytes[static_cast<std::size_t>(bit / 8 % node->bytes.size())];
    byte ^= std::byte{1} << (bit % 8);
    node->synced = node->bytes;
  }
}

Result<std::unique_ptr<DiskFile>> SimulatedDisk::open(const Path& path, OpenFor purpose) {
  ATOLL_ASSIGN(const Place place, place_of(path));
  const auto found = place.folder->entries.find(place.name);
  std::shared_ptr<Node> node = found == place.folder->entries.end() ? nullptr : found->second;
  const bool makes = !node && purpose != OpenFor::reading;
  ATOLL_TRY(spend(path, makes || purpose == OpenFor::creating));
  if (!node && !makes) {
    return not_there(path);
  }
  if (makes) {
    if (full_) {
      return no_space(path);
    }
    node = std::make_shared<Node>();
    make({place, node, std::nullopt, nullptr});
  }
  if (node->folder) {
    return Error{Code::io, path.string() + ": not a regular file"};
  }
  if (purpose == OpenFor::creating) {
    node->bytes.clear();
  }
  return std::unique_ptr<DiskFile>(new SimulatedFile(*this, std::move(node), path));
}

Result<DiskEntry> SimulatedDisk::look(const Path& path) const {
  const std::shared_ptr<Node> node = find(path);
  ATOLL_TRY(spend(path, false));
  if (!node) {
    return not_there(path);
  }
  return DiskEntry{path.filename().string(), node->folder ? EntryKind::folder : EntryKind::file, node->bytes.size()};
}

Result<std::vector<DiskEntry>> SimulatedDisk::list(const Path& folder) const {
  const std::shared_ptr<Node> node = find(folder);
  ATOLL_TRY(spend(folder, false));
  if (!node || !node->folder) {
    return not_there(folder);
  }
  std::vector<DiskEntry> entries;
  for (const auto& [name, child] : node->entries) {
    entries.push_back({name, child->folder ? EntryKind::folder : EntryKind::file, child->bytes.size()});
  }
  return entries;
}

Status SimulatedDisk::make_folders(const Path& path) {
  Path so_far;
  for (const Path& part : path) {
    so_far /= part;
    if (part.empty() || part == ".") {
      continue;
    }
    ATOLL_ASSIGN(const Place place, place_of(so_far));
    const auto found = place.folder->entries.find(place.name);
    if (found != place.folder->entries.end()) {
      if (!found->second->folder) {
        return Error{Code::io, so_far.string() + ": is no folder"};
      }
      continue;
    }
    ATOLL_TRY(spend(so_far, true));
    if (full_) {
      return no_space(so_far);
    }
    auto node = std::make_shared<Node>();
    node->folder = true;
    make({place, std::move(node), std::nullopt, nullptr});
  }
  return {};
}

Status SimulatedDisk::rename(const Path& from, const Path& to) { return move(from, to, false); }
Status SimulatedDisk::exchange(const Path& a, const Path& b) { return move(a, b, true); }

Status SimulatedDisk::move(const Path& from, const Path& to, bool exchange) {
  ATOLL_ASSIGN(const Place source, place_of(from));
  ATOLL_ASSIGN(const Place target, place_of(to));
  ATOLL_TRY(spend(from, true));
  const std::shared_ptr<Node> moved = find(from);
  const std::shared_ptr<Node> there = find(to);
  if (!moved || (exchange && !there)) {
    return not_there(moved ? to : from);
  }
  if (!exchange && there && there->folder && (!moved->folder || !there->entries.empty())) {
    return Error{Code::io, from.string() + ": cannot be renamed to " + to.string() + ": directory not empty"};
  }
  if (moved != there) {
    make({target, moved, source, exchange ? there : nullptr});
  }
  return {};
}

Status SimulatedDisk::remove(const Path& path) {
  ATOLL_ASSIGN(const Place place, place_of(path));
  ATOLL_TRY(spend(path, true));
  remove_all(place);
  return {};
}

// What is inside goes first, as the calls of a real disk would have it.
void SimulatedDisk::remove_all(const Place& place) {
  const auto found = place.folder->entries.find(place.name);
  if (found == place.folder->entries.end()) {
    return;
  }
  const std::shared_ptr<Node> node = found->second;
  std::vector<std::string> names;
  for (const auto& [name, child] : node->entries) {
    names.push_back(name);
  }
  for (const std::string& name : names) {
    remove_all({node, name});
  }
  make({place, nullptr, std::nullopt, nullptr});
}

Status SimulatedDisk::sync_folder(const Path& path) {
  const std::shared_ptr<Node> folder = find(path);
  ATOLL_TRY(spend(path, true, true));
  if (!folder || !folder->folder) {
    return not_there(path);
  }
  std::vector<Change> left;
  for (Change& change : pending_) {
    if (change.at.folder == folder || (change.other && change.other->folder == folder)) {
      keep(change);
    } else {
      left.push_back(std::move(change));
    }
  }
  pending_ = std::move(left);
  return {};
}

}  // namespace atl
