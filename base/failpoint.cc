// SPDX-License-Identifier: Apache-2.0
#include "base/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"

#include "base/clock.h"
#include "base/number.h"

namespace hpvm {
namespace {

constexpr const char* kVariable = "HPVMD_FAILPOINTS";
constexpr const char* kSeedVariable = "HPVMD_FAILPOINT_SEED";
constexpr uint64_t kSleepMsMax = 3'600'000;

enum class Action : uint8_t { kError, kSleep, kKill, kAbort };

struct Setting {
  Action action = Action::kError;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  uint64_t sleep_ms = 0;
  uint64_t nth = 0;        // 0 means every time.
  bool and_later = false;  // Strikes from the nth time on.
  uint64_t one_in = 0;     // 0 means not at random.
  uint64_t hits = 0;
};

using Settings = std::map<std::string, Setting, std::less<>>;

struct State {
  std::mutex mutex;
  bool is_read = false;  // True once the environment was read or SetFailpoints was called.
  uint64_t seed = 1;
  Settings settings;
};

// Never destroyed, because failpoints are reached until the last thread ends.
State& GetState() {
  static State& state = *new State;
  return state;
}

// Parses a code's lower-case name, such as "data_loss".
std::optional<absl::StatusCode> FindCode(std::string_view name) {
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    if (name == absl::AsciiStrToLower(absl::StatusCodeToString(static_cast<absl::StatusCode>(code)))) {
      return static_cast<absl::StatusCode>(code);
    }
  }
  return std::nullopt;
}

Status Wrong(std::string_view part, std::string_view what) {
  return InvalidArgument("The failpoint setting \"" + std::string(part) + "\" is wrong: " + std::string(what));
}

Status ParseAction(std::string_view part, std::string_view text, Setting* setting) {
  const size_t open = text.find('(');
  const std::string_view name = text.substr(0, open);
  std::optional<std::string_view> argument;
  if (open != std::string_view::npos) {
    if (text.back() != ')') {
      return Wrong(part, "there is no \")\" after the argument.");
    }
    argument = text.substr(open + 1, text.size() - open - 2);
  }
  if (name == "error") {
    std::optional<absl::StatusCode> code = argument ? FindCode(*argument) : std::nullopt;
    if (!code) {
      return Wrong(part, "\"error\" needs the name of a status code, such as error(unavailable).");
    }
    setting->action = Action::kError;
    setting->code = *code;
    return absl::OkStatus();
  }
  if (name == "sleep") {
    std::optional<uint64_t> ms = argument ? ParseNumber<uint64_t>(*argument) : std::nullopt;
    if (!ms || *ms > kSleepMsMax) {
      return Wrong(part, "\"sleep\" needs milliseconds, at most 3600000, such as sleep(250).");
    }
    setting->action = Action::kSleep;
    setting->sleep_ms = *ms;
    return absl::OkStatus();
  }
  if (name != "kill" && name != "abort") {
    return Wrong(part, "the actions are error(CODE), sleep(MS), kill and abort.");
  }
  if (argument) {
    return Wrong(part, "\"" + std::string(name) + "\" takes no argument.");
  }
  setting->action = name == "kill" ? Action::kKill : Action::kAbort;
  return absl::OkStatus();
}

// Parses when a setting strikes: "@3", "@3+" or "%10".
Status ParseWhen(std::string_view part, std::string_view text, Setting* setting) {
  const bool by_chance = text.front() == '%';
  text.remove_prefix(1);
  if (!by_chance && text.ends_with('+')) {
    setting->and_later = true;
    text.remove_suffix(1);
  }
  std::optional<uint64_t> number = ParseNumber<uint64_t>(text);
  if (!number || *number == 0) {
    return Wrong(part, by_chance ? "\"%\" needs a number N above 0: the action happens in one of N cases."
                                 : "\"@\" needs a number N above 0: the action happens at the Nth time.");
  }
  (by_chance ? setting->one_in : setting->nth) = *number;
  return absl::OkStatus();
}

Status ParsePart(std::string_view part, Settings* settings) {
  const size_t equals = part.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return Wrong(part, "it does not have the form NAME=ACTION.");
  }
  const std::string_view name = part.substr(0, equals);
  if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.") != std::string_view::npos) {
    return Wrong(part, "a name has small letters, digits, \"_\" and \".\" only.");
  }
  const std::string_view rest = part.substr(equals + 1);
  const size_t when = rest.find_first_of("@%");
  Setting setting;
  HPVMD_RETURN_IF_ERROR(ParseAction(part, rest.substr(0, when), &setting));
  if (when != std::string_view::npos) {
    HPVMD_RETURN_IF_ERROR(ParseWhen(part, rest.substr(when), &setting));
  }
  if (!settings->emplace(name, setting).second) {
    return Wrong(part, "the name is given twice.");
  }
  return absl::OkStatus();
}

