#include "strategies/fragments.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "strategies/invalid.hpp"

namespace atl {
namespace {

Status check_shape(const ParameterInfo& parameter) {
  std::uint64_t product = 1;
  for (const std::int64_t extent : parameter.shape) {
    if (extent < 0) {
      return invalid("parameter '" + parameter.name + "' has a negative extent in its shape");
    }
    if (extent != 0 && product > kMaxArenaFloats / static_cast<std::uint64_t>(extent)) {
      return invalid("parameter '" + parameter.name + "' is larger than the largest arena");
    }
    product *= static_cast<std::uint64_t>(extent);
  }
  if (product != parameter.count) {
    return invalid("parameter '" + parameter.name + "' says it has " + std::to_string(parameter.count) + " values, but its shape has " +
                   std::to_string(product));
  }
  return {};
}

Status check_manifest(std::span<const ParameterInfo> manifest) {
  if (manifest.empty()) {
    return invalid("the model has no parameters");
  }
  std::unordered_set<std::string_view> names;
  std::uint64_t total = 0;
  for (const ParameterInfo& parameter : manifest) {
    if (parameter.name.empty()) {
      return invalid("a parameter has no name");
    }
    if (!names.insert(parameter.name).second) {
      return invalid("two parameters are named '" + parameter.name + "'");
    }
    ATOLL_TRY(check_shape(parameter));
    total += parameter.count;
    if (total > kMaxArenaFloats) {
      return invalid("the model is larger than the largest arena, " + std::to_string(kMaxArenaFloats) + " values");
    }
  }
  if (total == 0) {
    return invalid("the model's parameters hold no value");
  }
  return {};
}

// L: how many transformer blocks the manifest names.
Result<std::uint32_t> count_blocks(std::span<const ParameterInfo> manifest) {
  std::int32_t last = kNoBlock;
  for (const ParameterInfo& parameter : manifest) {
    if (parameter.block < kEmbeddings) {
      return invalid("parameter '" + parameter.name + "' is in no block, so the model cannot be cut by blocks; use balanced fragments");
    }
    last = std::max(last, parameter.block);
  }
  if (last < 1) {
    return invalid("the model names no transformer block; use balanced fragments or the whole model as one");
  }
  if (static_cast<std::size_t>(last) >= manifest.size()) {
    return invalid("the model's blocks are numbered up to " + std::to_string(last) + ", but it has only " +
                   std::to_string(manifest.size()) + " parameters; number them without gaps");
  }
  std::vector<bool> seen(static_cast<std::size_t>(last) + 1);
  for (const ParameterInfo& parameter : manifest) {
    if (parameter.block >= 0) {
      seen[static_cast<std::size_t>(parameter.block)] = true;
    }
  }
  for (std::size_t block = 0; block < seen.size(); ++block) {
    if (!seen[block]) {
      return invalid("block " + std::to_string(block) + " of the model has no parameters; blocks are numbered without gaps");
    }
  }
  return static_cast<std::uint32_t>(last);
}

// The fragment of each parameter, and how many fragments there are.
struct Assignment {
  std::vector<std::uint32_t> fragment_of;
  std::uint32_t fragments = 1;
};

Result<Assignment> assign_blocks(std::span<const ParameterInfo> manifest, const FragmentPlan& plan) {
  ATOLL_ASSIGN(const std::uint32_t blocks, count_blocks(manifest));
  if (plan.fragments == 0 && plan.layers_per_fragment == 0) {
    return invalid("a fragment needs at least one block");
  }
  if (plan.fragments > blocks) {
    return invalid("the model has " + std::to_string(blocks) + (blocks == 1 ? " block" : " blocks") + ", which do not make " +
                   std::to_string(plan.fragments) + " fragments");
  }
  const std::uint32_t groups = plan.fragments != 0 ? plan.fragments : (blocks - 1) / plan.layers_per_fragment + 1;
  Assignment assignment{{}, groups + 1};
  assignment.fragment_of.reserve(manifest.size());
  for (const ParameterInfo& parameter : manifest) {
    const auto block = static_cast<std::uint32_t>(parameter.block);
    if (parameter.block == kEmbeddings || block == blocks) {
      assignment.fragment_of.push_back(groups);
    } else if (plan.kind == FragmentKind::strided) {
      assignment.fragment_of.push_back(block % groups);
    } else if (plan.fragments != 0) {
      assignment.fragment_of.push_back(static_cast<std::uint32_t>(std::uint64_t{block} * groups / blocks));
    } else {
      assignment.fragment_of.push_back(block / plan.layers_per_fragment);
    }
  }
  return assignment;
}

// Largest parameter first, each into the fragment that is smallest so far: the largest fragment is at most 4/3 of the
// best possible (Graham 1969).
Result<Assignment> assign_balanced(std::span<const ParameterInfo> manifest, const FragmentPlan& plan) {
  if (plan.fragments == 0) {
    return invalid("a model needs at least one fragment");
  }
  if (plan.fragments > manifest.size()) {
    return invalid("the model has " + std::to_string(manifest.size()) + " parameters, which do not make " + std::to_string(plan.fragments) +
                   " fragments");
  }
  std::vector<std::size_t> order(manifest.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return manifest[a].count > manifest[b].count; });
  Assignment assignment{std::vector<std::uint32_t>(manifest.size()), plan.fragments};
  std::vector<std::uint64_t> sizes(plan.fragments);
  for (const std::size_t parameter : order) {
    const auto smallest = std::min_element(sizes.begin(), sizes.end());
    *smallest += manifest[parameter].count;
    assignment.fragment_of[parameter] = static_cast<std::uint32_t>(smallest - sizes.begin());
  }
  return assignment;
}

Result<Assignment> assign(std::span<const ParameterInfo> manifest, const FragmentPlan& plan) {
  switch (plan.kind) {
    case FragmentKind::whole:
      return Assignment{std::vector<std::uint32_t>(manifest.size()), 1};
    case FragmentKind::sequential:
    case FragmentKind::strided:
      return assign_blocks(manifest, plan);
    case FragmentKind::balanced:
      return assign_balanced(manifest, plan);
  }
  return invalid("an unknown way to cut a model into fragments");
}

}  // namespace

