#include "agent/trainer/data/images.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>

#include "agent/safetensors.hpp"
#include "agent/trainer/data/data_order.hpp"
#include "agent/trainer/data/image_file.hpp"
#include "transport/base/rng.hpp"

namespace atl {
namespace {

constexpr std::array<std::string_view, 5> kFormats = {"idx", "cifar10", "images", "npy", "safetensors"};
constexpr std::uint64_t kMaxValues = 1ULL << 36;
constexpr std::uint32_t kMaxLabel = 1U << 16;

Error corrupt(const std::string& path, const std::string& why) { return Error{Code::corrupt, path + ": " + why}; }
Error unfit(const std::string& path, const std::string& why) { return Error{Code::invalid_argument, path + ": " + why}; }

struct GzCloser {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

// The whole of a file, unpacked if it is gzip.
Result<std::vector<std::uint8_t>> read_unpacked(const std::string& path) {
  const std::unique_ptr<gzFile_s, GzCloser> file(gzopen(path.c_str(), "rb"));
  if (!file) {
    return Error{errno == ENOENT ? Code::not_found : Code::io, path + ": cannot be opened: " + std::strerror(errno)};
  }
  gzbuffer(file.get(), 1U << 18);
  std::vector<std::uint8_t> bytes;
  constexpr std::size_t kPiece = std::size_t{1} << 22;
  while (true) {
    const std::size_t at = bytes.size();
    bytes.resize(at + kPiece);
    const int got = gzread(file.get(), bytes.data() + at, static_cast<unsigned>(kPiece));
    bytes.resize(at + static_cast<std::size_t>(std::max(got, 0)));
    int code = Z_OK;
    const char* why = gzerror(file.get(), &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      return code == Z_ERRNO ? Error{Code::io, path + ": cannot be read: " + std::strerror(errno)} : corrupt(path, std::string("not a whole gzip file: ") + why);
    }
    if (got == 0) {
      return bytes;
    }
    if (bytes.size() > kMaxValues) {
      return corrupt(path, "it is larger than 64 GiB unpacked");
    }
  }
}

// What one file brings: images of a shape, or labels.
struct Shard {
  ImageShape shape;
  std::size_t images = 0;
  std::vector<std::uint8_t> bytes;
  std::vector<float> floats;
  std::vector<std::uint32_t> labels;
};

// From the dimensions of an array: (N, H, W) or (N, C, H, W).
Result<Shard> shard_of(const std::string& path, const std::vector<std::uint64_t>& dimensions) {
  if (dimensions.size() != 3 && dimensions.size() != 4) {
    return corrupt(path, "it has " + std::to_string(dimensions.size()) + " dimensions; images have 3 (count, height, width) or 4 (count, channels, height, width)");
  }
  std::uint64_t values = 1;
  for (const std::uint64_t extent : dimensions) {
    if (extent == 0 || extent > kMaxValues / values) {
      return corrupt(path, "its dimensions are impossible (one is 0, or all together are too large)");
    }
    values *= extent;
  }
  const bool planes = dimensions.size() == 4;
  const auto extent = [&](std::size_t i) { return static_cast<std::uint32_t>(dimensions[i]); };
  Shard shard;
  shard.images = dimensions[0];
  shard.shape = ImageShape{planes ? extent(1) : 1U, planes ? extent(2) : extent(1), planes ? extent(3) : extent(2)};
  return shard;
}

// ---- idx

Result<Shard> read_idx(const std::string& path) {
  ATOLL_ASSIGN(std::vector<std::uint8_t> bytes, read_unpacked(path));
  if (bytes.size() < 4 || bytes[0] != 0 || bytes[1] != 0) {
    return corrupt(path, "not an idx file: it does not begin with two zero bytes");
  }
  if (bytes[2] != 8) {
    return corrupt(path, "its values are not unsigned bytes (type " + std::to_string(bytes[2]) + "); only those are images");
  }
  const std::size_t dimensions = bytes[3];
  const std::size_t head = 4 + 4 * dimensions;
  if (bytes.size() < head) {
    return corrupt(path, "it is cut short: its head of " + std::to_string(head) + " bytes is not complete");
  }
  std::vector<std::uint64_t> extents;
  std::uint64_t values = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    const std::uint8_t* at = bytes.data() + 4 + 4 * i;
    extents.push_back(std::uint64_t{at[0]} << 24 | std::uint64_t{at[1]} << 16 | std::uint64_t{at[2]} << 8 | at[3]);
    values = extents.back() == 0 || values > kMaxValues / extents.back() ? kMaxValues + 1 : values * extents.back();
  }
  if (bytes.size() - head != values) {
    return corrupt(path, "it holds " + std::to_string(bytes.size() - head) + " values and its head says " + std::to_string(values) +
                             "; it is cut short or not what it says");
  }
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(head));
  if (dimensions == 1) {
    Shard shard;
    shard.labels.assign(bytes.begin(), bytes.end());
    return shard;
  }
  ATOLL_ASSIGN(Shard shard, shard_of(path, extents));
  shard.bytes = std::move(bytes);
  return shard;
}

// ---- CIFAR-10

Result<Shard> read_cifar10(const std::string& path) {
  constexpr std::size_t kImage = 3 * 32 * 32;
  ATOLL_ASSIGN(const std::vector<std::uint8_t> bytes, read_unpacked(path));
  if (bytes.empty() || bytes.size() % (kImage + 1) != 0) {
    return corrupt(path, "it has " + std::to_string(bytes.size()) + " bytes, which is no whole number of records of " + std::to_string(kImage + 1));
  }
  Shard shard;
  shard.shape = {3, 32, 32};
  shard.images = bytes.size() / (kImage + 1);
  shard.bytes.reserve(shard.images * kImage);
  for (std::size_t i = 0; i < shard.images; ++i) {
    const auto record = bytes.begin() + static_cast<std::ptrdiff_t>(i * (kImage + 1));
    if (*record > 9) {
      return corrupt(path, "record " + std::to_string(i) + " has label " + std::to_string(*record) + "; CIFAR-10 has 0 to 9");
    }
    shard.labels.push_back(*record);
    shard.bytes.insert(shard.bytes.end(), record + 1, record + 1 + static_cast<std::ptrdiff_t>(kImage));
  }
  return shard;
}

// ---- npy

struct NpyHead {
  std::string type;  // without the byte order: "u1", "f4"
  std::vector<std::uint64_t> shape;
};

// Reads the head's Python dictionary, {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
Result<NpyHead> parse_npy_head(const std::string& path, std::string_view text) {
  const auto after = [&](std::string_view key) {
    const std::size_t at = text.find(key);
    return at == std::string_view::npos ? std::string_view() : text.substr(at + key.size());
  };
  NpyHead head;
  std::string_view type = after("'descr':");
  type = type.substr(std::min(type.find('\''), type.size()));
  const std::size_t end = type.empty() ? std::string_view::npos : type.find('\'', 1);
  if (end == std::string_view::npos || end < 3) {
    return corrupt(path, "its head names no simple type");
  }
  type = type.substr(1, end - 1);
  if (type[0] == '>') {
    return corrupt(path, "its values are big-endian ('" + std::string(type) + "'); save it as little-endian");
  }
  head.type = type[0] == '<' || type[0] == '|' || type[0] == '=' ? type.substr(1) : type;
  if (after("'fortran_order':").find("False") == std::string_view::npos) {
    return corrupt(path, "it is in Fortran order; save it with numpy.ascontiguousarray");
  }
  std::string_view shape = after("'shape':");
  const std::size_t open = shape.find('(');
  const std::size_t close = shape.find(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
    return corrupt(path, "its head has no shape");
  }
  shape = shape.substr(open + 1, close - open - 1);
  while (!shape.empty()) {
    const std::size_t digit = shape.find_first_of("0123456789");
    if (digit == std::string_view::npos) {
      break;
    }
    std::uint64_t extent = 0;
    const auto read = std::from_chars(shape.data() + digit, shape.data() + shape.size(), extent);
    if (read.ec != std::errc()) {
      return corrupt(path, "its shape is impossible");
    }
    head.shape.push_back(extent);
    shape = shape.substr(static_cast<std::size_t>(read.ptr - shape.data()));
  }
  return head;
}

// Element i of an array of this type as a number.
double number_at(std::string_view type, const std::uint8_t* values, std::size_t i) {
  const auto as = [&](auto sample) {
    std::memcpy(&sample, values + i * sizeof sample, sizeof sample);
    return static_cast<double>(sample);
  };
  if (type == "f4") {
    return as(float{});
  }
  if (type == "f8") {
    return as(double{});
  }
  if (type == "i8") {
    return as(std::int64_t{});
  }
  if (type == "u8") {
    return as(std::uint64_t{});
  }
  if (type == "i4") {
    return as(std::int32_t{});
  }
  if (type == "u4") {
    return as(std::uint32_t{});
  }
  if (type == "i2") {
    return as(std::int16_t{});
  }
  if (type == "u2") {
    return as(std::uint16_t{});
  }
  return type == "i1" ? as(std::int8_t{}) : as(std::uint8_t{});
}

Result<Shard> read_npy(const std::string& path) {
  ATOLL_ASSIGN(std::vector<std::uint8_t> bytes, read_unpacked(path));
  constexpr std::string_view kMagic = "\x93NUMPY";
  if (bytes.size() < 10 || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return corrupt(path, "not an npy file");
  }
  const bool wide = bytes[6] >= 2;
  std::size_t length = bytes[8] | std::size_t{bytes[9]} << 8;
  if (wide) {
    length = bytes.size() < 12 ? bytes.size() : length | std::size_t{bytes[10]} << 16 | std::size_t{bytes[11]} << 24;
  }
  const std::size_t begin = wide ? 12 : 10;
  if (length > bytes.size() - std::min(begin, bytes.size())) {
    return corrupt(path, "it is cut short within its head");
  }
  ATOLL_ASSIGN(const NpyHead head, parse_npy_head(path, {reinterpret_cast<const char*>(bytes.data()) + begin, length}));
  static constexpr std::array<std::string_view, 10> kTypes = {"f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"};
  if (std::ranges::find(kTypes, head.type) == kTypes.end()) {
    return corrupt(path, "its values are of type '" + head.type + "'; u1, f4 and f8 are read as images, integers as labels");
  }
  const std::size_t size = static_cast<std::size_t>(head.type[1] - '0');
  std::uint64_t values = 1;
  for (const std::uint64_t extent : head.shape) {
    values = extent == 0 || values > kMaxValues / extent ? kMaxValues + 1 : values * extent;
  }
  const std::size_t data = begin + length;
  if (values > kMaxValues || bytes.size() - data != values * size) {
    return corrupt(path, "it holds " + std::to_string(bytes.size() - data) + " bytes of values and its shape needs " +
                             (values > kMaxValues ? std::string("an impossible number") : std::to_string(values * size)) + "; it is cut short or not what it says");
  }
  if (head.shape.size() == 1) {
    Shard shard;
    for (std::size_t i = 0; i < values; ++i) {
      const double label = number_at(head.type, bytes.data() + data, i);
      if (label != std::floor(label) || label < 0 || label > kMaxLabel) {
        return corrupt(path, "label " + std::to_string(i) + " is no whole number from 0 to " + std::to_string(kMaxLabel));
      }
      shard.labels.push_back(static_cast<std::uint32_t>(label));
    }
    return shard;
  }
  ATOLL_ASSIGN(Shard shard, shard_of(path, head.shape));
  if (head.type == "u1") {
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(data));
    shard.bytes = std::move(bytes);
    return shard;
  }
  if (head.type[0] != 'f') {
    return corrupt(path, "images of type '" + head.type + "' have no known range; save them as u1 (0 to 255) or as floats");
  }
  shard.floats.resize(values);
  for (std::size_t i = 0; i < values; ++i) {
    shard.floats[i] = static_cast<float>(number_at(head.type, bytes.data() + data, i));
  }
  return shard;
}

