// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/tile/coarsen.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/testing/golden.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/testing/coarse_run.h"

namespace hpvm::pass {
namespace {

using ::testing::HasSubstr;

const char kFolder[] = HPVMD_SOURCE_DIR "/tests/golden/coarsen";

std::vector<std::string> Files() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  EXPECT_GE(paths.size(), 15u);
  return paths;
}

// The reference: kernels run one instance at a time.
TEST(CoarsenTest, ReferenceAgrees) {
  for (const std::string& path : Files()) {
    ir::testing::CheckGoldenFile(
        path, [](const ir::Module& module, const ir::Launch& launch) { return ir::Interpret(module, launch); }, true);
  }
}

// Tiles of every shape give bitwise the same results as single instances.
TEST(CoarsenTest, TilesAgree) {
  const GpuTile kTiles[] = {{{2, 1, 1}}, {{4, 1, 1}}, {{8, 1, 1}}, {{16, 1, 1}}, {{1, 2, 1}}, {{1, 8, 1}},
                            {{2, 2, 1}}, {{4, 4, 1}}, {{8, 4, 1}}, {{4, 8, 1}},  {{8, 8, 1}}, {{2, 16, 1}}};
  for (const std::string& path : Files()) {
    for (const GpuTile& tile : kTiles) {
      SCOPED_TRACE(std::to_string(tile.size[0]) + " x " + std::to_string(tile.size[1]));
      ir::testing::CheckGoldenFile(path, [&](const ir::Module& module, const ir::Launch& launch) {
        return launch.extent[1] % tile.size[1] == 0 ? testing::RunCoarse(module, launch, tile)
                                                    : ir::Interpret(module, launch);
      });
    }
  }
}

ir::Module Read(const std::string& kernel) {
  std::ostringstream text;
  text << std::ifstream(std::string(kFolder) + "/" + kernel + ".ir").rdbuf();
  StatusOr<ir::Module> module = ir::ParseModule(text.str());
  EXPECT_TRUE(module.ok()) << module.status();
  return *std::move(module);
}

// The numbers of accesses after coarsening, and the conditions that these require.
TEST(CoarsenTest, SharesAccesses) {
  struct Case {
    const char* kernel;
    GpuTile tile;
    int loads, vector_loads, stores, vector_stores;
    std::vector<GpuFactor> factors;
  };
  const Case kCases[] = {
      {"triad", {{2, 1, 1}}, 0, 3, 0, 1, {}},
      {"triad", {{8, 1, 1}}, 0, 12, 0, 4, {}},
      {"triad", {{1, 4, 1}}, 3, 0, 1, 0, {}},  // Rows share values that do not depend on them.
      // Two iterations of the loop and one after it: four rows, one column; B's rows and C's are aligned if n is.
      {"matmul", {{4, 4, 1}}, 3 * 4, 3, 0, 4, {{3, 2}}},
      {"matmul", {{2, 1, 1}}, 3 + 3 * 2, 0, 2, 0, {}},
      {"bodies", {{4, 1, 1}}, 2 + 4 * 2, 0, 0, 1, {}},  // Each instance's own data are not contiguous.
      {"turned", {{2, 4, 1}}, 8, 4, 0, 4, {{2, 1}}},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::string(c.kernel) + " " + std::to_string(c.tile.size[0]));
    const StatusOr<CoarseModule> coarse = Coarsen(Read(c.kernel), c.tile);
    ASSERT_TRUE(coarse.ok()) << coarse.status();
    std::array<int, 4> found{};
    const ir::Function& f = coarse->module.function(coarse->module.entry);
    ir::ForEachOp(f, [&](ir::OpId id) {
      const ir::Opcode kCodes[] = {ir::Opcode::kLoad, ir::Opcode::kLoad128, ir::Opcode::kStore, ir::Opcode::kStore128};
      for (size_t i = 0; i < 4; ++i) {
        if (f.op(id).code == kCodes[i]) {
          ++found[i];
          EXPECT_TRUE(coarse->original[id.index].valid());
        }
      }
    });
    EXPECT_EQ(found, (std::array<int, 4>{c.loads, c.vector_loads, c.stores, c.vector_stores}));
    EXPECT_EQ(coarse->factors, c.factors);
    EXPECT_EQ(coarse->needs_alignment, c.vector_loads + c.vector_stores > 0);
  }
}

