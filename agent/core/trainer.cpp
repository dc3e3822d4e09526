#include "agent/core/trainer.hpp"

#include <algorithm>

#include "strategies/specification/run_rules.hpp"
#include "transport/base/planted.hpp"

namespace atl::agent {

Trainer::Trainer(const RunTerms& terms, const OrderSettings& orders, const Settings& settings, Starts& starts, Outbox& out)
    : terms_(&terms), orders_(orders), settings_(&settings), starts_(&starts), out_(&out) {}

Step Trainer::step_of(Round round) const {
  if (round == Round(0) || !schedule_) {
    return Step(0);
  }
  const Result<RoundPlan> plan = schedule_->round_at(round);
  return plan ? plan->apply : Step(terms_->spec.training.steps);
}

void Trainer::start(std::uint32_t part, const DataShare& share, const StoredCheckpoint* saved, bool current) {
  StartTrainer order;
  order.run = terms_->id;
  order.incarnation = starts_->next();
  order.spec = terms_->spec;
  order.part = part;
  order.share = share;
  share_ = share;
  told_share_ = share;
  holds_.reset();
  if (saved != nullptr) {
    order.checkpoint = saved->round;
    order.step = saved->step;
    order.position = saved->position;
    if (current && orders_.by_schedule) {  // else each fragment is of another round: it is loaded
      holds_ = saved->round;
      position_ = saved->position;
    }
  }
  incarnation_ = order.incarnation;
  phase_ = Phase::starting;
  restart_at_.reset();
  out_->effect(std::move(order));
}

void Trainer::stop(const std::string& why) {
  restart_at_.reset();
  if (runs()) {
    out_->effect(StopTrainer{terms_->id, why});
    phase_ = Phase::none;
  }
}

bool Trainer::note_formed(std::uint64_t tokens, double norm) {
  if (tokens > 0) {
    unchanged_ = norm == 0 ? unchanged_ + 1 : 0;
  }
  return tokens > 0 && unchanged_ == kUnchanged;
}

void Trainer::deal(const DataShare& share) {
  share_ = share;
  if (told_share_ != share_ && (phase_ == Phase::ready || phase_ == Phase::loading || phase_ == Phase::training)) {
    told_share_ = share_;
    out_->effect(DealData{terms_->id, incarnation_, share_});
  }
}

void Trainer::load(Round committed, Step step, std::uint64_t position) {
  begun_with_ = committed;
  step_ = step;
  position_ = position;
  phase_ = Phase::loading;
  out_->effect(LoadTrainer{terms_->id, incarnation_, step_, position_});
}

void Trainer::go_on(Round committed) {
  step_ = step_of(committed);
  phase_ = Phase::training;
  planned_ = orders_.by_schedule ? committed : terms_->last_trained();
  merges_.clear();
  horizon_of_.reset();
  ++beginnings_;
  begun_with_ = committed;
  tell_tokens();  // before its first order: its learning rate begins there
}

void Trainer::run_to_the_end() { out_->effect(PlanTrainer{terms_->id, incarnation_, Step(terms_->spec.training.steps), {}, {}}); }

void Trainer::order_publish(const RoundPlan& round, Step step) {
  const Step last(terms_->spec.training.steps);
  const PublishOrder order{round.round, round.fragment, std::min(step, last), evaluates(round.round)};
  out_->effect(PlanTrainer{terms_->id, incarnation_, last, {order}, {}});
}

void Trainer::skip_to(Step step) {
  if (can_finish() && step > step_) {
    out_->effect(SkipTrainer{terms_->id, incarnation_, step});
  }
}

void Trainer::tell_tokens() {
  const std::uint64_t of = terms_->spec.training.tokens;
  if (of > 0 && can_finish() && told_tokens_ != std::pair(incarnation_, run_tokens_)) {
    told_tokens_ = {incarnation_, run_tokens_};
    out_->effect(TellTokens{terms_->id, incarnation_, run_tokens_, of});
  }
}

void Trainer::adopt(Round round, std::uint32_t fragment, Step not_before, bool save) {
  out_->effect(GiveResult{terms_->id, incarnation_, round, fragment});  // first, so that the merge does not wait for it
  const MergeOrder order{round, fragment, not_before, terms_->composition.merge_alpha, evaluates(round), false, save};
  out_->effect(PlanTrainer{terms_->id, incarnation_, Step(terms_->spec.training.steps), {}, {order}});
}

bool Trainer::evaluates(Round round) const { return evaluation_due(round, terms_->last_trained(), terms_->spec.training.evaluate_every); }

void Trainer::drop_orders() {
  if (phase_ == Phase::training || phase_ == Phase::loading) {
    phase_ = Phase::ready;
    holds_.reset();
  }
}

void Trainer::outdate(Round committed) {
  drop_orders();
  holds_.reset();
  planned_ = committed;
}

void Trainer::extend_plan(Round committed, const std::set<Round>& in_hand, const std::set<Round>& formed) {
  if (!wants_plan(committed)) {
    return;
  }
  horizon_of_ = committed;
  const bool one_by_one = orders_.one_by_one && !ATOLL_PLANTED(arena_in_use);
  Round until = decide_horizon(*schedule_, committed, one_by_one ? 0 : settings_->rounds_ahead);
  if (until == terms_->last_trained()) {
    until = terms_->last();  // those that merge all islands' outer parameters need nothing of the trainer before
  }
  if (planned_ >= until) {
    return;
  }
  const RunSpec& spec = terms_->spec;
  const PlanSettings plan{spec.training.evaluate_every, rounds_between_checkpoints(spec), terms_->composition.merge_alpha,
                          orders_.returns_parameters};
  if (terms_->composition.whole_period()) {
    WholePlan whole = decide_whole_plan(*schedule_, {begun_with_, committed, planned_, until, in_hand, formed}, plan);
    if (whole.newest > planned_) {
      planned_ = whole.newest;
      order(std::move(whole.orders));
    }
    return;
  }
  PlanDecision decision = decide_plan(*schedule_, planned_, until, plan, in_hand);
  for (Round round(std::max(planned_.value, schedule_->rounds()) + 1); round <= until; round = round.next()) {
    const bool last = round == terms_->last();
    const Step end(spec.training.steps);
    decision.merge.push_back(MergeOrder{round, terms_->rounds.terms(round).fragment, end, 0, last, false, last});
    decision.until = end;
  }
  planned_ = until;
  order(std::move(decision));
}

void Trainer::order(PlanDecision decision) {
  for (const MergeOrder& merge : decision.merge) {
    merges_.insert(merge.round);
  }
  out_->effect(PlanTrainer{terms_->id, incarnation_, decision.until, std::move(decision.publish), std::move(decision.merge)});
}

bool Trainer::give(Round round, std::uint32_t fragment) {
  const bool merges = training() && merges_.contains(round);
  if (merges) {
    out_->effect(GiveResult{terms_->id, incarnation_, round, fragment});
  }
  return merges;
}

void Trainer::finish(Round round, bool now) {
  if (can_finish()) {
    out_->effect(FinishTrainer{terms_->id, incarnation_, round, now});
    // Its orders are void to publish later than that round is merged, with `now` for a later round, and to merge a later round.
    const Step last = step_of(round);
    while (planned_ > round && schedule_ && (now || schedule_->round_at(planned_).value_or(RoundPlan{}).start > last)) {
      planned_ = Round(planned_.value - 1);
    }
    merges_.erase(merges_.upper_bound(round), merges_.end());
  }
}

void Trainer::hurry(Round round, Round committed) {
  cut_ = round;
  keep_pace(committed);
}

void Trainer::keep_pace(Round committed) {
  if (!cut_ || !can_finish() || !schedule_ || *cut_ > planned_) {
    return;
  }
  const Result<RoundPlan> round = schedule_->round_at(*cut_);
  const Step since = step_of(committed);
  if (!round || *cut_ != committed.next() || step_.value < since.value + terms_->spec.strategy.min_inner_steps) {
    return;  // looked at again with the trainer's next progress
  }
  cut_.reset();
  if (round->start > step_) {
    out_->effect(SkipTrainer{terms_->id, incarnation_, round->start});
  }
}

Status Trainer::on(const TrainerReady& event, const std::string& island) {
  Result<Schedule> schedule = schedule_of(terms_->composition, terms_->spec.training.steps, event.fragments);
  const std::uint64_t merges = schedule ? terms_->composition.merge_rounds(schedule->fragments()) : 0;
  if (!schedule || schedule->rounds() + merges != terms_->spec.rounds || merges != terms_->spec.merge_rounds) {
    const std::string why = schedule ? "its schedule has " + std::to_string(schedule->rounds() + merges) + " rounds, the run has " +
                                           std::to_string(terms_->spec.rounds)
                                     : schedule.error().why;
    return Error{Code::invalid_argument, "the run's schedule is impossible with this trainer: " + why};
  }
  const Result<Schedule> own = schedule->merged_after(own_overlap(terms_->spec, island));
  if (!own) {
    return with_context(own.error(), "[islands].overlap_steps of this island");
  }
  schedule_ = *own;
  finishes_ = event.finishes;
  sequences_ = event.sequences;
  told_.parameters = event.parameters;
  phase_ = Phase::ready;
  step_ = event.step;
  deal(share_);  // if they were dealt anew while it started
  return {};
}

void Trainer::on(const TrainerLoaded& event, Round committed) {
  if (phase_ != Phase::loading) {
    return;
  }
  if (!orders_.by_schedule) {  // newer results are adopted on the way
    go_on(begun_with_);
    position_ = event.position;
    return;
  }
  if (event.step != step_of(committed)) {
    phase_ = Phase::ready;  // the state moved on meanwhile: once more
    return;
  }
  go_on(committed);
  position_ = event.position;
  holds_ = committed;
}

void Trainer::on(const TrainerPublished& event) {
  step_ = event.step;
  position_ = event.position;
  if (cut_ && event.round >= *cut_) {
    cut_.reset();
  }
}

void Trainer::on(const TrainerMerged& event) {
  step_ = std::max(step_, event.step);
  position_ = std::max(position_, event.position);
  holds_ = event.round;
  merges_.erase(event.round);
}

void Trainer::on(const TrainerProgress& event, Round committed) {
  told_.progress = event;
  step_ = std::max(step_, event.step);
  keep_pace(committed);
}

void Trainer::on(const TrainerSaid& event) {
  for (const OwnMetric& metric : event.metrics) {
    for (std::vector<OwnMetric>* list : {&told_.metrics, &told_.fresh_metrics}) {
      const auto known = std::ranges::find(*list, metric.name, &OwnMetric::name);
      if (known != list->end()) {
        known->value = metric.value;
      } else if (list->size() < kMaxOwnMetrics) {
        list->push_back(metric);
      }
    }
  }
  told_.enough = event.enough.empty() ? told_.enough : event.enough;
}

void Trainer::on(const TrainerExited& event) {
  told_.before.tokens += told_.progress.tokens;
  told_.before.compute_seconds += told_.progress.compute_seconds;
  told_.before.wait_seconds += told_.progress.wait_seconds;
  told_.progress = TrainerProgress{};
  phase_ = Phase::none;
  holds_.reset();
  crashes_ += 1;
  alike_ = ends_alike(event.words, words_) ? alike_ + 1 : 1;
  words_ = event.words;
}

RestartDecision Trainer::restart(bool permanent, TimePoint now) {
  const RestartDecision decision = decide_restart(crashes_, alike_, settings_->crashes, permanent, settings_->restart_delay,
                                                  "a committed round", ran_out_of_memory(words_));
  if (decision.restart) {
    restart_at_ = now + decision.delay;
  }
  return decision;
}

void Trainer::describe(IslandReport& report) const {
  report.step = step_;
  report.tokens = told_.before.tokens + told_.progress.tokens;
  report.tokens_per_second = told_.progress.tokens_per_second;
  report.compute_seconds = told_.before.compute_seconds + told_.progress.compute_seconds;
  report.wait_seconds = told_.before.wait_seconds + told_.progress.wait_seconds;
  report.training_loss = told_.progress.training_loss;
  report.parameters = told_.parameters;
  report.metrics = told_.metrics;
  report.enough = told_.enough;
}

}  // namespace atl::agent
