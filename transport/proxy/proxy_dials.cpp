#include "transport/proxy/proxy_dials.hpp"

#include <curl/curl.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "transport/base/bytes.hpp"
#include "transport/base/check.hpp"

namespace atl {
namespace {

struct EasyEnd {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
using Easy = std::unique_ptr<CURL, EasyEnd>;

template <typename Value>
void set(CURL* easy, CURLoption option, Value value) {
  ATOLL_CHECK(curl_easy_setopt(easy, option, value) == CURLE_OK, "libcurl refuses an option");
}

long figure_of(CURL* easy, CURLINFO which) {
  long value = 0;
  (void)curl_easy_getinfo(easy, which, &value);
  return value;
}

// The trainers that are started meanwhile do not inherit it.
curl_socket_t open_socket(void* /*user*/, curlsocktype /*purpose*/, curl_sockaddr* address) {
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

struct Refusal {
  CURLcode code = CURLE_OK;
  long http = 0;   // the status that a proxy of HTTP answered; 0: none
  long socks = 0;  // CURLPX_*, of one of SOCKS
};

bool is_password_refused(const Refusal& refusal) {
  return refusal.http == 407 || refusal.socks == CURLPX_NO_AUTH || refusal.socks == CURLPX_USER_REJECTED ||
         refusal.code == CURLE_LOGIN_DENIED;
}

std::string why_not(const Proxy& proxy, const std::string& target, Duration patience, const Refusal& refusal) {
  const std::string which = "the proxy " + proxy.shown + " (from " + proxy.source + ") ";
  const std::string status = refusal.http > 0 ? " (HTTP " + std::to_string(refusal.http) + ")" : "";
  if (is_password_refused(refusal)) {
    return which + (proxy.has_password ? "does not take the name and password" : "asks for a name and password") + status +
           ": give those that it knows in its URL, as KIND://USER:PASSWORD@HOST:PORT in the variable ALL_PROXY, which `ps` does not show";
  }
  if (refusal.code == CURLE_OPERATION_TIMEDOUT) {
    return which + "has not opened a way to " + target + " within " + human_duration(patience) +
           ": it or what is behind it does not answer, or a firewall drops what is sent there";
  }
  if (refusal.code == CURLE_COULDNT_RESOLVE_PROXY) {
    return which + "has a name that is not known here: correct it";
  }
  if (refusal.code == CURLE_COULDNT_CONNECT) {
    return which +
           "cannot be reached: is it running, is its address right, does a firewall let this machine through to it? --proxy none dials "
           "without it";
  }
  if (refusal.http >= 500 || refusal.socks == CURLPX_REPLY_CONNECTION_REFUSED || refusal.socks == CURLPX_REPLY_HOST_UNREACHABLE ||
      refusal.socks == CURLPX_REPLY_NETWORK_UNREACHABLE || refusal.socks == CURLPX_REPLY_TTL_EXPIRED ||
      refusal.socks == CURLPX_REPLY_GENERAL_SERVER_FAILURE) {
    return which + "cannot reach " + target + status + ": is it running there, is the address right, does its firewall let the proxy in?";
  }
  if (refusal.http >= 300 || refusal.socks == CURLPX_REPLY_NOT_ALLOWED) {
    return which + "refuses to connect to " + target + status +
           ": many proxies allow port 443 alone, so let what is there listen at it (--bind 'tcp://*:443'), or have this port allowed; "
           "--proxy none dials without the proxy";
  }
  if (refusal.socks == CURLPX_RESOLVE_HOST) {
    return which + "is given addresses, and " + target + " is a name that is not known here: let the proxy look it up, by socks5h://";
  }
  return which + "does not connect to " + target + ": " + curl_easy_strerror(refusal.code) + "; is it a proxy of this kind?";
}

}  // namespace

struct ProxyDials::State {
  struct Dial {
    std::uint64_t number = 0;
    Proxy proxy;
    std::string target;
    Duration patience;
    Easy easy;
  };
  FileDescriptor poll{::epoll_create1(EPOLL_CLOEXEC)};
  CURLM* multi = nullptr;
  std::vector<Dial> dials;
  std::vector<Dialled> ended;
  TimePoint deadline = TimePoint::max();

  void drop(std::vector<Dial>::iterator dial) {
    curl_multi_remove_handle(multi, dial->easy.get());
    dials.erase(dial);
  }
  void finish(CURL* easy, CURLcode code);

