// What is written down of copies of checkpoints: in the store what lies there, and on this machine how far a copy has come.
//
// Nothing that a store says is believed to be well formed.
// Threads: plain values; a CopyProgress is one thread's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/service/checkpoint_copy.hpp"

namespace atl::agent {

struct CopyPart {
  std::string name;      // of the object, in the round's folder
  std::uint64_t at = 0;  // where in the object it begins
  std::uint64_t bytes = 0;
  Digest sha256;
  std::uint64_t file_offset = 0;  // where in the file; follows from the parts before it
};

// copy.json
struct CopyNote {
  CopiedCheckpoint what;
  std::vector<CopyPart> parts;  // together the file
};
std::string text_of(const CopyNote& note);
// Errors: corrupt, naming the file.
Result<CopyNote> copy_note_of(const std::string& text, const std::string& name);

// newest.json
struct NewestNote {
  RunId run;                  // empty: there is none
  std::vector<Round> rounds;  // the newest last; empty where the file only names a run
};
std::string text_of(const NewestNote& note);
Result<NewestNote> newest_note_of(const std::string& text, const std::string& name);

// How far a copy has come, in a file on this machine: what is said of another copy is forgotten.
class CopyProgress {
 public:
  // object: the file in the store that is made of parts.
  CopyProgress(std::filesystem::path path, std::string object, const CopiedCheckpoint& what);

  // An upload of another copy that was not brought to its end: to be dropped.
  struct Abandoned {
    std::string object;
    std::string upload;
  };
  [[nodiscard]] const std::optional<Abandoned>& abandoned() const { return abandoned_; }

  // Of an upload in parts; empty: there is none.
  [[nodiscard]] const std::string& upload() const { return upload_; }
  [[nodiscard]] bool has(std::size_t part, const Digest& sha256) const { return part < parts_.size() && parts_[part].sha256 == sha256; }
  [[nodiscard]] std::vector<std::string> tags() const;

  // Errors: io.
  Status begin(const std::string& upload);
  Status add(std::size_t part, const Digest& sha256, const std::string& tag);
  void clear();

 private:
  struct Part {
    Digest sha256;
    std::string tag;
  };
  [[nodiscard]] Status save() const;

  std::filesystem::path path_;
  std::string object_;
  std::string key_;  // which copy this is of
  std::optional<Abandoned> abandoned_;
  std::string upload_;
  std::vector<Part> parts_;
};

}  // namespace atl::agent
