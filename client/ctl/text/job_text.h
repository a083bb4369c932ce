// SPDX-License-Identifier: Apache-2.0
// Text about jobs for people: tables, one job in full, why a job failed and what to do about it. Pure: the time is an
// argument. Callers pass the text through Printable.
#ifndef HPVMD_CLIENT_CTL_TEXT_JOB_TEXT_H_
#define HPVMD_CLIENT_CTL_TEXT_JOB_TEXT_H_

#include <string>
#include <vector>

#include "client/ctl/text/exit_code.h"

#include "hpvm/v1/job.pb.h"

namespace hpvm::ctl {

bool HasEnded(const v1::Job& job);
// Returns "SUCCEEDED" for JOB_STATE_SUCCEEDED.
std::string StateText(v1::JobState state);
// Returns the age as "12s", "5m", "3h" or "4d".
std::string AgeText(int64_t unix_ns, int64_t now_ns);

// Returns rows for Table(). The narrow ones fit 100 columns: names are cut, ids are not. They have hosts when some job
// has one.
std::vector<std::vector<std::string>> JobRows(const std::vector<v1::Job>& jobs, int64_t now_ns, bool wide);
// Returns all facts about a job, one "name  value" per line.
std::string JobFacts(const v1::Job& job, int64_t now_ns);
// Like JobFacts, with the next step when the job did not succeed.
std::string JobDetails(const v1::Job& job, int64_t now_ns);
// Returns "3 SUCCEEDED, 1 FAILED", in the order of states.
std::string StateCounts(const std::vector<v1::Job>& jobs);

// Describes a job that ended without success: the error with its node, the lost attempts, and the next step, one per
// line.
std::string FailureText(const v1::Job& job);
// Returns one or two sentences; empty for a job that succeeded or has not ended.
std::string NextStep(const v1::Job& job);
// Returns the exit code of `wait` and `submit` for a job that has ended.
ExitCode ExitCodeOf(const v1::Job& job);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_JOB_TEXT_H_
