// libFuzzer: any bytes as a frame of the control link.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "transport/control/message.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const atl::Result<atl::Message> message = atl::decode(std::as_bytes(std::span(data, size)));
  if (message) {
    // What was accepted can be sent again, unless the frame was small only because its tables shared parts.
    const atl::Result<atl::Bytes> again = atl::encode(*message);
    if (again && !atl::decode(*again)) {
      std::abort();
    }
  }
  return 0;
}