  // libcurl's callbacks: which sockets it waits for, and until when.
  static int on_socket(CURL* /*easy*/, curl_socket_t socket, int what, void* user, void* /*own*/) {
    const int poll = static_cast<State*>(user)->poll.get();
    epoll_event event{(what & CURL_POLL_IN ? EPOLLIN : 0U) | (what & CURL_POLL_OUT ? EPOLLOUT : 0U), {.fd = socket}};
    if (what == CURL_POLL_REMOVE) {
      (void)::epoll_ctl(poll, EPOLL_CTL_DEL, socket, nullptr);
    } else if (::epoll_ctl(poll, EPOLL_CTL_MOD, socket, &event) != 0) {
      (void)::epoll_ctl(poll, EPOLL_CTL_ADD, socket, &event);
    }
    return 0;
  }
  static int on_timer(CURLM* /*multi*/, long milliseconds, void* user) {
    static_cast<State*>(user)->deadline = milliseconds < 0 ? TimePoint::max() : now() + std::chrono::milliseconds(milliseconds);
    return 0;
  }
};

void ProxyDials::State::finish(CURL* easy, CURLcode code) {
  const auto dial = std::ranges::find_if(dials, [&](const Dial& one) { return one.easy.get() == easy; });
  if (dial == dials.end()) {
    return;
  }
  curl_socket_t socket = CURL_SOCKET_BAD;
  (void)curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &socket);
  if (code == CURLE_OK && socket != CURL_SOCKET_BAD) {
    // libcurl closes its own with the handle.
    FileDescriptor kept(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
    ended.push_back(kept.is_open()
                        ? Dialled{dial->number, std::move(kept)}
                        : Dialled{dial->number, Error{Code::unavailable, "this process may not have more connections (ulimit -n)"}});
  } else {
    const Refusal refusal{code, figure_of(easy, CURLINFO_HTTP_CONNECTCODE), figure_of(easy, CURLINFO_PROXY_ERROR)};
    ended.push_back({dial->number, Error{Code::unavailable, why_not(dial->proxy, dial->target, dial->patience, refusal)}});
  }
  drop(dial);
}

ProxyDials::ProxyDials() : state_(std::make_unique<State>()) {
  static const CURLcode kStarted = curl_global_init(CURL_GLOBAL_DEFAULT);
  state_->multi = kStarted == CURLE_OK ? curl_multi_init() : nullptr;
  ATOLL_CHECK(state_->multi != nullptr, "libcurl starts");
  curl_multi_setopt(state_->multi, CURLMOPT_SOCKETFUNCTION, &State::on_socket);
  curl_multi_setopt(state_->multi, CURLMOPT_SOCKETDATA, static_cast<void*>(state_.get()));
  curl_multi_setopt(state_->multi, CURLMOPT_TIMERFUNCTION, &State::on_timer);
  curl_multi_setopt(state_->multi, CURLMOPT_TIMERDATA, static_cast<void*>(state_.get()));
}

ProxyDials::~ProxyDials() {
  while (!state_->dials.empty()) {
    state_->drop(state_->dials.begin());
  }
  curl_multi_cleanup(state_->multi);
}

void ProxyDials::begin(std::uint64_t number, const Proxy& proxy, const Address& target, Duration patience) {
  const bool six = target.host.find(':') != std::string::npos;
  const std::string where = (six ? "[" + target.host + "]" : target.host) + ":" + std::to_string(target.port);
  State::Dial dial{number, proxy, "tcp://" + where, patience, Easy(curl_easy_init())};
  CURL* const easy = dial.easy.get();
  if (easy == nullptr) {
    state_->ended.push_back({number, Error{Code::unavailable, "libcurl does not start"}});
    return;
  }
  set(easy, CURLOPT_URL, ("http://" + where).c_str());
  set(easy, CURLOPT_PROXY, proxy.url.c_str());
  set(easy, CURLOPT_NOPROXY, "");  // that was decided (proxy_rules.hpp)
  set(easy, CURLOPT_PROXYAUTH, static_cast<long>(proxy.has_password ? CURLAUTH_ANY : CURLAUTH_BASIC));
  set(easy, CURLOPT_HTTPPROXYTUNNEL, 1L);
  set(easy, CURLOPT_CONNECT_ONLY, 1L);
  set(easy, CURLOPT_NOSIGNAL, 1L);
  set(easy, CURLOPT_USERAGENT, "atoll");
  set(easy, CURLOPT_OPENSOCKETFUNCTION, &open_socket);
  const auto most = static_cast<long>(std::chrono::ceil<std::chrono::milliseconds>(patience).count());
  set(easy, CURLOPT_CONNECTTIMEOUT_MS, most);
  set(easy, CURLOPT_TIMEOUT_MS, most);
  state_->dials.push_back(std::move(dial));
  ATOLL_CHECK(curl_multi_add_handle(state_->multi, easy) == CURLM_OK, "libcurl takes a handle");
}

void ProxyDials::drop(std::uint64_t number) {
  const auto dial = std::ranges::find(state_->dials, number, &State::Dial::number);
  if (dial != state_->dials.end()) {
    state_->drop(dial);
  }
  std::erase_if(state_->ended, [&](const Dialled& one) { return one.number == number; });
}

std::vector<ProxyDials::Dialled> ProxyDials::advance() {
  int running = 0;
  std::array<epoll_event, 16> events{};
  const int count = ::epoll_wait(state_->poll.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    const int what = ((event.events & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) | ((event.events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
                     ((event.events & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
    curl_multi_socket_action(state_->multi, event.data.fd, what, &running);
  }
  if (now() >= state_->deadline) {
    state_->deadline = TimePoint::max();
    curl_multi_socket_action(state_->multi, CURL_SOCKET_TIMEOUT, 0, &running);
  }
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(state_->multi, &left)) {
    if (message->msg == CURLMSG_DONE) {
      state_->finish(message->easy_handle, message->data.result);
    }
  }
  return std::exchange(state_->ended, {});
}

int ProxyDials::fd() const { return state_->poll.get(); }
TimePoint ProxyDials::deadline() const { return state_->ended.empty() ? state_->deadline : now(); }

Result<FileDescriptor> dial_through(const Proxy& proxy, const Address& target, Duration patience) {
  ProxyDials dials;
  dials.begin(0, proxy, target, patience);
  while (true) {
    for (ProxyDials::Dialled& dialled : dials.advance()) {
      return std::move(dialled.socket);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::min(dials.deadline(), now() + std::chrono::seconds(1)) - now());
    pollfd one{dials.fd(), POLLIN, 0};
    (void)::poll(&one, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
  }
}

}  // namespace atl
