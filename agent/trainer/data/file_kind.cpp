#include "agent/trainer/data/file_kind.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <cstring>

namespace atl {
namespace {

using Content = std::span<const std::byte>;

constexpr std::size_t kLooked = std::size_t{1} << 16;

unsigned byte_at(Content file, std::size_t i) { return i < file.size() ? std::to_integer<unsigned>(file[i]) : 256; }

bool begins_with(Content file, std::string_view text, std::size_t from = 0) {
  return file.size() >= from + text.size() && std::memcmp(file.data() + from, text.data(), text.size()) == 0;
}

bool ends_with(Content file, std::string_view text) { return file.size() >= text.size() && begins_with(file.last(text.size()), text); }

// Little-endian.
template <typename Number>
Number little_endian(Content file, std::size_t from) {
  static_assert(std::endian::native == std::endian::little);
  Number value{};
  if (file.size() >= from + sizeof value) {
    std::memcpy(&value, file.data() + from, sizeof value);
  }
  return value;
}

// Protocol 4 and 5 begin with a frame, whose length is written; 2 and 3 have a list or a dictionary and its place in the memo. All end with
// STOP.
bool is_pickle(Content file) {
  if (byte_at(file, 0) != 0x80 || !ends_with(file, ".")) {
    return false;
  }
  if (byte_at(file, 1) == 4 || byte_at(file, 1) == 5) {
    const auto frame = little_endian<std::uint64_t>(file, 3);
    return byte_at(file, 2) == 0x95 && file.size() >= 11 && frame > 0 && frame <= file.size() - 11;
  }
  return (byte_at(file, 1) == 2 || byte_at(file, 1) == 3) && (begins_with(file, "}q", 2) || begins_with(file, "]q", 2));
}

// RFC 1952: method 8, five flags, a hint of the compressor's effort, and one of few systems.
bool is_gzip(Content file) {
  const bool system = byte_at(file, 9) <= 13 || byte_at(file, 9) == 255;
  return begins_with(file, "\x1f\x8b\x08") && byte_at(file, 3) < 32 &&
         (byte_at(file, 8) == 0 || byte_at(file, 8) == 2 || byte_at(file, 8) == 4) && system;
}

// APPNOTE 4.3.7: version to extract (up to 6.3), then flags and a method of few; or an archive without files.
bool is_zip(Content file) {
  const bool entry =
      begins_with(file, std::string_view("PK\3\4", 4)) && byte_at(file, 4) <= 63 && byte_at(file, 5) <= 3 && byte_at(file, 9) == 0;
  return entry || (begins_with(file, std::string_view("PK\5\6\0\0\0\0", 8)) && file.size() == 22);
}

// A marker segment that a file can begin with, and its length.
bool is_jpeg(Content file) {
  const unsigned marker = byte_at(file, 3);
  const bool known = (marker >= 0xe0 && marker <= 0xef) || marker == 0xdb || marker == 0xc4 || marker == 0xfe || marker == 0xc0;
  const std::size_t length = byte_at(file, 4) << 8 | byte_at(file, 5);
  return begins_with(file, "\xff\xd8\xff") && known && length >= 2 && (byte_at(file, 4 + length) == 0xff || file.size() < 4 + length + 1);
}

bool is_safetensors(Content file) {
  const auto head = little_endian<std::uint64_t>(file, 0);
  return file.size() > 10 && head >= 2 && head <= file.size() - 8 && (begins_with(file, "{\"", 8) || begins_with(file, "{}", 8));
}

// Unsigned bytes of one to four dimensions that fill the file.
bool is_idx(Content file) {
  const unsigned dimensions = byte_at(file, 3);
  if (!begins_with(file, std::string_view("\0\0\x08", 3)) || dimensions < 1 || dimensions > 4 || file.size() < 4 + 4 * dimensions) {
    return false;
  }
  std::uint64_t values = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    const std::size_t from = 4 + 4 * i;
    const std::uint64_t extent =
        std::uint64_t{byte_at(file, from)} << 24 | byte_at(file, from + 1) << 16 | byte_at(file, from + 2) << 8 | byte_at(file, from + 3);
    if (extent == 0 || values > file.size() / extent) {
      return false;
    }
    values *= extent;
  }
  return file.size() - 4 - 4 * dimensions == values;
}

// Frame header: the descriptor's reserved bit is 0.
bool is_zstd(Content file) { return begins_with(file, "\x28\xb5\x2f\xfd") && (byte_at(file, 4) & 0x08U) == 0; }

// The stream of Hugging Face's data sets: a continuation mark, the length of a message's head, and the offset of its root.
bool is_arrow(Content file) {
  const auto head = little_endian<std::uint32_t>(file, 4);
  const auto root = little_endian<std::uint32_t>(file, 8);
  const bool stream = begins_with(file, "\xff\xff\xff\xff") && file.size() > 16 && head % 8 == 0 && head > 0 && head <= file.size() - 8 &&
                      root >= 4 && root <= 64 && root % 2 == 0;
  return stream || begins_with(file, std::string_view("ARROW1\0\0", 8));
}

// A length that fits the file: WebP, WAV and AVI.
bool is_riff(Content file) {
  const auto length = little_endian<std::uint32_t>(file, 4);
  return begins_with(file, "RIFF") && file.size() >= 12 && length >= 4 && length <= file.size() - 8 && file.size() - 8 - length <= 1;
}

// The end of the last block, and the trailer.
bool is_gif(Content file) {
  return (begins_with(file, "GIF89a") || begins_with(file, "GIF87a")) && file.size() >= 15 && ends_with(file, std::string_view("\0;", 2));
}

// Frame header: version 1, and a block size of four.
bool is_lz4(Content file) {
  const unsigned flags = byte_at(file, 4);
  const unsigned block = byte_at(file, 5);
  return begins_with(file, "\x04\x22\x4d\x18") && flags < 256 && (flags & 0xc2U) == 0x40 && (block & 0x8fU) == 0 && block >= 0x40;
}

// What llm.c writes beside its shards of tokens: a model (20240326), its state for debugging and its tokenizer (the two after that), the
// optimiser's state (20240527). A head of 256 int32, of which the second is a small version.
bool is_of_llm_c(Content file) {
  const auto magic = little_endian<std::uint32_t>(file, 0);
  const auto version = little_endian<std::uint32_t>(file, 4);
  return ((magic >= 20240326 && magic <= 20240328) || magic == 20240527) && version < 16 && file.size() >= kShardHeadBytes;
}

struct FileKind {
  std::string_view name;
  bool (*is)(Content);
};

constexpr std::array<FileKind, 25> kKinds = {{
    {"a NumPy array",
     [](Content file) {
       return begins_with(file, "\x93NUMPY") && byte_at(file, 6) >= 1 && byte_at(file, 6) <= 3 && byte_at(file, 7) == 0;
     }},
    {"a Python pickle", is_pickle},
    {"a gzip file", is_gzip},
    {"a zip file", is_zip},
    {"a Zstandard file", is_zstd},
    {"an xz file",
     [](Content file) {
       return begins_with(file, std::string_view("\xfd"
                                                 "7zXZ\0",
                                                 6));
     }},
    {"a bzip2 file", [](Content file) { return begins_with(file, "BZh") && begins_with(file, "1AY&SY", 4); }},
    {"a Parquet file", [](Content file) { return file.size() >= 12 && begins_with(file, "PAR1") && ends_with(file, "PAR1"); }},
    {"an Arrow file", is_arrow},
    {"an HDF5 file", [](Content file) { return begins_with(file, "\x89HDF\r\n\x1a\n"); }},
    {"an SQLite database", [](Content file) { return begins_with(file, std::string_view("SQLite format 3\0", 16)); }},
    {"a PNG image", [](Content file) { return begins_with(file, "\x89PNG\r\n\x1a\n"); }},
    {"a JPEG image", is_jpeg},
    {"a safetensors file", is_safetensors},
    {"a tar archive", [](Content file) { return begins_with(file, "ustar", 257) && file.size() % 512 == 0; }},
    {"a PDF file", [](Content file) { return begins_with(file, "%PDF-") && byte_at(file, 6) == '.' && byte_at(file, 5) - '0' < 10; }},
    {"a program",
     [](Content file) {
       return begins_with(file,
                          "\x7f"
                          "ELF") &&
              byte_at(file, 4) - 1 < 2 && byte_at(file, 6) == 1;
     }},
    {"a GGUF file",
     [](Content file) { return begins_with(file, "GGUF") && little_endian<std::uint32_t>(file, 4) < 16 && file.size() >= 24; }},
    {"an idx file", is_idx},
    {"a RIFF file", is_riff},
    {"a GIF image", is_gif},
    {"an LZ4 file", is_lz4},
    {"a 7z archive", [](Content file) { return begins_with(file, "7z\xbc\xaf\x27\x1c"); }},
    // What Megatron-LM writes beside its tokens.
    {"an index of Megatron-LM's", [](Content file) { return begins_with(file, std::string_view("MMIDIDX\0\0", 9)); }},
    {"a model, a tokenizer or a state of llm.c's", is_of_llm_c},
}};

// Bytes of the UTF-8 character that begins with this one; 0 of none.
std::size_t utf8_length(unsigned lead) {
  return lead < 0x80 ? 1 : lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
}

// Whether of numbers of `wide` bytes the half that begins at `from` is 0 nearly always, and the other one is not.
bool one_half_is_zero(Content file, std::size_t wide, std::size_t from) {
  constexpr std::size_t kFewNumbers = 32;
  const std::size_t half = wide / 2;
  const std::size_t numbers = std::min(file.size(), kLooked) / wide;
  std::size_t in_it = 0;
  std::size_t beside_it = 0;
  const auto has_value = [&](std::size_t at) {
    return std::ranges::any_of(file.subspan(at, half), [](std::byte byte) { return byte != std::byte{}; });
  };
  for (std::size_t i = 0; i < numbers; ++i) {
    in_it += has_value(i * wide + from) ? 1 : 0;
    beside_it += has_value(i * wide + half - from) ? 1 : 0;
  }
  return numbers >= kFewNumbers && in_it * 20 < numbers && beside_it * 2 > numbers;
}

}  // namespace

