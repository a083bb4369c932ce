// SPDX-License-Identifier: Apache-2.0
// Jobs as text for people: tables, one job in full, why one failed and what to do about it. Pure: the time is an
// argument. Callers pass the text through Printable.
#ifndef HPVMD_CLIENT_CTL_TEXT_JOB_TEXT_H_
#define HPVMD_CLIENT_CTL_TEXT_JOB_TEXT_H_

#include <string>
#include <vector>

#include "client/ctl/text/exit_code.h"

#include "hpvm/v1/job.pb.h"

namespace hpvm::ctl {

bool HasEnded(const v1::Job& job);
// "SUCCEEDED" for JOB_STATE_SUCCEEDED.
std::string StateText(v1::JobState state);
// "12s", "5m", "3h", "4d": how long ago.
std::string AgeText(int64_t unix_ns, int64_t now_ns);

// Rows for Table(). The narrow ones fit 100 columns: names are cut, ids are not.
std::vector<std::vector<std::string>> JobRows(const std::vector<v1::Job>& jobs, int64_t now_ns, bool wide);
// Everything that is known of a job, "name  value" a line.
std::string JobFacts(const v1::Job& job, int64_t now_ns);
// The same with what to do next when it did not succeed.
std::string JobDetails(const v1::Job& job, int64_t now_ns);
// "3 SUCCEEDED, 1 FAILED", in the order of states.
std::string StateCounts(const std::vector<v1::Job>& jobs);

// How a job that has ended without success ended: the error with its node, the attempts that were lost, and the next
// step, one a line.
std::string FailureText(const v1::Job& job);
// One sentence or two; empty for a job that succeeded or has not ended.
std::string NextStep(const v1::Job& job);
// What `wait` and `submit` exit with once the job has ended.
ExitCode ExitCodeOf(const v1::Job& job);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_JOB_TEXT_H_
