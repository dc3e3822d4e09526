// The trainer's data: files as one stream, disjoint parts, the order of windows, the learning rate.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <vector>

#include "agent/trainer/data/data_order.hpp"
#include "agent/trainer/data/learning_rate.hpp"
#include "agent/trainer/data/sampled_digest.hpp"
#include "agent/trainer/data/token_check.hpp"
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

// nanoGPT's meta.pkl: what Python's pickle writes.
std::string pickle() {
  const std::string body = std::string("}\x94(\x8c\nvocab_size\x94K\x41u", 18) + ".";
  std::string frame(8, '\0');
  frame[0] = static_cast<char>(body.size());
  return "\x80\x04\x95" + frame + body;
}

std::vector<char> chars(const std::string& text) { return {text.begin(), text.end()}; }

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
  CHECK(small.error().why ==
        "data file " + files[0] + ": token 255, number 3 of the file, is not in the model's vocabulary of 100; set model.vocabulary");
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

  const std::string narrow = "it is a shard of uint16 tokens; set data.format to \"uint16\"";
  CHECK(why(TokenStream::open({folder.path + "/llmc"}, "uint32")).find(narrow) != std::string::npos);
  with_header.push_back(1);
  CHECK(why(TokenStream::open({folder.write("long", with_header)}, "uint16")).find("announces 3 tokens, the file holds 4") !=
        std::string::npos);
  CHECK(why(TokenStream::open({folder.path + "/long"}, "uint32")).find(narrow) != std::string::npos);
}

