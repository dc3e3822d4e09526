#include "transport/bulk/piece.hpp"

#include <algorithm>
#include <utility>

#include "transport/base/name.hpp"

namespace atl {
namespace {

constexpr std::size_t kMaxRunBytes = 64;
constexpr std::size_t kMaxWhyBytes = 512;
constexpr std::uint8_t kLastCode = static_cast<std::uint8_t>(Code::internal);

enum class Type : std::uint8_t { want = 1, piece = 2, gone = 3 };

void append_bytes(Bytes& out, ByteView bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }

void append_common(Bytes& out, Type type, const BlobId& blob) {
  ATOLL_CHECK(blob.run.text.size() <= kMaxRunBytes, "a run id has at most 64 bytes");
  append_le(out, kPieceVersion);
  append_le(out, static_cast<std::uint8_t>(type));
  append_le(out, static_cast<std::uint8_t>(blob.kind));
  append_le(out, static_cast<std::uint8_t>(blob.run.text.size()));
  append_le(out, blob.epoch.value);
  append_le(out, blob.round.value);
  append_le(out, blob.attempt.value);
  append_le(out, blob.part);
  append_bytes(out, as_bytes(blob.run.text));
}

void append_body(Bytes& out, const Want& want) {
  append_common(out, Type::want, want.blob);
  append_le(out, want.offset);
  append_le(out, want.length);
  append_le(out, static_cast<std::uint8_t>(want.packed ? 1 : 0));
}

void append_body(Bytes& out, const BlobPiece& piece) {
  append_common(out, Type::piece, piece.blob);
  append_le(out, piece.offset);
  append_le(out, piece.total);
  append_le(out, piece.length);
  append_le(out, piece.packed);
}

void append_body(Bytes& out, const Gone& gone) {
  append_common(out, Type::gone, gone.blob);
  append_le(out, static_cast<std::uint8_t>(gone.code));
  const std::size_t length = std::min(gone.why.size(), kMaxWhyBytes);
  append_le(out, static_cast<std::uint16_t>(length));
  append_bytes(out, as_bytes(std::string_view(gone.why).substr(0, length)));
}

Error corrupt(const char* why) { return Error{Code::corrupt, std::string("bulk frame: ") + why}; }

struct Common {
  std::uint8_t type = 0;
  BlobId blob;
};

Result<Common> read_common(ByteReader& reader) {
  ATOLL_ASSIGN(const auto version, reader.read<std::uint8_t>());
  if (version != kPieceVersion) {
    return Error{Code::corrupt, "bulk frame: version " + std::to_string(version) + ", this side speaks " + std::to_string(kPieceVersion)};
  }
  Common common;
  ATOLL_ASSIGN(common.type, reader.read<std::uint8_t>());
  ATOLL_ASSIGN(const auto kind, reader.read<std::uint8_t>());
  if (kind < static_cast<std::uint8_t>(BlobKind::contribution) || kind > static_cast<std::uint8_t>(BlobKind::partial)) {
    return corrupt("an unknown kind of blob");
  }
  common.blob.kind = static_cast<BlobKind>(kind);
  ATOLL_ASSIGN(const auto run_bytes, reader.read<std::uint8_t>());
  if (run_bytes > kMaxRunBytes) {
    return corrupt("the run id is too long");
  }
  ATOLL_ASSIGN(common.blob.epoch.value, reader.read<std::uint64_t>());
  ATOLL_ASSIGN(common.blob.round.value, reader.read<std::uint64_t>());
  ATOLL_ASSIGN(common.blob.attempt.value, reader.read<std::uint32_t>());
  ATOLL_ASSIGN(common.blob.part, reader.read<std::uint32_t>());
  ATOLL_ASSIGN(const ByteView run, reader.read_bytes(run_bytes));
  if (!run.empty() && !is_name(as_text(run))) {
    return Error{Code::corrupt, "a piece of run " + shown_name(as_text(run)) + ", which is no id of a run"};
  }
  common.blob.run = RunId(std::string(as_text(run)));
  return common;
}

Result<Frame> read_want(ByteReader& reader, BlobId blob) {
  Want want;
  want.blob = std::move(blob);
  ATOLL_ASSIGN(want.offset, reader.read<std::uint64_t>());
  ATOLL_ASSIGN(want.length, reader.read<std::uint32_t>());
  if (want.length == 0 || want.length > kMaxPieceBytes) {
    return corrupt("a want of an impossible length");
  }
  if (want.offset > UINT64_MAX - want.length) {
    return corrupt("a want past the end of numbers");
  }
  ATOLL_ASSIGN(const auto packed, reader.read<std::uint8_t>());
  if (packed > 1) {
    return corrupt("a want that is neither packed nor not");
  }
  want.packed = packed == 1;
  return Frame(std::move(want));
}

Result<Frame> read_piece(ByteReader& reader, BlobId blob) {
  BlobPiece piece;
  piece.blob = std::move(blob);
  ATOLL_ASSIGN(piece.offset, reader.read<std::uint64_t>());
  ATOLL_ASSIGN(piece.total, reader.read<std::uint64_t>());
  ATOLL_ASSIGN(piece.length, reader.read<std::uint32_t>());
  if (piece.length > kMaxPieceBytes || piece.offset > piece.total || piece.length > piece.total - piece.offset) {
    return corrupt("a piece that does not lie within its blob");
  }
  ATOLL_ASSIGN(piece.packed, reader.read<std::uint32_t>());
  if (piece.packed > 0 && piece.packed >= piece.length) {
    return corrupt("a packed piece that is no smaller than what it unpacks to");
  }
  return Frame(std::move(piece));
}

Result<Frame> read_gone(ByteReader& reader, BlobId blob) {
  Gone gone;
  gone.blob = std::move(blob);
  ATOLL_ASSIGN(const auto code, reader.read<std::uint8_t>());
  if (code > kLastCode) {
    return corrupt("an unknown error code");
  }
  gone.code = static_cast<Code>(code);
  ATOLL_ASSIGN(const auto length, reader.read<std::uint16_t>());
  if (length > kMaxWhyBytes) {
    return corrupt("a reason that is too long");
  }
  ATOLL_ASSIGN(const ByteView why, reader.read_bytes(length));
  gone.why = std::string(as_text(why));
  return Frame(std::move(gone));
}

}  // namespace

std::string_view to_string(BlobKind kind) {
  switch (kind) {
    case BlobKind::contribution:
      return "contribution";
    case BlobKind::reduced:
      return "reduced";
    case BlobKind::result:
      return "result";
    case BlobKind::checkpoint_file:
      return "checkpoint_file";
    case BlobKind::trainer_file:
      return "trainer_file";
    case BlobKind::promise:
      return "promise";
    case BlobKind::verdict:
      return "verdict";
    case BlobKind::standing:
      return "standing";
    case BlobKind::content:
      return "content";
    case BlobKind::probe:
      return "probe";
    case BlobKind::partial:
      return "partial";
  }
  return "blob";
}

std::string describe(const BlobId& blob) {
  if (blob.kind == BlobKind::content) {
    return "content of run " + blob.run.text;  // its numbers are its digest's
  }
  return std::string(to_string(blob.kind)) + " " + std::to_string(blob.part) + " of run " + blob.run.text + ", epoch " +
         std::to_string(blob.epoch.value) + ", round " + std::to_string(blob.round.value) + ", attempt " +
         std::to_string(blob.attempt.value);
}

Bytes encode_head(const Frame& frame) {
  Bytes out;
  out.reserve(128);
  std::visit([&out](const auto& body) { append_body(out, body); }, frame);
  return out;
}

Result<Frame> decode_head(ByteView head) {
  if (head.size() > kMaxPieceHeadBytes) {
    return corrupt("the head is too long");
  }
  ByteReader reader(head);
  ATOLL_ASSIGN(Common common, read_common(reader));
  Result<Frame> frame = [&]() -> Result<Frame> {
    switch (static_cast<Type>(common.type)) {
      case Type::want:
        return read_want(reader, std::move(common.blob));
      case Type::piece:
        return read_piece(reader, std::move(common.blob));
      case Type::gone:
        return read_gone(reader, std::move(common.blob));
    }
    return corrupt("an unknown type");
  }();
  if (frame && !reader.rest().empty()) {
    return corrupt("bytes after its end");
  }
  return frame;
}

}  // namespace atl