Result<ArenaLayout> lay_out(std::span<const ParameterInfo> manifest, const FragmentPlan& plan) {
  ATOLL_TRY(check_manifest(manifest));
  ATOLL_ASSIGN(const Assignment assignment, assign(manifest, plan));
  std::vector<std::vector<std::uint32_t>> members(assignment.fragments);
  for (std::uint32_t parameter = 0; parameter < manifest.size(); ++parameter) {
    members[assignment.fragment_of[parameter]].push_back(parameter);
  }
  ArenaLayout layout;
  layout.entries.reserve(manifest.size());
  for (const auto& fragment : members) {
    const std::uint64_t start = layout.total;
    for (const std::uint32_t parameter : fragment) {
      layout.entries.push_back({parameter, layout.total});
      layout.total += manifest[parameter].count;
    }
    if (layout.total == start) {
      return invalid("fragment " + std::to_string(layout.fragments.size()) + " would hold no value; use fewer fragments");
    }
    layout.fragments.push_back({start, layout.total - start});
  }
  ATOLL_TRY(check_layout(manifest, layout));
  return layout;
}

bool is_of_embeddings(std::span<const ParameterInfo> manifest, const ArenaLayout& layout, std::uint32_t fragment) {
  if (layout.fragments.size() < 2) {
    return false;
  }
  const FragmentRange& range = layout.fragments[fragment];
  std::int32_t last = kNoBlock;
  for (const ParameterInfo& parameter : manifest) {
    last = std::max(last, parameter.block);
  }
  std::uint64_t outside = 0;  // of the transformer blocks
  for (const ArenaEntry& entry : layout.entries) {
    const ParameterInfo& parameter = manifest[entry.parameter];
    const bool there = entry.offset >= range.offset && entry.offset < range.offset + range.count;
    if (there && (parameter.block == kEmbeddings || (parameter.block == last && last > 0))) {
      outside += parameter.count;
    }
  }
  return outside > range.count / 2;
}

Status check_layout(std::span<const ParameterInfo> manifest, const ArenaLayout& layout) {
  std::vector<bool> seen(manifest.size());
  std::uint64_t end = 0;
  std::size_t fragment = 0;  // the next one to begin
  std::uint64_t fragment_end = 0;
  for (const ArenaEntry& entry : layout.entries) {
    if (entry.parameter >= manifest.size() || seen[entry.parameter]) {
      return invalid("parameter " + std::to_string(entry.parameter) + " is laid out twice or does not exist");
    }
    const ParameterInfo& parameter = manifest[entry.parameter];
    seen[entry.parameter] = true;
    if (entry.offset != end) {
      return invalid("parameter '" + parameter.name + "' is laid out at " + std::to_string(entry.offset) + " instead of " +
                     std::to_string(end));
    }
    if (parameter.count == 0) {
      continue;
    }
    if (end == fragment_end) {
      if (fragment == layout.fragments.size() || layout.fragments[fragment].offset != end) {
        return invalid("no fragment begins at parameter '" + parameter.name + "'");
      }
      fragment_end = end + layout.fragments[fragment].count;
      ++fragment;
    }
    end += parameter.count;
    if (end > fragment_end) {
      return invalid("parameter '" + parameter.name + "' reaches over the end of its fragment");
    }
  }
  if (layout.entries.size() != manifest.size()) {
    return invalid("the layout has " + std::to_string(layout.entries.size()) + " of " + std::to_string(manifest.size()) + " parameters");
  }
  if (fragment != layout.fragments.size() || end != fragment_end || end != layout.total) {
    return invalid("the layout's fragments do not cover exactly its parameters");
  }
  return {};
}

}  // namespace atl
