// The text views, against documents as coordinator/api/documents.md shows them.
#include "cli/views/views.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/parts/sparkline.hpp"
#include "cli/views/parts/table.hpp"
#include "tests/catch.hpp"
#include "tests/cli/scripted_coordinator.hpp"

namespace of_views_test {

using namespace atl;
using nlohmann::json;

namespace {

void check_fits(const std::string& text, std::size_t columns) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK(columns_of(line) <= columns);
    CHECK((line.empty() || line.back() != ' '));
  }
}

}  // namespace

TEST_CASE("runs") {
  CHECK(render_runs(documented("runs"), {}) ==
        "ID          NAME  STRATEGY  STATE    ROUND   LOSS  ISLANDS     AGE  REASON\n"
        "r-7f3a9c12  text  diloco    running   7/20  1.830        3  10m00s  round 8: waits for cloud-b (tra…\n");
  CHECK(render_runs(json{{"runs", json::array()}}, {}).find("atoll submit") != std::string::npos);
}

TEST_CASE("islands") {
  CHECK(render_islands(documented("islands"), {120, false}) ==
        "NAME     ID       STATE     RUN         ADDRESS              LINK    SEEN       BUDGET           UP         DOWN\n"
        "cloud-a  i-5c1d…  training  r-7f3a9c12  tcp://10.0.0.5:7701  up    600 ms  50.0 Mbit/s  48.0 Mbit/s  51.0 Mbit/s\n"
        "cloud-a and reef exchange over relay frankfurt: neither can dial the other, and the router of island reef gives each\n"
        "  connection another port (a symmetric NAT)\n");
}

TEST_CASE("tokens") {
  CHECK(render_tokens(documented("tokens"), {}) ==
        "ID        ROLE    NAME  STATE      AGE  GOOD FOR  USED BY\n"
        "t-93ab12  island  -     usable  10m00s    23h50m  -\n");
}

TEST_CASE("events") {
  CHECK(render_events(documented("events"), {}) == "2025-12-31 23:59:59 round 7 committed by 3 islands in 0.4 s, 3.2 MB each\n");
  const json warning = {{"events", {{{"time_unix_ms", 0}, {"level", "warning"}, {"island", "a"}, {"text", "lost\x1b[2J"}}}}};
  CHECK(render_events(warning, {}) == "1970-01-01 00:00:00 a warning: lost\\x1b[2J\n");
}

TEST_CASE("status") {
  CHECK(render_status(documented("status"), {120, false}) ==
        "run       r-7f3a9c12  text  (diloco)\n"
        "state     running: round 8: waits for cloud-b (training, step 790 of 800) (for 10.0 s, at most 9m50s more)\n"
        "round     7 of 20, epoch 2, attempt 1, checkpoint of round 5\n"
        "progress  ███████░░░░░░░░░░░░░ 35 %, 9m57s so far, about 18m29s left, until 00:18 UTC\n"
        "islands   3 active (min 2, max 4)\n"
        "data      25 % of it was trained on\n"
        "tokens    4.30 M, 21.0 k/s\n"
        "loss      1.830 nats per token, from 5.550  █▃▁\n"
        "sent      88.2 MB by all islands\n"
        "computing 98 % of the islands' time, 12.4 s waiting\n"
        "kernels   LibTorch 2.13.0 (AVX512), MKL 2024.2, on the processor\n"
        "\n"
        "ISLAND   STATE    STEP  TOKENS/S  SHARE  COMPUTING     SENT  RECEIVED    SEEN  REASON\n"
        "cloud-a  waiting   800    10.4 k   34 %       98 %  29.4 MB   29.4 MB  600 ms  waits for cloud-b\n"
        "\n"
        "waits\n"
        "  cloud-a: 3.2 s for the link laptop → cloud-a\n"
        "\n"
        "absences\n"
        "  laptop: from round 3 to 5: lost: no heartbeat for 5.0 s\n"
        "\n"
        "warnings\n"
        "  2025-12-31 23:53:30 laptop: trainer killed by signal 9; restarted from round 2\n");
}

