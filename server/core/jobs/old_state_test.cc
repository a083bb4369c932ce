// SPDX-License-Identifier: Apache-2.0
// Tests state folders that earlier releases left when they were killed (tests/golden/state), opened by this one: every
// job is there, can be read and retried, and waiting jobs go on.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "server/audit/audit_chain.h"
#include "server/identity/identity_database.h"
#include "server/jobs/job_admin.h"
#include "server/jobs/job_store.h"
#include "server/jobs/sqlite/sqlite_job_database.h"
#include "server/jobs/stored_request.h"
#include "server/jobs/testing/temporary_folder.h"
#include "server/process/log.h"
#include "server/testing/job_fixture.h"

namespace hpvm::server {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::IsEmpty;

constexpr char kTenant[] = "local";
const char* const kFolder = HPVMD_SOURCE_DIR "/tests/golden/state";

std::string BytesOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

// One line of NAME.txt: the name of a job in tests/golden/state/make.py, its id, and its state as it was shown.
struct KnownJob {
  std::string name, id, state;
};

class OldStateTest : public testing::JobFixture, public ::testing::WithParamInterface<std::string> {
 protected:
  static void SetUpTestSuite() { StartLog("fatal"); }

  OldStateTest() {
    End();
    const std::string unpack = "tar -xzf " + std::string(kFolder) + "/" + GetParam() + ".tar.gz -C " + path_;
    EXPECT_EQ(std::system(unpack.c_str()), 0);
    std::ifstream lines(std::string(kFolder) + "/" + GetParam() + ".txt");
    for (KnownJob job; lines >> job.name >> job.id >> job.state;) {
      known_.push_back(job);
    }
    EXPECT_GE(known_.size(), 10u);
  }

  const std::string& IdOf(const std::string& name) const {
    const auto found =
        std::find_if(known_.begin(), known_.end(), [&](const KnownJob& job) { return job.name == name; });
    EXPECT_NE(found, known_.end()) << name;
    return found == known_.end() ? known_.front().id : found->id;
  }

  // Starts a core on the folder's state: its database, and its blobs on the simulated disk.
  void StartOnState() {
    state_ = std::make_unique<testing::StoredState>();
    SqliteJobDatabaseOptions options;
    options.path = path_ + "/jobs.db";
    StatusOr<std::unique_ptr<JobDatabase>> database = OpenSqliteJobDatabase(options);
    ASSERT_TRUE(database.ok()) << database.status();
    state_->other = *std::move(database);
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path_ + "/blobs")) {
      const std::string path = "/" + fs::relative(entry.path(), path_).string();
      if (entry.is_directory()) {
        state_->disk.AddFolder(path);
        continue;
      }
      const std::string bytes = BytesOf(entry.path());
      auto file = state_->disk.Open(path, Disk::Mode::kCreate);
      ASSERT_TRUE(file.ok()) << file.status();
      ASSERT_TRUE((*file)->WriteAt(0, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}).ok());
    }
    // A second after the last submit: nothing has expired.
    const StoredJob newest = state_->jobs().Find(kTenant, IdOf("dependent_on_array")).value_or(StoredJob());
    clock_.JumpWall(newest.job().created_unix_ns() + 1'000'000'000 - clock_.WallNs());
    Start();
    tenant_ = *core_->tenants().FindTenant(kTenant);
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path();
  std::vector<KnownJob> known_;
};

