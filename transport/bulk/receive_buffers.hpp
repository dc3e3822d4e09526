// Large buffers for what is received, kept for the next round.
//
// Fresh memory costs a fault for each of its pages, which is more than copying into it. So a buffer whose last owner lets go of it is kept
// for the next one that needs as much, and consists of huge pages where the system has them. What is kept and what is in use are together
// never more than was in use at one time, and a buffer is given out again only where three quarters of it are needed; so what a run needs
// at most does not grow by this.
// Threads: any. The buffers outlive this object.
#pragma once

#include <cstddef>
#include <memory>

namespace atl {

class ReceiveBuffers {
 public:
  ReceiveBuffers();
  ~ReceiveBuffers();
  ReceiveBuffers(const ReceiveBuffers&) = delete;
  ReceiveBuffers& operator=(const ReceiveBuffers&) = delete;

  // At least so many bytes, with whatever is in them.
  std::shared_ptr<std::byte[]> take(std::size_t bytes);
  // Gives what is kept back to the system, and forgets how much was in use.
  void clear();
  [[nodiscard]] std::size_t kept_bytes() const;

 private:
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace atl
