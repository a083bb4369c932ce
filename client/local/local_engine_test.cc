// SPDX-License-Identifier: Apache-2.0
// Tests of the engine without a daemon, with the real executor and compiler.
#include "hpvm/local_engine.h"

#include <signal.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "base/clock.h"
#include "base/status.h"
#include "hpvm/diagnostics.h"

namespace hpvm {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr ElementType kF32 = ElementType::kF32;

Tensor Matrix(uint64_t rows, uint64_t columns, float value) {
  Tensor tensor{kF32, {rows, columns}, std::vector<uint8_t>(rows * columns * sizeof(float))};
  for (size_t i = 0; i < rows * columns; ++i) {
    std::memcpy(tensor.data.data() + i * sizeof(float), &value, sizeof(float));
  }
  return tensor;
}

Graph Matmul() {
  Graph graph("matmul");
  graph.Input("A", kF32, {"m", "k"});
  graph.Input("B", kF32, {"k", "n"});
  graph.Output("C", kF32, {"m", "n"});
  graph.ModuleFile("matmul", v1::MODULE_KIND_WASM, HPVMD_SOURCE_DIR "/examples/matmul/matmul.wasm");
  graph.Node("multiply", {.module = "matmul",
                          .entry = "matmul",
                          .ports = {In("a", kF32, {"m", "k"}), In("b", kF32, {"k", "n"}), Out("c", kF32, {"m", "n"})},
                          .scalars = {{"n", "i32", "n"}, {"k", "i32", "k"}},
                          .instances = {"n", "m"}});
  graph.Connect("A", "multiply.a");
  graph.Connect("B", "multiply.b");
  graph.Connect("multiply.c", "C");
  return graph;
}

class LocalEngineTest : public testing::Test {
 protected:
  LocalEngineTest() {
    char name[] = "/tmp/hpvm-local-engine-XXXXXX";
    folder_ = mkdtemp(name);
    StatusOr<std::unique_ptr<LocalEngine>> engine =
        LocalEngine::Start({.program = HPVMD_BINARY_DIR "/hpvm-executor", .cache_folder = folder_ + "/cache"});
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = engine.ok() ? *std::move(engine) : nullptr;
  }
  ~LocalEngineTest() override {
    engine_ = nullptr;
    std::filesystem::remove_all(folder_);
  }

  std::string folder_;
  std::unique_ptr<LocalEngine> engine_;
};

// Small tensors travel within the message, large ones through memory, whose size the first run determines.
TEST_F(LocalEngineTest, RunsGraphs) {
  ASSERT_NE(engine_, nullptr);
  const StatusOr<Prepared> prepared = engine_->Prepare(Matmul());
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->summary.name(), "matmul");
  EXPECT_EQ(engine_->ListDevices().at(0).id(), "cpu:0");
  for (const uint64_t size : {4u, 512u, 4u, 512u}) {
    const StatusOr<RunOutcome> outcome =
        engine_->Run(prepared->handle, {{"A", Matrix(size, size, 2)}, {"B", Matrix(size, size, 3)}});
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->outputs.at("C").data, Matrix(size, size, 6 * static_cast<float>(size)).data);
  }
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/cache/artifact.key"));
  EXPECT_EQ(engine_->Release(prepared->handle), absl::OkStatus());
  EXPECT_EQ(engine_->Release(prepared->handle).code(), absl::StatusCode::kNotFound);
  for (const std::string handle : {prepared->handle.c_str(), "local-", "local-99", "local-1x", "", "graph-1"}) {
    EXPECT_EQ(engine_->Run(handle, {}).status().code(), absl::StatusCode::kNotFound) << handle;
  }
}

// From several threads, with several graphs at once.
TEST_F(LocalEngineTest, ManyThreadsRun) {
  ASSERT_NE(engine_, nullptr);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      const StatusOr<Prepared> prepared = engine_->Prepare(Matmul());
      ASSERT_TRUE(prepared.ok()) << prepared.status();
      for (int i = 0; i < 20; ++i) {
        const StatusOr<RunOutcome> outcome =
            engine_->Run(prepared->handle, {{"A", Matrix(8, 8, 1)}, {"B", Matrix(8, 8, 1)}});
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        EXPECT_EQ(outcome->outputs.at("C").data, Matrix(8, 8, 8).data);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST_F(LocalEngineTest, FailuresTellTheirPlaces) {
  ASSERT_NE(engine_, nullptr);
  StatusOr<Prepared> prepared = engine_->Prepare(R"({"hpvm": 1, "inputs": {}, "outputs": {}, "modules": {},
                                                     "nodes": {"a": {"ports": [], "variants": []}}, "edges": []})",
                                                 {});
  ASSERT_EQ(prepared.status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_FALSE(DiagnosticsOf(prepared.status()).empty());
  EXPECT_EQ(DiagnosticsOf(prepared.status())[0].place(), "/nodes/a/variants");
  // Errors found by the builder itself, and by the engine in a graph that was built.
  Graph graph = Matmul();
  graph.Connect("nobody.x", "C");
  EXPECT_EQ(DiagnosticsOf(engine_->Prepare(graph).status()).at(0).place(), "/edges/3/from");
  Graph twice = Matmul();
  twice.Connect("multiply.c", "C");
  EXPECT_EQ(DiagnosticsOf(engine_->Prepare(twice).status()).at(0).place(), "/outputs/C");
  EXPECT_EQ(engine_->Prepare("{}", {.bytes = {}, .hashes = {{"m", std::string(64, 'a')}}}).status().code(),
            absl::StatusCode::kNotFound);
  RunOptions options;
  options.input_buffers["A"] = {.buffer_id = "buffer-1"};
  EXPECT_EQ(engine_->Run("local-1", {}, options).status().code(), absl::StatusCode::kInvalidArgument);
}

// A run that would take minutes ends by its timeout, and by a cancellation.
TEST_F(LocalEngineTest, LongRunsEnd) {
  ASSERT_NE(engine_, nullptr);
  const StatusOr<Prepared> prepared = engine_->Prepare(Matmul());
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  RunOptions options;
  options.repetition.repeat = 1'000'000;
  options.call.timeout = milliseconds(200);
  const std::map<std::string, Tensor> inputs = {{"A", Matrix(64, 64, 1)}, {"B", Matrix(64, 64, 1)}};
  EXPECT_EQ(engine_->Run(prepared->handle, inputs, options).status().code(), absl::StatusCode::kDeadlineExceeded);
  options.call.timeout = kNever;
  Cancellation cancellation;
  options.call.cancel = cancellation;
  Time triggered{0};
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(200));
    triggered = RealClock().Now();
    cancellation.Cancel();
  });
  EXPECT_EQ(engine_->Run(prepared->handle, inputs, options).status().code(), absl::StatusCode::kCancelled);
  const Time ended = RealClock().Now();
  other.join();
  EXPECT_LT(ended - triggered, milliseconds(100));
  EXPECT_EQ(engine_->Run(prepared->handle, inputs, options).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(engine_->Run(prepared->handle, inputs).ok());
}

TEST(LocalEngineStartTest, SaysWhatIsMissing) {
  EXPECT_FALSE(LocalEngine::Start({.program = "/nowhere/hpvm-executor"}).ok());
  const Status no_device =
      LocalEngine::Start({.program = HPVMD_BINARY_DIR "/hpvm-executor", .devices = {"toaster:0"}}).status();
  EXPECT_FALSE(no_device.ok());
  EXPECT_THAT(Message(no_device), HasSubstr("toaster"));
}

}  // namespace
}  // namespace hpvm
