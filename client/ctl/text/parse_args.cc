// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/parse_args.h"

#include <charconv>
#include <chrono>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"

#include "base/number.h"

namespace hpvm::ctl {
namespace {

// Calls `take` with each comma-separated part until a call fails.
template <typename Take>
Status ForEachPart(std::string_view text, Take take) {
  for (;;) {
    const size_t comma = text.find(',');
    HPVMD_RETURN_IF_ERROR(take(text.substr(0, comma)));
    if (comma == std::string_view::npos) {
      return absl::OkStatus();
    }
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

StatusOr<Duration> ParseDuration(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const double scale = unit.empty() || unit == "s"    ? 1e9
                       : unit == "ms"                 ? 1e6
                       : unit == "us"                 ? 1e3
                       : unit == "m" || unit == "min" ? 60e9
                       : unit == "h"                  ? 3600e9
                       : unit == "d"                  ? 86400e9
                                                      : 0;
  if (error != std::errc() || scale == 0 || !(value > 0) || value * scale > 9e18 || value * scale < 1) {
    return InvalidArgument("The duration \"" + text +
                           "\" is not a positive number with a unit (us, ms, s, m, h, d), such as 500ms or 10m.");
  }
  return Duration(static_cast<int64_t>(value * scale));
}

StatusOr<uint32_t> ParseDay(const std::string& text) {
  const std::string_view word = text;
  const bool has_form = word.size() == 10 && word[4] == '-' && word[7] == '-';
  const auto year = ParseNumber<int>(word.substr(0, has_form ? 4 : 0));
  const auto month = ParseNumber<unsigned>(has_form ? word.substr(5, 2) : "");
  const auto day = ParseNumber<unsigned>(has_form ? word.substr(8, 2) : "");
  const std::chrono::year_month_day date(std::chrono::year(year.value_or(0)), std::chrono::month(month.value_or(0)),
                                         std::chrono::day(day.value_or(0)));
  if (!date.ok() || *year < 1970) {
    return InvalidArgument("The day \"" + text +
                           "\" is not a date from 1970 on in the form YYYY-MM-DD, such as 2026-11-30.");
  }
  return static_cast<uint32_t>(std::chrono::sys_days(date).time_since_epoch().count());
}

StatusOr<std::string> ParseMoment(const std::string& text, int64_t now_unix_s) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00";
  if (const StatusOr<Duration> before = ParseDuration(text); before.ok()) {
    const auto second = std::chrono::sys_seconds(std::chrono::seconds(now_unix_s - *before / std::chrono::seconds(1)));
    const auto day = std::chrono::floor<std::chrono::days>(second);
    const std::chrono::year_month_day date(day);
    const std::chrono::hh_mm_ss time(second - day);
    char moment[80];
    snprintf(moment, sizeof(moment), "%04d-%02u-%02uT%02d:%02d:%02d", static_cast<int>(date.year()),
             static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
             static_cast<int>(time.hours().count()), static_cast<int>(time.minutes().count()),
             static_cast<int>(time.seconds().count()));
    return moment;
  }
  const std::string moment = text.ends_with('Z') ? text.substr(0, text.size() - 1) : text;
  bool has_form = ParseDay(moment.substr(0, 10)).ok() && moment.size() <= kForm.size() &&
                  (moment.size() == 10 || moment.size() == 16 || moment.size() == kForm.size());
  for (size_t i = 10; has_form && i < moment.size(); ++i) {
    has_form = kForm[i] == '0' ? moment[i] >= '0' && moment[i] <= '9' : moment[i] == kForm[i];
  }
  if (!has_form) {
    return InvalidArgument("The moment \"" + text +
                           "\" is neither a time before now (30m, 2h, 1d) nor one in UTC in the form YYYY-MM-DD, "
                           "YYYY-MM-DDTHH:MM or YYYY-MM-DDTHH:MM:SS.");
  }
  return moment;
}

StatusOr<v1::JobArray> ParseArray(const std::string& text) {
  const auto wrong = [&](const std::string& why) {
    return InvalidArgument("The array \"" + text +
                           "\" is not FIRST-LAST[:STEP][%RUNNING], such as 0-99 or 0-99:10%4: " + why + ".");
  };
  v1::JobArray array;
  std::string_view rest = text;
  if (const size_t percent = rest.find('%'); percent != std::string_view::npos) {
    array.set_running_max(ParseNumber<uint32_t>(rest.substr(percent + 1)).value_or(0));
    if (array.running_max() == 0) {
      return wrong("after % the number of elements that may run at a time is expected, at least 1");
    }
    rest = rest.substr(0, percent);
  }
  if (const size_t colon = rest.find(':'); colon != std::string_view::npos) {
    array.set_step(ParseNumber<uint64_t>(rest.substr(colon + 1)).value_or(0));
    if (array.step() == 0) {
      return wrong("after : the step is expected, at least 1");
    }
    rest = rest.substr(0, colon);
  }
  const size_t dash = rest.find('-');
  const auto first = ParseNumber<uint64_t>(rest.substr(0, dash));
  const auto last = ParseNumber<uint64_t>(dash == std::string_view::npos ? rest : rest.substr(dash + 1));
  if (!first.has_value() || !last.has_value()) {
    return wrong("FIRST and LAST are whole numbers from 0 to 18446744073709551615");
  }
  if (*last < *first) {
    return wrong("LAST (" + std::to_string(*last) + ") is before FIRST (" + std::to_string(*first) + ")");
  }
  array.set_first(*first);
  array.set_last(*last);
  return array;
}

Status ParseAfter(const std::string& text, std::vector<v1::JobDependency>* after) {
  return ForEachPart(text, [&](std::string_view part) {
    const size_t colon = part.find(':');
    const std::string id(part.substr(0, colon));
    const std::string condition(colon == std::string_view::npos ? "succeeded" : part.substr(colon + 1));
    v1::JobDependency& dependency = after->emplace_back();
    dependency.set_job_id(id);
    dependency.set_condition(condition == "succeeded" ? v1::JobDependency::CONDITION_SUCCEEDED
                             : condition == "ended"   ? v1::JobDependency::CONDITION_ENDED
                             : condition == "failed"  ? v1::JobDependency::CONDITION_FAILED
                                                      : v1::JobDependency::CONDITION_UNSPECIFIED);
    if (id.empty() || dependency.condition() == v1::JobDependency::CONDITION_UNSPECIFIED) {
      return InvalidArgument("--after takes ID or ID:succeeded, ID:ended, ID:failed, not \"" + std::string(part) +
                             "\".");
    }
    return absl::OkStatus();
  });
}

StatusOr<std::vector<v1::JobState>> ParseStates(const std::string& text) {
  constexpr std::string_view kPrefix = "JOB_STATE_";
  std::vector<v1::JobState> states;
  HPVMD_RETURN_IF_ERROR(ForEachPart(text, [&](std::string_view part) {
    const std::string word = absl::AsciiStrToLower(absl::string_view(part.data(), part.size()));
    const size_t before = states.size();
    for (int i = v1::JOB_STATE_ACCEPTED; i <= v1::JOB_STATE_DEAD; ++i) {
      const v1::JobState state = static_cast<v1::JobState>(i);
      const bool is_live = state < v1::JOB_STATE_SUCCEEDED;
      if (word == absl::AsciiStrToLower(v1::JobState_Name(state).substr(kPrefix.size())) ||
          (word == "live" && is_live) || (word == "ended" && !is_live)) {
        states.push_back(state);
      }
    }
    return states.size() > before
               ? absl::OkStatus()
               : InvalidArgument(
                     "\"" + std::string(part) +
                     "\" is not a state; there are accepted, queued, running, succeeded, failed, "
                     "cancelled, expired, dead, and also live (not ended yet) and ended (in any final state).");
  }));
  return states;
}

StatusOr<std::pair<std::string, std::string>> ParsePair(const std::string& word, std::string_view option,
                                                        bool may_be_empty) {
  const size_t at = word.find('=');
  if (at == 0 || at == std::string::npos || (at + 1 == word.size() && !may_be_empty)) {
    return InvalidArgument(std::string(option) + " takes NAME=VALUE, not \"" + word + "\".");
  }
  return std::pair(word.substr(0, at), word.substr(at + 1));
}

std::string FileFor(const std::string& pattern, const v1::Job& job) {
  const std::string index = job.array_id().empty() ? "{index}" : std::to_string(job.array_index());
  return absl::StrReplaceAll(pattern, {{"{job}", job.id()}, {"{index}", index}});
}

bool DiffersByJob(const std::string& pattern) {
  return pattern.find("{index}") != std::string::npos || pattern.find("{job}") != std::string::npos;
}

StatusOr<std::map<std::string, std::string>> ParseOutputFiles(const std::vector<std::string>& words, bool is_many) {
  std::map<std::string, std::string> files;
  for (const std::string& word : words) {
    HPVMD_ASSIGN_OR_RETURN(auto pair, ParsePair(word, "--output"));
    if (is_many && !DiffersByJob(pair.second)) {
      return InvalidArgument("--output " + word +
                             " names one file for several jobs; put {index} or {job} into the name.");
    }
    if (!files.insert(pair).second) {
      return InvalidArgument("Output \"" + pair.first + "\" is given twice.");
    }
  }
  return files;
}

}  // namespace hpvm::ctl