// A product of m x k and k x n by groups that share their loads, against single instances: blocks, remaining
// iterations, and loops too short for a block.
TEST(CoarsenTest, StagedLoadsAgree) {
  struct Case {
    const char* kernel;
    GpuTile tile;
    uint64_t columns, rows;  // Instances of a group.
    uint32_t bytes;
  };
  const Case kCases[] = {{"matmul", {{4, 4, 1}, true}, 64, 64, 4},
                         {"matmul", {{8, 4, 1}, true}, 128, 64, 4},
                         {"matmul", {{8, 8, 1}, true}, 128, 128, 4},
                         {"product", {{4, 4, 1}, true}, 64, 64, 8}};
  for (const Case& c : kCases) {
    const ir::Module module = Read(c.kernel);
    for (const uint64_t k : {0, 1, 2, 17, 18, 34, 51}) {
      SCOPED_TRACE(std::string(c.kernel) + " " + std::to_string(c.tile.size[1]) + " " + std::to_string(k));
      const uint64_t n = c.columns * (c.tile.size[1] == 4 ? 2 : 1), m = c.rows;
      std::vector<std::vector<uint64_t>> data = {std::vector<uint64_t>(m * k + 1), std::vector<uint64_t>(k * n + 1),
                                                 std::vector<uint64_t>(m * n)};
      uint32_t state = 1;
      for (std::vector<uint64_t>& words : data) {
        for (uint64_t& word : words) {
          state = state * 1664525 + 1013904223;
          const float value = static_cast<float>(state >> 24) / 16 - 8;
          word = c.bytes == 4 ? std::bit_cast<uint32_t>(value) * 0x100000001u : std::bit_cast<uint64_t>(double{value});
        }
      }
      std::vector<std::vector<uint64_t>> tiled = data;
      const auto launch_of = [&](std::vector<std::vector<uint64_t>>& buffers) {
        ir::Launch launch;
        launch.extent = {n, m, 1};
        const uint64_t elements[] = {m * k, k * n, m * n};
        for (size_t i = 0; i < 3; ++i) {
          launch.arguments.push_back({reinterpret_cast<uint8_t*>(buffers[i].data()), elements[i] * c.bytes, 0});
        }
        launch.arguments.push_back({nullptr, 0, n});
        launch.arguments.push_back({nullptr, 0, k});
        return launch;
      };
      const StatusOr<ir::TrapReport> single = ir::Interpret(module, launch_of(data));
      const StatusOr<ir::TrapReport> staged = testing::RunCoarse(module, launch_of(tiled), c.tile);
      ASSERT_TRUE(single.ok() && staged.ok()) << single.status() << staged.status();
      EXPECT_EQ(Coarsen(module, c.tile)->group, (std::array<uint32_t, 3>{16, 16, 1}));
      EXPECT_EQ(single->code, ir::TrapCode::kNone);
      EXPECT_EQ(staged->code, ir::TrapCode::kNone);
      EXPECT_EQ(tiled, data);
    }
  }
}

int CountVectorLoads(const CoarseModule& coarse) {
  int count = 0;
  const ir::Function& f = coarse.module.function(coarse.module.entry);
  ir::ForEachOp(f, [&](ir::OpId id) { count += f.op(id).code == ir::Opcode::kLoad128 ? 1 : 0; });
  return count;
}

