// How a run begins, is paused and ends: pure functions that say what comes next, and for what or whom it waits.
// Threads: pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/decide.hpp"

namespace atl::coordinator {

// ---- round 0: the agreement on the initial state --------------------------------------------------------------------------------------

struct InitialInput {
  TimePoint now;
  TimePoint deadline;
  std::size_t min = 1;
  std::size_t ready = 0;              // members that have said their digest
  std::vector<std::string> starting;  // names of those that have not
  bool known = true;                  // false: all that are ready lack the parameters that the run begins with
};
struct InitialDecision {
  bool commit = false;
  Wait wait;
};
// Once everybody is ready, or at the deadline; never with fewer than min, nor before one of them has a state.
InitialDecision decide_initial(const InitialInput& input);

// ---- the last round before a pause ----------------------------------------------------------------------------------------------------

struct PauseInput {
  Round after;
  std::vector<std::string> writing;  // names of those whose checkpoint is not told of yet
  bool completes = false;            // the run is not paused there, but complete
};
// Nothing: nobody is waited for, and the run is paused, or complete, now.
std::optional<Wait> decide_pause(const PauseInput& input);

// ---- the end of a run of rounds -------------------------------------------------------------------------------------------------------

struct EndInput {
  std::size_t ended = 0;
  std::vector<std::string> pending;  // names of those that have not told of their end
};
// Nothing: the run is complete.
std::optional<Wait> decide_end(const EndInput& input);

// ---- islands on their own ------------------------------------------------------------------------------------------------------------

struct AloneInput {
  TimePoint now;
  TimePoint until;                    // since nobody trains: for so long those that are away are waited for, once anybody is done
  std::vector<std::string> training;  // names
  std::vector<std::string> away;      // names, with what they do or why
  bool anybody_ended = false;
};
struct AloneDecision {
  enum class Kind : std::uint8_t {
    train,
    wait,
    end,       // all are done, or those that are not had their time
    hopeless,  // there is nobody left
  };
  Kind kind = Kind::train;
  Wait wait;
};
AloneDecision decide_alone(const AloneInput& input);

// ---- islands that meet in pairs ------------------------------------------------------------------------------------------------------

struct MergeInput {
  TimePoint now;
  TimePoint until;
  std::vector<std::string> pending;  // names of those that still have rounds to do
  bool exchanging = false;
};
// For whom the merge of all islands waits; nothing: it begins.
std::optional<Wait> decide_merge(const MergeInput& input);

struct OwnRestoreInput {
  TimePoint now;
  TimePoint until;                   // for so long those that left last are waited for
  std::vector<std::string> missing;  // names of those that left last and are away
  bool anybody_has_state = false;    // connected, in memory or on its disk
  bool begun = false;                // somebody has trained
};
// For whom a run waits in which nobody takes part any more; nothing: those that left last of the connected ones go on.
std::optional<Wait> decide_own_restore(const OwnRestoreInput& input);

// ---- what `status` says ---------------------------------------------------------------------------------------------------------------

struct StandingInput {
  Wait wait;  // of the run's machines
  bool enough = true;
  std::vector<std::string> away;  // names of those that are missed, with what they do or why
  std::string stops = {};         // stops_after(), of a run that is being paused, or is good enough
  std::string stands = {};        // why its islands cannot exchange a round, and have tried for long
};
// "is being paused after round 7", or that the run ends there.
std::string stops_after(Round round, bool completes);
// The wait with whom it is for, where there are too few islands, after what becomes of the run.
Wait decide_standing(const StandingInput& input);

}  // namespace atl::coordinator
