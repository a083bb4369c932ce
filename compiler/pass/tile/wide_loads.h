// SPDX-License-Identifier: Apache-2.0
// Neighbouring loads of an instance become one of 16 bytes: four words of a structure, say, or a complex number of two
// f64. GPUs load 16 bytes in the time of four.
#ifndef HPVMD_COMPILER_PASS_TILE_WIDE_LOADS_H_
#define HPVMD_COMPILER_PASS_TILE_WIDE_LOADS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "compiler/pass/rewrite/words.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::pass {

// The module with wide loads, whose needs_alignment is set: only buffers that begin at multiples of 16 bytes have them
// aligned. Loads are joined that stand in one region, with nothing between them that writes, waits, traps or branches.
// `is_free`, by OpId of the entry: accesses that stay inside their buffers wherever they are reached. `coarse`, which
// may be null, is what `module` is the module of, and the form that is made stands for it. Nothing if none is joined.
std::optional<CoarseModule> WidenLoads(const ir::Module& module, const std::vector<bool>& is_free,
                                       const CoarseModule* coarse);

// For passes that have loads of their own to join. The loads by their places in bytes, all `width` (4 or 8) bytes wide,
// from the same value on; which of them make up 16 bytes, the lowest first. `is_aligned` is asked about the lowest,
// `may_join` about the lowest and each of the others.
std::vector<std::vector<ir::OpId>> FindWideLoads(const std::map<int64_t, ir::OpId>& loads, uint32_t width,
                                                 const std::function<bool(ir::OpId)>& is_aligned,
                                                 const std::function<bool(ir::OpId, ir::OpId)>& may_join);

// Writes the load of 16 bytes in place of `loads`, of `from`, the lowest first, whose address is `address` here, and
// takes its words apart: a value for each of the loads, of its type.
struct WideLoad {
  ir::OpId op;
  std::vector<ir::ValueId> values;
};
WideLoad AppendWideLoad(ir::Builder& builder, const ir::Function& from, std::span<const ir::OpId> loads,
                        ir::ValueId address, bool is_inside);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_WIDE_LOADS_H_