// Neighbours' elements are loaded at once if the first one is at a multiple of 16 bytes in every iteration.
TEST(CoarsenTest, AlignsVectorLoads) {
  const auto loop = [](const char* step) {
    return std::string("%step: i32 = const.i32 ") + step +
           "\n%v: i32 = loop b0 (%p: i32 = %o, %k: i32 = %zero, %a: i32 = %zero) {\n"
           " %w: i32 = load.i32 param(1) %p\n %b: i32 = add.i32 %a, %w\n %q: i32 = add.i32 %p, %step\n"
           " %m: i32 = add.i32 %k, %one\n %c: i32 = lt_u.i32 %m, %n\n if b1 %c {\n  continue b0 (%q, %m, %b)\n"
           " } else {\n  br b1 ()\n }\n br b0 (%b)\n}";
  };
  const struct {
    const char* name;
    std::string body;
    int vector_loads;
  } kCases[] = {{"Straight", "%v: i32 = load.i32 param(1) %o", 1},
                {"Immediate", "%v: i32 = load.i32 param(1) %o + 32", 1},
                {"OddImmediate", "%v: i32 = load.i32 param(1) %o + 4", 0},
                {"Turns", loop("64"), 1},
                {"OddTurns", loop("4"), 0}};
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    const StatusOr<ir::Module> module = ir::ParseModule(
        "module \"m\"\nuses separate_buffers\nparam buffer inout \"r\"\nparam buffer in \"x\"\nparam i32 \"n\"\n"
        "entry f0\nfunc f0 \"k\" (%r: i32, %x: i32, %n: i32) -> () {\n%zero: i32 = const.i32 0\n"
        "%one: i32 = const.i32 1\n%two: i32 = const.i32 2\n%i: i32 = instance_id.i32 %zero\n"
        "%o: i32 = shl.i32 %i, %two\n" +
        c.body + "\nstore.i32 param(0) %o, %v\nreturn ()\n}\n");
    ASSERT_TRUE(module.ok()) << module.status();
    const StatusOr<CoarseModule> coarse = Coarsen(*module, {{4, 1, 1}});
    ASSERT_TRUE(coarse.ok()) << coarse.status();
    EXPECT_EQ(CountVectorLoads(*coarse), c.vector_loads);
    EXPECT_TRUE(coarse->needs_alignment);  // The store is a vector in any case.
  }
}

// An index that wraps around anywhere in a tile, from the first to the last instance, before it is extended.
TEST(CoarsenTest, IndicesWrapInsideOfTiles) {
  for (const char* extend : {"extend_s", "extend_u"}) {
    const StatusOr<ir::Module> module = ir::ParseModule(
        "module \"m\"\nparam buffer inout \"r\"\nparam i32 \"n\"\nentry f0\nfunc f0 \"k\" (%r: i32, %n: i32) -> () {\n"
        "%zero: i32 = const.i32 0\n%three: i32 = const.i32 3\n%i: i32 = instance_id.i32 %zero\n"
        "%o: i32 = shl.i32 %i, %three\n%j: i32 = add.i32 %i, %n\n%wide: i64 = " +
        std::string(extend) + ".i32 %j\nstore.i64 param(0) %o, %wide\nreturn ()\n}\n");
    ASSERT_TRUE(module.ok()) << module.status();
    for (uint32_t before = 0; before < 16; ++before) {
      SCOPED_TRACE(std::string(extend) + " " + std::to_string(before));
      std::vector<uint64_t> want(16), found(16);
      ir::Launch launch;
      launch.extent = {16, 1, 1};
      const uint32_t last = extend == std::string("extend_s") ? 0x7fffffffu : 0xffffffffu;
      launch.arguments = {{reinterpret_cast<uint8_t*>(want.data()), 128, 0}, {nullptr, 0, last - before}};
      ASSERT_TRUE(ir::Interpret(*module, launch).ok());
      launch.arguments[0].data = reinterpret_cast<uint8_t*>(found.data());
      const StatusOr<ir::TrapReport> trap = testing::RunCoarse(*module, launch, {{8, 1, 1}});
      ASSERT_TRUE(trap.ok()) << trap.status();
      EXPECT_EQ(found, want);
    }
  }
}

