// Which proxy leads out of this network, and what is reached without it.
//
// `--proxy URL` names it, else the first of all_proxy, ALL_PROXY, https_proxy and HTTPS_PROXY that is set; `--proxy none` is none.
// Kinds: socks5 (names are looked up on this machine), socks5h (by the proxy), http (CONNECT). A URL without a kind is http's. A proxy that
// is spoken to by TLS (https) carries no links: what comes out of libcurl's TLS is no socket that the kernel can move bytes from.
// Without it: this machine itself, addresses in the networks of its interfaces, and what no_proxy or NO_PROXY lists: names with all
// that is below them, addresses, networks like 10.0.0.0/8, or * for everything. Of a name only the list is asked: it is not looked up.
// Threads: values are plain; own_proxy() may be called from any, and what it says is set before there are others.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"

namespace atl {

struct Proxy {
  std::string url;     // with name and password. Secret: never logged, never in a message
  std::string shown;   // without them: "socks5h://proxy.example.org:1080"
  std::string host;    // of the proxy; IPv6 without its brackets
  std::string source;  // where it was named: "--proxy", "ALL_PROXY"
  bool has_password = false;
};

class ProxyRules {
 public:
  // The value of a variable, if it is set.
  using Variables = std::function<std::optional<std::string>(const std::string&)>;
  // `given`: of --proxy; empty: the variables say. Errors: invalid_argument naming the source, without the URL's password.
  static Result<ProxyRules> read(const std::string& given, const Variables& variables);

  [[nodiscard]] const std::optional<Proxy>& proxy() const { return proxy_; }
  // The proxy over which this host, a name or an address, is reached; null: it is dialled directly. Asks the kernel for interfaces.
  [[nodiscard]] const Proxy* towards(const std::string& host) const;
  // The same for the host of "tcp://host:port".
  [[nodiscard]] const Proxy* towards_address(std::string_view address) const;

  // For libcurl: what --proxy said, where it was given. Nothing: libcurl follows the variables by itself, https_proxy before all_proxy.
  [[nodiscard]] bool given() const { return given_; }
  [[nodiscard]] const std::string& spared() const { return spared_; }

 private:
  std::optional<Proxy> proxy_;
  std::string spared_;  // the list of NO_PROXY
  bool given_ = false;
};

// Those of this process: none, until the command line sets them.
const ProxyRules& own_proxy();
void set_own_proxy(ProxyRules rules);

}  // namespace atl
