#include "agent/engine/result_digest.hpp"

#include <algorithm>

#include "transport/base/check.hpp"
#include "transport/identity/sha256.hpp"

namespace atl {

ResultDigest::ResultDigest(std::span<const std::uint64_t> sizes) {
  for (std::size_t term = 0; term < sizes.size(); ++term) {
    first_.push_back(leaves_.size());
    for (std::uint64_t offset = 0; offset < sizes[term]; offset += kDigestLeaf) {
      const std::uint64_t length = std::min(kDigestLeaf, sizes[term] - offset);
      leaves_.push_back(Leaf{term, offset, length, length, false, {}});
    }
  }
}

void ResultDigest::ready(std::size_t term, std::uint64_t offset, std::uint64_t length) {
  for (const std::uint64_t end = offset + length; offset < end;) {
    const std::size_t number = first_.at(term) + static_cast<std::size_t>(offset / kDigestLeaf);
    Leaf& leaf = leaves_.at(number);
    const std::uint64_t count = std::min(end, leaf.offset + leaf.length) - offset;
    ATOLL_CHECK(leaf.term == term && count > 0 && count <= leaf.missing, "each byte of a result comes once");
    leaf.missing -= count;
    if (leaf.missing == 0) {
      waiting_.push_back(number);
    }
    offset += count;
  }
}

bool ResultDigest::hash_one(std::span<const ByteView> terms) {
  if (waiting_.empty()) {
    return false;
  }
  hash(leaves_[waiting_.front()], terms);
  waiting_.pop_front();
  return true;
}

Digest ResultDigest::after(const Digest& previous, ByteView header, std::span<const ByteView> terms, const InParts& in_parts) {
  std::vector<std::size_t> left;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (!leaves_[i].hashed) {
      left.push_back(i);
    }
  }
  in_parts(left.size(), [&](std::size_t i) { hash(leaves_[left[i]], terms); });
  waiting_.clear();
  Sha256 whole;
  whole.update(previous.bytes);
  whole.update(header);
  for (const Leaf& leaf : leaves_) {
    whole.update(leaf.digest.bytes);
  }
  return whole.finish();
}

Digest ResultDigest::of_range(std::size_t term, std::uint64_t offset, std::uint64_t length, std::span<const ByteView> terms) const {
  Sha256 whole;
  for (const std::uint64_t end = offset + length; offset < end;) {
    const Leaf& leaf = leaves_.at(first_.at(term) + static_cast<std::size_t>(offset / kDigestLeaf));
    const std::uint64_t count = std::min(end, leaf.offset + leaf.length) - offset;
    ATOLL_CHECK(leaf.hashed, "a range of a result is hashed once all of it is");
    whole.update(count == leaf.length ? leaf.digest.bytes : sha256(terms[term].subspan(offset, count)).bytes);
    offset += count;
  }
  return whole.finish();
}

void ResultDigest::hash(Leaf& leaf, std::span<const ByteView> terms) {
  leaf.digest = sha256(terms[leaf.term].subspan(leaf.offset, leaf.length));
  leaf.hashed = true;
}

}  // namespace atl
