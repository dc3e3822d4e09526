// TokenStream: several files read as one sequence of tokens, memory-mapped.
//
// Formats. bytes: every byte of a file is a token. uint16, uint32: a shard of little-endian integers as nanoGPT writes them
// (nothing else in the file) or as llm.c does: a header of 256 int32 (magic 20240520 for uint16 or 20240801 for uint32, version, number of
// tokens, zeros) and then the tokens. The header is recognised by its magic; the two may be mixed. A file that is something else (an array,
// an archive, a pickle, an image, or text where integers are read) is refused by its first bytes (file_kind.hpp).
// The files must stay as they are while mapped (a file cut short by another program ends this one).
// Threads: const functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.hpp"

namespace atl {

class TokenStream {
 public:
  // Errors: invalid_argument for an unknown format or no files; not_found, io for a file; corrupt for one that is empty, has half
  // a token at its end, a header that does not fit, or is of another format.
  static Result<TokenStream> open(const std::vector<std::string>& files, std::string_view format);

  TokenStream(TokenStream&& other) noexcept;
  TokenStream& operator=(TokenStream&&) = delete;
  TokenStream(const TokenStream&) = delete;
  ~TokenStream();

  // Tokens in all files.
  [[nodiscard]] std::uint64_t size() const { return size_; }
  // For people: "3 files with 1200 uint16 tokens: a.bin 1000, b.bin 100, c.bin 100".
  [[nodiscard]] std::string listing() const;
  // "1200 tokens, digest 0123456789abcdef": the same of the same tokens, in however many files they lie (sampled_digest.hpp).
  [[nodiscard]] std::string digest() const;
  // True if every number that a token can be is below this.
  [[nodiscard]] bool all_known(std::uint64_t vocabulary) const;
  // Copies tokens offset … offset + out.size() − 1, across file borders.
  // Errors: invalid_argument past the end; corrupt, naming file and token, for a token that is not below `vocabulary`.
  Status read(std::uint64_t offset, std::uint64_t vocabulary, std::span<std::int64_t> out) const;

 private:
  struct File {
    std::string path;
    void* memory;       // of the whole file
    std::size_t bytes;  // of the whole file
    const std::byte* tokens;
    std::uint64_t count;
    std::uint64_t begin;  // of its first token in the stream
  };

  TokenStream() = default;
  Status add(const std::string& path);
  [[nodiscard]] Status check_kind(const std::string& path, std::span<const std::byte> content) const;

  std::vector<File> files_;
  std::uint64_t size_ = 0;
  unsigned width_ = 1;  // bytes of a token
};

}  // namespace atl
