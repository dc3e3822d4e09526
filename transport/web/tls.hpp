// TLS for the page, where others than this machine may open it: a certificate and its key, and connections under them.
//
// Versions 1.2 and 1.3. Who serves the page without a certificate of an authority's gets one that it signs itself; browsers ask once
// whether it is to be trusted, and its fingerprint says which one it is. Threads: a context any; a connection one.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

class TlsContext {
 public:
  // PEM files; the certificate's may hold the chain to an authority. Errors: io if one cannot be read, invalid_argument if they are none,
  // or do not belong together.
  static Result<std::shared_ptr<TlsContext>> load(const std::filesystem::path& certificate, const std::filesystem::path& key);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  [[nodiscard]] const std::string& fingerprint() const { return fingerprint_; }  // SHA-256 of the certificate, in hex

 private:
  friend class TlsConnection;
  struct Body;
  explicit TlsContext(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
  std::string fingerprint_;
};

// Writes a certificate for this name that signs itself, good for ten years, and its key (readable by its owner only), unless both are
// there. Errors: io.
Status make_certificate(const std::filesystem::path& certificate, const std::filesystem::path& key, const std::string& name);

// Where a coordinator keeps the certificate that it made.
inline std::filesystem::path own_certificate_file(const std::filesystem::path& state) { return state / "keys" / "page-certificate.pem"; }
// When the (first) certificate of a PEM file is good no longer. Errors: io; invalid_argument if there is none in it.
Result<TimePoint> certificate_end(const std::filesystem::path& file);

class TlsConnection {
 public:
  // Waits until the socket can be read (true) or written (false) again; false: no longer.
  using Wait = std::function<bool(bool for_reading)>;

  // Of a socket that does not block; it stays the caller's.
  TlsConnection(const TlsContext& context, int socket);
  ~TlsConnection();
  TlsConnection(const TlsConnection&) = delete;
  TlsConnection& operator=(const TlsConnection&) = delete;

  // The other side's part of beginning. False: it is no TLS, or not in time.
  bool accept(const Wait& wait);
  // Bytes; 0 at the end, -1 on failure or when waiting was given up.
  ssize_t read(char* to, std::size_t size, const Wait& wait);
  ssize_t write(const char* from, std::size_t size, const Wait& wait);
  // What came already can be read without waiting.
  [[nodiscard]] bool has_pending() const;

 private:
  struct Body;
  ssize_t repeat(const std::function<int()>& step, const Wait& wait);
  std::unique_ptr<Body> body_;
};

}  // namespace atl
