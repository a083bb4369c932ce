// SPDX-License-Identifier: Apache-2.0
// Executors with driver devices in their profile, for all such devices present: modules of each kind are built in a
// separate process and run inside the sandbox; bad modules, endless kernels and crashes.
#include <future>
#include <mutex>

#include "base/grant.h"
#include "base/io/memfd.h"
#include "executor/testing/fixture.h"
#include "sandbox/sandbox.h"

namespace hpvm::executor {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::AsBytes;
using testing::AsInts;
using testing::kPatience;

// One node from "x" to "y", i32 of shape [n], one instance per element, on one device.
std::string Document(const std::string& kind, const std::string& entry, const std::string& device) {
  return R"({"hpvm":1,"inputs":{"x":{"type":"i32","shape":["n"]}},"outputs":{"y":{"type":"i32","shape":["n"]}},)"
         R"("modules":{"m":{"kind":")" +
         kind + R"(","source":{"file":"m"}}},"nodes":{"node":{"ports":[)"
         R"({"name":"in","access":"in","type":"i32","shape":["n"]},)"
         R"({"name":"out","access":"out","type":"i32","shape":["n"]}],"instances":["n"],"devices":[")" +
         device + R"("],"variants":[{"module":"m","entry":")" + entry +
         R"("}]}},"edges":[{"from":"x","to":"node.in"},{"from":"node.out","to":"y"}]})";
}

constexpr std::string_view kOpenClC = R"(
__kernel void twice(__global const int* in, __global int* out) {
  out[get_global_id(0)] = 2 * in[get_global_id(0)];
}
__kernel void endless(__global const int* in, __global int* out) {
  volatile __global int* flag = out;
  while (in[0] != 4711) { *flag = *flag + 1; }
}
__kernel void astray(__global const int* in, __global int* out) {
  out[(size_t)1 << 40] = in[0];
}
)";

class DriverDevicesTest : public testing::ExecutorFixture {
 protected:
  DriverDevicesTest() {
    options_.hello.mutable_backends()->Clear();
    options_.hello.add_backends("cpu");
    if (!sandbox::HasLandlock()) {
      return;  // No driver is loaded.
    }
    for (const char* family : {"opencl", "vulkan"}) {
      const StatusOr<internal::Ready> found = supervisor::ProbeDevices(options_.program, family, kPatience);
      EXPECT_TRUE(found.ok()) << Message(found.status());
      if (found.ok() && !found->devices().empty()) {
        options_.hello.add_backends(found->devices(0).device().id());
        devices_.push_back(found->devices(0).device().id());
      }
    }
  }

  bool Has(const std::string& family) const {
    return std::any_of(devices_.begin(), devices_.end(),
                       [&](const std::string& device) { return device.starts_with(family); });
  }

  supervisor::PrepareInput Input(uint64_t handle, const std::string& document, std::span<const uint8_t> module) {
    supervisor::PrepareInput input;
    input.handle = handle;
    input.document.bytes = AsBytes(document);
    input.modules = {{"m", HashOf(module), {.bytes = module}}};
    return input;
  }

  void MustPrepare(uint64_t handle, const std::string& document, std::span<const uint8_t> module) {
    const StatusOr<internal::Prepared> reply = Prepare(Input(handle, document, module));
    ASSERT_TRUE(reply.ok()) << Message(reply.status());
    ASSERT_TRUE(reply->has_summary()) << Text(*reply);
  }

  void ExpectTwice(uint64_t handle, const std::string& device) {
    const StatusOr<supervisor::RunReply> reply = Run(InlineRun(handle, std::vector<int32_t>{1, 2, 3, 40, -5}));
    ASSERT_TRUE(reply.ok()) << Message(reply.status());
    ASSERT_TRUE(reply->status().ok()) << Message(reply->status());
    EXPECT_THAT(AsInts(FirstOutput(*reply)), ElementsAre(2, 4, 6, 80, -10));
    ASSERT_EQ(reply->done.nodes_size(), 1);
    EXPECT_EQ(reply->done.nodes(0).device(), device);
  }

  std::vector<std::string> devices_;  // Devices with drivers: the first of each family.
};

