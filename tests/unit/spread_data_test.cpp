// Runs of phases whose data set is spread over islands: who packs which images, and where a part's features are made.
#include <map>

#include "coordinator/core/phases.hpp"
#include "tests/unit/phases_play.hpp"

namespace of_spread_data_test {

using namespace atl_test;

namespace {

RunSpec spread_over(std::uint32_t parts, std::uint32_t experts = 2) {
  RunSpec spec = spec_of(experts);
  spec.data.spread = parts;
  return spec;
}

std::string reason(const Play& play) { return play.core.run(play.now, play.run)->reason.text; }

}  // namespace

TEST_CASE("a data set that is spread over islands is packed before anything else, and its clustering needs no image") {
  std::vector<std::string> names;
  std::map<std::string, std::vector<std::string>> needs;
  for (const TaskPlan& task : tasks_of(spread_over(2))) {
    names.push_back(task.task);
    needs[task.task] = task.needs;
  }
  using Names = std::vector<std::string>;
  CHECK(names == Names{"images/0", "images/1", "features/0", "features/1", "clustering", "experts/0", "experts/1", "router", "assemble"});
  CHECK(needs["images/1"].empty());
  CHECK(needs["features/1"] == Names{"images/1"});
  CHECK(needs["clustering"] == Names{"features/0", "features/1"});
  CHECK(needs["experts/0"] == Names{"clustering", "images/0", "images/1"});
  CHECK(needs["assemble"] == Names{"clustering", "images/0", "images/1", "experts/0", "experts/1", "router"});
  CHECK(phases_of(spread_over(2)) == Names{"images", "features", "clustering", "experts", "router", "assemble"});
  // Labels and chance look at the images themselves.
  RunSpec labels = spread_over(2);
  labels.diffusion.clusters_by = "labels";
  CHECK(tasks_of(labels)[2].needs == Names{"images/0", "images/1"});
}

TEST_CASE("each island packs its own images once, those without any only train, and a part's features are made where its images are") {
  Play play;
  play.join("a", 1, {});
  play.join("b");
  play.submit(spread_over(2));
  REQUIRE(play.who("images/0") == "b");
  CHECK(play.who("images/1").empty());
  play.finish("b");
  play.wait(1s);
  CHECK(play.who("images/1").empty());  // b has packed, a has nothing to pack
  CHECK(
      reason(play).find("waits for 1 more of 2 islands with images of their own; island a has none: its agent maps no data set 'digits'") !=
      std::string::npos);
  play.join("c");
  play.wait(1s);
  REQUIRE(play.who("images/1") == "c");
  // It maps the set, and there is nothing there.
  AssignmentReport failed = play.report("c", "failed");
  failed.error = Error{Code::not_found, "/srv/digits: no such file"};
  play.say("c", failed);
  play.wait(1s);
  CHECK(play.view("images/1").state == TaskState::waiting);
  CHECK(reason(play).find("island c has none: /srv/digits: no such file") != std::string::npos);
  play.join("d");
  play.wait(1s);
  REQUIRE(play.who("images/1") == "d");
  play.finish("d");
  CHECK(play.who("features/0") == "b");
  CHECK(play.who("features/1") == "d");
  play.finish("b");
  play.finish("d");
  const std::string clusters = play.who("clustering");
  REQUIRE_FALSE(clusters.empty());
  CHECK(play.assignments[clusters].inputs.size() == 2);
  play.finish(clusters);
  // An island without images of its own trains on the others'.
  play.wait(1s);
  CHECK_FALSE(play.assignments["a"].task.empty());
  CHECK(play.assignments["a"].inputs.size() == 3);
}

TEST_CASE("islands with the same images are no two parts of a data set") {
  Play play;
  play.join("a");
  play.join("b");
  play.submit(spread_over(2));
  play.finish_as("a", digest(70));
  play.finish_as("b", digest(70));
  CHECK(play.core.run(play.now, play.run)->state == RunState::failed);
  CHECK(reason(play).find("islands a and b have the same images; with data.spread = 2 each of so many islands has images of its own") !=
        std::string::npos);
}

TEST_CASE("packed images that are lost are packed again by their own island alone, and have to be the same") {
  for (const bool same : {true, false}) {
    Play play;
    for (const char* name : {"a", "b", "c"}) {
      play.join(name);
    }
    RunSpec spec = spread_over(2);
    spec.islands.deadline = 1s;  // however long it takes
    play.submit(spec);
    const std::string owner = play.who("images/0");
    const std::string other = play.who("images/1");
    const Digest images = play.finish(owner);
    play.finish(other);
    play.finish(play.who("features/0"));
    play.finish(play.who("features/1"));
    play.finish(play.who("clustering"));
    for (const char* name : {"a", "b", "c"}) {
      play.fetch(name);
      play.held[name].erase(images);  // of all that there is nobody has this any more
    }
    const std::string third = owner != "a" && other != "a" ? "a" : owner != "b" && other != "b" ? "b" : "c";
    play.lose(owner);
    for (const std::string& name : {other, third}) {
      play.say(name, play.report(name, play.assignments[name].task.empty() ? "idle" : "fetching"));
    }
    play.wait(3s);
    CHECK(play.view("images/0").state == TaskState::done);
    INFO(reason(play));
    CHECK(reason(play).find("waits for island " + owner +
                            " or another that has the images of task images/0: nobody else can pack them again") != std::string::npos);
    play.join(owner);
    play.wait(2s);
    play.say(owner, play.report(owner, "idle"));
    play.wait(1s);
    REQUIRE(play.who("images/0") == owner);
    play.finish_as(owner, same ? images : digest(71));
    play.wait(1s);
    if (same) {
      CHECK(play.view("images/0").state == TaskState::done);
      CHECK_FALSE(play.who("experts/0").empty());
    } else {
      CHECK(play.core.run(play.now, play.run)->state == RunState::failed);
      CHECK(reason(play).find("the images of island " + owner + " have changed since they were packed") != std::string::npos);
    }
  }
}

}  // namespace of_spread_data_test
