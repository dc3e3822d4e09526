#include "tests/sim/fields.hpp"

#include <optional>
#include <string>
#include <vector>

#include "tests/catch.hpp"

namespace {

struct None {};
struct Few {
  int number = 3;
  std::optional<std::string> maybe;
  std::vector<int> many;
};

}  // namespace

TEST_CASE("all fields of a structure are visited, in order, without being named") {
  const Few few{7, "text", {1, 2}};
  std::string seen;
  atl::sim::for_each_field(few, [&](const auto& field) {
    if constexpr (requires { field.size(); }) {
      seen += "[" + std::to_string(field.size()) + "]";
    } else if constexpr (requires { field.has_value(); }) {
      seen += field.value_or("nothing");
    } else {
      seen += std::to_string(field);
    }
  });
  CHECK(seen == "7text[2]");
  int visits = 0;
  atl::sim::for_each_field(None{}, [&](const auto&) { ++visits; });
  CHECK(visits == 0);
  atl::sim::for_each_field(atl::TrainingSpec{}, [&](const auto&) { ++visits; });  // what it has of its base, and its own
  CHECK(visits == 19);
}
