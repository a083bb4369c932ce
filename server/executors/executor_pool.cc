// SPDX-License-Identifier: Apache-2.0
#include "server/executors/executor_pool.h"

#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <utility>

#include "server/config/device_families.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

// Delay after a process was taken, so that the tenant's first request has the machine to itself.
constexpr Duration kRefillDelay = std::chrono::milliseconds(150);
// Interval between checks of the programs' files.
constexpr Duration kLook = std::chrono::seconds(10);
// Pause after a process that ended by itself, doubled each time.
constexpr Duration kPauseMin = std::chrono::seconds(1), kPauseMax = std::chrono::minutes(2);

std::string FileIdentity(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return "";
  }
  return std::to_string(info.st_dev) + " " + std::to_string(info.st_ino) + " " + std::to_string(info.st_size) + " " +
         std::to_string(info.st_mtim.tv_sec) + "." + std::to_string(info.st_mtim.tv_nsec) + ";";
}

std::set<std::string_view> FamiliesIn(const SpareProfile& profile) {
  std::set<std::string_view> families;
  for (const std::string& backend : profile.backends) {
    families.insert(FamilyOf(backend));
  }
  return families;
}

SpareProfile ProfileOf(const supervisor::ExecutorOptions& options) {
  const internal::Hello& hello = options.hello;
  return {{hello.backends().begin(), hello.backends().end()}, hello.without_device_nodes()};
}

// Spares are interchangeable when the families of their devices are the same, which determine the drivers and
// compilers that are loaded.
bool SettleAlike(const SpareProfile& a, const SpareProfile& b) {
  return FamiliesIn(a) == FamiliesIn(b) && a.without_device_nodes == b.without_device_nodes;
}

}  // namespace

std::string ProgramsOf(const supervisor::ExecutorOptions& options) {
  const std::string compiler = options.hello.compiler_program().empty()
                                   ? options.program.substr(0, options.program.rfind('/') + 1) + "hpvm-compiler"
                                   : options.hello.compiler_program();
  return FileIdentity(options.program) + FileIdentity(compiler);
}

ExecutorPool::ExecutorPool(Start start) : start_(std::move(start)), thread_([this] { return Round(); }) {}

ExecutorPool::~ExecutorPool() {
  thread_.Stop();
  spares_.clear();
}

void ExecutorPool::Expect(SpareProfile profile) {
  std::lock_guard lock(mutex_);
  if (profile_ != profile) {
    profile_ = std::move(profile);
    ++generation_;
    thread_.Wake();
  }
}

void ExecutorPool::SetCount(uint64_t count) {
  std::lock_guard lock(mutex_);
  count_ = count;
  thread_.Wake();
}

void ExecutorPool::Renew() {
  std::lock_guard lock(mutex_);
  ++generation_;
  for (SpareExecutor& spare : spares_) {
    spare.programs.clear();  // Marks the process as stale.
  }
  thread_.Wake();
}

size_t ExecutorPool::waiting() const {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(spares_.begin(), spares_.end(),
                                           [](const SpareExecutor& spare) { return !spare.end->has_value(); }));
}

std::optional<SpareExecutor> ExecutorPool::Take(supervisor::ExecutorOptions& options) {
  const std::string programs = ProgramsOf(options);
  std::lock_guard lock(mutex_);
  start_at_ = std::max(start_at_, RealClock().Now() + kRefillDelay);
  thread_.Wake();
  const auto found = std::find_if(spares_.begin(), spares_.end(), [&](const SpareExecutor& spare) {
    return !spare.end->has_value() && spare.link->alive() && spare.programs == programs &&
           SettleAlike(ProfileOf(spare.options), ProfileOf(options));
  });
  if (found == spares_.end()) {
    return std::nullopt;
  }
  SpareExecutor taken = std::move(*found);
  spares_.erase(found);
  pause_ = Duration{0};
  internal::Hello& hello = options.hello;
  const internal::Hello& known = taken.options.hello;
  hello.set_uid(known.uid());
  hello.set_gid(known.gid());
  hello.set_has_cgroup(known.has_cgroup());
  hello.set_tasks_max(known.tasks_max());
  // The process is bound by the limit that it was started with; the file may only be smaller.
  hello.set_spill_bytes_max(std::min(hello.spill_bytes_max(), known.spill_bytes_max()));
  hello.set_scratch_folder(known.scratch_folder());
  hello.set_sandbox_level_max_plus_1(known.sandbox_level_max_plus_1());
  options.why_ended = taken.options.why_ended;
  options.belongings = taken.options.belongings;
  return taken;
}

// Ends processes that are of no use: without the lock, since it waits for them.
void ExecutorPool::Sort(std::unique_lock<std::mutex>& lock) {
  std::vector<SpareExecutor> useless;
  for (size_t i = spares_.size(); i-- > 0;) {
    const SpareExecutor& spare = spares_[i];
    const bool has_died = spare.end->has_value();
    if (has_died) {
      LogWarning("A spare executor ended", {{"error", Message(**spare.end)}});
      pause_ = std::clamp(pause_ * 2, kPauseMin, kPauseMax);
      start_at_ = RealClock().Now() + pause_;
    }
    if (has_died || i >= count_ || spare.programs != ProgramsOf(spare.options) ||
        !SettleAlike(ProfileOf(spare.options), profile_)) {
      useless.push_back(std::move(spares_[i]));
      spares_.erase(spares_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  if (!useless.empty()) {
    lock.unlock();
    useless.clear();
    lock.lock();
  }
}

void ExecutorPool::StartOne(std::unique_lock<std::mutex>& lock) {
  const SpareProfile profile = profile_;
  const uint64_t generation = generation_;
  const auto end = std::make_shared<std::optional<Status>>();
  lock.unlock();
  StatusOr<SpareExecutor> started = start_(profile, [this, end](const Status& why) {
    std::lock_guard inner(mutex_);
    *end = why;  // Reported by Sort; not read for a process that this pool ended.
    thread_.Wake();
  });
  lock.lock();
  if (!started.ok()) {
    LogWarning("No spare executor started", {{"error", Message(started.status())}});
    pause_ = std::clamp(pause_ * 2, kPauseMin, kPauseMax);
    start_at_ = RealClock().Now() + pause_;
    return;
  }
  started->end = end;
  if (generation != generation_) {
    started->programs.clear();
  }
  spares_.push_back(*std::move(started));
}

Duration ExecutorPool::Round() {
  std::unique_lock lock(mutex_);
  Sort(lock);
  const bool wants_more = !profile_.backends.empty() && spares_.size() < count_;
  const Duration left = start_at_ - RealClock().Now();
  if (wants_more && left <= Duration{0}) {
    StartOne(lock);
    return Duration{0};
  }
  return wants_more ? std::min(left, kLook) : kLook;
}

}  // namespace hpvm::server
