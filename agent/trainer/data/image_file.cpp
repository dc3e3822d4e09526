#include "agent/trainer/data/image_file.hpp"

#include <fcntl.h>
#include <png.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <memory>

#include "agent/trainer/data/corrupt_file.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/output_file.hpp"

// They need <cstdio> before them.
#include <jerror.h>
#include <jpeglib.h>

namespace atl {
namespace {

constexpr std::uint64_t kMaxPixels = 1ULL << 25;  // 8192 × 4096

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

// A few bytes can claim any size: this is known before anything is allocated for it.
Error too_large(const std::string& path, std::uint32_t width, std::uint32_t height) {
  return corrupt(path, "it says that it is " + std::to_string(width) + " × " + std::to_string(height) +
                           ", and an image has at most 2^25 pixels; scale it down");
}

// From rows of interleaved pixels to planes.
std::vector<std::uint8_t> planes_of(const std::vector<std::uint8_t>& pixels, const ImageShape& shape) {
  std::vector<std::uint8_t> planes(pixels.size());
  const std::size_t plane = std::size_t{shape.height} * shape.width;
  for (std::size_t i = 0; i < plane; ++i) {
    for (std::size_t c = 0; c < shape.channels; ++c) {
      planes[c * plane + i] = pixels[i * shape.channels + c];
    }
  }
  return planes;
}

// libpng and libjpeg report errors by a call that must not return.
struct PngErrors {
  std::string message;
};
void png_failed(png_structp png, png_const_charp message) {
  static_cast<PngErrors*>(png_get_error_ptr(png))->message = message;
  png_longjmp(png, 1);
}
void png_warned(png_structp, png_const_charp) {}  // of text, colour profiles and other chunks that are not looked at

struct PngReader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  PngReader() = default;
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
};

// Bytes of 8 bits, grey or RGB: numbers as they are in the file, whatever gamma it says; the upper half of 16 bits; without transparency.
void choose_transformations(png_structp png, png_infop info) {
  const png_byte colour = png_get_color_type(png, info);
  const png_byte depth = png_get_bit_depth(png, info);
  if (colour == PNG_COLOR_TYPE_PALETTE) {
    png_set_palette_to_rgb(png);
  } else if (depth < 8) {
    png_set_expand_gray_1_2_4_to_8(png);
  }
  if (depth == 16) {
    png_set_strip_16(png);
  }
  png_set_strip_alpha(png);
}

// Nothing with a destructor may live across the jump, so the caller owns the memory. An image that is too large is refused with its size in
// the shape, without channels.
bool decode_png(PngReader& reader, std::FILE* file, ImageShape& shape, std::vector<std::uint8_t>& pixels) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) {  // NOLINT(cert-err52-cpp): libpng's way
    return false;
  }
  png_init_io(reader.png, file);
  png_set_user_limits(reader.png, 0x7fffffff, 0x7fffffff);  // kMaxPixels counts
  png_read_info(reader.png, reader.info);
  const png_uint_32 width = png_get_image_width(reader.png, reader.info);
  const png_uint_32 height = png_get_image_height(reader.png, reader.info);
  if (std::uint64_t{width} * height > kMaxPixels) {
    shape = ImageShape{0, height, width};
    return false;
  }
  choose_transformations(reader.png, reader.info);
  const int passes = png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  shape = ImageShape{png_get_channels(reader.png, reader.info), height, width};
  const std::size_t row_bytes = std::size_t{width} * shape.channels;
  if (row_bytes != png_get_rowbytes(reader.png, reader.info)) {
    png_error(reader.png, "its pixels have an unknown layout");
  }
  pixels.resize(shape.values());
  for (int pass = 0; pass < passes; ++pass) {
    for (png_uint_32 y = 0; y < height; ++y) {
      png_read_row(reader.png, pixels.data() + y * row_bytes, nullptr);
    }
  }
  png_read_end(reader.png, nullptr);
  return true;
}

Result<DecodedImage> read_png(const std::string& path, std::FILE* file) {
  PngErrors errors;
  PngReader reader;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &errors, png_failed, png_warned);
  reader.info = reader.png == nullptr ? nullptr : png_create_info_struct(reader.png);
  if (reader.info == nullptr) {
    return Error{Code::io, path + ": cannot be read: no memory is left"};
  }
  DecodedImage image;
  std::vector<std::uint8_t> pixels;
  if (!decode_png(reader, file, image.shape, pixels)) {
    if (image.shape.height > 0 && image.shape.channels == 0) {
      return too_large(path, image.shape.width, image.shape.height);
    }
    return corrupt(path, "not a whole PNG file: " + errors.message);
  }
  image.bytes = planes_of(pixels, image.shape);
  return image;
}

struct JpegErrors {
  jpeg_error_mgr manager;
  std::jmp_buf escape;
  std::array<char, JMSG_LENGTH_MAX> message;
};
void jpeg_failed(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  info->err->format_message(info, errors->message.data());
  std::longjmp(errors->escape, 1);
}
// A file that is cut short or damaged is a warning to libjpeg, and grey below; to us it is an error. Of what is only untidy (bytes between
// markers, a marker of another program) the image is whole.
void jpeg_warned(j_common_ptr info, int level) {
  constexpr std::array<int, 5> kUntidy = {JWRN_EXTRANEOUS_DATA, JWRN_ADOBE_XFORM, JWRN_JFIF_MAJOR, JWRN_BOGUS_PROGRESSION,
                                          JWRN_NOT_SEQUENTIAL};
  if (level < 0 && std::ranges::find(kUntidy, info->err->msg_code) == kUntidy.end()) {
    jpeg_failed(info);
  }
}

