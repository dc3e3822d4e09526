#include "cli/models/rasterized.hpp"

#include "cli/models/asked_program.hpp"

namespace atl {

Result<Bytes> rasterized(const std::string& svg) {
  constexpr const char* kProgram = "rsvg-convert";
  Result<ProgramAnswer> answer =
      ask_program({kProgram, "--format", "png"}, as_bytes(svg), own_environment(), ProgramTalk::kept, std::chrono::minutes(5));
  if (!answer && answer.error().code == Code::not_found) {
    return Error{Code::not_found, std::string("PNG is drawn by ") + kProgram + ", which is not here (" + answer.error().why +
                                      "): install it (apt-get install librsvg2-bin), or write SVG: -o loss.svg"};
  }
  if (!answer) {
    return with_context(answer.error(), kProgram);
  }
  if (answer->status != 0) {
    return Error{Code::internal, std::string(kProgram) + " failed: " + std::string(as_text(answer->said)).substr(0, 300)};
  }
  return std::move(answer->out);
}

}  // namespace atl
