// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/store_world.h"

#include <algorithm>
#include <utility>

#include "server/jobs/rows/job_rules.h"
#include "server/jobs/sqlite/sqlite_job_database.h"
#include "server/jobs/testing/job_writes.h"
#include "tests/sim/graph_spec.h"

namespace hpvm::server::sim {
namespace {

constexpr char kBlobFolder[] = "/state/blobs";

void ArmDisk(SimDisk& disk, const Plan& plan) {
  disk.ClearFaults();
  const auto arm = [&](SimDisk::Op op, uint32_t per_100k) {
    if (per_100k != 0) {
      disk.FailByChance(op, 100'000 / per_100k, {.is_short = true});
    }
  };
  arm(SimDisk::Op::kRead, plan.read_errors);
  arm(SimDisk::Op::kWrite, plan.write_errors);
  arm(SimDisk::Op::kRename, plan.write_errors);
  arm(SimDisk::Op::kSync, plan.sync_errors);
  arm(SimDisk::Op::kSyncFolder, plan.sync_errors);
}

}  // namespace

StoreWorld::StoreWorld(uint64_t seed, bool prints)
    : context_(seed, prints),
      model_(context_, /*judges=*/false),
      disk_(context_.RngFor("disk").Next()),
      rng_(context_.RngFor("store world")),
      store_rng_(context_.RngFor("store")),
      vfs_rng_(context_.RngFor("vfs")) {
  disk_.AddFolder(kBlobFolder);
}

StoreWorld::~StoreWorld() {
  disk_.PowerOffAfter(0);
  Close();
}

Status StoreWorld::Open() {
  ++opens_;
  ++context_.incarnation;
  context_.events.ForgetOwnersBelow(context_.incarnation);
  is_broken_ = false;
  writing_.clear();
  if (vfs_ == nullptr) {
    HPVMD_ASSIGN_OR_RETURN(vfs_, DiskVfs::Register(disk_, context_.clock, vfs_rng_));
  }
  if (context_.faults_on) {
    ArmDisk(disk_, context_.plan);
  }
  SqliteJobDatabaseOptions options;
  options.path = "/state/jobs.db";
  options.vfs = vfs_->name();
  options.disk = &disk_;
  options.read_connections = 1;
  options.clock = &context_.clock;
  options.spare_pages = 2;
  options.log_pages_max = context_.seed % 2 == 0 ? 8 : 4'096;
  HPVMD_ASSIGN_OR_RETURN(database_, OpenSqliteJobDatabase(options));
  disk_.ClearFaults();
  model_.Compare(*database_);
  if (context_.faults_on) {
    ArmDisk(disk_, context_.plan);
  }
  watched_ = std::make_unique<WatchedDatabase>(*database_, model_);
  blobs_ = std::make_unique<BlobFolder>(disk_, kBlobFolder);
  HPVMD_RETURN_IF_ERROR(blobs_
                            ->Sweep([this](std::string_view tenant, const Sha256& hash) {
                              const StatusOr<bool> used = database_->UsesBlob(tenant, hash);
                              return !used.ok() || *used;
                            })
                            .status());
  HPVMD_ASSIGN_OR_RETURN(lease_, watched_->NextLease());
  store_ = std::make_unique<SimJobStore>(context_, store_rng_, *watched_, *blobs_,
                                         [this](const Status&) { is_broken_ = true; });
  known_.clear();
  return database_->LoadLive([this](LiveRow row) { known_[row.job.job().id()] = std::move(row.job); }, nullptr);
}

void StoreWorld::Close() {
  if (store_ != nullptr) {
    store_->Abandon();
  }
  store_.reset();
  blobs_.reset();
  watched_.reset();
  database_.reset();
}

void StoreWorld::CrashAndReopen() {
  const bool had_faults = context_.faults_on;
  uint32_t tries = 0;
  do {
    // An operator makes room, and in the end replaces the disk.
    disk_.SetSpace(UINT64_MAX);
    context_.faults_on = had_faults && ++tries <= 5;
    const bool keeps_all = !Chance(rng_, context_.plan.power_loss + 300);
    context_.trace.Add("world", keeps_all ? "crash" : "power loss");
    disk_.PowerOffAfter(0);
    Close();
    disk_.Crash(rng_, keeps_all ? SimDisk::Keep::kEverything : SimDisk::Keep::kAnything);
    if (context_.faults_on && Chance(rng_, 300)) {
      disk_.PowerOffAfter(rng_.Below(60));
    }
    const Status opened = Open();
    context_.trace.Add("world", "opened: " + std::string(opened.message()).substr(0, 80));
    context_.Check(opened.ok() || context_.faults_on || disk_.is_off(), "durability",
                   [&] { return "A sound disk, and the store does not open: " + opened.ToString(); });
    if (opened.ok() && !disk_.is_off()) {
      CheckBlobFiles();
      break;
    }
  } while (!context_.failure.has_value());
  context_.faults_on = had_faults;
}

// Between the failure and the end of the process, nothing is committed and nothing is deleted.
void StoreWorld::GoOnBroken() {
  InsertSome();
  for (int steps = 0; steps < 20 && context_.events.next() != kNever && !disk_.is_off(); ++steps) {
    context_.events.RunNext();
  }
  std::vector<WriteResult> results;
  const JobWrite write = ForgetKeys{0};
  // The queue remembers a blob's failure; the database also remembers a commit's.
  context_.Check(!model_.is_uncertain() || !database_->Commit({&write, 1}, &results).ok(), "broken store",
                 [] { return "The database commits after it has failed for good."; });
}

Verdict StoreWorld::Run() {
  if (const Status opened = Open(); !opened.ok() || disk_.is_off()) {
    CrashAndReopen();
  }
  const uint64_t actions = Between(rng_, 20, 400);
  for (uint64_t i = 0; i < actions && !context_.failure.has_value(); ++i) {
    Step();
    for (uint64_t steps = rng_.Below(4); steps > 0 && context_.events.next() != kNever; --steps) {
      context_.events.RunNext();
    }
    if (is_broken_ && !disk_.is_off()) {
      GoOnBroken();
    }
    if (disk_.is_off() || is_broken_) {
      CrashAndReopen();
    }
  }
  context_.faults_on = false;
  disk_.SetSpace(UINT64_MAX);
  if (!context_.failure.has_value()) {
    CrashAndReopen();
  }
  Verdict verdict;
  verdict.failure = context_.failure;
  verdict.trace_hash = context_.trace.hash();
  verdict.trace_lines = context_.trace.lines();
  verdict.jobs = model_.rows().size();
  verdict.starts = opens_;
  verdict.steps = writes_;
  verdict.simulated = context_.clock.Now();
  return verdict;
}

void StoreWorld::Step() {
  const uint64_t drawn = rng_.Below(100);
  if (drawn < 35) {
    InsertSome();
  } else if (drawn < 80) {
    ChangeOne();
  } else if (drawn < 90) {
    DropOne();
  } else if (drawn < 92) {
    Write(ForgetKeys{context_.clock.WallNs() - 90'000'000'000'000}, {});
  } else if (drawn < 94) {
    disk_.SetSpace(Chance(rng_, 500) ? disk_.used_bytes() + rng_.Below(20'000) : UINT64_MAX);
  } else if (drawn < 96) {
    CrashAndReopen();
  } else if (drawn < 97) {
    store_->Shrink();
  } else if (drawn < 99) {
    disk_.PowerOffAfter(Between(rng_, 1, 50));
  } else if (context_.faults_on) {
    // The commit of new blobs' rows fails when all of it is written: the next daemon may find it.
    disk_.FailNth(SimDisk::Op::kSync, Between(rng_, 1, 6), {});
    InsertSome();
  }
}

StoredJob StoreWorld::NewJob(const std::string& tenant, const std::vector<PinnedBlob>& blobs) {
  StoredJob stored;
  v1::Job& job = *stored.mutable_job();
  job.set_id("job-" + std::to_string(1'000'000 + next_id_++));
  job.set_name("t" + std::to_string(next_id_));
  job.set_state(v1::JOB_STATE_ACCEPTED);
  job.set_attempts_max(3);
  job.set_created_unix_ns(context_.clock.WallNs());
  stored.set_tenant(tenant);
  stored.set_stored_bytes(Between(rng_, 1, 5'000));
  for (const PinnedBlob& blob : blobs) {
    internal::StoredBlob& to = *stored.add_blobs();
    to.set_sha256(std::string(blob.hash.bytes.begin(), blob.hash.bytes.end()));
    to.set_size_bytes(blob.size_bytes);
  }
  return stored;
}

void StoreWorld::InsertSome() {
  const std::string tenant = Chance(rng_, 700) ? "ann" : "bob";
  auto bytes = std::make_shared<std::vector<std::string>>();
  std::vector<BlobInput> inputs;
  for (uint64_t i = rng_.Below(3); i > 0; --i) {
    bytes->push_back(PayloadOf(rng_.Below(12), Between(rng_, 1, 200)));
  }
  for (const std::string& text : *bytes) {
    BlobInput& input = inputs.emplace_back();
    input.source.bytes = {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
    input.keeps = bytes;
  }
  store_->PutBlobs(tenant, std::move(inputs), [this, tenant](StatusOr<std::vector<PinnedBlob>> blobs) {
    if (!blobs.ok()) {
      return;
    }
    InsertJobs insert;
    const uint64_t count = Chance(rng_, 300) ? Between(rng_, 2, 6) : 1;
    for (uint64_t i = 0; i < count; ++i) {
      insert.jobs.push_back(NewJob(tenant, *blobs));
      if (count > 1) {
        insert.jobs.back().mutable_job()->set_array_id("array-" + insert.jobs.front().job().id());
        insert.jobs.back().mutable_job()->set_array_index(i);
      }
    }
    if (count > 1 && Chance(rng_, 500)) {
      ShareInArray(&insert);
    }
    StoredRequest request;
    request.mutable_request()->set_name(insert.jobs.front().job().name());
    insert.request = request.SerializeAsString();
    if (Chance(rng_, 500)) {
      insert.idempotency_key = "key-" + std::to_string(rng_.Below(50));
      insert.request_hash = HashOf(insert.idempotency_key);
    }
    std::vector<BlobPinRef> pins;
    for (const PinnedBlob& blob : *blobs) {
      pins.push_back(blob.pin);
    }
    Write(std::move(insert), std::move(pins));
  });
}

const StoredJob* StoreWorld::AnyRow() {
  if (known_.empty()) {
    return nullptr;
  }
  const StoredJob& row = std::next(known_.begin(), static_cast<ptrdiff_t>(rng_.Below(known_.size())))->second;
  return writing_.count(row.job().id()) != 0 ? nullptr : &row;
}

void StoreWorld::ChangeOne() {
  const StoredJob* row = AnyRow();
  const bool is_stale = !old_.empty() && Chance(rng_, 150);
  if (is_stale) {
    row = &old_[rng_.Below(old_.size())];
    stale_.insert(row->job().id());  // Like a daemon that does not know that it was replaced.
  }
  if (row == nullptr || IsTerminal(row->job().state())) {
    return;
  }
  ChangeJob change;
  change.tenant = row->tenant();
  change.id = row->job().id();
  change.state = row->job().state();
  change.attempt = row->job().attempt();
  change.lease = row->lease();
  change.job = *row;
  v1::Job& job = *change.job.mutable_job();
  const bool runs = job.state() == v1::JOB_STATE_RUNNING;
  if (!runs && change.job.attempts_spent() < 3 && Chance(rng_, 600)) {
    job.set_state(v1::JOB_STATE_RUNNING);
    job.set_attempt(job.attempt() + 1);
    change.job.set_attempts_spent(change.job.attempts_spent() + 1);
    change.job.set_lease(lease_);
  } else if (runs && Chance(rng_, 300)) {
    job.set_state(v1::JOB_STATE_ACCEPTED);
  } else if (Chance(rng_, 200)) {
    job.set_cancel_requested(true);
  } else {
    job.set_state(runs && Chance(rng_, 700) ? v1::JOB_STATE_SUCCEEDED : v1::JOB_STATE_FAILED);
    job.set_ended_unix_ns(context_.clock.WallNs() + 1);
    change.results.emplace().add_outputs()->set_data(std::string(rng_.Below(300), 'o'));
  }
  if (!is_stale) {
    old_.push_back(*row);
    writing_.insert(change.id);
  }
  Write(std::move(change), {});
}

void StoreWorld::DropOne() {
  const StoredJob* row = AnyRow();
  if (row != nullptr && IsTerminal(row->job().state())) {
    Write(DropJob{row->tenant(), row->job().id(), Chance(rng_, 500)}, {});
  }
}

void StoreWorld::Write(JobWrite write, std::vector<BlobPinRef> pins) {
  ++writes_;
  auto shared = std::make_shared<const JobWrite>(write);
  store_->Write(std::move(write), [this, shared, pins = std::move(pins)](const WriteResult& result) {
    if (!disk_.is_off()) {
      Answered(*shared, result);
    }
  });
}

// Completed writes must be on disk by then: the model has them from the commit.
void StoreWorld::Answered(const JobWrite& write, const WriteResult& result) {
  context_.trace.Add("answer", std::to_string(write.index()) + " " + std::string(result.status.message()));
  context_.Check(!absl::IsResourceExhausted(result.status) || std::holds_alternative<InsertJobs>(write), "full disk",
                 [] { return "The end of a job was refused for want of room; it is to wait."; });
  if (const auto* insert = std::get_if<InsertJobs>(&write); insert != nullptr && result.status.ok()) {
    for (const StoredJob& job : insert->jobs) {
      context_.Check(model_.Find(job.job().id()) != nullptr, "durability",
                     [&] { return "Job " + job.job().id() + " was acknowledged before it was committed."; });
      StoredJob& whole = known_[job.job().id()] = job;
      if (insert->shared.has_value()) {
        context_.Check(AddShared(*insert->shared, &whole).ok(), "arrays", [] { return "An array shares another's."; });
      }
    }
  } else if (const auto* change = std::get_if<ChangeJob>(&write)) {
    writing_.erase(change->id);
    if (result.status.ok()) {
      const Row* row = model_.Find(change->id);
      // A stale write may have come after it.
      context_.Check(row != nullptr && (row->state == change->job.job().state() || stale_.count(change->id) != 0),
                     "durability",
                     [&] { return "A change of " + change->id + " was acknowledged before it was committed."; });
      known_[change->id] = change->job;
    }
  } else if (const auto* drop = std::get_if<DropJob>(&write); drop != nullptr && result.status.ok()) {
    known_.erase(drop->id);
  }
}

void StoreWorld::CheckBlobFiles() {
  disk_.ClearFaults();
  std::map<std::string, std::set<std::string>> needed{{"ann", {}}, {"bob", {}}};
  for (const auto& [id, row] : model_.rows()) {
    needed[row.tenant].insert(row.blobs.begin(), row.blobs.end());
  }
  for (const auto& [tenant, hashes] : needed) {
    std::set<std::string> there;
    const std::string folder = std::string(kBlobFolder) + "/" + tenant;
    for (const DiskEntry& part : disk_.List(folder).value_or(std::vector<DiskEntry>())) {
      for (const DiskEntry& file : disk_.List(folder + "/" + part.name).value_or(std::vector<DiskEntry>())) {
        there.insert(file.name);
        context_.Check(hashes.count(file.name) == 1, "blobs", [&, &tenant = tenant] {
          return "File " + file.name + " of " + tenant + " is needed by no job.";
        });
        const StatusOr<std::string> bytes =
            blobs_->Read(tenant, Sha256FromHex(file.name).value_or(Sha256()), file.size_bytes);
        context_.Check(bytes.ok(), "blobs", [&] { return "Blob " + file.name + ": " + bytes.status().ToString(); });
      }
    }
    for (const std::string& hash : hashes) {
      context_.Check(there.count(hash) == 1, "blobs", [&] { return "Blob " + hash + " is needed and not there."; });
    }
  }
  if (context_.faults_on) {
    ArmDisk(disk_, context_.plan);
  }
}

}  // namespace hpvm::server::sim
