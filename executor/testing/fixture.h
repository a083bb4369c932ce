// SPDX-License-Identifier: Apache-2.0
// A real executor process behind a link, and synchronous requests.
#ifndef HPVMD_EXECUTOR_TESTING_FIXTURE_H_
#define HPVMD_EXECUTOR_TESTING_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/io/memfd.h"
#include "executor/testing/kernels.h"
#include "proto/internal/protocol.h"
#include "supervisor/executor_link.h"

namespace hpvm::executor::testing {

inline constexpr Duration kPatience = std::chrono::seconds(30);  // The machine may be busy.

inline std::span<const uint8_t> AsBytes(std::span<const int32_t> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()};
}
inline std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
inline std::vector<int32_t> AsInts(std::span<const uint8_t> bytes) {
  std::vector<int32_t> values(bytes.size() / sizeof(int32_t));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t*>(values.data()));
  return values;
}

// One node `entry` from input "x" to output "y", both i32 of shape [n], one instance per element.
inline std::string OneNode(const std::string& entry) {
  return R"({"hpvm":1,"inputs":{"x":{"type":"i32","shape":["n"]}},"outputs":{"y":{"type":"i32","shape":["n"]}},)"
         R"("modules":{"m":{"kind":"wasm","source":{"file":"m.wasm"}}},"nodes":{"node":{"ports":[)"
         R"({"name":"in","access":"in","type":"i32","shape":["n"]},)"
         R"({"name":"out","access":"out","type":"i32","shape":["n"]}],)"
         R"("instances":["n"],"variants":[{"module":"m","entry":")" +
         entry + R"("}]}},"edges":[{"from":"x","to":"node.in"},{"from":"node.out","to":"y"}]})";
}

class ExecutorFixture : public ::testing::Test {
 protected:
  ExecutorFixture() {
    StatusOr<std::unique_ptr<supervisor::ExecutorHub>> hub = supervisor::ExecutorHub::Create();
    HPVMD_CHECK(hub.ok());
    hub_ = *std::move(hub);
    options_.program = std::string(HPVMD_BINARY_DIR) + "/hpvm-executor";
    options_.hello.set_artifact_key(std::string(32, 7));
    options_.stop_grace = std::chrono::seconds(20);  // Tests of the grace set their own.
    options_.ready_within = kPatience;
  }

  // Starts a process and waits until it is ready.
  void Start() {
    StatusOr<std::unique_ptr<supervisor::ExecutorLink>> link =
        supervisor::ExecutorLink::Start(*hub_, options_, nullptr, [this](const Status& why) {
          std::lock_guard lock(end_mutex_);
          ends_.push_back(why);
        });
    ASSERT_TRUE(link.ok()) << Message(link.status());
    link_ = *std::move(link);
    StatusOr<supervisor::ExecutorReady> ready = link_->WaitReady(RealClock().Now() + kPatience);
    ASSERT_TRUE(ready.ok()) << Message(ready.status());
    ready_ = *std::move(ready);
  }

  supervisor::PrepareInput OneNodeInput(uint64_t handle, const std::string& document) {
    supervisor::PrepareInput input;
    input.handle = handle;
    input.document.bytes = AsBytes(document);
    input.modules = {{"m", HashOf(kKernelsWasm), {.bytes = kKernelsWasm}}};
    return input;
  }

  template <typename Reply, typename Ask>
  static StatusOr<Reply> Await(Ask ask) {
    auto promise = std::make_shared<std::promise<StatusOr<Reply>>>();
    std::future<StatusOr<Reply>> future = promise->get_future();
    ask([promise](StatusOr<Reply> reply) { promise->set_value(std::move(reply)); });
    if (future.wait_for(kPatience) != std::future_status::ready) {
      return DeadlineExceeded("No answer came.");
    }
    return future.get();
  }

  StatusOr<internal::Prepared> Prepare(const supervisor::PrepareInput& input) {
    StatusOr<internal::Prepared> reply =
        Await<internal::Prepared>([&](auto done) { link_->Prepare(input, std::move(done)); });
    const Status status = reply.ok() ? GetStatus(reply->status()) : reply.status();
    return status.ok() ? std::move(reply) : status;
  }
  StatusOr<supervisor::RunReply> Run(const supervisor::RunInput& input) {
    return Await<supervisor::RunReply>([&](auto done) { link_->Run(input, std::move(done)); });
  }

  // Prepares OneNode(entry) and fails the test when that does not work.
  void PrepareOneNode(uint64_t handle, const std::string& entry) {
    const std::string document = OneNode(entry);
    const StatusOr<internal::Prepared> reply = Prepare(OneNodeInput(handle, document));
    ASSERT_TRUE(reply.ok()) << Message(reply.status());
    ASSERT_TRUE(reply->has_summary()) << Text(*reply);
  }

  static std::string Text(const internal::Prepared& reply) { return ToString(GetDiagnostics(reply.diagnostics())); }
  // Returns the data of the first output.
  static std::span<const uint8_t> FirstOutput(const supervisor::RunReply& reply) {
    return reply.DataOf(reply.done.outputs(0));
  }

  static supervisor::RunInput InlineRun(uint64_t handle, std::span<const int32_t> values) {
    supervisor::RunInput input;
    input.handle = handle;
    input.inputs = {{"x", ElementType::kI32, {values.size()}, AsBytes(values), std::nullopt}};
    return input;
  }

  supervisor::ExecutorOptions options_;
  std::unique_ptr<supervisor::ExecutorHub> hub_;
  std::mutex end_mutex_;
  std::vector<Status> ends_;  // Guarded by end_mutex_.
  supervisor::ExecutorReady ready_;
  std::unique_ptr<supervisor::ExecutorLink> link_;  // Last member: destroyed before the members that its callbacks use.
};

}  // namespace hpvm::executor::testing

#endif  // HPVMD_EXECUTOR_TESTING_FIXTURE_H_
