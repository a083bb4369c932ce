// SPDX-License-Identifier: Apache-2.0
// GpuCode describes the code that an artifact holds for an OpenCL or Vulkan device, and how a launch of it is set up.
// The same description serves code that our emitters made from the kernel IR and modules that a tenant wrote for the
// device.
//
// A launch of extent (ex, ey, ez) is cut into *parts* (backends/gpu/launch.h), boxes of instances; each part runs one
// variant. A work item of a variant with tile (tx, ty, tz) runs the tx * ty * tz instances that start at
//   first + global_id * tile
// (global_id without the device's own offset); `first` is a multiple of the tile. So is a part's extent, and with
// groups it is a multiple of tile * group: no work item is superfluous, and code need not test the extent's end.
//
// Traps. Variants with `can_trap` have a kTrapRecord argument, a buffer of GpuTrapRecords; kTrapIndex selects one of
// them. The record is initially zero. The first instance that traps claims it (compare and exchange of `state` 0 ->
// 1), fills in the other fields, and ends; later trapping instances end silently. Instances may check `state` when
// they begin and end at once if it is not 0. The host reads the records when the submission ends; a claimed record
// fails the submission.
#ifndef HPVMD_COMPILER_API_GPU_CODE_H_
#define HPVMD_COMPILER_API_GPU_CODE_H_

#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/module_kind.h"
#include "base/status.h"

namespace hpvm {

// 32 bytes, as the device writes them; little-endian words.
struct GpuTrapRecord {
  uint32_t state = 0;  // 0: no instance trapped.
  uint32_t code = 0;   // ir::TrapCode.
  std::array<uint32_t, 3> instance{};
  uint32_t source = 0;  // Byte offset in the module's file.
  uint32_t function = 0;
  uint32_t address = 0;  // Memory traps: the low half of the flat address, or of the offset.
};
static_assert(sizeof(GpuTrapRecord) == 32);

// One argument of a kernel. OpenCL: in the order of the kernel's arguments, passed by value. Vulkan: buffers are
// storage buffers at (set, binding); all other arguments lie in the push constants at `offset`, or, if the variant's
// `facts_binding` is set, in a read-only storage buffer there.
struct GpuArgument {
  enum class Kind : uint8_t {
    kBuffer = 1,       // Parameter `index`'s memory. OpenCL: a global pointer to the view's first byte.
    kBufferBytes = 2,  // Bytes of parameter `index`'s view.
    kBufferStart = 3,  // Bytes from the address that kBuffer gives to the view's first byte (views may be unaligned).
    kBufferBase = 4,   // Address of parameter `index` in the virtual space (ir::AssignAddresses).
    kScalar = 5,       // Parameter `index`'s bits.
    kFirst = 6,        // The part's first instance in dimension `index`.
    kExtent = 7,       // The extent of the whole launch in dimension `index`.
    kGroup = 8,        // The node's group in dimension `index`, in instances.
    kTrapRecord = 9,   // The buffer of records; an unused one if the variant cannot trap.
    kTrapIndex = 10,   // Index of the record.
    kGroupBase = 11,   // Address of group memory in the virtual space.
  };
  Kind kind = Kind::kBuffer;
  uint32_t index = 0;
  uint8_t bytes = 4;              // Size of a value, 4 or 8.
  bool is_writable = false;       // kBuffer.
  uint32_t set = 0, binding = 0;  // Vulkan: kBuffer, kTrapRecord.
  uint32_t offset = 0;            // Vulkan: values.
  friend bool operator==(const GpuArgument&, const GpuArgument&) = default;
};

// A scalar parameter that is a multiple of 2^log2, such as a matrix's row length, which determines the alignment of
// rows.
struct GpuFactor {
  uint32_t param = 0;
  uint8_t log2 = 0;
  friend bool operator==(const GpuFactor&, const GpuFactor&) = default;
};

struct GpuVariant {
  std::string entry;                      // Name of the entry point in the code.
  std::array<uint32_t, 3> tile{1, 1, 1};  // Instances per work item.
  bool needs_proof = false;               // Only for launches for which ir::ProveBounds succeeds.
  bool needs_words = false;               // Only if ir::ProveByWords succeeds, too; needs_proof is also set.
  bool needs_alignment = false;           // Every buffer's view begins at a multiple of 16 bytes of device memory.
  std::vector<GpuFactor> factors;         // Only for launches for which all of these hold.
  bool can_trap = true;
  // Work items per group; zeros: the launcher chooses, or uses the node's group for kernels that run by groups.
  std::array<uint32_t, 3> group{0, 0, 0};
  // Vulkan: the specialisation constants that set the group's extents; kNoConstant: fixed in the code.
  static constexpr uint32_t kNoConstant = 0xffffffffu;
  std::array<uint32_t, 3> group_constant{kNoConstant, kNoConstant, kNoConstant};
  uint64_t local_bytes = 0;  // Group memory that the code declares.
  std::vector<GpuArgument> arguments;
  uint32_t push_bytes = 0;  // Vulkan.
  // Vulkan: the location of values that do not fit in the push constants; kNoConstant: all are push constants.
  uint32_t facts_set = 0, facts_binding = kNoConstant;
  friend bool operator==(const GpuVariant&, const GpuVariant&) = default;
};

struct GpuCode {
  GpuFormat format = GpuFormat::kNone;  // Format of Artifact::code.
  // True if the code is the tenant's own: arguments were found in the code or its reflection, and no bounds checks
  // were added. The driver is the first to detect errors, so a failed build is the module's fault.
  bool is_native = false;
  std::string options;               // OpenCL: build options, already vetted.
  std::vector<GpuVariant> variants;  // The compiler's preference first; at least one.
  uint64_t private_bytes = 0;        // Private memory per work item that the code declares; informational.
  friend bool operator==(const GpuCode&, const GpuCode&) = default;
};

// For compiler/api/wire.h.
inline auto FieldsOf(GpuArgument& a) {
  return std::tie(a.kind, a.index, a.bytes, a.is_writable, a.set, a.binding, a.offset);
}
inline auto FieldsOf(GpuFactor& factor) { return std::tie(factor.param, factor.log2); }
inline auto FieldsOf(GpuVariant& v) {
  return std::tie(v.entry, v.tile, v.needs_proof, v.needs_words, v.needs_alignment, v.factors, v.can_trap, v.group,
                  v.group_constant, v.local_bytes, v.arguments, v.push_bytes, v.facts_set, v.facts_binding);
}
inline auto FieldsOf(GpuCode& c) { return std::tie(c.format, c.is_native, c.options, c.variants, c.private_bytes); }

// Returns true when every enumeration and shift has a valid value. ValidateGpuCode checks the rest.
bool IsWellFormed(const GpuCode& code);
// Checks the properties that devices rely on: counts and tiles within limits.h's, argument indices below `params`, and
// push constants inside push_bytes. Returns OK for an empty GpuCode of format kNone.
Status ValidateGpuCode(const GpuCode& code, size_t params);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_GPU_CODE_H_
