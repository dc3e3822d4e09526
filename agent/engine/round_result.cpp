#include "agent/engine/round_result.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "agent/engine/result_digest.hpp"
#include "transport/identity/sha256.hpp"

namespace atl {
namespace {

constexpr std::uint32_t kMagic = 0x524C5441;  // "ATLR"
constexpr std::uint32_t kPlain = 1;
constexpr std::uint32_t kWithNorms = 2;

Error broken(const char* why) { return {Code::corrupt, std::string("the round's result does not verify: ") + why}; }

}  // namespace

Bytes header_of(const RoundResult& result) {
  Bytes out;
  append_le(out, kMagic);
  const bool norms = std::ranges::any_of(result.terms, [](const EncodedTerm& term) { return term.norm != 0.0; });
  append_le(out, norms ? kWithNorms : kPlain);
  append_le(out, result.round.value);
  append_le(out, result.fragment);
  append_le(out, static_cast<std::uint32_t>(result.codec.kind));
  append_le(out, result.codec.block);
  append_le(out, static_cast<std::uint32_t>(result.codec.rounding));
  append_le(out, result.values);
  append_le(out, static_cast<std::uint32_t>(result.terms.size()));
  for (const EncodedTerm& term : result.terms) {
    append_le(out, std::bit_cast<std::uint32_t>(term.weight));
    append_le(out, static_cast<std::uint64_t>(term.bytes.size()));
    if (norms) {
      append_le(out, std::bit_cast<std::uint64_t>(term.norm));
    }
  }
  return out;
}

Digest digest_after(const Digest& previous, const RoundResult& result, const InParts& in_parts) {
  std::vector<ByteView> terms;
  std::vector<std::uint64_t> sizes;
  for (const EncodedTerm& term : result.terms) {
    terms.push_back(term.bytes);
    sizes.push_back(term.bytes.size());
  }
  return ResultDigest(sizes).after(previous, header_of(result), terms, in_parts);
}

Digest initial_digest(std::string_view manifest, std::span<const float> parameters) {
  Sha256 hash;
  hash.update(as_bytes("atoll initial state\n"));
  hash.update(as_bytes(manifest));
  hash.update(std::as_bytes(parameters));
  return hash.finish();
}

Result<RoundResult> parse_result(ByteView bytes) {
  ByteReader reader(bytes);
  RoundResult result;
  ATOLL_ASSIGN(const std::uint32_t magic, reader.read<std::uint32_t>());
  ATOLL_ASSIGN(const std::uint32_t version, reader.read<std::uint32_t>());
  if (magic != kMagic || (version != kPlain && version != kWithNorms)) {
    return broken("its first bytes");
  }
  ATOLL_ASSIGN(result.round.value, reader.read<std::uint64_t>());
  ATOLL_ASSIGN(result.fragment, reader.read<std::uint32_t>());
  ATOLL_ASSIGN(const std::uint32_t kind, reader.read<std::uint32_t>());
  ATOLL_ASSIGN(result.codec.block, reader.read<std::uint32_t>());
  ATOLL_ASSIGN(const std::uint32_t rounding, reader.read<std::uint32_t>());
  ATOLL_ASSIGN(result.values, reader.read<std::uint64_t>());
  ATOLL_ASSIGN(const std::uint32_t terms, reader.read<std::uint32_t>());
  if (kind >= kCodecKinds.size() || rounding >= kRoundings.size() || terms > kMaxTerms || result.values == 0 ||
      result.values > (1ULL << 48)) {
    return broken("a number out of bounds");
  }
  result.codec.kind = static_cast<CodecKind>(kind);
  result.codec.rounding = static_cast<Rounding>(rounding);
  ATOLL_TRY(check_codec(result.codec));
  std::vector<std::uint64_t> sizes;
  for (std::uint32_t i = 0; i < terms; ++i) {
    ATOLL_ASSIGN(const std::uint32_t weight, reader.read<std::uint32_t>());
    ATOLL_ASSIGN(const std::uint64_t size, reader.read<std::uint64_t>());
    std::uint64_t norm = 0;
    if (version == kWithNorms) {
      ATOLL_ASSIGN(norm, reader.read<std::uint64_t>());
    }
    result.terms.push_back({{}, std::bit_cast<float>(weight), std::bit_cast<double>(norm)});
    sizes.push_back(size);
    if (!std::isfinite(result.terms.back().norm) || result.terms.back().norm < 0.0) {
      return broken("a term's norm");
    }
    if (!std::isfinite(result.terms.back().weight) || !can_encode(result.codec, size, result.values)) {
      return broken("a term's weight or size");
    }
  }
  for (std::uint32_t i = 0; i < terms; ++i) {
    ATOLL_ASSIGN(result.terms[i].bytes, reader.read_bytes(static_cast<std::size_t>(sizes[i])));
  }
  if (!reader.rest().empty()) {
    return broken("bytes are left over");
  }
  return result;
}

Result<StoredResult> StoredResult::open(const DiskPath& path) {
  ATOLL_ASSIGN(const std::unique_ptr<DiskFile> file, path.open(OpenFor::reading));
  ATOLL_ASSIGN(const MappedBytes mapped, file->map());
  StoredResult stored;
  stored.mapping_ = mapped.owner;
  Result<RoundResult> result = parse_result(mapped.bytes);
  if (!result) {
    return with_context(result.error(), path.text());
  }
  stored.result_ = *std::move(result);
  return stored;
}

Status write_result(const DiskPath& path, const RoundResult& result) {
  const DiskPath fresh = path + ".new";
  ATOLL_ASSIGN(DurableFile file, DurableFile::create(fresh));
  ATOLL_TRY(file.write(header_of(result)));
  for (const EncodedTerm& term : result.terms) {
    ATOLL_TRY(file.write(term.bytes));
  }
  ATOLL_ASSIGN([[maybe_unused]] const FileFacts facts, file.finish());
  return rename_durably(fresh, path);
}

Status write_result_for_now(const DiskPath& path, const RoundResult& result) {
  ATOLL_ASSIGN(const std::unique_ptr<DiskFile> file, path.open(OpenFor::creating));
  const Bytes header = header_of(result);
  ATOLL_TRY(file->write(0, header));
  std::uint64_t written = header.size();
  for (const EncodedTerm& term : result.terms) {
    ATOLL_TRY(file->write(written, term.bytes));
    written += term.bytes.size();
  }
  return {};
}

}  // namespace atl
