#include "agent/island_link/messages.hpp"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "transport/base/nesting.hpp"

namespace atl::island_link {

namespace {

using nlohmann::json;

constexpr std::size_t kDeepestMessage = 16;

// One description of each message serves writing and reading: `describe(visitor, message)` names its fields in order.
// A writer sees the message const.
template <typename Visitor, typename Message>
using Of = std::conditional_t<Visitor::kWrites, const Message, Message>;

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Model>& m) {
  v("layers", m.layers), v("width", m.width), v("heads", m.heads), v("feed_forward", m.feed_forward);
  v("vocabulary", m.vocabulary), v("tied_embeddings", m.tied_embeddings);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Data>& m) {
  v("files", m.files), v("format", m.format), v("validation_fraction", m.validation_fraction);
  v("part", m.part), v("parts", m.parts), v.or_default("classes", m.classes), v.or_default("stretches", m.stretches);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, DataClass>& m) {
  v("number", m.number), v("next", m.next);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, DataStretch>& m) {
  v("from", m.from), v("classes", m.classes);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Training>& m) {
  v("steps", m.steps), v("batch", m.batch), v("sequence_length", m.sequence_length), v("accumulation", m.accumulation);
  v("learning_rate", m.learning_rate), v("warmup_steps", m.warmup_steps), v("final_learning_rate", m.final_learning_rate);
  v("weight_decay", m.weight_decay), v("beta1", m.beta1), v("beta2", m.beta2), v("epsilon", m.epsilon);
  v("clip_norm", m.clip_norm), v("max_steps_per_second", m.max_steps_per_second), v("device", m.device);
  v("precision", m.precision), v("threads", m.threads), v("evaluate_batches", m.evaluate_batches);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Diffusion>& m) {
  v("experts", m.experts), v("clusters_by", m.clusters_by), v("features", m.features), v("feature_width", m.feature_width),
      v("fine_clusters", m.fine_clusters);
  v("balance", m.balance), v("patch", m.patch), v("conditional", m.conditional), v("class_dropout", m.class_dropout);
  v("times", m.times), v("ema", m.ema), v("router_patch", m.router_patch), v("router_layers", m.router_layers),
      v("router_width", m.router_width);
  v("router_heads", m.router_heads), v("router_steps", m.router_steps), v("router_batch", m.router_batch);
  v("router_learning_rate", m.router_learning_rate), v("distill_steps", m.distill_steps), v("distill_batch", m.distill_batch),
      v("save_every", m.save_every);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, TaskInput>& m) {
  v("task", m.task), v("path", m.path), v("sha256", m.sha256), v("bytes", m.bytes);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Work>& m) {
  v("task", m.task), v("inputs", m.inputs);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, TaskProgress>& m) {
  v("step", m.step), v("steps", m.steps), v("loss", m.loss), v("images_per_second", m.images_per_second);
  v("compute_seconds", m.compute_seconds);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, TaskSaved>& m) {
  v("path", m.path), v("step", m.step);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, TaskDrew>& m) {
  v("step", m.step);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, TaskDone>& m) {
  v("facts", m.facts);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, OwnTrainer>& m) {
  v("name", m.name), v("ranks", m.ranks), v("tokens_per_sample", m.tokens_per_sample), v.object_text("settings", m.settings);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Task>& m) {
  v("run", m.run), v("island", m.island), v("task", m.task), v("seed", m.seed), v("model", m.model), v("data", m.data);
  v("training", m.training), v("diffusion", m.diffusion), v("inputs", m.inputs), v("output", m.output);
  v("checkpoint", m.checkpoint), v("resume", m.resume);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Resume>& m) {
  v("directory", m.directory), v("step", m.step), v("position", m.position);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Parameter>& m) {
  v("name", m.name), v("shape", m.shape), v("block", m.block);
  if constexpr (Visitor::kWrites) {
    if (!m.buffer) {
      return;  // of a thousand parameters few are
    }
  }
  v("buffer", m.buffer);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Entry>& m) {
  v("parameter", m.parameter), v("offset", m.offset);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Fragment>& m) {
  v("offset", m.offset), v("count", m.count);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, PublishOrder>& m) {
  v("round", m.round), v("fragment", m.fragment), v("step", m.step), v("evaluate_local", m.evaluate_local);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, MergeOrder>& m) {
  v("round", m.round), v("fragment", m.fragment), v("step", m.step), v("alpha", m.alpha), v("evaluate", m.evaluate);
  v("parameters", m.parameters), v("save", m.save);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Hello>& m) {
  v("protocol", m.protocol), v("trainer", m.trainer), v("version", m.version), v("pid", m.pid);
  v("rank", m.rank), v("ranks", m.ranks), v("finishes", m.finishes), v("kernels", m.kernels);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Manifest>& m) {
  v("parameters", m.parameters), v("description", m.description);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Ready>& m) {
  v("step", m.step), v("position", m.position), v("tokens_available", m.tokens_available);
}

template <typename Visitor, typename T>
void describe(Visitor& v, T& m) requires std::is_same_v<std::remove_const_t<T>, PublishedNow> ||
    std::is_same_v<std::remove_const_t<T>, Loaded> || std::is_same_v<std::remove_const_t<T>, Load> {
  v("fragments", m.fragments), v("step", m.step), v("position", m.position);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Published>& m) {
  v("round", m.round), v("fragment", m.fragment), v("step", m.step), v("position", m.position), v("tokens", m.tokens);
  v("steps", m.steps), v("loss", m.loss), v("norm", m.norm), v("nonfinite", m.nonfinite);
  v("compute_seconds", m.compute_seconds), v("local_validation_loss", m.local_validation_loss);
  v("bad_step", m.bad_step);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Merged>& m) {
  v("round", m.round), v("fragment", m.fragment), v("step", m.step), v("position", m.position);
  v("wait_seconds", m.wait_seconds), v("validation_loss", m.validation_loss), v("saved", m.saved);
  v("save_error", m.save_error), v("saving", m.saving);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Saved>& m) {
  v("directory", m.directory), v("step", m.step), v("position", m.position), v("error", m.error);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Evaluated>& m) {
  v("loss", m.loss), v("batches", m.batches), v("step", m.step);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Progress>& m) {
  v("step", m.step), v("position", m.position), v("loss", m.loss), v("nonfinite", m.nonfinite);
  v("tokens_per_second", m.tokens_per_second), v("compute_seconds", m.compute_seconds), v("wait_seconds", m.wait_seconds);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Failed>& m) {
  v("why", m.why), v("permanent", m.permanent);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Preparing>& m) {
  v("what", m.what);
  v("data", m.data);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Metric>& m) {
  v("name", m.name), v("value", m.value);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Metrics>& m) {
  v("values", m.values);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Enough>& m) {
  v("why", m.why);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Stop>& m) {
  v("why", m.why), v("complete", m.complete), v("first", m.first);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Configure>& m) {
  v("run", m.run), v("island", m.island), v("seed", m.seed), v("trainer", m.trainer), v("data", m.data);
  if (!m.trainer) {
    v("model", m.model);
  }
  v("training", m.training), v("payload", m.payload), v("diffusion", m.diffusion), v("work", m.work), v("resume", m.resume);
  v("saves_beside", m.saves_beside);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, ArenaLayout>& m) {
  v("path", m.path), v("bytes", m.bytes), v("entries", m.entries), v("fragments", m.fragments);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, PublishNow>& m) {
  v("fragments", m.fragments);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Plan>& m) {
  v("until_step", m.until_step), v("publish", m.publish), v("merge", m.merge);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, RoundResult>& m) {
  v("round", m.round), v("fragment", m.fragment), v("applied", m.applied);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Finish>& m) {
  v("round", m.round), v("now", m.now), v("save", m.save);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Skip>& m) {
  v("step", m.step);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Committed>& m) {
  v("tokens", m.tokens), v("of", m.of);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Dealt>& m) {
  v("part", m.part), v("parts", m.parts), v("classes", m.classes), v("stretches", m.stretches);
}

template <typename Visitor>
void describe(Visitor& v, Of<Visitor, Save>& m) {
  v("directory", m.directory);
}

template <typename Visitor>
void describe(Visitor&, Of<Visitor, Evaluate>&) {}

// ---- writing

struct Writer {
  static constexpr bool kWrites = true;
  json object = json::object();

