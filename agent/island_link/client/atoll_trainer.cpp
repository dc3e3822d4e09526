// The C interface over TrainerClient: types are converted, errors become codes, and no exception leaves.
#include "agent/island_link/client/atoll_trainer.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>

#include "agent/island_link/client/trainer_client.hpp"

using namespace atl;
using namespace atl::island_link;

struct atoll_trainer {
  explicit atoll_trainer(TrainerLink link) : client(std::move(link)) {}
  TrainerClient client;
  std::string configuration;
  std::string with_arena;   // once the arena is known; callers may still look at the other one
  std::uint64_t deals = 0;  // that with_arena knows of
  std::vector<atoll_entry> entries;
  Order order;
  std::string why;
};

namespace {

static_assert(static_cast<int>(OrderKind::fetch) == ATOLL_FETCH && static_cast<int>(OrderKind::save) == ATOLL_SAVE &&
              static_cast<int>(OrderKind::stop) == ATOLL_STOP && static_cast<int>(OrderKind::merge) == ATOLL_MERGE &&
              static_cast<int>(OrderKind::report) == ATOLL_REPORT);

int code_of(const Error& error) {
  switch (error.code) {
    case Code::unavailable:
    case Code::cancelled:
    case Code::timeout:
      return ATOLL_GONE;
    case Code::conflict:
    case Code::invalid_argument:
    case Code::not_found:
      return ATOLL_REFUSED;
    default:
      return ATOLL_BROKEN;
  }
}

// Runs `body`, which returns a Status, and keeps why it failed.
template <typename Body>
int guarded(atoll_trainer* trainer, const Body& body) noexcept {
  if (trainer == nullptr) {
    return ATOLL_REFUSED;
  }
  try {
    const Status done = body();
    trainer->why = done ? std::string() : done.error().why;
    return done ? ATOLL_OK : code_of(done.error());
  } catch (const std::exception& thrown) {
    try {
      trainer->why = thrown.what();
    } catch (...) {
      trainer->why.clear();
    }
    return ATOLL_BROKEN;
  }
}

std::string text_or_empty(const char* text) { return text == nullptr ? std::string() : std::string(text); }

// The value of `configure` as its message has it, and the path of the arena once that is known.
std::string settings_text(const Configure& configure, const std::string& arena = "") {
  nlohmann::json settings = nlohmann::json::parse(encode(AgentMessage(configure)));
  if (!arena.empty()) {
    settings["arena"] = arena;
  }
  return settings.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<std::unique_ptr<atoll_trainer>> join(const char* path, const char* name, const char* version, std::uint32_t ranks) {
  const char* variable = std::getenv(kLinkVariable);
  const std::string where = path != nullptr ? path : text_or_empty(variable);
  if (where.empty()) {
    return Error{Code::not_found, std::string("no agent: ") + kLinkVariable + " is not set (trainers are started by an agent)"};
  }
  ATOLL_ASSIGN(TrainerLink link, TrainerLink::connect(where));
  auto trainer = std::make_unique<atoll_trainer>(std::move(link));
  Hello hello;
  hello.trainer = text_or_empty(name);
  hello.version = text_or_empty(version);
  hello.pid = static_cast<std::uint64_t>(::getpid());
  hello.ranks = ranks;
  ATOLL_TRY(trainer->client.join(hello));
  if (!trainer->client.configuration()) {
    const std::string why = "this trainer does not know the task '" + trainer->client.task()->task + "'";
    trainer->client.fail(why, true);
    return Error{Code::invalid_argument, why};
  }
  trainer->configuration = settings_text(*trainer->client.configuration());
  return trainer;
}

// A number that is no kind of buffer goes into the manifest as it is, which is refused for it.
std::optional<std::string> buffer_of(std::int32_t kind) {
  switch (kind) {
    case 0:
      return std::nullopt;
    case ATOLL_BUFFER_MEAN:
      return kBufferMean;
    case ATOLL_BUFFER_ONE:
      return kBufferOfOne;
    default:
      return std::to_string(kind);
  }
}

Manifest manifest_of(const atoll_parameter* parameters, std::size_t count, const char* description) {
  Manifest manifest;
  for (std::size_t i = 0; i < count; ++i) {
    const atoll_parameter& given = parameters[i];
    manifest.parameters.push_back({text_or_empty(given.name), std::vector<std::uint64_t>(given.shape, given.shape + given.dimensions),
                                   given.block, buffer_of(given.buffer)});
  }
  if (description != nullptr) {
    manifest.description = description;
  }
  return manifest;
}

// In the order of the arena, so that neighbours are copied together.
std::vector<atoll_entry> entries_of(const Manifest& manifest, const ArenaLayout& layout) {
  std::vector<atoll_entry> entries;
  for (const Entry& entry : layout.entries) {
    std::uint32_t fragment = 0;
    while (entry.offset >= layout.fragments[fragment].offset + layout.fragments[fragment].count ||
           entry.offset < layout.fragments[fragment].offset) {
      ++fragment;  // check_layout has found that each lies in one
    }
    entries.push_back({entry.parameter, fragment, entry.offset, elements(manifest.parameters[entry.parameter])});
  }
  return entries;
}

Result<Answer> answer_of(const atoll_answer* given) {
  if (given == nullptr) {
    return Error{Code::invalid_argument, "an answer is NULL"};
  }
  if (given->answered < ATOLL_WHOLE || given->answered > ATOLL_SAVED) {
    return Error{Code::invalid_argument, "an answer's `answered` is " + std::to_string(given->answered)};
  }
  Answer answer;
  answer.answered = static_cast<Answered>(given->answered);
  answer.steps = std::max<std::uint64_t>(given->steps, 1);
  answer.samples = given->samples;
  answer.tokens = given->tokens;
  if (given->losses_count > 0) {
    answer.losses.assign(given->losses, given->losses + given->losses_count);
  }
  answer.norm = given->norm;
  if (given->has_loss != 0) {
    answer.loss = given->loss;
  }
  answer.batches = given->batches;
  answer.error = text_or_empty(given->error);
  for (std::size_t i = 0; i < given->metrics_count; ++i) {
    answer.metrics.push_back({text_or_empty(given->metrics[i].name), given->metrics[i].value});
  }
  answer.enough = text_or_empty(given->enough);
  return answer;
}

}  // namespace

atoll_trainer* atoll_trainer_join(const char* path, const char* name, const char* version, uint32_t ranks, char* why, size_t why_size) {
  std::string reason;
  try {
    Result<std::unique_ptr<atoll_trainer>> trainer = join(path, name, version, ranks);
    if (trainer) {
      return trainer->release();
    }
    reason = trainer.error().why;
  } catch (const std::exception& thrown) {
    reason = thrown.what();
  }
  if (why != nullptr && why_size > 0) {
    std::strncpy(why, reason.c_str(), why_size - 1);
    why[why_size - 1] = '\0';
  }
  return nullptr;
}

const char* atoll_trainer_configuration(atoll_trainer* trainer) {
  if (trainer != nullptr && trainer->deals != trainer->client.deals()) {
    trainer->deals = trainer->client.deals();
    trainer->with_arena = settings_text(*trainer->client.configuration(), trainer->client.layout().path);
  }
  return trainer == nullptr ? "{}" : trainer->with_arena.empty() ? trainer->configuration.c_str() : trainer->with_arena.c_str();
}

int atoll_trainer_prepare(atoll_trainer* trainer, const char* what) {
  return guarded(trainer, [&] { return trainer->client.prepare(text_or_empty(what)); });
}

int atoll_trainer_declare(atoll_trainer* trainer, const atoll_parameter* parameters, size_t count, const char* description) {
  return guarded(trainer, [&]() -> Status {
    const Manifest manifest = manifest_of(parameters, count, description);
    ATOLL_TRY(trainer->client.declare(manifest));
    trainer->entries = entries_of(manifest, trainer->client.layout());
    trainer->with_arena = settings_text(*trainer->client.configuration(), trainer->client.layout().path);
    return {};
  });
}

float* atoll_trainer_arena(atoll_trainer* trainer) { return trainer == nullptr ? nullptr : trainer->client.arena().floats().data(); }

const atoll_entry* atoll_trainer_entries(atoll_trainer* trainer, size_t* count) {
  if (trainer == nullptr || count == nullptr) {
    return nullptr;
  }
  *count = trainer->entries.size();
  return trainer->entries.data();
}

int atoll_trainer_ready(atoll_trainer* trainer, uint64_t tokens_available) {
  return guarded(trainer, [&] { return trainer->client.ready(tokens_available); });
}

int atoll_trainer_next(atoll_trainer* trainer, int timeout_ms, atoll_order* order) {
  return guarded(trainer, [&]() -> Status {
    if (order == nullptr) {
      return Error{Code::invalid_argument, "the order to fill in is NULL"};
    }
    ATOLL_ASSIGN(trainer->order, trainer->client.next(timeout_ms < 0 ? Duration(-1) : Duration(std::chrono::milliseconds(timeout_ms))));
    const Order& next = trainer->order;
    *order = {static_cast<int32_t>(next.kind),
              next.fragment,
              next.step,
              next.position,
              next.free_until,
              next.alpha,
              next.wants_norm ? 1 : 0,
              next.fetched ? 1 : 0,
              next.directory.c_str(),
              next.progress,
              trainer->client.deals()};
    return {};
  });
}

int atoll_trainer_answer(atoll_trainer* trainer, const atoll_answer* answer) {
  return guarded(trainer, [&]() -> Status {
    ATOLL_ASSIGN(const Answer given, answer_of(answer));
    return trainer->client.answer(given);
  });
}

int atoll_trainer_end(atoll_trainer* trainer) {
  const std::optional<Stop>* stop = trainer == nullptr ? nullptr : &trainer->client.stop();
  if (stop == nullptr || !*stop || !(*stop)->complete.value_or(false)) {
    return ATOLL_LEFT;
  }
  return (*stop)->first.value_or(false) ? ATOLL_COMPLETE_FIRST : ATOLL_COMPLETE;
}

int atoll_trainer_fail(atoll_trainer* trainer, const char* why, int permanent) {
  return guarded(trainer, [&]() -> Status {
    trainer->client.fail(text_or_empty(why), permanent != 0);
    return {};
  });
}

const char* atoll_trainer_why(atoll_trainer* trainer) { return trainer == nullptr ? "there is no trainer" : trainer->why.c_str(); }

void atoll_trainer_leave(atoll_trainer* trainer) { delete trainer; }
