// What a daemon says to the service manager that started it: systemd's sd_notify, which is a datagram of lines.
// Threads: any.
#pragma once

#include <string_view>

namespace atl {

// Says "READY=1", "STOPPING=1" or "STATUS=…" (one line each, joined by '\n'). Without a service manager that wants to know
// ($NOTIFY_SOCKET), nothing is said; what cannot be sent is lost.
void tell_service_manager(std::string_view lines);

}  // namespace atl
