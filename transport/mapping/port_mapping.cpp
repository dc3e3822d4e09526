#include "transport/mapping/port_mapping.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "transport/base/address.hpp"
#include "transport/base/file_descriptor.hpp"
#include "transport/base/log.hpp"
#include "transport/base/time.hpp"
#include "transport/mapping/routers.hpp"

namespace atl {
namespace {

constexpr Duration kFirstRest = std::chrono::seconds(10);
constexpr Duration kLongestRest = std::chrono::minutes(15);

}  // namespace

bool can_be_public(std::string_view host) {
  in_addr address{};
  if (::inet_pton(AF_INET, std::string(host).c_str(), &address) != 1) {
    return false;
  }
  const std::uint32_t bits = ntohl(address.s_addr);
  const std::uint32_t first = bits >> 24U;
  return first != 0 && first != 127 && first < 224 && bits >> 16U != 0xA9FE;
}

struct PortMapping::State {
  explicit State(std::uint16_t own_port) : port(own_port), thread([this] { work(); }) {}

  void work() {
    Duration rest = kFirstRest;
    while (!stopped) {
      keep();
      publish();
      if (mapping != nullptr) {
        rest = kFirstRest;
        wait(kMappingLease / 2);
      } else {
        wait(rest);
        rest = std::min(rest * 2, kLongestRest);
      }
      if (again.exchange(false)) {
        // The router may be another one, which has not been asked.
        mapping.reset();
        rest = kFirstRest;
      }
    }
    if (mapping != nullptr) {
      mapping->remove();
    }
  }

  void keep() {
    if (mapping != nullptr) {
      if (const Status renewed = mapping->renew(); !renewed) {
        log_warning("the router passes port " + std::to_string(mapping->port) + " on no longer: " + renewed.error().why);
        mapping.reset();
      }
    }
    if (mapping == nullptr) {
      Result<std::unique_ptr<RouterMapping>> found = map_by_nat_pmp(port, wake.get());
      if (!found && !stopped) {
        log_debug("NAT-PMP: " + found.error().why);
        found = map_by_upnp(port);
        log_debug(found ? std::string("UPnP: a router answers") : "UPnP: " + found.error().why);
      }
      mapping = found ? std::move(found).value() : nullptr;
    }
  }

  void publish() {
    const std::string text = mapping == nullptr ? std::string() : to_string(Address{mapping->host, mapping->port});
    const std::lock_guard lock(mutex);
    if (text == address) {
      return;
    }
    if (mapping != nullptr) {
      log_info("the router passes " + text + " on to this island (" + mapping->way + ", asked for by Atoll)");
    }
    address = text;
    news = true;
  }

  void wait(Duration at_most) {
    pollfd fd{wake.get(), POLLIN, 0};
    if (!stopped && ::poll(&fd, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(at_most).count())) > 0) {
      std::uint64_t count = 0;
      (void)!::read(wake.get(), &count, sizeof count);
    }
  }

  void rouse(std::atomic<bool>& flag) {
    flag = true;
    const std::uint64_t one = 1;
    (void)!::write(wake.get(), &one, sizeof one);
  }

  std::uint16_t port;
  FileDescriptor wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<bool> stopped = false;
  std::atomic<bool> again = false;
  std::unique_ptr<RouterMapping> mapping;  // the thread's
  mutable std::mutex mutex;
  std::string address;
  bool news = false;
  std::thread thread;  // the last to begin
};

PortMapping::PortMapping(std::uint16_t port) : state_(std::make_unique<State>(port)) {}

PortMapping::~PortMapping() {
  state_->rouse(state_->stopped);
  state_->thread.join();
}

std::string PortMapping::address() const {
  const std::lock_guard lock(state_->mutex);
  return state_->address;
}

bool PortMapping::changed() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->news, false);
}

void PortMapping::look_again() { state_->rouse(state_->again); }

}  // namespace atl
