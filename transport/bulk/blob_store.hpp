// What this island serves on the bulk link: blobs in memory or files, and the wants that wait for them.
//
// A bulk link owns a store and asks it for every Want it receives; the agent puts blobs in and takes them out. A want is
//   answered   if the range asked for is ready,
//   parked     if the blob is announced but that range is not ready yet; also if it belongs to an exchange that this side has
//              not begun (the peer heard of it first), is a pair's promise, verdict or standing that is not there yet, is the
//              result of a round that will be kept, or the reader is not yet known as one of the run's. At most `park_per_reader`
//              wants a reader, the oldest is dropped first: the reader asks again,
//   refused    with Gone otherwise: older attempts and rounds, unknown checkpoints, readers who may not.
// Buffers are not copied, unless the reader wants them packed: an entry and every piece in flight hold the owner's shared pointer. A range
// that was declared ready must not change until the last of those pointers is gone. Threads: any; a mutex guards the maps and is never held
// during I/O, file reading or the listener.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "transport/base/bytes.hpp"
#include "transport/base/disk.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/bulk/parked_wants.hpp"
#include "transport/bulk/piece.hpp"

namespace atl {

// Bytes to send and what keeps them alive.
struct Payload {
  ByteView bytes;
  std::shared_ptr<const void> owner;
};

inline Payload payload_of(Bytes bytes) {
  auto owner = std::make_shared<const Bytes>(std::move(bytes));
  return {*owner, owner};
}

struct Parked {};
struct Served {
  BlobPiece piece;
  Payload payload;
};
using StoreAnswer = std::variant<Served, Gone, Parked>;

class BlobStore {
 public:
  struct Limits {
    std::size_t park_per_reader = 8192;  // a far reader has as many outstanding as its path holds (path_window.hpp)
  };

  BlobStore();
  explicit BlobStore(Limits limits);
  ~BlobStore();
  BlobStore(const BlobStore&) = delete;
  BlobStore& operator=(const BlobStore&) = delete;

  // Who may read this run's blobs: everything (members), or only checkpoint_file, trainer_file, result and content (visitors: an operator's
  // export, a joiner that is not a member yet). Replaces what was said before; an empty list closes the run.
  void set_readers(const RunId& run, std::vector<IslandId> members, std::vector<IslandId> visitors = {});

  // Serves a complete blob. Putting a contribution or reduced blob of attempt k refuses the earlier attempts of that round.
  void put(const BlobId& blob, Payload payload);
  // Serves a blob whose bytes come later: `mark_ready` says which ranges hold their final bytes.
  void announce(const BlobId& blob, Payload payload);
  void mark_ready(const BlobId& blob, std::uint64_t offset, std::uint64_t length);
  // Serves a file, read piece by piece when asked. It may be unlinked while it is served.
  // Errors: io, naming the path.
  Status put_file(const BlobId& blob, const DiskPath& path);

  // No longer served: answered with Gone.
  void withdraw(const BlobId& blob);
  // Withdraws the contributions and reduced shards of all rounds before `round` and answers Gone to wants for them.
  void finish_rounds_before(const RunId& run, Round round);
  // The `result` blobs of rounds after this one will be put, each once its round is committed; a reader may hear of the commit first, and
  // its want waits. Empty: no more of them will be put.
  void expect_results_after(const RunId& run, std::optional<Round> round);
  // Withdraws the `result` blobs of rounds up to and including `round`.
  void withdraw_results_up_to(const RunId& run, Round round);
  // Forgets everything of a run, its readers and its parked wants.
  void forget(const RunId& run);

  // Payload bytes handed out for this run since it was first served, as they travel: packed where they are.
  [[nodiscard]] std::uint64_t bytes_served(const RunId& run) const;
  // When others read contributions and reduced shards of a round here, by the wall clock, and how many bytes; empty: nobody did.
  // Forgotten when a later round is finished.
  struct Reading {
    TimePoint first;
    TimePoint last;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] std::optional<Reading> read_of_round(const RunId& run, Round round) const;
  [[nodiscard]] std::size_t parked() const;

  // For the link. `answer` reads from a file, and packs, outside of the lock; a file that fails is Gone{io}.
  StoreAnswer answer(const IslandId& reader, const WantOver& asked);
  // Wants that may be answered now: ask `answer` again. Each is handed out once.
  std::vector<ParkedWant> take_unparked();
  // A reader went away: its parked wants are dropped.
  void drop_reader(const IslandId& reader);
  // Called, on the thread that caused it, when take_unparked has something. One listener; empty removes it.
  void set_listener(std::function<void()> listener);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl
