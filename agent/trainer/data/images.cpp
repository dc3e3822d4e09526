#include "agent/trainer/data/images.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <new>
#include <set>
#include <utility>

#include "agent/storage/safetensors.hpp"
#include "agent/trainer/data/corrupt_file.hpp"
#include "agent/trainer/data/data_order.hpp"
#include "agent/trainer/data/image_file.hpp"
#include "agent/trainer/data/npy.hpp"
#include "agent/trainer/data/packed_file.hpp"
#include "agent/trainer/data/sampled_digest.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/rng.hpp"

namespace atl {
namespace {

constexpr std::uint64_t kMostPixels = 1ULL << 36;
constexpr std::uint32_t kMaxLabel = 1U << 16;
constexpr std::uint64_t kFewChannels = 4;      // grey, RGB, with transparency: so many or fewer in the last place are channels
constexpr double kLargestDeviation = 10;       // root mean square of floats; latents have about 1, unscaled ones 6, bytes as floats 80
constexpr std::size_t kMostClassesListed = 6;  // classes by name

Error unfit(const std::string& path, const std::string& why) { return Error{Code::invalid_argument, path + ": " + why}; }

// What one file brings: images of a shape, or labels.
struct Shard {
  ImageShape shape;
  std::size_t images = 0;
  std::vector<std::uint8_t> bytes;
  std::vector<float> floats;
  std::vector<std::uint32_t> labels;
};

// "6 × 8 × 10 × 3".
std::string text_of(const std::vector<std::uint64_t>& dimensions) {
  std::string text;
  for (const std::uint64_t extent : dimensions) {
    text += (text.empty() ? "" : " × ") + std::to_string(extent);
  }
  return text;
}

// From the dimensions of an array: (N, H, W) or (N, C, H, W).
Result<Shard> shard_of(const std::string& path, const std::vector<std::uint64_t>& dimensions) {
  if (dimensions.size() != 3 && dimensions.size() != 4) {
    return corrupt(path, "it has " + std::to_string(dimensions.size()) +
                             " dimensions; images have 3 (count, height, width) or 4 (count, channels, height, width)");
  }
  std::uint64_t values = 1;
  for (const std::uint64_t extent : dimensions) {
    if (extent == 0 || extent > kMostPixels / values) {
      return corrupt(path, "its dimensions are impossible (one is 0, or all together are too large)");
    }
    values *= extent;
  }
  const bool planes = dimensions.size() == 4;
  if (planes && dimensions[3] <= kFewChannels && dimensions[1] > kFewChannels && dimensions[2] > kFewChannels) {
    return corrupt(path, "its shape " + text_of(dimensions) +
                             " looks like count × height × width × channels, and count × channels × height × width is read; save it as "
                             "numpy.ascontiguousarray(numpy.moveaxis(a, -1, 1))");
  }
  const bool colours = dimensions.back() == 3 || dimensions.back() == kFewChannels;
  if (!planes && colours && dimensions[0] > kFewChannels && dimensions[1] > kFewChannels) {
    return corrupt(path, "its shape " + text_of(dimensions) +
                             " looks like one image, height × width × channels, and count × channels × height × width is read; save it as "
                             "numpy.ascontiguousarray(numpy.moveaxis(a, -1, 0)[None])");
  }
  const auto extent = [&](std::size_t i) { return static_cast<std::uint32_t>(dimensions[i]); };
  Shard shard;
  shard.images = dimensions[0];
  shard.shape = ImageShape{planes ? extent(1) : 1U, planes ? extent(2) : extent(1), planes ? extent(3) : extent(2)};
  return shard;
}

// ---- idx

// The head of an idx file: its extents, and the bytes of the head and of the whole file. The last is what it would be were it possible.
struct IdxHead {
  std::vector<std::uint64_t> extents;
  std::size_t bytes = 0;
  std::uint64_t values = 1;
};

Result<IdxHead> parse_idx_head(const std::string& path, std::span<const std::uint8_t> bytes) {
  if (bytes.size() < 4 || bytes[0] != 0 || bytes[1] != 0) {
    return corrupt(path, "not an idx file: it does not begin with two zero bytes");
  }
  if (bytes[2] != 8) {
    return corrupt(path, "its values are not unsigned bytes (type " + std::to_string(bytes[2]) + "); only those are images");
  }
  const std::size_t dimensions = bytes[3];
  IdxHead head;
  head.bytes = 4 + 4 * dimensions;
  if (bytes.size() < head.bytes) {
    return corrupt(path, "it is cut short: its head of " + std::to_string(head.bytes) + " bytes is not complete");
  }
  for (std::size_t i = 0; i < dimensions; ++i) {
    const std::uint8_t* at = bytes.data() + 4 + 4 * i;
    const std::uint64_t extent = std::uint64_t{at[0]} << 24 | std::uint64_t{at[1]} << 16 | std::uint64_t{at[2]} << 8 | at[3];
    head.extents.push_back(extent);
    head.values = extent == 0 || head.values > kMostPixels / extent ? kMostPixels + 1 : head.values * extent;
  }
  return head;
}

Result<Shard> read_idx(const std::string& path) {
  IdxHead head;
  const auto size = [&](std::span<const std::uint8_t> first) -> Result<std::uint64_t> {
    ATOLL_ASSIGN(head, parse_idx_head(path, first));
    return head.bytes + head.values;
  };
  ATOLL_ASSIGN(std::vector<std::uint8_t> bytes, read_unpacked(path, size));
  if (bytes.size() - head.bytes != head.values) {
    return corrupt(path, "it holds " + std::to_string(bytes.size() - head.bytes) + " values and its head says " +
                             std::to_string(head.values) + "; it is cut short or not what it says");
  }
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(head.bytes));
  if (head.extents.size() == 1) {
    Shard shard;
    shard.labels.assign(bytes.begin(), bytes.end());
    return shard;
  }
  ATOLL_ASSIGN(Shard shard, shard_of(path, head.extents));
  shard.bytes = std::move(bytes);
  return shard;
}

// ---- CIFAR-10

Result<Shard> read_cifar10(const std::string& path) {
  constexpr std::size_t kImage = 3 * 32 * 32;
  // The records have no head; the whole of CIFAR-10 is 184 MB.
  const std::uint64_t most = std::min(memory_for_data(), std::uint64_t{1} << 30);
  const auto size = [&](std::span<const std::uint8_t>) { return Result<std::uint64_t>(most); };
  ATOLL_ASSIGN(const std::vector<std::uint8_t> bytes, read_unpacked(path, size));
  if (bytes.empty() || bytes.size() % (kImage + 1) != 0) {
    return corrupt(
        path, "it has " + std::to_string(bytes.size()) + " bytes, which is no whole number of records of " + std::to_string(kImage + 1));
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

Result<Shard> read_npy(const std::string& path) {
  ATOLL_ASSIGN(NpyArray array, NpyArray::read(path));
  if (array.shape().size() == 1) {
    Shard shard;
    for (std::size_t i = 0; i < array.count(); ++i) {
      const double label = array.at(i);
      if (label != std::floor(label) || label < 0 || label > kMaxLabel) {
        return corrupt(path, "label " + std::to_string(i) + " is no whole number from 0 to " + std::to_string(kMaxLabel));
      }
      shard.labels.push_back(static_cast<std::uint32_t>(label));
    }
    return shard;
  }
  ATOLL_ASSIGN(Shard shard, shard_of(path, array.shape()));
  if (array.type() == "u1") {
    shard.bytes = std::move(array).take_bytes();
    return shard;
  }
  if (array.type()[0] != 'f') {
    return corrupt(path, "images of type '" + array.type() + "' have no known range; save them as u1 (0 to 255) or as floats");
  }
  shard.floats.resize(array.count());
  for (std::size_t i = 0; i < array.count(); ++i) {
    shard.floats[i] = static_cast<float>(array.at(i));
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
  if (images->dtype == "U8") {
    const ByteView bytes = opened->bytes(*images);
    shard.bytes.resize(bytes.size());
    std::memcpy(shard.bytes.data(), bytes.data(), bytes.size());
  } else {
    const Result<std::span<const float>> values = opened->floats(images->name);
    if (!values) {
      return with_context(values.error(), path);
    }
    shard.floats.assign(values->begin(), values->end());
  }
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

std::string short_number(float value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", static_cast<double>(value));
  return text.data();
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

  Result<ImageSet> finish(std::size_t files, std::vector<std::string> classes = {}) {
    set_.files_ = files;
    set_.names_ = std::move(classes);
    if (set_.count_ == 0) {
      return Error{Code::invalid_argument, last_labels_.empty()
                                               ? std::string("the data set has no images")
                                               : last_labels_ + ": labels without images; give the files of the images, too"};
    }
    if (!set_.labels_.empty() && set_.labels_.size() != set_.count_) {
      return unfit(last_labels_, "the files hold " + std::to_string(set_.labels_.size()) + " labels and " + std::to_string(set_.count_) +
                                     " images (" + first_ + "); every image needs one label, or none has any");
    }
    return std::move(set_);
  }

 private:
  Status add_images(const std::string& path, Shard& shard) {
    if (set_.count_ == 0) {
      set_.shape_ = shard.shape;
      first_ = path;
    } else if (shard.shape != set_.shape_) {
      return unfit(path, "its images are " + to_string(shard.shape) + ", those of " + first_ + " are " + to_string(set_.shape_) +
                             "; images of a set have one size");
    } else if (shard.floats.empty() != set_.floats_.empty()) {
      return unfit(path, "its images are " + std::string(shard.floats.empty() ? "bytes" : "floats") + ", those of " + first_ + " are not");
    }
    ATOLL_TRY(check_floats(path, shard.floats));
    set_.count_ += shard.images;
    set_.bytes_.insert(set_.bytes_.end(), shard.bytes.begin(), shard.bytes.end());
    set_.floats_.insert(set_.floats_.end(), shard.floats.begin(), shard.floats.end());
    return {};
  }

  // Floats are the model's values as they are: what was meant to be divided before is refused.
  Status check_floats(const std::string& path, std::span<const float> floats) {
    if (floats.empty()) {
      return {};
    }
    double squares = 0;
    float least = floats.front();
    float most = floats.front();
    for (std::size_t i = 0; i < floats.size(); ++i) {
      if (!std::isfinite(floats[i])) {
        return corrupt(path, "value " + std::to_string(i) + " of its images is not finite");
      }
      least = std::min(least, floats[i]);
      most = std::max(most, floats[i]);
      squares += double{floats[i]} * floats[i];
    }
    if (squares > kLargestDeviation * kLargestDeviation * static_cast<double>(floats.size())) {
      return corrupt(path, "its values lie between " + short_number(least) + " and " + short_number(most) +
                               "; floats are taken as they are, so images are from -1 to 1 (a / 127.5 - 1), and latents have a deviation "
                               "near 1; or save bytes from 0 to 255 as u1");
    }
    set_.least_ = set_.floats_.empty() ? least : std::min(set_.least_, least);
    set_.most_ = set_.floats_.empty() ? most : std::max(set_.most_, most);
    return {};
  }

  ImageSet set_;
  std::string first_;
  std::string last_labels_;
};

namespace {

// Whether the image read last fits the first, and all of them into memory (they are there twice while the set is put together).
Status check_room(const std::vector<std::string>& files, const std::vector<DecodedImage>& images) {
  const ImageShape& first = images.front().shape;
  const ImageShape& last = images.back().shape;
  if (last.height != first.height || last.width != first.width) {
    return unfit(files[images.size() - 1], "its images are " + to_string(last) + ", those of " + files.front() + " are " +
                                               to_string(first) + "; images of a set have one size");
  }
  const std::uint64_t all = std::uint64_t{files.size()} * 2 * 3 * first.height * first.width;
  if (images.size() == 1 && all > memory_for_data()) {
    return unfit(files.front(), std::to_string(files.size()) + " images of " + to_string(first) + " take " + human_bytes(all) +
                                    ", more than half of this machine's memory; scale them down, or spread them over islands");
  }
  return {};
}

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
    ATOLL_TRY(check_room(files, images));
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
  std::vector<std::string> classes;
  if (folders.size() > 1) {
    std::ranges::transform(folders, std::back_inserter(classes),
                           [](const std::string& folder) { return std::filesystem::path(folder).filename().string(); });
  }
  return reading.finish(files.size(), std::move(classes));
}

Result<ImageSet> read_shards(const std::vector<std::string>& files, std::string_view format) {
  ImageReading reading;
  for (const std::string& path : files) {
    Result<Shard> shard = format == "idx"       ? read_idx(path)
                          : format == "cifar10" ? read_cifar10(path)
                          : format == "npy"     ? read_npy(path)
                          : format == "safetensors"
                              ? read_tensors(path)
                              : Result<Shard>(Error{Code::invalid_argument, "'" + std::string(format) + "' is no format of images"});
    if (!shard) {
      return shard.error();
    }
    ATOLL_TRY(reading.add(path, *std::move(shard)));
  }
  return reading.finish(files.size());
}

}  // namespace

std::string to_string(const ImageShape& shape) {
  return std::to_string(shape.channels) + " × " + std::to_string(shape.height) + " × " + std::to_string(shape.width);
}

Result<ImageSet> ImageSet::open(const std::vector<std::string>& files, std::string_view format) {
  if (files.empty()) {
    return Error{Code::invalid_argument, "the data set has no files"};
  }
  try {
    return format == "images" ? read_folder(files) : read_shards(files, format);
  } catch (const std::bad_alloc&) {
    return Error{Code::io, "there is not enough memory for the images of " + files.front() + (files.size() > 1 ? ", …" : "")};
  }
}

std::uint32_t ImageSet::classes() const { return labels_.empty() ? 0 : *std::max_element(labels_.begin(), labels_.end()) + 1; }

std::string ImageSet::listing() const {
  std::string text = std::to_string(count_) + (count_ == 1 ? " image of " : " images of ") + to_string(shape_) + " from " +
                     std::to_string(files_) + (files_ == 1 ? " file" : " files");
  if (!floats_.empty()) {
    text += ", values from " + short_number(least_) + " to " + short_number(most_) +
            (least_ < -1 || most_ > 1 || least_ >= 0 ? " (of images they should be from -1 to 1)" : "");
  }
  if (labels_.empty()) {
    return text + ", without labels";
  }
  text += ", " + std::to_string(classes()) + (classes() == 1 ? " class" : " classes");
  std::vector<std::size_t> sizes(classes(), 0);
  for (const std::uint32_t label : labels_) {
    ++sizes[label];
  }
  for (std::size_t i = 0; i < std::min(sizes.size(), kMostClassesListed); ++i) {
    text += (i == 0 ? ": " : ", ") + (i < names_.size() ? names_[i] : std::to_string(i)) + " " + std::to_string(sizes[i]);
  }
  return text + (sizes.size() > kMostClassesListed ? ", and " + std::to_string(sizes.size() - kMostClassesListed) + " more" : "");
}

std::string ImageSet::digest() const {
  SampledDigest digest;
  const auto add = [&digest](std::span<const std::byte> all) {
    SampledDigest::for_each_block(all.size(), [&](std::uint64_t offset, std::uint64_t count) { digest.add(all.subspan(offset, count)); });
  };
  add(std::as_bytes(std::span(bytes_)));
  add(std::as_bytes(std::span(floats_)));
  add(std::as_bytes(std::span(labels_)));
  return std::to_string(count_) + " images, digest " + digest.text();
}

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

std::vector<std::size_t> spread_evenly(const std::vector<std::size_t>& all, std::uint64_t most) {
  const std::uint64_t count = std::min<std::uint64_t>(all.size(), most);
  std::vector<std::size_t> chosen;
  chosen.reserve(static_cast<std::size_t>(count));
  for (std::uint64_t i = 0; i < count; ++i) {
    chosen.push_back(all[static_cast<std::size_t>(i * all.size() / count)]);
  }
  return chosen;
}

Result<std::vector<bool>> held_out_images(std::size_t count, double fraction, std::uint64_t seed) {
  const auto exact = static_cast<std::size_t>(static_cast<double>(count) * fraction);
  const std::size_t held = fraction > 0 ? std::max<std::size_t>(exact, 1) : 0;
  if (held >= count) {
    return Error{Code::invalid_argument, "the data set has " + std::to_string(count) + " images and " + std::to_string(held) +
                                             " of them are held out: nothing is left to train on"};
  }
  std::vector<bool> out(count, false);
  const Permutation order(count, stream_of("held out", seed));
  for (std::size_t i = 0; i < held; ++i) {
    out[order.at(i)] = true;
  }
  return out;
}

}  // namespace atl
