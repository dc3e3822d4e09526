// ImageSet: a data set of images of one shape, with labels where there are any, in memory.
//
// Formats ([data].format):
//   idx          MNIST's: u8 arrays of 3 (N, H, W) or 4 (N, C, H, W) dimensions are images, those of 1 dimension labels; plain or .gz
//   cifar10      CIFAR-10's binary version: records of one label byte and 3 × 32 × 32 bytes; plain or .gz
//   images       PNG and JPEG files: grey or RGB as PIL reads them (image_file.hpp), the set has the most channels that a file has. In more
//                than one folder, the folder is the label, numbered in the order of the folders' paths
//   npy          NumPy arrays in C order: [N, H, W] or [N, C, H, W] of u1, f4 or f8 are images, [N] of integers are labels. With channels
//                last ([N, H, W, C], four or fewer in the last place and more in the two before) one is refused, as in any format; so is
//                one image ([H, W, 3 or 4])
//   safetensors  shards with a tensor `images` or `latents` [N, C, H, W] F32 or U8 and, in all or none of them, `labels` [N] F32 (whole
//   numbers)
// Several files of a kind are read one after the other; labels go with images by their order.
// Values: a byte b becomes b / 127.5 − 1, in [−1, 1], the model's range; floats are taken as they are and must be finite (latents should be
// scaled to a deviation near 1 beforehand; a file whose root mean square is above 10 is refused). Bytes are kept as bytes, so a set takes
// its size on disk unpacked. Threads: const functions may be called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.hpp"

namespace atl {

struct ImageShape {
  std::uint32_t channels = 0;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  [[nodiscard]] std::size_t values() const { return std::size_t{channels} * height * width; }
  friend bool operator==(const ImageShape&, const ImageShape&) = default;
};

// "1 × 28 × 28" (channels × height × width).
std::string to_string(const ImageShape& shape);

class ImageSet {
 public:
  // Errors: invalid_argument for an unknown format, no files, files of a set that do not fit one another (shapes, labels and images of
  // different numbers); not_found, io; corrupt for a file that is cut short, longer than it says, or not what it should be. Each names the
  // file.
  static Result<ImageSet> open(const std::vector<std::string>& files, std::string_view format);

  [[nodiscard]] const ImageShape& shape() const { return shape_; }
  [[nodiscard]] std::size_t count() const { return count_; }
  // Per image, from 0; empty if the set has none.
  [[nodiscard]] const std::vector<std::uint32_t>& labels() const { return labels_; }
  // One more than the largest label; 0 without labels.
  [[nodiscard]] std::uint32_t classes() const;
  // For people: "40 images of 3 × 32 × 32 from 40 files, 2 classes: cats 20, dogs 20".
  [[nodiscard]] std::string listing() const;
  // "40 images, digest 0123456789abcdef": the same of the same images and labels (sampled_digest.hpp).
  [[nodiscard]] std::string digest() const;
  // As they are kept, [N, C, H, W], of one of these kinds; the other is empty.
  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return bytes_; }
  [[nodiscard]] std::span<const float> floats() const { return floats_; }
  // The values of image `index` (below count()), channel by channel, row by row; `out` has shape().values() places.
  void read(std::size_t index, std::span<float> out) const;

 private:
  friend class ImageReading;
  ImageShape shape_;
  std::size_t count_ = 0;
  std::vector<std::uint8_t> bytes_;  // of one of these two
  std::vector<float> floats_;
  std::vector<std::uint32_t> labels_;
  std::size_t files_ = 0;
  std::vector<std::string> names_;  // of the classes; empty where they have only numbers
  float least_ = 0;                 // of the floats
  float most_ = 0;
};

// At most `most` of these, spread evenly over all of them, in their order: of a set that is sorted by class so many of each class.
std::vector<std::size_t> spread_evenly(const std::vector<std::size_t>& all, std::uint64_t most);

// Which images are held out: the last `fraction` (rounded down, at least one if the fraction is above 0) of a permutation drawn from the
// seed, so that a set that is sorted is no matter. The same on every island. Errors: invalid_argument if nothing is left to train on.
Result<std::vector<bool>> held_out_images(std::size_t count, double fraction, std::uint64_t seed);

}  // namespace atl
