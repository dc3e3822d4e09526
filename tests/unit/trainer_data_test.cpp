// The trainer's data: files as one stream, disjoint parts, the order of windows, the learning rate.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "agent/trainer/data/data_order.hpp"
#include "agent/trainer/data/learning_rate.hpp"
#include "agent/trainer/data/token_stream.hpp"
#include "tests/catch.hpp"

namespace of_trainer_data_test {

using namespace atl;

namespace {

struct Folder {
  std::string path;
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "atoll-data-XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path); }

  template <typename T>
  std::string write(const std::string& name, const std::vector<T>& values) const {
    const std::string file = path + "/" + name;
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
    return file;
  }
};

std::vector<std::int64_t> read_all(const TokenStream& stream, std::uint64_t vocabulary) {
  std::vector<std::int64_t> tokens(stream.size());
  REQUIRE(stream.read(0, vocabulary, tokens).ok());
  return tokens;
}

std::string why(const Result<TokenStream>& stream) { return stream ? "(a stream)" : stream.error().why; }

}  // namespace

TEST_CASE("several files are one stream of tokens") {
  const Folder folder;
  const std::vector<std::string> files = {folder.write<std::uint8_t>("a", {1, 2, 255}), folder.write<std::uint8_t>("b", {4}),
                                          folder.write<std::uint8_t>("c", {5, 6})};
  const auto stream = TokenStream::open(files, "bytes");
  REQUIRE(stream.has_value());
  const std::vector<std::int64_t> all = read_all(*stream, 256);
  CHECK(all == std::vector<std::int64_t>{1, 2, 255, 4, 5, 6});
  for (std::size_t begin = 0; begin <= all.size(); ++begin) {
    for (std::size_t end = begin; end <= all.size(); ++end) {
      std::vector<std::int64_t> part(end - begin);
      REQUIRE(stream->read(begin, 256, part).ok());
      CHECK(std::equal(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(begin)));
    }
  }
  std::vector<std::int64_t> two(2);
  CHECK(stream->read(5, 256, two).error().code == Code::invalid_argument);
  CHECK(stream->read(~0ULL, 256, two).error().code == Code::invalid_argument);
  const Status small = stream->read(2, 100, two);
  CHECK(small.error().why == "data file " + files[0] + ": token 255 is not in the model's vocabulary of 100; set model.vocabulary");
}

TEST_CASE("token shards are read with llm.c's header and without") {
  const Folder folder;
  std::vector<std::uint16_t> with_header(512, 0);
  const std::int32_t header[3] = {20240520, 1, 3};
  std::memcpy(with_header.data(), header, sizeof header);
  with_header.insert(with_header.end(), {7, 50256, 9});
  const auto stream = TokenStream::open({folder.write<std::uint16_t>("raw", {65535, 2}), folder.write("llmc", with_header)}, "uint16");
  REQUIRE(stream.has_value());
  CHECK(read_all(*stream, 65536) == std::vector<std::int64_t>{65535, 2, 7, 50256, 9});
  const auto wide = TokenStream::open({folder.write<std::uint32_t>("wide", {4'000'000'000U, 1})}, "uint32");
  CHECK(read_all(*wide, 1ULL << 32) == std::vector<std::int64_t>{4'000'000'000, 1});

  CHECK(why(TokenStream::open({folder.path + "/llmc"}, "uint32")).find("bytes are not a whole number of uint32") != std::string::npos);
  with_header.push_back(1);
  CHECK(why(TokenStream::open({folder.write("long", with_header)}, "uint16")).find("announces 3 tokens, the file holds 4") !=
        std::string::npos);
  CHECK(why(TokenStream::open({folder.path + "/long"}, "uint32")).find("its header says uint16 tokens") != std::string::npos);
}

TEST_CASE("data files that cannot be read are refused with their name") {
  const Folder folder;
  CHECK(why(TokenStream::open({}, "bytes")) == "no data files were given");
  CHECK(why(TokenStream::open({"/x"}, "words")) == "data format 'words' is none of bytes, uint16, uint32");
  CHECK(why(TokenStream::open({folder.path + "/none"}, "bytes")) == "data file " + folder.path + "/none: No such file or directory");
  CHECK(why(TokenStream::open({folder.write<std::uint8_t>("empty", {})}, "bytes")) == "data file " + folder.path + "/empty: it is empty");
  CHECK(why(TokenStream::open({folder.path}, "bytes")) == "data file " + folder.path + ": it is not a file");
}

TEST_CASE("parts are disjoint, equal to one token, and cover all that is not held out") {
  for (std::uint64_t tokens = 0; tokens < 60; ++tokens) {
    for (std::uint32_t parts = 1; parts < 8; ++parts) {
      for (const double fraction : {0.0, 0.05, 0.5, 0.99}) {
        std::uint64_t at = 0;
        for (std::uint32_t part = 0; part < parts; ++part) {
          const DataSplit split = split_data(tokens, fraction, part, parts).value();
          REQUIRE(split.training.begin == at);
          at += split.training.count;
          REQUIRE(split.validation == split_data(tokens, fraction, 0, parts)->validation);
          REQUIRE(split.training.count - (tokens - split.validation.count) / parts <= 1);
        }
        const DataSplit split = split_data(tokens, fraction, 0, parts).value();
        REQUIRE(split.validation.begin == at);
        REQUIRE(at + split.validation.count == tokens);
      }
    }
  }
  CHECK_FALSE(split_data(10, 1.0, 0, 1).has_value());
  CHECK_FALSE(split_data(10, -0.1, 0, 1).has_value());
  CHECK_FALSE(split_data(10, std::nan(""), 0, 1).has_value());
  CHECK_FALSE(split_data(10, 0.1, 2, 2).has_value());
  CHECK_FALSE(split_data(10, 0.1, 0, 0).has_value());
}

TEST_CASE("a permutation visits every index once") {
  for (std::uint64_t size = 1; size < 300; ++size) {
    for (std::uint64_t key = 0; key < 3; ++key) {
      const Permutation permutation(size, key);
      std::vector<bool> seen(size, false);
      for (std::uint64_t i = 0; i < size; ++i) {
        const std::uint64_t to = permutation.at(i);
        REQUIRE(to < size);
        REQUIRE_FALSE(seen[to]);
        seen[to] = true;
      }
    }
  }
}

TEST_CASE("permutations of different keys differ and do not favour a place") {
  constexpr std::uint64_t kSize = 10;
  constexpr int kKeys = 20'000;
  std::vector<std::vector<int>> counts(kSize, std::vector<int>(kSize, 0));
  for (int key = 0; key < kKeys; ++key) {
    const Permutation permutation(kSize, static_cast<std::uint64_t>(key));
    for (std::uint64_t i = 0; i < kSize; ++i) {
      ++counts[i][permutation.at(i)];
    }
  }
  for (const auto& row : counts) {
    for (const int count : row) {
      CHECK(count > kKeys / 10 * 0.85);
      CHECK(count < kKeys / 10 * 1.15);
    }
  }
}

TEST_CASE("every window of an epoch comes once, inside the part, whatever the sizes") {
  for (std::uint64_t tokens = 1; tokens < 120; ++tokens) {
    for (std::uint32_t length = 1; length < 12; ++length) {
      const TokenRange part{1000, tokens};
      const auto order = DataOrder::make(part, length, 1, 5, 2);
      if (!order) {
        REQUIRE(tokens < length + 1);
        continue;
      }
      const std::uint64_t windows = order->windows_per_epoch();
      REQUIRE(order->tokens_per_epoch() == windows * length);
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        std::set<std::uint64_t> begins;
        for (std::uint64_t i = 0; i < windows; ++i) {
          begins.insert(order->window(epoch * windows + i));
        }
        REQUIRE(begins.size() == windows);
        REQUIRE(*begins.begin() >= part.begin);
        REQUIRE(*begins.rbegin() + length + 1 <= part.begin + part.count);
        REQUIRE(*begins.rbegin() - *begins.begin() == (windows - 1) * length);  // next to one another, without overlap
      }
    }
  }
}

TEST_CASE("the epochs of a part reach every token of it") {
  const auto order = DataOrder::make({0, 1000}, 16, 4, 1, 0).value();
  std::set<std::uint64_t> seen;
  for (std::uint64_t position = 0; position < 200 * order.windows_per_epoch(); ++position) {
    for (std::uint64_t i = 0; i <= 16; ++i) {
      seen.insert(order.window(position) + i);
    }
  }
  CHECK(seen.size() == 1000);
}

TEST_CASE("the order depends on seed, part and position and on nothing else") {
  const TokenRange part{0, 100'000};
  const auto a = DataOrder::make(part, 128, 16, 1, 0).value();
  const auto again = DataOrder::make(part, 128, 16, 1, 0).value();
  const auto seed = DataOrder::make(part, 128, 16, 2, 0).value();
  const auto other = DataOrder::make(part, 128, 16, 1, 1).value();
  int same_seed = 0;
  int same_part = 0;
  for (std::uint64_t position = 3000; position-- > 0;) {  // backwards: no state
    REQUIRE(a.window(position) == again.window(position));
    same_seed += a.window(position) == seed.window(position) ? 1 : 0;
    same_part += a.window(position) == other.window(position) ? 1 : 0;
  }
  CHECK(same_seed < 30);
  CHECK(same_part < 30);
  // The first windows, pinned: a change of the order would make every checkpoint continue elsewhere.
  CHECK(std::vector<std::uint64_t>{a.window(0), a.window(1), a.window(2)} == std::vector<std::uint64_t>{42188, 65868, 14028});
}

TEST_CASE("a part smaller than one batch is refused with the numbers") {
  CHECK(DataOrder::make({0, 16 * 128 + 1}, 128, 16, 1, 0).has_value());
  const auto small = DataOrder::make({0, 16 * 128}, 128, 16, 1, 3);
  REQUIRE_FALSE(small.has_value());
  CHECK(small.error().why.find("part 3 has 2048 tokens, one batch needs 2049") != std::string::npos);
  CHECK_FALSE(DataOrder::make({0, 0}, 128, 16, 1, 0).has_value());
  CHECK_FALSE(DataOrder::make({0, 10}, 0, 1, 1, 0).has_value());
}

TEST_CASE("validation windows are spread over the held-out tokens") {
  const auto all = ValidationWindows::make({100, 41}, 10, 100).value();
  CHECK(all.count() == 4);
  CHECK(all.window(0) == 100);
  CHECK(all.window(3) == 130);
  const auto some = ValidationWindows::make({0, 1001}, 10, 3).value();
  CHECK(some.count() == 3);
  CHECK(std::vector<std::uint64_t>{some.window(0), some.window(1), some.window(2)} == std::vector<std::uint64_t>{0, 330, 660});
  CHECK(ValidationWindows::make({0, 0}, 10, 3)->count() == 0);
  CHECK_FALSE(ValidationWindows::make({0, 10}, 10, 3).has_value());
}

TEST_CASE("the learning rate warms up in a line and decays along a cosine") {
  const LearningRate rate{1e-3, 100, 1100, 0.1};
  CHECK(rate.at(1) == Approx(1e-5));
  CHECK(rate.at(50) == Approx(5e-4));
  CHECK(rate.at(100) == Approx(1e-3));
  CHECK(rate.at(600) == Approx(1e-3 * 0.55));
  CHECK(rate.at(1100) == Approx(1e-4));
  CHECK(rate.at(9999) == Approx(1e-4));
  CHECK(LearningRate{1e-3, 0, 10, 0.5}.at(0) == Approx(1e-3));
  CHECK(LearningRate{1e-3, 10, 10, 0.5}.at(10) == Approx(5e-4));
  CHECK(LearningRate{1e-3, 20, 10, 0.5}.at(10) == Approx(5e-4));  // a warm-up longer than the run never ends
}

}  // namespace of_trainer_data_test
