// SPDX-License-Identifier: Apache-2.0
// Tests the engine with devices that differ: targets, tiers, refusals, limits, memory shared between two drivers,
// losses. The devices run C++ functions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/prepared_graph.h"
#include "engine/testing/document.h"
#include "engine/testing/function_device.h"

namespace hpvm::engine {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using testing::CreateFunctionDevice;
using testing::Document;
using testing::FunctionCall;
using testing::FunctionCompiler;
using testing::FunctionDeviceCounts;
using testing::FunctionDeviceOptions;
using testing::KernelFunctions;

using Tensor = std::vector<int32_t>;

KernelFunctions MakeKernels() {
  KernelFunctions kernels;
  kernels["add1"] = [](const FunctionCall& call) {
    auto* data = reinterpret_cast<int32_t*>(call.arguments[0].data);
    for (size_t i = 0; i < call.arguments[0].bytes / sizeof(int32_t); ++i) {
      ++data[i];
    }
    return ir::TrapCode::kNone;
  };
  return kernels;
}

FunctionDeviceOptions Gpu(const std::string& id, ArtifactKind kind = ArtifactKind::kOpenCl) {
  FunctionDeviceOptions options;
  options.id = id;
  options.kind = DeviceKind::kGpu;
  options.artifact_kind = kind;
  options.host_visible = false;
  options.runs_inline = false;
  return options;
}

class NoModules final : public ModuleSource {
 public:
  StatusOr<std::span<const uint8_t>> Find(const graph::Module&) override { return NotFound("There is none."); }
};

// Returns a chain of nodes that add 1 to x, each with its own further members.
std::string Chain(const std::vector<std::string>& nodes, const std::string& modules) {
  Document d("i32", "[\"n\"]");
  d.Input("x");
  d.Output("y");
  std::string from = "x";
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::string name = "n" + std::to_string(i);
    d.Node(name, "add1", {"inout data"}, nodes[i]);
    d.Edge(from, name + ".data");
    from = name + ".data";
  }
  d.Edge(from, "y");
  std::string text = d.Text();
  const std::string known = R"({"m":{"kind":"wasm","source":{"file":"m.wasm"}}})";
  text.replace(text.find(known), known.size(), modules);
  return text;
}

// Bytes that only the compiler would read.
const std::string kWasm = R"({"m":{"kind":"wasm","source":{"inline":"AGFzbQ=="}}})";

class DevicesTest : public ::testing::Test {
 protected:
  void Devices(const std::vector<FunctionDeviceOptions>& devices) {
    engine_.reset();
    devices_.clear();
    counts_.assign(devices.size(), {});
    std::vector<Device*> borrowed;
    for (size_t i = 0; i < devices.size(); ++i) {
      devices_.push_back(CreateFunctionDevice(hub_, kernels_, devices[i], &counts_[i]));
      borrowed.push_back(devices_.back().get());
    }
    engine_ = std::make_unique<Engine>(EngineOptions{.devices = borrowed,
                                                     .hub = &hub_,
                                                     .compiler = &compiler_,
                                                     .clock = &RealClock(),
                                                     .graph_limits = {},
                                                     .device_limits = limits_,
                                                     .emitted_refusals = emitted_refusals_});
  }

  StatusOr<PrepareOutcome> Prepare(const std::string& document) {
    return engine_->Prepare(document, modules_, kNever, {.lost_devices = &lost_});
  }

  std::shared_ptr<PreparedGraph> MustPrepare(const std::string& document) {
    StatusOr<PrepareOutcome> outcome = Prepare(document);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    if (!outcome.ok()) {
      return nullptr;
    }
    EXPECT_FALSE(HasErrors(outcome->diagnostics)) << ToString(outcome->diagnostics);
    diagnostics_ = ToString(outcome->diagnostics);
    return outcome->graph;
  }

