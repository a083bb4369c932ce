// SPDX-License-Identifier: Apache-2.0
// What single words of a command line mean. Every failure is kInvalidArgument and gives the word and what is wanted.
#ifndef HPVMD_CLIENT_CTL_TEXT_WORDS_H_
#define HPVMD_CLIENT_CTL_TEXT_WORDS_H_

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "hpvm/v1/job.pb.h"

namespace hpvm::ctl {

// "1.5s", "250ms", "2m", "1h", "1d"; a plain number is seconds. Above 0.
StatusOr<Duration> ParseDuration(const std::string& text);

// "2026-11-30": days since 1970, in UTC. From 1970 to 9999.
StatusOr<uint32_t> ParseDay(const std::string& text);

// The beginning of a time in UTC as the audit writes it, "2026-11-30T08:00:00": so long before `now_unix_s` ("2h"), or
// what stands there already, "2026-11-30" or with a time behind it.
StatusOr<std::string> ParseMoment(const std::string& text, int64_t now_unix_s);

// "0-99": 100 jobs; "0-99:10": 0, 10, ... 90; "0-99%8": at most 8 at a time; "7": one.
StatusOr<v1::JobArray> ParseArray(const std::string& text);

// "job-…" or "job-…:succeeded|ended|failed"; several of them with commas.
Status ParseAfter(const std::string& text, std::vector<v1::JobDependency>* after);

// "running,failed"; also "live" and "ended" for all states before and after the end. In any case of letters.
StatusOr<std::vector<v1::JobState>> ParseStates(const std::string& text);

// "KEY=VALUE" for `option`; the value may be empty when `may_be_empty`.
StatusOr<std::pair<std::string, std::string>> ParsePair(const std::string& word, std::string_view option,
                                                        bool may_be_empty = false);

// The file for one job of several: "{index}" becomes its index and "{job}" its id.
std::string FileFor(const std::string& pattern, const v1::Job& job);
// Whether it would be another file for each element.
bool DiffersByJob(const std::string& pattern);
// The words of --output, by name. Of several jobs each must get a file of its own.
StatusOr<std::map<std::string, std::string>> ParseOutputFiles(const std::vector<std::string>& words, bool is_many);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_WORDS_H_
