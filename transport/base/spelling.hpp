// Spelling: the known word that somebody probably meant.
// Threads: pure.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace atl {

// Insertions, deletions, replacements and swaps of neighbours that make one text of the other (optimal string alignment).
// Cost: the product of the lengths; texts are cut at 64 characters.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The nearest of `known`, if it is near enough to be a slip (a third of its length, at least 2); empty otherwise.
std::string_view nearest(std::string_view word, std::span<const std::string_view> known);

}  // namespace atl
