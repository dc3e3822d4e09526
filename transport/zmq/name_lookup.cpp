#include "transport/zmq/name_lookup.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace atl {
namespace {

bool is_number(const std::string& host) {
  in_addr four{};
  return host.find(':') != std::string::npos || ::inet_pton(AF_INET, host.c_str(), &four) == 1;
}

}  // namespace

Result<std::vector<Address>> resolve(const Address& address) {
  if (address.host == "localhost") {
    return std::vector<Address>{{"127.0.0.1", address.port}, {"::1", address.port}};
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const int problem = ::getaddrinfo(address.host.c_str(), nullptr, &hints, &first);
  if (problem != 0) {
    return Error{Code::unavailable, "the name " + address.host + " cannot be resolved (" + ::gai_strerror(problem) + ")"};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(first, &::freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* one = list.get(); one != nullptr && addresses.size() < kMostAddresses; one = one->ai_next) {
    std::array<char, NI_MAXHOST> host{};
    if (::getnameinfo(one->ai_addr, one->ai_addrlen, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    Address found{host.data(), address.port};
    if (std::ranges::find(addresses, found) == addresses.end()) {
      addresses.push_back(std::move(found));
    }
  }
  return addresses.empty() ? Result<std::vector<Address>>(Error{Code::unavailable, "the name " + address.host + " has no address"})
                           : Result<std::vector<Address>>(std::move(addresses));
}

struct NameLookup::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Result<std::vector<Address>>> found;
};

NameLookup::NameLookup(const Address& address, Resolver resolver) : shared_(std::make_shared<Shared>()) {
  if (is_number(address.host)) {
    shared_->found = resolver(address);
    return;
  }
  std::thread([shared = shared_, address, resolver = std::move(resolver)] {
    Result<std::vector<Address>> found = resolver(address);
    const std::lock_guard lock(shared->mutex);
    shared->found = std::move(found);
    shared->changed.notify_all();
  }).detach();  // nothing ends a resolver that waits
}

std::optional<Result<std::vector<Address>>> NameLookup::result(Duration at_most) const {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait_for(lock, at_most, [&] { return shared_->found.has_value(); });
  return shared_->found;
}

}  // namespace atl
