// SPDX-License-Identifier: Apache-2.0
// Tests that flip bits in the rows of a store on disk: whatever is damaged, no job runs on a condition that is not
// met.
#include <sqlite3.h>

#include <filesystem>
#include <fstream>

#include "server/jobs/scrub.h"
#include "server/jobs/sqlite/sqlite_job_database.h"
#include "server/jobs/testing/temporary_folder.h"
#include "server/process/log.h"
#include "server/testing/job_fixture.h"

namespace hpvm::server {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

constexpr char kOutput[] = "ABCDEFGH";
constexpr auto kEnded = v1::JobDependency::CONDITION_ENDED, kFailed = v1::JobDependency::CONDITION_FAILED,
               kSucceeded = v1::JobDependency::CONDITION_SUCCEEDED;

// Editor changes the database as another process with any tool might: by SQL, or bit by bit.
class Editor {
 public:
  explicit Editor(const std::string& path) { EXPECT_EQ(sqlite3_open(path.c_str(), &db_), SQLITE_OK); }
  ~Editor() { sqlite3_close(db_); }
  Editor(const Editor&) = delete;
  // Returns the first column of all rows.
  std::vector<std::string> Query(const std::string& sql) {
    std::vector<std::string> answer;
    EXPECT_EQ(sqlite3_exec(
                  db_, sql.c_str(),
                  [](void* into, int, char** values, char**) {
                    static_cast<std::vector<std::string>*>(into)->push_back(values[0] != nullptr ? values[0] : "");
                    return 0;
                  },
                  &answer, nullptr),
              SQLITE_OK)
        << sql << ": " << sqlite3_errmsg(db_);
    return answer;
  }

 private:
  sqlite3* db_ = nullptr;
};

class DamageTest : public testing::JobFixture {
 protected:
  struct Known {
    std::vector<v1::JobDependency> after;
    std::string array_id;
    std::string state;     // State on disk, before the damage.
    std::string end;       // State in which the job ends when nothing is damaged.
    uint32_t attempt = 0;  // Attempts before the damage.
    uint64_t sequence = 0;
  };

  static void SetUpTestSuite() { StartLog("fatal"); }

  DamageTest() {
    End();
    config_.jobs_running_per_tenant_max = 3;
    state_ = std::make_unique<testing::StoredState>();
    OpenStore();
    Start();
    Fill();
    Crash();
    wall_ns_ = clock_.WallNs();
    state_->other.reset();
    std::filesystem::copy_file(path_, whole_);
    OpenStore();
    JobFilter all;
    all.count_max = 1'000;
    const std::vector<StoredJob> rows = state_->jobs().List("ann", all).value();
    for (const StoredJob& row : rows) {
      const v1::Job& job = row.job();
      known_[job.id()] = {{job.after().begin(), job.after().end()},
                          job.array_id(),
                          testing::StateName(job.state()),
                          "",
                          job.attempt(),
                          row.sequence()};
    }
    Start();
    RunAll();
    for (auto& [id, known] : known_) {
      known.end = State(id);
    }
  }