TEST_CASE("files of another format are not read as tokens, and the refusal says what they are") {
  const Folder folder;
  std::string npy = std::string("\x93NUMPY\1\0\x76\0", 10) + "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }";
  npy.resize(128, ' ');
  npy += std::string("\1\0\2\0\3\0", 6);
  std::string shard(1024, '\0');
  const std::int32_t header[3] = {20240520, 1, 2};
  std::memcpy(shard.data(), header, sizeof header);
  shard += std::string("\7\0\7\0", 4);
  std::string tensors = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  tensors = std::string(1, static_cast<char>(tensors.size())) + std::string(7, '\0') + tensors + "ab";
  std::string mnist = std::string("\0\0\x08\1\0\0\0\4", 8) + "abcd";
  struct Case {
    const char* name;
    std::string content;
    const char* is;
  };
  const std::vector<Case> cases = {
      {"tokens.npy", npy, "a NumPy array"},
      {"meta.pkl", pickle(), "a Python pickle"},
      {"old.pkl", "\x80\3}q\1X\2...", "a Python pickle"},
      {"text.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10) + "abcd", "a gzip file"},
      {"text.npz", std::string("PK\3\4\x14\0\0\0\0\0", 10) + "abcd", "a zip file"},
      {"text.zst", std::string("\x28\xb5\x2f\xfd\x24\4\x21\0\0abc", 12), "a Zstandard file"},
      {"text.xz",
       std::string("\xfd"
                   "7zXZ\0",
                   6) +
           std::string(8, 'x'),
       "an xz file"},
      {"a.parquet", "PAR1" + std::string(8, 'x') + "PAR1", "a Parquet file"},
      {"a.arrow", std::string("ARROW1\0\0", 8) + std::string(8, 'x'), "an Arrow file"},
      {"hf.arrow", std::string("\xff\xff\xff\xff\x10\0\0\0\x10\0\0\0", 12) + std::string(20, 'x'), "an Arrow file"},
      {"a.tar", std::string(257, '\0') + "ustar" + std::string(250, '\0'), "a tar archive"},
      {"a.pdf", "%PDF-1.7\n%..", "a PDF file"},
      {"a.so",
       std::string("\x7f"
                   "ELF\2\1\1\0\0\0\0\0",
                   12),
       "a program"},
      {"a.h5", std::string("\x89HDF\r\n\x1a\n", 8) + std::string(8, 'x'), "an HDF5 file"},
      {"a.png", std::string("\x89PNG\r\n\x1a\n", 8) + std::string(8, 'x'), "a PNG image"},
      {"a.jpg", std::string("\xff\xd8\xff\xe0\0\x10JFIF", 10) + "xx", "a JPEG image"},
      {"a.webp", std::string("RIFF\x0c\0\0\0WEBPVP8 ", 16) + "xxxx", "a RIFF file"},
      {"a.gif", "GIF89a" + std::string(10, '\0') + ";", "a GIF image"},
      {"a.lz4", std::string("\x04\x22\x4d\x18\x64\x40\xa7", 7) + "abcd", "an LZ4 file"},
      {"a.7z", std::string("7z\xbc\xaf\x27\x1c\0\4", 8) + "abcd", "a 7z archive"},
      {"train.idx", std::string("MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17) + "\x08", "an index of Megatron-LM's"},
      {"model.bin", std::string("\xc6\xd7\x34\x01\x05\0\0\0", 8) + std::string(1100, '\1'), "a model, a tokenizer or a state of llm.c's"},
      {"a.safetensors", tensors, "a safetensors file"}};
  for (const Case& c : cases) {
    const std::string path = folder.write(c.name, chars(c.content));
    for (const char* format : {"bytes", "uint16", "uint32"}) {
      INFO(c.name << " as " << format);
      const auto stream = TokenStream::open({path}, format);
      REQUIRE_FALSE(stream.has_value());
      CHECK(stream.error().code == Code::corrupt);
      const bool shown = std::string(c.name) == "old.pkl" && std::string(format) != "bytes";  // too few bytes to tell from tokens
      CHECK((shown || stream.error().why.find("data file " + path + ": it is " + c.is) != std::string::npos));
    }
  }
  CHECK(why(TokenStream::open({folder.write("mnist", chars(mnist))}, "bytes")).find("it is an idx file") != std::string::npos);
  const std::string llmc = folder.write("shard.bin", chars(shard));
  CHECK(why(TokenStream::open({llmc}, "bytes")) == "data file " + llmc + ": it is a shard of uint16 tokens; set data.format to \"uint16\"");
  CHECK(TokenStream::open({llmc}, "uint16")->size() == 2);
}

TEST_CASE("text is not read as integers, and data that only begin like another format are data") {
  const Folder folder;
  const std::string program = folder.write("prepare.py", chars("import numpy as np\n# Saves the text as tokens.\nids = np.array([])\n"));
  for (const char* format : {"uint16", "uint32"}) {
    const auto stream = TokenStream::open({program}, format);
    REQUIRE_FALSE(stream.has_value());
    CHECK((stream.error().why.find("data file " + program) == 0));
  }
  CHECK(why(TokenStream::open({program + ""}, "uint16")).find("it is text, not uint16 tokens") != std::string::npos);
  CHECK(TokenStream::open({program}, "bytes").has_value());
  // Text that speaks of formats is text.
  for (const char* text : {"PK is a pair of letters", "BZhou wrote this", "PAR1 was the first of four", "%PDF is a format", "GIF89a"}) {
    INFO(text);
    CHECK(TokenStream::open({folder.write("words.txt", chars(text))}, "bytes").has_value());
  }
  // Numbers of twice the width.
  std::vector<std::uint16_t> small;
  std::vector<std::uint32_t> wide;
  for (int i = 0; i < 500; ++i) {
    small.push_back(static_cast<std::uint16_t>(i * 7 % 65));
    wide.push_back(static_cast<std::uint32_t>(i * 131 % 50'257));
  }
  const std::string narrow_file = folder.write("small", small);
  CHECK(why(TokenStream::open({narrow_file}, "bytes")).find("every second byte is 0, so it is uint16 tokens or UTF-16 text") !=
        std::string::npos);
  CHECK(TokenStream::open({narrow_file}, "uint16").has_value());
  const std::string wide_file = folder.write("wide", wide);
  CHECK(why(TokenStream::open({wide_file}, "uint16")).find("every second number is 0, so it is uint32 tokens") != std::string::npos);
  CHECK(TokenStream::open({wide_file}, "uint32").has_value());
  CHECK(why(TokenStream::open({wide_file}, "bytes")).find("most bytes are 0, so it is uint32 tokens; set data.format to \"uint32\"") !=
        std::string::npos);
  // What numpy and PyTorch make of a list of numbers.
  const std::string longs = folder.write("longs", std::vector<std::int64_t>(wide.begin(), wide.end()));
  for (const char* format : {"bytes", "uint16", "uint32"}) {
    INFO(format);
    CHECK(why(TokenStream::open({longs}, format)).find("it is numbers of 64 bits; save them as array.astype(numpy.uint32).tofile") !=
          std::string::npos);
  }
  std::string utf16;
  for (const char letter : std::string(40, 'a') + " and b\n") {
    utf16 += std::string(1, '\0') + letter;
  }
  CHECK(why(TokenStream::open({folder.write("utf16be", chars(utf16))}, "bytes")).find("UTF-16 text or big-endian numbers") !=
        std::string::npos);
  std::string line;
  for (int i = 0; i < 40; ++i) {
    line += "one long line of " + std::to_string(i) + " words, ";
  }
  line.resize(line.size() / 4 * 4);
  CHECK(why(TokenStream::open({folder.write("line.txt", chars(line))}, "uint16")).find("it is text, not uint16 tokens") !=
        std::string::npos);
  CHECK(TokenStream::open({folder.write("zeros", std::vector<std::uint8_t>(1000, 0))}, "bytes").has_value());
  // Tokens whose bytes happen to be letters, all of them.
  CHECK(TokenStream::open({folder.write<std::uint16_t>("letters", std::vector<std::uint16_t>(64, 0x4141))}, "uint16").has_value());
  // The first two tokens of a pickle, a gzip file or an image begin a shard that goes on as none of them.
  for (const std::uint16_t first : {std::uint16_t{0x0480}, std::uint16_t{0x8b1f}, std::uint16_t{0xd8ff}, std::uint16_t{0x4b50}}) {
    std::vector<std::uint16_t> tokens(600, 311);
    tokens[0] = first;
    CHECK(TokenStream::open({folder.write("tokens", tokens)}, "uint16").has_value());
  }
}

TEST_CASE("a token beyond the vocabulary is found before the first step, wherever an island reads it") {
  const Folder folder;
  std::vector<std::uint16_t> tokens(200'000, 7);
  tokens[150'000] = 500;
  const std::string first = folder.write<std::uint16_t>("first", {1, 2, 3});
  const std::string second = folder.write("second", tokens);
  const auto stream = std::make_shared<const TokenStream>(std::move(TokenStream::open({first, second}, "uint16")).value());
  const std::string expected =
      "data file " + second + ": token 500, number 150001 of the file, is not in the model's vocabulary of 500; set model.vocabulary";
  const auto at_once = TokenCheck::make(stream, {{0, 100}, {100'000, 100'003}}, 500);
  REQUIRE_FALSE(at_once.has_value());
  CHECK(at_once.error().why == expected);
  CHECK(at_once.error().code == Code::corrupt);
  // What other islands read is theirs to look at.
  CHECK(TokenCheck::make(stream, {{0, 150'003}, {150'004, 49'999}}, 500).has_value());
  CHECK(TokenCheck::make(stream, {{0, stream->size()}}, 501).has_value());
  // Of many tokens it is known a little later.
  auto later = TokenCheck::make(stream, {{0, stream->size()}}, 500, 1000);
  REQUIRE(later.has_value());
  later->wait();
  CHECK(later->found().error().why == expected);
  auto good = TokenCheck::make(stream, {{0, stream->size()}}, 501, 1000);
  good->wait();
  CHECK(good->found().ok());
  const auto dropped = TokenCheck::make(stream, {{0, stream->size()}}, 501, 1000);  // ends with its thread at work
  CHECK(dropped.has_value());
}

TEST_CASE("what is read is listed with counts") {
  const Folder folder;
  std::vector<std::string> files;
  for (int i = 0; i < 8; ++i) {
    files.push_back(folder.write("shard" + std::to_string(i), std::vector<std::uint16_t>(static_cast<std::size_t>(i + 1), 7)));
  }
  CHECK(TokenStream::open({files[1]}, "uint16")->listing() == "1 file with 2 uint16 tokens: shard1 2");
  CHECK(TokenStream::open({files[0], files[1]}, "bytes")->listing() == "2 files with 6 bytes: shard0 2, shard1 4");
  CHECK(TokenStream::open(files, "uint16")->listing() ==
        "8 files with 36 uint16 tokens: shard0 1, shard1 2, shard2 3, shard3 4, shard4 5, shard5 6, and 2 more");
}

TEST_CASE("the digest of data is that of their tokens, in however many files they lie") {
  const Folder folder;
  const auto digest = [&](const std::vector<std::string>& files) { return TokenStream::open(files, "uint16")->digest(); };
  const auto file = [&](const std::string& name, std::vector<std::uint16_t> tokens) { return folder.write(name, tokens); };
  const std::string whole = digest({file("a", {1, 2, 3, 4})});
  CHECK(whole.find("4 tokens, digest ") == 0);
  CHECK(digest({file("b", {1, 2}), file("c", {3, 4})}) == whole);
  CHECK(digest({file("d", {3, 4}), file("e", {1, 2})}) != whole);
  CHECK(digest({file("f", {1, 2, 3, 5})}) != whole);
  CHECK(digest({file("g", {1, 2, 3, 4, 4})}) != whole);
  CHECK(digest({file("h", {0, 1, 2, 3})}) != whole);
  // Of many tokens the first, the last and some between them are looked at, and their number.
  std::vector<std::uint16_t> many(SampledDigest::kWholeUpTo + 12'345, 7);
  const std::string large = digest({folder.write("many", many)});
  for (const std::size_t at : {std::size_t{0}, many.size() - 1}) {
    many[at] = 8;
    CHECK(digest({folder.write("many", many)}) != large);
    many[at] = 7;
  }
  CHECK(digest({folder.write("many", many)}) == large);
  many.pop_back();
  CHECK(digest({folder.write("many", many)}) != large);
}

TEST_CASE("data files that cannot be read are refused with their name") {
  const Folder folder;
  CHECK(why(TokenStream::open({}, "bytes")) == "no data files were given");
  CHECK(why(TokenStream::open({"/x"}, "words")) == "data format 'words' is none of bytes, uint16, uint32");
  CHECK(why(TokenStream::open({folder.path + "/none"}, "bytes")) == "data file " + folder.path + "/none: No such file or directory");
  CHECK(why(TokenStream::open({folder.write<std::uint8_t>("empty", {})}, "bytes")) == "data file " + folder.path + "/empty: it is empty");
  CHECK(why(TokenStream::open({folder.path}, "bytes")) == "data file " + folder.path + ": it is not a file");
}

TEST_CASE("what is held out and what is trained on are all tokens") {
  for (std::uint64_t tokens = 0; tokens < 60; ++tokens) {
    for (const double fraction : {0.0, 0.05, 0.5, 0.99}) {
      const DataSplit split = split_data(tokens, fraction).value();
      REQUIRE(split.training.begin == 0);
      REQUIRE(split.validation.begin == split.training.count);
      REQUIRE(split.training.count + split.validation.count == tokens);
    }
  }
  CHECK_FALSE(split_data(10, 1.0).has_value());
  CHECK_FALSE(split_data(10, -0.1).has_value());
  CHECK_FALSE(split_data(10, std::nan("")).has_value());
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

TEST_CASE("every window of an epoch comes once, inside the range, whatever the sizes") {
  for (std::uint64_t tokens = 1; tokens < 120; ++tokens) {
    for (std::uint32_t length = 1; length < 12; ++length) {
      const TokenRange part{1000, tokens};
      const auto order = DataOrder::make(part, length, 1, 5);
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

TEST_CASE("the epochs reach every token") {
  const auto order = DataOrder::make({0, 1000}, 16, 4, 1).value();
  std::set<std::uint64_t> seen;
  for (std::uint64_t position = 0; position < 200 * order.windows_per_epoch(); ++position) {
    for (std::uint64_t i = 0; i <= 16; ++i) {
      seen.insert(order.window(position) + i);
    }
  }
  CHECK(seen.size() == 1000);
}

TEST_CASE("the order depends on seed and number and on nothing else") {
  const TokenRange part{0, 100'000};
  const auto a = DataOrder::make(part, 128, 16, 1).value();
  const auto again = DataOrder::make(part, 128, 16, 1).value();
  const auto seed = DataOrder::make(part, 128, 16, 2).value();
  int same_seed = 0;
  for (std::uint64_t position = 3000; position-- > 0;) {  // backwards: no state
    REQUIRE(a.window(position) == again.window(position));
    same_seed += a.window(position) == seed.window(position) ? 1 : 0;
  }
  CHECK(same_seed < 30);
  // The first windows, pinned: a change of the order would make every checkpoint continue elsewhere.
  CHECK(std::vector<std::uint64_t>{a.window(0), a.window(1), a.window(2)} == std::vector<std::uint64_t>{42188, 65868, 14028});
}

TEST_CASE("data smaller than one batch are refused with the numbers") {
  CHECK(DataOrder::make({0, 16 * 128 + 1}, 128, 16, 1).has_value());
  const auto small = DataOrder::make({0, 16 * 128}, 128, 16, 1);
  REQUIRE_FALSE(small.has_value());
  CHECK(small.error().why.find("2048 tokens are there to train on, one batch needs 2049") != std::string::npos);
  CHECK_FALSE(DataOrder::make({0, 0}, 128, 16, 1).has_value());
  CHECK_FALSE(DataOrder::make({0, 10}, 0, 1, 1).has_value());
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