TEST_CASE("status fits eighty columns: what is least needed goes, and long lines are broken at words") {
  const std::string text = render_status(documented("status"), {80, false});
  check_fits(text, 80);
  CHECK(text.find("\nISLAND   STATE    STEP  TOKENS/S  COMPUTING     SENT  REASON\n"
                  "cloud-a  waiting   800    10.4 k       98 %  29.4 MB  waits for cloud-b\n") != std::string::npos);
  CHECK(text.find("state     running: round 8: waits for cloud-b (training, step 790 of 800) (for\n"
                  "          10.0 s, at most 9m50s more)\n") != std::string::npos);
  CHECK(render_status(documented("status"), {90, false}).find("SENT  RECEIVED    SEEN  REASON\n") != std::string::npos);
  const std::string coloured = render_status(documented("status"), {80, true});
  CHECK(coloured.find("\x1b[32mrunning\x1b[0m: round 8: waits for cloud-b (training, step 790 of 800) (for\n") != std::string::npos);
}

TEST_CASE("nothing is cut or broken in a pipe") {
  json document = documented("status");
  const std::string long_reason = std::string(200, 'w') + " for " + std::string(200, 'x');
  document["run"]["reason"] = long_reason;
  document["islands"][0]["reason"] = long_reason;
  const std::string text = render_status(document, {kNoEdge, false});
  CHECK(text.find("running: " + long_reason) != std::string::npos);
  CHECK(text.find("  600 ms  " + long_reason + "\n") != std::string::npos);
}

TEST_CASE("what comes and goes is named in status with its rhythm") {
  json document = documented("status");
  CHECK(render_status(document, {200, false}).find("unsteady") == std::string::npos);
  document["run"]["unsteady"] = {
      {{"from", "reef"}, {"to", "b"}, {"text", "the path reef -> b comes and goes: there 51 % of the last 5 minutes, 50 changes"}}};
  CHECK(render_status(document, {200, false})
            .find("\nunsteady  the path reef -> b comes and goes: there 51 % of the last 5 minutes, 50 changes\n") != std::string::npos);
}

TEST_CASE("what islands compute with is said once where it is the same, and by island where it is not") {
  json document = documented("status");
  json other = document["islands"][0];
  other["name"] = "b";
  document["islands"].push_back(other);
  CHECK(render_status(document, {200, false}).find("\nkernels   LibTorch 2.13.0 (AVX512), MKL 2024.2, on the processor\n") !=
        std::string::npos);
  document["islands"][1]["kernels"] = "LibTorch 2.6.0 (AVX2), OpenBLAS 0.3.29, on the processor";
  CHECK(render_status(document, {200, false})
            .find("\nkernels   cloud-a: LibTorch 2.13.0 (AVX512), MKL 2024.2, on the processor; "
                  "b: LibTorch 2.6.0 (AVX2), OpenBLAS 0.3.29, on the processor\n") != std::string::npos);
  document["islands"][1]["state"] = "absent";
  CHECK(render_status(document, {200, false}).find("; b:") == std::string::npos);
  document["islands"][0]["kernels"] = nullptr;
  CHECK(render_status(document, {200, false}).find("kernels") == std::string::npos);
}

TEST_CASE("what the author of a run may want otherwise is noted while it goes on") {
  json document = documented("status");
  document["run"]["notes"] = {"a long\x1b note", 3};
  CHECK(render_status(document, {}).find("\nnote      a long\\x1b note\n") != std::string::npos);
  document["run"]["state"] = "completed";
  CHECK(render_status(document, {}).find("\nnote ") == std::string::npos);
}

TEST_CASE("a trainer of one's own is shown with its settings, and its losses without a unit") {
  json document = documented("status");
  document["run"]["trainer"] = {{"name", "gpt"}, {"settings", {{"layers", 6}, {"text", "a\x1b[2J"}}}};
  const std::string text = render_status(document, {});
  CHECK(text.find("\ntrainer   gpt  {\"layers\":6,\"text\":\"a\\u001b[2J\"}\n") != std::string::npos);
  CHECK(text.find("\nloss      1.830, from 5.550  ") != std::string::npos);
  CHECK(text.find("\nmodel     918 k parameters, 3.7 MB\n") != std::string::npos);
  CHECK(text.find("\nmetrics ") == std::string::npos);
  document["run"]["metrics"] = {{"accuracy", 0.25}, {"perplex\x1bity", 12.345}};
  CHECK(render_status(document, {}).find("\nmetrics   accuracy 0.25, perplex\\x1bity 12.35\n") != std::string::npos);
  document["run"]["trainer"]["settings"] = json::object();
  CHECK(render_status(document, {}).find("\ntrainer   gpt\n") != std::string::npos);
  CHECK(render_summary(document, {}).find("\nloss      5.550 at the start, 1.830 at the end on held-out data  ") != std::string::npos);
}

