// UPnP with libminiupnpc: the first Internet Gateway Device of this machine's network that is connected.
#include <miniupnpc/miniupnpc.h>
#include <miniupnpc/upnpcommands.h>
#include <miniupnpc/upnperrors.h>

#include <array>

#include "transport/mapping/port_mapping.hpp"
#include "transport/mapping/routers.hpp"

namespace atl {
namespace {

constexpr int kDiscoveryMs = 1500;
constexpr int kConflict = 718;             // another machine has this port
constexpr int kOnlyPermanentLeases = 725;  // of routers that know no others
constexpr std::uint16_t kPortsToTry = 8;

class UpnpMapping final : public RouterMapping {
 public:
  explicit UpnpMapping(std::uint16_t own_port) : own_port_(own_port) { way = "UPnP"; }
  ~UpnpMapping() override { FreeUPNPUrls(&urls_); }

  Status find() {
    int failure = 0;
    UPNPDev* const devices = upnpDiscover(kDiscoveryMs, nullptr, nullptr, UPNP_LOCAL_PORT_ANY, 0, 2, &failure);
    if (devices == nullptr) {
      return Error{Code::unavailable, "no router answers"};
    }
#if MINIUPNPC_API_VERSION >= 18
    std::array<char, 64> outside{};
    const int kind = UPNP_GetValidIGD(devices, &urls_, &data_, lan_.data(), static_cast<int>(lan_.size()), outside.data(),
                                      static_cast<int>(outside.size()));
    const bool connected = kind == 1 || kind == 2;  // 2: at an address that is not public
#else
    const int kind = UPNP_GetValidIGD(devices, &urls_, &data_, lan_.data(), static_cast<int>(lan_.size()));
    const bool connected = kind == 1;
#endif
    freeUPNPDevlist(devices);
    return connected ? Status() : Error{Code::unavailable, "no device that answers is a router that is connected"};
  }

  Status renew() override {
    std::array<char, 64> outside{};
    const int failure = UPNP_GetExternalIPAddress(urls_.controlURL, data_.first.servicetype, outside.data());
    outside.back() = '\0';
    if (failure != 0 || !can_be_public(outside.data())) {
      return Error{Code::unavailable,
                   "the router has no address that others could dial" +
                       (failure != 0 ? " (" + std::to_string(failure) + ")" : ": it says " + std::string(outside.data()))};
    }
    int refused = kConflict;
    const std::uint16_t first = port != 0 ? port : own_port_;
    for (std::uint32_t i = 0; i < kPortsToTry && refused == kConflict && first + i <= UINT16_MAX; ++i) {
      port = static_cast<std::uint16_t>(first + i);
      refused = add();
    }
    if (refused != 0) {
      const char* const meaning = strupnperror(refused);
      return Error{Code::unavailable,
                   "the router gives no port: " + std::string(meaning == nullptr ? "" : meaning) + " (" + std::to_string(refused) + ")"};
    }
    host = outside.data();
    return {};
  }

  void remove() override {
    (void)UPNP_DeletePortMapping(urls_.controlURL, data_.first.servicetype, std::to_string(port).c_str(), "TCP", nullptr);
  }

 private:
  int add() {
    const auto ask = [&](const std::string& lease) {
      return UPNP_AddPortMapping(urls_.controlURL, data_.first.servicetype, std::to_string(port).c_str(), std::to_string(own_port_).c_str(),
                                 lan_.data(), "Atoll", "TCP", nullptr, lease.c_str());
    };
    const int answer = ask(std::to_string(kMappingLease.count()));
    return answer == kOnlyPermanentLeases ? ask("0") : answer;
  }

  std::uint16_t own_port_;
  std::array<char, 64> lan_{};  // this machine's address in the router's network
  UPNPUrls urls_{};
  IGDdatas data_{};
};

}  // namespace

Result<std::unique_ptr<RouterMapping>> map_by_upnp(std::uint16_t port) {
  auto mapping = std::make_unique<UpnpMapping>(port);
  ATOLL_TRY(mapping->find());
  ATOLL_TRY(mapping->renew());
  return std::unique_ptr<RouterMapping>(std::move(mapping));
}

}  // namespace atl
