// The run file: what is accepted, what every mistake says and where it points.
#include "cli/run_file/run_file.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "agent/engine/built_in_model.hpp"
#include "agent/island_link/arena.hpp"
#include "cli/views/parts/printable.hpp"
#include "strategies/specification/run_keys.hpp"
#include "strategies/specification/run_rules.hpp"
#include "tests/catch.hpp"
#include "tests/places.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/spelling.hpp"

namespace of_run_file_test {

using namespace atl;

namespace {

constexpr const char* kSmallest = R"([run]
name = "a"
[data]
set = "text"
[training]
steps = 1000
)";

std::string with(const std::string& more) { return std::string(kSmallest) + more; }

// "line:column why" of each problem. A place "3:" below is any column of line 3: toml++'s versions differ in it.
std::vector<std::string> problems(const std::string& text) {
  std::vector<std::string> lines;
  for (const TomlProblem& problem : parse_run_file(text, "run.toml").problems) {
    lines.push_back(std::to_string(problem.line) + ":" + std::to_string(problem.column) + " " + problem.why);
  }
  return lines;
}

void require_problem(const std::string& text, const std::string& place, const std::string& part) {
  const std::vector<std::string> found = problems(text);
  INFO(text);
  std::string all;
  for (const std::string& line : found) {
    all += line + "\n";
  }
  INFO(all);
  const std::string start = place.ends_with(':') ? place : place + " ";
  CHECK(
      std::ranges::any_of(found, [&](const std::string& line) { return line.starts_with(start) && line.find(part) != std::string::npos; }));
}

}  // namespace

TEST_CASE("the smallest run file has every default") {
  const RunFile file = parse_run_file(kSmallest, "run.toml");
  INFO(problems_text(file));
  REQUIRE(file.valid());
  RunSpec expected;
  expected.name = "a";
  expected.data.set = "text";
  expected.training.steps = 1000;
  expected.rounds = 10;
  CHECK(file.spec == expected);
}

TEST_CASE("units, lists and integers for numbers are converted") {
  const RunFile file = parse_run_file(R"(
[run]
name = "b"
arena_limit = "64MiB"
[data]
files = ["a/*.txt", "b.txt"]
[training]
steps = 90
learning_rate = 1
[islands]
deadline = "1500ms"
names = ["x", "y"]
[strategy]
inner_steps = 30
)",
                                      "run.toml");
  INFO(problems_text(file));
  REQUIRE(file.valid());
  CHECK(file.spec.arena_limit_bytes == 64ULL << 20);
  CHECK(file.spec.islands.deadline == std::chrono::milliseconds(1500));
  CHECK(file.spec.data.files == std::vector<std::string>{"a/*.txt", "b.txt"});
  CHECK(file.spec.training.learning_rate == 1.0);
  CHECK(file.spec.training.warmup_steps == 9);
  CHECK(file.spec.rounds == 3);
}

TEST_CASE("a strategy's name settles its parts") {
  const RunFile parallel = parse_run_file(with("[strategy]\nname = \"data-parallel\"\n"), "run.toml");
  REQUIRE(parallel.valid());
  CHECK(parallel.spec.strategy.payload == PayloadKind::gradient);
  CHECK(parallel.spec.strategy.inner_steps == 1);
  CHECK(parallel.spec.rounds == 1000);
  const RunFile local = parse_run_file(with("[strategy]\nname = \"local\"\n"), "run.toml");
  REQUIRE(local.valid());
  CHECK(local.spec.strategy.group == Group::nobody);
  CHECK(local.spec.strategy.outer_optimizer == OuterOptimizerKind::adopt);
  CHECK(local.spec.strategy.payload == PayloadKind::parameters);
}

TEST_CASE("streaming-diloco: the paper's parts, and rounds counted fragment by fragment") {
  const RunFile file = parse_run_file(with("[strategy]\nname = \"streaming-diloco\"\n"), "run.toml");
  INFO(problems_text(file));
  REQUIRE(file.valid());
  const StrategySpec& strategy = file.spec.strategy;
  CHECK(strategy.grouping == FragmentKind::strided);
  CHECK(strategy.layers_per_fragment == 3);
  CHECK(strategy.overlap_steps == 1);
  CHECK(strategy.codec == CodecKind::fp4);
  CHECK(strategy.reduce_codec == CodecKind::int8);
  CHECK(strategy.merge_alpha == 0.5);
  CHECK(strategy.outer_learning_rate == 0.4);
  // 4 layers in threes are 2 fragments, embeddings and head a third. They start at k·100, k·100 + 33 and k·100 + 66 until step
  // 999 (what is applied at 1000 or later is left out): 9 each; then the last synchronisation of all three.
  CHECK(file.spec.rounds == 30);
  const RunFile four = parse_run_file(with("[strategy]\nname = \"streaming-diloco\"\nfragments = 4\n"), "run.toml");
  REQUIRE(four.valid());
  CHECK(four.spec.rounds == 50);
  const RunFile balanced =
      parse_run_file(with("[strategy]\nname = \"streaming-diloco\"\ngrouping = \"balanced\"\nfragments = 7\n"), "run.toml");
  REQUIRE(balanced.valid());
  CHECK(balanced.spec.rounds == 70);
  CHECK((file.spec.model_rounds == 3 && four.spec.model_rounds == 5 && balanced.spec.model_rounds == 7));
  CHECK(rounds_between_checkpoints(four.spec) == 50);  // ten of each
  CHECK(run_spec_from_json(to_json(four.spec)).value() == four.spec);
  std::string other = to_json(file.spec);
  other.replace(other.find("\"model_rounds\":3"), 16, "\"model_rounds\":1");
  CHECK_FALSE(run_spec_from_json(other).has_value());
}

