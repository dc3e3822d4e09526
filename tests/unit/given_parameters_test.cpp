// [model].from: what a run file may say, what an island has of it, and what a file gives a model.
#include "agent/service/given_parameters.hpp"

#include <bit>
#include <cstring>

#include "agent/engine/built_in_model.hpp"
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
    CHECK(contains(problems_text(file_of("from = \"" + std::string(from) + "\"\n")),
                   "a safetensors file, a folder, hf:ORGANISATION/NAME@REVISION, an https:// address or run:NAME"));
  }
  CHECK(contains(problems_text(file_of("from = \"a\"\nlayers = 2\n", "[trainer]\nname = \"gpt\"\n")), "the model is the trainer's own"));
  CHECK(contains(
      problems_text(file_of("from = \"a\"\n", "[data]\nset = \"x\"\nformat = \"idx\"\n[strategy]\nname = \"decentralized-diffusion\"\n")),
      "from has no effect with strategy.name"));
}

TEST_CASE("given parameters: a model of the hub is a repository and a revision, whose names lead nowhere else") {
  const auto read = [](const std::string& from) {
    const std::optional<HubModel> model = hub_model_to_begin_from(from);
    CHECK(file_of("from = \"" + from + "\"\n").valid() == model.has_value());
    return model ? model->repository + " " + model->revision : "";
  };
  CHECK(read("hf:org/name@v1.0") == "org/name v1.0");
  CHECK(read("hf:org/name") == "org/name main");
  CHECK(read("hf:gpt2") == "gpt2 main");
  CHECK(read("hf:org/name@refs/pr/1") == "org/name refs/pr/1");
  for (const char* from :
       {"hf:", "hf:@v1", "hf:org/name@", "hf:/name", "hf:org/", "hf:org/a/b", "hf:../name", "hf:org/..", "hf:org/name@../x",
        "hf:org/name@a/../b", "hf:org/name@/x", "hf:org/na me", "hf:org/name@v1@v2", "hf:org/name;x"}) {
    INFO(from);
    CHECK(read(from).empty());
  }
  CHECK_FALSE(hub_model_to_begin_from("org/name"));
  CHECK_FALSE(begins_from_file(begins_with("hf:org/name@v1", "")));
  CHECK(is_commit(std::string(40, 'f')));
  CHECK_FALSE(is_commit(std::string(40, 'F')));
  CHECK_FALSE(is_commit(std::string(39, 'f')));
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
    return layout.read_given(GivenTensors::open(file).value(), values);
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

namespace {

// A folder of two shards, a in the first, b and c in the second, and its index with these places.
class Shards {
 public:
  explicit Shards(const std::string& places = R"("a":"x-1.safetensors","b":"x-2.safetensors","c":"x-2.safetensors")",
                  const std::string& second = safetensors({{"b", "F32", "[1]", "bbbb"}, {"c", "F32", "[1]", "cccc"}})) {
    folder.write("m/x-1.safetensors", safetensors({{"a", "F32", "[1]", "aaaa"}}));
    folder.write("m/x-2.safetensors", second);
    folder.write("m/x.safetensors.index.json", R"({"metadata":{"total_size":12},"weight_map":{)" + places + "}}");
    folder.write("outside.safetensors", safetensors({{"a", "F32", "[1]", "aaaa"}}));
  }
  [[nodiscard]] fs::path path() const { return folder.path() / "m"; }
  [[nodiscard]] Error error() const { return GivenTensors::open(path()).error(); }
  atl_test::TemporaryFolder folder;
};

}  // namespace

TEST_CASE("given parameters: a folder's tensors are where its index places them") {
  const Shards shards;
  const GivenTensors given = GivenTensors::open(shards.path()).value();
  for (const char* name : {"a", "b", "c"}) {
    REQUIRE(given.file_with(name) != nullptr);
    CHECK(as_text(given.file_with(name)->bytes(*given.file_with(name)->header().find(name))) == std::string(4, *name));
  }
  CHECK(given.file_with("d") == nullptr);
  // The digest is of what is read, and of nothing else that lies there.
  const Digest digest = digest_of_given(shards.path()).value();
  shards.folder.write("m/README.md", "a card");
  shards.folder.write("m/.x.safetensors", "an editor's");
  CHECK(digest_of_given(shards.path()).value() == digest);
  shards.folder.write("m/config.json", "{}");
  CHECK(digest_of_given(shards.path()).value() != digest);
}

TEST_CASE("given parameters: what is wrong with a folder is told, by its file and tensor") {
  using namespace std::string_literals;
  for (const auto& [places, why] : std::vector<std::pair<std::string, std::string>>{
           {R"("a":"../outside.safetensors")", "places the tensor 'a' in '\"../outside.safetensors\"', which is no file of this folder"},
           {R"("a":"/etc/passwd")", "which is no file of this folder"},
           {R"("a":"..")", "which is no file of this folder"},
           {R"("a":5)", "which is no file of this folder"},
           {R"("a":"x-1.safetensors","a":"x-2.safetensors")", "it places the tensor 'a' twice"},
           {R"("a":"x-1.safetensors","d":"x-2.safetensors")", "it places the tensor 'd' in 'x-2.safetensors', which has it not"},
           {R"("b":"x-1.safetensors","c":"x-2.safetensors")", "it places the tensor 'b' in 'x-1.safetensors', which has it not"},
           {"", "its `weight_map` is missing or names no tensors"},
           {"\"a\":", "its `weight_map` is missing or names no tensors"}}) {
    const Error error = Shards(places).error();
    INFO(error.why);
    CHECK(error.code == Code::corrupt);
    CHECK(contains(error.why, "x.safetensors.index.json: "));
    CHECK(contains(error.why, why));
  }
  const Error missing = Shards(R"("a":"x-1.safetensors","b":"x-3.safetensors")").error();
  CHECK(missing.code == Code::not_found);
  CHECK(contains(missing.why, "'x-3.safetensors' is not there, and 'x.safetensors.index.json' places tensors in it"));
  const std::string whole = safetensors({{"b", "F32", "[1]", "bbbb"}, {"c", "F32", "[1]", "cccc"}});
  for (const std::size_t bytes : {0UL, 7UL, 40UL, whole.size() - 1}) {
    const Shards cut("\"a\":\"x-1.safetensors\",\"b\":\"x-2.safetensors\"", whole.substr(0, bytes));
    CHECK(cut.error().code == Code::corrupt);
    CHECK(contains(cut.error().why, "x-2.safetensors: "));
  }
  const Error twice =
      Shards("\"a\":\"x-1.safetensors\",\"b\":\"x-2.safetensors\"", safetensors({{"a", "F32", "[1]", "aaaa"}, {"b", "F32", "[1]", "bbbb"}}))
          .error();
  CHECK(contains(twice.why, "the tensor 'a' is in 'x-1.safetensors' and in 'x-2.safetensors'"));
  atl_test::TemporaryFolder folder;
  folder.write("m/a.safetensors", whole);
  folder.write("m/b.safetensors", whole);
  CHECK(contains(GivenTensors::open(folder.path() / "m").error().why, "2 safetensors files and 0 indexes"));
  folder.write("m/model.safetensors", whole);
  CHECK(GivenTensors::open(folder.path() / "m"));  // the one that save_pretrained and its readers mean
  CHECK(GivenTensors::open(folder.path() / "no").error().code == Code::not_found);
}

TEST_CASE("given parameters: an island reads a folder that its owner allows, and lacks one that is not whole") {
  const Shards shards;
  DataPermissions permissions;
  const DiskPath runs = confined_to(shards.folder.path()).value();
  const std::string sha256 = to_hex(digest_of_given(shards.path()).value());
  RunSpec spec = begins_with(shards.path().string(), sha256);
  spec.trainer.name = "own";
  const auto found = [&] { return resolve_parameters(spec, permissions, no_download, runs).value(); };
  CHECK(contains(std::get<Lacking>(found()).why, "--allow-data"));
  permissions.folders.push_back(shards.path());
  CHECK(std::get<fs::path>(found()) == shards.path());
  // A shard that lies elsewhere, as in Hugging Face's cache, needs its own permission.
  fs::rename(shards.path() / "x-1.safetensors", shards.folder.path() / "blob");
  CHECK(contains(std::get<Lacking>(found()).why, "'x-1.safetensors' is not there"));
  fs::create_symlink(shards.folder.path() / "blob", shards.path() / "x-1.safetensors");
  CHECK(contains(std::get<Lacking>(found()).why, "which the owner of this island has not allowed"));
  permissions.folders.push_back(shards.folder.path());
  CHECK(std::get<fs::path>(found()) == shards.path());
  shards.folder.write("m/x.safetensors.index.json", R"({"weight_map":{"a":"x-1.safetensors"}})");
  const auto other = resolve_parameters(spec, permissions, no_download, runs);
  CHECK(contains(other.error().why, ", and the run begins with the parameters of " + sha256));
  // The built-in model's folder has to say which model it is.
  const std::string again = to_hex(digest_of_given(shards.path()).value());
  const RunSpec text = begins_with(shards.path().string(), again);
  CHECK(contains(resolve_parameters(text, permissions, no_download, runs).error().why, "config.json"));
}

TEST_CASE("given parameters: a configuration is compared with [model], whatever another wrote there") {
  atl_test::TemporaryFolder folder;
  RunSpec spec;
  const auto why = [&](const std::string& config) {
    folder.write("config.json", config);
    const Status suits = suits_model(folder.path(), spec);
    REQUIRE_FALSE(suits);
    return suits.error().why;
  };
  CHECK(contains(why("[]"), "config.json: it is no JSON object"));
  CHECK(contains(why("{"), "config.json: it is no JSON object"));
  CHECK(contains(why("{}"), "its model_type is \"\" and its architectures [\"LlamaForCausalLM\"], and there llama"));
  CHECK(contains(why(R"({"model_type":"llama","architectures":["LlamaModel"]})"),
                 "its architectures [\"LlamaModel\"], and there llama and LlamaForCausalLM"));
  CHECK(contains(why(R"({"model_type":"llama","architectures":7})"), "llama"));
  CHECK(contains(why(R"({"model_type":"llama"})"), "rms_norm_eps is 1e-06, and there 1e-05"));  // as of a LlamaConfig
  const std::string llama = R"({"model_type":"llama","rms_norm_eps":9.999999747378752e-06,)";
  CHECK(contains(why(llama + R"("rope_scaling":{"type":"dynamic"},"rope_theta":10000})"), R"(rope_type is "dynamic")"));
  CHECK(contains(why(llama + R"("rope_parameters":3,"rope_theta":"x"})"), R"(rope_theta is "x")"));
  CHECK(contains(why(llama + R"("num_key_value_heads":1})"), "32 heads share num_key_value_heads 1"));
  const std::string sizes = why(llama + R"("hidden_size":"wide","tie_word_embeddings":true,"head_dim":-1})");
  CHECK(contains(sizes, "hidden_size is \"wide\", and model.width 128: write width = \"wide\""));
  CHECK(contains(sizes, "num_hidden_layers is 32, and model.layers 4: write layers = 32; "));
  CHECK(contains(sizes, "write tied_embeddings = true"));
}

}  // namespace of_given_parameters_test