StatusOr<Settings> Parse(std::string_view text) {
  Settings settings;
  while (!text.empty()) {
    const size_t end = text.find(';');
    if (std::string_view part = text.substr(0, end); !part.empty()) {
      HPVMD_RETURN_IF_ERROR(ParsePart(part, &settings));
    }
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return settings;
}

#ifndef HPVMD_NO_FAILPOINTS

void Install(State& state, Settings settings, uint64_t seed) {
  state.is_read = true;
  state.seed = seed;
  failpoint_detail::any_set.store(!settings.empty(), std::memory_order_relaxed);
  state.settings = std::move(settings);
}

// The caller holds the state's mutex.
Status ReadEnvironment(State& state) {
  if (state.is_read) {
    return absl::OkStatus();
  }
  const char* text = getenv(kVariable);
  const char* seed_text = getenv(kSeedVariable);
  std::optional<uint64_t> seed = seed_text == nullptr ? 1 : ParseNumber<uint64_t>(seed_text);
  if (!seed) {
    return InvalidArgument(std::string("The environment variable ") + kSeedVariable + " (\"" + seed_text +
                           "\") is not a number.");
  }
  HPVMD_ASSIGN_OR_RETURN(auto settings, While(Parse(text == nullptr ? "" : text),
                                              std::string("reading the environment variable ") + kVariable));
  Install(state, std::move(settings), *seed);
  return absl::OkStatus();
}

uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a.
  for (char c : name) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  return hash;
}

// A random strike depends on the seed, the name and the number of hits, not on other threads.
bool IsDue(const Setting& setting, std::string_view name, uint64_t seed) {
  if (setting.nth != 0) {
    return setting.and_later ? setting.hits >= setting.nth : setting.hits == setting.nth;
  }
  if (setting.one_in != 0) {
    return SeededRng(SeededRng(seed ^ HashName(name)).Next() + setting.hits).Below(setting.one_in) == 0;
  }
  return true;
}

#endif  // HPVMD_NO_FAILPOINTS

}  // namespace

#ifndef HPVMD_NO_FAILPOINTS

namespace failpoint_detail {

// True until the first failpoint has read the environment.
constinit std::atomic<bool> any_set{true};

Status Reach(std::string_view name) {
  State& state = GetState();
  Setting due;
  {
    std::lock_guard lock(state.mutex);
    if (Status read = ReadEnvironment(state); !read.ok()) {
      fprintf(stderr, "%s\n", Message(read).c_str());
      _exit(2);  // A test that expects faults which never come would pass for no reason.
    }
    auto found = state.settings.find(name);
    if (found == state.settings.end()) {
      return absl::OkStatus();
    }
    ++found->second.hits;
    if (!IsDue(found->second, name, state.seed)) {
      return absl::OkStatus();
    }
    due = found->second;
  }
  switch (due.action) {
    case Action::kError:
      return MakeStatus(due.code, "The failpoint \"" + std::string(name) + "\" is set to fail.");
    case Action::kSleep:
      std::this_thread::sleep_for(std::chrono::milliseconds(due.sleep_ms));
      return absl::OkStatus();
    case Action::kKill:
      kill(getpid(), SIGKILL);
      for (;;) {
        pause();  // Waits for the signal, which is on its way.
      }
    case Action::kAbort:
      fprintf(stderr, "The failpoint \"%.*s\" aborts.\n", static_cast<int>(name.size()), name.data());
      abort();
  }
  return absl::OkStatus();
}

}  // namespace failpoint_detail

Status SetFailpoints(std::string_view settings, uint64_t seed) {
  HPVMD_ASSIGN_OR_RETURN(Settings parsed, Parse(settings));
  State& state = GetState();
  std::lock_guard lock(state.mutex);
  Install(state, std::move(parsed), seed);
  return absl::OkStatus();
}

Status SetFailpointsFromEnvironment() {
  State& state = GetState();
  std::lock_guard lock(state.mutex);
  return ReadEnvironment(state);
}

#else

Status SetFailpoints(std::string_view settings, uint64_t) {
  HPVMD_ASSIGN_OR_RETURN(Settings parsed, Parse(settings));
  return parsed.empty() ? absl::OkStatus() : FailedPrecondition("This build has no failpoints.");
}

Status SetFailpointsFromEnvironment() {
  if (getenv(kVariable) != nullptr) {
    static std::once_flag once;
    std::call_once(once, [] { fprintf(stderr, "%s is ignored: this build has no failpoints.\n", kVariable); });
  }
  return absl::OkStatus();
}

#endif  // HPVMD_NO_FAILPOINTS

std::map<std::string, uint64_t> FailpointHits() {
  State& state = GetState();
  std::lock_guard lock(state.mutex);
  std::map<std::string, uint64_t> hits;
  for (const auto& [name, setting] : state.settings) {
    hits[name] = setting.hits;
  }
  return hits;
}

}  // namespace hpvm
