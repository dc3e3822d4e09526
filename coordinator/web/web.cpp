#include "coordinator/web/web.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "transport/base/log.hpp"
#include "transport/identity/sha256.hpp"

namespace atl::coordinator {
namespace {

Result<Address> parse_any_address(const std::string& text) {
  auto address = parse_address(text);
  return address ? address
                 : Error{Code::invalid_argument,
                         "web: '" + text.substr(0, 100) + "' is not an address: write HOST:PORT, such as 127.0.0.1:4480"};
}

// An own certificate names the machine by what the page is served at, where that is a name.
Result<std::shared_ptr<TlsContext>> load_tls(const WebSettings& settings, const Address& where) {
  if (settings.certificate != "own") {
    return TlsContext::load(settings.certificate, settings.key.empty() ? settings.certificate : settings.key);
  }
  const std::filesystem::path certificate = own_certificate_file(settings.state);
  const std::filesystem::path key = settings.state / "keys" / "page-key.pem";
  const bool any = where.host == "*" || where.host == "0.0.0.0" || where.host == "::";
  ATOLL_TRY(make_certificate(certificate, key, any ? "atoll" : where.host));
  return TlsContext::load(certificate, key);
}

HttpAnswer turned_away() {
  HttpAnswer answer;
  answer.status = 401;
  answer.body =
      "this page is for viewers with a token: on the coordinator, atoll token create --role viewer; then open this address with "
      "/?token=TOKEN behind it, or send Authorization: Bearer TOKEN\n";
  answer.headers = {{"WWW-Authenticate", "Bearer"}};
  return answer;
}

}  // namespace

Result<Address> parse_web_address(const std::string& text) {
  ATOLL_ASSIGN(Address address, parse_any_address(text));
  if (!address.is_loopback()) {
    return Error{Code::invalid_argument,
                 "web: " + text.substr(0, 100) + " can be reached from elsewhere, and the page asks for no key; serve it at 127.0.0.1:" +
                     std::to_string(address.port) + " and open it from elsewhere through ssh -L " + std::to_string(address.port) +
                     ":127.0.0.1:" + std::to_string(address.port) +
                     " THIS-MACHINE, or with --web-certificate own to viewers with a token (atoll token create --role viewer)"};
  }
  return address;
}

Result<std::unique_ptr<Web>> Web::start(const WebSettings& settings, const AskCoordinator& ask) {
  const bool open = !settings.certificate.empty();
  ATOLL_ASSIGN(Address where, open ? parse_any_address(settings.address) : parse_web_address(settings.address));
  std::shared_ptr<TlsContext> tls;
  if (open) {
    ATOLL_ASSIGN(tls, load_tls(settings, where));
    log_info("the page's certificate has the SHA-256 fingerprint " + tls->fingerprint());
  }
  std::unique_ptr<Web> web(new Web(ask, {settings.state, settings.price_per_gigabyte}));
  const auto answer = [raw = web.get(), open](const HttpRequest& request) {
    return open ? raw->answer_viewer(request) : raw->site_.answer(request);
  };
  ATOLL_ASSIGN(web->server_, HttpServer::start(where, answer, {}, tls));
  where.host = where.host == "*" ? "localhost" : where.host;
  web->url_ = (open ? "https://" : "http://") + (where.host.find(':') == std::string::npos ? where.host : "[" + where.host + "]") + ":" +
              std::to_string(web->server_->port()) + "/";
  return web;
}

std::optional<std::string> Web::admits(const std::string& token) {
  const DocumentCache::Document document = viewers_.get("viewers", "{}");
  if (token.empty() || !*document) {
    return std::nullopt;
  }
  const nlohmann::json parsed = nlohmann::json::parse(**document, nullptr, false);
  const std::string hash = to_hex(sha256(as_bytes(token)));
  for (const nlohmann::json& viewer : parsed.is_object() ? parsed.value("viewers", nlohmann::json::array()) : nlohmann::json::array()) {
    if (viewer.value("sha256", "") == hash) {
      return viewer.value("island", "");
    }
  }
  return std::nullopt;
}

HttpAnswer Web::answer_viewer(const HttpRequest& request) {
  const auto given = request.query.find("token");
  const std::optional<std::string> island = admits(given != request.query.end() ? given->second : request.token);
  if (!island) {
    return turned_away();
  }
  if (given != request.query.end()) {
    HttpAnswer answer;
    answer.status = 303;
    answer.headers = {
        {"Location", "/"},
        {"Set-Cookie", std::string(kViewerCookie) + "=" + given->second + "; Path=/; Max-Age=31536000; HttpOnly; Secure; SameSite=Lax"}};
    return answer;
  }
  HttpAnswer answer = island->empty() ? site_.answer(request) : site_.answer_owner(request, *island);
  if (answer.stream) {
    // For as long as the token counts: whoever it was taken from reads no further.
    answer.stream = [this, token = request.token, stream = std::move(answer.stream)](std::string& piece) {
      return admits(token).has_value() && stream(piece);
    };
  }
  return answer;
}

}  // namespace atl::coordinator