// ---- safetensors

Result<Shard> read_tensors(const std::string& path) {
  Result<SafetensorsFile> opened = SafetensorsFile::open(path);
  if (!opened) {
    return opened.error();  // names the path
  }
  const SafetensorsHeader& header = opened->header();
  const TensorEntry* images = header.find("images") != nullptr ? header.find("images") : header.find("latents");
  if (images == nullptr) {
    return corrupt(path, "it has neither a tensor 'images' nor 'latents'");
  }
  ATOLL_ASSIGN(Shard shard, shard_of(path, images->shape));
  const Result<std::span<const float>> values = opened->floats(images->name);
  if (!values) {
    return with_context(values.error(), path);
  }
  shard.floats.assign(values->begin(), values->end());
  if (header.find("labels") != nullptr) {
    const Result<std::span<const float>> labels = opened->floats("labels");
    if (!labels) {
      return with_context(labels.error(), path);
    }
    for (const float label : *labels) {
      if (!(label >= 0 && label <= static_cast<float>(kMaxLabel)) || label != std::floor(label)) {
        return corrupt(path, "'labels' holds something that is no whole number from 0 to " + std::to_string(kMaxLabel));
      }
      shard.labels.push_back(static_cast<std::uint32_t>(label));
    }
  }
  return shard;
}

}  // namespace

