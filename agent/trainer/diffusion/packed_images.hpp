// A data set that is spread over islands: each packs its own images into a file, the result of a task `images/p`, and the files of all p,
// one after the other, are the data set.
//
// A packed file is a safetensors shard as ImageSet reads them (`images` U8 or F32, `labels`), with `features` [N, D] where the run takes
// them from a file (npy:FILE), and what other islands have to know of the images before they have them under `atoll.images` of its
// metadata. It names neither run nor task: islands with the same images have the same file, which the coordinator notices. Threads: pure
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/island_link/messages.hpp"
#include "agent/storage/safetensors.hpp"
#include "agent/trainer/data/images.hpp"
#include "transport/base/result.hpp"

namespace atl {

// What is known of images before any is looked at.
struct ImageFacts {
  ImageShape shape;
  std::uint32_t classes = 0;  // 0: no labels
};
ImageFacts facts_of(const ImageSet& images);

// Of the images of one island.
struct PartFacts {
  ImageFacts images;
  std::size_t count = 0;
  bool bytes = false;  // else floats
};

inline constexpr const char* kPartKey = "atoll.images";
std::string to_json(const PartFacts& facts);
// From the metadata of a packed file, or of what was made of one. Errors: corrupt.
Result<PartFacts> part_facts(const SafetensorsFile& file);
// Of all parts together. Errors: invalid_argument naming the first part that does not fit the first (shape, kind of values, labels or
// none).
Result<ImageFacts> facts_together(const std::vector<PartFacts>& parts);

// The inputs "PREFIX/0", "PREFIX/1", … in this order; empty if there are none.
std::vector<const island_link::TaskInput*> numbered_inputs(const std::vector<island_link::TaskInput>& inputs, std::string_view prefix);

// Which images of part `p` are held out: as held_out_images() says of it by itself, so that nobody has to know of the other parts; of a
// single part as of a whole data set. Errors: as there, naming the part.
Result<std::vector<bool>> held_out_of_part(std::size_t count, std::size_t p, std::size_t parts, double fraction, std::uint64_t seed);
// Of all parts, one after the other.
Result<std::vector<bool>> held_out_of_parts(const std::vector<std::size_t>& counts, double fraction, std::uint64_t seed);

struct SplitImages {
  ImageSet images;
  std::vector<bool> held;
};
// The data set of a run and its split: the files of `data`, or, if `inputs` has any, its packed files in their order.
// Errors: those of ImageSet; invalid_argument for parts that do not fit one another; corrupt.
Result<SplitImages> open_images(const island_link::Data& data, std::uint64_t seed, const std::vector<island_link::TaskInput>& inputs);

}  // namespace atl