TEST_CASE("where nobody measures a loss on held-out data the loss is that of the steps") {
  json document = documented("status");
  document["run"]["outer_loss"] = nullptr;
  document["run"]["initial_loss"] = nullptr;
  document["run"]["losses"] = json::array();
  document["islands"].push_back(document["islands"][0]);
  document["islands"][0]["training_loss"] = 1.5;
  document["islands"][1]["training_loss"] = 2.5;
  CHECK(render_status(document, {}).find("\nloss      2.000 in training, none on held-out data\n") != std::string::npos);
  CHECK(render_summary(document, {}).find("\nloss      2.000 in training, none on held-out data\n") != std::string::npos);
  CHECK(render_progress(document, {200, false}).find("  loss 2.000  ") != std::string::npos);
  document["islands"][0]["training_loss"] = nullptr;
  document["islands"][1]["training_loss"] = nullptr;
  CHECK(render_status(document, {}).find("\nloss      - ") != std::string::npos);
  CHECK(render_progress(document, {200, false}).find("  loss -  ") != std::string::npos);
}

TEST_CASE("the spread of islands that meet in pairs is shown once it is known") {
  json document = documented("status");
  CHECK(render_status(document, {}).find("spread") == std::string::npos);
  document["run"]["consensus_distance"] = 0.012345;
  document["run"]["consensus_round"] = 6;
  CHECK(render_status(document, {}).find("\nspread    0.0123 from the islands to their mean, estimated after round 6\n") !=
        std::string::npos);
}

TEST_CASE("what each island's own parameters reach is shown from the best to the worst") {
  json document = documented("status");
  CHECK(render_status(document, {}).find("losses") == std::string::npos);
  json& islands = document["islands"];
  islands.push_back(islands[0]);
  islands.push_back(islands[0]);
  islands.push_back(islands[0]);
  const char* names[] = {"a", "b", "c", "d"};
  const double losses[] = {1.84, 1.79, 1.91, 5.0};
  for (std::size_t i = 0; i < 4; ++i) {
    islands[i]["name"] = names[i];
    islands[i]["own_loss"] = losses[i];
  }
  islands[3]["state"] = "absent";
  CHECK(render_status(document, {}).find("\nlosses    1.790 (b) to 1.910 (c), each island's own parameters\n") != std::string::npos);
  CHECK(render_summary(document, {}).find("\nlosses    1.790 (b) to 1.910 (c), each island's own parameters\n") != std::string::npos);
}

TEST_CASE("summary") {
  json document = documented("status");
  document["run"]["state"] = "completed";
  document["run"]["reason"] = "with 3 of 3 islands";
  document["run"]["ended_unix_ms"] = 1767225600000;
  json island = document["islands"][0];
  island["name"] = "cloud-b";
  document["islands"].push_back(island);
  document["run"]["bytes_sent"] = 2 * 29384704;
  CHECK(render_summary(document, {}) ==
        "run       r-7f3a9c12  text  completed: with 3 of 3 islands\n"
        "loss      5.550 at the start, 1.830 at the end, nats per token on held-out data  █▃▁\n"
        "rounds    7 of 20 in 9m57s, 4.30 M tokens\n"
        "data      25 % of it was trained on\n"
        "sent      29.4 MB by each island; data-parallel would have sent 2.9 GB, 100 times as much\n"
        "computing 98 % of the islands' time (9m50s computing, 12.4 s waiting)\n"
        "absences\n"
        "  laptop: from round 3 to 5: lost: no heartbeat for 5.0 s\n");
}

