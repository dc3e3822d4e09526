// The coordinator's page: an HTTP server over the coordinator's documents, on threads of its own.
// Threads: start and destroy it on one.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "coordinator/web/document_cache.hpp"
#include "coordinator/web/site.hpp"
#include "transport/base/result.hpp"
#include "transport/web/http.hpp"

namespace atl::coordinator {

// Where the page may be served: "127.0.0.1:4480". It asks nobody for a key, so only this machine may reach it.
// Errors: invalid_argument for what is no address, and for one that others can reach, saying what to do instead.
Result<Address> parse_web_address(const std::string& text);

struct WebSettings {
  std::string address;                            // HOST:PORT; empty: there is no page
  std::string certificate;                        // a PEM file, or "own" for one that signs itself; empty: no TLS, and this machine alone
  std::string key;                                // of a certificate that is given
  std::filesystem::path state;                    // the coordinator's folder: its disk is told of, and an own certificate is kept below it
  std::optional<double> price_per_gigabyte = {};  // of what islands send
};

// With a certificate the page is for whoever has a viewer's token (`token create --role viewer`): a program says it as "Authorization:
// Bearer TOKEN", a browser is let in at /?token=TOKEN and keeps it as a cookie. One that was made for an island's owner shows what concerns
// that island and nothing else (owner_view.hpp). The coordinator is asked for the hashes of such tokens, as
// for any other document, so guesses cost it nothing.
class Web {
 public:
  // Errors: those of parse_web_address, TlsContext::load and HttpServer::start.
  static Result<std::unique_ptr<Web>> start(const WebSettings& settings, const AskCoordinator& ask);

  [[nodiscard]] const std::string& url() const { return url_; }  // "http://127.0.0.1:4480/"

  // For a viewer with a token, or without.
  HttpAnswer answer_viewer(const HttpRequest& request);

 private:
  Web(const AskCoordinator& ask, SiteFacts facts) : site_(ask, std::move(facts)), viewers_(ask) {}
  // The island that alone this viewer sees; "": it sees all; nothing: it is no viewer's token.
  std::optional<std::string> admits(const std::string& token);

  Site site_;
  DocumentCache viewers_;  // the hashes of their tokens
  std::string url_;
  std::unique_ptr<HttpServer> server_;  // goes first
};

}  // namespace atl::coordinator