TEST_CASE("keys of very many parts are a mistake at their place, not a stack overflow") {
  std::string deep = "a";
  for (int i = 0; i < 400'000; ++i) {
    deep += ".a";
  }
  for (const std::string& text :
       {deep + " = 1\n", "[" + deep + "]\n", "[[" + deep + "]]\n", "x = { " + deep + " = 1 }\n", "x = [1, {" + deep + " = [\n"}) {
    INFO(text.substr(0, 20));
    const RunFile file = parse_run_file(text, "run.toml");
    REQUIRE(file.problems.size() == 1);
    CHECK(file.problems[0].line == 1);
    CHECK(file.problems[0].why.find("more than 8 parts") != std::string::npos);
  }
  require_problem("#\n'a' . \"b\" . c.d.e.f.g.h.i = 1\n", "2:24", "more than 8 parts");
  // Dots that are no key's.
  require_problem("a.b.c.d.e.f.g.h = 1 # ............\n", "1:1", "unknown section \"a\"");
  require_problem("[run]\nx = [\"../../../../../../..\", '.........', 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5]\n", "2:1",
                  "unknown key \"x\"");
  require_problem("[run]\nx = \"\"\"\n\\\"\"\" .......... \"\" ........\"\"\"\"\"\ny = '''\n..........'''\n", "4:1", "unknown key \"y\"");
}

TEST_CASE("letters beyond ASCII belong into quotes and comments: elsewhere they are a mistake at their place") {
  for (const std::string letter : {"\u00e9", "\u0459", "\u00a0", "\u2003", "\uac00", "\U0001f30a", "\xff"}) {
    INFO(letter);
    require_problem("[run]\nn" + letter + "me = \"x\"\n", "2:2", "beyond ASCII");
    require_problem("[run]\nname = \"x\" " + letter + "\n", "2:12", "beyond ASCII");
  }
  // A quote in the middle of a value begins no string.
  require_problem("[run]\nseed = 1++\"\u0459\"\n", "2:12", "beyond ASCII");
  require_problem("[run]\nx = [1.'\u0459']\n", "2:9", "beyond ASCII");
  require_problem("[run]\nseed = 12[\"\u0459\"]\n", "2:12", "beyond ASCII");
  require_problem("[run]\nseed = 12{\"\u0459\"}\n", "2:12", "beyond ASCII");
  require_problem("[run]\nseed = 12=\"\u0459\"\n", "2:12", "beyond ASCII");
  require_problem("[run]\nname = \"a\"'\u0459'\n", "2:12", "beyond ASCII");
  require_problem("[run]\nx = [ # (\u00e9)\n '\u00e9', { a.\"\u00e9\" = \"\u00e9\", '\u00e9' = [\"\"\"\u00e9\"\"\"] }, '\u00e9' ]\n", "2:1",
                  "unknown key \"x\"");
  require_problem("# \u00e9\n[run]\n\"\u00e9\" = '\u00e9' # \u0459\n", "3:", "unknown key");
  require_problem("\xEF\xBB\xBF[run]\nx = 1\n", "2:1", "unknown key \"x\"");  // an editor's byte order mark
}

TEST_CASE("a run file that an editor saved as UTF-16 or UTF-32 is called so") {
  const atl_test::TemporaryFolder folder;
  const std::string text = "[run]\nname = \"x\"\n";
  const auto widened = [&](std::string mark, std::size_t before, std::size_t after) {
    for (const char c : text) {
      mark += std::string(before, '\0') + c + std::string(after, '\0');
    }
    return mark;
  };
  for (const auto& [bytes, name] :
       std::vector<std::pair<std::string, std::string>>{{widened("\xFF\xFE", 0, 1), "UTF-16"},
                                                        {widened("\xFE\xFF", 1, 0), "UTF-16"},
                                                        {widened("", 0, 1), "UTF-16"},
                                                        {widened("", 1, 0), "UTF-16"},
                                                        {widened(std::string("\xFF\xFE\0\0", 4), 0, 3), "UTF-32"},
                                                        {widened(std::string("\0\0\xFE\xFF", 4), 3, 0), "UTF-32"}}) {
    const Result<RunFile> file = read_run_file(folder.write("run.toml", bytes).string());
    REQUIRE_FALSE(file);
    CHECK(file.error().code == Code::invalid_argument);
    CHECK(file.error().why.ends_with("run.toml is " + name + " text, as PowerShell's > and some editors write; save it as UTF-8"));
  }
  CHECK(read_run_file(folder.write("run.toml", "\xEF\xBB\xBF" + text).string()));
}

