// What it costs to seal pieces as boxes (transport/bulk/sealed_box.hpp), against TLS 1.3 with the same cipher over memory buffers: bytes
// per second of one thread that seals and opens, in turn. TLS has records of at most 16 KiB, and copies what it opens; a box is opened to
// its place.
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "transport/bulk/sealed_box.hpp"

namespace {

using namespace atl;

constexpr std::size_t kPieceBytes = 256 * 1024;
constexpr int kPieces = 2000;
constexpr int kRuns = 5;

void require(bool good) {
  if (!good) {
    std::fputs("sealing_bench: OpenSSL refused something\n", stderr);
    std::exit(1);
  }
}

double gigabytes_per_second(const std::function<void()>& piece) {
  std::vector<double> rates;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kPieces; ++i) {
      piece();
    }
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    rates.push_back(kPieceBytes * static_cast<double>(kPieces) / took / 1e9);
  }
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

// Two ends of a TLS 1.3 connection with a pinned Ed25519 certificate, each over two memory buffers.
struct TlsPair {
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  SSL* from = nullptr;
  SSL* to = nullptr;

  TlsPair() {
    EVP_PKEY* key = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
    X509* certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    require(X509_sign(certificate, key, nullptr) > 0 && SSL_CTX_use_certificate(context, certificate) == 1 &&
            SSL_CTX_use_PrivateKey(context, key) == 1 && SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
            SSL_CTX_set_ciphersuites(context, "TLS_AES_256_GCM_SHA384") == 1);
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);
    from = SSL_new(context);
    to = SSL_new(context);
    BIO* forth = BIO_new(BIO_s_mem());
    BIO* back = BIO_new(BIO_s_mem());
    BIO_up_ref(forth);
    BIO_up_ref(back);
    SSL_set_bio(from, back, forth);
    SSL_set_bio(to, forth, back);
    SSL_set_connect_state(from);
    SSL_set_accept_state(to);
    for (int i = 0; i < 10 && (SSL_is_init_finished(from) == 0 || SSL_is_init_finished(to) == 0); ++i) {
      SSL_do_handshake(from);
      SSL_do_handshake(to);
    }
    require(SSL_is_init_finished(from) == 1 && SSL_is_init_finished(to) == 1);
  }
};

}  // namespace

int main() {
  const Bytes piece(kPieceBytes, std::byte{7});
  Bytes sealed(kPieceBytes + kBoxTagBytes);
  Bytes opened(kPieceBytes);
  AeadContext aead;
  const Key key{};
  std::uint64_t number = 0;
  const double boxes = gigabytes_per_second([&] {
    aead.seal(key, number, {}, piece, sealed);
    require(aead.open(key, number++, {}, sealed, opened).ok());
  });
  TlsPair tls;
  const double records = gigabytes_per_second([&] {
    require(SSL_write(tls.from, piece.data(), static_cast<int>(piece.size())) == static_cast<int>(piece.size()));
    for (std::size_t got = 0; got < opened.size();) {
      const int read = SSL_read(tls.to, opened.data() + got, static_cast<int>(opened.size() - got));
      require(read > 0);
      got += static_cast<std::size_t>(read);
    }
  });
  std::printf("sealing and opening pieces of 256 KiB, one thread, median of %d: boxes %.2f GB/s, TLS 1.3 %.2f GB/s, ratio %.2f\n", kRuns,
              boxes, records, boxes / records);
  return 0;
}
