// TokenStream: several files read as one sequence of tokens, memory-mapped.
//
// Formats. bytes: every byte of a file is a token. uint16, uint32: a shard of little-endian integers as nanoGPT writes them
// (nothing else in the file) or as llm.c does: a header of 256 int32 (magic 20240520 for uint16 or 20240801 for uint32, version, number of
// tokens, zeros) and then the tokens. The header is recognised by its magic; the two may be mixed.
// The files must stay as they are while mapped (a file cut short by another program ends this one).
// Threads: const functions may be called from any thread.
#pragma once

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
  // a token at its end, or a header that does not fit.
  static Result<TokenStream> open(const std::vector<std::string>& files, std::string_view format);

  TokenStream(TokenStream&& other) noexcept;
  TokenStream& operator=(TokenStream&&) = delete;
  TokenStream(const TokenStream&) = delete;
  ~TokenStream();

  // Tokens in all files.
  [[nodiscard]] std::uint64_t size() const { return size_; }
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

  std::vector<File> files_;
  std::uint64_t size_ = 0;
  unsigned width_ = 1;  // bytes of a token
};

}  // namespace atl