  // Computes y for x = 0, 1, 2 ... and records where each node ran.
  Status Run(PreparedGraph& graph, size_t elements = 4) {
    Tensor x(elements);
    for (size_t i = 0; i < elements; ++i) {
      x[i] = static_cast<int32_t>(i);
    }
    y_.assign(elements, -1);
    const auto bind = [&](Tensor& tensor) {
      return Binding{.type = ElementType::kI32,
                     .shape = {elements},
                     .data = reinterpret_cast<uint8_t*>(tensor.data()),
                     .bytes = elements * sizeof(int32_t)};
    };
    lost_.clear();
    RunRequest request;
    request.inputs["x"] = bind(x);
    request.outputs["y"] = bind(y_);
    request.lost_devices = &lost_;
    const StatusOr<RunResult> result = engine_->Run(graph, request);
    ran_on_.clear();
    if (result.ok()) {
      for (const NodeRecord& node : result->nodes) {
        ran_on_.push_back(node.device);
      }
    }
    return result.status();
  }

  Hub hub_;
  const KernelFunctions kernels_ = MakeKernels();
  FunctionCompiler compiler_{kernels_};
  std::vector<std::string> emitted_refusals_;
  std::vector<DeviceMemory::Limits> limits_;
  NoModules modules_;
  std::vector<FunctionDeviceCounts> counts_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Engine> engine_;
  std::string diagnostics_;
  std::vector<std::string> lost_, ran_on_;
  Tensor y_;
};

// Devices with equal targets share one compile; another target gets its own.
TEST_F(DevicesTest, OneCompileForEqualTargets) {
  FunctionDeviceOptions other = Gpu("opencl:2");
  other.gpu.has_fp64 = true;
  Devices({{}, Gpu("opencl:0"), Gpu("opencl:1"), other, Gpu("vulkan:0", ArtifactKind::kVulkan)});
  ASSERT_NE(MustPrepare(Chain({"", ""}, kWasm)), nullptr);
  EXPECT_EQ(compiler_.compiles, 4u);
  for (const FunctionDeviceCounts& counts : counts_) {
    EXPECT_EQ(counts.loads, 1u);
  }
  Devices({{}, other});
  ASSERT_NE(MustPrepare(Chain({R"(,"devices":["gpu"])"}, kWasm)), nullptr);
  EXPECT_TRUE(compiler_.last.gpu.has_fp64);
  EXPECT_EQ(compiler_.last.target, ArtifactKind::kOpenCl);
}

// Emulated devices run only leaves that no real device runs, or that name them; nothing is compiled for them
// otherwise.
TEST_F(DevicesTest, EmulatedDevicesAreATierOfTheirOwn) {
  FunctionDeviceOptions emulated = Gpu("opencl:0");
  emulated.is_emulated = true;
  Devices({{}, emulated});
  auto graph = MustPrepare(Chain({"", R"(,"hints":["opencl:0"])"}, kWasm));
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(compiler_.compiles, 1u);
  ASSERT_TRUE(Run(*graph).ok());
  EXPECT_THAT(ran_on_, ElementsAre("cpu:0", "cpu:0"));
  graph = MustPrepare(Chain({"", R"(,"devices":["opencl:0"])"}, kWasm));
  ASSERT_NE(graph, nullptr);
  ASSERT_TRUE(Run(*graph).ok());
  EXPECT_THAT(ran_on_, ElementsAre("cpu:0", "opencl:0"));
  EXPECT_THAT(y_, ElementsAre(2, 3, 4, 5));
  // OpenCL C runs on no CPU device, so nothing is compiled for it.
  const uint32_t compiles = compiler_.compiles;
  graph = MustPrepare(Chain({""}, R"({"m":{"kind":"opencl","source":{"inline":"AAAA"},"options":"-DX=1"}})"));
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(diagnostics_, IsEmpty());
  EXPECT_EQ(compiler_.compiles, compiles + 1);
  EXPECT_EQ(compiler_.last.options, "-DX=1");
  ASSERT_TRUE(Run(*graph).ok());
  EXPECT_THAT(ran_on_, ElementsAre("opencl:0"));
}