// Puts the shards of a set together.
class ImageReading {
 public:
  Status add(const std::string& path, Shard shard) {
    if (shard.images > 0) {
      ATOLL_TRY(add_images(path, shard));
    }
    if (!shard.labels.empty()) {
      last_labels_ = path;
      set_.labels_.insert(set_.labels_.end(), shard.labels.begin(), shard.labels.end());
    }
    return {};
  }

  Result<ImageSet> finish() {
    if (set_.count_ == 0) {
      return Error{Code::invalid_argument, last_labels_.empty() ? std::string("the data set has no images") : last_labels_ + ": labels without images; give the files of the images, too"};
    }
    if (!set_.labels_.empty() && set_.labels_.size() != set_.count_) {
      return unfit(last_labels_, "the files hold " + std::to_string(set_.labels_.size()) + " labels and " + std::to_string(set_.count_) + " images (" + first_ +
                                     "); every image needs one label, or none has any");
    }
    return std::move(set_);
  }

 private:
  Status add_images(const std::string& path, Shard& shard) {
    if (set_.count_ == 0) {
      set_.shape_ = shard.shape;
      first_ = path;
    } else if (shard.shape != set_.shape_) {
      return unfit(path, "its images are " + to_string(shard.shape) + ", those of " + first_ + " are " + to_string(set_.shape_) + "; images of a set have one size");
    } else if (shard.floats.empty() != set_.floats_.empty()) {
      return unfit(path, "its images are " + std::string(shard.floats.empty() ? "bytes" : "floats") + ", those of " + first_ + " are not");
    }
    for (std::size_t i = 0; i < shard.floats.size(); ++i) {
      if (!std::isfinite(shard.floats[i])) {
        return corrupt(path, "value " + std::to_string(i) + " of its images is not finite");
      }
    }
    set_.count_ += shard.images;
    set_.bytes_.insert(set_.bytes_.end(), shard.bytes.begin(), shard.bytes.end());
    set_.floats_.insert(set_.floats_.end(), shard.floats.begin(), shard.floats.end());
    return {};
  }

