// SPDX-License-Identifier: Apache-2.0
// Compares the compiler's decisions for kernels as users write and build them with a table (decisions.txt): shapes,
// remaining checks, accesses by form, the dimensions along which a launch can be divided, a GPU's variants, code
// sizes. A commit that changes a decision changes the table as well: HPVMD_BLESS=1 rewrites it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "compiler/back/back_ends.h"
#include "compiler/driver/compile.h"

namespace hpvm {
namespace {

using Kind = KernelRemark::Kind;

// Limit of processor time: a longer compile is a fault on any machine, whatever the table says.
constexpr double kSecondsMax = 10;

struct Kernel {
  std::string name;  // Name in the table: a module, with how it was built, and the entry.
  std::string path, entry;
};

// kernels.txt has a line for each module: its path, below the source folder or, with "bin:", the build folder, and
// its entries.
std::vector<Kernel> Kernels() {
  std::ifstream list(std::string(HPVMD_SOURCE_DIR) + "/tests/decisions/kernels.txt");
  std::vector<Kernel> kernels;
  for (std::string line; std::getline(list, line);) {
    std::istringstream words(line);
    std::string path, entry;
    if (line.empty() || line[0] == '#' || !(words >> path)) {
      continue;
    }
    const bool is_built = path.starts_with("bin:");
    const std::string below = is_built ? path.substr(4) : path;
    const std::string folder = below.substr(0, below.rfind('/'));
    std::string name = below.substr(below.rfind('/') + 1);
    name = (name == "kernels.wasm" ? folder.substr(folder.rfind('/') + 1) : name.substr(0, name.rfind('.'))) + "/";
    while (words >> entry) {
      kernels.push_back(
          {name + entry, std::string(is_built ? HPVMD_BINARY_DIR : HPVMD_SOURCE_DIR) + "/" + below, entry});
    }
  }
  return kernels;
}

std::vector<uint8_t> Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

compile::CompileResult Compile(const Kernel& kernel, const std::vector<uint8_t>& bytes, ArtifactKind target) {
  CompileRequest request;
  request.module_name = kernel.name;
  request.module = bytes;
  request.entry = kernel.entry;
  request.infers_params = request.explain = true;
  request.target = target;
  if (target == ArtifactKind::kCpuImage) {
    request.level = "x86-64-v4";
  } else {
    request.gpu = *gpu::FindProfile(target, "h200");
  }
  const double begin = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  compile::CompileResult result = compile::CompileModule(request, bytes, {.level = "x86-64-v4"});
  EXPECT_LT(static_cast<double>(std::clock()) / CLOCKS_PER_SEC - begin, kSecondsMax) << kernel.name;
  return result;
}

std::string KiB(size_t bytes) { return std::to_string((bytes + 1023) / 1024) + " KiB"; }

size_t NumberIn(const std::string& text) { return std::strtoul(text.c_str(), nullptr, 10); }

// Returns "7 of 9 checked" and the like, from the kernel's remarks.
std::string BoundsOf(const std::vector<KernelRemark>& remarks) {
  std::string checks, group_checks, apart = "whole";
  size_t guarded = 0;
  for (const KernelRemark& remark : remarks) {
    const auto left = [&] {
      const size_t proven = NumberIn(remark.text), all = NumberIn(remark.text.substr(remark.text.find(" of ") + 4));
      return std::to_string(all - proven) + " of " + std::to_string(all);
    };
    if (remark.kind == Kind::kBounds && remark.text.find(" accesses to buffers are unchecked") != std::string::npos) {
      checks = left() + " checks left";
    }
    if (remark.kind == Kind::kBounds && remark.text.find(" accesses to group memory are unch") != std::string::npos) {
      group_checks = ", " + left() + " in group memory";
    }
    constexpr std::string_view kBefore = "One check before the loop replaces the checks of ";
    if (remark.text.starts_with(kBefore)) {
      const size_t behind = remark.text.find(" replaces those of ");
      guarded += NumberIn(remark.text.substr(kBefore.size()));
      guarded += behind == std::string::npos ? 0 : NumberIn(remark.text.substr(behind + 19));
    }
    constexpr std::string_view kAlong = "A launch can be split along ";
    if (remark.text.starts_with(kAlong)) {
      apart = "divided along " + remark.text.substr(kAlong.size(), remark.text.find(" and run") - kAlong.size());
    }
  }
  return checks + group_checks + (guarded == 0 ? "" : " (" + std::to_string(guarded) + " once a loop)") + ", " + apart;
}

// Returns how vectors of instances access memory, in one word each.
std::string FormsOf(const std::vector<KernelRemark>& remarks) {
  const std::pair<const char*, const char*> kForms[] = {
      {"one scalar", "scalar"},   {"contiguous along y", "transposed"},
      {"in reverse", "reversed"}, {"contiguous", "contiguous"},
      {"wide loads", "strided"},  {"gather", "gathers"},
      {"scatter", "scatters"},    {"once for all lanes", "reduced"},
      {"lane by lane", "by lane"}};
  std::map<std::string, int> counts;
  for (const KernelRemark& remark : remarks) {
    if (remark.kind != Kind::kAccess) {
      continue;
    }
    for (const auto& [text, word] : kForms) {
      if (remark.text.find(text) != std::string::npos) {
        ++counts[word];
        break;
      }
    }
  }
  std::string forms;
  for (const auto& [word, count] : counts) {
    forms += (forms.empty() ? "" : ", ") + std::string(word);
  }
  return forms.empty() ? "" : "; " + forms;
}

std::string CpuRow(const Artifact& artifact) {
  std::string shapes;
  for (const CpuVariant& variant : artifact.variants) {
    const std::string shape = variant.lanes == 1
                                  ? "one"
                                  : std::to_string(variant.lanes) + "x" + std::to_string(variant.columns) + "x" +
                                        std::to_string(variant.rows);
    shapes += (shapes.empty() ? "" : " ") + shape +
              (variant.is_along_y     ? "y"
               : variant.is_for_edges ? "e"
                                      : "") +
              (variant.unit == CpuVariant::Unit::kGroup ? " group" : "") + (variant.needs_proof ? "" : "!");
  }
  const bool has_vectors = std::ranges::any_of(artifact.variants, [](const CpuVariant& v) { return v.lanes > 1; });
  std::string refused;
  constexpr std::string_view kWhy = "Instances run one at a time: ";
  for (const KernelRemark& remark : artifact.remarks) {
    if (remark.kind == Kind::kRefused && !has_vectors && refused.empty() && remark.text.starts_with(kWhy)) {
      const std::string why = remark.text.substr(kWhy.size());
      refused = "; " + why.substr(0, why.find_first_of(",."));
    }
  }
  return (shapes.empty() ? "one at a time" : shapes) + "; " + BoundsOf(artifact.remarks) + FormsOf(artifact.remarks) +
         "; " + KiB(artifact.code.size()) + refused;
}

std::string GpuRow(const Artifact& artifact) {
  std::string variants;
  for (const GpuVariant& variant : artifact.gpu.variants) {
    variants += (variants.empty() ? "" : " ") + std::to_string(variant.tile[0]) + "x" +
                std::to_string(variant.tile[1]) + "x" + std::to_string(variant.tile[2]) +
                (variant.local_bytes != 0 ? "s" : "") + (variant.needs_proof ? "" : "!") +
                (variant.needs_words ? "i" : "") + (variant.needs_alignment ? "a" : "");
  }
  return variants + "; " + BoundsOf(artifact.remarks) + "; " + KiB(artifact.code.size());
}

std::string Table() {
  std::string table =
      "# kernel, target: shapes or tiles in the order of choice (lanes x columns x rows; \"!\": with checks; \"y\": "
      "lanes\n"
      "# along y; \"e\": for edges; \"s\": uses group memory; \"i\": wants to know indices; \"a\": wants "
      "alignment);\n"
      "# checks that no launch does away with; how a launch can be divided; accesses; code.\n";
  for (const Kernel& kernel : Kernels()) {
    const std::vector<uint8_t> bytes = Read(kernel.path);
    EXPECT_FALSE(bytes.empty()) << kernel.path;
    const std::pair<const char*, ArtifactKind> targets[] = {
        {"cpu", ArtifactKind::kCpuImage}, {"opencl", ArtifactKind::kOpenCl}, {"vulkan", ArtifactKind::kVulkan}};
    for (const auto& [name, target] : targets) {
      const compile::CompileResult result = Compile(kernel, bytes, target);
      table += kernel.name + " " + name + ": ";
      if (!result.artifact.has_value()) {
        table += "refused; " + (result.diagnostics.empty() ? "" : result.diagnostics[0].message) + "\n";
        continue;
      }
      table += (target == ArtifactKind::kCpuImage ? CpuRow(*result.artifact) : GpuRow(*result.artifact)) + "\n";
    }
  }
  return table;
}

TEST(DecisionsTest, AreThoseOfTheTable) {
  const std::string path = std::string(HPVMD_SOURCE_DIR) + "/tests/decisions/decisions.txt";
  const std::string table = Table();
  if (std::getenv("HPVMD_BLESS") != nullptr) {
    std::ofstream(path) << table;
    return;
  }
  std::ifstream file(path);
  std::istringstream made(table);
  int differences = 0;
  for (std::string want, got; differences < 20;) {
    const bool has_want = static_cast<bool>(std::getline(file, want));
    const bool has_got = static_cast<bool>(std::getline(made, got));
    if (!has_want && !has_got) {
      break;
    }
    if ((has_want ? want : "") != (has_got ? got : "")) {
      ++differences;
      ADD_FAILURE() << "decisions.txt: " << (has_want ? want : "nothing")
                    << "\n         now: " << (has_got ? got : "nothing");
    }
  }
}

}  // namespace
}  // namespace hpvm
