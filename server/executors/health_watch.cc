// SPDX-License-Identifier: Apache-2.0
#include "server/executors/health_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace hpvm::server {
namespace {

int MillisecondsOf(Duration left) {
  return static_cast<int>(std::clamp<int64_t>(left / std::chrono::milliseconds(1) + 1, 0, 3'600'000));
}

}  // namespace

HealthWatch::HealthWatch(HealthWatchOptions options, OnReading on_reading)
    : options_(std::move(options)),
      on_reading_(std::move(on_reading)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Loop(); }) {}

HealthWatch::~HealthWatch() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

bool HealthWatch::Sleep(Duration pause) const {
  const Time end = RealClock().Now() + pause;
  pollfd stop{stop_.get(), POLLIN, 0};
  for (Time now = RealClock().Now(); now < end; now = RealClock().Now()) {
    if (poll(&stop, 1, MillisecondsOf(end - now)) > 0) {
      return true;
    }
  }
  return false;
}

void HealthWatch::Loop() {
  Duration pause = options_.again;
  std::string told;
  do {
    bool had_reading = false;
    const Status ended = Follow(&had_reading);
    pause = had_reading ? options_.again : std::min(pause * 2, options_.again_max);
    if (absl::IsCancelled(ended)) {
      return;
    }
    if (had_reading || std::exchange(told, Message(ended)) != Message(ended)) {
      told = Message(ended);
      on_reading_(ended);
    }
  } while (!Sleep(pause));
}

Status HealthWatch::Follow(bool* had_reading) {
  std::array<int, 2> ends{-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Unavailable("No pipe could be created for the process that asks for the devices' health.");
  }
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  const UniqueFd nowhere(open("/dev/null", O_WRONLY | O_CLOEXEC));
  SpawnOptions spawn;
  spawn.arguments = {options_.program, "--device-health", options_.library, "--interval-ms",
                     std::to_string(options_.interval / std::chrono::milliseconds(1))};
  spawn.stdout_fd = to.get();
  spawn.stderr_fd = nowhere.get();
  HPVMD_ASSIGN_OR_RETURN(const SpawnedProcess process,
                         While(Spawn(spawn), "starting a process that asks for the devices' health"));
  to = UniqueFd();
  Status ended = ReadLines(from.get(), had_reading);
  KillAndReap(process);
  return ended;
}

// Never returns OK: it ends with a reason.
Status HealthWatch::ReadLines(int from, bool* had_reading) {
  std::string text;
  Time silent = RealClock().Now() + options_.start_max;
  while (true) {
    if (const size_t end = text.find('\n'); end != std::string::npos) {
      const Readings readings = ParseHealthReading(std::string_view(text).substr(0, end));
      HPVMD_RETURN_IF_ERROR(readings.status());
      *had_reading = true;
      on_reading_(readings);
      text.erase(0, end + 1);
      silent = RealClock().Now() + options_.interval + options_.silence_max;
      // Limits the effect on other threads, however fast the process writes.
      if (Sleep(options_.interval / 2)) {
        return Cancelled("The server is stopping.");
      }
      continue;
    }
    if (text.size() > kHealthLineBytesMax) {
      return InvalidArgument("The management library's reading is longer than " + std::to_string(kHealthLineBytesMax) +
                             " bytes.");
    }
    std::array<pollfd, 2> sources{{{stop_.get(), POLLIN, 0}, {from, POLLIN, 0}}};
    const Duration left = silent - RealClock().Now();
    if (left <= Duration{0}) {
      return Unavailable("The management library did not answer in time; the process that asked it was ended.");
    }
    if (poll(sources.data(), sources.size(), MillisecondsOf(left)) < 0) {
      continue;  // Interrupted by a signal, although all are blocked.
    }
    if (sources[0].revents != 0) {
      return Cancelled("The server is stopping.");
    }
    if (sources[1].revents == 0) {
      continue;
    }
    std::array<char, 4096> part{};
    const ssize_t read = ::read(from, part.data(), part.size());
    if (read <= 0) {
      return Unavailable("The process that asks the management library ended by itself.");
    }
    text.append(part.data(), static_cast<size_t>(read));
  }
}

}  // namespace hpvm::server
