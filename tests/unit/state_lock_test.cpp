// The agent's lock of its state: which agents have outlived which.
#include <filesystem>
#include <string>

#include "agent/storage/membership_file.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"

namespace of_state_lock_test {

namespace {

using namespace atl;
using agent::StateLock;

std::string place_of(const std::filesystem::path& state) { return StateLock::take(state).value().place(); }

}  // namespace

TEST_CASE("agents have the same place where they have the same state, one after the other, and not where it was copied") {
  const atl_test::TemporaryFolder one;
  const std::string first = place_of(one.path());
  CHECK(first.size() == 64);
  CHECK(place_of(one.path()) == first);
  const atl_test::TemporaryFolder copy;
  std::filesystem::copy(one.path(), copy.path(), std::filesystem::copy_options::recursive);
  CHECK(place_of(copy.path()) != first);
  // Nobody else has the place while it is held.
  const Result<StateLock> held = StateLock::take(one.path());
  REQUIRE(held.has_value());
  CHECK(StateLock::take(one.path()).error().code == Code::conflict);
}

}  // namespace of_state_lock_test
