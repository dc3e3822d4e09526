// The page's files (coordinator/web/page), as the build put them into the program.
// Threads: constant.
#pragma once

#include <span>

#include "transport/base/embedded_file.hpp"

namespace atl {

std::span<const EmbeddedFile> page_files();

}  // namespace atl
