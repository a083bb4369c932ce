// SPDX-License-Identifier: Apache-2.0
// Tests of runs by ring through a real daemon with the real executor, using the client library.
#include "server/rpc/ring_calls.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/status.h"
#include "hpvm/client.h"
#include "server/testing/access_fixture.h"
#include "server/testing/service_fixture.h"

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;
using testing::HaveExecutor;

class RingCallsTest : public testing::ServiceFixture {
 protected:
  RingCallsTest() {
    Stop();
    config_.devices_backends = "cpu";  // Other devices would be probed first.
    Start();
  }
  ~RingCallsTest() override { EXPECT_TRUE(SetFailpoints("").ok()); }

  std::unique_ptr<Client> Connect(bool by_ring = true) {
    StatusOr<std::unique_ptr<Client>> client =
        Client::Connect({.endpoint = config_.server_listen, .tenant = "ann", .local_ring = by_ring});
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  v1::RunRequest Matmul(const std::string& handle) {
    v1::RunRequest request;
    request.set_handle(handle);
    BindMatmul(request.mutable_inputs());
    return request;
  }
  // Runs until the runs go by ring.
  static void AwaitRing(Client& client, const v1::RunRequest& request) {
    for (int i = 0; i < 2'000 && client.CallPath() != "ring"; ++i) {
      client.Run(request).status().IgnoreError();
      usleep(2'000);
    }
    ASSERT_EQ(client.CallPath(), "ring");
  }
  void ExpectIdle() {
    int idle = 0;
    for (int i = 0; i < 1'000 && idle < 20; ++i) {
      idle = daemon_->core().operations() == 0 ? idle + 1 : 0;
      usleep(10'000);
    }
    EXPECT_EQ(idle, 20);
  }
};

TEST_F(RingCallsTest, AnswersAreThoseOfGrpc) {
  SKIP_WITHOUT_EXECUTOR();
  const v1::RunRequest request = Matmul(PrepareMatmul());
  const auto by_ring = Connect(), by_grpc = Connect(/*by_ring=*/false);
  AwaitRing(*by_ring, request);
  EXPECT_EQ(by_grpc->CallPath(), "gRPC: ClientOptions.local_ring is false.");
  v1::RunRequest with_placements = request;
  with_placements.set_placements_max(10);
  for (const v1::RunRequest& each : {request, with_placements}) {
    StatusOr<v1::RunResponse> ring = by_ring->Run(each), grpc = by_grpc->Run(each);
    ASSERT_TRUE(ring.ok()) << ring.status();
    ASSERT_TRUE(grpc.ok()) << grpc.status();
    ExpectSixes(ring->outputs(0).tensor());
    EXPECT_EQ(ring->placements_size(), grpc->placements_size());
    for (v1::RunResponse* response : {&*ring, &*grpc}) {
      response->clear_timing();
      response->clear_placements();
    }
    EXPECT_EQ(ring->SerializeAsString(), grpc->SerializeAsString());
  }
  // Failures are alike, too.
  v1::RunRequest of_nobody = request, wrong_input = request, keyed = request, many = request;
  of_nobody.set_handle("graph-of-nobody");
  wrong_input.mutable_inputs(0)->set_name("nobody");
  many.set_repeat(2'000'000);
  for (const v1::RunRequest& bad : {of_nobody, wrong_input, many}) {
    const Status ring = by_ring->Run(bad).status(), grpc = by_grpc->Run(bad).status();
    EXPECT_FALSE(ring.ok());
    EXPECT_EQ(ring.code(), grpc.code());
    EXPECT_EQ(Message(ring), Message(grpc));
  }
  CallOptions with_key;
  with_key.request.set_idempotency_key("key");
  EXPECT_EQ(by_ring->Run(request, with_key).status(), by_grpc->Run(request, with_key).status());
  EXPECT_EQ(by_ring->CallPath(), "ring");
  ExpectIdle();
}

TEST_F(RingCallsTest, ManyThreadsOfOneClient) {
  SKIP_WITHOUT_EXECUTOR();
  const v1::RunRequest request = Matmul(PrepareMatmul());
  const auto client = Connect();
  AwaitRing(*client, request);
  std::atomic<int> right{0};
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 64; ++thread) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) {
          const StatusOr<v1::RunResponse> response = client->Run(request);
          ASSERT_TRUE(response.ok()) << response.status();
          ExpectSixes(response->outputs(0).tensor());
          ++right;
        }
      });
    }
  }
  EXPECT_EQ(right.load(), 64 * 20);
  EXPECT_EQ(client->CallPath(), "ring");
  ExpectIdle();
}

