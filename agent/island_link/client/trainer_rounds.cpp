// What a round asks of a trainer: its publish, its merge, and the state that is saved with it.
#include <iterator>
#include <memory>

#include "agent/island_link/client/finite.hpp"
#include "agent/island_link/client/saved_folder.hpp"
#include "agent/island_link/client/trainer_client.hpp"

namespace atl::island_link {

// The state in `directory`, with the counters of this moment. What went wrong is in answer_.error.
std::vector<TrainerClient::Todo> TrainerClient::saving(const std::string& directory) {
  return {report(false), Deed([this, directory] {
            if (counts_.nonfinite()) {  // whoever goes back to it later would meet the same again
              answer_ = std::make_shared<Answer>();
              answer_->error = "the loss of a step was not finite, so this state is not kept";
              return Status();
            }
            Result<std::string> folder = begin_saving(directory);
            if (!folder) {
              answer_ = std::make_shared<Answer>();
              answer_->error = folder.error().why;
              return Status();
            }
            Order save = order(OrderKind::save);
            save.directory = *std::move(folder);
            saving_to_ = directory;
            do_next({save, Deed([this, directory] {
                       if (answer_->answered == Answered::begun) {
                         return Status();  // tell_saved() says how it ended
                       }
                       if (!answer_->error.empty()) {
                         abandon_saving(directory);
                       } else if (const Status kept = finish_saving(directory, counts_.text()); !kept) {
                         answer_->error = kept.error().why;
                       }
                       return Status();
                     })});
            return Status();
          })};
}

void TrainerClient::publish(const PublishOrder& due) {
  times_.progress.publish(now());
  std::vector<Todo> todos = {order(gradients() ? OrderKind::write_gradient : OrderKind::write_parameters, due.fragment), report(true)};
  todos.emplace_back(Deed([this, due] {
    Published said;
    said.round = due.round;
    said.fragment = due.fragment;
    // A gradient belongs to the step that it is about to make.
    said.step = step_ + (gradients() ? 1 : 0);
    said.position = position_ + (gradients() ? pending_samples_ : 0);
    const auto publish = [this, numbers = answer_, tally = counts_.close(due.fragment)](Published report) {
      report.compute_seconds = times_.compute_seconds;
      return say([this, numbers, tally, report]() mutable {
        report.norm = finite(numbers->norm);  // a gradient that no step has used (a scaler leaves it out) says nothing of the contribution
        tally->fill(report);
        return link_.send(report);
      });
    };
    if (!due.evaluate_local) {
      return publish(said);
    }
    do_next({order(OrderKind::evaluate), Deed([this, publish, said]() mutable {
               said.local_validation_loss = finite(answer_->loss);
               return publish(said);
             })});
    return Status();
  }));
  todos_.insert(todos_.end(), std::make_move_iterator(todos.begin()), std::make_move_iterator(todos.end()));
}

void TrainerClient::merge(const MergeOrder& due, bool applied) {
  const double waited = pending_.awaited_seconds;
  std::vector<Todo> todos;
  if (applied) {
    Order take = order(gradients() ? OrderKind::read_gradient : OrderKind::merge, due.fragment);
    take.alpha = due.alpha;
    take.fetched = pending_.fetched.erase({due.round, due.fragment}) > 0;
    todos.emplace_back(take);
  }
  todos.emplace_back(Deed([this, due, waited] {
    if (gradients()) {
      pending_.parked.emplace_back(due, waited);
    } else {
      finish_merge(due, waited);
    }
    return Status();
  }));
  do_next(std::move(todos));
}

void TrainerClient::finish_merge(const MergeOrder& due, double waited) {
  Merged said;
  said.round = due.round;
  said.fragment = due.fragment;
  said.step = step_;
  said.position = position_;
  said.wait_seconds = waited;
  const auto report = std::make_shared<Merged>(said);
  std::vector<Todo> todos;
  if (due.evaluate) {
    todos.emplace_back(order(OrderKind::evaluate));
    todos.emplace_back(Deed([this, report] {
      report->validation_loss = finite(answer_->loss);
      return Status();
    }));
  }
  const std::optional<std::string>& folder =
      pending_.finish && pending_.finish->round == due.round && pending_.finish->save ? pending_.finish->save : due.save;
  if (folder) {
    std::vector<Todo> saves = saving(*folder);
    todos.insert(todos.end(), std::make_move_iterator(saves.begin()), std::make_move_iterator(saves.end()));
    todos.emplace_back(Deed([this, report] {
      const bool begun = answer_->answered == Answered::begun;
      report->saving = begun ? std::optional(true) : std::nullopt;
      report->saved = !begun && answer_->error.empty();
      if (!begun && !report->saved) {
        report->save_error = answer_->error;
      }
      return Status();
    }));
  }
  if (gradients() && (due.parameters || folder)) {
    todos.emplace_back(order(OrderKind::write_parameters, due.fragment));
  }
  todos.emplace_back(Deed([this, report]() -> Status {
    ATOLL_TRY(say([this, report] { return link_.send(*report); }));
    if (report->saving) {
      folder_beside_.announce();
    }
    return Status();
  }));
  do_next(std::move(todos));
}

}  // namespace atl::island_link
