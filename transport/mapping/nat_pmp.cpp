// NAT-PMP (RFC 6886) with libnatpmp: the gateway of the default route is asked.
#include <arpa/inet.h>
#include <natpmp.h>
#include <poll.h>

#include <algorithm>
#include <array>

#include "transport/base/time.hpp"
#include "transport/mapping/port_mapping.hpp"
#include "transport/mapping/routers.hpp"

namespace atl {
namespace {

constexpr Duration kPatience = std::chrono::seconds(2);  // three requests: after 0, 250 and 750 ms

class NatPmpMapping final : public RouterMapping {
 public:
  NatPmpMapping(std::uint16_t own_port, int stop) : own_port_(own_port), stop_(stop) {
    way = "NAT-PMP";
    port = own_port;
  }
  ~NatPmpMapping() override {
    if (opened_) {
      closenatpmp(&router_);
    }
  }

  Status renew() override {
    if (!opened_) {
      if (const int failure = initnatpmp(&router_, 0, 0); failure != 0) {
        return Error{Code::unavailable, "this machine has no gateway that could be asked"};
      }
      opened_ = true;
    }
    if (sendpublicaddressrequest(&router_) < 0) {
      return Error{Code::unavailable, "the gateway cannot be asked"};
    }
    ATOLL_ASSIGN(const natpmpresp_t where, answer());
    std::array<char, INET_ADDRSTRLEN> text{};
    ::inet_ntop(AF_INET, &where.pnu.publicaddress.addr, text.data(), text.size());
    if (where.type != NATPMP_RESPTYPE_PUBLICADDRESS || !can_be_public(text.data())) {
      return Error{Code::unavailable, "the gateway has no address that others could dial: it says " + std::string(text.data())};
    }
    ATOLL_ASSIGN(const natpmpresp_t what, ask(port, static_cast<std::uint32_t>(kMappingLease.count())));
    if (what.type != NATPMP_RESPTYPE_TCPPORTMAPPING || what.pnu.newportmapping.mappedpublicport == 0) {
      return Error{Code::unavailable, "the gateway gave no port"};
    }
    host = text.data();
    port = what.pnu.newportmapping.mappedpublicport;
    return {};
  }

  // A lifetime of 0 with the port 0 (RFC 6886, section 3.4).
  void remove() override {
    stop_ = -1;
    (void)ask(0, 0);
  }

 private:
  Result<natpmpresp_t> ask(std::uint16_t public_port, std::uint32_t lifetime) {
    if (sendnewportmappingrequest(&router_, NATPMP_PROTOCOL_TCP, own_port_, public_port, lifetime) < 0) {
      return Error{Code::unavailable, "the gateway cannot be asked"};
    }
    return answer();
  }

  Result<natpmpresp_t> answer() {
    const TimePoint until = now() + kPatience;
    while (now() < until) {
      timeval left{};
      if (getnatpmprequesttimeout(&router_, &left) != 0) {
        break;
      }
      const auto ms = std::clamp<std::int64_t>(left.tv_sec * 1000 + left.tv_usec / 1000 + 1, 0, 1000);
      std::array<pollfd, 2> fds{{{router_.s, POLLIN, 0}, {stop_, POLLIN, 0}}};
      ::poll(fds.data(), fds.size(), static_cast<int>(ms));
      if (stop_ >= 0 && (fds[1].revents & POLLIN) != 0) {
        return Error{Code::cancelled, "not waited for any more"};
      }
      natpmpresp_t response{};
      const int read = readnatpmpresponseorretry(&router_, &response);
      if (read == 0) {
        return response;
      }
      if (read != NATPMP_TRYAGAIN) {
        return Error{Code::unavailable, read == NATPMP_ERR_NOTAUTHORIZED ? std::string("the gateway does not allow it")
                                                                         : "the gateway gives no port (" + std::to_string(read) + ")"};
      }
    }
    return Error{Code::unavailable, "the gateway does not answer"};
  }

  std::uint16_t own_port_;
  int stop_;
  bool opened_ = false;
  natpmp_t router_{};
};

}  // namespace

Result<std::unique_ptr<RouterMapping>> map_by_nat_pmp(std::uint16_t port, int stop) {
  auto mapping = std::make_unique<NatPmpMapping>(port, stop);
  ATOLL_TRY(mapping->renew());
  return std::unique_ptr<RouterMapping>(std::move(mapping));
}

}  // namespace atl
