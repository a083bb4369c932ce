// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/testing/golden_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/ir/text/text.h"

namespace hpvm::pass::testing {
namespace {

constexpr char kFolder[] = HPVMD_SOURCE_DIR "/tests/golden/bounds";

}  // namespace

std::vector<std::string> GoldenKernelNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

GoldenKernel ReadGoldenKernel(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(std::string(kFolder) + "/" + name + ".ir").rdbuf();
  StatusOr<ir::Module> module = ir::ParseModule(text.str());
  EXPECT_TRUE(module.ok()) << module.status();
  GoldenKernel golden{module.ok() ? *std::move(module) : ir::Module(), {}, {}};
  std::istringstream lines(text.str());
  for (std::string line; std::getline(lines, line) && line.substr(0, 3) == ";; ";) {
    std::istringstream words(line.substr(3));
    std::string word;
    if (words >> word && word != "launch") {
      continue;
    }
    words >> golden.launch.extent[0] >> golden.launch.extent[1] >> golden.launch.extent[2] >> word;
    words >> golden.launch.group[0] >> golden.launch.group[1] >> golden.launch.group[2] >> word;
    for (const ir::KernelParam& param : golden.module.params) {
      uint64_t value = 0;
      words >> value;
      golden.data.emplace_back(param.is_buffer ? value / 8 + 2 : 0);
      uint8_t* data = param.is_buffer ? reinterpret_cast<uint8_t*>(golden.data.back().data()) : nullptr;
      golden.launch.arguments.push_back({data, param.is_buffer ? value : 0, param.is_buffer ? 0 : value});
    }
    EXPECT_FALSE(words.fail());
  }
  return golden;
}

ir::BoundsFacts FactsOf(const ir::Module& module, const ir::Launch& launch) {
  ir::BoundsFacts facts;
  facts.extent = launch.extent;
  facts.group = launch.group;
  for (size_t i = 0; i < module.params.size(); ++i) {
    const ir::KernelParam& param = module.params[i];
    facts.params.push_back({param.is_buffer, param.is_writable,
                            param.is_buffer ? launch.arguments[i].bytes : launch.arguments[i].scalar,
                            static_cast<uint8_t>(8 * ir::Bytes(param.type))});
  }
  return facts;
}

}  // namespace hpvm::pass::testing
