// Copies between the arena and a GPU's tensors, beside the steps.
//
// What goes out is captured on the GPU, in the order of the steps, and copied from there into the arena on a stream of its own; what comes
// in is copied on another, and the steps that need it wait for it on the GPU. The processor waits for none of them: begun() gives what
// tells later whether they have ended. The arena's pages are pinned; where they cannot be, the copies are the same, and CUDA makes the
// processor wait for each. Streams and events are c10's, so this needs no header of CUDA. What LibTorch throws is passed on. Threads: one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <functional>
#include <span>

namespace atl {

class DeviceCopies {
 public:
  // On their way to the GPU.
  struct Fetched {
    at::Tensor values;
    c10::Event there;
  };

  // The arena must stay mapped as long as this lives.
  DeviceCopies(c10::Device device, std::span<float> arena);
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;
  // Waits for all copies.
  ~DeviceCopies();

  // `values`, as they are after what the current stream has queued, go to `out`, as many float32. They may change at once.
  void write(const at::Tensor& values, float* out);
  // A tensor on the processor that has `values` once the copies have ended.
  at::Tensor to_host(const at::Tensor& values);
  // `values` of the arena are copied to the GPU.
  Fetched fetch(std::span<float> values);
  // As a tensor for the current stream, which waits for them.
  at::Tensor use(const Fetched& fetched);
  // Tells whether the copies have ended that were asked for since the last call. It does not wait.
  std::function<bool()> begun();

 private:
  void copy_out(const at::Tensor& captured, const at::Tensor& place);

  c10::Device device_;
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream out_;
  c10::Stream in_;  // copies out of the GPU wait for no copies into it, and the other way round
  std::span<float> arena_;
  bool pinned_ = false;
};

}  // namespace atl
