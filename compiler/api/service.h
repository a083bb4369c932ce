// SPDX-License-Identifier: Apache-2.0
// The engine's interface to the compiler: a request goes to a separate process and comes back as an artifact or as
// diagnostics.
#ifndef HPVMD_COMPILER_API_SERVICE_H_
#define HPVMD_COMPILER_API_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/diagnostic.h"
#include "base/hash.h"
#include "base/io/fd.h"
#include "base/module_kind.h"
#include "base/status.h"
#include "compiler/api/artifact.h"
#include "compiler/api/gpu_target.h"
#include "compiler/api/tuning_record.h"

namespace hpvm {

// Wall-clock limit of one compile, for compiles that get no processor time or wait: a busy machine must not refuse
// modules that an idle machine compiles. limits::kCompileSecondsMax limits processor time.
inline constexpr uint32_t kCompileWallSecondsMax = 600;

// One kernel parameter as the graph declares it.
struct ParamSpec {
  std::string name;
  bool is_buffer = true;
  bool is_writable = true;           // Buffers.
  ir::Type scalar = ir::Type::kI32;  // Scalars.
  bool is_read = true;               // Buffers; used by explain only: false where a kernel only writes.
};

enum class Abi : uint8_t {
  kHpvm = 0,     // One parameter per port or scalar.
  kHpvmWeb = 1,  // (pointer, size) pairs and scalars, then idx_x, idx_y, idx_z, dim_x, dim_y, dim_z.
};

// Human-readable text beside an explained compile: the kernel IR after the passes, LLVM IR, assembly, or the input of
// a GPU's driver (OpenCL C, PTX, disassembled SPIR-V).
enum class Listing : uint8_t { kNone = 0, kIr = 1, kLlvm = 2, kAssembly = 3, kDevice = 4 };

// A SPIR-V module's specialisation constant, by its SpecId. Numbers in documents have no type; the module's constant
// determines it.
struct SpecialisationConstant {
  uint32_t id = 0;
  bool is_float = false;  // `bits` hold a double; else a signed 64-bit integer.
  uint64_t bits = 0;
};

struct CompileRequest {
  ModuleKind module_kind = ModuleKind::kWasm;
  std::string module_name;          // The graph's name of the module; for messages.
  Sha256 module_hash;               // Hash of `module`; part of the cache's key.
  std::span<const uint8_t> module;  // Borrowed until Compile returns.
  int module_memfd = -1;            // A memfd with exactly these bytes, borrowed likewise; -1: none exists.
  std::string entry;
  std::vector<ParamSpec> params;
  // Only with `explain`: `params` is empty, and the parameters are inferred from the entry's use of them
  // (compiler/driver/explain.h). Artifact::params has the result.
  bool infers_params = false;
  Abi abi = Abi::kHpvm;
  ArtifactKind target = ArtifactKind::kCpuImage;
  GpuTarget gpu;                                  // IsGpuCode(target): the device; other targets ignore it.
  bool fast_math = false;                         // A node's "math": "fast".
  std::string options;                            // OpenCL C: the build options of the document.
  std::vector<SpecialisationConstant> constants;  // SPIR-V.
  // The artifact carries remarks and the listing for human readers. Such a compile does not use the cache, and may
  // target another processor (CpuTarget::level; empty: this processor).
  bool explain = false;
  Listing listing = Listing::kNone;
  std::string level;  // IsGpuCode(target), explained or not: the name of the device, such as "h200"; empty: `gpu`.
  // A nonzero value cancels the compile, which then returns kCancelled. Borrowed until Compile returns; may be null.
  const std::atomic<uint32_t>* stop = nullptr;
};

struct CompileOutcome {
  // Errors: the module or entry is refused, `artifact` is empty. Warnings may accompany an artifact.
  Diagnostics diagnostics;
  std::optional<Artifact> artifact;
  // kResourceExhausted: a limit of the compiler ended the compile. `diagnostics` says so as well. The module may still
  // compile elsewhere, or at another time.
  Status limit{};
  bool from_cache = false;
  Duration elapsed{0};  // Time that the caller waited.
  Duration cpu{0};      // Processor time of the compile; 0 when nothing was compiled.
};

// CompilerService compiles modules, and keeps the records that devices measured of its artifacts.
class CompilerService : public TuningStore {
 public:
  // Blocks until the compile ends, its limits are reached (CompileOutcome::limit), `deadline` passes
  // (kDeadlineExceeded), or the request's stop word is set (kCancelled); in the last two cases the compiling process
  // is killed within 100 ms. A compile that crashes yields a diagnostic. Returns kUnavailable when the compiler
  // process is gone. Thread-safe; requests run in parallel.
  virtual StatusOr<CompileOutcome> Compile(const CompileRequest& request, Time deadline) = 0;
  // Drops the record, because a service that keeps no artifacts keeps no records of them.
  void Keep(const Sha256&, std::span<const uint8_t>) override {}
};

// Connects to the compiler at the other end of `socket`: a zygote (protocol: compiler/driver/zygote.h) that forks once
// per compile. `key` verifies the artifacts' tags; `cache_folder` is for a zygote whose command line names none.
// Linked without LLVM.
std::unique_ptr<CompilerService> ConnectCompiler(UniqueFd socket, const ArtifactKey& key,
                                                 const std::string& cache_folder = "");

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_SERVICE_H_
