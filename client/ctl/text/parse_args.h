// SPDX-License-Identifier: Apache-2.0
// Parsers for single words of a command line. Every failure is kInvalidArgument and quotes the word and the expected
// form.
#ifndef HPVMD_CLIENT_CTL_TEXT_PARSE_ARGS_H_
#define HPVMD_CLIENT_CTL_TEXT_PARSE_ARGS_H_

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "hpvm/v1/job.pb.h"

namespace hpvm::ctl {

// Parses "1.5s", "250ms", "2m", "1h" or "1d"; a plain number is in seconds. The result is positive.
StatusOr<Duration> ParseDuration(const std::string& text);

// Parses "2026-11-30" as days since 1970, in UTC. Accepts 1970 to 9999.
StatusOr<uint32_t> ParseDay(const std::string& text);

// Returns the beginning of a UTC time as the audit writes it, "2026-11-30T08:00:00": `now_unix_s` minus a duration
// ("2h"), or a date ("2026-11-30"), optionally with a time.
StatusOr<std::string> ParseMoment(const std::string& text, int64_t now_unix_s);

// Parses "0-99" (100 jobs), "0-99:10" (0, 10, ... 90), "0-99%8" (at most 8 at a time) or "7" (one job).
StatusOr<v1::JobArray> ParseArray(const std::string& text);

// Parses "job-…" or "job-…:succeeded|ended|failed", or several of them separated by commas.
Status ParseAfter(const std::string& text, std::vector<v1::JobDependency>* after);

// Parses "running,failed"; also "live" and "ended" for all states before and after the end. Ignores case.
StatusOr<std::vector<v1::JobState>> ParseStates(const std::string& text);

// Parses "KEY=VALUE" for `option`; the value may be empty when `may_be_empty`.
StatusOr<std::pair<std::string, std::string>> ParsePair(const std::string& word, std::string_view option,
                                                        bool may_be_empty = false);

// Returns the file for one job of several: "{index}" becomes its index and "{job}" its id.
std::string FileFor(const std::string& pattern, const v1::Job& job);
// Returns true when the pattern gives each element a different file.
bool DiffersByJob(const std::string& pattern);
// Parses the words of --output, by name. With several jobs each must get a file of its own.
StatusOr<std::map<std::string, std::string>> ParseOutputFiles(const std::vector<std::string>& words, bool is_many);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_PARSE_ARGS_H_
