// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/daemon.h"

#include <algorithm>

#include "server/jobs/sqlite/sqlite_job_database.h"

namespace hpvm::server::sim {
namespace {

constexpr char kBlobFolder[] = "/state/blobs";
constexpr char kDatabase[] = "/state/jobs.db";

}  // namespace

void Machine::ArmDisk() {
  disk.ClearFaults();
  if (!context.faults_on) {
    return;
  }
  const Plan& plan = context.plan;
  const auto arm = [&](SimDisk::Op op, uint32_t per_100k) {
    if (per_100k != 0) {
      disk.FailByChance(op, 100'000 / per_100k, {.is_short = true});
    }
  };
  arm(SimDisk::Op::kRead, plan.read_errors);
  for (const SimDisk::Op op : {SimDisk::Op::kWrite, SimDisk::Op::kTruncate, SimDisk::Op::kCreate, SimDisk::Op::kRename,
                               SimDisk::Op::kRemove}) {
    arm(op, plan.write_errors);
  }
  arm(SimDisk::Op::kSync, plan.sync_errors);
  arm(SimDisk::Op::kSyncFolder, plan.sync_errors);
}

SimDaemon::SimDaemon(Machine& machine)
    : machine_(machine), context_(machine.context), incarnation_(machine.context.incarnation) {}

SimDaemon::~SimDaemon() {
  is_dead_ = true;
  if (core_ == nullptr) {
    return;
  }
  if (!is_stopped_) {
    spawner_->EndAtOnce();
    store_->Abandon();
    core_->Stop();
  }
  store_.reset();
  core_.reset();
}

Status SimDaemon::OpenStore() {
  if (machine_.vfs == nullptr) {
    HPVMD_ASSIGN_OR_RETURN(machine_.vfs, DiskVfs::Register(machine_.disk, context_.clock, machine_.vfs_rng));
    machine_.disk.AddFolder(kBlobFolder);
  }
  machine_.ArmDisk();
  SqliteJobDatabaseOptions options;
  options.path = kDatabase;
  options.vfs = machine_.vfs->name();
  options.disk = &machine_.disk;
  options.read_connections = 1;
  options.clock = &context_.clock;
  options.log_pages_max = context_.seed % 3 == 0 ? 16 : 4'096;
  HPVMD_ASSIGN_OR_RETURN(database_, OpenSqliteJobDatabase(options));
  machine_.disk.ClearFaults();
  machine_.model.Compare(*database_);
  machine_.ArmDisk();
  watched_ = std::make_unique<WatchedDatabase>(*database_, machine_.model);
  blobs_ = std::make_unique<BlobFolder>(machine_.disk, kBlobFolder);
  Status unknown;
  const auto is_used = [&](std::string_view tenant, const Sha256& hash) {
    const StatusOr<bool> used = database_->UsesBlob(tenant, hash);
    return !used.ok() || *used;
  };
  return blobs_->Sweep(is_used).status();
}

Status SimDaemon::Start() {
  HPVMD_RETURN_IF_ERROR(OpenStore());
  store_ = std::make_unique<SimJobStore>(context_, machine_.store_rng, *watched_, *blobs_, [this](const Status& why) {
    context_.trace.Add("daemon", "its store is broken: " + std::string(why.message()).substr(0, 60));
    is_broken_ = true;
  });
  spawner_ = std::make_unique<SimSpawner>(context_, machine_.attempts, machine_.executor_rng);
  CoreOptions options;
  options.config = machine_.config;
  options.clock = &context_.clock;
  options.rng = &machine_.core_rng;
  options.spawner = spawner_.get();
  options.jobs = store_.get();
  options.awaits_devices = true;
  // In half of the worlds every request counts as large and is stored in a blob.
  options.request_row_bytes_max = context_.seed % 2 == 0 ? 0 : kRequestRowBytesMax;
  core_ = std::make_unique<Core>(std::move(options));
  core_->SetWake([this] { next_ = context_.clock.Now(); });
  core_->devices().SetProbeWake([this] { WatchDevices(); });
  machine_.attempts.OnDaemonStart();
  for (const char* family : {"cpu", "opencl", "vulkan"}) {
    core_->devices().SetFound(family, DevicesOf(context_.plan, family));
  }
  core_->devices().DevicesKnown();
  HPVMD_RETURN_IF_ERROR(core_->Restore());
  next_ = context_.clock.Now();
  return absl::OkStatus();
}

void SimDaemon::OnTime() {
  next_ = kNever;
  next_ = std::min(next_, core_->OnTime());
}

// The probing thread, as an event.
void SimDaemon::WatchDevices() {
  if (!probe_scheduled_) {
    probe_scheduled_ = true;
    context_.events.After(Microseconds(10), incarnation_, [this] {
      probe_scheduled_ = false;
      Probe();
    });
  }
}

void SimDaemon::Probe() {
  Time next = kNever;
  const std::optional<std::string> due = core_->devices().DueProbe(&next);
  if (due.has_value()) {
    const bool works = !context_.faults_on || !Chance(machine_.executor_rng, 200);
    context_.events.After(Milliseconds(Between(machine_.executor_rng, 1, 50)), incarnation_, [this, id = *due, works] {
      core_->devices().OnProbed(id, works ? absl::OkStatus() : Unavailable("The device does not answer."));
      WatchDevices();
    });
  } else if (next != kNever) {
    context_.events.After(std::max(next - context_.clock.Now(), Duration{0}) + Microseconds(1), incarnation_,
                          [this] { WatchDevices(); });
  }
}

void SimDaemon::Drain() {
  spawner_->OnDrain();
  machine_.attempts.OnDrain();
  core_->Drain();
}

void SimDaemon::StopRunning() { core_->StopRunning(); }

void SimDaemon::Stop() {
  spawner_->EndAtOnce();
  core_->Stop();
  store_->Flush();
  // Nobody receives a response after a loss of power.
  context_.Check(calls_.empty() || machine_.disk.is_off(), "answers", [&] {
    return std::to_string(calls_.size()) +
           " calls were not answered when the daemon stopped; the oldest: " + OldestCall() + ".";
  });
  context_.Check(spawner_->alive() == 0, "orphans", [&] { return "Executors outlived their daemon."; });
  is_stopped_ = is_dead_ = true;
}

uint64_t SimDaemon::BeginCall(const std::string& what) {
  calls_[next_call_] = what + " at " + std::to_string(context_.clock.Now().count()) + " ns";
  return next_call_++;
}

bool SimDaemon::EndCall(uint64_t call) {
  if (is_dead_ || machine_.disk.is_off()) {
    return false;
  }
  context_.Check(calls_.erase(call) == 1, "answers", [&] { return "A call was answered twice."; });
  return true;
}

}  // namespace hpvm::server::sim