// A request larger than a frame goes through gRPC, and a larger response comes back in parts, transparently.
TEST_F(RingCallsTest, LargeTensors) {
  SKIP_WITHOUT_EXECUTOR();
  const std::string handle = PrepareMatmul();
  const auto client = Connect();
  AwaitRing(*client, Matmul(handle));
  for (const uint64_t size : {8, 100, 200, 400}) {
    std::map<std::string, Tensor> inputs;
    for (const char* name : {"A", "B"}) {
      Tensor& tensor = inputs[name];
      tensor.type = ElementType::kF32;
      tensor.shape = name[0] == 'A' ? std::vector<uint64_t>{size, 4} : std::vector<uint64_t>{4, size};
      const std::vector<float> values(size * 4, 0.5f);
      tensor.data.resize(values.size() * sizeof(float));
      std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
    }
    const StatusOr<hpvm::RunOutcome> outcome = client->Run(handle, inputs);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    const Tensor& c = outcome->outputs.at("C");
    ASSERT_EQ(c.data.size(), size * size * sizeof(float));
    for (size_t at = 0; at < c.data.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, c.data.data() + at, sizeof(value));
      ASSERT_EQ(value, 1.0f);
    }
  }
  EXPECT_EQ(client->CallPath(), "ring");
}

TEST_F(RingCallsTest, TimeoutsCancelRuns) {
  SKIP_WITHOUT_EXECUTOR();
  v1::RunRequest request = Matmul(PrepareMatmul());
  const auto client = Connect();
  AwaitRing(*client, request);
  request.set_repeat(1'000'000);
  CallOptions call;
  call.timeout = std::chrono::milliseconds(100);
  const Time start = RealClock().Now();
  EXPECT_EQ(client->Run(request, call).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(RealClock().Now() - start, std::chrono::seconds(5));
  ExpectIdle();
  request.set_repeat(1);
  EXPECT_TRUE(client->Run(request).ok());
  // The daemon enforces the work's own deadline.
  request.set_repeat(1'000'000);
  CallOptions with_deadline;
  with_deadline.request.set_deadline_ns(50'000'000);
  EXPECT_EQ(client->Run(request, with_deadline).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(client->CallPath(), "ring");
}

// Its runs end and its memory is freed, as when a connection breaks.
TEST_F(RingCallsTest, AClientThatDiesLeavesNothing) {
  SKIP_WITHOUT_EXECUTOR();
  v1::RunRequest request = Matmul(PrepareMatmul());
  const auto held = [&] {
    const auto tenant = daemon_->core().tenants().FindTenant("ann", false);
    return (*tenant)->account.Room(scheduler::Resource::kHostBytes);
  };
  Connect(/*by_ring=*/false)->Run(request).status().IgnoreError();
  ExpectIdle();
  const uint64_t before = held();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  // Executes the program anew as another process, because gRPC does not survive a fork.
  const std::string told =
      "HPVMD_RING_CHILD=" + config_.server_listen + " " + request.handle() + " " + std::to_string(ready[1]);
  std::string filter = "--gtest_filter=RingChild.*", name = "/proc/self/exe";
  char* const words[] = {name.data(), filter.data(), nullptr};
  char* const variables[] = {const_cast<char*>(told.c_str()), nullptr};
  pid_t child = -1;
  ASSERT_EQ(posix_spawn(&child, name.c_str(), nullptr, nullptr, words, variables), 0);
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  for (int i = 0; i < 500 && daemon_->core().operations() < 4; ++i) {
    usleep(10'000);
  }
  EXPECT_GE(daemon_->core().operations(), 4u);
  EXPECT_LT(held(), before);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ExpectIdle();
  for (int i = 0; i < 500 && held() != before; ++i) {
    usleep(10'000);
  }
  EXPECT_EQ(held(), before);
}

// Child of the test above: makes endless runs by ring.
TEST(RingChild, Runs) {
  const char* const told = getenv("HPVMD_RING_CHILD");
  if (told == nullptr) {
    GTEST_SKIP();
  }
  std::stringstream words(told);
  std::string endpoint, handle;
  int fd = -1;
  words >> endpoint >> handle >> fd;
  const auto client = *Client::Connect({.endpoint = endpoint, .tenant = "ann"});
  v1::RunRequest request;
  request.set_handle(handle);
  const auto bind = [&](const char* name, uint64_t rows, uint64_t columns) {
    v1::InputBinding& input = *request.add_inputs();
    input.set_name(name);
    input.mutable_tensor()->set_type(v1::ELEMENT_TYPE_F32);
    input.mutable_tensor()->add_shape(rows);
    input.mutable_tensor()->add_shape(columns);
    input.mutable_tensor()->set_data(std::string(rows * columns * sizeof(float), '\0'));
  };
  bind("A", 2, 3);
  bind("B", 3, 2);
  while (client->CallPath() != "ring") {
    ASSERT_TRUE(client->Run(request).ok());
  }
  request.set_repeat(1'000'000);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { client->Run(request).status().IgnoreError(); });
  }
  ASSERT_EQ(write(fd, "x", 1), 1);
}

// Runs in progress fail as when a connection breaks, later ones go by gRPC, and then by another ring.
TEST_F(RingCallsTest, SurvivesTheDaemonsRestart) {
  SKIP_WITHOUT_EXECUTOR();
  v1::RunRequest request = Matmul(PrepareMatmul());
  const auto client = Connect();
  AwaitRing(*client, request);
  request.set_repeat(1'000'000);
  std::vector<std::jthread> threads;
  std::atomic<int> unavailable{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const Status status = client->Run(request).status();
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      ++unavailable;
    });
  }
  while (daemon_->core().operations() < 4) {
    usleep(1'000);
  }
  Stop();
  threads.clear();
  EXPECT_EQ(unavailable.load(), 4);
  EXPECT_THAT(client->CallPath(), HasSubstr("gRPC: "));
  Start();
  // The handle was lost with the daemon that prepared it.
  Status status;
  for (int i = 0; i < 1'000 && !absl::IsNotFound(status); ++i) {
    status = client->Run(request).status();
    usleep(5'000);
  }
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  const v1::RunRequest again = Matmul(PrepareMatmul());
  AwaitRing(*client, again);
  EXPECT_TRUE(client->Run(again).ok());
}

TEST_F(RingCallsTest, RingsAreCounted) {
  SKIP_WITHOUT_EXECUTOR();
  const v1::RunRequest request = Matmul(PrepareMatmul());
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < RingQuota::kOfTenantMax; ++i) {
    clients.push_back(Connect());
    AwaitRing(*clients.back(), request);
  }
  const auto more = Connect();
  for (int i = 0; i < 100 && more->CallPath().find("which is the limit") == std::string::npos; ++i) {
    EXPECT_TRUE(more->Run(request).ok());
    usleep(10'000);
  }
  EXPECT_THAT(more->CallPath(), HasSubstr("The tenant has 32 rings, which is the limit."));
  EXPECT_TRUE(more->Run(request).ok());
  clients.clear();
  AwaitRing(*more, request);
}

class RingAccessTest : public AccessFixture {
 protected:
  std::unique_ptr<Client> Connect(const std::string& secret) {
    ClientOptions options{.endpoint = config_.server_listen};
    options.credentials.token = secret;
    StatusOr<std::unique_ptr<Client>> client = Client::Connect(options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  // Runs a graph that nobody has: the call is admitted and then fails.
  static Status Run(Client& client) {
    v1::RunRequest request;
    request.set_handle("graph-of-nobody");
    return client.Run(request).status();
  }
  static void AwaitRing(Client& client) {
    for (int i = 0; i < 2'000 && client.CallPath() != "ring"; ++i) {
      EXPECT_TRUE(absl::IsNotFound(Run(client)));
      usleep(2'000);
    }
    ASSERT_EQ(client.CallPath(), "ring");
  }
};

TEST_F(RingAccessTest, RevokedTokensEndRings) {
  Start();
  MakeTenant("ann");
  const Directory::NewToken first = MakeToken("ann", Role::kUser), second = MakeToken("ann", Role::kUser);
  const auto active = Connect(first.secret), idle = Connect(second.secret);
  AwaitRing(*active);
  AwaitRing(*idle);
  ASSERT_TRUE(daemon_->directory().RevokeToken(first.token.id()).ok());
  const Status refused = Run(*active);
  EXPECT_TRUE(absl::IsUnauthenticated(refused)) << refused;
  EXPECT_NE(active->CallPath(), "ring");
  ASSERT_TRUE(daemon_->directory().RevokeToken(second.token.id()).ok());
  for (int i = 0; i < 500 && idle->CallPath() == "ring"; ++i) {
    usleep(10'000);
  }
  EXPECT_THAT(idle->CallPath(), HasSubstr("revoked"));
}

TEST_F(RingAccessTest, DisabledTenantsEndRings) {
  Start();
  MakeTenant("ann");
  const auto client = Connect(MakeToken("ann", Role::kUser).secret);
  AwaitRing(*client);
  v1::UpdateTenantRequest disable;
  disable.set_name("ann");
  disable.set_disabled(true);
  ASSERT_TRUE(daemon_->directory().UpdateTenant(disable).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Run(*client)));
  EXPECT_NE(client->CallPath(), "ring");
}

// An old ring is replaced by another one, and no run notices.
TEST_F(RingAccessTest, OldRingsAreLeft) {
  config_.limits_connection_age_ms = 1'000;
  Start();
  MakeTenant("ann");
  const auto client = Connect(MakeToken("ann", Role::kUser).secret);
  AwaitRing(*client);
  bool was_left = false;
  const Time until = RealClock().Now() + std::chrono::seconds(4);
  while (RealClock().Now() < until) {
    const Status status = Run(*client);
    ASSERT_TRUE(absl::IsNotFound(status)) << status;
    was_left |= client->CallPath() != "ring";
    usleep(100);
  }
  EXPECT_TRUE(was_left);
  AwaitRing(*client);
}

}  // namespace
}  // namespace hpvm::server
