// The pages of the repository are true: their links lead somewhere, and the parts, types and tests that they name are there.
#include "tests/cli/pages.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "tests/catch.hpp"
#include "tests/skip.hpp"

namespace of_pages_test {

using namespace atl::pages;

namespace {

// Checks the links of a page; where they lead, relative to the repository.
std::vector<std::string> check_links(const std::string& page) {
  std::vector<std::string> targets;
  const std::string text = file_text(kSource / page);
  for (const std::string& link : links_of(prose_of(text))) {
    if (link.starts_with("https://") || link.starts_with("http://")) {
      continue;
    }
    INFO(page << " has a link to " << link);
    const std::size_t hash = link.find('#');
    const fs::path target = (hash == 0 ? kSource / page : (kSource / page).parent_path() / link.substr(0, hash)).lexically_normal();
    CHECK(fs::exists(target));
    if (hash != std::string::npos) {
      const std::vector<std::string> anchors = anchors_of(file_text(target));
      CHECK(std::ranges::find(anchors, link.substr(hash + 1)) != anchors.end());
    }
    targets.push_back(target.lexically_relative(kSource).string());
  }
  return targets;
}

// A part of the build, as CMakeLists.txt declares it.
struct BuiltPart {
  std::string name;
  std::string folder;
  std::vector<std::string> links;
};
std::vector<BuiltPart> parts_of(const std::string& cmake) {
  std::vector<BuiltPart> parts;
  const std::string open = "\natoll_part(";
  for (std::size_t at = cmake.find(open); at != std::string::npos; at = cmake.find(open, at + 1)) {
    const std::size_t begin = at + open.size();
    std::istringstream words(cmake.substr(begin, cmake.find(')', begin) - begin));
    BuiltPart part;
    words >> part.name >> part.folder;
    bool links = false;
    for (std::string word; words >> word;) {
      if (word == "LINKS" || word == "PRIVATE_LINKS") {
        links = true;
      } else if (links) {
        part.links.push_back(word);
      }
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

TEST_CASE("every relative link of every page leads to a file, and to a heading where it names one") {
  std::set<std::string> reached = {"README.md"};
  for (const std::string& page : all_pages()) {
    for (const std::string& target : check_links(page)) {
      if (target != page) {
        reached.insert(target);
      }
    }
  }
  for (const std::string& page : all_pages()) {
    INFO("no other page links to " << page);
    CHECK(reached.contains(page));
  }
}

TEST_CASE("links and anchors of a page are read as they are shown") {
  CHECK(links_of("[a](b.md#c) and ![d](e.svg)") == std::vector<std::string>{"b.md#c", "e.svg"});
  CHECK(prose_of("a\n```sh\n[b](c)\n```\nd\n") == "a\nd\n");
  CHECK(anchors_of("# Two words\n## What is *this*, now?\n") == std::vector<std::string>{"two-words", "what-is-this-now"});
}

TEST_CASE("the README is a door: at most 150 lines") { CHECK(lines_of(file_text(kSource / "README.md")).size() <= 150); }

TEST_CASE("the architecture's table of parts has every part of the build, with the parts that it links") {
  std::map<std::string, std::set<std::string>> sees;  // of the page: folder to folders
  for (const std::string& row : table_rows(file_text(kSource / "docs/architecture.md"), "| part | sees |")) {
    const std::size_t second = row.find(" | ", 2);
    const std::vector<std::string> seen = in_backticks(row.substr(second, row.find(" | ", second + 3) - second));
    for (const std::string& folder : in_backticks(row.substr(0, second))) {
      INFO(folder);
      CHECK(fs::is_directory(kSource / folder));
      sees[folder].insert(seen.begin(), seen.end());
    }
  }
  const std::vector<BuiltPart> parts = parts_of(file_text(kSource / "CMakeLists.txt"));
  CHECK(parts.size() > 15);
  std::map<std::string, std::string> folders;  // of target names
  for (const BuiltPart& part : parts) {
    folders[part.name] = part.folder;
  }
  for (const BuiltPart& part : parts) {
    INFO("the row of " << part.folder << " in docs/architecture.md");
    REQUIRE(sees.contains(part.folder));
    for (const std::string& link : part.links) {
      INFO("links " << link);
      CHECK((!folders.contains(link) || sees.at(part.folder).contains(folders.at(link))));
    }
    for (const std::string& folder : sees.at(part.folder)) {
      INFO("does not link " << folder);
      CHECK(std::ranges::any_of(part.links, [&](const std::string& link) { return folders.contains(link) && folders.at(link) == folder; }));
    }
  }
}

TEST_CASE("every type of the architecture's glossary is in the header that it names") {
  const std::vector<std::string> rows = table_rows(file_text(kSource / "docs/architecture.md"), "| type | what | header |");
  REQUIRE(rows.size() > 20);
  for (const std::string& row : rows) {
    const std::vector<std::string> headers = links_of(row);
    REQUIRE(headers.size() == 1);
    const std::string header = file_text(kSource / "docs" / headers[0]);
    for (const std::string& type : in_backticks(row.substr(0, row.find(" | ", 2)))) {
      INFO(type << " is not in " << headers[0]);
      CHECK((header.find("struct " + type + " ") != std::string::npos || header.find("class " + type + " ") != std::string::npos ||
             header.find("using " + type + " ") != std::string::npos ||
             header.find("class [[nodiscard]] " + type + " ") != std::string::npos));
    }
  }
}

TEST_CASE("every test that the page on security names is there") {
  std::size_t tests = 0;
  for (const std::string& line : lines_of(file_text(kSource / "docs/security.md"))) {
    std::string sources;
    for (const std::string& link : links_of(line)) {
      sources += link.ends_with("_test.cpp") ? file_text(kSource / "docs" / link) : "";
    }
    if (sources.empty()) {
      continue;
    }
    for (const std::string& name : in_backticks(line)) {
      INFO(name);
      CHECK(sources.find("\"" + name + "\"") != std::string::npos);
      ++tests;
    }
  }
  CHECK(tests > 20);
}

TEST_CASE("every plot has its data and is shown on a page") {
  std::string results;
  for (const std::string& page : all_pages()) {
    results += page.starts_with("docs/results/") ? file_text(kSource / page) : "";
  }
  std::size_t plots = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kSource / "docs/results/plots")) {
    const fs::path& path = entry.path();
    INFO(path);
    if (path.extension() == ".svg") {
      CHECK(fs::exists(fs::path(path).replace_extension(".csv")));
      CHECK(results.find("](plots/" + path.filename().string() + ")") != std::string::npos);
      ++plots;
    } else if (path.extension() == ".csv") {
      CHECK(fs::exists(fs::path(path).replace_extension(".svg")));
    }
  }
  CHECK(plots > 5);
}

TEST_CASE("every plot is what its data give") {
  if (std::system("command -v python3 >/dev/null 2>&1") != 0) {
    ATL_SKIP("there is no python3 to draw the plots again");
  }
  CHECK(std::system(("python3 '" + (kSource / "docs/results/plots/draw.py").string() + "' --check").c_str()) == 0);
}

}  // namespace of_pages_test
