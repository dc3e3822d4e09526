// What a client of SOCKS 5 (RFC 1928) says before its connection is a pipe: the only thing that a relay reads.
//
// Any client of SOCKS comes to a relay, and a proxy on the way understands what it says. Of the protocol there is what a meeting takes: no
// authentication (the name that is asked for carries a pass), CONNECT or BIND, and a name instead of an address. CONNECT asks for a pipe to
// the other island; BIND, SOCKS's word for "let the other one come to me", to be told its address (hole_words.hpp).
//   client  u8 5, u8 n, n methods, 0 (none) among them          relay  u8 5, u8 0
//   client  u8 5, u8 1 or 2, u8 0, u8 3, u8 length, name, u16 port   relay  u8 5, u8 code, u8 0, u8 1, u32 0, u16 0
// A client says nothing more until it has its answer; whatever else comes is no client of ours. At most 262 bytes are kept.
// Sans-I/O. Threads: a plain value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "transport/base/bytes.hpp"

namespace atl {

// Answers to a request, with SOCKS's codes.
enum class SocksAnswer : std::uint8_t { joined = 0, failed = 1, refused = 2, unreachable = 4, expired = 6 };

std::array<std::byte, 10> socks_answer(SocksAnswer code);
inline constexpr std::array<std::byte, 2> kSocksGreeting = {std::byte{5}, std::byte{0}};

enum class SocksCommand : std::uint8_t { connect = 1, bind = 2 };
// What a client asks for the meeting with: `name` has at most 255 bytes.
Bytes socks_request(const std::string& name, SocksCommand command = SocksCommand::connect);

class SocksDoor {
 public:
  enum class Step {
    more,   // nothing to do yet
    greet,  // answer with kSocksGreeting
    asks,   // `name` and `command` are what it asks for; answer with socks_answer
    wrong,  // it is no client of ours: close it
  };
  Step take(ByteView bytes);
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] SocksCommand command() const { return command_; }

 private:
  Step greeting();
  Step request();

  bool greeted_ = false;
  bool over_ = false;
  Bytes kept_;
  std::string name_;
  SocksCommand command_ = SocksCommand::connect;
};

}  // namespace atl
