// Which proxy --proxy and the variables name, and what is reached without it.
#include "transport/proxy/proxy_rules.hpp"

#include <map>

#include "tests/catch.hpp"
#include "transport/bulk/interface_addresses.hpp"

namespace of_proxy_rules_test {

using namespace atl;

Result<ProxyRules> read(const std::string& given, const std::map<std::string, std::string>& variables = {}) {
  return ProxyRules::read(given, [&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string shown(const std::string& given, const std::map<std::string, std::string>& variables = {}) {
  const Result<ProxyRules> rules = read(given, variables);
  REQUIRE(rules);
  return rules->proxy() ? rules->proxy()->shown + " from " + rules->proxy()->source : "none";
}

TEST_CASE("a proxy's URL is read with or without kind, port and password, and is shown without the password") {
  CHECK(shown("socks5://proxy.example.org:1081") == "socks5://proxy.example.org:1081 from --proxy");
  CHECK(shown("SOCKS5H://proxy.example.org") == "socks5h://proxy.example.org:1080 from --proxy");
  CHECK(shown("http://ali:open%3asesame@10.1.2.3:3128/") == "http://10.1.2.3:3128 from --proxy");
  CHECK(shown("proxy.example.org:3128") == "http://proxy.example.org:3128 from --proxy");
  CHECK(shown("ali:sesame@proxy.example.org") == "http://proxy.example.org:80 from --proxy");
  CHECK(shown("http://[2001:db8::7]:3128") == "http://[2001:db8::7]:3128 from --proxy");
  CHECK(read("http://[2001:db8::7]:3128")->proxy()->host == "2001:db8::7");
  CHECK(read("http://ali:open%3asesame@10.1.2.3:3128")->proxy()->url.find("ali:open%3asesame@") != std::string::npos);
  CHECK(read("http://ali:sesame@10.1.2.3:3128")->proxy()->has_password);
  CHECK_FALSE(read("http://10.1.2.3:3128")->proxy()->has_password);
}

TEST_CASE("a URL that is no proxy's is an error with its source, and without its password") {
  for (const char* wrong :
       {"ftp://ali:sesame@proxy.example.org:21", "https://ali:sesame@proxy.example.org:443", "socks4://ali:sesame@proxy.example.org",
        "http://ali:sesame@proxy.example.org:99999", "http://ali:sesame@proxy.example.org/some/where", "http://", "://", " "}) {
    const Result<ProxyRules> rules = read("", {{"ALL_PROXY", wrong}});
    INFO(wrong);
    REQUIRE_FALSE(rules);
    CHECK(rules.error().code == Code::invalid_argument);
    CHECK(rules.error().why.starts_with("ALL_PROXY names no proxy: "));
    CHECK(rules.error().why.find("sesame") == std::string::npos);
    CHECK(rules.error().why.find('\n') == std::string::npos);
  }
  CHECK(read("https://proxy.example.org").error().why.find("at another port") != std::string::npos);
}

TEST_CASE("the option --proxy goes before the variables, all_proxy before https_proxy, and none before all") {
  const std::map<std::string, std::string> all = {{"all_proxy", "socks5h://a:1"},
                                                  {"ALL_PROXY", "socks5h://b:2"},
                                                  {"https_proxy", "http://c:3"},
                                                  {"HTTPS_PROXY", "http://d:4"},
                                                  {"http_proxy", "http://e:5"}};
  std::map<std::string, std::string> some = all;
  CHECK(shown("http://f:6", some) == "http://f:6 from --proxy");
  CHECK(shown("none", some) == "none");
  for (const char* expected :
       {"socks5h://a:1 from all_proxy", "socks5h://b:2 from ALL_PROXY", "http://c:3 from https_proxy", "http://d:4 from HTTPS_PROXY"}) {
    CHECK(shown("", some) == expected);
    some[std::string(expected).substr(std::string(expected).rfind(' ') + 1)] = "";  // empty is not set
  }
  CHECK(shown("", some) == "none");
  CHECK(read("none")->given());
  CHECK_FALSE(read("", all)->given());
}

TEST_CASE("this machine, its networks and what NO_PROXY lists are reached directly") {
  const auto direct = [](const std::string& host, const std::string& spared) {
    const Result<ProxyRules> rules = read("http://proxy.example.org:3128", {{"NO_PROXY", spared}});
    return rules.value().towards(host) == nullptr;
  };
  for (const char* host : {"localhost", "127.0.0.1", "127.9.9.9", "::1"}) {
    CHECK(direct(host, ""));
  }
  for (const InterfaceAddress& own : interface_addresses()) {
    CHECK(direct(own.host, ""));
  }
  CHECK_FALSE(direct("203.0.113.7", ""));
  CHECK_FALSE(direct("atoll.example.org", ""));
  CHECK(direct("203.0.113.7", "*"));
  CHECK(direct("203.0.113.7", "example.org, 203.0.113.7"));
  CHECK(direct("203.0.113.7", "203.0.112.0/23"));
  CHECK_FALSE(direct("203.0.114.7", "203.0.112.0/23"));
  CHECK_FALSE(direct("203.0.113.7", "203.0.113.0/33,203.0.113.0/x,203.0.113.0/,/8"));
  CHECK(direct("2001:db8::7", "2001:db8::/32"));
  CHECK(direct("2001:db8::7", "[2001:db8::7]"));
  for (const char* list : {"example.org", ".example.org", "*.example.org", "EXAMPLE.org", "a.b example.org"}) {
    INFO(list);
    CHECK(direct("atoll.Example.org", list));
    CHECK_FALSE(direct("atoll.anexample.org", list));
    CHECK_FALSE(direct("example.org.evil.net", list));
  }
  CHECK(direct("example.org", "example.org"));
  CHECK_FALSE(direct("org", "example.org"));
  CHECK(read("http://p:1")->towards_address("tcp://203.0.113.7:443") != nullptr);
  CHECK(read("http://p:1")->towards_address("tcp://127.0.0.1:443") == nullptr);
  CHECK(read("http://p:1")->towards_address("no address") == nullptr);
  CHECK(read("none")->towards("203.0.113.7") == nullptr);
}

}  // namespace of_proxy_rules_test