// A WebAssembly module on every device, inside the complete sandbox.
TEST_F(DriverDevicesTest, WebAssemblyOnEveryDevice) {
  if (devices_.empty()) {
    GTEST_SKIP() << "No driver is here.";
  }
  Start();
  EXPECT_GE(ready_.said.sandbox_level(), 1u) << ready_.said.sandbox_detail();
  ASSERT_EQ(static_cast<size_t>(ready_.said.devices_size()), devices_.size() + 1);
  EXPECT_TRUE(ready_.said.broken().empty());
  uint64_t handle = 1;
  for (const std::string& device : devices_) {
    SCOPED_TRACE(device);
    MustPrepare(handle, Document("wasm", "twice", device), testing::kKernelsWasm);
    ExpectTwice(handle++, device);
  }
}

// A device that does not open is reported; the executor continues with the others.
TEST_F(DriverDevicesTest, BrokenDevicesAreLeftOut) {
  if (!sandbox::HasLandlock()) {
    GTEST_SKIP() << "The kernel has no Landlock.";
  }
  options_.hello.mutable_backends()->Clear();
  options_.hello.add_backends("cpu");
  options_.hello.add_backends("opencl:77");
  Start();
  EXPECT_EQ(ready_.said.devices_size(), 1);
  ASSERT_EQ(ready_.said.broken_size(), 1);
  EXPECT_EQ(ready_.said.broken(0).id(), "opencl:77");
  PrepareOneNode(1, "twice");
  EXPECT_TRUE(Run(InlineRun(1, std::vector<int32_t>{1})).ok());
}

// OpenCL C runs; code that the driver refuses gives a diagnostic with its log.
TEST_F(DriverDevicesTest, OpenClC) {
  if (!Has("opencl")) {
    GTEST_SKIP() << "No OpenCL driver is here.";
  }
  Start();
  MustPrepare(1, Document("opencl", "twice", "opencl:0"), AsBytes(kOpenClC));
  ExpectTwice(1, "opencl:0");
  const std::string bad = "__kernel void twice(__global const int* in, __global int* out) { out[0] = nonsense; }";
  const StatusOr<internal::Prepared> reply = Prepare(Input(2, Document("opencl", "twice", "opencl:0"), AsBytes(bad)));
  ASSERT_TRUE(reply.ok()) << Message(reply.status());
  EXPECT_FALSE(reply->has_summary());
  EXPECT_THAT(Text(*reply), AllOf(HasSubstr("/nodes/node/variants/0"), HasSubstr("nonsense")));
  ExpectTwice(1, "opencl:0");
}

// A kernel that never ends costs the process once its run's time and grace have passed, and nothing more.
TEST_F(DriverDevicesTest, EndlessKernelsEnd) {
  if (devices_.empty()) {
    GTEST_SKIP() << "No driver is here.";
  }
  options_.stop_grace = std::chrono::milliseconds(500);
  for (const std::string& device : devices_) {
    SCOPED_TRACE(device);
    Start();
    MustPrepare(1, Document("wasm", "endless", device), testing::kKernelsWasm);
    // Many instances, because Mesa's lavapipe ends each after 65,535 iterations of its loops.
    const std::vector<int32_t> values(1'000'000, 1);
    supervisor::RunInput input = InlineRun(1, values);
    input.outputs = {{.name = "y", .kind = supervisor::OutputTarget::Kind::kDiscard, .memory = {}}};
    input.within = std::chrono::milliseconds(200);
    const Time start = RealClock().Now();
    const StatusOr<supervisor::RunReply> reply = Run(input);
    EXPECT_FALSE(reply.ok()) << (reply.ok() ? Message(reply->status()) : "");
    EXPECT_THAT(Message(reply.status()), HasSubstr("killed"));
    link_.reset();  // Returns when the process is reaped.
    EXPECT_LT(RealClock().Now() - start, std::chrono::seconds(2));
  }
}

// A tenant's own code that writes out of bounds ends its executor and nothing else.
TEST_F(DriverDevicesTest, CrashesEndTheExecutor) {
  if (!Has("opencl")) {
    GTEST_SKIP() << "No OpenCL driver is here.";
  }
  Start();
  std::unique_ptr<supervisor::ExecutorLink> neighbour = std::move(link_);
  Start();
  MustPrepare(1, Document("opencl", "astray", "opencl:0"), AsBytes(kOpenClC));
  const StatusOr<supervisor::RunReply> reply = Run(InlineRun(1, std::vector<int32_t>{1}));
  // The host's processor faults; a GPU loses its context.
  EXPECT_TRUE(!reply.ok() || !reply->status().ok());
  std::swap(link_, neighbour);
  MustPrepare(1, Document("opencl", "twice", "opencl:0"), AsBytes(kOpenClC));
  ExpectTwice(1, "opencl:0");
}