TEST_CASE("what cannot be streamed is a mistake at its place") {
  const auto streaming = [](const std::string& more) { return with("[strategy]\nname = \"streaming-diloco\"\n" + more); };
  CHECK(problems(streaming("overlap_steps = 100\n")).empty());                     // a whole period, merged half and half
  CHECK(problems(streaming("overlap_steps = 100\nmerge_alpha = 0.0\n")).empty());  // a whole period late
  require_problem(streaming("overlap_steps = 101\n"), "9:1", "not be more than inner_steps (100)");
  require_problem(streaming("inner_steps = 30\noverlap_steps = 31\n"), "10:1", "not be more than inner_steps (30)");
  require_problem(streaming("inner_steps = 30\noffset = 31\n"), "10:1", "not be more than inner_steps (30)");
  require_problem(streaming("merge_alpha = 1.5\n"), "9:15", "a number from 0 to 1");
  require_problem(streaming("merge_alpha = -0.5\n"), "9:15", "a number from 0 to 1");
  require_problem(streaming("fragments = 5\n"), "9:1", "fragments 5 is more than model.layers 4");
  require_problem(streaming("codec = \"fp8\"\n"), "9:9", "one of f32, bf16, int8, fp4");
  require_problem(streaming("codec_block = 100\n"), "9:1", "multiple of 16");
  require_problem(streaming("codec = \"f32\"\nerror_feedback = true\n"), "10:1", "loses nothing");
  require_problem(streaming("[islands]\noverlap_steps = [\"lyon=101\"]\n"), "10:1",
                  "of island lyon, 101, must not be more than strategy.inner_steps 100");
  require_problem(streaming("merge_alpha = 0.0\n[islands]\noverlap_steps = [\"lyon=100\"]\n"), "11:1",
                  "of island lyon, 100, must be less than strategy.inner_steps 100");
  require_problem(streaming("[islands]\noverlap_steps = [\"lyon=3\", \"lyon=4\"]\n"), "10:1", "names island lyon twice");
  require_problem(streaming("[islands]\noverlap_steps = [\"lyon\"]\n"), "10:17", "\"NAME=STEPS\"");
  require_problem(streaming("[islands]\nuplink = \"0mbit\"\n"), "10:10", "at least 500kbit");
  require_problem(streaming("[islands]\nuplink = \"-5mbit\"\n"), "10:10", "at least 500kbit");
  require_problem(streaming("rounding = \"up\"\n"), "9:12", "one of nearest, stochastic");
  require_problem(streaming("grouping = \"layers\"\n"), "9:12", "one of whole, sequential, strided, balanced");
  CHECK(problems(streaming("grouping = \"whole\"\n")).empty());  // DiLoCo with overlap and fewer bits
  require_problem(streaming("grouping = \"balanced\"\n"), "7:2", "fragments must be at least 1 with grouping 'balanced'");
  require_problem(streaming("grouping = \"balanced\"\nfragments = 100\n"), "10:1", "do not make 100 fragments");
  require_problem(streaming("group = \"nobody\"\n"), "7:2", "codec must be f32 with group 'nobody'");
  require_problem(streaming("fragments = 2\nlayers_per_fragment = 2\n"), "10:1", "has no effect with fragments = 2");
  CHECK(problems(streaming("fragments = 4\ninner_steps = 4\n")).empty());  // several of five begin at one step
  require_problem(with("[strategy]\nfragments = 2\n"), "8:1", "has no effect with grouping = \"whole\"");
  require_problem(with("[strategy]\nlayers_per_fragment = 2\n"), "8:1", "has no effect with grouping = \"whole\"");
  require_problem(with("[strategy]\ncodec_block = 64\n"), "8:1", "no scales");
  require_problem(with("[strategy]\nrounding = \"stochastic\"\n"), "8:1", "has no effect with codec = \"f32\"");
}

TEST_CASE("the last round may be shorter than the others") {
  const RunFile file = parse_run_file(with("[strategy]\ninner_steps = 30\n"), "run.toml");
  REQUIRE(file.valid());
  CHECK(file.spec.rounds == 34);
}