  template <typename T>
  void operator()(const char* key, const T& value) {
    object[key] = to_json_value(value);
  }

  template <typename T>
  void or_default(const char* key, const T& value) {
    (*this)(key, value);
  }

  // A text that is JSON, an object, as that object.
  void object_text(const char* key, const std::string& text) {
    json value = json::parse(text, nullptr, false);
    object[key] = value.is_object() ? std::move(value) : json::object();
  }

  template <typename T>
  static json to_json_value(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return value;
    } else if constexpr (std::is_same_v<T, Payload>) {
      return value == Payload::gradient ? "gradient" : "parameters";
    } else {
      Writer inner;
      describe(inner, value);
      return std::move(inner.object);
    }
  }
  template <typename T>
  static json to_json_value(const std::optional<T>& value) {
    return value ? to_json_value(*value) : json(nullptr);
  }
  template <typename T>
  static json to_json_value(const std::vector<T>& values) {
    json array = json::array();
    for (const T& value : values) {
      array.push_back(to_json_value(value));
    }
    return array;
  }
};

template <typename Message>
std::string encode_message(const Message& message) {
  return std::visit(
      [](const auto& value) {
        Writer writer;
        writer.object["type"] = std::decay_t<decltype(value)>::kType;
        describe(writer, value);
        return writer.object.dump(-1, ' ', false, json::error_handler_t::replace);
      },
      message);
}

