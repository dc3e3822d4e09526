#include "agent/trainer/data/token_stream.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "agent/trainer/data/file_kind.hpp"
#include "agent/trainer/data/sampled_digest.hpp"

namespace atl {

namespace {

constexpr std::size_t kMostFilesListed = 6;  // files by name

Error file_error(const std::string& path, int number) {
  return {number == ENOENT ? Code::not_found : Code::io, "data file " + path + ": " + std::strerror(number)};
}

template <typename Token>
bool copy_tokens(const std::byte* from, std::uint64_t vocabulary, std::span<std::int64_t> out) {
  bool known = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    Token token;
    std::memcpy(&token, from + i * sizeof token, sizeof token);
    known = known && token < vocabulary;
    out[i] = static_cast<std::int64_t>(token);
  }
  return known;
}

}  // namespace

Result<TokenStream> TokenStream::open(const std::vector<std::string>& files, std::string_view format) {
  TokenStream stream;
  if (format == "bytes") {
    stream.width_ = 1;
  } else if (format == "uint16") {
    stream.width_ = 2;
  } else if (format == "uint32") {
    stream.width_ = 4;
  } else {
    return Error{Code::invalid_argument, "data format '" + std::string(format) + "' is none of bytes, uint16, uint32"};
  }
  if (files.empty()) {
    return Error{Code::invalid_argument, "no data files were given"};
  }
  for (const std::string& path : files) {
    ATOLL_TRY(stream.add(path));
  }
  return stream;
}

TokenStream::TokenStream(TokenStream&& other) noexcept
    : files_(std::exchange(other.files_, {})), size_(std::exchange(other.size_, 0)), width_(other.width_) {}

TokenStream::~TokenStream() {
  for (const File& file : files_) {
    ::munmap(file.memory, file.bytes);
  }
}

Status TokenStream::add(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return file_error(path, errno);
  }
  struct stat status {};
  const bool known = ::fstat(fd, &status) == 0;
  if (!known || !S_ISREG(status.st_mode) || status.st_size == 0) {
    const int failure = errno;
    ::close(fd);
    if (!known) {
      return file_error(path, failure);
    }
    return Error{Code::corrupt, "data file " + path + (S_ISREG(status.st_mode) ? ": it is empty" : ": it is not a file")};
  }
  const auto bytes = static_cast<std::size_t>(status.st_size);
  void* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  const int failure = errno;
  ::close(fd);
  if (memory == MAP_FAILED) {
    return file_error(path, failure);
  }
  File file{path, memory, bytes, static_cast<const std::byte*>(memory), bytes / width_, size_};
  files_.push_back(file);  // from here on the destructor unmaps it
  ATOLL_TRY(check_kind(path, {static_cast<const std::byte*>(memory), bytes}));
  if (bytes % width_ != 0) {
    return Error{Code::corrupt, "data file " + path + ": " + std::to_string(bytes) + " bytes are not a whole number of uint" +
                                    std::to_string(8 * width_) + " tokens"};
  }
  if (!shard_tokens({static_cast<const std::byte*>(memory), bytes}).empty()) {
    std::array<std::int32_t, 3> header{};  // magic, version, tokens
    std::memcpy(header.data(), memory, sizeof header);
    file.tokens += kShardHeadBytes;
    file.count = (bytes - kShardHeadBytes) / width_;
    if (header[2] < 0 || static_cast<std::uint64_t>(header[2]) != file.count || file.count == 0) {
      return Error{Code::corrupt, "data file " + path + ": its header announces " + std::to_string(header[2]) + " tokens, the file holds " +
                                      std::to_string(file.count)};
    }
    files_.back() = file;
  }
  size_ += file.count;
  return {};
}

