// A history of what clients asked a coordinator and what they got, and whether all of it fits one order of events (after Jepsen).
//
// Each answer is an interval of real time: what it says was so at some instant between `begin` and `end`. Two answers are in order where
// the first one ended before the second one began; about others nothing is known. An answer that did not come says nothing, and what it
// asked for may or may not have happened. Threads: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace atl_test {

struct Answer {
  double begin = 0;  // seconds
  double end = 0;
  std::string verb;  // submit, status, cancel, pause, resume, export; end: of the last status, once all is mended
  std::string name;  // of the run
  bool done = false;
  std::string run;          // id
  std::string state;        // of status
  bool pausing = false;     // of status: it stands after a round that is not done yet
  std::uint64_t round = 0;  // of status and end: the newest that is committed; of an export: of the model
  std::string bytes = {};   // of an export: what stands for the file's content
};

// The coordinator's store was put back to what it was at `copied`. What was granted since is void, and rounds are seen again once the
// islands that have them are back.
struct Restore {
  double copied = 0;
  double begin = 0;  // the coordinator is no more, and
  double end = 0;    // is there again
};

// What a coordinator's events say of a run in the end.
struct CommittedRound {
  std::string run;
  std::uint64_t round = 0;
  std::string digest;
  std::string coordinator;  // in whose events it stands
};

// The first thing that fits no order; empty: all fits one.
std::string find_violation(const std::vector<Answer>& answers, const std::vector<CommittedRound>& committed,
                           const std::vector<Restore>& restores = {});

}  // namespace atl_test