// All instances of a group must reach loads that it shares, and no instance may write the data.
TEST(CoarsenTest, RefusesToStage) {
  std::ostringstream text;
  text << std::ifstream(std::string(kFolder) + "/matmul.ir").rdbuf();
  const struct {
    const char* name;
    const char* from;
    const char* to;
    const char* want;
  } kCases[] = {
      {"Written", "param buffer in \"p1\"", "param buffer inout \"p1\"", "no loop has loads"},
      {"Guarded", "  %10: i32 = const.i32 2\n",
       "  %outside: i32 = ge_s.i32 %9, %3\n  if guard %outside {\n    return ()\n  } else {\n    br guard ()\n  }\n"
       "  %10: i32 = const.i32 2\n",
       "a guard may keep some"},
      {"MayWrap", "  %11: i32 = shl.i32 %9, %10\n",
       "  %moved: i32 = add.i32 %9, %3\n  %wide: i64 = extend_s.i32 %moved\n  %back: i32 = wrap.i64 %wide\n"
       "  %11: i32 = shl.i32 %back, %10\n",
       "a guard may keep some"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    std::string changed = text.str();
    ASSERT_NE(changed.find(c.from), std::string::npos);
    changed.replace(changed.find(c.from), std::string(c.from).size(), c.to);
    const StatusOr<ir::Module> module = ir::ParseModule(changed);
    ASSERT_TRUE(module.ok()) << module.status();
    const StatusOr<CoarseModule> coarse = Coarsen(*module, {{8, 4, 1}, true});
    ASSERT_FALSE(coarse.ok());
    EXPECT_THAT(coarse.status().message(), HasSubstr(c.want));
  }
}

// Kernels that cannot run in tiles are refused with the reason.
TEST(CoarsenTest, RefusesWhatCannotBeShared) {
  struct Case {
    const char* name;
    const char* body;
    const char* head;
    const char* want;
  };
  const Case kCases[] = {
      {"Barrier", "barrier", "uses barrier\n", "wait for each other"},
      {"Print", "print p0 (%0)", "format \"%d\\0a\"\n", "it prints"},
      {"OwnMemory", "store.i32 module %0, %0", "", "memory that belongs to one instance"},
      {"Place", "%1: i32 = local_id.i32 %0", "", "id in the group"},
      {"AnyDimension", "%1: i32 = instance_id.i32 %p", "", "a dimension that is computed"},
      {"Ends",
       "%1: i32 = instance_id.i32 %0\n%2: i32 = load.i32 param(0) %1\nif b0 %2 {\nreturn ()\n} else {\nbr b0 ()\n}\n"
       "store.i32 param(0) %0, %1",
       "", "end at different places"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const std::string text = std::string("module \"m\"\nmemory 65536 65536\n") + c.head +
                             "param buffer inout \"b\"\nentry f0\nfunc f0 \"k\" (%p: i32) -> () {\n"
                             "%0: i32 = const.i32 0\n" +
                             c.body + "\nreturn ()\n}\n";
    const StatusOr<ir::Module> module = ir::ParseModule(text);
    ASSERT_TRUE(module.ok()) << module.status();
    const StatusOr<CoarseModule> coarse = Coarsen(*module, {{2, 1, 1}});
    ASSERT_FALSE(coarse.ok());
    EXPECT_EQ(coarse.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(coarse.status().message(), HasSubstr(c.want));
  }
  EXPECT_FALSE(Coarsen(Read("triad"), {{1, 1, 2}}).ok());
  EXPECT_FALSE(Coarsen(Read("triad"), {{32, 1, 1}}).ok());
}

// Tiles are chosen where they share values; the remarks list the candidates.
TEST(CoarsenTest, ChoosesTiles) {
  struct Case {
    const char* kernel;
    std::vector<GpuTile> want;
  };
  const Case kCases[] = {
      {"triad", {{{2, 1, 1}}, {{4, 1, 1}}, {{8, 1, 1}}}},
      {"matmul", {{{8, 4, 1}}, {{4, 4, 1}}, {{1, 8, 1}}}},  // The last requires no alignment.
      {"rows", {}},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.kernel);
    KernelReport report;
    EXPECT_EQ(ChooseTiles(Read(c.kernel), {}, &report), c.want);
    ASSERT_GE(report.remarks.size(), 4u);
    EXPECT_THAT(report.remarks[0].text, HasSubstr("One instance per work item costs"));
    EXPECT_THAT(report.remarks[1].text, HasSubstr("registers"));
  }
  GpuTarget large;
  large.local_bytes_max = 48 * 1024;
  large.group_size_max = 1024;
  const std::vector<GpuTile> tiles = ChooseTiles(Read("matmul"), large, nullptr);
  ASSERT_FALSE(tiles.empty());
  EXPECT_EQ(tiles[0], (GpuTile{{8, 4, 1}, true}));
  EXPECT_EQ(Coarsen(Read("bodies"), {{4, 1, 1}, true}).status().code(), absl::StatusCode::kUnimplemented);
  GpuTarget processor;
  processor.is_processor = true;
  EXPECT_TRUE(ChooseTiles(Read("triad"), processor, nullptr).empty());
}

}  // namespace
}  // namespace hpvm::pass
