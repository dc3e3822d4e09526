// A file that the build put into the program (embed.cmake beside this).
// Threads: constant.
#pragma once

#include <string_view>

namespace atl {

struct EmbeddedFile {
  std::string_view name;  // "index.html"; with folders, where there are some: "gpt/train.py"
  std::string_view bytes;
};

}  // namespace atl
