// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/testing/store_script.h"

#include <algorithm>
#include <iterator>

#include "server/jobs/sqlite/sqlite_job_database.h"
#include "server/jobs/testing/job_writes.h"

namespace hpvm::server {
namespace {

constexpr int64_t kStartUnixNs = 1'700'000'000'000'000'000;
constexpr uint64_t kBlobTexts = 12;
// Small, so that a script of 200 steps moves the log several times.
constexpr int kLogPages = 40;

std::span<const uint8_t> BytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

void AddBlobs(Rng& rng, StoredJob* job, ScriptStep* step) {
  for (uint64_t i = rng.Below(3); i > 0; --i) {
    const uint64_t number = rng.Below(kBlobTexts);
    const std::string text = BlobText(number);
    const Sha256 hash = HashOf(text);
    internal::StoredBlob& blob = *job->add_blobs();
    blob.set_sha256(hash.bytes.data(), hash.bytes.size());
    blob.set_size_bytes(text.size());
    step->blobs.push_back(number);
  }
}

InsertJobs MakeScriptInsert(Rng& rng, size_t index, ScriptStep* step) {
  const std::string id = "job-" + std::to_string(index);
  const int64_t now = kStartUnixNs + static_cast<int64_t>(index) * 1'000'000;
  // Some keys are known: those inserts must be refused.
  const std::string key = rng.Below(2) == 0 ? "key-" + std::to_string(rng.Below(40)) : "";
  InsertJobs insert = MakeInsert(step->tenant, id, key, now);
  insert.jobs.front().clear_blobs();
  if (rng.Below(4) == 0) {
    for (uint64_t i = rng.Below(4); i > 0; --i) {
      insert.jobs.push_back(insert.jobs.front());
      insert.jobs.back().mutable_job()->set_id(id + "-" + std::to_string(i));
    }
    for (StoredJob& job : insert.jobs) {
      job.mutable_job()->set_array_id("array-" + std::to_string(index));
    }
  }
  for (StoredJob& job : insert.jobs) {
    AddBlobs(rng, &job, step);
    job.set_stored_bytes(rng.Below(10'000));
  }
  if (insert.jobs.size() > 1 && rng.Below(2) == 0) {
    ShareInArray(&insert);
  }
  return insert;
}

JobWrite MakeScriptChange(Rng& rng, size_t index, const StoredJob& present, ScriptStep* step) {
  const bool is_running = present.job().state() == v1::JOB_STATE_RUNNING;
  constexpr v1::JobState kNext[] = {v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_DEAD,
                                    v1::JOB_STATE_ACCEPTED};
  ChangeJob change = MakeChange(present, is_running ? kNext[rng.Below(std::size(kNext))] : v1::JOB_STATE_RUNNING);
  if (IsTerminal(change.job.job().state())) {
    change.job.mutable_job()->set_ended_unix_ns(kStartUnixNs + static_cast<int64_t>(index) * 1'000'000);
    change.results.emplace().add_outputs()->set_data(std::string(rng.Below(3'000), 'r'));
    AddBlobs(rng, &change.job, step);
  }
  change.lease += rng.Below(12) == 0 ? 1 : 0;  // Must be refused.
  return change;
}

JobWrite MakeScriptWrite(Rng& rng, size_t index, const StoreModel& model, ScriptStep* step) {
  std::vector<const StoreModel::Row*> rows;
  for (const auto& [id, row] : model.rows()) {
    if (id.first == step->tenant) {
      rows.push_back(&row);
    }
  }
  const uint64_t kind = rng.Below(100);
  if (kind < 35 || rows.empty()) {
    return MakeScriptInsert(rng, index, step);
  }
  const StoredJob& job = rows[rng.Below(rows.size())]->job;
  if (kind < 97) {
    if (!IsTerminal(job.job().state())) {
      return MakeScriptChange(rng, index, job, step);
    }
    return DropJob{rng.Below(12) == 0 ? "stranger" : job.tenant(), job.job().id(), rng.Below(2) == 0};
  }
  return ForgetKeys{kStartUnixNs + static_cast<int64_t>(rng.Below(index + 1)) * 1'000'000};
}

// A page that cannot be read is a fault that a check may report, and no damage.
bool IsAboutReading(const std::string& fault) {
  return fault.find("unable to get the page") != fault.npos || fault.find("disk I/O error") != fault.npos;
}

// Lists every file below a folder.
Status ListFiles(Disk& disk, const std::string& folder, std::set<std::string>* files) {
  HPVMD_ASSIGN_OR_RETURN(std::vector<DiskEntry> entries, disk.List(folder));
  for (const DiskEntry& entry : entries) {
    if (entry.is_folder) {
      HPVMD_RETURN_IF_ERROR(ListFiles(disk, folder + "/" + entry.name, files));
    } else {
      files->insert(folder + "/" + entry.name);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string BlobText(uint64_t number) {
  return "blob " + std::to_string(number) + std::string(number * number * 90, static_cast<char>('a' + number));
}

ScriptStep MakeScriptStep(size_t index, const StoreModel& model) {
  SeededRng rng(index * 7919 + 1);
  ScriptStep step;
  step.tenant = JobWriteGenerator::Tenants()[rng.Below(3)];
  if (index % 41 == 40) {
    step.kind = ScriptStep::Kind::kReopen;
  } else if (index % 67 == 66) {
    step.kind = ScriptStep::Kind::kBackUp;
  } else if (index % 29 == 28) {
    step.kind = ScriptStep::Kind::kCheck;
  } else if (index % 17 == 16) {
    step.kind = ScriptStep::Kind::kShrink;
  } else if (index % 9 == 8) {
    step.kind = ScriptStep::Kind::kRead;
  } else {
    // Several writes share a commit now and then.
    step.writes.push_back(MakeScriptWrite(rng, index, model, &step));
    if (rng.Below(3) == 0) {
      step.writes.push_back(MakeScriptInsert(rng, 1'000 + index, &step));
    }
  }
  return step;
}

Status ScriptedStore::Open(StoreModel* model) {
  Close();
  const std::string folder = options_.root + "/blobs";
  if (options_.has_reserve) {
    room_.emplace(DiskRoomOptions{.disk = options_.disk, .clock = &clock_, .folder = options_.root});
    HPVMD_RETURN_IF_ERROR(room_->Start());
  }
  HPVMD_RETURN_IF_ERROR(options_.disk->MakeFolder(folder));
  HPVMD_RETURN_IF_ERROR(options_.disk->SyncFolder(options_.root));
  SqliteJobDatabaseOptions options;
  options.path = options_.root + "/jobs.db";
  options.vfs = options_.vfs;
  options.disk = options_.disk;
  options.log_pages_max = kLogPages;
  options.spare_pages = 2;
  HPVMD_ASSIGN_OR_RETURN(database_, OpenSqliteJobDatabase(options));
  blobs_ = std::make_unique<BlobFolder>(*options_.disk, folder);
  auto is_used = [database = database_.get()](std::string_view tenant, const Sha256& hash) {
    StatusOr<bool> used = database->UsesBlob(tenant, hash);
    return !used.ok() || *used;
  };
  HPVMD_RETURN_IF_ERROR(blobs_->Sweep(is_used).status());
  blobs_->SetIsUsed(is_used);
  blobs_->SetRoom(room_.has_value() ? &*room_ : nullptr);
  HPVMD_ASSIGN_OR_RETURN(uint64_t lease, database_->NextLease());
  if (lease <= model->lease) {
    Complain("Lease " + std::to_string(lease) + " comes after " + std::to_string(model->lease) + ".");
  }
  model->lease = lease;
  CommitQueueOptions queue;
  queue.database = database_.get();
  queue.blobs = blobs_.get();
  queue.room = room_.has_value() ? &*room_ : nullptr;
  queue.clock = &clock_;
  queue.stage_rows = 1;
  queue_ = std::make_unique<CommitQueue>(queue);
  return absl::OkStatus();
}

void ScriptedStore::Close() {
  queue_.reset();  // Also destroys the pins of unanswered writes, which query the database.
  blobs_.reset();
  database_.reset();
}

void ScriptedStore::LookForRoom() {
  clock_.Advance(DiskRoom::kAwaited + std::chrono::seconds(1));
  room_->Look();
}

void ScriptedStore::Complain(const std::string& what) { wrong += what + "\n"; }

void ScriptedStore::Run(StoreModel* model, size_t first, size_t end, const std::function<void(size_t)>& on_told) {
  for (size_t index = first; index < end && !stopped; ++index) {
    RunStep(MakeScriptStep(index, *model), model);
    if (!stopped && on_told != nullptr) {
      on_told(index);
    }
  }
}

void ScriptedStore::RunStep(const ScriptStep& step, StoreModel* model) {
  switch (step.kind) {
    case ScriptStep::Kind::kWrite:
      Write(step, model);
      break;
    case ScriptStep::Kind::kRead:
      Read(model);
      break;
    case ScriptStep::Kind::kReopen:
      stopped = !Open(model).ok();
      break;
    case ScriptStep::Kind::kBackUp:
      BackUp(model);
      break;
    case ScriptStep::Kind::kShrink:
      Shrink();
      break;
    case ScriptStep::Kind::kCheck:
      if (StatusOr<std::vector<std::string>> faults = database_->Check();
          faults.ok() && !faults->empty() && !IsAboutReading(faults->front())) {
        Complain("The database is unsound while it is used: " + faults->front());
      }
      break;
  }
}

void ScriptedStore::Write(const ScriptStep& step, StoreModel* model) {
  std::vector<std::string> texts;
  std::vector<BlobSource> sources;
  std::transform(step.blobs.begin(), step.blobs.end(), std::back_inserter(texts), BlobText);
  for (const std::string& text : texts) {
    BlobSource source;
    source.bytes = BytesOf(text);
    sources.push_back(source);
  }
  StatusOr<std::vector<PinnedBlob>> pinned = blobs_->PutMany(step.tenant, sources);
  if (!pinned.ok()) {
    if (absl::IsResourceExhausted(pinned.status())) {
      ++refused;
    } else {
      queue_->Break(pinned.status());
      stopped = true;
    }
    return;
  }
  auto pins = std::make_shared<std::vector<PinnedBlob>>(*std::move(pinned));
  for (const JobWrite& write : step.writes) {
    queue_->Add(write,
                [this, write, pins, model](const WriteResult& result) { Answer(write, result, was_sound_, model); });
  }
  pins.reset();
  CommitAll();
}

// Commits until nothing is due; writes that wait for room are tried again a few times.
void ScriptedStore::CommitAll() {
  for (int tries = 0; tries < 4 && queue_->NextTime() != kNever;) {
    if (queue_->NextTime() > clock_.Now()) {
      clock_.Advance(queue_->NextTime() - clock_.Now());
      ++tries;
      if (room_.has_value()) {
        room_->Look();
      }
    }
    const JobStoreHealth before = queue_->Health();
    was_sound_ = before.accepts_writes || before.is_transient;
    for (const CommitAnswer& answer : queue_->CommitSome()) {
      answer.Give();
    }
  }
  const JobStoreHealth health = queue_->Health();
  stopped = stopped || (!health.accepts_writes && !health.is_transient);
}

void ScriptedStore::Answer(const JobWrite& write, const WriteResult& result, bool was_sound, StoreModel* model) {
  const absl::StatusCode code = result.status.code();
  if (code == absl::StatusCode::kDataLoss) {
    if (was_sound) {  // This batch may be on disk or not; later batches were not even tried.
      if_written = if_written.has_value() ? std::move(if_written) : std::optional<StoreModel>(*model);
      if_written->Apply(write);
    }
    return;
  }
  if (code == absl::StatusCode::kResourceExhausted) {
    ++refused;
    return;
  }
  if (const absl::StatusCode want = model->Apply(write); want != code) {
    Complain("A write was answered with " + Message(result.status) + " (" + std::to_string(static_cast<int>(code)) +
             ") instead of code " + std::to_string(static_cast<int>(want)) + ".");
  }
  if (const auto* insert = std::get_if<InsertJobs>(&write); insert != nullptr && result.status.ok()) {
    model->SetSequences(*insert, result.sequences);
  }
}

// Reads may fail, but not return wrong data.
void ScriptedStore::Read(StoreModel* model) {
  for (const auto& [id, row] : model->rows()) {
    StatusOr<StoredJob> job = database_->Find(id.first, id.second);
    if (job.ok() ? job->job().state() != row.job.job().state() : absl::IsNotFound(job.status())) {
      Complain("Job " + id.second + " is read wrongly: " + Message(job.status()));
    }
    StatusOr<StoredResults> results = database_->ReadResults(id.first, id.second);
    if (results.ok() && !row.is_dropped && results->outputs_size() != (row.results.has_value() ? 1 : 0)) {
      Complain("The results of job " + id.second + " are read wrongly.");
    }
    for (const internal::StoredBlob& blob : row.job.blobs()) {
      Sha256 hash;
      std::copy_n(blob.sha256().begin(), hash.bytes.size(), hash.bytes.begin());
      if (absl::IsNotFound(blobs_->Read(id.first, hash, blob.size_bytes()).status())) {
        Complain("A blob of job " + id.second + " is gone.");
      }
    }
  }
}

// Shrinks in short steps, until only spare pages are left.
void ScriptedStore::Shrink() {
  StatusOr<bool> more = true;
  for (int steps = 0; steps < 20 && more.value_or(false); ++steps) {
    more = database_->Shrink(4);
  }
  if (absl::IsDataLoss(more.status())) {
    queue_->Break(more.status());
    stopped = true;
  }
}

// A copy that is reported as made is complete, and the store continues as before.
void ScriptedStore::BackUp(StoreModel* model) {
  const std::string path = options_.root + "/backup-" + std::to_string(backups_++);
  if (!database_->BackUp(path).ok()) {
    return;
  }
  SqliteJobDatabaseOptions options;
  options.path = path;
  options.vfs = options_.vfs;
  options.disk = options_.disk;
  StatusOr<std::unique_ptr<JobDatabase>> copy = OpenSqliteJobDatabase(options);
  if (!copy.ok()) {
    return;  // A fault of the disk; runs without faults check the copy itself.
  }
  StoreModel expected = *model;
  if (std::string differs = expected.Compare(**copy, *blobs_, /*deep=*/false);
      !differs.empty() && differs.find("fail") == differs.npos) {
    Complain("The backup differs: " + differs);
  }
}

std::string ScriptedStore::CheckRecovered(StoreModel* model, const std::optional<StoreModel>& written) {
  std::string differs = model->Compare(*database_, *blobs_, /*deep=*/true);
  if (!differs.empty() && written.has_value()) {
    StoreModel other = *written;
    if (std::string also = other.Compare(*database_, *blobs_, /*deep=*/true); also.empty()) {
      const uint64_t lease = model->lease;
      *model = std::move(other);
      model->lease = lease;
      differs.clear();
    } else {
      differs += "and, with what may have been written:\n" + also;
    }
  }
  std::set<std::string> want, found;
  for (const auto& [tenant, hash] : model->Blobs()) {
    const std::string hex = ToHex(hash);
    want.insert(options_.root + "/blobs/" + tenant + "/" + hex.substr(0, 2) + "/" + hex);
  }
  const Status listed = ListFiles(*options_.disk, options_.root + "/blobs", &found);
  if (!listed.ok() || want != found) {
    differs += "There are " + std::to_string(found.size()) + " files of blobs instead of " +
               std::to_string(want.size()) + ". " + Message(listed) + "\n";
  }
  return differs;
}

}  // namespace hpvm::server
