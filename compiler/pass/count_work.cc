// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/count_work.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/ir/op_syntax.h"
#include "compiler/pass/find_paths.h"

namespace hpvm::pass {
namespace {

constexpr int kSharePowerMax = 60;  // Maximum number of unknown branches that reduce a block's share.

class WorkFinder {
 public:
  explicit WorkFinder(const ir::Function& f) : f_(f) {}

  ir::WorkProgram Run(const FunctionPaths& found) {
    for (size_t i = 0; i < f_.ops.size(); ++i) {
      const Op& op = f_.ops[i];
      if (found.of[i] == FunctionPaths::kNone) {
        continue;
      }
      const double operations = OperationsOf(op), bytes = BufferBytesOf(op);
      if (operations == 0 && bytes == 0) {
        continue;
      }
      ir::WorkBlock& block = BlockOf(found.paths[found.of[i]]);
      block.operations += operations;
      block.bytes += bytes;
    }
    return std::move(work_);
  }

 private:
  ir::WorkBlock& BlockOf(const Path& path) {
    Key key{path.when, path.unknown, path.loops};
    if (blocks_.find(key) == blocks_.end() && work_.blocks.size() >= kWorkBlocksMax) {
      key = {{}, 0, path.loops};
    }
    const auto [at, is_new] = blocks_.try_emplace(key, work_.blocks.size());
    if (is_new) {
      ir::WorkBlock block;
      block.share = std::ldexp(1.0, -std::min<int>(static_cast<int>(std::get<1>(key)), kSharePowerMax));
      block.conditions = std::get<0>(key);
      for (uint32_t loop : std::get<2>(key)) {
        block.loops.push_back(LoopOf(loop));
      }
      work_.blocks.push_back(std::move(block));
    }
    return work_.blocks[at->second];
  }

  uint32_t LoopOf(uint32_t bounds_loop) {
    const auto [at, is_new] = loops_.try_emplace(bounds_loop, static_cast<uint32_t>(work_.loops.size()));
    if (is_new) {
      work_.loops.push_back({bounds_loop == Path::kUnknownLoop ? ir::WorkLoop::kUnknown : bounds_loop});
    }
    return at->second;
  }

  using Key = std::tuple<std::vector<uint32_t>, uint32_t, std::vector<uint32_t>>;
  const ir::Function& f_;
  ir::WorkProgram work_;
  std::map<Key, size_t> blocks_;
  std::map<uint32_t, uint32_t> loops_;
};

}  // namespace

double OperationsOf(const Op& op) {
  switch (ir::Info(op.code).family) {
    case ir::Family::kConst:
    case ir::Family::kQuery:
    case ir::Family::kSync:
    case ir::Family::kControl:
      return 0;
    case ir::Family::kCall:
      return op.code == Opcode::kPrint ? 0 : ir::kCallOperations;
    default:
      return 1;
  }
}

double BufferBytesOf(const Op& op) {
  if (!ir::HasSpace(op.code) || (op.space != ir::Space::kParam && op.space != ir::Space::kFlat)) {
    return 0;
  }
  const uint8_t effects = ir::Info(op.code).effects;
  return op.width * (((effects & ir::kReads) != 0 ? 1.0 : 0.0) + ((effects & ir::kWrites) != 0 ? 1.0 : 0.0));
}

ir::WorkProgram FindWork(const ir::Module& module, const BoundsTrace& trace) {
  const ir::Function& entry = module.function(module.entry);
  return WorkFinder(entry).Run(FindPaths(entry, trace));
}

}  // namespace hpvm::pass