  Status TryOpenStore(int64_t check_ms_max) {
    SqliteJobDatabaseOptions options;
    options.path = path_;
    options.read_connections = 1;
    options.check_ms_max = check_ms_max;
    HPVMD_ASSIGN_OR_RETURN(state_->other, OpenSqliteJobDatabase(options));
    return absl::OkStatus();
  }
  void OpenStore() { ASSERT_EQ(TryOpenStore(/*check_ms_max=*/0), absl::OkStatus()); }
  // Returns why a daemon would not start on the present store; empty when it would.
  std::string RefusalOf() {
    if (const Status opened = TryOpenStore(/*check_ms_max=*/10'000); !opened.ok()) {
      return Message(opened);
    }
    std::vector<DamagedJob> damaged;
    const Status loaded = state_->jobs().LoadLive([](const LiveRow&) {}, &damaged);
    return loaded.ok() ? "" : Message(loaded);
  }

  // Makes jobs in every state, arrays, and conditions of each kind; two jobs end without their dependents learning of
  // it.
  void Fill() {
    done_ = SubmitJob(Request("key-done"));
    AnswerRun(Result(kOutput));
    const std::string trapped = SubmitJob(Request());
    AnswerRun(Failure(Aborted("A trap.")));
    SubmitAfter(trapped, kFailed);  // This job starts, and runs.
    running_ = SubmitJob(Request("key-running"));
    waiting_ = SubmitAfter(running_);
    SubmitAfter(waiting_);
    SubmitAfter(waiting_, kEnded);
    SubmitAfter(running_, kFailed);
    const std::string element = SubmitJob(ArrayRequest());
    array_ = Job(element).array_id();
    SubmitAfter(array_);
    SubmitAfter(array_, kEnded);
    // The end of these two is on disk, but not its effect on their dependents.
    const std::string success = OpenJobAfter(kFailed), failure = OpenJobAfter(kSucceeded);
    store_->hold_commits = true;
    AnswerOf(success, Result(kOutput));
    AnswerOf(failure, Failure(Aborted("A trap.")));
    store_->StepCommit();
  }
  v1::SubmitRequest ArrayRequest() {
    v1::SubmitRequest request = Request("key-array");
    request.mutable_array()->set_last(2);
    request.mutable_array()->set_running_max(1);
    return request;
  }
  // Makes a job that runs, before all others, with another that depends on it.
  std::string OpenJobAfter(v1::JobDependency::Condition condition) {
    config_.jobs_running_per_tenant_max += 1;
    core_->SetConfig(config_);
    v1::SubmitRequest request = Request();
    request.mutable_options()->set_priority(1);
    const std::string id = SubmitJob(request);
    SubmitAfter(id, condition);
    EXPECT_EQ(State(id), "RUNNING");
    return id;
  }
  // The newest runs are those of OpenJobAfter, in their order.
  void AnswerOf(const std::string& id, supervisor::RunReply reply) {
    const auto open = OpenRuns();
    ASSERT_GE(open.size(), 2u);
    const auto& run = open[open.size() - (open_ended_++ == 0 ? 2 : 1)];
    run.first->AnswerRun(std::move(reply), run.second);
    Pump();
  }

  // Lets every run succeed, until nothing is left to do.
  void RunAll() {
    for (int round = 0; round < 12; ++round) {
      while (!OpenRuns().empty()) {
        AnswerRun(Result(kOutput));
      }
      Advance(std::chrono::seconds(5));
    }
  }

  void RestoreWhole() {
    if (store_ != nullptr) {
      Crash();
    }
    state_->other.reset();
    for (const char* suffix : {"", "-wal", "-shm"}) {
      std::filesystem::remove(path_ + suffix);
    }
    std::filesystem::copy_file(whole_, path_);
    clock_.JumpWall(wall_ns_ - clock_.WallNs());  // Deadlines are judged by the wall clock.
  }

  // Returns the truth, or the worst case: a damaged job counts as neither succeeded nor failed.
  bool Has(const std::string& id, const std::string& damaged, v1::JobDependency::Condition condition) {
    v1::Job job;
    const Status read = core_->job_reader().GetJob(*tenant_, id, &job);
    const bool ended = read.ok() ? IsTerminal(job.state()) : IsTerminalName(known_.at(id).state);
    const std::string state = read.ok() ? testing::StateName(job.state()) : known_.at(id).state;
    if (condition == kEnded) {
      return ended;
    }
    if (id == damaged && IsTerminalName(known_.at(id).state) && condition == kFailed) {
      return false;
    }
    return ended && (state == "SUCCEEDED") == (condition != kFailed);
  }
  static bool IsTerminalName(const std::string& state) { return state != "ACCEPTED" && state != "RUNNING"; }

  bool IsMet(const v1::JobDependency& dependency, const std::string& damaged) {
    for (const auto& [id, known] : known_) {
      if ((id == dependency.job_id() || known.array_id == dependency.job_id()) &&
          !Has(id, damaged, dependency.condition())) {
        return false;
      }
    }
    return true;
  }
  bool ComesAfter(const std::string& id, const std::string& damaged) {
    for (const v1::JobDependency& dependency : known_.at(id).after) {
      for (const auto& [other, known] : known_) {
        if ((other == dependency.job_id() || known.array_id == dependency.job_id()) &&
            (other == damaged || ComesAfter(other, damaged))) {
          return true;
        }
      }
    }
    return false;
  }

  // Starts on the present store, runs everything, and checks each job.
  void CheckAll(const std::string& damaged, bool is_harmless) {
    OpenStore();
    Start();
    RunAll();
    if (!IsTerminalName(known_.at(damaged).state)) {
      EXPECT_THAT(*state_->jobs().Check(), ::testing::Not(::testing::Contains(HasSubstr("add up to other numbers"))));
    }
    for (const auto& [id, known] : known_) {
      SCOPED_TRACE("job " + id + ", which was " + known.state + (id == damaged ? ", damaged" : ""));
      v1::Job job;
      const Status read = core_->job_reader().GetJob(*tenant_, id, &job);
      if (id == damaged && IsTerminalName(known.state)) {
        EXPECT_TRUE(!read.ok() || testing::StateName(job.state()) == known.state || IsDataLoss(job))
            << testing::StateName(job.state());
        continue;
      }
      ASSERT_TRUE(read.ok()) << read;
      EXPECT_TRUE(IsTerminal(job.state())) << testing::StateName(job.state());
      if (id == damaged && !is_harmless) {
        EXPECT_TRUE(IsDataLoss(job)) << testing::StateName(job.state()) << " " << job.error().message();
        continue;
      }
      if (!ComesAfter(id, damaged)) {
        EXPECT_EQ(testing::StateName(job.state()), known.end) << job.error().message();
      }
      if (job.attempt() > 0 && known.attempt == 0) {
        for (const v1::JobDependency& dependency : known.after) {
          EXPECT_TRUE(IsMet(dependency, damaged)) << "It ran on " << dependency.ShortDebugString();
        }
      }
    }
  }
  static bool IsDataLoss(const v1::Job& job) {
    return job.state() == v1::JOB_STATE_FAILED && job.error().code() == static_cast<int>(StatusCode::kDataLoss);
  }

  // Returns SQL for the column with one bit flipped; of texts and blobs a bit of the byte at `bit` / 8.
  static std::string Flipped(const std::string& column, bool is_text, int bit) {
    const std::string mask = std::to_string(is_text ? 1 << (bit % 8) : int64_t{1} << bit);
    if (!is_text) {
      return "((ifnull(" + column + ", 0) | " + mask + ") - (ifnull(" + column + ", 0) & " + mask + "))";
    }
    const std::string at = std::to_string(bit / 8 + 1);
    const std::string byte = "unicode(substr(" + column + ", " + at + ", 1))";
    return "substr(" + column + ", 1, " + at + " - 1) || char((" + byte + " | " + mask + ") - (" + byte + " & " + mask +
           ")) || substr(" + column + ", " + at + " + 1)";
  }

  // Flips one bit of a blob.
  static void FlipBlob(Editor& editor, const std::string& table, const std::string& column, uint64_t sequence,
                       uint64_t bit) {
    const std::string where = " WHERE sequence = " + std::to_string(sequence);
    std::string hex = editor.Query("SELECT hex(" + column + ") FROM " + table + where)[0];
    const size_t at = bit / 4 % hex.size();
    const auto digit = static_cast<unsigned>(std::stoul(hex.substr(at, 1), nullptr, 16)) ^ (1u << (bit % 4));
    hex[at] = "0123456789ABCDEF"[digit];
    editor.Query("UPDATE " + table + " SET " + column + " = x'" + hex + "'" + where);
  }

  // Thousands of commits need no disk.
  const TemporaryFolder folder_{std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp"};
  const std::string path_ = folder_.path() + "/jobs.db", whole_ = folder_.path() + "/whole.db";
  std::string done_, running_, waiting_, array_;
  int open_ended_ = 0;
  int64_t wall_ns_ = 0;  // Time at which the store was as it is in `whole_`.
  std::map<std::string, Known> known_;
};

struct Column {
  const char* name;
  bool is_text;
  std::vector<int> bits;
  bool is_harmless;  // Damage to the column changes neither this job nor another one.
};

const Column kColumns[] = {
    {"sequence", false, {6, 40}, false},      {"id", true, {0, 41, 203}, false},
    {"tenant", true, {1, 17}, false},         {"array_id", true, {8, 90}, false},
    {"idempotency_key", true, {1, 34}, true}, {"request", false, {0, 1, 2, 20}, false},
    {"dropped", false, {0}, false},           {"ended", false, {0, 60}, false},
    {"bytes", false, {0, 30}, false},         {"state", false, {0, 1, 2, 3, 7}, false},
    {"attempt", false, {0, 31}, false},       {"lease", false, {0, 40}, false},
    {"sum", false, {0, 31}, false},
};

// Jobs are told apart by their dependencies, so the scene itself must have each kind.
TEST_F(DamageTest, SceneHasEachKind) {
  std::map<std::string, int> states, ends;
  for (const auto& [id, known] : known_) {
    ++states[known.state];
    ++ends[known.end];
  }
  EXPECT_GE(states["ACCEPTED"], 5);
  EXPECT_GE(states["RUNNING"], 2);
  EXPECT_GE(states["SUCCEEDED"], 2);
  EXPECT_GE(states["FAILED"], 2);
  EXPECT_GE(ends["SUCCEEDED"], 8);
  EXPECT_GE(ends["FAILED"], 4);  // Includes jobs that may never run.
}

// One bit of one column of one row is flipped at a time: the job ends as FAILED with DATA_LOSS, its dependents see
// that, and all others go on undisturbed.
TEST_F(DamageTest, FlippedColumns) {
  for (const auto& [id, known] : known_) {
    for (const Column& column : kColumns) {
      for (const int bit : column.bits) {
        SCOPED_TRACE(std::string(column.name) + " bit " + std::to_string(bit));
        RestoreWhole();
        {
          Editor editor(path_);
          const std::string row = " FROM jobs WHERE sequence = " + std::to_string(known.sequence);
          if (editor.Query(std::string("SELECT ") + column.name + row)[0].empty() && column.is_text) {
            continue;
          }
          editor.Query(std::string("UPDATE jobs SET ") + column.name + " = " +
                       Flipped(column.name, column.is_text, bit) +
                       " WHERE sequence = " + std::to_string(known.sequence));
        }
        // A job that never starts does not need its request.
        const bool is_request = std::string_view(column.name) == "request";
        CheckAll(id, column.is_harmless || (is_request && known.end != "SUCCEEDED"));
        if (HasFailure()) {
          FAIL() << "job " << id << ", which was " << known.state;
        }
      }
    }
  }
}

// The same holds for the record itself, at bits all over it.
TEST_F(DamageTest, FlippedRecords) {
  for (const auto& [id, known] : known_) {
    for (uint64_t bit = 3; bit < 4'000; bit += 397) {
      SCOPED_TRACE("record, bit " + std::to_string(bit));
      RestoreWhole();
      {
        Editor editor(path_);
        FlipBlob(editor, "jobs", "record", known.sequence, bit);
      }
      CheckAll(id, /*is_harmless=*/false);
      if (HasFailure()) {
        FAIL() << "job " << id << ", which was " << known.state;
      }
    }
  }
}

// A request that cannot be read any more fails only the jobs that would start with it.
TEST_F(DamageTest, FlippedRequests) {
  for (const auto& [id, known] : known_) {
    if (IsTerminalName(known.state) || !known.array_id.empty()) {
      continue;  // An array has one request for all of its elements.
    }
    for (const char* column : {"bytes", "sum"}) {
      RestoreWhole();
      {
        Editor editor(path_);
        const std::string where = " WHERE sequence = " + std::to_string(known.sequence);
        if (std::string_view(column) == "bytes") {
          FlipBlob(editor, "requests", "bytes", known.sequence, 77);
        } else {
          editor.Query("UPDATE requests SET sum = " + Flipped("sum", false, 5) + where);
        }
      }
      CheckAll(id, /*is_harmless=*/known.end != "SUCCEEDED");
      if (HasFailure()) {
        FAIL() << column << " of job " << id << ", which was " << known.state;
      }
    }
  }
}

// A key whose row is damaged is known again before any client is served, so its request runs once. Both the start and
// the scrub of a store in use repair it.
TEST_F(DamageTest, FlippedKeys) {
  const std::map<std::string, std::string> jobs = {
      {"key-done", done_}, {"key-running", running_}, {"key-array", array_}};
  for (const auto& [key, unit] : jobs) {
    for (const char* change : {"tenant", "idempotency_key", "scrub"}) {
      SCOPED_TRACE(key + ", " + change);
      RestoreWhole();
      const auto damage = [&, key = key](const std::string& column) {
        Editor editor(path_);
        editor.Query("UPDATE keys SET " + column + " = " + Flipped(column, true, 9) + " WHERE idempotency_key = '" +
                     key + "'");
        EXPECT_EQ(editor.Query("SELECT count(*) FROM keys WHERE tenant = 'ann' AND idempotency_key = '" + key + "'")[0],
                  "0");
      };
      const bool is_found_later = std::string_view(change) == "scrub";
      if (!is_found_later) {
        damage(change);
      }
      OpenStore();
      Start();
      if (is_found_later) {
        damage("tenant");
        Scrub scrub(state_->jobs(), store_->blobs(), nullptr);
        while (scrub.Step(1'000).value_or(0) != 0) {
        }
        EXPECT_EQ(scrub.mended_keys(), 1u);
      }
      const auto again = Submit(key == "key-array" ? ArrayRequest() : Request(key));
      EXPECT_TRUE(again->response.existed()) << again->id();
      EXPECT_EQ(key == "key-array" ? Job(again->id()).array_id() : again->id(), unit);
      RunAll();
      for (const auto& [id, known] : known_) {
        EXPECT_EQ(State(id), known.end) << id;
      }
      ASSERT_FALSE(HasFailure());
    }
  }
}

// Flips bytes in the file itself, where SQLite's own structure may be hit: the store is refused with a sentence that
// says so, or else no job runs that may not.
TEST_F(DamageTest, FlippedFile) {
  SeededRng draw(3);
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    RestoreWhole();
    {
      std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
      const auto at = static_cast<std::streamoff>(draw.Below(std::filesystem::file_size(path_)));
      file.seekg(at);
      const int byte = file.get();
      file.seekp(at);
      file.put(static_cast<char>(byte ^ (1 << draw.Below(8))));
    }
    if (const std::string sentence = RefusalOf(); !sentence.empty()) {
      EXPECT_THAT(sentence, ::testing::AnyOf(HasSubstr("damaged"), HasSubstr("malformed"), HasSubstr("not a database"),
                                             HasSubstr("not one of jobs"), HasSubstr("version"), HasSubstr("SQLite"),
                                             HasSubstr("job database")));
      ++refused;
      state_->other = std::make_unique<MemoryJobDatabase>();
      Start();  // Gives the crash a running daemon.
      continue;
    }
    Start();
    RunAll();
    for (const auto& [id, known] : known_) {
      v1::Job job;
      if (core_->job_reader().GetJob(*tenant_, id, &job).ok() && job.attempt() > 0 && known.attempt == 0) {
        for (const v1::JobDependency& dependency : known.after) {
          EXPECT_TRUE(IsMet(dependency, id)) << id << " ran on " << dependency.ShortDebugString();
        }
      }
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(refused, 3);
}

// Damage is found while the daemon runs: waiting jobs end as FAILED with DATA_LOSS, their dependents see that, and the
// store is whole again; jobs that run, or have ended, stay as they are.
TEST_F(DamageTest, ScrubEndsWhatWaits) {
  RestoreWhole();
  OpenStore();
  Start();
  ASSERT_EQ(State(waiting_), "ACCEPTED");
  Advance(std::chrono::seconds(5));
  ASSERT_EQ(State(running_), "RUNNING");
  {
    Editor editor(path_);
    for (const std::string& id : {waiting_, running_, done_}) {
      FlipBlob(editor, "jobs", "record", known_.at(id).sequence, 333);
    }
  }
  std::set<std::string> told;
  Scrub scrub(state_->jobs(), store_->blobs(), [&](const JobDamage& damage) {
    told.insert(damage.id);
    core_->OnDamage(damage);
  });
  while (scrub.Step(1'000).value_or(0) != 0) {
    Pump();
  }
  Pump();
  EXPECT_EQ(told, (std::set<std::string>{waiting_, running_, done_}));
  EXPECT_TRUE(IsDataLoss(Job(waiting_))) << State(waiting_);
  EXPECT_TRUE(state_->jobs().Find("ann", waiting_).ok());  // Written anew.
  EXPECT_EQ(State(running_), "RUNNING");
  RunAll();
  EXPECT_EQ(State(running_), "SUCCEEDED");
  for (const auto& [id, known] : known_) {
    if (id != waiting_ && id != done_ && !ComesAfter(id, waiting_)) {
      EXPECT_EQ(State(id), known.end) << id;
    } else if (ComesAfter(id, waiting_)) {
      EXPECT_TRUE(Job(id).attempt() == 0 || State(id) == "SUCCEEDED") << State(id);
    }
  }
}

}  // namespace
}  // namespace hpvm::server
