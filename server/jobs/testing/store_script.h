// SPDX-License-Identifier: Apache-2.0
// A fixed script of a daemon's operations on its store, a model of the answers, and a comparison of the two.
//
// The script's next step follows from the model alone, so that the model can be continued elsewhere: by a parent that
// only learns how many steps were acknowledged to its child before it died.
#ifndef HPVMD_SERVER_JOBS_TESTING_STORE_SCRIPT_H_
#define HPVMD_SERVER_JOBS_TESTING_STORE_SCRIPT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/io/disk.h"
#include "base/status.h"
#include "server/jobs/blobs/blob_folder.h"
#include "server/jobs/blobs/disk_room.h"
#include "server/jobs/commit_queue.h"
#include "server/jobs/rows/job_database.h"

namespace hpvm::server {

// StoreModel is the state that must be on disk, derived from the answers. Written from the interface, not from an
// implementation.
class StoreModel {
 public:
  struct Row {
    StoredJob job;
    std::string request;
    std::optional<StoredResults> results;
    std::string key;
    bool is_dropped = false;
  };
  struct Key {
    std::string job_id;
    Sha256 request_hash;
    size_t rows = 0;
    int64_t created_unix_ns = 0;
  };
  using Id = std::pair<std::string, std::string>;  // Tenant, and the job's id or the key.

  // Does what the database must do with `write`, and returns the code that it must return.
  absl::StatusCode Apply(const JobWrite& write);
  void SetSequences(const InsertJobs& insert, const std::vector<uint64_t>& sequences);

  // Returns the differences in sentences; empty when there are none. Adopts sequences that were not reported. `deep`
  // includes the blobs' bytes and the database's own check.
  std::string Compare(JobDatabase& database, BlobFolder& blobs, bool deep);
  // Returns the blobs that rows need: tenant and hash.
  std::set<std::pair<std::string, Sha256>> Blobs() const;

  const std::map<Id, Row>& rows() const { return rows_; }
  const std::map<Id, Key>& keys() const { return keys_; }
  uint64_t lease = 0;  // The last one given.

 private:
  absl::StatusCode Insert(const InsertJobs& insert);
  absl::StatusCode Change(const ChangeJob& change);
  absl::StatusCode Drop(const DropJob& drop);
  std::string CompareRow(const Id& id, Row* row, JobDatabase& database, BlobFolder* blobs);
  std::string CompareUse(JobDatabase& database) const;

  std::map<Id, Row> rows_;
  std::map<Id, Key> keys_;
  std::set<Id> keys_ever_;
};

// Returns the contents of blob `number`, from some bytes to several pages; the database sees its hash and size only.
std::string BlobText(uint64_t number);

struct ScriptStep {
  enum class Kind : uint8_t { kWrite, kRead, kReopen, kBackUp, kCheck, kShrink };
  Kind kind = Kind::kWrite;
  std::string tenant;           // The blobs' tenant.
  std::vector<uint64_t> blobs;  // Put before the writes.
  std::vector<JobWrite> writes;
};
inline constexpr size_t kScriptSteps = 200;
ScriptStep MakeScriptStep(size_t index, const StoreModel& model);

// ScriptedStore is the store on a disk, with the script running on it.
class ScriptedStore {
 public:
  struct Options {
    Disk* disk = nullptr;
    std::string vfs;           // SQLite's name of the disk; empty: its default.
    std::string root;          // Exists. Contains the database and the folder of blobs.
    bool has_reserve = false;  // Without a reserve a full disk is noticed by failed writes only.
  };
  explicit ScriptedStore(Options options) : options_(std::move(options)) {}
  ~ScriptedStore() { Close(); }

  // Starts as a daemon does: opens, sweeps, takes a lease.
  Status Open(StoreModel* model);
  void Close();

  // Runs steps [first, end) until the store is broken or does not open. `on_told` is called after each step whose
  // answers are complete.
  void Run(StoreModel* model, size_t first, size_t end, const std::function<void(size_t)>& on_told = nullptr);

  void RunStep(const ScriptStep& step, StoreModel* model);
  // Lets a moment pass, after which the daemon looks for room.
  void LookForRoom();
  const std::optional<DiskRoom>& room() const { return room_; }

  // Results of Run:
  bool stopped = false;                  // Broken, or not opened again: a daemon would have ended.
  std::optional<StoreModel> if_written;  // The model with the batch whose outcome is not known.
  std::string wrong;                     // Answers that contradict the model; empty: none.
  uint64_t refused = 0;                  // Number of writes for which there was no room.

  // Called after Open: checks that everything acknowledged is there and nothing else, including the files; then
  // continues with that model. Returns the errors. `if_written` is the model if the batch in doubt was written.
  std::string CheckRecovered(StoreModel* model, const std::optional<StoreModel>& if_written);

 private:
  void Write(const ScriptStep& step, StoreModel* model);
  void Answer(const JobWrite& write, const WriteResult& result, bool was_sound, StoreModel* model);
  void CommitAll();
  void Read(StoreModel* model);
  void BackUp(StoreModel* model);
  void Shrink();
  void Complain(const std::string& what);

  const Options options_;
  ManualClock clock_;
  bool was_sound_ = true;
  uint64_t backups_ = 0;
  std::optional<DiskRoom> room_;
  std::unique_ptr<JobDatabase> database_;
  std::unique_ptr<BlobFolder> blobs_;
  std::unique_ptr<CommitQueue> queue_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_TESTING_STORE_SCRIPT_H_
