// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/lower/set_locals.h"

#include <algorithm>
#include <utility>

namespace hpvm::wasm {

std::optional<SetLocals> SetLocals::Find(const Function& function, uint64_t entries_max) {
  struct Open {
    size_t range;
    std::vector<uint32_t> locals;
  };
  SetLocals result;
  std::vector<Open> open;
  for (const Instr& instr : function.code) {
    switch (instr.kind) {
      case InstrKind::kBlock:
      case InstrKind::kLoop:
      case InstrKind::kIf:
        open.push_back({result.ranges_.size(), {}});
        result.ranges_.emplace_back();
        break;
      case InstrKind::kLocalSet:
      case InstrKind::kLocalTee:
        for (uint32_t slot = 0; !open.empty() && slot < instr.width; ++slot) {
          open.back().locals.push_back(static_cast<uint32_t>(instr.imm) + slot);
        }
        break;
      case InstrKind::kEnd: {
        if (open.empty()) {
          break;  // This is the end of the function itself.
        }
        const Open closed = [&] {
          Open top = std::move(open.back());
          open.pop_back();
          std::ranges::sort(top.locals);
          top.locals.erase(std::unique(top.locals.begin(), top.locals.end()), top.locals.end());
          return top;
        }();
        if (closed.locals.size() > entries_max - result.pool_.size()) {
          return std::nullopt;
        }
        result.ranges_[closed.range] = {result.pool_.size(), closed.locals.size()};
        result.pool_.insert(result.pool_.end(), closed.locals.begin(), closed.locals.end());
        if (!open.empty()) {
          open.back().locals.insert(open.back().locals.end(), closed.locals.begin(), closed.locals.end());
        }
        break;
      }
      default:
        break;
    }
  }
  return result;
}

}  // namespace hpvm::wasm
