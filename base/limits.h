// SPDX-License-Identifier: Apache-2.0
// All limits that are not configuration keys, each with its reason. Defaults of configurable limits are here too.
#ifndef HPVMD_BASE_LIMITS_H_
#define HPVMD_BASE_LIMITS_H_

#include <cstdint>

namespace hpvm::limits {

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

// Tensors up to this size travel inside Run's message; larger ones use buffers, because gRPC copies a message several
// times.
inline constexpr uint64_t kInlineTensorBytesMax = 256 * kKiB;
// Size of one message of a chunk stream. Above 1 MiB throughput no longer grows; below, the cost per message shows.
inline constexpr uint64_t kChunkBytes = 1 * kMiB;
// A gRPC message: sixteen inline tensors and their description.
inline constexpr uint64_t kMessageBytesMax = 4 * kMiB + 64 * kKiB;
static_assert(kMessageBytesMax >= 16 * kInlineTensorBytesMax);

// Graph documents (defaults; configuration keys graph.nodes_max, graph.document_bytes_max ...).
inline constexpr uint64_t kGraphDocumentBytesMax = 64 * kMiB;
inline constexpr uint32_t kGraphNodesMax = 200'000;
inline constexpr uint32_t kGraphEdgesMax = 1'000'000;
inline constexpr uint32_t kGraphDepthMax = 32;
// Nodes after replicated internal nodes are expanded: what one plan may hold in memory.
inline constexpr uint64_t kGraphExpandedNodesMax = 2'000'000;
inline constexpr uint32_t kGraphStringBytesMax = 64 * kKiB;
inline constexpr uint32_t kTensorRankMax = 16;
// Number of faults listed in a report, followed by the count of the rest.
inline constexpr uint32_t kDiagnosticsMax = 100;

// Modules.
inline constexpr uint64_t kModuleBytesMax = 64 * kMiB;
// Memory declared by a module, private to each running instance.
inline constexpr uint64_t kModuleMemoryBytesMax = 1 * kGiB;
// Instance state outside its address space: tables, remains of segments. The largest is the store shared by linked
// modules of hpvm-wast.
inline constexpr uint64_t kModuleStateBytesMax = 256 * kMiB;
// Number of operands of one print: they travel in a buffer on the instance's stack.
inline constexpr uint32_t kPrintOperandsMax = 64;
// Formats are parsed for each print of a module, and again for each line printed. A literal printed by %s has the same
// limit.
inline constexpr uint32_t kPrintFormatBytesMax = 1'000;
inline constexpr uint32_t kPrintFormatsMax = 1'000;
// Limit of a width or precision, so that one directive fits in a small buffer.
inline constexpr uint32_t kPrintFieldMax = 255;
// Number of parameters of a kernel: ports and scalars together.
inline constexpr uint32_t kKernelParamsMax = 256;

// Limits of WebAssembly modules. Engines allow 50,000 locals and 1,000 parameters; the nesting is what later stages can
// recurse on, and the rest keeps a module of the largest size within a compile child's memory.
inline constexpr uint32_t kWasmLocalsMax = 50'000;
inline constexpr uint32_t kWasmSignatureMax = 1'000;
inline constexpr uint32_t kWasmNestingMax = 1'000;
inline constexpr uint32_t kWasmTableEntriesMax = 65'536;
// Number of types, functions, globals, exports, element segments and data segments, of each kind, because a few bytes
// of module become a few hundred in memory. kWasmSignatureValuesMax limits the parameters and results of all functions
// together, which the validator copies.
inline constexpr uint32_t kWasmItemsMax = 1'000'000;
inline constexpr uint64_t kWasmSignatureValuesMax = 16'000'000;
// Tables and element segments of one module as an instance holds them; each worker has a copy.
inline constexpr uint32_t kWasmTablesMax = 1'000;
inline constexpr uint64_t kWasmStateBytesMax = 16 * kMiB;
// Start functions run in the interpreter, once per compile. The steps (calls and loop iterations) take a few seconds;
// the bytes limit what a start function may leave in memory, since every artifact of the module carries them.
inline constexpr uint64_t kWasmStartStepsMax = 20'000'000;
inline constexpr uint64_t kWasmStartBytesMax = 64 * kMiB;
inline constexpr uint64_t kWasmInstructionsMax = 32'000'000;
// Number of values and uses of values in the kernel IR of one module.
inline constexpr uint64_t kKernelIrValuesMax = 32'000'000;

// Debug information of a module. Line tables of the largest programs known are below 8 MiB; the other limits keep the
// lines to a small part of an artifact, and reading them below a second.
inline constexpr uint64_t kDebugLineBytesMax = 32 * kMiB;
inline constexpr uint64_t kDebugRowsMax = 16'000'000;
inline constexpr uint64_t kDebugOffsetsMax = 500'000;
inline constexpr uint64_t kDebugFilesMax = 16'384;
inline constexpr uint64_t kDebugFileNameBytesMax = 256;

// Limits of a compile child (defaults).
inline constexpr uint64_t kCompileMemoryBytesMax = 2 * kGiB;
inline constexpr uint32_t kCompileSecondsMax = 20;
inline constexpr uint64_t kArtifactBytesMax = 64 * kMiB;

// Variants of a CPU image besides running instances one at a time: three shapes, checked and unchecked, and groups.
inline constexpr uint32_t kCpuVariantsMax = 16;
// Variants of a kernel on a GPU; the driver compiles each on its own, which takes tens of milliseconds.
inline constexpr uint32_t kGpuVariantsMax = 8;
// Instances per work item along one dimension: beyond it registers spill on every device known.
inline constexpr uint32_t kGpuTileMax = 16;
// A kernel's parameters times the values passed for each, plus the values passed for a launch.
inline constexpr uint32_t kGpuArgumentsMax = 2048;
// Size of a module's build options in a document.
inline constexpr uint32_t kBuildOptionsBytesMax = 4096;
inline constexpr uint32_t kSpecialisationConstantsMax = 256;
// Remarks of the compiler on a kernel when asked to explain: a few per line.
inline constexpr uint32_t kRemarksMax = 20'000;
inline constexpr uint32_t kRemarkBytesMax = 4'096;
// Limits of a bounds program, which launches evaluate: a few times what compiler/pass/find_bounds.h writes, so that a
// compile child that sent more was compromised. Choices are a merge's edges; degrees are powers of a product.
inline constexpr uint32_t kBoundsAtomsMax = 1'024;
inline constexpr uint32_t kBoundsItemsMax = 2'048;
inline constexpr uint32_t kBoundsChoicesMax = 32;
inline constexpr uint32_t kBoundsDegreeMax = 64;
// State that a lane of a group, and a whole group, keeps across barriers: as much as its instances' stacks could hold.
inline constexpr uint64_t kGroupLaneBytesMax = 64 * kKiB;
inline constexpr uint64_t kGroupValueBytesMax = 64 * kMiB;

// Bounds the call depth of an instance: the bytes of its native stack.
inline constexpr uint64_t kKernelStackBytes = 512 * kKiB;

// Output of the kernels of one run: enough to read, small enough to travel in one message and to be stored with a job.
inline constexpr uint32_t kLogLinesMax = 1'000;
inline constexpr uint32_t kLogBytesMax = 64 * 1024;
inline constexpr uint32_t kLogLineBytesMax = 4'096;  // Longer lines are cut.
// Number of findings that a checked run lists; further findings are counted.
inline constexpr uint32_t kFindingsMax = 100;
// Size of the record of one checked launch; accesses beyond it are not compared.
inline constexpr uint64_t kCheckRecordBytesMax = 1 * kGiB;

// Time from setting the stop word to SIGKILL.
inline constexpr uint32_t kStopGraceMs = 100;

}  // namespace hpvm::limits

#endif  // HPVMD_BASE_LIMITS_H_
