// Pictures that islands send of what their models make: checked, bounded, the newest of each task.
#include "coordinator/api/task_pictures.hpp"

#include "tests/catch.hpp"

namespace of_task_pictures_test {

namespace {

using namespace atl;
using namespace atl::coordinator;

Bytes png(std::uint32_t width, std::uint32_t height, std::size_t size = 64) {
  const std::vector<unsigned> beginning = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n', 0, 0, 0, 13, 'I', 'H', 'D', 'R'};
  Bytes bytes;
  for (const unsigned byte : beginning) {
    bytes.push_back(static_cast<std::byte>(byte));
  }
  for (const std::uint32_t side : {width, height}) {
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
      bytes.push_back(static_cast<std::byte>(side >> shift & 255U));
    }
  }
  bytes.resize(size);
  return bytes;
}

TaskPicture picture(std::uint64_t step, std::int64_t at_ms, std::size_t size = 64) {
  return TaskPicture{step, "a", from_unix_ms(at_ms), png(8, 8, size)};
}

}  // namespace

TEST_CASE("a picture is a PNG of a size that a browser can bear") {
  CHECK(check_picture(png(29, 15)));
  CHECK(check_picture(png(1024, 1024)));
  CHECK_FALSE(check_picture(png(1025, 1024)));
  CHECK_FALSE(check_picture(png(65535, 65535)));
  CHECK_FALSE(check_picture(png(0xffffffff, 0xffffffff)));
  CHECK_FALSE(check_picture(png(0, 8)));
  CHECK_FALSE(check_picture(png(8, 8, 23)));
  CHECK_FALSE(check_picture({}));
  Bytes other = png(8, 8);
  other[1] = std::byte{'G'};
  CHECK(check_picture(other).error().why == "a picture that is no PNG");
}

TEST_CASE("the newest picture of each task stands, and the runs whose newest is the oldest go") {
  TaskPictures pictures;
  pictures.note(RunId("r-1"), "experts/0", picture(10, 1));
  pictures.note(RunId("r-1"), "experts/1", picture(10, 2));
  pictures.note(RunId("r-1"), "experts/0", picture(20, 3));
  REQUIRE(pictures.of(RunId("r-1")).size() == 2);
  CHECK(pictures.of(RunId("r-1")).at("experts/0").step == 20);
  CHECK(pictures.of(RunId("r-2")).empty());
  for (std::size_t i = 0; i < TaskPictures::kMostRuns; ++i) {
    pictures.note(RunId("s-" + std::to_string(i)), "experts/0", picture(1, 10 + static_cast<std::int64_t>(i)));
  }
  CHECK(pictures.of(RunId("r-1")).empty());
  CHECK(pictures.of(RunId("s-0")).size() == 1);
  pictures.note(RunId("s-0"), "experts/0", picture(2, 100, TaskPictures::kMostBytes - 100));
  CHECK(pictures.of(RunId("s-0")).size() == 1);  // one run keeps what it has
  CHECK(pictures.of(RunId("s-1")).empty());
  CHECK(pictures.of(RunId("s-15")).size() == 1);
  pictures.note(RunId("s-15"), "experts/0", picture(2, 101, 1000));
  CHECK(pictures.of(RunId("s-0")).empty());
  CHECK(pictures.of(RunId("s-15")).size() == 1);
}

}  // namespace of_task_pictures_test
