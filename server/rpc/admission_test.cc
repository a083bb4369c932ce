// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/admission.h"

#include <gtest/gtest.h>

#include <deque>

namespace hpvm::server {
namespace {

constexpr AdmissionLimits kSmall{
    .bytes_max = 1'000, .bytes_per_tenant_max = 600, .calls_always = 10, .wait_max = std::chrono::seconds(2)};

// Requests in memory are bounded for each tenant and for all; returned bytes can be taken again.
TEST(AdmissionTest, BoundsBytes) {
  ManualClock clock;
  Admission admission(kSmall, clock);
  Admission::Ticket a, b, c, d;
  EXPECT_TRUE(admission.Admit("a", 600, &a).ok());
  const Outcome own = admission.Admit("a", 1, &c);
  EXPECT_EQ(own.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(own.detail.value().retryable());
  EXPECT_GT(own.detail->retry_after_ns(), 0u);
  // More than twice what would be left.
  EXPECT_EQ(admission.Admit("b", 300, &b).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(admission.Admit("b", 250, &b).ok());
  EXPECT_TRUE(admission.Admit("c", 100, &d).ok());
  EXPECT_EQ(admission.Admit("c", 1, &c).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(admission.Admit("c", UINT64_MAX, &c).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(admission.bytes(), 950u);
  a.Release();
  EXPECT_TRUE(admission.Admit("c", 300, &c).ok());
  b = Admission::Ticket();
  c = Admission::Ticket();
  d.Release();
  EXPECT_EQ(admission.bytes(), 0u);
  EXPECT_EQ(admission.calls(), 0u);
}

// A ticket that was moved from returns nothing.
TEST(AdmissionTest, GivesBackOnce) {
  ManualClock clock;
  Admission admission(kSmall, clock);
  Admission::Ticket first;
  ASSERT_TRUE(admission.Admit("a", 5, &first).ok());
  Admission::Ticket second(std::move(first));
  first.Release();
  EXPECT_EQ(admission.calls(), 1u);
  second.Release();
  second.Release();
  EXPECT_EQ(admission.calls(), 0u);
}

// An answered call does not count, though its request is still in memory.
TEST(AdmissionTest, AnsweredCallsDoNotCount) {
  ManualClock clock;
  Admission admission(kSmall, clock);
  Admission::Ticket ticket;
  ASSERT_TRUE(admission.Admit("a", 500, &ticket).ok());
  ticket.EndCall();
  ticket.EndCall();
  EXPECT_EQ(admission.calls(), 0u);
  EXPECT_EQ(admission.bytes(), 500u);
  ticket.Release();
  EXPECT_EQ(admission.calls(), 0u);
  EXPECT_EQ(admission.bytes(), 0u);
}

// Tenants that always offer their maximum, and one that holds little: all of its requests are accepted, however many
// of the former there are.
TEST(AdmissionTest, HogsDoNotTurnAwayAMouse) {
  for (int hogs = 1; hogs <= 8; ++hogs) {
    SCOPED_TRACE(hogs);
    ManualClock clock;
    Admission admission({.bytes_max = 100'000, .bytes_per_tenant_max = 60'000, .calls_always = 1'000'000}, clock);
    SeededRng rng(static_cast<uint64_t>(hogs));
    std::deque<Admission::Ticket> held, own;
    uint64_t refused = 0;
    for (int step = 0; step < 800; ++step) {
      for (int hog = 0; hog < hogs; ++hog) {
        for (int i = 0; i < 20; ++i) {
          Admission::Ticket ticket;
          if (admission.Admit("hog" + std::to_string(hog), 1 + rng.Below(2'000), &ticket).ok()) {
            held.push_back(std::move(ticket));
          } else {
            ++refused;
          }
        }
      }
      for (uint64_t i = rng.Below(20); i > 0 && !held.empty(); --i) {
        held.pop_front();
      }
      if (step < 300) {
        continue;  // Until those accepted earlier, when there were fewer tenants, have ended.
      }
      Admission::Ticket ticket;
      ASSERT_TRUE(admission.Admit("mouse", 300, &ticket).ok()) << "step " << step;
      own.push_back(std::move(ticket));
      if (own.size() > 2) {
        own.pop_front();
      }
    }
    EXPECT_GT(refused, 1'000u);
  }
}

// A server that ends `per_second` calls of one tenant, oldest first, and is offered many more.
struct Overloaded {
  explicit Overloaded(double rate) : per_second(rate) {}

  double per_second;
  ManualClock clock;
  Admission admission{kSmall, clock};
  std::deque<std::pair<Time, Admission::Ticket>> waiting;
  uint64_t rejected = 0, ended = 0;
  Duration longest{0};
  double owed = 0;
  Outcome last_refusal;

  void Step(uint32_t offered) {
    clock.Advance(std::chrono::milliseconds(1));
    for (owed += per_second / 1e3; owed >= 1 && !waiting.empty(); --owed) {
      longest = std::max(longest, clock.Now() - waiting.front().first);
      waiting.pop_front();
      ++ended;
    }
    owed = std::min(owed, 1.0);
    for (uint32_t i = 0; i < offered; ++i) {
      Admission::Ticket ticket;
      if (Outcome outcome = admission.Admit("a", 0, &ticket); outcome.ok()) {
        waiting.emplace_back(clock.Now(), std::move(ticket));
      } else {
        last_refusal = outcome;
        ++rejected;
      }
    }
  }
};

// At ten times the capacity, no accepted call waits much longer than wait_max, the server is never idle, and the
// queue is gone soon afterwards.
TEST(AdmissionTest, BoundsTheWaitUnderOverload) {
  for (const double per_second : {100.0, 400.0, 900.0}) {
    SCOPED_TRACE(per_second);
    Overloaded server(per_second);
    double due = 0;
    for (int ms = 0; ms < 20'000; ++ms) {
      due += per_second * 10 / 1e3;
      const auto offered = static_cast<uint32_t>(due);
      due -= offered;
      server.Step(offered);
    }
    EXPECT_GE(static_cast<double>(server.ended), 0.95 * per_second * 20);
    EXPECT_GT(server.rejected, static_cast<uint64_t>(per_second * 100));
    // The first quarter of a second is accepted without measurement: ten times the capacity waits for a while.
    EXPECT_LE(server.longest, std::chrono::milliseconds(4'500));
    EXPECT_LE(static_cast<double>(server.waiting.size()), per_second * 2.4);
    EXPECT_GT(server.last_refusal.detail.value().retry_after_ns(), 0u);
    EXPECT_LE(server.last_refusal.detail->retry_after_ns(), 2'000'000'000u);
    int ms = 0;
    while (!server.waiting.empty()) {
      server.Step(0);
      ASSERT_LT(++ms, 4'000);
    }
    EXPECT_EQ(server.admission.calls(), 0u);
  }
}

// However slow the graphs are, calls_always clients with a call each are never refused, and neither is a burst after
// silence.
TEST(AdmissionTest, TakesInAFewAlwaysAndABurst) {
  Overloaded slow(0.5);
  for (int ms = 0; ms < 20'000; ++ms) {
    slow.Step(slow.waiting.size() < 10 ? 1 : 0);
  }
  EXPECT_EQ(slow.rejected, 0u);
  Overloaded burst(500);
  burst.Step(400);
  EXPECT_EQ(burst.rejected, 0u);
}

// When calls never end, only `calls_always` may be in progress after the first moments.
TEST(AdmissionTest, AStuckTenantGetsNoMore) {
  Overloaded stuck(0);
  for (int ms = 0; ms < 240; ++ms) {
    stuck.Step(1);
  }
  const size_t before = stuck.waiting.size();
  for (int ms = 0; ms < 2'000; ++ms) {
    stuck.Step(1);
  }
  EXPECT_LE(stuck.waiting.size(), before + 40);
  Admission::Ticket other;
  EXPECT_TRUE(stuck.admission.Admit("other", 0, &other).ok());
}

// Messages that are not calls count like the requests of calls, but not as calls.
TEST(AdmissionTest, HoldsBytes) {
  ManualClock clock;
  Admission admission({.bytes_max = 1'000, .bytes_per_tenant_max = 500}, clock);
  Admission::Ticket first, second, call;
  EXPECT_TRUE(admission.HasRoom("ann", 500));
  EXPECT_FALSE(admission.HasRoom("ann", 501));
  ASSERT_TRUE(admission.Hold("ann", 300, &first).ok());
  EXPECT_EQ(admission.calls(), 0u);
  EXPECT_FALSE(admission.HasRoom("ann", 300));
  EXPECT_EQ(admission.Hold("ann", 300, &second).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(admission.Admit("ann", 300, &call).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(admission.HasRoom("bob", 300));
  {
    const Admission::Ticket anyway = admission.HoldAnyway("ann", 900);  // Beyond all limits.
    EXPECT_EQ(admission.bytes(), 1'200u);
    EXPECT_FALSE(admission.HasRoom("ann", 1));
    EXPECT_FALSE(admission.HasRoom("bob", 1));
  }
  EXPECT_EQ(admission.bytes(), 300u);
  ASSERT_TRUE(admission.Admit("ann", 100, &call).ok());
  EXPECT_EQ(admission.calls(), 1u);
  first.Release();
  call.Release();
  EXPECT_EQ(admission.bytes(), 0u);
  EXPECT_EQ(admission.calls(), 0u);
}

}  // namespace
}  // namespace hpvm::server