  ImageSet set_;
  std::string first_;
  std::string last_labels_;
};

namespace {

Result<ImageSet> read_folder(const std::vector<std::string>& files) {
  std::set<std::string> folders;
  for (const std::string& path : files) {
    folders.insert(std::filesystem::path(path).parent_path().string());
  }
  std::vector<DecodedImage> images;
  bool colour = false;
  for (const std::string& path : files) {
    ATOLL_ASSIGN(DecodedImage image, read_image_file(path));
    colour = colour || image.shape.channels == 3;
    images.push_back(std::move(image));
  }
  ImageReading reading;
  for (std::size_t i = 0; i < images.size(); ++i) {
    Shard shard;
    shard.images = 1;
    shard.shape = images[i].shape;
    shard.bytes = std::move(images[i].bytes);
    if (colour && shard.shape.channels == 1) {
      const std::vector<std::uint8_t> grey = shard.bytes;
      shard.shape.channels = 3;
      shard.bytes.insert(shard.bytes.end(), grey.begin(), grey.end());
      shard.bytes.insert(shard.bytes.end(), grey.begin(), grey.end());
    }
    if (folders.size() > 1) {
      const auto folder = folders.find(std::filesystem::path(files[i]).parent_path().string());
      shard.labels.push_back(static_cast<std::uint32_t>(std::distance(folders.begin(), folder)));
    }
    ATOLL_TRY(reading.add(files[i], std::move(shard)));
  }
  return reading.finish();
}

}  // namespace