// What is no text and no tokens would be trained on all the same: every byte is a number.
Status TokenStream::check_kind(const std::string& path, std::span<const std::byte> content) const {
  const std::string format = width_ == 1 ? "bytes" : "uint" + std::to_string(8 * width_);
  const auto refused = [&](const std::string& why) { return Error{Code::corrupt, "data file " + path + ": " + why}; };
  if (const std::string tokens(shard_tokens(content)); !tokens.empty()) {
    return tokens == format ? Status() : refused("it is a shard of " + tokens + " tokens; set data.format to \"" + tokens + "\"");
  }
  if (const std::string kind(kind_of_file(content)); !kind.empty()) {
    const std::string wanted = width_ == 1 ? "text" : "bare " + format + " tokens (of an array: array.astype(numpy." + format + ").tofile)";
    return refused("it is " + kind + ", not " + wanted + "; name the files that are meant, or convert it");
  }
  const std::size_t wider = wider_numbers(content, width_);
  if (wider == 8) {
    return refused("it is numbers of 64 bits; save them as array.astype(numpy.uint32).tofile, and set data.format to \"uint32\"");
  }
  if (wider == 4) {
    const std::string zeros = width_ == 1 ? "most bytes are 0" : "every second number is 0";
    return refused(zeros + ", so it is uint32 tokens; set data.format to \"uint32\"");
  }
  if (wider == 2) {
    return refused("every second byte is 0, so it is uint16 tokens or UTF-16 text; set data.format to \"uint16\", or save text as UTF-8");
  }
  if (width_ == 1 && looks_big_endian(content)) {
    return refused("every second byte is 0, so it is UTF-16 text or big-endian numbers; save text as UTF-8");
  }
  if (width_ > 1 && looks_like_text(content)) {
    return refused("it is text, not " + format + " tokens; name the files that are meant, or set data.format to \"bytes\"");
  }
  return {};
}

std::string TokenStream::listing() const {
  std::string text = std::to_string(files_.size()) + (files_.size() == 1 ? " file" : " files") + " with " + std::to_string(size_) + " " +
                     (width_ == 1 ? "bytes" : "uint" + std::to_string(8 * width_) + " tokens");
  for (std::size_t i = 0; i < std::min(files_.size(), kMostFilesListed); ++i) {
    text += (i == 0 ? ": " : ", ") + std::filesystem::path(files_[i].path).filename().string() + " " + std::to_string(files_[i].count);
  }
  return text + (files_.size() > kMostFilesListed ? ", and " + std::to_string(files_.size() - kMostFilesListed) + " more" : "");
}

std::string TokenStream::digest() const {
  SampledDigest digest;
  std::vector<std::int64_t> tokens(SampledDigest::kBlock);
  SampledDigest::for_each_block(size_, [&](std::uint64_t offset, std::uint64_t count) {
    const std::span<std::int64_t> block = std::span(tokens).first(static_cast<std::size_t>(count));
    if (read(offset, std::uint64_t{1} << 32, block)) {  // every token is below that
      digest.add(std::as_bytes(block));
    }
  });
  return std::to_string(size_) + " tokens, digest " + digest.text();
}

bool TokenStream::all_known(std::uint64_t vocabulary) const { return vocabulary >= std::uint64_t{1} << (8 * width_); }

Status TokenStream::read(std::uint64_t offset, std::uint64_t vocabulary, std::span<std::int64_t> out) const {
  if (offset > size_ || out.size() > size_ - offset) {
    return Error{Code::invalid_argument, "tokens past the end of the data were asked for"};
  }
  auto file =
      std::upper_bound(files_.begin(), files_.end(), offset, [](std::uint64_t at, const File& candidate) { return at < candidate.begin; });
  for (--file; !out.empty(); ++file) {
    const std::uint64_t skip = offset - file->begin;
    const std::size_t count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), file->count - skip));
    const std::byte* from = file->tokens + skip * width_;
    const std::span<std::int64_t> part = out.first(count);
    const bool known = width_ == 1   ? copy_tokens<std::uint8_t>(from, vocabulary, part)
                       : width_ == 2 ? copy_tokens<std::uint16_t>(from, vocabulary, part)
                                     : copy_tokens<std::uint32_t>(from, vocabulary, part);
    if (!known) {
      const auto unknown =
          std::find_if(part.begin(), part.end(), [&](std::int64_t token) { return static_cast<std::uint64_t>(token) >= vocabulary; });
      return Error{Code::corrupt, "data file " + file->path + ": token " + std::to_string(*unknown) + ", number " +
                                      std::to_string(skip + static_cast<std::uint64_t>(unknown - part.begin()) + 1) +
                                      " of the file, is not in the model's vocabulary of " + std::to_string(vocabulary) +
                                      "; set model.vocabulary"};
    }
    offset += count;
    out = out.subspan(count);
  }
  return {};
}

}  // namespace atl
