#include "agent/core/rules/arena_turns.hpp"

#include <algorithm>

namespace atl::agent {

void ArenaTurns::begin(std::uint64_t start, std::uint32_t fragments, Round begun_with, Round committed, Step step, std::uint64_t position,
                       std::uint64_t trained) {
  start_ = start;
  fragments_.assign(fragments, Fragment{Turn::ours, false, false, begun_with, Round(), Round(), step, position, step, position, trained,
                                        Step(0), std::nullopt});
  for (std::uint32_t i = 0; i < fragments; ++i) {
    newest_[i] = std::max(std::min(newest_[i], committed), begun_with);
  }
}

bool ArenaTurns::is(std::uint32_t fragment, Turn turn) const { return fragment < fragments_.size() && fragments_[fragment].turn == turn; }

Round ArenaTurns::newest(std::uint32_t fragment) const {
  const auto found = newest_.find(fragment);
  return found == newest_.end() ? Round() : found->second;
}

bool ArenaTurns::outdated(std::uint32_t fragment) const { return newest(fragment) > base(fragment) || fragments_.at(fragment).distrusted; }

void ArenaTurns::distrust(std::uint32_t fragment) {
  if (fragment < fragments_.size()) {
    fragments_[fragment].distrusted = true;
  }
}

bool ArenaTurns::publishing() const {
  return std::ranges::any_of(fragments_, [](const Fragment& f) { return f.turn == Turn::publishing; });
}

ContributionFacts ArenaTurns::published(Step step, std::uint64_t position, const ContributionFacts& facts) {
  Fragment& f = fragments_.at(facts.fragment);
  f.turn = Turn::ours;
  f.owes = false;
  const std::uint64_t all = position - std::min(position, f.published_at);
  const std::uint64_t since = position - std::min(position, f.position);
  ContributionFacts own = facts;
  own.data.held_from = position - std::min(since, all);
  f.published_at = position;
  f.published_step = step;
  if (since >= all) {
    return own;
  }
  const auto part = [&](std::uint64_t count) { return count / all * since + count % all * since / all; };  // no product overflows
  own.tokens = std::max<std::uint64_t>(1, part(facts.tokens));
  own.steps = part(facts.steps);
  own.overwritten = facts.tokens - std::min(facts.tokens, own.tokens);
  return own;
}

void ArenaTurns::counted(std::uint32_t fragment, Round round) {
  if (fragment < fragments_.size()) {
    fragments_[fragment].counted = round;
  }
}

void ArenaTurns::adopt(std::uint32_t fragment, Round round) {
  Fragment& f = fragments_.at(fragment);
  f.turn = Turn::adopting;
  f.adopting = round;
}

bool ArenaTurns::adopts(std::uint32_t fragment, Round round) const {
  return is(fragment, Turn::adopting) && fragments_[fragment].adopting == round;
}

void ArenaTurns::order_publish(std::uint32_t fragment, Step due) {
  fragments_.at(fragment).turn = Turn::publishing;
  fragments_.at(fragment).due = due;
  fragments_.at(fragment).hurry.reset();
}

void ArenaTurns::hurry(std::uint32_t fragment, std::uint64_t tokens) {
  if (is(fragment, Turn::publishing)) {
    fragments_[fragment].hurry = tokens;
  }
}

std::optional<Step> ArenaTurns::hurried(std::uint64_t trained) {
  std::optional<Step> furthest;
  for (Fragment& f : fragments_) {
    if (f.hurry && f.turn == Turn::publishing && trained >= f.trained + *f.hurry) {
      f.hurry.reset();
      furthest = std::max(furthest.value_or(f.due), f.due);
    }
  }
  return furthest;
}

bool ArenaTurns::merged(std::uint32_t fragment, Round round, Step step, std::uint64_t position, std::uint64_t trained) {
  if (!adopts(fragment, round)) {
    return false;
  }
  Fragment& f = fragments_[fragment];
  f.turn = Turn::ours;
  f.distrusted = false;
  f.owes = true;
  f.base = round;
  f.step = step;
  f.position = position;
  f.trained = trained;
  return true;
}

}  // namespace atl::agent
