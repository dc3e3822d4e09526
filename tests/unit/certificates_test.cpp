// The system's authorities are found wherever a distribution keeps them.
#include "transport/http/certificates.hpp"

#include <map>

#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"

namespace of_certificates_test {

TEST_CASE("certificates: what the environment names counts, else the first place that is a file") {
  const atl_test::TemporaryFolder folder;
  folder.write("red-hat/bundle.crt", "x");
  folder.write("suse/bundle.pem", "x");
  const std::string missing = (folder.path() / "debian/certificates.crt").string();
  const std::string of_folder = (folder.path() / "red-hat").string();
  const std::string red_hat = (folder.path() / "red-hat/bundle.crt").string();
  const std::string suse = (folder.path() / "suse/bundle.pem").string();
  const std::vector<const char*> places = {missing.c_str(), of_folder.c_str(), red_hat.c_str(), suse.c_str()};
  std::map<std::string, std::string> environment;
  const auto found = [&](std::span<const char* const> list) {
    return atl::certificate_file(
        [&](const char* name) -> const char* {
          const auto at = environment.find(name);
          return at == environment.end() ? nullptr : at->second.c_str();
        },
        list);
  };
  CHECK(found(places) == red_hat);
  CHECK(found(std::span(places).first(2)) == std::nullopt);
  environment["SSL_CERT_FILE"] = "";
  CHECK(found(places) == red_hat);
  environment["SSL_CERT_DIR"] = "/some/folder";
  CHECK(found(places) == std::nullopt);
  environment["SSL_CERT_FILE"] = "/my/own.pem";
  CHECK(found(places) == "/my/own.pem");
}

}  // namespace of_certificates_test
