// SPDX-License-Identifier: Apache-2.0
// Every maximum that is not a configuration key, each with its reason. Configurable ones stand here as defaults.
#ifndef HPVMD_BASE_LIMITS_H_
#define HPVMD_BASE_LIMITS_H_

#include <cstdint>

namespace hpvm::limits {

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

// Tensors up to this size travel inside Run's message; larger ones through buffers, because a gRPC message is copied
// several times.
inline constexpr uint64_t kInlineTensorBytesMax = 256 * kKiB;
// One message of a chunk stream. Above 1 MiB throughput no longer grows; below, the cost of a message shows.
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
// What a report of faults lists; the count of the rest follows.
inline constexpr uint32_t kDiagnosticsMax = 100;

// Modules.
inline constexpr uint64_t kModuleBytesMax = 64 * kMiB;
// Memory that a module declares, private to each running instance.
inline constexpr uint64_t kModuleMemoryBytesMax = 1 * kGiB;
// What an instance keeps beside it, where no address reaches: tables, what is left of segments. The largest is the
// store that linked modules of hpvm-wast share.
inline constexpr uint64_t kModuleStateBytesMax = 256 * kMiB;
// Values that one print takes: they travel in a buffer on the instance's stack.
inline constexpr uint32_t kPrintOperandsMax = 64;
// Formats are parsed for each print of a module, and again for each line printed; as long is a literal that %s prints.
inline constexpr uint32_t kPrintFormatBytesMax = 1'000;
inline constexpr uint32_t kPrintFormatsMax = 1'000;
// A width or precision, so that one directive fills a small buffer.
inline constexpr uint32_t kPrintFieldMax = 255;
// Parameters of a kernel: ports and scalars together.
inline constexpr uint32_t kKernelParamsMax = 256;

// WebAssembly modules. Engines allow 50,000 locals and 1,000 parameters; the nesting is what later stages can afford to
// recurse on, and the rest keeps a module of the largest size within a compile child's memory.
inline constexpr uint32_t kWasmLocalsMax = 50'000;
inline constexpr uint32_t kWasmSignatureMax = 1'000;
inline constexpr uint32_t kWasmNestingMax = 1'000;
inline constexpr uint32_t kWasmTableEntriesMax = 65'536;
// Types, functions, globals, exports, element segments and data segments, of each kind: a few bytes of module become a
// few hundred in memory. And the parameters and results of all functions together, which the validator copies.
inline constexpr uint32_t kWasmItemsMax = 1'000'000;
inline constexpr uint64_t kWasmSignatureValuesMax = 16'000'000;
// Tables and element segments of one module, as an instance holds them: each worker has a copy.
inline constexpr uint32_t kWasmTablesMax = 1'000;
inline constexpr uint64_t kWasmStateBytesMax = 16 * kMiB;
// A start function runs in the interpreter, once a compile: calls and iterations of loops, some seconds of it; and what
// it may leave in memory, since every artifact of the module carries it.
inline constexpr uint64_t kWasmStartStepsMax = 20'000'000;
inline constexpr uint64_t kWasmStartBytesMax = 64 * kMiB;
inline constexpr uint64_t kWasmInstructionsMax = 32'000'000;
// Values and uses of values in the kernel IR of one module.
inline constexpr uint64_t kKernelIrValuesMax = 32'000'000;

// Debug information of a module: line tables of the largest programs known to us are below 8 MiB; the rest keeps the
// lines in a small part of an artifact, and the reading below a second.
inline constexpr uint64_t kDebugLineBytesMax = 32 * kMiB;
inline constexpr uint64_t kDebugRowsMax = 16'000'000;
inline constexpr uint64_t kDebugOffsetsMax = 500'000;
inline constexpr uint64_t kDebugFilesMax = 16'384;
inline constexpr uint64_t kDebugFileNameBytesMax = 256;

// A compile child's caps (defaults).
inline constexpr uint64_t kCompileMemoryBytesMax = 2 * kGiB;
inline constexpr uint32_t kCompileSecondsMax = 20;
inline constexpr uint64_t kArtifactBytesMax = 64 * kMiB;

// What a CPU image offers beside running instances one at a time: three shapes, checked and not, and groups; and what
// the compiler says of a kernel when asked to explain: a few remarks a line.
inline constexpr uint32_t kCpuVariantsMax = 16;
// Of a kernel on a GPU; each is compiled by the driver on its own, which takes tens of milliseconds.
inline constexpr uint32_t kGpuVariantsMax = 8;
// Instances of a work item along one dimension: beyond it registers spill on every device known.
inline constexpr uint32_t kGpuTileMax = 16;
// A kernel's parameters times the values passed of each, and what is passed of a launch.
inline constexpr uint32_t kGpuArgumentsMax = 2048;
// Of a module's build options in a document.
inline constexpr uint32_t kBuildOptionsBytesMax = 4096;
inline constexpr uint32_t kSpecialisationConstantsMax = 256;
inline constexpr uint32_t kRemarksMax = 20'000;
inline constexpr uint32_t kRemarkBytesMax = 4'096;
// A bounds program is looked at by launches: a few times what compiler/pass/find_bounds.h writes, so that a child that
// wrote more did not come by it honestly. Choices are a merge's edges, degrees the powers of what multiplies.
inline constexpr uint32_t kBoundsAtomsMax = 1'024;
inline constexpr uint32_t kBoundsItemsMax = 2'048;
inline constexpr uint32_t kBoundsChoicesMax = 32;
inline constexpr uint32_t kBoundsDegreeMax = 64;
// What a lane of a group keeps across barriers, and a whole group: as much as its instances' stacks could hold.
inline constexpr uint64_t kGroupLaneBytesMax = 64 * kKiB;
inline constexpr uint64_t kGroupValueBytesMax = 64 * kMiB;

// An instance's call depth is bounded by the bytes of its native stack.
inline constexpr uint64_t kKernelStackBytes = 512 * kKiB;

// What the kernels of one run may say: enough to read, small enough to travel in one message and to stay with a job.
inline constexpr uint32_t kLogLinesMax = 1'000;
inline constexpr uint32_t kLogBytesMax = 64 * 1024;
inline constexpr uint32_t kLogLineBytesMax = 4'096;  // Longer lines are cut.
// What a checked run reports; further findings are counted.
inline constexpr uint32_t kFindingsMax = 100;
// The record of one checked launch: what is touched beyond it is not compared.
inline constexpr uint64_t kCheckRecordBytesMax = 1 * kGiB;

// From the stop word to SIGKILL.
inline constexpr uint32_t kStopGraceMs = 100;

}  // namespace hpvm::limits

#endif  // HPVMD_BASE_LIMITS_H_