TEST_CASE("what excludes what is decided by the parts of a strategy, not by its name") {
  const auto strategy = [](const std::string& keys) { return with("[strategy]\n" + keys); };
  // SNOO: an island alone takes outer steps.
  CHECK(problems(strategy("name = \"diloco\"\ngroup = \"nobody\"\n")).empty());
  CHECK(problems(strategy("name = \"local\"\npayload = \"outer-gradient\"\nouter_optimizer = \"nesterov\"\n")).empty());
  // Local SGD, and SPARTA's ground: the parameters themselves among all, part by part.
  CHECK(problems(strategy("name = \"local\"\ngroup = \"all\"\ngrouping = \"balanced\"\nfragments = 20\n")).empty());
  CHECK(problems(strategy("payload = \"parameters\"\nouter_optimizer = \"adopt\"\n")).empty());
  // What is impossible is so whatever the name is.
  require_problem(strategy("name = \"data-parallel\"\ninner_steps = 30\n"), "9:1", "must be 1 with payload 'gradient'");
  require_problem(strategy("inner_steps = 1\npayload = \"gradient\"\n"), "7:2", "outer_optimizer must be 'adopt' with payload 'gradient'");
  require_problem(strategy("group = \"pairs\"\n"), "7:2", "outer_optimizer must be 'heavy-ball' with group 'pairs'");
  CHECK(problems(strategy("inner_steps = 1\npayload = \"gradient\"\nouter_optimizer = \"adopt\"\n")).empty());
  require_problem(with("[strategy]\nname = \"diloco\"\ngroup_size = 3\n"), "9:1", "group_size has no effect with group = \"all\"");
  require_problem(with("[strategy]\nname = \"noloco\"\ngroup_size = 3\nouter_pull = 1.4\n"), "10:1",
                  "above 0.433 and below 1.299 with outer_momentum 0.5 and groups of 3");
  require_problem(with("[strategy]\nname = \"noloco\"\ngroup_size = 4\n[islands]\nmax = 3\n"), "9:1",
                  "group_size 4 is more than [islands].max 3");
  require_problem(with("[strategy]\nname = \"local\"\ncodec = \"bf16\"\n"), "9:1", "has no effect with group = \"nobody\"");
  require_problem(with("[strategy]\nname = \"data-parallel\"\nouter_momentum = 0.5\n"), "9:1",
                  "has no effect with outer_optimizer = \"adopt\"");
  require_problem(with("[strategy]\nouter_optimizer = \"sgd\"\nouter_momentum = 0.5\n"), "9:1", "has no effect");
  require_problem(with("[strategy]\nouter_optimizer = \"adopt\"\n"), "8:1", "takes parameters");
  require_problem(with("[strategy]\nouter_optimizer = \"sgd\"\nouter_state = \"bf16\"\n"), "9:1",
                  "outer_state 'bf16' has no effect with outer_optimizer 'sgd', which has no momentum to keep; use \"f32\"");
  require_problem(with("[strategy]\nouter_state = \"bf61\"\n"), "8:", "one of f32, bf16");
  CHECK(problems(with("[strategy]\nouter_optimizer = \"sgd\"\nouter_state = \"f32\"\n")).empty());
  CHECK(parse_run_file(with("[strategy]\nouter_state = \"bf16\"\n"), "run.toml").spec.strategy.outer_state == OuterStateFormat::bf16);
  CHECK(problems(with("[strategy]\nname = \"data-parallel\"\ninner_steps = 1\npayload = \"gradient\"\n")).empty());
}

TEST_CASE("unknown keys and sections name the nearest known one and what is allowed") {
  require_problem(with("bacth = 4\n"), "7:1", "nearest is \"batch\", an integer from 1 to 65536");
  require_problem(with("stpes = 4\n"), "7:1", "nearest is \"steps\"");
  require_problem(with("colour = 4\n"), "7:1", "allowed are steps, tokens, batch");
  require_problem(with("layers = 4\n"), "7:1", "it belongs in [model]");
  require_problem(with("[modle]\nlayers = 2\n"), "7:2", "nearest is [model]");
  require_problem(with("[zebra]\n"), "7:2", "allowed are the sections run, model");
  require_problem("seed = 3\n" + with(""), "1:1", "it belongs in [run]");
  require_problem(with("[model.layers]\nx = 2\n"), "7:", "layers is a table here, but must be an integer");
  require_problem("run = 3\n", "1:1", "[run] must be one section, and is an integer here");
  require_problem("[[run]]\nname = \"a\"\n", "1:3", "must be one section, and is a list");
}

TEST_CASE("a misspelt required key is not reported as missing as well") {
  CHECK(problems("[run]\nnmae = \"a\"\n[data]\nset = \"t\"\n[training]\nsteps = 100\n").size() == 1);
  CHECK(problems("[run]\nname = \"a\"\n[data]\nset = \"t\"\n[trainign]\nsteps = 100\n").size() == 1);
}

