// SPDX-License-Identifier: Apache-2.0
// Compares each pass's output for small kernels: tests/golden/pass/PASS/FEATURE.ir holds a module, a line ";; ====
// after", and the expected text. HPVMD_BLESS=1 rewrites the expected text.
#include "compiler/ir/testing/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/gang/gang_plan.h"
#include "compiler/pass/inline_calls.h"
#include "compiler/pass/memory/resolve_provenance.h"
#include "compiler/pass/remove_barriers.h"
#include "compiler/pass/remove_dead.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::pass {
namespace {

const char kFolder[] = HPVMD_SOURCE_DIR "/tests/golden/pass";
constexpr char kSeparator[] = ";; ==== after\n";

// Returns the plan of a tile with rows, as comments after the module; the text's numbers identify values and blocks.
std::string TextOfPlan(const ir::Module& module) {
  std::ostringstream text;
  if (const std::optional<GangRefusal> refusal = RefuseGang(module)) {
    text << ";; refused: " << refusal->reason << "\n";
    return text.str();
  }
  const std::optional<GangPlan> plan = PlanGang(module, {.has_rows = true});
  if (!plan) {
    return ";; no plan\n";
  }
  for (size_t i = 0; i < plan->layouts.size(); ++i) {
    const Layout& layout = plan->layouts[i];
    text << ";; %" << i << ": ";
    switch (layout.kind) {
      case Layout::Kind::kUniform:
        text << "uniform";
        break;
      case Layout::Kind::kLinear:
        text << "linear " << static_cast<int64_t>(layout.step);
        break;
      case Layout::Kind::kVarying:
        text << "varying";
        break;
    }
    text << (layout.by_row ? ", by row\n" : "\n");
  }
  const ir::Function& entry = module.function(module.entry);
  size_t block = 0;
  ir::ForEachOp(entry, [&](ir::OpId id) {
    if (entry.op(id).body.valid()) {
      text << ";; b" << block++ << ": " << (plan->is_masked[id.index] ? "masked" : "taken together")
           << (plan->is_assumed[id.index] ? ", assumed\n" : "\n");
    }
  });
  text << ";; the body: " << (plan->body_is_masked ? "masked\n" : "taken together\n");
  return text.str();
}

// "FEATURE-4x2" or "FEATURE-4x4-staged" names the tile; a comment after the module states the conditions of the
// module.
StatusOr<std::string> TextOfCoarse(const std::string& name, const ir::Module& module) {
  GpuTile tile;
  const size_t at = name.find('-');
  if (at == std::string::npos || std::sscanf(name.c_str() + at, "-%ux%u", &tile.size[0], &tile.size[1]) != 2) {
    return InvalidArgument("\"" + name + "\" names no tile.");
  }
  tile.is_staged = name.ends_with("-staged");
  HPVMD_ASSIGN_OR_RETURN(const CoarseModule coarse, Coarsen(module, tile));
  std::ostringstream text;
  text << ir::Print(coarse.module) << (coarse.needs_alignment ? ";; needs alignment\n" : "");
  for (const GpuFactor& factor : coarse.factors) {
    text << ";; parameter " << factor.param << " is a multiple of " << (1u << factor.log2) << "\n";
  }
  return text.str();
}

// Returns the output of `pass` for the module of the file `name`.
StatusOr<std::string> Apply(const std::string& pass, const std::string& name, ir::Module module) {
  if (pass == "coarsen") {
    return TextOfCoarse(name, module);
  }
  if (pass == "gang_plan") {
    // Prints and parses the module once, so that values are numbered as they appear.
    HPVMD_ASSIGN_OR_RETURN(ir::Module numbered, ir::ParseModule(ir::Print(module)));
    return ir::Print(numbered) + TextOfPlan(numbered);
  }
  Status status = Internal("There is no pass \"" + pass + "\".");
  if (pass == "inline_calls") {
    status = InlineCalls(module);
  } else if (pass == "remove_dead") {
    status = RemoveDead(module);
  } else if (pass == "resolve_provenance") {
    status = ResolveProvenance(module);
  } else if (pass == "remove_barriers") {
    status = RemoveBarriers(module);
  }
  HPVMD_RETURN_IF_ERROR(status);
  HPVMD_RETURN_IF_ERROR(ToStatus(ir::Verify(module)));
  return ir::Print(module);
}

std::string Read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Tests every file with the pass that its folder names.
TEST(PassGoldenTest, Agrees) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kFolder)) {
    if (entry.is_regular_file()) {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  ASSERT_GE(paths.size(), 12u);
  for (const std::filesystem::path& path : paths) {
    SCOPED_TRACE(path);
    const std::string text = Read(path);
    const std::string input = text.substr(0, text.find(kSeparator));
    const StatusOr<ir::Module> module = ir::ParseModule(input);
    ASSERT_TRUE(module.ok()) << module.status();
    const Diagnostics faults = ir::Verify(*module);
    ASSERT_TRUE(faults.empty()) << ToString(faults);
    const StatusOr<std::string> result = Apply(path.parent_path().filename(), path.stem(), *module);
    ASSERT_TRUE(result.ok()) << result.status();
    const std::string found = input + kSeparator + *result;
    if (found != text && std::getenv("HPVMD_BLESS") != nullptr) {
      std::ofstream(path) << found;
      continue;
    }
    EXPECT_EQ(found, text) << ir::testing::Diff(text, found);
  }
}

}  // namespace
}  // namespace hpvm::pass
