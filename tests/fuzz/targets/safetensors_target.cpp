// libFuzzer: any text as the header of a safetensors file. The first eight bytes say how much data the file holds.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "agent/storage/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint64_t data_bytes = 0;
  const std::size_t said = std::min(size, sizeof data_bytes);
  if (said > 0) {
    std::memcpy(&data_bytes, data, said);
  }
  const std::string_view json(reinterpret_cast<const char*>(data) + said, size - said);
  const atl::Result<atl::SafetensorsHeader> header = atl::parse_safetensors_header(json, data_bytes);
  if (!header) {
    return 0;
  }
  std::uint64_t at = 0;  // the tensors cover the data, in order
  for (const atl::TensorEntry& tensor : header->tensors) {
    if (tensor.begin != at || tensor.end < tensor.begin || header->find(tensor.name) == nullptr) {
      std::abort();
    }
    at = tensor.end;
  }
  if (at != data_bytes) {
    std::abort();
  }
  return 0;
}