TEST_CASE("wrong types and impossible values point at the value and say what is allowed") {
  require_problem(with("batch = \"big\"\n"), "7:9", "batch is a text here, but must be an integer from 1 to 65536");
  require_problem(with("batch = 0\n"), "7:9", "0 is out of range: batch is an integer from 1 to 65536");
  require_problem(with("batch = -4\n"), "7:9", "-4 is out of range");
  require_problem(with("batch = 9223372036854775807\n"), "7:9", "out of range");
  require_problem(with("batch = 1.5\n"), "7:9", "batch is a number here");
  require_problem(with("learning_rate = nan\n"), "7:17", "out of range: learning_rate is a number above 0 to 10");
  require_problem(with("learning_rate = inf\n"), "7:17", "out of range");
  require_problem(with("learning_rate = 0\n"), "7:17", "out of range");
  require_problem(with("beta1 = 1.0\n"), "7:9", "from 0 to below 1");
  require_problem(with("device = \"gpu\"\n"), "7:10", "auto, cpu or cuda:N");
  require_problem(with("precision = \"fp8\"\n"), "7:13", "one of auto, float32, bf16");
  require_problem(with("[islands]\ndeadline = 30\n"), "8:12",
                  "deadline is an integer here, but must be a time like \"30s\", from 1s to 7d");
  require_problem(with("[islands]\ndeadline = \"soon\"\n"), "8:12", "is not a time");
  require_problem(with("[islands]\nnames = [\"a\", 3]\n"), "8:15", "names holds an integer");
  require_problem(with("[islands]\nnames = \"a\"\n"), "8:9", "names is a text here, but must be a list");
  require_problem(with("[model]\ntied_embeddings = 1\n"), "8:19", "true or false");
  require_problem(with("[model]\nlayers = 1979-05-27\n"), "8:10", "is a date or time here");
  require_problem("[run]\nname = \"../evil\"\n[data]\nset=\"t\"\n[training]\nsteps=100\n", "2:8", "beginning with a letter or digit");
  require_problem("[run]\nname = \"\"\n[data]\nset=\"t\"\n[training]\nsteps=100\n", "2:8", "name is empty");
}

TEST_CASE("keys that contradict each other") {
  require_problem(with("batch = 16\naccumulation = 3\n"), "8:1", "accumulation 3 does not divide batch 16");
  require_problem(with("warmup_steps = 2000\n"), "7:1", "warmup_steps 2000 is more than steps 1000");
  require_problem(with("[model]\nwidth = 100\nheads = 3\n"), "9:1", "heads 3 does not divide width 100");
  require_problem(with("[model]\nwidth = 12\nheads = 4\n"), "9:1", "rotary positions need an even number");
  require_problem(with("[model]\nvocabulary = 100\n"), "8:1", "\"bytes\" has 256 tokens");
  require_problem(with("[model]\nlayers = 1000\nwidth = 65536\n"), "9:1", "more than run.arena_limit");
  require_problem(with("[strategy]\noverlap_steps = 101\n"), "8:1", "inner_steps");
  require_problem(with("[strategy]\ninner_steps = 1001\n"), "8:1", "not one round would happen");
  require_problem(with("[islands]\nmin = 5\nmax = 4\n"), "8:1", "min 5 is more than max 4");
  require_problem(with("[islands]\nnames = [\"a\", \"a\"]\n"), "8:1", "twice");
  require_problem(with("[islands]\nmin = 3\nnames = [\"a\", \"b\"]\n"), "9:1", "fewer than min 3");
  require_problem("[run]\nname=\"a\"\n[training]\nsteps=100\n[data]\n", "5:2", "exactly one of set, files, url");
  require_problem("[run]\nname=\"a\"\n[training]\nsteps=100\n[data]\nset=\"t\"\nfiles=[\"x\"]\n", "7:1", "exactly one of");
  require_problem("[run]\nname=\"a\"\n[training]\nsteps=100\n[data]\nurl=\"https://x.org/y\"\n", "6:1", "url needs sha256");
  require_problem("[run]\nname=\"a\"\n[training]\nsteps=100\n[data]\nurl=\"http://x.org/y\"\n", "6:5", "https://");
  require_problem("[run]\nname=\"a\"\n[data]\nset=\"t\"\n[training]\nsteps=1000000000000\nbatch=65536\nsequence_length=1048576\n", "6:1",
                  "more tokens");
}

TEST_CASE("all mistakes come at once, in the order of the file") {
  const std::vector<std::string> found =
      problems("[run]\nseeed = 1\n[training]\nbatch = 0\nlerning_rate = 3\n[islands]\nmin = 9\nmax = 3\n");
  REQUIRE(found.size() == 7);  // and the missing name, data and steps
  CHECK(std::ranges::is_sorted(parse_run_file("[run]\nseeed = 1\n[training]\nbatch = 0\n", "x").problems));
}

TEST_CASE("what is not TOML says where") {
  require_problem("[run\n", "1:", "not TOML");
  require_problem("[run]\nname = \"a\"\nname = \"b\"\n", "3:", "not TOML");
  require_problem("[run]\nname = \"a\n", "2:", "not TOML");
  CHECK_FALSE(problems(std::string("[run]\nname = \"a\0b\"\n", 19)).empty());
  CHECK_FALSE(problems("[run]\nname = \"\xff\xfe\"\n").empty());
  CHECK_FALSE(problems("a = " + std::string(100000, '[')).empty());
  CHECK_FALSE(problems(std::string(100000, '{')).empty());
  CHECK_FALSE(problems("").empty());
  require_problem(std::string((1 << 20) + 1, '#'), "1:1", "at most 1 MiB");
  CHECK(problems(with("# " + std::string(1 << 19, 'x') + "\n")).empty());
}

