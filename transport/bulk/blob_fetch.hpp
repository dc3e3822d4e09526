// Fetching one blob from several islands that hold the same bytes: a checkpoint, the results a joiner missed.
//
// Each source has a window of wants, which follows its path (path_window.hpp) or is fixed; a source that is quick gets more pieces. A
// source that stays silent, refuses, or whose piece does not match its digest is dropped with a reason and its pieces go to the others.
// With the digests of all pieces a liar is found at its first piece. With the whole digest alone a mix of sources cannot tell who lied: the
// fetch starts anew with one source at a time, dropping each whose bytes do not match. The bytes go to a file (`path`.part with the pieces
// it has in `path`.have, renamed when complete and verified; resumable) or to memory. Sans-I/O but for that file. Pieces are hashed in
// order as they come; what came before its turn is read back once. Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/bytes.hpp"
#include "transport/base/disk.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/bulk/transfer.hpp"
#include "transport/bulk/want_schedule.hpp"

namespace atl {

struct BlobFetchPlan {
  BlobId blob;
  std::optional<std::uint64_t> size;  // nothing: the first piece tells
  std::optional<Digest> digest;       // SHA-256 of the whole
  std::uint32_t piece_bytes = 1U << 20;
  std::vector<Digest> piece_digests;  // SHA-256 of each piece, or none
  std::vector<IslandId> sources;
  std::map<IslandId, std::string> names = {};  // of sources, for what is said of them; without one its id stands for it
  DiskPath path;                               // nowhere: to memory
  bool durable = true;  // the file is on the disk once it is done; false where it is used at once and a crash fetches it anew
  std::uint64_t max_bytes = 1ULL << 40;  // a larger blob is refused
};

struct DroppedSource {
  IslandId source;
  Error error;
};

struct BlobFetchProgress {
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_total = 0;  // 0: not known yet
  std::uint64_t bytes_received = 0;
  double bytes_per_second = 0;  // since the start
};

class BlobFetch final : public Transfer {
 public:
  struct Settings {
    WantSettings wants;                                 // per source
    Duration give_up_after = std::chrono::seconds(30);  // without a piece from any source
    // From the beginning: a source that says `unauthorized` may not have heard yet who reads, since the coordinator tells it and this
    // island at one time, over two connections. It is asked again; later it is dropped.
    Duration allowed_within = std::chrono::seconds(3);
  };

  // Errors: invalid_argument (no source, sizes that do not fit), io (the file).
  static Result<std::unique_ptr<BlobFetch>> begin(BlobFetchPlan plan, TimePoint now, const Settings& settings);
  // The same with windows that follow the paths, and know nothing of them yet.
  static Result<std::unique_ptr<BlobFetch>> begin(BlobFetchPlan plan, TimePoint now);
  ~BlobFetch() override;

  std::span<std::byte> destination(const IslandId& from, const BlobPiece& piece) override;
  void arrived(TimePoint now, const IslandId& from, const BlobPiece& piece) override;
  void gone(TimePoint now, const IslandId& from, const Gone& gone) override;
  void connected(TimePoint now, const IslandId& peer) override;
  void not_sent(TimePoint now, const OutgoingWant& want) override;
  [[nodiscard]] bool reads(const BlobId& id) const override { return id == blob(); }
  // One more island that has it.
  void add_source(TimePoint now, const IslandId& source);

  [[nodiscard]] const BlobId& blob() const;
  std::vector<OutgoingWant> take_wants(TimePoint now) override;
  // Complete and verified; a file has its final name.
  [[nodiscard]] bool done() const;
  // Why it ended without: every source dropped, the disk, nothing arriving. A partial file stays, to be resumed.
  [[nodiscard]] const std::optional<Error>& failure() const;
  // The bytes of a fetch to memory; valid once done, taken once.
  Bytes take_bytes();
  [[nodiscard]] BlobFetchProgress progress(TimePoint now) const;
  [[nodiscard]] const std::vector<DroppedSource>& dropped() const;
  [[nodiscard]] std::optional<TimePoint> next_deadline() const override;

 private:
  struct State;
  explicit BlobFetch(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace atl
