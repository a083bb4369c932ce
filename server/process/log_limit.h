// SPDX-License-Identifier: Apache-2.0
// LogLimit bounds the log lines per second from one call site.
#ifndef HPVMD_SERVER_PROCESS_LOG_LIMIT_H_
#define HPVMD_SERVER_PROCESS_LOG_LIMIT_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace hpvm::server {

// Not thread-safe. Holds one entry per call site, so its size is bounded by the program.
class LogLimit {
 public:
  using CallSite = std::pair<const char*, uint32_t>;  // File (compared as a pointer) and line.
  static constexpr uint32_t kLinesMax = 100;

  // Returns true when one more line may be logged now.
  bool Admit(CallSite place, Time now) {
    Window& window = windows_[place];
    if (window.left_out == 0 && now - window.start >= std::chrono::seconds(1)) {
      window.start = now;
      window.lines = 0;
    }
    if (window.lines < kLinesMax) {
      ++window.lines;
      return true;
    }
    ++window.left_out;
    any_left_out_ = true;
    return false;
  }

  struct Summary {
    std::string file;
    uint32_t line = 0;
    uint64_t left_out = 0;
  };
  // Returns the places whose second is over with suppressed lines, and resets them. Cheap when there are none.
  std::vector<Summary> Take(Time now, bool all = false) {
    std::vector<Summary> taken;
    if (!any_left_out_) {
      return taken;
    }
    any_left_out_ = false;
    for (auto& [place, window] : windows_) {
      if (window.left_out == 0) {
        continue;
      }
      if (all || now - window.start >= std::chrono::seconds(1)) {
        taken.push_back({place.first, place.second, window.left_out});
        window = Window{now, 0, 0};
      } else {
        any_left_out_ = true;
      }
    }
    return taken;
  }

 private:
  struct Window {
    Time start{Time::min() / 2};
    uint32_t lines = 0;
    uint64_t left_out = 0;
  };
  std::map<CallSite, Window> windows_;
  bool any_left_out_ = false;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_LOG_LIMIT_H_
