// SPDX-License-Identifier: Apache-2.0
// Runs random sequences of calls against the core (core_calls_fuzz.cc runs many more), and the corpus, and checks that
// a broken promise would be noticed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/failpoint.h"
#include "server/process/log.h"
#include "server/testing/call_world.h"
#ifdef HPVMD_MUTANTS
#include "base/mutant.h"  // tests/mutants/patched.py writes it.
#endif

namespace hpvm::server::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kCorpus[] = HPVMD_SOURCE_DIR "/tests/fuzz/core_calls";
constexpr size_t kActions = kActionsMax;

const std::string kJobId = "job-" + std::string(44, '1');

class CallsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { StartLog("error"); }
};

Script ScriptOf(uint64_t seed) {
  SeededRng rng(seed);
  return RandomScript(rng, kActions);
}

std::vector<uint8_t> ReadBytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Every kind of step has its intended effect in some of the sequences.
TEST_F(CallsTest, PromisesAreKept) {
  constexpr uint64_t kSeeds = 400;
  std::array<CallPromises::Counts, kActionKinds> sums{};
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    CallWorld world;
    ASSERT_EQ(world.Play(ScriptOf(seed)), "") << "seed " << seed;
    for (size_t kind = 0; kind < kActionKinds; ++kind) {
      sums[kind].accepted += world.promises().counts()[kind].accepted;
      sums[kind].refused += world.promises().counts()[kind].refused;
    }
  }
  for (size_t kind = 0; kind < kActionKinds; ++kind) {
    EXPECT_GT(sums[kind].accepted, 0u) << NameOf(static_cast<ActionKind>(kind));
  }
}

TEST_F(CallsTest, CorpusIsKept) {
  std::filesystem::create_directories(kCorpus);
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const std::filesystem::path path = std::filesystem::path(kCorpus) / ("seed-" + std::to_string(seed));
    if (std::getenv("HPVMD_BLESS") != nullptr) {
      const std::vector<uint8_t> bytes = EncodeScript(ScriptOf(seed));
      std::ofstream(path, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
    EXPECT_EQ(ReadBytes(path), EncodeScript(ScriptOf(seed))) << "HPVMD_BLESS=1 rewrites " << path;
  }
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus)) {
    CallWorld world;
    EXPECT_EQ(world.Play(DecodeScript(ReadBytes(entry.path()))), "") << entry.path();
  }
}

TEST_F(CallsTest, AnyBytesAreAScript) {
  EXPECT_TRUE(DecodeScript({}).empty());
  const std::vector<uint8_t> bytes(kActionBytes * kActionsMax + 7, 0xff);
  EXPECT_EQ(DecodeScript(bytes).size(), kActionsMax);
  const Script script = ScriptOf(3);
  EXPECT_EQ(EncodeScript(DecodeScript(EncodeScript(script))), EncodeScript(script));
}

TEST_F(CallsTest, NoticesALeak) {
  CallWorld world;
  const scheduler::Lease leak = world.account().TakeAnyway(scheduler::Resource::kQueuedJobs, 1);
  EXPECT_THAT(world.Play({}), HasSubstr("Tenant amber has 1 of queued-jobs in its account"));
}

class PromisesTest : public ::testing::Test {
 protected:
  void Answer(ActionKind kind, const std::string& asked, const Status& status, const std::string& answer = "") {
    promises_.AnswerNow(kind, 0, asked, status, answer);
  }
  static v1::Job Job(v1::JobState state) {
    v1::Job job;
    job.set_id(kJobId);
    job.set_state(state);
    job.mutable_error()->set_code(10);
    job.mutable_error()->set_message("It trapped.");
    return job;
  }
  CallPromises promises_;
};

TEST_F(PromisesTest, OneAnswer) {
  const CallPromises::CallRef call = promises_.Begin(ActionKind::kRun, 0, "");
  promises_.Answer(*call, Outcome(), "");
  EXPECT_EQ(promises_.broken(), "");
  promises_.Answer(*call, Outcome(), "");
  EXPECT_THAT(promises_.broken(), HasSubstr("was answered a second time"));
}

