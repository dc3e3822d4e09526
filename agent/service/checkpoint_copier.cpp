#include "agent/service/checkpoint_copier.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "agent/service/copy_notes.hpp"
#include "agent/storage/durable_file.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/log.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/base/store_address.hpp"

namespace atl::agent {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kOrderFile = "copy.json";              // in a run's folder: what is to be copied
constexpr const char* kProgressFile = "copy-progress.json";  // and how far that is
constexpr std::size_t kLargestOrder = 4ULL << 20;

CopiedCheckpoint checkpoint_of(const CopyCheckpoint& order) {
  return {order.run, order.round, order.epoch, order.digest, order.file, order.file_bytes, order.data};
}

Status save_order(const fs::path& path, const CopyCheckpoint& order) {
  const CopyNote note{checkpoint_of(order), {{"outer.safetensors", 0, order.file_bytes, order.file}}};
  const json value = {{"to", order.to}, {"own_state", order.own_state}, {"keep", order.keep}, {"what", text_of(note)}};
  return replace_file(on_this_machine(path), as_bytes(value.dump() + "\n"));
}

std::optional<CopyCheckpoint> read_order(const fs::path& path) {
  const Result<Bytes> content = read_file(on_this_machine(path), kLargestOrder);
  if (!content) {
    return std::nullopt;
  }
  try {
    const json value = json::parse(as_text(*content));
    const Result<CopyNote> note = copy_note_of(value.at("what").get<std::string>(), path.string());
    if (!note) {
      return std::nullopt;
    }
    const CopiedCheckpoint& what = note->what;
    return CopyCheckpoint{what.run,
                          value.at("to").get<std::string>(),
                          value.at("own_state").get<bool>(),
                          value.at("keep").get<std::uint32_t>(),
                          what.round,
                          what.epoch,
                          what.digest,
                          what.sha256,
                          what.bytes,
                          what.data};
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

FileDescriptor open_checkpoint(const fs::path& folder, Round round) {
  const fs::path path = folder / "checkpoints" / std::to_string(round.value) / "outer.safetensors";
  return FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
}

}  // namespace

CheckpointCopier::CheckpointCopier(CopierSettings settings) : settings_(std::move(settings)) {
  resume();
  thread_ = std::thread([this] { work(); });
}

CheckpointCopier::~CheckpointCopier() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointCopier::resume() {
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(settings_.runs, failure)) {
    std::optional<CopyCheckpoint> order = read_order(entry.path() / kOrderFile);
    if (!order || order->run.text != entry.path().filename()) {
      continue;
    }
    FileDescriptor file = open_checkpoint(entry.path(), order->round);
    if (!file.is_open()) {
      fs::remove(entry.path() / kOrderFile, failure);  // pruned meanwhile: a newer one is copied
      continue;
    }
    const RunId run = order->run;
    pending_.insert_or_assign(run, Pending{*std::move(order), std::move(file), now()});
  }
}

bool CheckpointCopier::allows(const std::string& place) const {
  return std::ranges::any_of(settings_.allowed, [&](const std::string& allowed) { return is_below(place, allowed); });
}

Result<ObjectStore> CheckpointCopier::open(const std::string& place, const std::function<bool()>& go_on) const {
  if (!allows(place)) {
    return Error{Code::unauthorized, "this island's owner does not allow it (atoll agent --allow-copy " + place + ")"};
  }
  return ObjectStore::open(place, settings_.credentials, go_on, settings_.times);
}

void CheckpointCopier::copy(const CopyCheckpoint& order) {
  const fs::path folder = folder_of(order.run);
  Pending pending{order, open_checkpoint(folder, order.round), now()};
  const std::string why = std::strerror(errno);
  if (!pending.file.is_open()) {
    log_warning("the checkpoint of round " + std::to_string(order.round.value) + " of run " + order.run.text +
                " is not copied: it cannot be read: " + why);
    return;
  }
  if (const Status saved = save_order(folder / kOrderFile, order); !saved) {
    log_warning("the copy of round " + std::to_string(order.round.value) + " would not go on after a restart: " + saved.error().why);
  }
  const std::lock_guard lock(mutex_);
  pending_.insert_or_assign(order.run, std::move(pending));
  changed_.notify_all();
}

void CheckpointCopier::fetch(const FetchCopy& order) {
  const std::lock_guard lock(mutex_);
  to_fetch_ = order;
  fetch_waits_ = true;
  changed_.notify_all();
}

bool CheckpointCopier::wait(Duration time, bool for_fetch) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, time, [&] { return stop_ || (!for_fetch && fetch_waits_); });
}