// ---- reading

// Reads fields until the first error; `where` names the way to the present object.
struct Reader {
  static constexpr bool kWrites = false;
  const json* object;
  std::string where;
  std::string* error;

  void fail(const std::string& key, const char* wanted) const {
    if (error->empty()) {
      *error = "'" + where + key + "' must be " + wanted;
    }
  }

  template <typename T>
  void operator()(const char* key, T& value) {
    if (!error->empty()) {
      return;
    }
    const auto found = object->find(key);
    if (found == object->end()) {
      *error = "'" + where + key + "' is missing";
      return;
    }
    read(key, *found, value);
  }
  // Absent where an older agent says it.
  template <typename T>
  void or_default(const char* key, T& value) {
    if (error->empty() && object->contains(key)) {
      read(key, *object->find(key), value);
    }
  }
  template <typename T>
  void operator()(const char* key, std::optional<T>& value) {
    if (!error->empty()) {
      return;
    }
    const auto found = object->find(key);
    if (found != object->end() && !found->is_null()) {
      read(key, *found, value.emplace());
    }
  }

  void object_text(const char* key, std::string& text) {
    if (!error->empty()) {
      return;
    }
    const auto found = object->find(key);
    if (found == object->end() || !found->is_object()) {
      return fail(key, "an object");
    }
    text = found->dump(-1, ' ', false, json::error_handler_t::replace);
  }

