#include "coordinator/web/web.hpp"

#include <utility>

namespace atl::coordinator {

Result<Address> parse_web_address(const std::string& text) {
  auto address = parse_address(text);
  if (!address) {
    return Error{Code::invalid_argument, "web: '" + text.substr(0, 100) + "' is not an address: write HOST:PORT, such as 127.0.0.1:4480"};
  }
  if (!address->is_loopback()) {
    return Error{Code::invalid_argument,
                 "web: " + text.substr(0, 100) + " can be reached from elsewhere, and the page asks for no key; serve it at 127.0.0.1:" +
                     std::to_string(address->port) + " and open it from elsewhere through ssh -L " + std::to_string(address->port) +
                     ":127.0.0.1:" + std::to_string(address->port) + " THIS-MACHINE, or through a proxy with TLS and a login"};
  }
  return address;
}

Result<std::unique_ptr<Web>> Web::start(const std::string& address, AskCoordinator ask) {
  ATOLL_ASSIGN(const Address where, parse_web_address(address));
  std::unique_ptr<Web> web(new Web(std::move(ask)));
  ATOLL_ASSIGN(web->server_, HttpServer::start(where, [site = &web->site_](const HttpRequest& request) { return site->answer(request); }));
  web->url_ = "http://" + (where.host.find(':') == std::string::npos ? where.host : "[" + where.host + "]") + ":" +
              std::to_string(web->server_->port()) + "/";
  return web;
}

}  // namespace atl::coordinator