// The store, opened as a daemon opens it, has this release's version, is whole, and has everything that each job
// needs.
TEST_P(OldStateTest, IsWhole) {
  {
    const auto store = OpenLocalJobStore(path_, nullptr);
    ASSERT_TRUE(store.ok()) << store.status();
    JobDatabase& database = (*store)->database();
    EXPECT_EQ(database.List(kTenant, JobFilter())->size(), known_.size());
    for (const KnownJob& job : known_) {
      SCOPED_TRACE(job.name);
      const StatusOr<StoredJob> row = database.Find(kTenant, job.id);
      ASSERT_TRUE(row.ok()) << row.status();
      // The stored state.
      const std::string shown = job.state == "JOB_STATE_QUEUED" ? "JOB_STATE_ACCEPTED" : job.state;
      EXPECT_EQ(v1::JobState_Name(row->job().state()), shown);
      const StatusOr<StoredRequest> request = ReadWholeRequest(database, (*store)->blobs(), kTenant, job.id);
      ASSERT_TRUE(request.ok()) << request.status();
      EXPECT_EQ(request->request().document().graph_sha256(), row->job().graph_sha256());
      const StatusOr<StoredResults> results = database.ReadResults(kTenant, job.id);
      ASSERT_TRUE(results.ok()) << results.status();
      EXPECT_EQ(results->outputs_size(), job.state == "JOB_STATE_SUCCEEDED" ? 1 : 0);
      for (const internal::StoredBlob& blob : row->blobs()) {
        Sha256 hash;
        std::copy(blob.sha256().begin(), blob.sha256().end(), hash.bytes.begin());
        EXPECT_TRUE((*store)->blobs().Read(kTenant, hash, blob.size_bytes()).ok());
      }
    }
    EXPECT_EQ(database.FindKey(kTenant, "key-queued")->job_id, IdOf("queued"));
    EXPECT_EQ(database.FindKey(kTenant, "key-succeeded")->state, v1::JOB_STATE_UNSPECIFIED);
  }
  const auto faults = CheckJobs(path_);
  ASSERT_TRUE(faults.ok()) << faults.status();
  EXPECT_THAT(*faults, IsEmpty());
}

// Waiting jobs run to their end in order, also those that were running, and ended jobs can be retried.
TEST_P(OldStateTest, GoesOn) {
  with_index_ = true;
  StartOnState();
  for (int round = 0; round < 20; ++round) {
    while (!OpenRuns().empty()) {
      AnswerRun(Result("ABCDEFGH"));
    }
    Advance(std::chrono::seconds(5));
  }
  for (const KnownJob& job : known_) {
    SCOPED_TRACE(job.name);
    const bool had_ended = job.state == "JOB_STATE_FAILED" || job.state == "JOB_STATE_CANCELLED";
    EXPECT_EQ(State(job.id), had_ended ? job.state.substr(10) : "SUCCEEDED") << Job(job.id).error().message();
    v1::RetryJobRequest retry;
    retry.set_job_id(job.id);
    const AnsweredRef answer = Retry(retry);
    ASSERT_EQ(answer->code(), absl::StatusCode::kOk) << (answer->outcome ? answer->outcome->status : Status());
    AnswerRun(Result("ABCDEFGH"));
    EXPECT_EQ(State(answer->id()), "SUCCEEDED");
  }
  EXPECT_EQ(Job(IdOf("running")).lost_attempts_size(), 1);
  EXPECT_THAT(*state_->jobs().Check(), IsEmpty());
  End();
}

// Tenants, tokens and the audit are unchanged.
TEST_P(OldStateTest, KeepsWhoMayDoWhat) {
  const auto database = IdentityDatabase::Open(path_ + "/identity.sqlite");
  ASSERT_TRUE(database.ok()) << database.status();
  const StatusOr<IdentityContents> contents = (*database)->Load();
  ASSERT_TRUE(contents.ok()) << contents.status();
  const auto blue = std::find_if(contents->tenants.begin(), contents->tenants.end(),
                                 [](const v1::Tenant& tenant) { return tenant.name() == "blue"; });
  ASSERT_NE(blue, contents->tenants.end());
  EXPECT_EQ(blue->weight(), 3u);
  ASSERT_EQ(contents->tokens.size(), 1u);
  EXPECT_EQ(contents->tokens[0].token.tenant(), "blue");
  EXPECT_EQ(contents->tokens[0].token.name(), "night");
  AuditVerifier verifier;
  EXPECT_EQ(verifier.BeginFile("audit-1.jsonl"), absl::OkStatus());
  EXPECT_EQ(verifier.PushBytes(BytesOf(path_ + "/audit/audit-1.jsonl")), absl::OkStatus());
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".txt") {
      names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Releases, OldStateTest, ::testing::ValuesIn(Names()),
                         [](const auto& test) { return "State" + test.param; });

}  // namespace
}  // namespace hpvm::server