// When a compile for the processor is refused or takes too long, the leaf does not go to an emulated device of the
// same processor, unless the document names it. A limit is not reported as an error of the document.
TEST_F(DevicesTest, EmulatedDevicesReplaceNoFailedCompile) {
  FunctionDeviceOptions emulated = Gpu("opencl:0");
  emulated.is_emulated = true;
  Devices({{}, emulated});
  compiler_.refused[ArtifactKind::kCpuImage] = {"add1"};
  StatusOr<PrepareOutcome> outcome = Prepare(Chain({""}, kWasm));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->graph, nullptr);
  EXPECT_THAT(ToString(outcome->diagnostics), HasSubstr("There is no exported function"));
  EXPECT_EQ(compiler_.compiles, 1u);
  for (const char* naming : {R"(,"devices":["cpu","opencl:0"])", R"(,"hints":["opencl:0"])"}) {
    auto graph = MustPrepare(Chain({naming}, kWasm));
    ASSERT_NE(graph, nullptr);
    EXPECT_THAT(diagnostics_, HasSubstr("There is no exported function"));
    ASSERT_TRUE(Run(*graph).ok());
    EXPECT_THAT(ran_on_, ElementsAre("opencl:0"));
  }
  compiler_.refused.clear();
  compiler_.over_limit[ArtifactKind::kCpuImage] = {"add1"};
  Duration cpu{0};
  outcome = engine_->Prepare(Chain({"", ""}, kWasm), modules_, kNever, {.compile_cpu = &cpu});
  EXPECT_TRUE(absl::IsResourceExhausted(outcome.status())) << outcome.status();
  EXPECT_THAT(Message(outcome.status()),
              AllOf(HasSubstr("this server's limit (1 s)"), HasSubstr("entry \"add1\" of module \"m\""),
                    HasSubstr("/nodes/n0/variants/0")));
  EXPECT_EQ(cpu, std::chrono::seconds(1));
  // When another real device runs the leaf, the limit is a warning.
  Devices({{}, Gpu("opencl:0")});
  auto graph = MustPrepare(Chain({""}, kWasm));
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(diagnostics_, HasSubstr("this server's limit (1 s)"));
  ASSERT_TRUE(Run(*graph).ok());
  EXPECT_THAT(ran_on_, ElementsAre("opencl:0"));
}

// A stop word ends a preparation.
TEST_F(DevicesTest, PreparationsAreCancelled) {
  Devices({{}});
  const std::atomic<uint32_t> stop{1};
  EXPECT_TRUE(absl::IsCancelled(engine_->Prepare(Chain({""}, kWasm), modules_, kNever, {.stop = &stop}).status()));
}

