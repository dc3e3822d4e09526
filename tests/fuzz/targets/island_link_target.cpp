// libFuzzer: any text as a message of the island link, in both directions; what is accepted can be written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "agent/island_link/messages.hpp"

using namespace atl::island_link;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const atl::Result<TrainerMessage> from_trainer = decode_trainer_message(text);
  if (from_trainer && !decode_trainer_message(encode(*from_trainer))) {
    std::abort();
  }
  const atl::Result<AgentMessage> from_agent = decode_agent_message(text);
  if (from_agent && !decode_agent_message(encode(*from_agent))) {
    std::abort();
  }
  return 0;
}