// Driver memory held by runs is reported, and returned when requested; run times of nodes are reported too.
TEST_F(DriverDevicesTest, TellsAndGivesBackDeviceMemory) {
  if (!Has("opencl")) {
    GTEST_SKIP() << "No OpenCL driver is here.";
  }
  auto told = std::make_shared<std::promise<internal::Usage>>();
  auto news = told->get_future();
  options_.on_usage = [told, once = std::make_shared<std::once_flag>()](const internal::Usage& usage) {
    std::call_once(*once, [&] { told->set_value(usage); });
  };
  Start();
  MustPrepare(1, Document("wasm", "twice", "opencl:0"), testing::kKernelsWasm);
  const StatusOr<supervisor::RunReply> reply = Run(InlineRun(1, std::vector<int32_t>(1000, 7)));
  ASSERT_TRUE(reply.ok() && reply->status().ok()) << Message(reply.ok() ? reply->status() : reply.status());
  EXPECT_EQ(static_cast<size_t>(reply->done.device_ns_size()), devices_.size() + 1);
  EXPECT_GT(reply->done.device_ns(1), 0u);
  EXPECT_LE(reply->done.device_ns(1), reply->done.timing().run_ns());
  ASSERT_EQ(news.wait_for(kPatience), std::future_status::ready);
  const internal::Usage usage = news.get();
  ASSERT_GE(usage.device_bytes_size(), 2);
  EXPECT_EQ(usage.device_bytes(0), 0u);
  EXPECT_GE(usage.device_bytes(1), 8000u);
  EXPECT_EQ(usage.idle_device_bytes(1), usage.device_bytes(1));
  internal::Envelope reclaim;
  reclaim.mutable_reclaim()->set_entry(1);
  const StatusOr<internal::Envelope> left =
      Await<internal::Envelope>([&](auto done) { link_->Ask(std::move(reclaim), std::move(done)); });
  ASSERT_TRUE(left.ok()) << Message(left.status());
  EXPECT_EQ(left->usage().device_bytes(1), 0u);
  ExpectTwice(1, "opencl:0");
}

// The grant page bounds the memory that runs may hold, and no work is passed to a driver whose device is not granted.
TEST_F(DriverDevicesTest, ObeysTheGrantPage) {
  if (!Has("opencl")) {
    GTEST_SKIP() << "No OpenCL driver is here.";
  }
  const StatusOr<UniqueFd> fd = CreateSealedMemfd("grants", kGrantPageBytes);
  ASSERT_TRUE(fd.ok());
  const StatusOr<Mapping> mapping = Mapping::Map(fd->get(), kGrantPageBytes, Mapping::Access::kReadWrite);
  ASSERT_TRUE(mapping.ok());
  auto* page = reinterpret_cast<GrantPage*>(const_cast<uint8_t*>(mapping->data()));
  for (GrantEntry& entry : page->entries) {
    entry.state.store(static_cast<uint32_t>(GrantState::kGranted));
    entry.cpu_threads.store(1);
  }
  options_.grant_page = fd->get();
  Start();
  MustPrepare(1, Document("wasm", "twice", "opencl:0"), testing::kKernelsWasm);
  ExpectTwice(1, "opencl:0");
  page->entries[1].bytes_max.store(1000);
  StatusOr<supervisor::RunReply> reply = Run(InlineRun(1, std::vector<int32_t>(1000, 7)));
  ASSERT_TRUE(reply.ok()) << Message(reply.status());
  EXPECT_EQ(reply->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(reply->done.short_entry_plus_1(), 0u);
  page->entries[1].bytes_max.store(0);
  page->entries[1].state.store(static_cast<uint32_t>(GrantState::kRevoked));
  internal::Envelope changed;
  changed.mutable_grant_changed()->set_entry(1);
  changed.mutable_grant_changed()->set_epoch(1);
  const Status acknowledged =
      Await<internal::Envelope>([&](auto done) { link_->Ask(std::move(changed), std::move(done)); }).status();
  EXPECT_TRUE(acknowledged.ok()) << Message(acknowledged);
  const std::vector<int32_t> sevens(1000, 7);
  supervisor::RunInput late = InlineRun(1, sevens);
  late.within = std::chrono::milliseconds(200);
  reply = Run(late);
  ASSERT_TRUE(reply.ok()) << Message(reply.status());
  EXPECT_EQ(reply->status().code(), absl::StatusCode::kDeadlineExceeded);
  page->entries[1].state.store(static_cast<uint32_t>(GrantState::kGranted));
  ExpectTwice(1, "opencl:0");
}

}  // namespace
}  // namespace hpvm::executor
