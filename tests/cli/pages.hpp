// The pages of the repository, as tests read them: Markdown files, their code blocks, tables and links.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/places.hpp"

namespace atl::pages {

namespace fs = std::filesystem;

inline const fs::path kSource = atl_test::source_folder();

inline std::string file_text(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

// Every Markdown file of the repository but what was built, relative to its root.
inline std::vector<std::string> all_pages() {
  std::vector<std::string> pages;
  for (auto entry = fs::recursive_directory_iterator(kSource); entry != fs::recursive_directory_iterator(); ++entry) {
    const std::string path = entry->path().lexically_relative(kSource).string();
    if (path == "build" || path == ".git") {
      entry.disable_recursion_pending();
    } else if (path.ends_with(".md")) {
      pages.push_back(path);
    }
  }
  return pages;
}

// The parts of a text between a line that begins with `open` and the next that begins with `close`.
inline std::vector<std::string> blocks(const std::string& text, const std::string& open, const std::string& close) {
  std::vector<std::string> found;
  bool inside = false;
  for (const std::string& line : lines_of(text)) {
    if (inside && line.starts_with(close)) {
      inside = false;
    } else if (inside) {
      found.back() += line + "\n";
    } else if (line.starts_with(open)) {
      inside = true;
      found.emplace_back();
    }
  }
  return found;
}

// The rows of every table whose first line begins with `head`.
inline std::vector<std::string> table_rows(const std::string& text, const std::string& head) {
  std::vector<std::string> rows;
  bool inside = false;
  for (const std::string& line : lines_of(text)) {
    inside = line.starts_with(head) || (inside && line.starts_with("|"));
    if (inside && !line.starts_with(head) && !line.starts_with("|---")) {
      rows.push_back(line);
    }
  }
  return rows;
}

inline std::vector<std::string> in_backticks(const std::string& text) {
  std::vector<std::string> found;
  for (std::size_t at = text.find('`'); at != std::string::npos;) {
    const std::size_t end = text.find('`', at + 1);
    if (end == std::string::npos) {
      break;
    }
    found.push_back(text.substr(at + 1, end - at - 1));
    at = text.find('`', end + 1);
  }
  return found;
}

// A page without its code blocks.
inline std::string prose_of(const std::string& page) {
  std::string prose;
  bool code = false;
  for (const std::string& line : lines_of(page)) {
    if (line.starts_with("```")) {
      code = !code;
    } else if (!code) {
      prose += line + "\n";
    }
  }
  return prose;
}

// What the links and pictures of a text lead to.
inline std::vector<std::string> links_of(const std::string& text) {
  std::vector<std::string> links;
  for (std::size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at + 2)) {
    const std::size_t end = text.find(')', at);
    if (end != std::string::npos) {
      links.push_back(text.substr(at + 2, end - at - 2));
    }
  }
  return links;
}

// The anchors of a page's headings, as GitHub makes them.
inline std::vector<std::string> anchors_of(const std::string& page) {
  std::vector<std::string> anchors;
  for (const std::string& line : lines_of(prose_of(page))) {
    if (!line.starts_with("#")) {
      continue;
    }
    std::string anchor;
    for (const char c : line.substr(line.find_first_not_of("# "))) {
      if (c == ' ') {
        anchor += '-';
      } else if (c >= 'A' && c <= 'Z') {
        anchor += static_cast<char>(c - 'A' + 'a');
      } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || static_cast<unsigned char>(c) >= 0x80) {
        anchor += c;
      }
    }
    anchors.push_back(anchor);
  }
  return anchors;
}

}  // namespace atl::pages
