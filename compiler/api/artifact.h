// SPDX-License-Identifier: Apache-2.0
// What a compile yields and a device loads: one file format, free of LLVM, written by the compile child, tagged by the
// zygote, checked by the runner before anything in it is believed.
//
// Layout, little-endian: magic "HPVA", u32 format version, 32-byte tag (HMAC-SHA-256 under the executor's key over all
// that follows), then the fields of Artifact in order (compiler/api/wire.h). Parsing is bounds-checked and total: any
// bytes give an Artifact or an error.
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

// The source line of the code from byte `offset` of the module on, up to the next entry. line 0: none is known.
struct SourceLine {
  uint32_t offset = 0;
  uint32_t file = 0;  // In Artifact::files.
  uint32_t line = 0;
  uint32_t column = 0;
};

// One way in which a CPU image runs a launch. What a unit is decides what the entry's `begin` and `end` count
// (compiler/ir/cpu_abi.h).
struct CpuVariant {
  enum class Unit : uint8_t { kInstance = 1, kTile = 2, kGroup = 3 };
  Unit unit = Unit::kInstance;
  uint32_t lanes = 1, columns = 1, rows = 1;  // kTile: lanes * columns instances along x, rows along y.
  // kTile, of one row: lanes lie along y. For launches that are narrow along x.
  bool is_along_y = false;
  // kTile: takes no index to miss the edges of the extent (compiler/analysis/edge_forms.h), beside shapes that do. For
  // launches most of whose tiles meet an edge.
  bool is_for_edges = false;
  bool needs_proof = false;  // Only for launches for which ir::ProveBounds holds and no buffer passes 2^31 bytes.
  uint64_t entry_offset = 0;
  // kGroup: bytes that each lane of the group keeps across barriers, in CpuContext::group_values; rows of lanes along x
  // are padded to whole vectors.
  uint64_t value_bytes = 0;

  // Instances of a tile along x, and along y.
  uint64_t width() const { return is_along_y ? 1 : uint64_t{lanes} * columns; }
  uint64_t height() const { return is_along_y ? uint64_t{lanes} * columns : rows; }
  friend bool operator==(const CpuVariant&, const CpuVariant&) = default;
};

struct Artifact {
  ArtifactKind kind = ArtifactKind::kInterp;
  std::string module_name;
  std::string entry;
  std::string target;  // CPU images: the features it needs, "x86-64-v4" ...
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
  std::vector<std::string> formats;  // Of print operations, with each the types of its operands.
  std::vector<std::vector<ir::Type>> format_types;
  // No address of a buffer is seen by the kernel except through accesses to that buffer, so that buffers of a 32-bit
  // kernel may pass 4 GiB together (docs/KERNELS.md).
  bool has_separate_buffers = false;
  std::vector<std::string> function_names;  // For traps.
  std::vector<std::string> files;           // From the module's debug information; empty without.
  std::vector<SourceLine> lines;            // Rising offsets; only of functions that the kernel reaches.
  std::vector<uint8_t> code;
  uint64_t entry_offset = 0;
  // CPU images: other ways than one instance at a time from entry_offset, the one the compiler thinks best first.
  std::vector<CpuVariant> variants;
  GpuCode gpu;  // IsGpuCode(kind).
  // What a launch shows so that needs_proof is met, and which bytes it touches (ir::FindAccesses); empty for modules
  // that only a driver understands.
  ir::BoundsProgram bounds;
  ir::WorkProgram work;               // How much a launch computes (ir::CountWork); empty for those, too.
  std::vector<KernelRemark> remarks;  // Only if asked for (CompileRequest::explain).
  std::string listing;                // For people; only if asked for (CompileRequest::listing).
  bool fast_math = false;             // Compiled with a node's "math": "fast".
  uint64_t read_only_bytes = 0;       // Reserved for images with a data part; 0.
  // How the compiler spent its time, for the job's record. Nanoseconds.
  uint64_t read_ns = 0, pass_ns = 0, emit_ns = 0;
  // Not in the file; added by who delivers it: what the compiler's cache calls it, what devices have learnt of it
  // (compiler/api/learnt.h), and what its launches took (compiler/api/cost_record.h). A name of zeros: nothing is kept
  // of it.
  Sha256 name;
  std::vector<uint8_t> learnt, costs;
};

// The fields that say of a module the same for every kind: its parameters, memory, state, formats and names.
Artifact DescribeModule(const ir::Module& module);

using ArtifactKey = std::array<uint8_t, 32>;

std::vector<uint8_t> Serialize(const Artifact& artifact, const ArtifactKey& key);
// Writes the tag of `key` into what Serialize made under another key: the compile child has no key, the zygote tags
// what it hands over.
void TagArtifact(std::span<uint8_t> bytes, const ArtifactKey& key);
// kInvalidArgument when the bytes are malformed, of another version, or not tagged with `key`.
StatusOr<Artifact> ParseArtifact(std::span<const uint8_t> bytes, const ArtifactKey& key);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_ARTIFACT_H_