void CheckpointCopier::work() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (const std::optional<FetchCopy> order = std::exchange(to_fetch_, std::nullopt)) {
      fetch_waits_ = false;
      lock.unlock();
      news_.push(fetched(*order));
      lock.lock();
      continue;
    }
    const auto next = std::ranges::min_element(pending_, {}, [](const auto& entry) { return entry.second.due; });
    if (next == pending_.end()) {
      changed_.wait(lock);
      continue;
    }
    if (const Duration left = next->second.due - now(); left > Duration::zero()) {
      changed_.wait_for(lock, left);
      continue;
    }
    Pending pending = std::move(next->second);
    pending_.erase(next);
    busy_ = true;
    lock.unlock();
    copy(std::move(pending));
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

// Unless a newer one came meanwhile.
void CheckpointCopier::put_back(Pending pending) {
  const std::lock_guard lock(mutex_);
  const RunId run = pending.order.run;
  pending_.try_emplace(run, std::move(pending));
}

void CheckpointCopier::copy(Pending pending) {
  const CopyCheckpoint order = pending.order;
  const TimePoint begun = now();
  const fs::path folder = folder_of(order.run);
  CopyJob job{checkpoint_of(order), copy_folder(order.run, order.own_state ? settings_.island : ""),
              pending.file.get(),   order.keep,
              !order.own_state,     folder / kProgressFile,
              settings_.part_bytes};
  CopyPatience patience = settings_.patience;
  patience.wait = [this](Duration time) { return wait(time, false); };
  const Result<ObjectStore> store = open(order.to, [this] { return !stop_ && !fetch_waits_; });
  const Result<CopyDone> done = store ? copy_checkpoint(*store, job, patience) : Result<CopyDone>(store.error());
  if (!done && done.error().code == Code::cancelled) {
    put_back(std::move(pending));  // it goes on where it was
    return;
  }
  Copied told{order.run,
              order.round,
              order.digest,
              order.file_bytes,
              done ? done->sent_bytes : 0,
              std::chrono::duration<double>(now() - begun).count(),
              order.to + (order.to.ends_with('/') ? "" : "/") + job.folder.substr(0, job.folder.size() - 1),
              done ? std::nullopt : std::optional<Error>(done.error())};
  const std::string what = "run " + order.run.text + ": the checkpoint of round " + std::to_string(order.round.value);
  const bool again = !done && worth_retrying(done.error().code) && pending.failures + 1 < settings_.tries;
  if (again) {
    pending.due = now() + settings_.again_after * (1U << pending.failures);
    told.error->why += "; tried again in " + human_duration(pending.due - now());
    ++pending.failures;
  } else {
    std::error_code ignored;
    const std::optional<CopyCheckpoint> newest = read_order(folder / kOrderFile);
    if (newest && newest->round == order.round && newest->digest == order.digest) {
      fs::remove(folder / kOrderFile, ignored);
    }
  }
  if (done) {
    log_info(what + " was copied to " + told.place + ", " + human_bytes(done->sent_bytes) + " sent");
  } else {
    log_warning(what + " was not copied to " + told.place + ": " + told.error->why);
  }
  if (allows(order.to) || refused_.insert(order.run).second) {
    news_.push(CopyEnded{std::move(told)});
  }
  if (again) {
    put_back(std::move(pending));
  }
}

Event CheckpointCopier::fetched(const FetchCopy& order) {
  CopyPatience patience = settings_.patience;
  patience.wait = [this](Duration time) { return wait(time, true); };
  CopyFetched answer{order.run, order.round, order.digest, {}, 0};
  const auto get = [&]() -> Status {
    ATOLL_ASSIGN(const ObjectStore store, open(order.from, [this] { return !stop_; }));
    const std::string folder = copy_folder(order.run);
    ATOLL_ASSIGN(const CopiedCheckpoint what, look_at_copy(store, folder, order.round, patience));
    if (what.digest != order.digest || what.run != order.run) {
      return Error{Code::corrupt,
                   "the copy of round " + std::to_string(order.round.value) + " in " + order.from + " belongs to another history"};
    }
    ATOLL_TRY(fetch_copy(store, folder, order.round, folder_of(order.run) / kFetchedCopy, patience));
    answer.file = what.sha256;
    answer.file_bytes = what.bytes;
    return {};
  };
  log_info("run " + order.run.text + ": fetches the copy of the checkpoint of round " + std::to_string(order.round.value) + " from " +
           order.from);
  if (const Status got = get(); !got) {
    answer.error = got.error();
  }
  return answer;
}

bool CheckpointCopier::busy() {
  const std::lock_guard lock(mutex_);
  return busy_ || !pending_.empty() || to_fetch_;
}

void CheckpointCopier::finish(Duration at_most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [&] {
    const TimePoint at = now();
    return !busy_ && std::ranges::none_of(pending_, [&](const auto& entry) { return entry.second.due <= at; });
  });
}

}  // namespace atl::agent
