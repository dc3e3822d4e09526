// The tasks of a decentralized-diffusion run (Decentralized Diffusion Models, arXiv:2501.05450), each from files to one file:
//
//   images/P     where the data set is spread: the images of one island → a file of them (packed_images.hpp), which other islands' tasks
//   are given features     the data set → `features` [N, D]: principal components of the pixels, or as [diffusion].features says;
//   features/P: of one part, with
//                its fine clusters
//   clustering   features → `assignment` [N] (cluster of every image) and `centroids`; two stages of k-means, or by label, or at random
//   experts/K    clustering → an expert: a flow trained on the images of cluster K alone
//   router       clustering → a router: which cluster does a noised image come from?
//   distill      clustering, experts → one dense model of an expert's size that gives, for an image of cluster K, the flow of expert K
//   ("Distillation") assemble     all of them → ensemble.json: what the files are, and the validation losses of experts, ensemble, router
//   and dense model
// Everything but the arithmetic of LibTorch is a function of the run's settings and the seed, so a task may be done again anywhere. A task
// of training saves what it can be continued from every [diffusion].save_every steps, and one that trains a flow draws images then and at
// its end. Threads: one.
#pragma once

#include <functional>
#include <string>

#include "agent/island_link/messages.hpp"
#include "transport/base/result.hpp"

namespace atl {

// What a task tells while it works. An error (the agent is gone, or says stop) ends the task with that error.
struct TaskListener {
  std::function<Status(const island_link::TaskProgress&)> progress;
  std::function<Status(const island_link::TaskSaved&)> saved;
  std::function<Status(const island_link::TaskDrew&)> drew = {};  // empty: nothing is drawn
};

// Does it; the value is the facts for people, a JSON object. The result lies at task.output.
// Errors: invalid_argument for settings and data that do not fit (a cluster that is smaller than a batch, more experts than images);
// corrupt, io.
Result<std::string> perform(const island_link::Task& task, const TaskListener& listener);

}  // namespace atl
