// PNG and JPEG files: read by libpng and libjpeg, PNG written by libpng.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/trainer/data/images.hpp"
#include "transport/base/result.hpp"

namespace atl {

struct DecodedImage {
  ImageShape shape;                 // 1 channel (grey) or 3 (RGB)
  std::vector<std::uint8_t> bytes;  // channel by channel
};

// An image file, whatever its name says: the first bytes decide. The pixels are those that PIL gives for convert("RGB"), or of grey files
// for mode "L": gamma and colour profiles are not applied, transparency is left out, palettes and CMYK become RGB. Of 16 bits the upper 8
// count (PIL's convert() cuts a grey 16-bit image off at 255 instead). Errors: not_found, io; corrupt, naming the file, for one that is
// neither or does not decode.
Result<DecodedImage> read_image_file(const std::string& path);

// Writes images of one shape side by side as one PNG, `columns` to a row with a grey line between, from values in [−1, 1] (clamped).
// `values`: count × shape.values(). Errors: invalid_argument for a channel count other than 1 or 3; io, naming the path.
Status write_png_grid(const std::string& path, const ImageShape& shape, const std::vector<float>& values, std::size_t columns);

}  // namespace atl
