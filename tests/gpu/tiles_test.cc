// SPDX-License-Identifier: Apache-2.0
// Kernels in tiles of instances, each form separately, on every OpenCL and Vulkan device, against the interpreter.
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gtest/gtest.h"

#include "backends/opencl/pocl.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/testing/golden.h"
#include "compiler/ir/text/text.h"
#include "tests/gpu/device_run.h"

namespace hpvm::gpu_test {
namespace {

const char kFolder[] = HPVMD_SOURCE_DIR "/tests/golden/coarsen";

std::vector<std::string> Files() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  EXPECT_GE(paths.size(), 16u);
  return paths;
}

// The first variant, with the plain ones beside it for the edges: the device is told to use that one.
StatusOr<std::unique_ptr<Executable>> LoadTile(DeviceRun& device, const ir::Module& module, const pass::GpuTile& tile,
                                               bool is_checked) {
  HPVMD_ASSIGN_OR_RETURN(Artifact artifact, device.Compile(module, {tile}));
  std::vector<GpuVariant>& variants = artifact.gpu.variants;
  const auto wanted = std::find_if(variants.begin(), variants.end(), [&](const GpuVariant& variant) {
    return variant.tile == tile.size && variant.needs_proof != is_checked;
  });
  if (wanted == variants.end()) {
    return Unimplemented("There is no such form.");
  }
  std::rotate(variants.begin(), wanted, wanted + 1);
  return device.Load(std::move(artifact));
}

class TilesTest : public ::testing::TestWithParam<std::string> {};

// Rows and columns of any length: single instances run what no whole tile covers, each of them once.
TEST_P(TilesTest, EveryExtentAgrees) {
  const StatusOr<ir::Module> module = ir::ParseModule(R"(module "edges"
param buffer inout "r"
param i32 "w"
entry f0
func f0 "edges" (%r: i32, %w: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %three: i32 = const.i32 3
  %x: i32 = instance_id.i32 %zero
  %y: i32 = instance_id.i32 %one
  %row: i32 = mul.i32 %y, %w
  %i: i32 = add.i32 %row, %x
  %o: i32 = shl.i32 %i, %three
  %old: i32 = load.i32 param(0) %o
  %more: i32 = add.i32 %old, %i
  %sum: i32 = add.i32 %more, %one
  store.i32 param(0) %o, %sum
  return ()
}
)");
  ASSERT_TRUE(module.ok()) << module.status();
  DeviceRun device(GetParam(), 0);
  for (const pass::GpuTile& tile : {pass::GpuTile{{4, 1, 1}}, pass::GpuTile{{4, 4, 1}}}) {
    const StatusOr<std::unique_ptr<Executable>> executable = LoadTile(device, *module, tile, true);
    ASSERT_TRUE(executable.ok()) << executable.status();
    for (const uint64_t x : {1, 3, 4, 7, 66, 509}) {  // 127 tiles do not fill whole groups.
      for (const uint64_t y : {1, 3, 4, 9}) {
        std::vector<uint64_t> r(x * y, 7);
        ir::Launch launch;
        launch.extent = {x, y, 1};
        launch.arguments = {{reinterpret_cast<uint8_t*>(r.data()), r.size() * 8, 0}, {nullptr, 0, x}};
        const StatusOr<ir::TrapReport> trap = device.Launch(**executable, launch);
        ASSERT_TRUE(trap.ok()) << trap.status();
        EXPECT_EQ(trap->code, ir::TrapCode::kNone);
        for (size_t i = 0; i < r.size(); ++i) {
          ASSERT_EQ(r[i], 7 + i + 1) << x << " " << y << ", instance " << i;
        }
      }
    }
  }
}

// A trap in a tile names the instance that trapped, not the tile's first: in an access, in a construct of one
// instance, and where a guard differs inside the tile so that its instances run one after the other.
TEST_P(TilesTest, TrapsNameTheirInstance) {
  constexpr struct {
    const char* name;
    const char* body;
  } kKernels[] = {
      {"access",
       "  %2: i32 = shl.i32 %x, %two\n  %3: i32 = eq.i32 %x, %at\n  %big: i32 = const.i32 1048576\n"
       "  %4: i32 = mul.i32 %3, %big\n  %5: i32 = add.i32 %2, %4\n  store.i32 param(0) %5, %x\n  return ()\n"},
      {"construct",
       "  %2: i32 = shl.i32 %x, %two\n  store.i32 param(0) %2, %x\n  %3: i32 = eq.i32 %x, %at\n"
       "  if b0 %3 {\n    trap 1\n  } else {\n    br b0 ()\n  }\n  return ()\n"},
      {"guard",
       "  %3: i32 = lt_u.i32 %x, %at\n  if b0 %3 {\n    %4: i32 = shl.i32 %x, %two\n    store.i32 param(0) %4, %x\n"
       "    return ()\n  } else {\n    br b0 ()\n  }\n  %5: i32 = eq.i32 %x, %at\n  if b1 %5 {\n    trap 1\n"
       "  } else {\n    br b1 ()\n  }\n  return ()\n"},
  };
  DeviceRun device(GetParam(), 0);
  for (const auto& kernel : kKernels) {
    for (const uint32_t at : {0u, 38u, 61u}) {
      SCOPED_TRACE(std::string(kernel.name) + " " + std::to_string(at));
      const StatusOr<ir::Module> module = ir::ParseModule(
          "module \"traps\"\nparam buffer inout \"a\"\nparam i32 \"at\"\nentry f0\n"
          "func f0 \"traps\" (%a: i32, %at: i32) -> () {\n  %zero: i32 = const.i32 0\n  %two: i32 = const.i32 2\n"
          "  %x: i32 = instance_id.i32 %zero\n" +
          std::string(kernel.body) + "}\n");
      ASSERT_TRUE(module.ok()) << module.status();
      const StatusOr<std::unique_ptr<Executable>> executable = LoadTile(device, *module, {{4, 1, 1}}, true);
      ASSERT_TRUE(executable.ok()) << executable.status();
      std::vector<uint32_t> words(64);
      ir::Launch launch;
      launch.extent = {64, 1, 1};
      launch.arguments = {{reinterpret_cast<uint8_t*>(words.data()), 256, 0}, {nullptr, 0, at}};
      const StatusOr<ir::TrapReport> trap = device.Launch(**executable, launch);
      ASSERT_TRUE(trap.ok()) << trap.status();
      EXPECT_NE(trap->code, ir::TrapCode::kNone);
      EXPECT_EQ(trap->instance, (std::array<uint64_t, 3>{at, 0, 0}));
    }
  }
}

// The golden kernels in tiles, with and without checks.
TEST_P(TilesTest, GoldenKernelsAgree) {
  const pass::GpuTile kTiles[] = {{{4, 1, 1}}, {{4, 4, 1}}};
  DeviceRun device(GetParam(), 0);
  int forms = 0;
  for (const std::string& path : Files()) {
    for (const pass::GpuTile& tile : kTiles) {
      for (const bool is_checked : {false, true}) {
        SCOPED_TRACE(std::to_string(tile.size[1]) + (is_checked ? " checked" : " unchecked"));
        ir::testing::CheckGoldenFile(path, [&](const ir::Module& module, const ir::Launch& launch) {
          const auto run = [&]() -> StatusOr<ir::TrapReport> {
            const StatusOr<std::unique_ptr<Executable>> executable = LoadTile(device, module, tile, is_checked);
            if (executable.status().code() == absl::StatusCode::kUnimplemented ||
                executable.status().code() == absl::StatusCode::kFailedPrecondition) {
              return ir::Interpret(module, launch);
            }
            HPVMD_RETURN_IF_ERROR(executable.status());
            ++forms;
            return device.Launch(**executable, launch);
          };
          return run();
        });
      }
    }
  }
  EXPECT_GE(forms, 20);
}

// Matrix products by groups that share their loads, with sides that whole groups do not cover.
TEST_P(TilesTest, StagedProductsAgree) {
  DeviceRun device(GetParam(), 0);
  std::ostringstream text;
  text << std::ifstream(std::string(kFolder) + "/matmul.ir").rdbuf();
  const StatusOr<ir::Module> module = ir::ParseModule(text.str());
  ASSERT_TRUE(module.ok()) << module.status();
  for (const pass::GpuTile& tile : {pass::GpuTile{{8, 8, 1}, true}, pass::GpuTile{{8, 4, 1}, true}}) {
    const StatusOr<std::unique_ptr<Executable>> executable = LoadTile(device, *module, tile, false);
    ASSERT_TRUE(executable.ok()) << executable.status();
    for (const uint64_t k : {35, 64}) {
      SCOPED_TRACE(std::to_string(tile.size[1]) + " " + std::to_string(k));
      const uint64_t n = 136, m = 130;
      std::vector<uint64_t> a(m * k), b(k * n), c(m * n);
      for (std::vector<uint64_t>* words : {&a, &b}) {
        for (uint64_t& word : *words) {
          word = std::bit_cast<uint32_t>(static_cast<float>(std::rand() % 64 - 32) / 8) * 0x100000001u;
        }
      }
      std::vector<uint64_t> want = c;
      ir::Launch launch;
      launch.extent = {n, m, 1};
      const auto bytes_of = [](std::vector<uint64_t>& words) { return reinterpret_cast<uint8_t*>(words.data()); };
      launch.arguments = {{bytes_of(a), m * k * 4, 0},
                          {bytes_of(b), k * n * 4, 0},
                          {bytes_of(want), m * n * 4, 0},
                          {nullptr, 0, n},
                          {nullptr, 0, k}};
      ASSERT_TRUE(ir::Interpret(*module, launch).ok());
      launch.arguments[2].data = bytes_of(c);
      const StatusOr<ir::TrapReport> trap = device.Launch(**executable, launch);
      ASSERT_TRUE(trap.ok()) << trap.status();
      EXPECT_EQ(trap->code, ir::TrapCode::kNone);
      EXPECT_EQ(c, want);
    }
  }
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  name[name.find(':')] = '_';
  return name;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TilesTest);
INSTANTIATE_TEST_SUITE_P(All, TilesTest, ::testing::ValuesIn(Devices()), TestName);

}  // namespace
}  // namespace hpvm::gpu_test

int main(int argc, char** argv) {
  hpvm::opencl::SetPoclEnvironment(/*keeps=*/true);  // As executors do.
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