  void read(const std::string& key, const json& from, bool& value) const {
    if (!from.is_boolean()) {
      return fail(key, "true or false");
    }
    value = from.get<bool>();
  }
  void read(const std::string& key, const json& from, double& value) const {
    if (!from.is_number() || !std::isfinite(from.get<double>())) {
      return fail(key, "a finite number");
    }
    value = from.get<double>();
  }
  void read(const std::string& key, const json& from, std::string& value) const {
    if (!from.is_string()) {
      return fail(key, "a text");
    }
    value = from.get<std::string>();
  }
  void read(const std::string& key, const json& from, std::uint64_t& value) const { read_integer(key, from, value); }
  void read(const std::string& key, const json& from, std::uint32_t& value) const { read_integer(key, from, value); }
  void read(const std::string& key, const json& from, std::int32_t& value) const {
    if (!from.is_number_integer() || from.get<std::int64_t>() < -1 || from.get<std::int64_t>() > std::numeric_limits<std::int32_t>::max()) {
      return fail(key, "an integer of at least -1");
    }
    value = from.get<std::int32_t>();
  }
  void read(const std::string& key, const json& from, Payload& value) const {
    if (from == "parameters") {
      value = Payload::parameters;
    } else if (from == "gradient") {
      value = Payload::gradient;
    } else {
      fail(key, "'parameters' or 'gradient'");
    }
  }
  template <typename T>
  void read(const std::string& key, const json& from, std::vector<T>& values) const {
    if (!from.is_array()) {
      return fail(key, "a list");
    }
    values.reserve(from.size());
    for (std::size_t i = 0; i < from.size() && error->empty(); ++i) {
      read(key + "[" + std::to_string(i) + "]", from[i], values.emplace_back());
    }
  }
  template <typename T>
  void read(const std::string& key, const json& from, T& value) const requires std::is_class_v<T> {
    if (!from.is_object()) {
      return fail(key, "an object");
    }
    Reader inner{&from, where + key + ".", error};
    describe(inner, value);
  }
  template <typename Integer>
  void read_integer(const std::string& key, const json& from, Integer& value) const {
    if (!from.is_number_unsigned() || from.get<std::uint64_t>() > std::numeric_limits<Integer>::max()) {
      return fail(key, sizeof(Integer) == 4 ? "an integer from 0 to 4294967295" : "an integer from 0 to 2^64 - 1");
    }
    value = from.get<Integer>();
  }
};

// Tries the alternatives of Message in order until one has the type.
template <typename Message, std::size_t Index = 0>
Result<Message> decode_as(const std::string& type, const json& object) {
  if constexpr (Index == std::variant_size_v<Message>) {
    return Error{Code::corrupt, "island link: a message of unknown type '" + type.substr(0, 64) + "'"};
  } else {
    using Alternative = std::variant_alternative_t<Index, Message>;
    if (type != Alternative::kType) {
      return decode_as<Message, Index + 1>(type, object);
    }
    Alternative value;
    std::string error;
    Reader reader{&object, "", &error};
    describe(reader, value);
    if (!error.empty()) {
      return Error{Code::corrupt, "island link: in '" + type + "' " + error};
    }
    return Message(std::move(value));
  }
}

template <typename Message>
Result<Message> decode_message(std::string_view text) {
  if (text.size() > kLargestMessage) {
    return Error{Code::corrupt, "island link: a message of " + std::to_string(text.size()) + " bytes; at most " +
                                    std::to_string(kLargestMessage) + " are allowed"};
  }
  if (json_nests_deeper(text, kDeepestMessage)) {
    return Error{Code::corrupt, "island link: a message that is nested too deep"};
  }
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) {
    return Error{Code::corrupt, "island link: a message that is not a JSON object"};
  }
  const auto type = object.find("type");
  if (type == object.end() || !type->is_string()) {
    return Error{Code::corrupt, "island link: a message without a type"};
  }
  return decode_as<Message>(type->get<std::string>(), object);
}

}  // namespace

std::string encode(const TrainerMessage& message) { return encode_message(message); }
std::string encode(const AgentMessage& message) { return encode_message(message); }

Result<TrainerMessage> decode_trainer_message(std::string_view text) { return decode_message<TrainerMessage>(text); }
Result<AgentMessage> decode_agent_message(std::string_view text) { return decode_message<AgentMessage>(text); }

std::string_view type_of(const TrainerMessage& message) {
  return std::visit([](const auto& value) { return std::string_view(std::decay_t<decltype(value)>::kType); }, message);
}
std::string_view type_of(const AgentMessage& message) {
  return std::visit([](const auto& value) { return std::string_view(std::decay_t<decltype(value)>::kType); }, message);
}

}  // namespace atl::island_link