// From inverted CMYK, as programs write it into JPEG, to RGB, in place: as PIL does, without a colour profile.
void rgb_of_inverted_cmyk(std::vector<std::uint8_t>& pixels) {
  const auto times = [](unsigned a, unsigned b) {  // a · b / 255, rounded
    const unsigned product = a * b + 128;
    return ((product >> 8) + product) >> 8;
  };
  std::size_t to = 0;
  for (std::size_t from = 0; from + 4 <= pixels.size(); from += 4) {
    const unsigned light = pixels[from + 3];
    for (std::size_t c = 0; c < 3; ++c) {
      pixels[to++] = static_cast<std::uint8_t>(light - times(255U - pixels[from + c], light));
    }
  }
  pixels.resize(to);
}

// Nothing with a destructor may live across the jump, so the caller owns the memory. An image that is too large is refused with its size in
// the shape, without channels.
bool decode_jpeg(std::FILE* file, ImageShape& shape, std::vector<std::uint8_t>& pixels, JpegErrors& errors) {
  jpeg_decompress_struct info{};
  info.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = jpeg_failed;
  errors.manager.emit_message = jpeg_warned;
  if (setjmp(errors.escape) != 0) {  // NOLINT(cert-err52-cpp): libjpeg's way
    jpeg_destroy_decompress(&info);
    return false;
  }
  jpeg_create_decompress(&info);
  jpeg_stdio_src(&info, file);
  jpeg_read_header(&info, TRUE);
  if (std::uint64_t{info.image_width} * info.image_height > kMaxPixels) {
    shape = ImageShape{0, info.image_height, info.image_width};
    jpeg_destroy_decompress(&info);
    return false;
  }
  info.out_color_space = info.num_components == 1 ? JCS_GRAYSCALE : info.num_components == 4 ? JCS_CMYK : JCS_RGB;
  info.dct_method = JDCT_ISLOW;
  jpeg_start_decompress(&info);
  shape = ImageShape{static_cast<std::uint32_t>(info.output_components), info.output_height, info.output_width};
  pixels.resize(shape.values());
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels.data() + std::size_t{info.output_scanline} * shape.width * shape.channels;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return true;
}

std::uint8_t byte_of(float value) { return static_cast<std::uint8_t>(std::lround((std::clamp(value, -1.0F, 1.0F) + 1.0F) * 127.5F)); }

}  // namespace

Result<DecodedImage> read_image_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  struct stat facts {};
  File file(fd >= 0 ? ::fdopen(fd, "rb") : nullptr);
  if (!file || ::fstat(fd, &facts) != 0) {
    return Error{errno == ENOENT ? Code::not_found : Code::io, path + ": cannot be opened: " + std::strerror(errno)};
  }
  if (!S_ISREG(facts.st_mode)) {
    return Error{Code::io, path + ": not a regular file"};
  }
  std::array<std::uint8_t, 8> head{};
  const std::size_t got = std::fread(head.data(), 1, head.size(), file.get());
  if (got == head.size() && png_sig_cmp(head.data(), 0, head.size()) == 0) {
    std::rewind(file.get());
    return read_png(path, file.get());
  }
  if (got < 3 || head[0] != 0xff || head[1] != 0xd8 || head[2] != 0xff) {
    return corrupt(path, "neither a PNG nor a JPEG file; format \"images\" reads no other");
  }
  std::rewind(file.get());
  DecodedImage image;
  std::vector<std::uint8_t> pixels;
  JpegErrors errors{};
  if (!decode_jpeg(file.get(), image.shape, pixels, errors)) {
    if (image.shape.height > 0 && image.shape.channels == 0) {
      return too_large(path, image.shape.width, image.shape.height);
    }
    return corrupt(path, std::string("not a whole JPEG file: ") + errors.message.data());
  }
  if (image.shape.channels == 4) {
    rgb_of_inverted_cmyk(pixels);
    image.shape.channels = 3;
  }
  image.bytes = planes_of(pixels, image.shape);
  return image;
}

Status write_png_grid(const std::string& path, const ImageShape& shape, const std::vector<float>& values, std::size_t columns) {
  if ((shape.channels != 1 && shape.channels != 3) || shape.values() == 0 || columns == 0 || values.empty()) {
    return Error{Code::invalid_argument, path + ": only images of 1 or 3 channels can be written as PNG, not " + to_string(shape) +
                                             " (latents have to be decoded first)"};
  }
  const std::size_t count = values.size() / shape.values();
  columns = std::min(columns, count);
  const std::size_t rows = (count + columns - 1) / columns;
  const std::size_t width = columns * (shape.width + 1) + 1;
  const std::size_t height = rows * (shape.height + 1) + 1;
  std::vector<std::uint8_t> pixels(width * height * shape.channels, 96);
  for (std::size_t n = 0; n < count; ++n) {
    const std::size_t top = n / columns * (shape.height + 1) + 1;
    const std::size_t left = n % columns * (shape.width + 1) + 1;
    for (std::size_t c = 0; c < shape.channels; ++c) {
      for (std::size_t y = 0; y < shape.height; ++y) {
        for (std::size_t x = 0; x < shape.width; ++x) {
          const float value = values[n * shape.values() + (c * shape.height + y) * shape.width + x];
          pixels[((top + y) * width + left + x) * shape.channels + c] = byte_of(value);
        }
      }
    }
  }
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = shape.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  Bytes encoded(size);
  if (png_image_write_to_memory(&image, encoded.data(), &size, 0, pixels.data(), 0, nullptr) == 0) {
    return Error{Code::internal, path + ": cannot be encoded as PNG: " + image.message};
  }
  ATOLL_ASSIGN(OutputFile file, OutputFile::create(path));
  ATOLL_TRY(file.write(ByteView(encoded).first(size)));
  return file.finish();
}

}  // namespace atl
