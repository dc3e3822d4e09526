// A copy of a run's checkpoints in a store: how it lies there, and how it is written and read.
//
//   ADDRESS/newest.json                   the run whose checkpoint was copied last, of those whose islands share one state
//   ADDRESS/RUN/newest.json               the rounds of which there are whole copies, the newest last
//   ADDRESS/RUN/ROUND/copy.json           of which state it is; bytes and SHA-256 of outer.safetensors and of its parts; how far the data
//                                         were. Written last: with it the copy is whole
//   ADDRESS/RUN/ROUND/outer.safetensors   the outer state (agent/storage/checkpoint.hpp). At an HTTPS server a file of more than a part's
//                                         bytes is outer.safetensors.0, .1, …, which `cat` puts together
//   ADDRESS/RUN/ISLAND/…                  the same, of an island with a state of its own
// A copy that broke off goes on where it was: a file on this machine says which parts are there. Every part is hashed before it is sent. S3
// refuses other bytes than were hashed; from an HTTPS server each part is read back. The trainers' own states are not copied.
// Threads: any; each call is on its own and blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/bytes.hpp"
#include "transport/base/data_share.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/http/object_store.hpp"

namespace atl::agent {

inline constexpr std::uint64_t kCopyPartBytes = 64ULL << 20;  // more where a file would have too many

// What is copied.
struct CopiedCheckpoint {
  RunId run;
  Round round;
  Epoch epoch;                       // in which it was written
  Digest digest;                     // of the rounds up to this one
  Digest sha256;                     // of outer.safetensors
  std::uint64_t bytes = 0;           // of it
  std::vector<DataRange> data = {};  // how far each part of the data is after the round
  friend bool operator==(const CopiedCheckpoint&, const CopiedCheckpoint&) = default;
};

// How often a request is tried that may work later, and how long to wait before the second time; it doubles.
struct CopyPatience {
  unsigned attempts = 5;
  Duration first_wait = std::chrono::seconds(1);
  std::function<bool(Duration)> wait;  // false: give up. Empty: sleeps
};

struct CopyDone {
  std::uint64_t sent_bytes = 0;     // of parts
  std::uint64_t present_bytes = 0;  // that lay there already
};

// What a copy is made of, and where its progress is kept.
struct CopyJob {
  CopiedCheckpoint what;
  std::string folder;              // in the store: copy_folder()
  int file = -1;                   // outer.safetensors, open
  std::size_t keep = 3;            // copies, the newest
  bool shared = true;              // all islands share this state
  std::filesystem::path progress;  // a file of which only this function knows what is in it
  std::uint64_t part_bytes = kCopyPartBytes;
};

// "RUN/", or of an island with a state of its own "RUN/ISLAND/".
std::string copy_folder(const RunId& run, const std::string& island = {});

// Copies an open outer.safetensors, unless its copy is there, and removes all but the newest copies.
// Errors: corrupt if the file is not what its digest says, or the store has something else than was sent; io; those of the store, after all
// attempts. A later call goes on from `progress`.
// Cost: one mebibyte of memory; the file is read twice, parts that are there once.
Result<CopyDone> copy_checkpoint(const ObjectStore& store, const CopyJob& job, const CopyPatience& patience);

// The folder of the run whose checkpoint was copied last to this store, where its address is that of several runs' copies; empty if it is
// one run's. Errors: not_found if there is no copy; corrupt; those of the store.
Result<std::string> newest_folder(const ObjectStore& store, const CopyPatience& patience);

// What the copy of this round (else the newest one) in a folder is of. Errors: not_found; corrupt; those of the store.
Result<CopiedCheckpoint> look_at_copy(const ObjectStore& store, const std::string& folder, std::optional<Round> round,
                                      const CopyPatience& patience);

// Reads that copy into a file, every part verified; PATH.partial while it comes, from which a later call goes on.
// Errors: not_found; corrupt naming the part; io; those of the store, after all attempts.
Result<CopiedCheckpoint> fetch_copy(const ObjectStore& store, const std::string& folder, std::optional<Round> round,
                                    const std::filesystem::path& path, const CopyPatience& patience);

}  // namespace atl::agent