TEST_CASE("hostile words do not reach a terminal as they are") {
  const RunFile file = parse_run_file("[run]\n\"\\u001b[31mname\\n\" = 1\n", "run.toml");
  const std::string text = problems_text(file);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("\\x1b[31mname\\x0a") != std::string::npos);
  CHECK(printable("a\xff\x1b\xc2\x9bß") == "a\\xff\\x1b\\xc2\\x9bß");
  CHECK(first_columns("ßßß", 2) == "ßß");
}

TEST_CASE("reading files: absent, folders, devices") {
  CHECK(read_run_file("/nonexistent/run.toml").error().code == Code::not_found);
  CHECK(read_run_file("/tmp").error().code == Code::invalid_argument);
  CHECK(read_run_file("/dev/zero").error().code == Code::invalid_argument);
}

TEST_CASE("every example file is valid") {
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(atl_test::source_folder() + "/examples")) {
    if (entry.path().extension() != ".toml") {
      continue;
    }
    const Result<RunFile> file = read_run_file(entry.path());
    REQUIRE(file);
    INFO(problems_text(*file));
    CHECK(file->valid());
    ++seen;
  }
  CHECK(seen >= 4);
}

TEST_CASE("relative files are put into the run file's folder") {
  RunSpec spec;
  spec.data.files = {"text/*.txt", "/abs/x", "../y"};
  resolve_files(spec, "/home/me/runs/run.toml");
  CHECK(spec.data.files == std::vector<std::string>{"/home/me/runs/text/*.txt", "/abs/x", "/home/me/y"});
}

TEST_CASE("a spec survives JSON, and JSON accepts nothing else") {
  const RunFile file = parse_run_file(with("[islands]\ndeadline = \"90s\"\nnames = [\"a\", \"b\"]\n[model]\nwidth = 96\n"), "x");
  REQUIRE(file.valid());
  const std::string text = to_json(file.spec);
  const Result<RunSpec> back = run_spec_from_json(text);
  REQUIRE(back);
  CHECK(*back == file.spec);
  CHECK(to_json(*back) == text);

  const auto refused = [&](auto change, const std::string& part) {
    nlohmann::json document = nlohmann::json::parse(text);
    change(document);
    const Result<RunSpec> spec = run_spec_from_json(document.dump());
    REQUIRE_FALSE(spec);
    INFO(spec.error().why);
    CHECK(spec.error().code == Code::invalid_argument);
    CHECK(spec.error().why.find(part) != std::string::npos);
  };
  refused([](auto& d) { d["model"].erase("layers"); }, "model.layers is missing");
  refused([](auto& d) { d["model"]["colour"] = 1; }, "not known");
  refused([](auto& d) { d["zoo"] = 1; }, "not known");
  refused([](auto& d) { d.erase("islands"); }, "islands is missing");
  refused([](auto& d) { d["training"]["batch"] = 0; }, "training.batch");
  refused([](auto& d) { d["training"]["batch"] = -1; }, "training.batch");
  refused([](auto& d) { d["training"]["batch"] = 1e300; }, "training.batch");
  refused([](auto& d) { d["training"]["batch"] = 18446744073709551615ULL; }, "training.batch");
  refused([](auto& d) { d["training"]["device"] = nullptr; }, "training.device");
  refused([](auto& d) { d["strategy"]["name"] = "magic"; }, "strategy.name");
  refused([](auto& d) { d["data"]["files"] = {1, 2}; }, "data.files");
  refused([](auto& d) { d["rounds"] = "many"; }, "rounds");
  refused([](auto& d) { d["strategy"]["quorum"] = -1; }, "quorum");
  refused([](auto& d) { d["strategy"]["anchor"] = "old"; }, "anchor");
  CHECK_FALSE(run_spec_from_json("[]"));
  CHECK_FALSE(run_spec_from_json("{"));
  CHECK_FALSE(run_spec_from_json(std::string(1 << 21, ' ')));
  CHECK_FALSE(run_spec_from_json(std::string(1 << 19, '[')));
}

TEST_CASE("every key has a row that people can read, and a default that it allows") {
  const RunSpec defaults;
  for (const RunKey& key : run_keys()) {
    INFO(std::string(key.section) + "." + std::string(key.name));
    CHECK_FALSE(key.doc.empty());
    CHECK_FALSE(allowed(key).empty());
    CHECK(find_run_key(key.section, key.name) == &key);
    if (!key.required) {
      RunSpec copy;
      CHECK(assign(key, value_of(key, defaults), copy));
      CHECK(copy == defaults);
    }
  }
}

