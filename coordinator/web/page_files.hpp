// The page's files (coordinator/web/page), as the build put them into the program.
// Threads: constant.
#pragma once

#include <span>
#include <string_view>

namespace atl::coordinator {

struct PageFile {
  std::string_view name;  // "index.html"
  std::string_view bytes;
};

std::span<const PageFile> page_files();

}  // namespace atl::coordinator
