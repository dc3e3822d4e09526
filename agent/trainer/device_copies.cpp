#include "agent/trainer/device_copies.hpp"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <dlfcn.h>

#include <memory>
#include <utility>

namespace atl {
namespace {

// A function of CUDA's runtime, with which LibTorch is linked or is not; null where it is not.
void* of_cuda_runtime(const char* name) {
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&of_cuda_runtime), &here) == 0 || here.dli_fname == nullptr) {
    return nullptr;
  }
  void* module = ::dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);  // this module: what it is linked with is searched, too
  if (module == nullptr) {
    return nullptr;
  }
  void* found = ::dlsym(module, name);
  (void)::dlclose(module);
  return found;
}

bool pin(std::span<float> memory) {
  const auto function = reinterpret_cast<int (*)(void*, std::size_t, unsigned)>(of_cuda_runtime("cudaHostRegister"));
  const bool pinned = function != nullptr && function(memory.data(), memory.size_bytes(), 0) == 0;
  const auto take_last_error = reinterpret_cast<int (*)()>(of_cuda_runtime("cudaGetLastError"));
  if (!pinned && take_last_error != nullptr) {
    (void)take_last_error();  // CUDA keeps it, and LibTorch would throw it at whatever comes next
  }
  return pinned;
}

void unpin(std::span<float> memory) {
  const auto function = reinterpret_cast<int (*)(void*)>(of_cuda_runtime("cudaHostUnregister"));
  if (function != nullptr) {
    (void)function(memory.data());
  }
}

}  // namespace

DeviceCopies::DeviceCopies(c10::Device device, std::span<float> arena)
    : device_(device),
      guard_(device.type()),
      out_(guard_.getStreamFromGlobalPool(device)),
      in_(guard_.getStreamFromGlobalPool(device)),
      arena_(arena),
      pinned_(pin(arena)) {}

DeviceCopies::~DeviceCopies() {
  try {
    out_.synchronize();
    in_.synchronize();
  } catch (const std::exception&) {  // a GPU that has failed copies no more
  }
  if (pinned_) {
    unpin(arena_);
  }
}

void DeviceCopies::copy_out(const at::Tensor& captured, const at::Tensor& place) {
  c10::Event captured_there(device_.type());
  captured_there.record(guard_.getStream(device_));
  captured_there.block(out_);
  const c10::StreamGuard on(out_);
  place.copy_(captured, /*non_blocking=*/true);
  captured.record_stream(out_);
}

void DeviceCopies::write(const at::Tensor& values, float* out) {
  copy_out(values.detach().clone(), at::from_blob(out, values.sizes(), at::kFloat));
}

at::Tensor DeviceCopies::to_host(const at::Tensor& values) {
  at::Tensor place = at::empty(values.sizes(), values.options().device(at::kCPU).pinned_memory(true));
  copy_out(values.detach().clone(), place);
  return place;
}

DeviceCopies::Fetched DeviceCopies::fetch(std::span<float> values) {
  const c10::StreamGuard on(in_);
  const auto count = static_cast<std::int64_t>(values.size());
  Fetched fetched{at::empty({count}, at::TensorOptions(at::kFloat).device(device_)), c10::Event(device_.type())};
  fetched.values.copy_(at::from_blob(values.data(), {count}, at::kFloat), /*non_blocking=*/true);
  fetched.there.record(in_);
  return fetched;
}

at::Tensor DeviceCopies::use(const Fetched& fetched) {
  const c10::Stream current = guard_.getStream(device_);
  fetched.there.block(current);
  fetched.values.record_stream(current);
  return fetched.values;
}

std::function<bool()> DeviceCopies::begun() {
  // All that was asked for before on the same stream has ended by then, too.
  const auto events = std::make_shared<std::pair<c10::Event, c10::Event>>(device_.type(), device_.type());
  events->first.record(out_);
  events->second.record(in_);
  return [events] { return events->first.query() && events->second.query(); };
}

}  // namespace atl