TEST_CASE("the sum of the table's keys is the whole spec") {
  // A field that no key reaches would be equal in both documents although the specs differ; each key here is changed alone.
  for (const RunKey& key : run_keys()) {
    RunSpec spec;
    const RunSpec defaults;
    std::visit(
        [](auto* field) {
          using Value = std::remove_pointer_t<decltype(field)>;
          if constexpr (std::is_same_v<Value, std::string>) {
            *field += "x";
          } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
            field->push_back("x");
          } else if constexpr (std::is_same_v<Value, bool>) {
            *field = !*field;
          } else if constexpr (std::is_same_v<Value, Duration>) {
            *field += std::chrono::seconds(1);
          } else {
            *field += 1;
          }
        },
        key.field(spec));
    INFO(std::string(key.section) + "." + std::string(key.name));
    CHECK_FALSE(spec == defaults);
    CHECK_FALSE(to_json(spec) == to_json(defaults));
  }
}

TEST_CASE("spelling finds slips and refuses guesses") {
  const std::array<std::string_view, 3> known = {"batch", "steps", "learning_rate"};
  CHECK(edit_distance("bacth", "batch") == 1);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance(std::string(1000, 'a'), "a") == 63);
  CHECK(nearest("stpes", known) == "steps");
  CHECK(nearest("learnig_rat", known) == "learning_rate");
  CHECK(nearest("zebra", known).empty());
}

TEST_CASE("strategies of rounds train one model of images, with its own keys and none of tokens") {
  const auto images = [](const std::string& strategy, const std::string& more = "") {
    return "[run]\nname = \"a\"\n[model]\nlayers = 3\nwidth = 16\nheads = 2\n[data]\nset = \"digits\"\nformat = \"idx\"\n[training]\nsteps "
           "= 100\n[strategy]\ninner_steps = 10\n" +
           strategy + more;
  };
  const RunFile file = parse_run_file(images("name = \"diloco\"\n", "[diffusion]\npatch = 4\ntimes = \"logit-normal\"\n"), "run.toml");
  INFO(problems_text(file));
  REQUIRE(file.valid());
  CHECK(file.spec.rounds == 10);
  CHECK(file.spec.diffusion.patch == 4);
  CHECK(file.spec.diffusion.ema == 0);
  CHECK(tokens_per_sequence(file.spec) == 1);
  // Three layers and the ends of a diffusion transformer are four fragments.
  const RunFile streaming = parse_run_file(images("name = \"streaming-diloco\"\nfragments = 3\n"), "run.toml");
  INFO(problems_text(streaming));
  REQUIRE(streaming.valid());
  CHECK(streaming.spec.rounds == 4 * 10);
  CHECK(parse_run_file(images("name = \"noloco\"\n"), "run.toml").valid());
  require_problem(images("name = \"diloco\"\n", "[diffusion]\nexperts = 2\n"), "16:1",
                  "experts has no effect with strategy.name = \"diloco\"");
  require_problem(images("name = \"diloco\"\n", "[diffusion]\nema = 0.9\n"), "16:1", "ema has no effect with strategy.name = \"diloco\"");
  require_problem("[run]\nname = \"a\"\n[model]\nvocabulary = 300\n[data]\nset = \"t\"\nformat = \"npy\"\n[training]\nsteps = 1000\n",
                  "4:1", "vocabulary has no effect on images");
  require_problem("[run]\nname = \"a\"\n[data]\nset = \"t\"\nformat = \"npy\"\n[training]\nsteps = 1000\nsequence_length = 7\n", "8:1",
                  "sequence_length has no effect on images");
  require_problem("[run]\nname = \"a\"\narena_limit = \"1MiB\"\n[data]\nset = \"t\"\nformat = \"npy\"\n[training]\nsteps = 1000\n",
                  "1:", "more than run.arena_limit");
}

TEST_CASE("the memory of a model's parameters is that of its manifest, of language and of images") {
  for (const char* format : {"bytes", "idx"}) {
    for (const std::uint32_t feed_forward : {0U, 96U}) {
      RunSpec spec;
      spec.data.format = format;
      spec.model.feed_forward = feed_forward;
      spec.diffusion.patch = 4;
      CHECK(model_parameter_bytes(spec) == 4.0 * static_cast<double>(island_link::elements(manifest_of(spec).parameters)));
    }
  }
}

TEST_CASE("run keys: each choice is written and read by its text, and no other text is taken") {
  std::size_t checked = 0;
  for (const RunKey& key : run_keys()) {
    if (key.choices.empty()) {
      continue;
    }
    INFO(key.section << "." << key.name);
    RunSpec spec;
    for (const std::string_view choice : key.choices) {
      REQUIRE(assign(key, std::string(choice), spec));
      CHECK(value_of(key, spec) == RunKeyValue(std::string(choice)));
      ++checked;
    }
    const RunSpec before = spec;
    for (const char* wrong : {"", "?", "f64", "Nesterov"}) {
      const Status refused = assign(key, std::string(wrong), spec);
      REQUIRE_FALSE(refused);
      CHECK(refused.error().why.find(std::string(key.choices.back())) != std::string::npos);
      CHECK(spec == before);
    }
  }
  CHECK(checked > 30);
}

