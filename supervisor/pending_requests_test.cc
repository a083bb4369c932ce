// SPDX-License-Identifier: Apache-2.0
#include "supervisor/pending_requests.h"

#include <gtest/gtest.h>

#include "base/limits.h"

namespace hpvm::supervisor {
namespace {

using internal::Envelope;
using std::chrono::milliseconds;

class PendingLogTest : public ::testing::Test {
 protected:
  static Envelope LogOf(int lines, size_t bytes) {
    Envelope envelope;
    envelope.set_request_id(1);
    envelope.mutable_event()->set_kind(internal::Event::KIND_LOG);
    for (int i = 0; i < lines; ++i) {
      envelope.mutable_event()->mutable_log()->add_lines()->set_text(std::string(bytes, 'x'));
    }
    return envelope;
  }
  void Ask(bool with_log) {
    Pending pending;
    if (with_log) {
      pending.on_log = [](const v1::RunLog&) {};
    }
    requests_.Add(*requests_.NextId(), Envelope::kRun, std::move(pending));
  }
  PendingRequests requests_;
  Time now_{std::chrono::seconds(1)};
};

// Lines that come too soon are dropped; the run continues, and its answer is accepted.
TEST_F(PendingLogTest, LeavesOutWhatComesTooOften) {
  Ask(/*with_log=*/true);
  EXPECT_TRUE(requests_.Take(LogOf(1, 1), now_)->on_log);
  EXPECT_FALSE(requests_.Take(LogOf(1, 1), now_ + milliseconds(20))->on_log);
  EXPECT_TRUE(requests_.Take(LogOf(1, 1), now_ + milliseconds(100))->on_log);
  Envelope done;
  done.set_request_id(1);
  done.mutable_run_done();
  EXPECT_TRUE(requests_.Take(done, now_).ok());
  EXPECT_FALSE(requests_.Take(LogOf(1, 1), now_ + milliseconds(300)).ok());  // After its answer.
}

// No caller gets more lines than a log has, counting dropped ones, nor lines that it did not request.
TEST_F(PendingLogTest, RefusesMoreThanALog) {
  Ask(/*with_log=*/true);
  EXPECT_TRUE(requests_.Take(LogOf(limits::kLogLinesMax, 1), now_).ok());
  EXPECT_FALSE(requests_.Take(LogOf(1, 1), now_ + milliseconds(20)).ok());
  PendingRequests others;
  std::swap(requests_, others);
  Ask(/*with_log=*/true);
  Status last;
  for (int i = 0; i < 100 && last.ok(); ++i) {
    last = requests_.Take(LogOf(1, limits::kLogLineBytesMax), now_ + milliseconds(100 * i)).status();
  }
  EXPECT_EQ(last.code(), absl::StatusCode::kInvalidArgument);
  std::swap(requests_, others);
  PendingRequests third;
  std::swap(requests_, third);
  Ask(/*with_log=*/false);
  EXPECT_FALSE(requests_.Take(LogOf(1, 1), now_).ok());
}

}  // namespace
}  // namespace hpvm::supervisor