TEST_CASE("the summary says what became of the copies in a store") {
  const Terminal whole{kNoEdge, false};
  json document = documented("status");
  document["run"]["state"] = "completed";
  CHECK(render_summary(document, whole).find("copies") == std::string::npos);
  document["copies_open"] = "the store had not taken it";  // `local` waits no longer
  CHECK(render_summary(document, whole).find("\ncopies    none: the store had not taken it\n") != std::string::npos);
  document["run"]["copied_round"] = 3;
  CHECK(render_summary(document, whole).find("\ncopies    of round 3; the store had not taken it\n") != std::string::npos);
  document.erase("copies_open");
  document["run"]["copied_round"] = 7;
  CHECK(render_summary(document, whole).find("\ncopies    of round 7\n") != std::string::npos);
  json warning = document["warnings"][0];
  warning["kind"] = "checkpoint_not_copied";
  warning["round"] = 7;
  warning["text"] = "the checkpoint of round 7 was not copied by island a to s3://b: the store says 403; the run goes on";
  document["warnings"].push_back(warning);
  CHECK(render_summary(document, whole).find("\ncopies    of round 7\n") != std::string::npos);  // at the second try
  document["run"]["copied_round"] = 5;
  document["run"]["checkpoint_round"] = 7;
  CHECK(copies_are_settled(document));
  document["warnings"][1]["text"] = "the store says 503; tried again in 10 s";
  CHECK_FALSE(copies_are_settled(document));
  document["warnings"][1]["text"] = warning["text"];
  const std::string failed = "the checkpoint of round 7 was not copied by island a to s3://b: the store says 403\n";
  CHECK(render_summary(document, whole).find("\ncopies    of round 5; then " + failed) != std::string::npos);
  document["run"]["copied_round"] = nullptr;
  CHECK(render_summary(document, whole).find("\ncopies    none: " + failed) != std::string::npos);
  document["warnings"][1]["round"] = nullptr;  // nobody may copy
  document["warnings"][1]["text"] = "no island may copy; the run goes on without copies";
  CHECK(render_summary(document, whole).find("\ncopies    none: no island may copy; the run goes on without copies\n") !=
        std::string::npos);
}

TEST_CASE("a run that ends by its tokens is shown by these") {
  json document = documented("status");
  json runs = documented("runs");
  for (json* run : {&document["run"], &runs["runs"][0]}) {
    (*run)["rounds"] = 1000;
    (*run)["tokens_committed"] = 4300800;
    (*run)["token_limit"] = 8601600;
  }
  const std::string status = render_status(document, {120, false});
  CHECK(status.find("round     7, with 4.30 M of 8.60 M tokens, epoch 2") != std::string::npos);
  CHECK(status.find(" 50 %, 9m57s so far, about 9m57s left") != std::string::npos);
  CHECK(render_progress(document, {60, false}).starts_with("running  round 7, 50 %  loss 1.830"));
  CHECK(render_runs(runs, {}).find("running  7, 50 %  1.830") != std::string::npos);
  document["run"]["state"] = "completed";
  CHECK(render_summary(document, {}).find("rounds    7 in ") != std::string::npos);
  const json first = document["run"];
  document["run"]["token_limit"] = nullptr;
  const std::string compared = render_comparison(json{{"first", first}, {"second", document["run"]}}, {120, false});
  CHECK(compared.find("7, with 4.30 M of 8.60 M tokens") != std::string::npos);
  CHECK(compared.find("7 of 1000") != std::string::npos);
}

TEST_CASE("what a run of no step did not send is not compared with data-parallel") {
  json document = documented("status");
  document["islands"].push_back(document["islands"][0]);
  for (json& island : document["islands"]) {
    island["step"] = 0;
  }
  CHECK(render_summary(document, {}).find("data-parallel") == std::string::npos);
}

TEST_CASE("progress fits one line") {
  const std::string line = render_progress(documented("status"), {60, false});
  CHECK(columns_of(line) <= 59);
  CHECK(line.starts_with("running  round 7/20  loss 1.830"));
}

TEST_CASE("lists fit a hundred columns however long the words are") {
  json runs = documented("runs");
  json islands = documented("islands");
  const std::string long_word(300, 'w');
  for (int i = 0; i < 3; ++i) {
    json run = runs["runs"][0];
    run["name"] = long_word;
    run["reason"] = long_word;
    runs["runs"].push_back(run);
    json island = islands["islands"][0];
    for (const char* key : {"name", "id", "address", "run"}) {
      island[key] = long_word;
    }
    islands["islands"].push_back(island);
  }
  check_fits(render_runs(runs, {}), 100);
  check_fits(render_islands(islands, {}), 100);
}

