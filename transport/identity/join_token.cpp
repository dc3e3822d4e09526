#include "transport/identity/join_token.hpp"

#include <openssl/rand.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "transport/base/address.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/plain_text.hpp"
#include "transport/identity/identity.hpp"
#include "transport/identity/sha256.hpp"

namespace atl {
namespace {

constexpr std::string_view kPrefix = "atoll1-";
constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::size_t kChecksumBytes = 4;
constexpr std::size_t kMaxTextBytes = 2048;

std::string to_base64url(ByteView bytes) {
  std::string text;
  std::uint32_t bits = 0;
  unsigned held = 0;
  for (const std::byte byte : bytes) {
    bits = bits << 8U | std::to_integer<std::uint32_t>(byte);
    for (held += 8; held >= 6; held -= 6) {
      text += kAlphabet[bits >> (held - 6) & 63U];
    }
  }
  if (held > 0) {
    text += kAlphabet[bits << (6 - held) & 63U];
  }
  return text;
}

Result<Bytes> from_base64url(std::string_view text) {
  Bytes bytes;
  std::uint32_t bits = 0;
  unsigned held = 0;
  for (const char c : text) {
    const std::size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) {
      return Error{Code::invalid_argument, "it has a character that no join token has"};
    }
    bits = bits << 6U | static_cast<std::uint32_t>(value);
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes.push_back(static_cast<std::byte>(bits >> held & 255U));
    }
  }
  return bytes;
}

void append_text(Bytes& out, std::string_view text) {
  append_le(out, static_cast<std::uint8_t>(text.size()));
  const ByteView bytes = as_bytes(text);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

Result<std::string> read_text(ByteReader& reader) {
  ATOLL_ASSIGN(const auto size, reader.read<std::uint8_t>());
  ATOLL_ASSIGN(const ByteView bytes, reader.read_bytes(size));
  return std::string(as_text(bytes));
}

Status check(const JoinToken& token) {
  ATOLL_TRY(parse_address(token.coordinator_address).has_value() ? Status{} : Status{parse_address(token.coordinator_address).error()});
  if (token.coordinator_address.size() > 255) {
    return Error{Code::invalid_argument, "the coordinator's address is too long"};
  }
  if (!is_key(token.coordinator_key)) {
    return Error{Code::invalid_argument, "the coordinator's key is not a Curve25519 key in Z85"};
  }
  if (token.secret.empty() || token.secret.size() > 128 || !is_plain(token.secret, TextRule::name)) {
    return Error{Code::invalid_argument, "the secret is empty, too long or not printable"};
  }
  if (token.role != "island" && token.role != "operator") {
    return Error{Code::invalid_argument, "the role has to be island or operator"};
  }
  return {};
}

Result<JoinToken> read_fields(ByteView bytes) {
  ByteReader reader(bytes);
  JoinToken token;
  ATOLL_ASSIGN(const auto role, reader.read<std::uint8_t>());
  token.role = role == 0 ? "island" : role == 1 ? "operator" : "unknown";
  ATOLL_ASSIGN(const auto expires_ms, reader.read<std::int64_t>());
  constexpr std::int64_t kLastMs = 9'000'000'000'000;  // the year 2255: TimePoint ends in 2262
  if (expires_ms < 0 || expires_ms > kLastMs) {
    return Error{Code::invalid_argument, "its expiry is no time"};
  }
  token.expires = from_unix_ms(expires_ms);
  ATOLL_ASSIGN(const ByteView key, reader.read_bytes(32));
  std::array<char, 41> z85{};
  zmq_z85_encode(z85.data(), reinterpret_cast<const std::uint8_t*>(key.data()), key.size());
  token.coordinator_key = z85.data();
  ATOLL_ASSIGN(token.secret, read_text(reader));
  ATOLL_ASSIGN(token.coordinator_address, read_text(reader));
  if (!reader.rest().empty()) {
    return Error{Code::invalid_argument, "it is too long"};
  }
  ATOLL_TRY(check(token));
  return token;
}

ByteView checksum_of(const Digest& digest) { return ByteView(digest.bytes).first(kChecksumBytes); }

}  // namespace

std::string make_token_secret() {
  std::array<std::byte, 24> bytes{};
  ATOLL_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size())) == 1,
              "the system gives no random numbers");
  return to_base64url(bytes);
}

Result<std::string> to_text(const JoinToken& token) {
  if (const Status good = check(token); !good) {
    return with_context(good.error(), "cannot make a join token");
  }
  Bytes bytes;
  append_le(bytes, static_cast<std::uint8_t>(token.role == "island" ? 0 : 1));
  append_le(bytes, unix_ms(token.expires));
  std::array<std::uint8_t, 32> key{};
  zmq_z85_decode(key.data(), token.coordinator_key.c_str());
  const auto key_bytes = std::as_bytes(std::span(key));
  bytes.insert(bytes.end(), key_bytes.begin(), key_bytes.end());
  append_text(bytes, token.secret);
  append_text(bytes, token.coordinator_address);
  const Digest digest = sha256(bytes);
  bytes.insert(bytes.end(), checksum_of(digest).begin(), checksum_of(digest).end());
  return std::string(kPrefix) + to_base64url(bytes);
}

Result<JoinToken> join_token_from_text(std::string_view text) {
  std::string word;
  for (const char c : text.substr(0, kMaxTextBytes)) {
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
      word += c;
    }
  }
  if (!word.starts_with(kPrefix)) {
    return Error{Code::invalid_argument,
                 "this is not a join token: one begins with " + std::string(kPrefix) + " (`atoll token create` prints it)"};
  }
  const Error damaged{Code::invalid_argument, "the join token is damaged: copy it again, in full"};
  const Result<Bytes> bytes = from_base64url(std::string_view(word).substr(kPrefix.size()));
  if (!bytes || bytes->size() <= kChecksumBytes) {
    return damaged;
  }
  const ByteView content = ByteView(*bytes).first(bytes->size() - kChecksumBytes);
  const Digest digest = sha256(content);
  if (!std::ranges::equal(checksum_of(digest), ByteView(*bytes).last(kChecksumBytes)) ||
      to_base64url(*bytes) != word.substr(kPrefix.size())) {
    return damaged;
  }
  Result<JoinToken> token = read_fields(content);
  if (!token) {
    return Error{Code::invalid_argument, "the join token cannot be used: " + token.error().why};
  }
  return token;
}

Status check_expiry(const JoinToken& token, TimePoint now) {
  if (now < token.expires) {
    return {};
  }
  return Error{Code::unauthorized, "the join token expired at " + iso_time(token.expires) + "; ask for a new one (`atoll token create`)"};
}

}  // namespace atl
