#include "transport/relay/relay_ticket.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "transport/base/address.hpp"
#include "transport/base/file_descriptor.hpp"
#include "transport/base/name.hpp"
#include "transport/identity/hmac.hpp"
#include "transport/identity/identity.hpp"

namespace atl {
namespace {

constexpr std::string_view kLabel = "atoll-relay";
constexpr std::size_t kSecretBytes = 32;

}  // namespace

Bytes relay_secret(const std::string& secret_key) {
  const Digest secret = hmac_sha256(as_bytes(secret_key), as_bytes("atoll relay ticket"));
  return Bytes(secret.bytes.begin(), secret.bytes.end());
}

std::string to_text(const RelayTicket& ticket) {
  return std::string(kLabel) + " " + ticket.name + " " + ticket.address + " " + to_hex(ticket.secret) + "\n";
}

Result<RelayTicket> ticket_from_text(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string label;
  std::string name;
  std::string where;
  std::string secret;
  std::string more;
  words >> label >> name >> where >> secret;
  const Result<Address> address = parse_address(where);
  const Result<Bytes> bytes = from_hex(secret);
  if (label != kLabel || !is_name(name) || !address || address->host == "*" || address->port == 0 || !bytes ||
      bytes->size() != kSecretBytes || words >> more) {
    return Error{Code::invalid_argument,
                 "it is no relay's ticket, which is one line: atoll-relay NAME tcp://HOST:PORT SECRET (`atoll relay` writes it)"};
  }
  return RelayTicket{name, to_string(*address), *bytes, true};
}

Result<RelayTicket> read_ticket(const std::filesystem::path& path) {
  const Result<std::string> text = read_private_text(path);
  if (!text) {
    return text.error().code == Code::not_found ? Error{Code::not_found, "there is no relay's ticket " + path.string()} : text.error();
  }
  Result<RelayTicket> ticket = ticket_from_text(*text);
  return ticket ? ticket : Result<RelayTicket>(with_context(ticket.error(), path.string()));
}

Status write_ticket(const std::filesystem::path& path, const RelayTicket& ticket) {
  const std::string text = to_text(ticket);
  const std::string temporary = path.string() + ".new";
  const auto failed = [&](const char* what) {
    const Error error{Code::io, std::string("cannot ") + what + " " + path.string() + ": " + std::strerror(errno)};
    ::unlink(temporary.c_str());
    return error;
  };
  ::unlink(temporary.c_str());
  {
    const FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file.is_open() || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) || ::fsync(file.get()) != 0) {
      return failed("write");
    }
  }
  return ::rename(temporary.c_str(), path.c_str()) == 0 ? Status() : Status(failed("replace"));
}

}  // namespace atl
