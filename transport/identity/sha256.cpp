#include "transport/identity/sha256.hpp"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace atl {

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();

  Context() {
    ATOLL_CHECK(evp != nullptr, "out of memory for a SHA-256 context");
    start();
  }
  ~Context() { EVP_MD_CTX_free(evp); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  void start() const { ATOLL_CHECK(EVP_DigestInit_ex(evp, EVP_sha256(), nullptr) == 1, "OpenSSL has no SHA-256"); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(ByteView bytes) {
  ATOLL_CHECK(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1, "OpenSSL cannot hash");
}

Digest Sha256::finish() {
  Digest digest;
  unsigned size = 0;
  ATOLL_CHECK(EVP_DigestFinal_ex(context_->evp, reinterpret_cast<unsigned char*>(digest.bytes.data()), &size) == 1 && size == 32,
              "OpenSSL cannot finish a hash");
  context_->start();
  return digest;
}

Digest sha256(ByteView bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

Result<Digest> sha256_of_file(const std::filesystem::path& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (!file) {
    const int code = errno;
    return Error{code == ENOENT ? Code::not_found : Code::io, "cannot read " + path.string() + ": " + std::strerror(code)};
  }
  std::setvbuf(file.get(), nullptr, _IONBF, 0);
  Sha256 hash;
  Bytes buffer(256U << 10U);
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    hash.update(ByteView(buffer).first(count));
  }
  if (std::ferror(file.get()) != 0) {
    return Error{Code::io, "cannot read " + path.string() + ": " + std::strerror(errno)};
  }
  return hash.finish();
}

}  // namespace atl