TEST_F(PromisesTest, AnAnswerAtAll) {
  promises_.Begin(ActionKind::kRun, 0, "");
  promises_.ExpectNoneOpen("now");
  EXPECT_EQ(promises_.broken(), "Call 1 (run of amber) has no answer now.");
}

TEST_F(PromisesTest, Refusals) {
  Answer(ActionKind::kGetJob, "", NotFound("There is no such job."));
  EXPECT_EQ(promises_.broken(), "");
  Answer(ActionKind::kGetJob, "", Internal("It is broken."));
  EXPECT_THAT(promises_.broken(), HasSubstr("a code that is not documented"));
}

TEST_F(PromisesTest, Sentences) {
  Answer(ActionKind::kGetJob, "", NotFound("no"));
  EXPECT_THAT(promises_.broken(), HasSubstr("without a sentence"));
}

TEST_F(PromisesTest, ForeignIdsInAnswers) {
  promises_.AnswerNow(ActionKind::kSubmit, 1, "", Status(), kJobId);
  Answer(ActionKind::kCancelJob, kJobId, NotFound("There is no job \"" + kJobId + "\"."));
  EXPECT_EQ(promises_.broken(), "") << "It said so itself.";
  Answer(ActionKind::kListJobs, "", Status(), "of " + kJobId + "2");
  EXPECT_THAT(promises_.broken(), HasSubstr("which belongs to another tenant"));
}

TEST_F(PromisesTest, ForeignIdsInRequests) {
  promises_.AnswerNow(ActionKind::kSubmit, 1, "", Status(), kJobId);
  Answer(ActionKind::kGetJob, kJobId, Status());
  EXPECT_THAT(promises_.broken(), HasSubstr("was accepted, and names"));
}

TEST_F(PromisesTest, ForeignNamesAndBytes) {
  Answer(ActionKind::kListJobs, "", Status(), "birch");
  EXPECT_THAT(promises_.broken(), HasSubstr("was told of the tenant birch"));
  CallPromises other;
  other.ExpectOwnBytes(0, std::string("\0AAA", 4), "A buffer");
  EXPECT_EQ(other.broken(), "");
  other.ExpectOwnBytes(0, "AAB", "A buffer");
  EXPECT_THAT(other.broken(), HasSubstr("bytes of another tenant"));
}

TEST_F(PromisesTest, EndsStay) {
  promises_.OnJob(0, Job(v1::JOB_STATE_RUNNING));
  promises_.OnJob(0, Job(v1::JOB_STATE_FAILED));
  EXPECT_EQ(promises_.broken(), "");
  promises_.OnJob(0, Job(v1::JOB_STATE_SUCCEEDED));
  EXPECT_THAT(promises_.broken(), HasSubstr("was JOB_STATE_FAILED and is JOB_STATE_SUCCEEDED"));
}

TEST_F(PromisesTest, AcknowledgedJobsStay) {
  promises_.OnAcknowledged(0, kJobId);
  promises_.OnForgotten("another");
  promises_.OnFound(0, kJobId, NotFound("There is no job."), v1::Job());
  EXPECT_THAT(promises_.broken(), HasSubstr("was acknowledged and is lost"));
}

TEST_F(PromisesTest, KeysStandForOneJob) {
  promises_.OnKey(0, "k", kJobId);
  promises_.OnKey(1, "k", "another tenant's");
  EXPECT_EQ(promises_.broken(), "");
  promises_.OnKey(0, "k", "another");
  EXPECT_THAT(promises_.broken(), HasSubstr("stands for another"));
}

#ifdef HPVMD_MUTANTS
// The promises notice bugs that are seeded into the core.
TEST_F(CallsTest, NoticesSeededBugs) {
  for (const char* name :
       {"core_turn_leaks", "core_waiting_count_leaks", "core_ack_before_commit", "core_key_ignores_request"}) {
    SetMutant(name);
    std::string broken;
    for (uint64_t seed = 1; seed <= 2'000 && broken.empty(); ++seed) {
      CallWorld world;
      broken = world.Play(ScriptOf(seed));
    }
    EXPECT_NE(broken, "") << name;
  }
  SetMutant("");
}
#endif

}  // namespace
}  // namespace hpvm::server::testing
