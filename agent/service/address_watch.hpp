// Whether this machine has other network addresses than it had: others reach it elsewhere then.
// Threads: one.
#pragma once

#include <utility>
#include <vector>

#include "transport/bulk/interface_addresses.hpp"

namespace atl::agent {

class AddressWatch {
 public:
  // Asked every few seconds. True once for each change, at the second look that finds it: an address that is exchanged for another one is
  // gone for a moment.
  bool changed() {
    std::vector<InterfaceAddress> present = interface_addresses();
    const bool stands = present == last_;
    last_ = std::move(present);
    if (!stands || last_ == known_) {
      return false;
    }
    known_ = last_;
    return true;
  }

 private:
  std::vector<InterfaceAddress> known_ = interface_addresses();
  std::vector<InterfaceAddress> last_ = known_;
};

}  // namespace atl::agent
