// SPDX-License-Identifier: Apache-2.0
// A job's story for people, out of what WatchJob told and GetJob answers. Pure: the time is an argument.
#ifndef HPVMD_CLIENT_CTL_TEXT_TIMELINE_H_
#define HPVMD_CLIENT_CTL_TEXT_TIMELINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "hpvm/v1/job.pb.h"

namespace hpvm::ctl {

// "RUNNING, attempt 2 of 3", "prepare took 30 ms", "blur on cpu:0, 1.2 ms", "3 of 10 nodes". Callers pass it through
// Printable.
std::string EventText(const v1::JobEvent& event);

// Rows for Table(): when each step began, after the submission, how long it took, what it was. Of the last attempt of a
// job that has ended the phases come from the job itself, so a server that was restarted since can tell them.
std::vector<std::vector<std::string>> TimelineRows(const v1::Job& job, const std::vector<v1::JobEvent>& events,
                                                   int64_t now_ns);

// The placements of the last attempt.
std::vector<v1::NodePlacement> PlacementsOf(const std::vector<v1::JobEvent>& events);

// A sentence: what a job that has not ended waits for or does just now; empty for one that has.
std::string NowText(const v1::Job& job, int64_t now_ns);
// The next step with a job in any state, with its command; empty: there is nothing to do.
std::string NextStepNow(const v1::Job& job);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_TIMELINE_H_