std::string to_string(const ImageShape& shape) {
  return std::to_string(shape.channels) + " × " + std::to_string(shape.height) + " × " + std::to_string(shape.width);
}

bool is_image_format(std::string_view format) { return std::ranges::find(kFormats, format) != kFormats.end(); }

Result<ImageSet> ImageSet::open(const std::vector<std::string>& files, std::string_view format) {
  if (files.empty()) {
    return Error{Code::invalid_argument, "the data set has no files"};
  }
  if (format == "images") {
    return read_folder(files);
  }
  ImageReading reading;
  for (const std::string& path : files) {
    Result<Shard> shard = format == "idx"           ? read_idx(path)
                          : format == "cifar10"     ? read_cifar10(path)
                          : format == "npy"         ? read_npy(path)
                          : format == "safetensors" ? read_tensors(path)
                                                    : Result<Shard>(Error{Code::invalid_argument, "'" + std::string(format) + "' is no format of images"});
    if (!shard) {
      return shard.error();
    }
    ATOLL_TRY(reading.add(path, *std::move(shard)));
  }
  return reading.finish();
}

std::uint32_t ImageSet::classes() const { return labels_.empty() ? 0 : *std::max_element(labels_.begin(), labels_.end()) + 1; }

void ImageSet::read(std::size_t index, std::span<float> out) const {
  const std::size_t values = shape_.values();
  ATOLL_CHECK(index < count_ && out.size() == values, "an image of the set, into as many values as it has");
  if (floats_.empty()) {
    const std::uint8_t* from = bytes_.data() + index * values;
    std::transform(from, from + values, out.begin(), [](std::uint8_t byte) { return static_cast<float>(byte) / 127.5F - 1.0F; });
  } else {
    std::copy_n(floats_.begin() + static_cast<std::ptrdiff_t>(index * values), values, out.begin());
  }
}

Result<std::vector<bool>> held_out_images(std::size_t count, double fraction, std::uint64_t seed) {
  const auto exact = static_cast<std::size_t>(static_cast<double>(count) * fraction);
  const std::size_t held = fraction > 0 ? std::max<std::size_t>(exact, 1) : 0;
  if (held >= count) {
    return Error{Code::invalid_argument, "the data set has " + std::to_string(count) + " images and " + std::to_string(held) + " of them are held out: nothing is left to train on"};
  }
  std::vector<bool> out(count, false);
  const Permutation order(count, stream_of("held out", seed));
  for (std::size_t i = 0; i < held; ++i) {
    out[order.at(i)] = true;
  }
  return out;
}

}  // namespace atl
