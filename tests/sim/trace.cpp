#include "tests/sim/trace.hpp"

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <variant>
#include <vector>

namespace atl::sim {
namespace {

std::string short_of(const std::vector<Content>& contents) {
  std::string all;
  for (const Content& content : contents) {
    all += " " + to_hex(content.digest).substr(0, 4);
  }
  return all;
}

// "agent::StartTrainer" as its demangled name has it, and the numbers by which one reads a history.
template <typename T>
std::string told(const T& e) {
  const std::string_view pretty = __PRETTY_FUNCTION__;
  const std::size_t begin = pretty.find("T = ") + 4;
  std::string text(pretty.substr(begin, pretty.find_first_of(";]", begin) - begin));
  text = text.substr(text.rfind(':') + 1);
  if constexpr (requires { e.round.value; }) {
    text += " round " + std::to_string(e.round.value);
  }
  if constexpr (requires { e.digest; }) {
    text += " " + to_hex(e.digest).substr(0, 4);
  }
  if constexpr (requires { e.content.digest; }) {
    text += " " + to_hex(e.content.digest).substr(0, 4);
  }
  if constexpr (requires { e.resume.digest; }) {
    text += " " + e.task + " from " + to_hex(e.resume.digest).substr(0, 4);
  }
  if constexpr (requires { e.step.value; }) {
    text += " step " + std::to_string(e.step.value);
  }
  if constexpr (requires { e.until.value; }) {
    text += " until " + std::to_string(e.until.value) + " from round " +
            (e.publish.empty() ? "?" : std::to_string(e.publish.front().round.value));
  }
  if constexpr (requires { e.error.why; }) {
    text += " error " + e.error.why;
  } else if constexpr (requires { e.error->why; }) {
    text += e.error ? " error " + e.error->why : "";
  }
  return text;
}

// Of a message: the run, the round and the data that it is about.
template <typename M>
std::string place_of(const M& m) {
  std::string detail;
  if constexpr (requires { m.run.text; }) {
    detail += m.run.text == "r-1" ? "" : " of " + m.run.text;
  }
  if constexpr (requires { m.epoch; }) {
    detail += " epoch " + std::to_string(m.epoch.value);
  }
  if constexpr (requires { m.round; }) {
    detail += " round " + std::to_string(m.round.value);
  }
  if constexpr (requires { m.attempt; }) {
    detail += " attempt " + std::to_string(m.attempt.value);
  }
  if constexpr (requires { m.facts.data; }) {
    const DataRange& data = m.facts.data;
    detail += " tokens " + std::to_string(m.facts.tokens) + " part " + std::to_string(data.part) + ":" + std::to_string(data.from) + "-" +
              std::to_string(data.to);
  } else if constexpr (requires { m.tokens + 1; }) {
    detail += " tokens " + std::to_string(m.tokens);
  }
  if constexpr (requires { m.pause_after->value; }) {
    detail += m.pause_after ? " pause after " + std::to_string(m.pause_after->value) : "";
  }
  if constexpr (requires { m.committed; }) {
    detail += " committed " + std::to_string(m.committed.value);
  }
  if constexpr (requires {
                  m.parts;
                  m.position;
                }) {
    detail += " part " + std::to_string(m.part) + " at " + std::to_string(m.position);
  }
  return detail;
}

// The rest by which one reads a history.
template <typename M>
std::string content_of(const M& m) {
  std::string detail;
  if constexpr (requires { m.from.text; }) {
    detail += " from " + m.from.text;
  } else if constexpr (requires { m.from; }) {
    detail += " from " + std::to_string(static_cast<int>(m.from));
  }
  if constexpr (requires { m.error.why; }) {
    detail += " error " + m.error.why;
  } else if constexpr (requires { m.error->why; }) {
    detail += m.error ? " error " + m.error->why : "";
  }
  if constexpr (requires {
                  m.number;
                  m.task;
                }) {
    detail += " " + std::to_string(m.number) + " " + m.task;
  }
  if constexpr (requires { m.group_round; }) {
    detail += m.group.empty() ? "" : " in " + m.group.text + " after round " + std::to_string(m.group_round.value);
  }
  if constexpr (requires { m.drop; }) {
    detail += " from " + to_hex(m.resume.digest).substr(0, 4) + ", keeps" + short_of(m.keep) + ", drops" + short_of(m.drop) + ",";
  }
  if constexpr (requires {
                  m.held;
                  m.state;
                }) {
    detail += " " + m.state + ", holds" + short_of(m.held) + ", to go on from " + to_hex(m.checkpoint.digest).substr(0, 4);
  }
  if constexpr (requires { m.kind; }) {
    detail += " " + m.kind + ": " + m.text;
  }
  if constexpr (requires { m.members.front().name; }) {
    for (const Member& member : m.members) {
      detail += " " + member.name;
    }
  }
  return detail;
}

void print(TimePoint now, const std::string& line) {
  std::printf("%8.3f %s\n", static_cast<double>(unix_ms(now) - 1'700'000'000'000) / 1000, line.c_str());
}

}  // namespace

bool traced() {
  static const bool wanted = std::getenv("ATOLL_SIM_TRACE") != nullptr;
  return wanted;
}

void trace(TimePoint now, const std::string& from, const std::string& to, const Message& message) {
  if (!traced() || std::holds_alternative<Heartbeat>(message)) {
    return;
  }
  const std::string detail = std::visit([](const auto& m) { return place_of(m) + content_of(m); }, message);
  print(now, from + " → " + to + " " + std::string(kind_of(message)) + detail);
}

void trace(const coordinator::EventRecord& event) {
  if (traced()) {
    print(event.time, event.kind + ": " + event.text);
  }
}

void trace(TimePoint now, const std::string& island, const agent::Event& event) {
  if (traced() && !std::holds_alternative<agent::FromCoordinator>(event) && !std::holds_alternative<agent::TrainerProgress>(event)) {
    print(now, island + " hears: " + std::visit([](const auto& e) { return told(e); }, event));
  }
}

void trace(TimePoint now, const std::string& island, const agent::Effect& effect) {
  if (traced()) {
    print(now, island + " does: " + std::visit([](const auto& e) { return told(e); }, effect));
  }
}

}  // namespace atl::sim
