// [model].from: what a run file may say, what an island has of it, and what a file gives a model.
#include "agent/service/given_parameters.hpp"

#include <bit>
#include <cstring>

#include "agent/engine/parameter_layout.hpp"
#include "agent/storage/checkpoint.hpp"
#include "cli/run_file/run_file.hpp"
#include "strategies/specification/run_rules.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/identity/sha256.hpp"

namespace of_given_parameters_test {

using namespace atl;
namespace fs = std::filesystem;

namespace {

const std::string kSome(64, 'a');

RunFile file_of(const std::string& model, const std::string& rest = "[data]\nset = \"text\"\n") {
  return parse_run_file("[run]\nname = \"x\"\n[training]\nsteps = 1000\n" + rest + "[model]\n" + model, "run.toml");
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Result<fs::path> no_download(const std::string&, const std::string&) { return Error{Code::unavailable, "the network is away"}; }

std::string digest_text(const fs::path& file) { return to_hex(facts_of(on_this_machine(file))->sha256); }

RunSpec begins_with(const std::string& from, const std::string& sha256) {
  RunSpec spec;
  spec.model.from = from;
  spec.model.sha256 = sha256;
  return spec;
}

// A safetensors file of tensors whose bytes are given.
std::string safetensors(const std::vector<std::tuple<std::string, std::string, std::string, std::string>>& tensors) {
  std::string header = "{";
  std::string data;
  for (const auto& [name, dtype, shape, bytes] : tensors) {
    header += (header.size() > 1 ? "," : "") + ("\"" + name) + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + ",\"data_offsets\":[" +
              std::to_string(data.size()) + "," + std::to_string(data.size() + bytes.size()) + "]}";
    data += bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size() % 256);
  file[1] = static_cast<char>(header.size() / 256);
  return file + header + data;
}

std::string bytes_of(std::vector<std::uint16_t> halves) {
  std::string text(2 * halves.size(), '\0');
  std::memcpy(text.data(), halves.data(), text.size());
  return text;
}

}  // namespace

TEST_CASE("given parameters: a run file names a file, an address or a run, of the built-in trainer and of others") {
  for (const char* from : {"base.safetensors", "/srv/base.safetensors", "run:first", "run:r-0123"}) {
    const RunFile file = file_of("from = \"" + std::string(from) + "\"\n");
    INFO(problems_text(file));
    REQUIRE(file.valid());
    CHECK(file.spec.model.from == from);
    CHECK(begins_from_file(file.spec) == !std::string(from).starts_with("run:"));
    CHECK(run_spec_from_json(to_json(file.spec)).value() == file.spec);
  }
  CHECK(file_of("from = \"https://x.org/y\"\nsha256 = \"" + kSome + "\"\n").valid());
  CHECK(file_of("from = \"run:first\"\n", "[trainer]\nname = \"gpt\"\n").valid());
}

TEST_CASE("given parameters: what a run file says wrong of them") {
  CHECK(contains(problems_text(file_of("from = \"https://x.org/y\"\n")), "an address needs sha256"));
  CHECK(contains(problems_text(file_of("sha256 = \"" + kSome + "\"\n")), "sha256 has no effect without from"));
  for (const char* from : {"run:", "run:../x", "http://x.org/y", "ftp://x"}) {
    CHECK(
        contains(problems_text(file_of("from = \"" + std::string(from) + "\"\n")), "a safetensors file, an https:// address or run:NAME"));
  }
  CHECK(contains(problems_text(file_of("from = \"a\"\nlayers = 2\n", "[trainer]\nname = \"gpt\"\n")), "the model is the trainer's own"));
  CHECK(contains(
      problems_text(file_of("from = \"a\"\n", "[data]\nset = \"x\"\nformat = \"idx\"\n[strategy]\nname = \"decentralized-diffusion\"\n")),
      "from has no effect with strategy.name"));
}

TEST_CASE("given parameters: an island has the file, lacks it, or has another") {
  atl_test::TemporaryFolder folder;
  const fs::path file = folder.write("given/base.safetensors", "some bytes");
  const DiskPath runs = confined_to(folder.path()).value();
  DataPermissions permissions;
  const auto found = [&](const std::string& from, const std::string& sha256) {
    return resolve_parameters(begins_with(from, sha256), permissions, no_download, runs);
  };
  const auto lacks = [&](const std::string& from, const std::string& sha256) {
    const auto result = found(from, sha256);
    REQUIRE(result);
    REQUIRE(std::holds_alternative<Lacking>(*result));
    return std::get<Lacking>(*result).why;
  };
  CHECK(contains(lacks(file.string(), digest_text(file)), "--allow-data"));
  permissions.folders.push_back(folder.path() / "given");
  REQUIRE(found(file.string(), digest_text(file)));
  CHECK(fs::equivalent(std::get<fs::path>(*found(file.string(), digest_text(file))), file));
  CHECK(contains(lacks((folder.path() / "given/other").string(), kSome), "no files are at"));
  CHECK(lacks("https://x.org/y", kSome) == "the network is away");
  CHECK(contains(lacks("run:r-1", kSome), "this island has not the checkpoint of run r-1"));
  const Error other = found(file.string(), kSome).error();
  CHECK(other.code == Code::invalid_argument);
  CHECK(contains(other.why, "has SHA-256 " + digest_text(file) + ", and the run begins with the parameters of " + kSome));
  CHECK(contains(found(file.string(), "").error().why, "has no digest"));
}

TEST_CASE("given parameters: of another run's checkpoints the one with the digest") {
  atl_test::TemporaryFolder folder;
  const DiskPath runs = confined_to(folder.path()).value();
  CheckpointStore store = CheckpointStore::open(runs / "r-1" / "checkpoints").value();
  for (const std::uint64_t round : {3U, 4U}) {
    REQUIRE(store.begin(Round(round)));
    const std::vector<float> values(5, static_cast<float>(round));
    REQUIRE(store.write_outer(Round(round), {{"w", {5}, values}}, outer_metadata(RunId("r-1"), Round(round), Digest{}, RunSpec(), "[]")));
    CheckpointMeta meta;
    meta.run = RunId("r-1");
    meta.round = Round(round);
    REQUIRE(store.finish(meta));
  }
  const fs::path older = folder.path() / "r-1/checkpoints/3/outer.safetensors";
  const auto found = resolve_parameters(begins_with("run:r-1", digest_text(older)), {}, no_download, runs);
  REQUIRE(found);
  CHECK(fs::equivalent(std::get<fs::path>(*found), older));
}

TEST_CASE("given parameters: float32, bfloat16 and half are read by their names, and the first that does not fit is told") {
  atl_test::TemporaryFolder folder;
  const ParameterLayout layout =
      ParameterLayout::make({{{"a", {2, 2}, 0}, {"b", {3}, 0}}, std::nullopt}, FragmentPlan{FragmentKind::whole, 1}).value();
  std::vector<float> values(layout.total(), -1.0F);
  const auto read = [&](const std::string& text) {
    const fs::path file = folder.write("x.safetensors", text);
    return layout.read_given(SafetensorsFile::open(file).value(), values);
  };
  // bf16: 1, −2, 0.5, 3; f16: 1.5, the smallest number above 0, −65504.
  const std::string a = bytes_of({0x3f80, 0xc000, 0x3f00, 0x4040});
  const std::string b = bytes_of({0x3e00, 0x0001, 0xfbff});
  REQUIRE(read(safetensors({{"a", "BF16", "[2,2]", a}, {"b", "F16", "[3]", b}, {"frozen", "F16", "[3]", b}})).ok());
  const std::uint64_t at_a = layout.arena().entries[0].offset;
  const std::uint64_t at_b = layout.arena().entries[1].offset;
  CHECK(std::vector(values.begin() + static_cast<std::ptrdiff_t>(at_a), values.begin() + static_cast<std::ptrdiff_t>(at_a) + 4) ==
        std::vector<float>{1.0F, -2.0F, 0.5F, 3.0F});
  CHECK(std::vector(values.begin() + static_cast<std::ptrdiff_t>(at_b), values.begin() + static_cast<std::ptrdiff_t>(at_b) + 3) ==
        std::vector<float>{1.5F, 5.9604644775390625e-8F, -65504.0F});

  CHECK(read(safetensors({{"a", "BF16", "[2,2]", a}})).error().why == "it has no tensor 'b' (3)");
  CHECK(read(safetensors({{"a", "BF16", "[4]", a}, {"b", "F16", "[3]", b}})).error().why == "its tensor is 4, and the model's 'a' (2 × 2)");
  CHECK(contains(read(safetensors({{"a", "BF16", "[2,2]", a}, {"b", "I16", "[3]", b}})).error().why, "is I16, not F32, BF16 or F16"));
}

}  // namespace of_given_parameters_test
