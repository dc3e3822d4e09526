#include "transport/web/tls.hpp"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <ctime>
#include <span>

#include "transport/base/bytes.hpp"
#include "transport/base/check.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;

// What OpenSSL says went wrong; empties its queue.
std::string openssl_reason() {
  std::array<char, 256> text{};
  const unsigned long error = ERR_get_error();
  ERR_error_string_n(error, text.data(), text.size());
  ERR_clear_error();
  return error == 0 ? "" : std::string(": ") + text.data();
}

Error refused(const fs::path& path, const char* what) {
  const bool readable = ::access(path.c_str(), R_OK) == 0;
  return readable ? Error{Code::invalid_argument, path.string() + " holds no " + what + " in PEM" + openssl_reason()}
                  : Error{Code::io, path.string() + " cannot be read: it is to hold the page's " + what};
}

using KeyHandle = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using CertificateHandle = std::unique_ptr<X509, decltype(&X509_free)>;
struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

File create_private(const fs::path& path) {
  const mode_t before = ::umask(0077);
  File file(std::fopen(path.c_str(), "w"));
  ::umask(before);
  return file;
}

CertificateHandle self_signed(EVP_PKEY* key, const std::string& name) {
  constexpr long kTenYears = 3650L * 24 * 3600;
  CertificateHandle certificate(X509_new(), &X509_free);
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -24L * 3600);  // clocks differ
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kTenYears);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), subject);
  const std::string names = "DNS:" + name;
  if (X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names.c_str())) {
    X509_add_ext(certificate.get(), extension, -1);
    X509_EXTENSION_free(extension);
  }
  ATOLL_CHECK(X509_sign(certificate.get(), key, EVP_sha256()) > 0, "OpenSSL signs with a key that it made");
  return certificate;
}

}  // namespace

struct TlsContext::Body {
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context{SSL_CTX_new(TLS_server_method()), &SSL_CTX_free};
};

TlsContext::TlsContext(std::unique_ptr<Body> body) : body_(std::move(body)) {}
TlsContext::~TlsContext() = default;

Result<std::shared_ptr<TlsContext>> TlsContext::load(const fs::path& certificate, const fs::path& key) {
  auto body = std::make_unique<Body>();
  SSL_CTX* context = body->context.get();
  ATOLL_CHECK(context != nullptr, "OpenSSL has TLS");
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  if (SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1) {
    return refused(certificate, "certificate");
  }
  if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(context) != 1) {
    return refused(key, "key of that certificate");
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  X509_digest(SSL_CTX_get0_certificate(context), EVP_sha256(), digest.data(), &size);
  std::shared_ptr<TlsContext> made(new TlsContext(std::move(body)));
  made->fingerprint_ = to_hex(std::as_bytes(std::span(digest).first(size)));
  return made;
}

Status make_certificate(const fs::path& certificate, const fs::path& key, const std::string& name) {
  std::error_code failure;
  if (fs::exists(certificate, failure) && fs::exists(key, failure)) {
    return {};
  }
  fs::create_directories(certificate.parent_path(), failure);
  const KeyHandle made(EVP_EC_gen("P-256"), &EVP_PKEY_free);
  ATOLL_CHECK(made != nullptr, "OpenSSL makes keys");
  const CertificateHandle of_it = self_signed(made.get(), name);
  File key_file = create_private(key);
  bool good = key_file != nullptr && PEM_write_PrivateKey(key_file.get(), made.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1;
  good = good && std::fclose(key_file.release()) == 0;
  File certificate_file = create_private(certificate);
  good = good && certificate_file != nullptr && PEM_write_X509(certificate_file.get(), of_it.get()) == 1;
  good = good && std::fclose(certificate_file.release()) == 0;
  return good ? Status() : Error{Code::io, certificate.string() + " and " + key.string() + " cannot be written"};
}

struct TlsConnection::Body {
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl;
};

Result<TimePoint> certificate_end(const fs::path& file) {
  const File opened(std::fopen(file.c_str(), "re"));
  const CertificateHandle certificate(opened ? PEM_read_X509(opened.get(), nullptr, nullptr, nullptr) : nullptr, &X509_free);
  std::tm end{};
  if (!certificate || ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &end) != 1) {
    return refused(file, "certificate");
  }
  return from_unix_ms(std::int64_t{::timegm(&end)} * 1000);
}

TlsConnection::TlsConnection(const TlsContext& context, int socket)
    : body_(std::make_unique<Body>(Body{{SSL_new(context.body_->context.get()), &SSL_free}})) {
  ATOLL_CHECK(body_->ssl != nullptr && SSL_set_fd(body_->ssl.get(), socket) == 1, "OpenSSL has memory");
  // OpenSSL writes without MSG_NOSIGNAL. A peer that hung up must not end the process.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
}

TlsConnection::~TlsConnection() {
  SSL_shutdown(body_->ssl.get());  // one side's word; nobody waits for the other's
  ERR_clear_error();
}

ssize_t TlsConnection::repeat(const std::function<int()>& step, const Wait& wait) {
  for (;;) {
    ERR_clear_error();
    const int done = step();
    if (done > 0) {
      return done;
    }
    const int why = SSL_get_error(body_->ssl.get(), done);
    if (why == SSL_ERROR_ZERO_RETURN) {
      return 0;
    }
    if ((why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) || !wait(why == SSL_ERROR_WANT_READ)) {
      return -1;
    }
  }
}

bool TlsConnection::accept(const Wait& wait) {
  return repeat([&] { return SSL_accept(body_->ssl.get()); }, wait) == 1;
}

ssize_t TlsConnection::read(char* to, std::size_t size, const Wait& wait) {
  return repeat([&] { return SSL_read(body_->ssl.get(), to, static_cast<int>(size)); }, wait);
}

ssize_t TlsConnection::write(const char* from, std::size_t size, const Wait& wait) {
  return repeat([&] { return SSL_write(body_->ssl.get(), from, static_cast<int>(size)); }, wait);
}

bool TlsConnection::has_pending() const { return SSL_has_pending(body_->ssl.get()) == 1; }

}  // namespace atl
