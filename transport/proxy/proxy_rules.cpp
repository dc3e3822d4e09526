#include "transport/proxy/proxy_rules.hpp"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <memory>
#include <utility>

#include "transport/bulk/interface_addresses.hpp"

namespace atl {
namespace {

constexpr std::string_view kExpected = "expected socks5://, socks5h:// or http://[USER:PASSWORD@]HOST:PORT, or --proxy none";

std::string lower(std::string_view text) {
  std::string low(text);
  std::ranges::transform(low, low.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return low;
}

std::string part_of(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  std::string copy;
  if (curl_url_get(url, part, &text, 0) == CURLUE_OK && text != nullptr) {
    copy = text;
    curl_free(text);
  }
  return copy;
}

Result<Proxy> read_proxy(const std::string& text, const std::string& source) {
  const auto wrong = [&](const std::string& why) { return Error{Code::invalid_argument, source + " names no proxy: " + why}; };
  const std::string whole = text.find("://") == std::string::npos ? "http://" + text : text;
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url(curl_url(), &curl_url_cleanup);
  if (!url || curl_url_set(url.get(), CURLUPART_URL, whole.c_str(), CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK) {
    return wrong("it is no URL; " + std::string(kExpected));
  }
  const std::string kind = lower(part_of(url.get(), CURLUPART_SCHEME));
  if (kind == "https") {
    return wrong("a proxy that is itself spoken to by TLS (https://) cannot carry links; most take http:// as well, at another port");
  }
  if (kind != "socks5" && kind != "socks5h" && kind != "http") {
    return wrong("its kind is none that is spoken here; " + std::string(kExpected));
  }
  const std::string path = part_of(url.get(), CURLUPART_PATH);
  if ((!path.empty() && path != "/") || !part_of(url.get(), CURLUPART_QUERY).empty()) {
    return wrong("something follows the port; " + std::string(kExpected));
  }
  if (part_of(url.get(), CURLUPART_PORT).empty()) {
    (void)curl_url_set(url.get(), CURLUPART_PORT, kind == "http" ? "80" : "1080", 0);
  }
  Proxy proxy;
  proxy.source = source;
  proxy.host = part_of(url.get(), CURLUPART_HOST);
  proxy.has_password = !part_of(url.get(), CURLUPART_USER).empty();
  proxy.url = part_of(url.get(), CURLUPART_URL);
  proxy.shown = kind + "://" + proxy.host + ":" + part_of(url.get(), CURLUPART_PORT);
  if (proxy.host.size() > 2 && proxy.host.front() == '[') {
    proxy.host = proxy.host.substr(1, proxy.host.size() - 2);
  }
  return proxy;
}

// An entry of NO_PROXY: "*", "example.org", ".example.org", "10.1.2.3", "10.0.0.0/8", "[2001:db8::1]".
bool is_of(std::string_view entry, const std::string& host) {
  if (entry == "*") {
    return true;
  }
  if (entry.size() > 2 && entry.front() == '[' && entry.back() == ']') {
    entry = entry.substr(1, entry.size() - 2);
  }
  entry.remove_prefix(entry.starts_with("*.") ? 2 : entry.starts_with('.') ? 1 : 0);
  if (const std::size_t slash = entry.find('/'); slash != std::string_view::npos) {
    unsigned prefix = 0;
    const std::string_view bits = entry.substr(slash + 1);
    const auto [end, error] = std::from_chars(bits.data(), bits.data() + bits.size(), prefix);
    return error == std::errc{} && end == bits.data() + bits.size() &&
           is_neighbour({"", std::string(entry.substr(0, slash)), prefix, false, false}, host);
  }
  return !entry.empty() && host.ends_with(entry) && (host.size() == entry.size() || host[host.size() - entry.size() - 1] == '.');
}

bool is_listed(std::string_view list, const std::string& host) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find_first_of(", \t"), list.size());
    if (is_of(lower(list.substr(0, end)), host)) {
      return true;
    }
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

ProxyRules& of_process() {
  static ProxyRules rules;
  return rules;
}

}  // namespace

Result<ProxyRules> ProxyRules::read(const std::string& given, const Variables& variables) {
  const auto value_of = [&](const std::string& name) { return variables(name).value_or(""); };
  ProxyRules rules;
  rules.given_ = !given.empty();
  rules.spared_ = value_of("no_proxy").empty() ? value_of("NO_PROXY") : value_of("no_proxy");
  if (rules.given_ && lower(given) != "none") {
    ATOLL_ASSIGN(rules.proxy_, read_proxy(given, "--proxy"));
  }
  static constexpr std::array<const char*, 4> kVariables = {"all_proxy", "ALL_PROXY", "https_proxy", "HTTPS_PROXY"};
  const auto* set = std::ranges::find_if(kVariables, [&](const char* name) { return !value_of(name).empty(); });
  if (!rules.given_ && set != kVariables.end()) {
    ATOLL_ASSIGN(rules.proxy_, read_proxy(value_of(*set), *set));
  }
  return rules;
}

const Proxy* ProxyRules::towards(const std::string& host) const {
  if (!proxy_ || Address{host, 0}.is_loopback() || is_listed(spared_, lower(host))) {
    return nullptr;
  }
  const std::vector<InterfaceAddress> own = interface_addresses();
  return std::ranges::any_of(own, [&](const auto& one) { return is_neighbour(one, host); }) ? nullptr : &*proxy_;
}

const Proxy* ProxyRules::towards_address(std::string_view address) const {
  const Result<Address> parsed = proxy_ ? parse_address(address) : Result<Address>(Address{});
  return proxy_ && parsed ? towards(parsed->host) : nullptr;
}

const ProxyRules& own_proxy() { return of_process(); }
void set_own_proxy(ProxyRules rules) { of_process() = std::move(rules); }

}  // namespace atl
