// The log that people read.
#include "cli/line/log_sink.hpp"

#include <algorithm>
#include <sstream>
#include <string>

#include "tests/catch.hpp"

namespace of_log_sink_test {

using namespace atl;

TEST_CASE("what is said thousands of times is printed a few times") {
  std::ostringstream err;
  install_log_sink(err, LogLevel::info, false);
  for (int i = 0; i < 5000; ++i) {
    log_warning("too many open files");
    log_info("round " + std::to_string(i));
  }
  log_warning("another thing");
  set_log_sink({});
  const std::string text = err.str();
  const auto count = [&](const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++found;
    }
    return found;
  };
  CHECK(count("too many open files") == 5);
  CHECK(count("another thing") == 1);
  CHECK(count("round ") == 5000);
}

}  // namespace of_log_sink_test