std::string_view kind_of_file(std::span<const std::byte> file) {
  const auto* const found = std::ranges::find_if(kKinds, [&](const FileKind& kind) { return kind.is(file); });
  return found == kKinds.end() ? std::string_view() : found->name;
}

std::string_view shard_tokens(std::span<const std::byte> file) {
  if (file.size() < kShardHeadBytes) {
    return {};
  }
  const auto magic = little_endian<std::int32_t>(file, 0);
  return magic == kShardMagic16 ? "uint16" : magic == kShardMagic32 ? "uint32" : "";
}

std::size_t wider_numbers(std::span<const std::byte> file, std::size_t width) {
  for (std::size_t wide = 2 * width; wide <= sizeof(std::uint64_t); wide *= 2) {
    if (one_half_is_zero(file, wide, wide / 2)) {
      return wide;
    }
  }
  return 0;
}

bool looks_big_endian(std::span<const std::byte> file) { return one_half_is_zero(file, 2, 0); }

bool looks_like_text(std::span<const std::byte> file) {
  constexpr std::size_t kFewCharacters = 8;
  constexpr std::size_t kLongLine = 256;
  const Content head = file.first(std::min(file.size(), kLooked));
  std::bitset<256> seen;
  for (std::size_t i = 0; i < head.size();) {
    const unsigned lead = byte_at(head, i);
    const std::size_t length = utf8_length(lead);
    const bool control = lead < 0x20 && lead != '\n' && lead != '\r' && lead != '\t' && lead != '\f';
    if (length == 0 || control || lead == 0x7f) {
      return false;
    }
    for (std::size_t k = 1; k < length && i + k < head.size(); ++k) {
      if ((byte_at(head, i + k) & 0xc0U) != 0x80) {
        return false;
      }
    }
    seen.set(lead);
    i += length;
  }
  return (seen.test('\n') || (seen.test(' ') && head.size() >= kLongLine)) && seen.count() > kFewCharacters;
}

}  // namespace atl
