#include "transport/base/free_port.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "transport/base/file_descriptor.hpp"
#include "transport/base/random_number.hpp"

namespace atl {
namespace {

constexpr std::uint16_t kFirst = 20000;
constexpr std::uint16_t kLast = 32767;
constexpr int kDraws = 100;

}  // namespace

Result<std::uint16_t> free_port(const std::string& host) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    return Error{Code::invalid_argument, "'" + host + "' is no IPv4 address"};
  }
  for (int i = 0; i < kDraws; ++i) {
    const std::uint16_t port = static_cast<std::uint16_t>(kFirst + random_number() % (kLast - kFirst + 1U));
    const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address.sin_port = htons(port);
    if (socket.is_open() && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      return port;
    }
  }
  return Error{Code::io, "no port of " + host + " between " + std::to_string(kFirst) + " and " + std::to_string(kLast) + " was free in " +
                             std::to_string(kDraws) + " draws"};
}

}  // namespace atl