// For modules that the allowed devices do not run, the message says which device runs which modules.
TEST_F(DevicesTest, NamesWhatDevicesDoNotRun) {
  Devices({{}, Gpu("opencl:0"), Gpu("vulkan:0", ArtifactKind::kVulkan)});
  struct Case {
    const char *name, *kind, *base64, *restriction;
    std::vector<std::string> want;
  };
  // SPIR-V headers with one capability: Kernel (6), and Shader (1) behind another.
  const Case cases[] = {
      {"OpenCL C on Vulkan", "opencl", "AAAA", "vulkan:0", {"/nodes/n0", "vulkan:0 does not run OpenCL C modules"}},
      {"OpenCL C on the CPU", "opencl", "AAAA", "cpu", {"cpu:0 does not run OpenCL C modules"}},
      {"kernel SPIR-V on Vulkan",
       "spirv",
       "AwIjBwAAAQAAAAAAAQAAAAAAAAARAAIABgAAAA==",
       "vulkan:0",
       {"vulkan:0 does not run kernel-flavoured SPIR-V modules"}},
      {"shader on OpenCL",
       "spirv",
       "AwIjBwAAAQAAAAAAAQAAAAAAAAARAAIACwAAABEAAgABAAAA",
       "opencl:0",
       {"opencl:0 does not run shader SPIR-V modules"}},
      {"bitstream on a GPU", "bitstream", "AAAA", "gpu", {"opencl:0 does not run bitstreams"}},
  };
  for (const Case& c : cases) {
    const std::string modules =
        std::string(R"({"m":{"kind":")") + c.kind + R"(","source":{"inline":")" + c.base64 + R"("}}})";
    const StatusOr<PrepareOutcome> outcome =
        Prepare(Chain({std::string(R"(,"devices":[")") + c.restriction + R"("])"}, modules));
    EXPECT_TRUE(absl::IsFailedPrecondition(outcome.status())) << c.name << ": " << outcome.status();
    for (const std::string& want : c.want) {
      EXPECT_THAT(Message(outcome.status()), HasSubstr(want)) << c.name;
    }
  }
}

// When a driver refuses the module, that is an error if nothing else runs the leaf, else a warning. Other failures to
// load fail the preparation.
TEST_F(DevicesTest, RefusedLoadsAreDiagnostics) {
  FunctionDeviceOptions refusing = Gpu("opencl:0");
  refusing.invalid_entries = {"add1"};
  Devices({refusing, {}});
  auto graph = MustPrepare(Chain({""}, kWasm));
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(diagnostics_, AllOf(HasSubstr("/nodes/n0/variants/0"), HasSubstr("Device opencl:0 refuses the kernel"),
                                  HasSubstr("The driver says no.")));
  ASSERT_TRUE(Run(*graph).ok());
  EXPECT_THAT(ran_on_, ElementsAre("cpu:0"));
  StatusOr<PrepareOutcome> outcome = Prepare(Chain({"", R"(,"devices":["gpu"])"}, kWasm));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(HasErrors(outcome->diagnostics));
  EXPECT_EQ(outcome->graph, nullptr);
  refusing.invalid_entries = {};
  refusing.refused_entries = {"add1"};
  Devices({refusing, {}});
  outcome = Prepare(Chain({""}, kWasm));
  EXPECT_TRUE(absl::IsInternal(outcome.status()));
  EXPECT_THAT(Message(outcome.status()), HasSubstr("on device opencl:0"));
}

// A device that runs our generated code wrongly gets none of it: the node goes elsewhere, or is refused with the
// reason. Modules that were written for the device run there, and the summary names them.
TEST_F(DevicesTest, EmittedCodeIsRefusedWhereItIsWrong) {
  emitted_refusals_ = {"Its driver computes generated code wrongly.", ""};
  Devices({Gpu("opencl:0"), {}});
  auto graph = MustPrepare(Chain({""}, kWasm));
  ASSERT_NE(graph, nullptr);
  ASSERT_TRUE(Run(*graph).ok());
  EXPECT_THAT(ran_on_, ElementsAre("cpu:0"));
  const std::string only_there = Chain({"", R"(,"devices":["gpu"])"}, kWasm);
  StatusOr<PrepareOutcome> outcome = Prepare(only_there);
  EXPECT_TRUE(absl::IsFailedPrecondition(outcome.status())) << outcome.status();
  EXPECT_THAT(Message(outcome.status()), HasSubstr("Device opencl:0: Its driver computes generated code wrongly."));
  compiler_.native_entries = {"add1"};
  Devices({Gpu("opencl:0"), {}});
  outcome = Prepare(only_there);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_NE(outcome->graph, nullptr) << ToString(outcome->diagnostics);
  ASSERT_FALSE(outcome->summary.native_nodes.empty());
  EXPECT_EQ(outcome->summary.native_nodes.back().name, "n1");
  EXPECT_EQ(outcome->summary.native_nodes.back().module, "m");
  EXPECT_THAT(outcome->summary.native_nodes.back().devices, ElementsAre("opencl:0"));
}

// When sizes exceed a device's limits, the node goes elsewhere, or is refused by name with both numbers.
TEST_F(DevicesTest, LaunchesKeepToLimits) {
  FunctionDeviceOptions small = Gpu("opencl:0");
  small.allocation_bytes_max = 64;
  small.group_items_max = 8;
  Devices({small, {}});
  auto graph = MustPrepare(Chain({R"(,"hints":["gpu"])"}, kWasm));
  ASSERT_NE(graph, nullptr);
  ASSERT_TRUE(Run(*graph, 16).ok());
  EXPECT_THAT(ran_on_, ElementsAre("opencl:0"));
  ASSERT_TRUE(Run(*graph, 17).ok());
  EXPECT_THAT(ran_on_, ElementsAre("cpu:0"));
  graph = MustPrepare(Chain({R"(,"devices":["gpu"])"}, kWasm));
  ASSERT_NE(graph, nullptr);
  Status status = Run(*graph, 17);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(Message(status), AllOf(HasSubstr("node \"n0\""), HasSubstr("Buffer \"data\" (68 bytes)"),
                                     HasSubstr("opencl:0 (64 bytes)")));
  // A group that the document gives as a number is refused at once, any other when its size is known.
  StatusOr<PrepareOutcome> outcome = Prepare(Chain({R"(,"devices":["gpu"],"instances":["n"],"group":[9])"}, kWasm));
  EXPECT_TRUE(absl::IsFailedPrecondition(outcome.status())) << outcome.status();
  EXPECT_THAT(Message(outcome.status()), HasSubstr("Its groups are smaller."));
  graph = MustPrepare(Chain({R"(,"devices":["gpu"],"instances":["n"],"group":["n"])"}, kWasm));
  ASSERT_NE(graph, nullptr);
  EXPECT_TRUE(Run(*graph, 8).ok());
  status = Run(*graph, 9);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(Message(status), AllOf(HasSubstr("node \"n0\""), HasSubstr("opencl:0: Its groups are smaller.")));
  // The number of instances of one dimension is limited; the kernel would take too long to try on the CPU.
  graph = MustPrepare(Chain({R"(,"devices":["gpu"],"instances":["n*536870912"])"}, kWasm));
  ASSERT_NE(graph, nullptr);
  status = Run(*graph, 4);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(Message(status), AllOf(HasSubstr("(2147483648)"), HasSubstr("opencl:0 (2147483647")));
}

// Data between two drivers of one GPU is not copied, only input and output are; without memory sharing, or when a
// driver fails to share, results are the same by way of host memory.
TEST_F(DevicesTest, MemoryOfOneSiliconIsShared) {
  const std::string document =
      Chain({R"(,"devices":["vulkan:0"])", R"(,"devices":["opencl:0"])", R"(,"devices":["vulkan:0"])"}, kWasm);
  struct Case {
    const char* name;
    bool exports, imports, fails;
    const char* silicon;
    uint32_t copies, exported, imported;
  };
  const Case cases[] = {
      {"shared", true, true, false, "gpu-1", 2, 1, 1},        {"not exported", false, true, false, "gpu-1", 6, 0, 0},
      {"not imported", true, false, false, "gpu-1", 6, 0, 0}, {"another silicon", true, true, false, "gpu-2", 6, 0, 0},
      {"broken promise", true, true, true, "gpu-1", 6, 1, 0},
  };
  for (const Case& c : cases) {
    FunctionDeviceOptions opencl = Gpu("opencl:0"), vulkan = Gpu("vulkan:0", ArtifactKind::kVulkan);
    opencl.silicon = "gpu-1";
    opencl.imports_memory = c.imports;
    opencl.fails_to_import = c.fails;
    vulkan.silicon = c.silicon;
    vulkan.exports_memory = c.exports;
    Devices({{}, opencl, vulkan});
    auto graph = MustPrepare(document);
    ASSERT_NE(graph, nullptr) << c.name;
    const Status status = Run(*graph);
    ASSERT_TRUE(status.ok()) << c.name << ": " << status;
    EXPECT_THAT(y_, ElementsAre(3, 4, 5, 6)) << c.name;
    EXPECT_THAT(ran_on_, ElementsAre("vulkan:0", "opencl:0", "vulkan:0")) << c.name;
    EXPECT_EQ(counts_[0].copies + counts_[1].copies + counts_[2].copies, c.copies) << c.name;
    EXPECT_EQ(counts_[2].exported, c.exported) << c.name;
    EXPECT_EQ(counts_[1].imported, c.imported) << c.name;
    ASSERT_TRUE(Run(*graph).ok()) << c.name;  // Uses the plan that was kept.
  }
}

// Memory that only one of two drivers uses is allocated by that driver.
TEST_F(DevicesTest, SharesOnlyWhatBothUse) {
  FunctionDeviceOptions opencl = Gpu("opencl:0"), vulkan = Gpu("vulkan:0", ArtifactKind::kVulkan);
  opencl.silicon = vulkan.silicon = "gpu-1";
  opencl.imports_memory = vulkan.exports_memory = true;
  Devices({{}, opencl, vulkan});
  for (const char* only : {"opencl:0", "vulkan:0"}) {
    auto graph = MustPrepare(Chain({std::string(R"(,"devices":[")") + only + "\"]"}, kWasm));
    ASSERT_NE(graph, nullptr);
    ASSERT_TRUE(Run(*graph).ok());
    EXPECT_EQ(counts_[1].imported + counts_[2].exported, 0u) << only;
  }
}

// Two drivers of one GPU that share no buffers have one memory: the bytes of both count against it.
TEST_F(DevicesTest, MemoryOfOneSiliconCountsOnce) {
  const std::string document = Chain({R"(,"devices":["vulkan:0"])", R"(,"devices":["opencl:0"])"}, kWasm);
  for (const char* silicon : {"gpu-1", "gpu-2"}) {
    FunctionDeviceOptions opencl = Gpu("opencl:0"), vulkan = Gpu("vulkan:0", ArtifactKind::kVulkan);
    opencl.silicon = "gpu-1";
    vulkan.silicon = silicon;
    opencl.memory_bytes = vulkan.memory_bytes = 800;  // One buffer of 512 bytes each.
    Devices({{}, opencl, vulkan});
    auto graph = MustPrepare(document);
    ASSERT_NE(graph, nullptr);
    const Status status = Run(*graph);
    if (opencl.silicon == vulkan.silicon) {
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      EXPECT_THAT(Message(status), AllOf(HasSubstr("(512 bytes)"), HasSubstr("(360 bytes)")));
    } else {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

// A device that is lost fails the run with node and device, and is reported.
TEST_F(DevicesTest, LostDevicesAreReported) {
  FunctionDeviceOptions lost = Gpu("opencl:0");
  lost.lost_entries = {"add1"};
  Devices({lost, {}});
  auto graph = MustPrepare(Chain({R"(,"devices":["cpu"])", R"(,"devices":["gpu"])", R"(,"devices":["cpu"])"}, kWasm));
  ASSERT_NE(graph, nullptr);
  const Status status = Run(*graph);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status), AllOf(HasSubstr("node \"n1\""), HasSubstr("on device opencl:0")));
  EXPECT_THAT(lost_, ElementsAre("opencl:0"));
  // A failure of the run itself is no loss.
  graph = MustPrepare(Chain({R"(,"devices":["cpu"])"}, kWasm));
  ASSERT_NE(graph, nullptr);
  EXPECT_TRUE(Run(*graph).ok());
  EXPECT_THAT(lost_, IsEmpty());
}

// New runs start nothing on a closed device and use it again when it is open; a running one keeps its plan.
TEST_F(DevicesTest, ClosedDevicesGetNothingNew) {
  GrantPage page{};
  limits_ = {{}, {&page.entries[1], &page}};
  Devices({{}, Gpu("opencl:0")});
  const auto flexible = MustPrepare(Chain({R"(,"hints":["opencl:0"])"}, kWasm));
  const auto fixed = MustPrepare(Chain({R"(,"hints":["opencl:0"])", R"(,"devices":["opencl:0"])"}, kWasm));
  ASSERT_TRUE(flexible != nullptr && fixed != nullptr);
  EXPECT_THAT(flexible->summary.needs, ElementsAre(3u));
  EXPECT_THAT(fixed->summary.needs, ElementsAre(2u));  // With that device present, the other node runs, too.
  const auto places = [&](PreparedGraph& graph) {
    EXPECT_TRUE(Run(graph).ok());
    return ran_on_.front();
  };
  EXPECT_EQ(places(*flexible), "opencl:0");
  EXPECT_EQ(places(*fixed), "opencl:0");
  page.entries[1].closed.store(1);
  EXPECT_EQ(places(*flexible), "cpu:0");
  const Status refused = Run(*fixed);
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(Message(refused), HasSubstr("Device opencl:0 is fenced or paused, and starts no new work."));
  EXPECT_THAT(lost_, IsEmpty());
  page.entries[1].closed.store(0);
  EXPECT_EQ(places(*flexible), "opencl:0");
  EXPECT_EQ(places(*fixed), "opencl:0");
}

}  // namespace
}  // namespace hpvm::engine
