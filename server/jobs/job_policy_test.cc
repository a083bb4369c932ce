// SPDX-License-Identifier: Apache-2.0
// Tests the pure parts of retries, dependencies, arrays and request hashes, by tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/jobs/rows/arrays.h"
#include "server/jobs/rows/dependencies.h"
#include "server/jobs/rows/request_hash.h"
#include "server/jobs/rows/retry.h"

namespace hpvm::server {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Delays double from 100 ms to 30 s, and a random part of up to a half is subtracted.
TEST(RetryTest, DelaysGrowToTheCap) {
  SeededRng rng(3);
  const int64_t whole_ms[] = {100, 200, 400, 800, 1'600, 3'200, 6'400, 12'800, 25'600, 30'000, 30'000};
  Duration least = kNever, most{0};
  for (uint32_t lost = 1; lost <= 11; ++lost) {
    for (int i = 0; i < 200; ++i) {
      const Duration delay = RetryDelay(lost, rng);
      const Duration whole = std::chrono::milliseconds(whole_ms[lost - 1]);
      EXPECT_GE(delay, whole / 2) << lost;
      EXPECT_LE(delay, whole) << lost;
      if (lost == 1) {
        least = std::min(least, delay);
        most = std::max(most, delay);
      }
    }
  }
  EXPECT_GT(most - least, std::chrono::milliseconds(40));  // It is random.
  EXPECT_LE(RetryDelay(UINT32_MAX, rng), kRetryDelayMax);
}

// Only attempts that the infrastructure lost are tried again, and never in place, late or against the client's wish.
TEST(RetryTest, JudgesAttempts) {
  struct Case {
    const char* name;
    Status status;
    AttemptFacts facts;
    AttemptEnd want;
  };
  const AttemptFacts first{.was_sent = true, .attempts_spent = 1, .attempts_max = 3};
  const auto with = [&](auto change) {
    AttemptFacts facts = first;
    change(facts);
    return facts;
  };
  const Status lost = Unavailable("Lost.");
  const Case cases[] = {
      {"Succeeded", absl::OkStatus(), first, AttemptEnd::kFinal},
      {"Trap", Aborted("A trap."), first, AttemptEnd::kFinal},
      {"WrongInput", InvalidArgument("Wrong."), first, AttemptEnd::kFinal},
      {"Quota", ResourceExhausted("Full."), first, AttemptEnd::kFinal},
      {"Deadline", DeadlineExceeded("Late."), first, AttemptEnd::kFinal},
      {"Internal", Internal("A bug."), first, AttemptEnd::kFinal},
      {"DataLoss", DataLoss("Gone."), first, AttemptEnd::kFinal},
      {"Lost", lost, first, AttemptEnd::kAgain},
      {"LostLast", lost, with([](auto& f) { f.attempts_spent = 3; }), AttemptEnd::kDead},
      {"LostOnly", lost, with([](auto& f) { f.attempts_max = 1; }), AttemptEnd::kDead},
      {"LostInPlace", lost, with([](auto& f) { f.in_place = true; }), AttemptEnd::kInPlace},
      {"InPlaceNeverSent", lost, with([](auto& f) { f.in_place = true, f.was_sent = false; }), AttemptEnd::kAgain},
      {"LostCancelled", lost, with([](auto& f) { f.cancel_asked = true; }), AttemptEnd::kFinal},
      {"LostLate", lost, with([](auto& f) { f.is_late = true; }), AttemptEnd::kFinal},
      {"BrokenOff", lost, with([](auto& f) { f.broken_off = true; }), AttemptEnd::kAgainFree},
      {"BrokenOffLast", lost, with([](auto& f) { f.broken_off = true, f.attempts_spent = 3; }), AttemptEnd::kAgainFree},
      {"BrokenOffInPlace", lost, with([](auto& f) { f.broken_off = f.in_place = true; }), AttemptEnd::kInPlace},
      {"TrapWhileBrokenOff", Aborted("A trap."), with([](auto& f) { f.broken_off = true; }), AttemptEnd::kFinal},
      {"Refused", lost, with([](auto& f) { f.was_refused = true, f.was_sent = false, f.attempts_spent = 3; }),
       AttemptEnd::kAgainFree},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(JudgeAttempt(c.status, c.facts), c.want) << c.name;
  }
}

// Judge is tested with each condition and each state of a job, or of an array.
TEST(DependenciesTest, Judges) {
  constexpr auto kSucceeded = v1::JobDependency::CONDITION_SUCCEEDED, kEnded = v1::JobDependency::CONDITION_ENDED,
                 kFailed = v1::JobDependency::CONDITION_FAILED, kNone = v1::JobDependency::CONDITION_UNSPECIFIED;
  struct Case {
    v1::JobDependency::Condition condition;
    UnitState unit;
    Verdict want;
  };
  const Case cases[] = {
      {kNone, {1, 0, 0}, Verdict::kPending},    {kNone, {0, 1, 0}, Verdict::kMet},
      {kNone, {0, 0, 1}, Verdict::kNever},      {kSucceeded, {1, 2, 0}, Verdict::kPending},
      {kSucceeded, {0, 3, 0}, Verdict::kMet},   {kSucceeded, {2, 0, 1}, Verdict::kNever},
      {kSucceeded, {0, 2, 1}, Verdict::kNever}, {kEnded, {1, 1, 1}, Verdict::kPending},
      {kEnded, {0, 1, 1}, Verdict::kMet},       {kEnded, {0, 0, 2}, Verdict::kMet},
      {kFailed, {1, 0, 1}, Verdict::kPending},  {kFailed, {0, 0, 2}, Verdict::kMet},
      {kFailed, {1, 1, 0}, Verdict::kNever},    {kFailed, {0, 1, 1}, Verdict::kNever},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Judge(c.condition, c.unit), c.want)
        << c.condition << " of " << c.unit.live << ", " << c.unit.succeeded << ", " << c.unit.failed;
  }
  for (const v1::JobState state : {v1::JOB_STATE_ACCEPTED, v1::JOB_STATE_QUEUED, v1::JOB_STATE_RUNNING}) {
    EXPECT_EQ(UnitOf(state), (UnitState{1, 0, 0}));
  }
  EXPECT_EQ(UnitOf(v1::JOB_STATE_SUCCEEDED), (UnitState{0, 1, 0}));
  for (const v1::JobState state :
       {v1::JOB_STATE_FAILED, v1::JOB_STATE_CANCELLED, v1::JOB_STATE_EXPIRED, v1::JOB_STATE_DEAD}) {
    EXPECT_EQ(UnitOf(state), (UnitState{0, 0, 1}));
  }
}

v1::JobDependency After(const std::string& id, v1::JobDependency::Condition condition) {
  v1::JobDependency dependency;
  dependency.set_job_id(id);
  dependency.set_condition(condition);
  return dependency;
}

std::vector<std::string> Told(const std::vector<Dependencies::Change>& changes) {
  std::vector<std::string> told;
  for (const Dependencies::Change& change : changes) {
    told.push_back(change.waiter + (change.verdict == Verdict::kMet ? " met" : " never " + change.because.job_id()));
  }
  return told;
}

std::vector<Dependencies::Change> OnState(Dependencies& waits, const std::string& unit, const UnitState& state) {
  bool more = false;
  std::vector<Dependencies::Change> changes = waits.OnState(unit, state, 1'000, &more);
  EXPECT_FALSE(more);
  return changes;
}

// Many waiters are informed a few at a time, each once, and so are those that still wait for something else.
TEST(DependenciesTest, TellsAFewAtATime) {
  Dependencies waits;
  std::set<std::string> told;
  for (int i = 0; i < 95; ++i) {
    std::vector<v1::JobDependency> on = {After("a", v1::JobDependency::CONDITION_ENDED)};
    if (i % 2 == 0) {
      on.push_back(After("b", v1::JobDependency::CONDITION_ENDED));
    }
    waits.Add("job-" + std::to_string(i), on);
  }
  for (const char* unit : {"a", "b"}) {
    bool more = true;
    int calls = 0;
    for (; more; ++calls) {
      const std::vector<Dependencies::Change> changes = waits.OnState(unit, {0, 1, 0}, 10, &more);
      EXPECT_LE(changes.size(), 10u);
      for (const Dependencies::Change& change : changes) {
        EXPECT_TRUE(told.insert(change.waiter).second);
      }
    }
    EXPECT_EQ(calls, *unit == 'a' ? 10 : 5);
  }
  EXPECT_EQ(told.size(), 95u);
  EXPECT_EQ(waits.size(), 0u);
}

// With fan-in the waiter is informed when the last condition is met, with fan-out each is; a waiter that can never
// start is informed once, and leaves nothing behind.
TEST(DependenciesTest, TellsThoseWhoWait) {
  constexpr auto kSucceeded = v1::JobDependency::CONDITION_SUCCEEDED, kEnded = v1::JobDependency::CONDITION_ENDED;
  Dependencies waits;
  waits.Add("c", {After("a", kSucceeded), After("b", kSucceeded), After("a", kSucceeded)});
  waits.Add("d", {After("a", kSucceeded)});
  waits.Add("e", {After("a", kSucceeded), After("a", kEnded)});
  EXPECT_EQ(waits.PendingOf("c").size(), 2u);
  EXPECT_TRUE(waits.IsWaitedFor("a"));
  EXPECT_THAT(OnState(waits, "a", {1, 0, 0}), IsEmpty());
  EXPECT_THAT(Told(OnState(waits, "a", {0, 1, 0})), ElementsAre("d met", "e met"));
  EXPECT_FALSE(waits.IsWaitedFor("a"));
  EXPECT_FALSE(waits.IsWaiting("d"));
  EXPECT_TRUE(waits.IsWaiting("c"));
  EXPECT_THAT(Told(OnState(waits, "b", {0, 0, 1})), ElementsAre("c never b"));
  EXPECT_EQ(waits.size(), 0u);
  EXPECT_FALSE(waits.IsWaitedFor("b"));
  waits.Add("f", {After("x", kSucceeded), After("x", kEnded), After("y", kEnded)});
  EXPECT_THAT(Told(OnState(waits, "x", {0, 0, 1})), ElementsAre("f never x"));
  EXPECT_FALSE(waits.IsWaitedFor("y"));
  waits.Add("g", {After("x", kEnded)});
  waits.Remove("g");
  EXPECT_THAT(OnState(waits, "x", {0, 1, 0}), IsEmpty());
  EXPECT_EQ(WaitSentence(After("job-1", kEnded)), "Waits for job-1 to end.");
  EXPECT_THAT(NeverSentence(After("job-1", kSucceeded)), HasSubstr("job-1, which was to succeed"));
}

v1::JobArray Array(uint64_t first, uint64_t last, uint64_t step) {
  v1::JobArray array;
  array.set_first(first);
  array.set_last(last);
  array.set_step(step);
  return array;
}

// Covers every range, to the ends of 64 bits.
TEST(ArraysTest, CountsElements) {
  struct Case {
    uint64_t first, last, step;
    uint64_t want;  // 0: refused.
    uint64_t last_index;
  };
  const Case cases[] = {{0, 0, 0, 1, 0},
                        {0, 9, 0, 10, 9},
                        {0, 9, 1, 10, 9},
                        {0, 9, 3, 4, 9},
                        {1, 9, 3, 3, 7},
                        {5, 4, 1, 0, 0},
                        {0, 99, 1, 100, 99},
                        {0, 100, 1, 0, 0},
                        {0, UINT64_MAX, 1, 0, 0},
                        {0, UINT64_MAX, UINT64_MAX, 2, UINT64_MAX},
                        {UINT64_MAX, UINT64_MAX, 7, 1, UINT64_MAX}};
  for (const Case& c : cases) {
    const v1::JobArray array = Array(c.first, c.last, c.step);
    const StatusOr<uint64_t> count = CountElements(array, 100);
    EXPECT_EQ(count.value_or(0), c.want) << c.first << " " << c.last << " " << c.step;
    if (count.ok()) {
      EXPECT_EQ(IndexOf(array, *count - 1), c.last_index);
    }
  }
  EXPECT_EQ(CountElements(Array(2, 1, 1), 9).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CountElements(Array(0, 9, 1), 9).status().code(), StatusCode::kResourceExhausted);
}

// The index is little-endian in the port's type, and must fit.
TEST(ArraysTest, MakesIndexTensors) {
  EXPECT_EQ(IndexTensor(v1::ELEMENT_TYPE_U16, 0x1234)->data(), std::string("\x34\x12"));
  EXPECT_EQ(IndexTensor(v1::ELEMENT_TYPE_I64, 5)->data().size(), 8u);
  EXPECT_EQ(IndexTensor(v1::ELEMENT_TYPE_I8, 127)->shape_size(), 0);
  for (const auto& [type, index] :
       std::vector<std::pair<v1::ElementType, uint64_t>>{{v1::ELEMENT_TYPE_I8, 128},
                                                         {v1::ELEMENT_TYPE_U8, 256},
                                                         {v1::ELEMENT_TYPE_I64, 1ull << 63},
                                                         {v1::ELEMENT_TYPE_F32, 0},
                                                         {v1::ELEMENT_TYPE_BOOL, 0},
                                                         {v1::ELEMENT_TYPE_UNSPECIFIED, 0}}) {
    EXPECT_EQ(IndexTensor(type, index).status().code(), StatusCode::kInvalidArgument) << type;
  }
}

// The array in a request is checked against the graph.
TEST(ArraysTest, ChecksItsUse) {
  v1::GraphSummary summary;
  v1::PortSummary& scalar = *summary.add_inputs();
  scalar.set_name("i");
  scalar.set_type(v1::ELEMENT_TYPE_U8);
  v1::PortSummary& vector = *summary.add_inputs();
  vector.set_name("x");
  vector.set_type(v1::ELEMENT_TYPE_U8);
  vector.add_shape("n");
  summary.add_symbols("n");
  struct Case {
    const char* name;
    std::function<void(v1::SubmitRequest&)> spoil;
    const char* text;  // Empty: valid.
  };
  const Case cases[] = {
      {"Fine", [](auto&) {}, ""},
      {"NoArray", [](auto& r) { r.clear_array(); }, "the job is not an array"},
      {"NotScalar", [](auto& r) { r.mutable_inputs(0)->set_name("x"); }, "its rank (1) is not 0"},
      {"TooLarge", [](auto& r) { r.mutable_array()->set_last(256); }, "larger than the type"},
      {"LastIsNotReached", [](auto& r) { r.mutable_array()->set_step(200), r.mutable_array()->set_last(390); }, ""},
      {"NoSuchSymbol", [](auto& r) { r.mutable_array()->set_symbol("m"); }, "no symbol \"m\""},
      {"SymbolTwice", [](auto& r) { (*r.mutable_symbols())["n"] = 1; }, "but is also the array's index"},
  };
  for (const Case& c : cases) {
    v1::SubmitRequest request;
    request.add_inputs()->set_name("i");
    request.mutable_inputs(0)->set_array_index(true);
    *request.mutable_array() = Array(0, 9, 1);
    request.mutable_array()->set_symbol("n");
    c.spoil(request);
    const Status status = CheckArrayUse(request, summary);
    EXPECT_EQ(status.ok(), *c.text == 0) << c.name << ": " << status;
    EXPECT_THAT(Message(status), HasSubstr(c.text)) << c.name;
  }
}

StoredRequest Stored() {
  StoredRequest stored;
  v1::SubmitRequest& request = *stored.mutable_request();
  request.mutable_document()->set_graph_sha256(std::string(64, 'a'));
  request.add_inputs()->set_name("x");
  request.mutable_inputs(0)->mutable_tensor()->set_type(v1::ELEMENT_TYPE_U8);
  request.mutable_inputs(0)->mutable_tensor()->add_shape(4);
  request.mutable_inputs(0)->mutable_tensor()->set_data("data");
  request.add_inputs()->set_name("y");
  request.mutable_inputs(1)->mutable_tensor()->set_type(v1::ELEMENT_TYPE_U8);
  request.set_name("n");
  return stored;
}

// The hash covers everything that decides what the job does, and nothing else.
TEST(RequestHashTest, SeesWhatMatters) {
  const Sha256 plain = HashOfRequest(Stored());
  struct Case {
    const char* name;
    std::function<void(StoredRequest&)> change;
    bool same;
  };
  const Case cases[] = {
      {"Trace", [](auto& s) { s.mutable_request()->mutable_options()->set_traceparent("00-1"); }, true},
      {"Deadline", [](auto& s) { s.mutable_request()->mutable_options()->set_deadline_ns(7); }, true},
      {"Order", [](auto& s) { s.mutable_request()->mutable_inputs()->SwapElements(0, 1); }, true},
      {"RepeatDefault", [](auto& s) { s.mutable_request()->set_repeat(1); }, true},
      {"BufferWithTheSameBytes",
       [](auto& s) {
         s.mutable_request()->mutable_inputs(0)->mutable_buffer()->set_buffer_id("buf-7");
         internal::StoredInput& input = *s.add_inputs();
         input.set_type(v1::ELEMENT_TYPE_U8);
         input.add_shape(4);
         input.set_size_bytes(4);
         const Sha256 hash = HashOf("data");
         input.set_sha256(hash.bytes.data(), hash.bytes.size());
       },
       true},
      {"InPlaceWithOtherBytes",
       [](auto& s) {
         s.mutable_request()->mutable_inputs(0)->mutable_buffer()->set_buffer_id("buf-7");
         s.mutable_request()->add_outputs()->set_buffer_id("buf-7");
         s.add_inputs()->set_size_bytes(4);
       },
       false},
      {"Bytes", [](auto& s) { s.mutable_request()->mutable_inputs(0)->mutable_tensor()->set_data("date"); }, false},
      {"Shape", [](auto& s) { s.mutable_request()->mutable_inputs(0)->mutable_tensor()->set_shape(0, 5); }, false},
      {"Names", [](auto& s) { s.mutable_request()->mutable_inputs(0)->set_name("z"); }, false},
      {"Graph", [](auto& s) { s.mutable_request()->mutable_document()->set_graph_sha256("b"); }, false},
      {"Module", [](auto& s) { s.mutable_request()->mutable_document()->add_modules()->set_name("m"); }, false},
      {"Check", [](auto& s) { s.set_check(true); }, false},
      {"Output", [](auto& s) { s.mutable_request()->add_outputs()->set_discard(true); }, false},
      {"Symbol", [](auto& s) { (*s.mutable_request()->mutable_symbols())["n"] = 1; }, false},
      {"Repeat", [](auto& s) { s.mutable_request()->set_repeat(2); }, false},
      {"Name", [](auto& s) { s.mutable_request()->set_name("m"); }, false},
      {"After", [](auto& s) { s.mutable_request()->add_after()->set_job_id("job-1"); }, false},
      {"Array", [](auto& s) { s.mutable_request()->mutable_array(); }, false},
      {"Retry", [](auto& s) { s.mutable_request()->mutable_retry()->set_attempts_max(1); }, false},
  };
  for (const Case& c : cases) {
    StoredRequest stored = Stored();
    c.change(stored);
    EXPECT_EQ(HashOfRequest(stored) == plain, c.same) << c.name;
  }
  EXPECT_NE(HashOfRetry("job-1"), HashOfRetry("job-2"));
  // A buffer that is also written is represented by its id, whatever its present contents.
  StoredRequest before = Stored();
  before.mutable_request()->mutable_inputs(0)->mutable_buffer()->set_buffer_id("buf-7");
  before.mutable_request()->add_outputs()->set_buffer_id("buf-7");
  before.add_inputs()->set_sha256(std::string(32, 'a'));
  StoredRequest after = before;
  after.mutable_inputs(0)->set_sha256(std::string(32, 'b'));
  EXPECT_EQ(HashOfRequest(before), HashOfRequest(after));
  after.mutable_request()->mutable_inputs(0)->mutable_buffer()->set_buffer_id("buf-8");
  EXPECT_NE(HashOfRequest(before), HashOfRequest(after));
}

}  // namespace
}  // namespace hpvm::server
