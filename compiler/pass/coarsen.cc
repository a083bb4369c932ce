// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/coarsen.h"

namespace hpvm {

StatusOr<CoarseModule> Coarsen(const ir::Module& module, const GpuTile& tile) {
  return Unimplemented("Kernel \"" + module.name + "\" cannot be run in tiles of " + std::to_string(tile.size[0]) +
                       " x " + std::to_string(tile.size[1]) + " x " + std::to_string(tile.size[2]) + " instances.");
}

std::vector<GpuTile> ChooseTiles(const ir::Module& module, const GpuTarget& target, KernelReport* report) {
  static_cast<void>(module);
  static_cast<void>(target);
  static_cast<void>(report);
  return {};
}

}  // namespace hpvm
