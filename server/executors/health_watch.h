// SPDX-License-Identifier: Apache-2.0
// HealthWatch reads the health of devices from their maker's management library. The library is loaded by a process of
// its own (`hpvmd --device-health`), which writes one line per reading: it may hang, crash and report falsehoods
// without harm to this process.
#ifndef HPVMD_SERVER_EXECUTORS_HEALTH_WATCH_H_
#define HPVMD_SERVER_EXECUTORS_HEALTH_WATCH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/io/child_process.h"
#include "base/io/fd.h"
#include "base/status.h"
#include "server/executors/health_reading.h"

namespace hpvm::server {

struct HealthWatchOptions {
  std::string program = "/proc/self/exe";  // hpvmd.
  std::string library;
  Duration interval = std::chrono::seconds(1);
  // A process that is silent for this long beyond the interval is killed. Loading a driver takes longer.
  Duration silence_max = std::chrono::seconds(5), start_max = std::chrono::seconds(30);
  // Pause before a new process after one that failed; doubles up to `again_max`.
  Duration again = std::chrono::seconds(1), again_max = std::chrono::seconds(60);
};

class HealthWatch {
 public:
  using Readings = StatusOr<std::vector<DeviceReading>>;
  // Called on the watch's thread: with readings, at most two per interval, or once with the reason why there are no
  // more.
  using OnReading = std::function<void(const Readings&)>;
  HealthWatch(HealthWatchOptions options, OnReading on_reading);
  // Ends the process.
  ~HealthWatch();
  HealthWatch(const HealthWatch&) = delete;
  HealthWatch& operator=(const HealthWatch&) = delete;

 private:
  void Loop();
  // Runs one process from its start to its end, and returns why it ended. Sets `had_reading` when it gave a reading.
  Status Follow(bool* had_reading);
  Status ReadLines(int from, bool* had_reading);
  // Returns true when the watch ends.
  bool Sleep(Duration pause) const;

  const HealthWatchOptions options_;
  const OnReading on_reading_;
  UniqueFd stop_;  // An eventfd.
  std::thread thread_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_HEALTH_WATCH_H_