TEST_CASE("a run of experts takes images and its own keys, and says which others do nothing") {
  const auto images = [](const std::string& more, const std::string& data = "format = \"idx\"\n", const std::string& tail = "") {
    return "[run]\nname = \"a\"\n[data]\nset = \"digits\"\n" + data +
           "[training]\nsteps = 50\n[strategy]\nname = \"decentralized-diffusion\"\n[diffusion]\n" + more + tail;
  };
  const RunFile file = parse_run_file(images("experts = 4\nfine_clusters = 64\nfeatures = \"npy:features.npy\"\n"), "run.toml");
  INFO(problems_text(file));
  REQUIRE(file.valid());
  CHECK(file.spec.strategy.group == Group::expert);
  CHECK(file.spec.rounds == 5);  // four experts and the router
  CHECK(run_spec_from_json(to_json(file.spec)).value() == file.spec);
  RunSpec spec = file.spec;
  resolve_files(spec, "/runs/run.toml");
  CHECK(spec.diffusion.features == "npy:/runs/features.npy");
  CHECK(parse_run_file(images("experts = 1\n"), "run.toml").spec.rounds == 1);

  // With more islands than experts and the router several train one, as the parts of the strategy say.
  CHECK(file.spec.strategy.inner_steps == 50);  // no more than there are
  CHECK(file.spec.group_rounds == 1);
  const auto grouped = [&](const std::string& strategy, const std::string& islands) {
    std::string text = images("experts = 2\n");
    text.replace(text.find("[strategy]\n"), 11, "[strategy]\n" + strategy);
    return text + "[islands]\n" + islands;
  };
  const RunFile groups =
      parse_run_file(grouped("inner_steps = 10\ngrouping = \"strided\"\nfragments = 4\noverlap_steps = 2\n", "max = 4\n"), "run.toml");
  INFO(problems_text(groups));
  REQUIRE(groups.valid());
  CHECK(groups.spec.group_rounds ==
        4 * 5 - 1 + 5);  // the last fragment's fourth would be applied at the end, where all five are synchronised
  CHECK(groups.spec.rounds == 3);
  CHECK(run_spec_from_json(to_json(groups.spec)).value() == groups.spec);
  CHECK(parse_run_file(grouped("", "max = 3\n"), "run.toml").spec.group_rounds == 0);
  require_problem(grouped("inner_steps = 10\n", "max = 3\n"), "9:1",
                  "inner_steps has no effect where every expert is trained by one island: islands.max is 3");
  require_problem(grouped("inner_steps = 60\n", "max = 4\n"), "9:1", "inner_steps 60 is more than training.steps 50");
  require_problem(grouped("payload = \"parameters\"\n", "max = 4\n"), "9:1", "payload must be 'outer-gradient' with group 'expert'");
  RunSpec group = groups.spec;
  group.work = GroupWork{"r-1", "experts/1", std::string(64, 'a')};
  CHECK(run_spec_from_json(to_json(group)).value() == group);
  group.work.images = {std::string(64, 'b'), std::string(64, 'c')};
  CHECK(run_spec_from_json(to_json(group)).value() == group);

  require_problem(images("", ""), "3:", "trains on images; formats of images are");
  require_problem(with("[diffusion]\nexperts = 2\n"), "8:1", "experts has no effect with strategy.name = \"diloco\"");
  require_problem(images("experts = 9\nfine_clusters = 8\n"), "12:", "fine_clusters 8 is less than experts 9");
  const std::string spread = "format = \"idx\"\nspread = 3\n";
  CHECK(parse_run_file(images("experts = 2\n", spread), "run.toml").spec.data.spread == 3);
  require_problem(images("experts = 2\n", spread, "[islands]\nmax = 2\n"), "6:1",
                  "spread 3 is more than islands.max 2: each of these islands packs one part");
  require_problem("[run]\nname = \"a\"\n[data]\nset = \"t\"\nspread = 2\n[training]\nsteps = 50\n", "5:1",
                  "spread is for strategy.name = \"decentralized-diffusion\"");
  require_problem(images("experts = 1\ndistill_steps = 10\n"), "12:", "with one expert there is nothing to distil");
  require_problem(images("balance = 0.5\n"), "11:", "a balance below 1 is impossible");
  require_problem(images("router_width = 30\n"), "11:", "must be a multiple of router_heads");
  require_problem(images("clusters_by = \"labels\"\nbalance = 2.0\n"), "12:1", "balance has no effect with clusters_by = \"labels\"");
  require_problem(images("features = \"torchscript:dino.pt\"\nfeature_width = 8\n"), "12:1",
                  "feature_width has no effect with features of a file");
  require_problem(images("features = \"jpeg:dino\"\n"), "11:", "pixels-pca, npy:FILE or torchscript:FILE");
  require_problem(images("", "format = \"idx\"\n", "[guards]\nnorm_factor = 2\n"), "12:1",
                  "norm_factor has no effect with strategy.name = \"decentralized-diffusion\"");
  require_problem(images("", "format = \"idx\"\n", "[islands]\nstraggler_factor = 2\n"), "12:1", "straggler_factor has no effect");
  CHECK(features_file("npy:a b") == "a b");
  CHECK(features_file("pixels-pca").empty());
}

}  // namespace of_run_file_test
