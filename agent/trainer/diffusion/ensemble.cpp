#include "agent/trainer/diffusion/ensemble.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "agent/trainer/diffusion/dit_learner.hpp"

namespace atl {
namespace {

Result<nlohmann::json> read_document(const std::string& folder) {
  const std::string path = folder + "/ensemble.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Error{Code::not_found, path + ": there is no such file; the folder is no ensemble"};
  }
  std::ostringstream text;
  text << file.rdbuf();
  nlohmann::json document = nlohmann::json::parse(text.str(), nullptr, false);
  const bool good = document.is_object() && document.contains("format") && document["format"] == "atoll-ensemble" &&
                    document.contains("experts") && document["experts"].is_array() && !document["experts"].empty() &&
                    document.contains("run") && document["run"].is_string();
  if (!good) {
    return Error{Code::corrupt, path + ": not the description of an ensemble"};
  }
  return document;
}

// The file that an entry names, inside the folder.
Result<std::string> file_of(const std::string& folder, const nlohmann::json& entry) {
  const auto found = entry.is_object() ? entry.find("file") : entry.end();
  const std::string name = entry.is_object() && found != entry.end() && found->is_string() ? found->get<std::string>() : "";
  if (name.empty() || name.front() == '/' || name.find("..") != std::string::npos) {
    return Error{Code::corrupt, folder + "/ensemble.json: an entry names no file inside the folder"};
  }
  return folder + "/" + name;
}

Result<Dit> read_model(const std::string& path, const std::string& run, const at::Device& device) {
  ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
  const auto owner = file.header().metadata.find("atoll.run");
  if (owner == file.header().metadata.end() || owner->second != run) {
    return Error{Code::conflict, path + ": it is of run " + (owner == file.header().metadata.end() ? "(none)" : owner->second) +
                                     ", the ensemble is of run " + run + "; experts and router of different runs do not belong together"};
  }
  Result<Dit> model = load_dit(file, device);
  return model ? std::move(model) : Result<Dit>(with_context(model.error(), path));
}

}  // namespace

Result<Ensemble> Ensemble::open(const std::string& folder, bool allow_missing, const at::Device& device) {
  ATOLL_ASSIGN(const nlohmann::json document, read_document(folder));
  Ensemble ensemble;
  ensemble.run = document["run"].get<std::string>();
  for (const nlohmann::json& entry : document["experts"]) {
    ATOLL_ASSIGN(const std::string path, file_of(folder, entry));
    Result<Dit> expert = read_model(path, ensemble.run, device);
    if (!expert && expert.error().code == Code::not_found && allow_missing) {
      ensemble.experts.emplace_back();
      continue;
    }
    if (!expert) {
      return expert.error();
    }
    ensemble.experts.emplace_back(*std::move(expert));
  }
  if (std::ranges::none_of(ensemble.experts, [](const auto& expert) { return expert.has_value(); })) {
    return Error{Code::not_found, folder + ": not one expert of the ensemble is there"};
  }
  if (ensemble.experts.size() > 1) {
    if (!document.contains("router")) {
      return Error{Code::corrupt, folder + "/ensemble.json: an ensemble of several experts has a router, and this names none"};
    }
    ATOLL_ASSIGN(const std::string path, file_of(folder, document["router"]));
    ATOLL_ASSIGN(Dit router, read_model(path, ensemble.run, device));
    if (router.sizes().outputs != ensemble.experts.size() || router.sizes().image != ensemble.expert_sizes().image) {
      return Error{Code::conflict, path + ": the router does not belong to these experts"};
    }
    ensemble.router.emplace(std::move(router));
  }
  for (const auto& expert : ensemble.experts) {
    if (expert && expert->sizes() != ensemble.expert_sizes()) {
      return Error{Code::conflict, folder + ": its experts are of different sizes"};
    }
  }
  return ensemble;
}

Result<Ensemble> Ensemble::open_dense(const std::string& folder, const at::Device& device) {
  ATOLL_ASSIGN(const nlohmann::json document, read_document(folder));
  if (!document.contains("dense")) {
    return Error{Code::not_found, folder + ": no dense model was distilled from this ensemble"};
  }
  Ensemble ensemble;
  ensemble.run = document["run"].get<std::string>();
  ATOLL_ASSIGN(const std::string path, file_of(folder, document["dense"]));
  ATOLL_ASSIGN(Dit model, read_model(path, ensemble.run, device));
  ensemble.experts.emplace_back(std::move(model));
  return ensemble;
}

Result<Ensemble> Ensemble::open_model(const std::string& path, const at::Device& device) {
  ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
  Result<Dit> model = load_dit(file, device);
  if (!model) {
    return with_context(model.error(), path);
  }
  Ensemble ensemble;
  ensemble.experts.emplace_back(*std::move(model));
  return ensemble;
}

const DitSizes& Ensemble::expert_sizes() const {
  return std::ranges::find_if(experts, [](const auto& expert) { return expert.has_value(); })->value().sizes();
}

EnsembleFlow Ensemble::flow(const ExpertChoice& choice, std::optional<std::uint32_t> image_class, double guidance) const {
  EnsembleFlow flow;
  flow.choice = choice;
  for (const std::optional<Dit>& expert : experts) {
    if (!expert) {
      flow.experts.emplace_back();
      continue;
    }
    flow.experts.emplace_back([&model = *expert, image_class, guidance](const at::Tensor& x, const at::Tensor& t) {
      if (!image_class) {
        return model.forward(x, t, {});
      }
      const at::Tensor classes = at::full({x.size(0)}, static_cast<std::int64_t>(*image_class), x.options().dtype(at::kLong));
      const at::Tensor given = model.forward(x, t, classes);
      if (guidance == 1.0) {
        return given;
      }
      const at::Tensor none = model.forward(x, t, {});
      return none + (given - none) * guidance;
    });
  }
  if (router) {
    flow.router = [&model = *router](const at::Tensor& x, const at::Tensor& t) { return model.forward(x, t, {}); };
  }
  return flow;
}

}  // namespace atl
