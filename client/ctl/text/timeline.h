// SPDX-License-Identifier: Apache-2.0
// The history of a job for people, from the events of WatchJob and the response of GetJob. Pure: the time is an
// argument.
#ifndef HPVMD_CLIENT_CTL_TEXT_TIMELINE_H_
#define HPVMD_CLIENT_CTL_TEXT_TIMELINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "hpvm/v1/job.pb.h"

namespace hpvm::ctl {

// Returns "RUNNING, attempt 2 of 3", "prepare took 30 ms", "blur on cpu:0, 1.2 ms" or "3 of 10 nodes". Callers pass
// it through Printable.
std::string EventText(const v1::JobEvent& event);

// Returns rows for Table(): when each step began, relative to the submission, its duration, and what it was. For a
// job that has ended, the phases of the last attempt come from the job itself, so they survive a restart of the
// server.
std::vector<std::vector<std::string>> TimelineRows(const v1::Job& job, const std::vector<v1::JobEvent>& events,
                                                   int64_t now_ns);

// Returns the placements of the last attempt.
std::vector<v1::NodePlacement> PlacementsOf(const std::vector<v1::JobEvent>& events);

// Returns a sentence about what an unfinished job waits for or does at the moment; empty for a finished job.
std::string NowText(const v1::Job& job, int64_t now_ns);
// Returns the next step for a job in any state, with its command; empty when there is nothing to do.
std::string NextStepNow(const v1::Job& job);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_TIMELINE_H_
