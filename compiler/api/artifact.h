// SPDX-License-Identifier: Apache-2.0
// Artifact is the output of a compile and the input of a device: one file format, independent of LLVM, written by the
// compile child, tagged by the zygote, and checked by the runner before use.
//
// Layout, little-endian: magic "HPVA", u32 format version, 32-byte tag (HMAC-SHA-256 under the executor's key over all
// bytes that follow), then the fields of Artifact in order (compiler/api/wire.h). Parsing is bounds-checked and total:
// any bytes yield an Artifact or an error.
#ifndef HPVMD_COMPILER_API_ARTIFACT_H_
#define HPVMD_COMPILER_API_ARTIFACT_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/device_family.h"
#include "base/hash.h"
#include "base/status.h"
#include "compiler/api/gpu_code.h"
#include "compiler/api/report.h"
#include "compiler/ir/bounds.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/work.h"

namespace hpvm {

inline constexpr uint32_t kArtifactFormatVersion = 11;

// The source line of the code that starts at byte `offset` of the module and ends at the next entry. line 0: unknown.
struct SourceLine {
  uint32_t offset = 0;
  uint32_t file = 0;  // Index in Artifact::files.
  uint32_t line = 0;
  uint32_t column = 0;
};

// One way in which a CPU image runs a launch. The unit determines what the entry's `begin` and `end` count
// (compiler/ir/cpu_abi.h).
struct CpuVariant {
  enum class Unit : uint8_t { kInstance = 1, kTile = 2, kGroup = 3 };
  Unit unit = Unit::kInstance;
  uint32_t lanes = 1, columns = 1, rows = 1;  // kTile: lanes * columns instances along x, rows along y.
  // kTile with one row: lanes lie along y. Used for launches that are narrow along x.
  bool is_along_y = false;
  // kTile: does not assume that indices miss the edges of the extent (compiler/analysis/edge_forms.h), unlike other
  // shapes of the image. Used for launches most of whose tiles meet an edge.
  bool is_for_edges = false;
  bool needs_proof = false;  // Only for launches for which ir::ProveBounds succeeds and no buffer exceeds 2^31 bytes.
  uint64_t entry_offset = 0;
  // kGroup: bytes that each lane of the group keeps across barriers, in CpuContext::group_values; rows of lanes along
  // x are padded to whole vectors.
  uint64_t value_bytes = 0;

  // Return the instances of a tile along x, and along y.
  uint64_t width() const { return is_along_y ? 1 : uint64_t{lanes} * columns; }
  uint64_t height() const { return is_along_y ? uint64_t{lanes} * columns : rows; }
  friend bool operator==(const CpuVariant&, const CpuVariant&) = default;
};

struct Artifact {
  ArtifactKind kind = ArtifactKind::kInterp;
  std::string module_name;
  std::string entry;
  std::string target;  // CPU images: the required features, such as "x86-64-v4".
  std::vector<ir::KernelParam> params;
  bool is_memory64 = false;
  bool uses_barrier = false;
  bool uses_group_memory = false;
  uint64_t memory_bytes = 0;
  uint64_t memory_bytes_max = 0;
  std::vector<ir::DataSegment> data;  // Initial module memory.
  std::vector<uint64_t> globals;      // Initial bits.
  uint64_t state_bytes = 0;           // ir::Module::state_bytes and its initial content.
  std::vector<ir::DataSegment> state;
  std::vector<std::string> formats;  // Print formats; the next list has their operands' types.
  std::vector<std::vector<ir::Type>> format_types;
  // True if the kernel uses the address of each buffer only to access that buffer, so that buffers of a 32-bit kernel
  // may exceed 4 GiB together (docs/KERNELS.md).
  bool has_separate_buffers = false;
  std::vector<std::string> function_names;  // For traps.
  std::vector<std::string> files;           // From the module's debug information; empty without it.
  std::vector<SourceLine> lines;            // Sorted by offset; only of functions that the kernel reaches.
  std::vector<uint8_t> code;
  uint64_t entry_offset = 0;
  // CPU images: alternatives to running one instance at a time from entry_offset, the compiler's preference first.
  std::vector<CpuVariant> variants;
  GpuCode gpu;  // Set if IsGpuCode(kind).
  // The conditions under which a launch satisfies needs_proof, and the bytes that a launch touches (ir::FindAccesses);
  // empty for modules that only a driver understands.
  ir::BoundsProgram bounds;
  ir::WorkProgram work;               // The operations that a launch performs (ir::CountWork); empty likewise.
  std::vector<KernelRemark> remarks;  // Only if requested (CompileRequest::explain).
  std::string listing;                // Human-readable; only if requested (CompileRequest::listing).
  bool fast_math = false;             // Compiled with a node's "math": "fast".
  uint64_t read_only_bytes = 0;       // Reserved for images with a data part; 0.
  // Nanoseconds that the compiler spent per phase, for the job's record.
  uint64_t read_ns = 0, pass_ns = 0, emit_ns = 0;
  // Not in the file; the sender of the artifact adds these: the artifact's name in the compiler's cache, the devices'
  // measurements of its variants (compiler/api/tuning_record.h), and the costs of its launches
  // (compiler/api/cost_record.h). A name of zeros: no records are kept.
  Sha256 name;
  std::vector<uint8_t> tuning, costs;
};

// Returns an artifact with the fields that describe a module independently of the kind: parameters, memory, state,
// formats and names.
Artifact DescribeModule(const ir::Module& module);

using ArtifactKey = std::array<uint8_t, 32>;

std::vector<uint8_t> Serialize(const Artifact& artifact, const ArtifactKey& key);
// Replaces the tag in the output of Serialize by the tag of `key`: the compile child has no key, so the zygote tags
// each artifact before it hands the artifact over.
void TagArtifact(std::span<uint8_t> bytes, const ArtifactKey& key);
// Returns kInvalidArgument when the bytes are malformed, of another version, or not tagged with `key`.
StatusOr<Artifact> ParseArtifact(std::span<const uint8_t> bytes, const ArtifactKey& key);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_ARTIFACT_H_
