// A network of islands whose packets are delayed, lost and put out of order: real TCP, of the kernel's own making, over a bad path.
//
// Each island is in a network namespace of its own with a TUN device as its only way out, and so is everybody else. A thread reads the
// packets of all devices and hands each to its receiver's after half a round trip; some it drops, and some it delays by as much again, so
// that later ones overtake them. A queue holds what a rate lets wait, and drops the rest, as a router does. Needs root, `ip` and
// /dev/net/tun.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <queue>
#include <string>
#include <thread>
#include <vector>

#include "transport/base/file_descriptor.hpp"
#include "transport/base/rng.hpp"
#include "transport/base/time.hpp"

namespace atl_test {

struct PacketTerms {
  atl::Duration round_trip{};
  double loss = 0;                                      // of packets, each way
  double late = 0;                                      // of packets: they come a quarter of the round trip later than they should
  double bits_per_second = 0;                           // of each island's way out; 0: no limit
  atl::Duration queue = std::chrono::milliseconds(50);  // what may wait before it
};

class PacketPath {
 public:
  // Islands are numbered from 1; 10.88.0.I is where island I is, and 10.88.0.254 this thread while the path lives.
  PacketPath(int islands, PacketTerms terms) : terms_(terms), home_(network_of_thread()) {
    ok_ = home_.is_open() && ::unshare(CLONE_NEWNET) == 0;
    middle_ = network_of_thread();
    ok_ = ok_ && add_device(254);
    for (int i = 1; i <= islands && ok_; ++i) {
      ok_ = ::unshare(CLONE_NEWNET) == 0;
      inside_.push_back(network_of_thread());
      ok_ = ok_ && add_device(i);
    }
    enter(middle_);
    stop_ = atl::FileDescriptor(::eventfd(0, EFD_CLOEXEC));
    if (ok_) {
      thread_ = std::thread([this] { carry(); });
    }
  }
  PacketPath(const PacketPath&) = delete;
  PacketPath& operator=(const PacketPath&) = delete;
  ~PacketPath() {
    const std::uint64_t one = 1;
    if (thread_.joinable() && ::write(stop_.get(), &one, sizeof one) == sizeof one) {
      thread_.join();
    }
    enter(home_);
  }
  [[nodiscard]] bool ok() const { return ok_; }
  // Does something in the network of one island: what it starts stays there.
  template <typename F>
  void inside(int island, F what) const {
    enter(inside_.at(static_cast<std::size_t>(island) - 1));
    what();
    enter(middle_);
  }
  [[nodiscard]] std::uint64_t carried() const { return carried_; }
  [[nodiscard]] std::uint64_t lost() const { return lost_; }
  [[nodiscard]] std::uint64_t overtaken() const { return overtaken_; }

 private:
  static constexpr std::size_t kMtu = 1500;
  struct Device {
    atl::FileDescriptor tun;
    std::uint32_t address = 0;  // as in a packet
    atl::TimePoint free{};      // when its way out is
  };
  struct Packet {
    atl::TimePoint at;
    std::uint64_t number = 0;
    std::size_t to = 0;
    std::vector<std::byte> bytes;
    bool operator>(const Packet& other) const { return std::tie(at, number) > std::tie(other.at, other.number); }
  };

  static atl::FileDescriptor network_of_thread() { return atl::FileDescriptor(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)); }
  static void enter(const atl::FileDescriptor& network) { (void)::setns(network.get(), CLONE_NEWNET); }

  // In the network in which this thread is.
  bool add_device(int number) {
    Device device{atl::FileDescriptor(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC)), 0, {}};
    ifreq request{};
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    std::strncpy(request.ifr_name, "path", sizeof request.ifr_name - 1);
    const std::string address = "10.88.0." + std::to_string(number);
    device.address = ::inet_addr(address.c_str());
    const std::string up = "(ip link set lo up && ip addr add " + address + "/24 dev path && ip link set path mtu " + std::to_string(kMtu) +
                           " up) > /dev/null 2>&1";
    if (!device.tun.is_open() || ::ioctl(device.tun.get(), TUNSETIFF, &request) != 0 || std::system(up.c_str()) != 0) {
      return false;
    }
    devices_.push_back(std::move(device));
    return true;
  }

  void carry() {
    std::vector<pollfd> items{{stop_.get(), POLLIN, 0}};
    for (const Device& device : devices_) {
      items.push_back({device.tun.get(), POLLIN, 0});
    }
    while ((items.front().revents & POLLIN) == 0) {
      const atl::Duration left = waiting_.empty() ? atl::Duration(std::chrono::seconds(1)) : waiting_.top().at - atl::now();
      const auto count = std::max<atl::Duration::rep>(0, left.count());
      const timespec timeout{static_cast<time_t>(count / 1'000'000'000), static_cast<long>(count % 1'000'000'000)};
      ::ppoll(items.data(), items.size(), &timeout, nullptr);
      for (std::size_t i = 0; i < devices_.size(); ++i) {
        if ((items[i + 1].revents & POLLIN) != 0) {
          take_from(devices_[i]);
        }
      }
      hand_over();
    }
  }

  void take_from(Device& device) {
    std::array<std::byte, 2 * kMtu> bytes{};
    constexpr int kInARow = 64;
    for (int i = 0; i < kInARow; ++i) {
      const ssize_t length = ::read(device.tun.get(), bytes.data(), bytes.size());
      if (length < 20) {
        return;
      }
      std::uint32_t to = 0;
      std::memcpy(&to, bytes.data() + 16, sizeof to);
      for (std::size_t other = 0; other < devices_.size(); ++other) {
        if (devices_[other].address == to) {
          send_off(device, other, {bytes.data(), bytes.data() + length});
        }
      }
    }
  }

  void send_off(Device& from, std::size_t to, std::vector<std::byte> bytes) {
    const atl::TimePoint present = atl::now();
    atl::TimePoint out = present;
    if (terms_.bits_per_second > 0) {
      out = std::max(present, from.free) + atl::from_seconds(static_cast<double>(bytes.size()) * 8 / terms_.bits_per_second);
    }
    if (out - present > terms_.queue || rng_.chance(terms_.loss)) {
      ++lost_;
      return;
    }
    from.free = out;
    atl::TimePoint at = out + terms_.round_trip / 2;
    if (rng_.chance(terms_.late)) {
      at += terms_.round_trip / 4;
      ++overtaken_;
    }
    waiting_.push({at, number_++, to, std::move(bytes)});
  }

  void hand_over() {
    while (!waiting_.empty() && waiting_.top().at <= atl::now()) {
      const Packet& packet = waiting_.top();
      if (::write(devices_[packet.to].tun.get(), packet.bytes.data(), packet.bytes.size()) > 0) {
        ++carried_;
      }
      waiting_.pop();
    }
  }

  PacketTerms terms_;
  atl::FileDescriptor home_;
  atl::FileDescriptor middle_;
  atl::FileDescriptor stop_;
  std::vector<atl::FileDescriptor> inside_;
  std::vector<Device> devices_;
  bool ok_ = false;
  // The thread's.
  atl::Rng rng_{20};
  std::uint64_t number_ = 0;
  std::priority_queue<Packet, std::vector<Packet>, std::greater<>> waiting_;
  std::atomic<std::uint64_t> carried_ = 0;
  std::atomic<std::uint64_t> lost_ = 0;
  std::atomic<std::uint64_t> overtaken_ = 0;
  std::thread thread_;
};

}  // namespace atl_test