TEST_CASE("a document of another shape is shown as far as it goes, never a crash") {
  for (const json& document :
       {json(), json(3), json::array(), json::object(), json{{"runs", 3}, {"run", "x"}, {"islands", {1, nullptr, {{"name", 3}}}}},
        json{
            {"run", {{"round", "x"}, {"losses", {1, {1}, {1, "a"}}}}}, {"now_unix_ms", 1e300}, {"events", {1, {{"time_unix_ms", -1e300}}}}},
        json{{"now_unix_ms", 0}, {"runs", {{{"created_unix_ms", 1e308}}}}, {"tokens", {{{"expires_unix_ms", -1e308}}}}}}) {
    for (const auto render : {render_runs, render_status, render_islands, render_events, render_tokens, render_summary, render_progress}) {
      CHECK_NOTHROW(render(document, Terminal{100, true}));
    }
  }
}

TEST_CASE("colours only where the terminal has them") {
  CHECK(render_runs(documented("runs"), {100, false}).find('\x1b') == std::string::npos);
  CHECK(render_runs(documented("runs"), {100, true}).find("\x1b[32mrunning\x1b[0m") != std::string::npos);
}

TEST_CASE("a table gives way in its flexible columns only") {
  Table table({{"A"}, {"B", false, true}, {"C", true}});
  table.add({{"fixed"}, {"abcdefghij"}, {"1"}});
  table.add({{"x"}, {"ßß"}, {"22"}});
  CHECK(table.text({14, false}) == "A      B     C\nfixed  ab…   1\nx      ßß   22\n");
  CHECK(table.text({5, false}) == "A      B   C\nfixed  …   1\nx      …  22\n");
}

TEST_CASE("a table leaves out the columns that are least needed before it cuts words beyond recognition") {
  Table table({{"NAME", false, true}, {"SECOND", false, false, 2}, {"FIRST", true, false, 1}});
  table.add({{"abcdefghijklmnopqrst"}, {"222222"}, {"1"}});
  CHECK(table.text({35, false}) == "NAME                  SECOND  FIRST\nabcdefghijklmnopqrst  222222      1\n");
  CHECK(table.text({31, false}) == "NAME                  SECOND\nabcdefghijklmnopqrst  222222\n");
  CHECK(table.text({30, false}) == "NAME                  SECOND\nabcdefghijklmnopqrst  222222\n");
  CHECK(table.text({10, false}) == "NAME\nabcdefghi…\n");
}

TEST_CASE("numbers as people read them") {
  CHECK(count_text(7) == "7");
  CHECK(count_text(0.5) == "0.50");
  CHECK(count_text(999.6) == "1.00 k");
  CHECK(count_text(4300800) == "4.30 M");
  CHECK(count_text(std::nullopt) == "-");
  CHECK(bits_text(48e6) == "48.0 Mbit/s");
  CHECK(share_text(1, 0) == "100 %");
  CHECK(share_text(0, 0) == "-");
  CHECK(age_text(5000, 1000) == "4.0 s");
  CHECK(age_text(1000, 5000) == "0 ms");
  CHECK(time_text(0) == "1970-01-01 00:00:00");
}

TEST_CASE("how much of the data was trained on is a share of it, or passes") {
  CHECK(data_passes_text(0.1244) == "12.4 % of it was trained on");
  CHECK(data_passes_text(2.409) == "2.41 passes over it");
  CHECK(data_passes_text(0.0).empty());
  CHECK(data_passes_text(std::nullopt).empty());
}

TEST_CASE("sparklines") {
  const std::vector<double> falling = {8, 7, 6, 5, 4, 3, 2, 1};
  CHECK(sparkline(falling, 8) == "█▇▆▅▄▃▂▁");
  CHECK(sparkline(falling, 4) == "█▆▃▁");
  CHECK(sparkline(std::vector<double>{1, 1, 1}, 8) == "▁▁▁");
  CHECK(sparkline(std::vector<double>{1}, 8).empty());
  CHECK(sparkline(std::vector<double>{std::nan(""), 2, 1}, 8) == "█▁");
}

}  // namespace of_views_test
