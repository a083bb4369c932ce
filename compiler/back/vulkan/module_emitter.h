// SPDX-License-Identifier: Apache-2.0
// ModuleEmitter holds the state that a module's variants share: the writer, views of buffers, push constants. Internal
// to this folder.
#ifndef HPVMD_COMPILER_BACK_VULKAN_MODULE_EMITTER_H_
#define HPVMD_COMPILER_BACK_VULKAN_MODULE_EMITTER_H_

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "compiler/api/gpu_code.h"
#include "compiler/api/gpu_target.h"
#include "compiler/back/vulkan/code.h"
#include "compiler/back/vulkan/spirv_writer.h"
#include "compiler/ir/words.h"

namespace hpvm::vulkan {

using namespace ir::words;

// The element type through which a buffer is accessed. Each view is a separate variable at the same binding.
enum class View : uint8_t { k8, k16, k32, k32x2, k32x4, k64, kF32, kF64 };

class ModuleEmitter {
 public:
  ModuleEmitter(const ir::Module& module, const GpuTarget& target);

  const ir::Module& source;
  const GpuTarget& target;
  SpirvWriter w;
  Code c;

  SpvId TypeOf(ir::Type type);
  SpvId ElementType(View view);
  SpvId Buffer(uint32_t param, View view);
  SpvId TrapRecords();
  SpvId GroupExtent(uint32_t d) { return group_extent_[d]; }  // Specialisation constants.
  SpvId BuiltIn(spv::BuiltIn which);                          // A uvec3, or a u32 for an index.
  // Returns a pointer to an argument in the push constants or facts, of u32 or uvec2. Instructions go to the open
  // function.
  SpvId ArgumentPointer(GpuArgument::Kind kind, uint32_t index, uint8_t bytes);
  // Returns the variable that holds the arguments; 0 when there is none.
  SpvId arguments_variable() const { return arguments_variable_; }

  // Emits the parts that are known only at the end. `variant` receives the common part of all variants.
  std::vector<uint32_t> Finish(GpuVariant& variant);
  static constexpr uint32_t kGroupConstant = 0;  // Specialisation constants 0, 1 and 2 are the group's extents.

 private:
  struct MemberLocation {
    uint32_t member = 0, offset = 0;
    uint8_t bytes = 4;
  };
  SpvId Block(View view, bool is_writable);
  uint32_t TrapBinding() const { return static_cast<uint32_t>(source.params.size()); }

  std::array<SpvId, 3> group_extent_{};
  std::map<std::pair<uint32_t, View>, SpvId> buffers_;
  std::map<View, SpvId> blocks_;
  std::map<spv::BuiltIn, SpvId> built_ins_;
  std::map<std::pair<GpuArgument::Kind, uint32_t>, MemberLocation> places_;
  std::vector<GpuArgument> arguments_;  // Values only.
  std::vector<uint32_t> member_bytes_;
  uint32_t argument_bytes_ = 0;
  SpvId arguments_variable_ = 0, arguments_block_ = 0;
  SpvId trap_records_ = 0;
  bool in_facts_ = false;
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_COMPILER_BACK_VULKAN_MODULE_EMITTER_H_
