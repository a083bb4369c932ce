// SPDX-License-Identifier: Apache-2.0
// The engine's view of the compiler: a request goes to a process of its own and comes back as an artifact or as
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
#include "compiler/api/learnt.h"

namespace hpvm {

// Of one compile by the clock, for one that gets no processor time, or waits for something: a busy machine is not to
// refuse what a quiet one compiles. limits::kCompileSecondsMax is of processor time.
inline constexpr uint32_t kCompileWallSecondsMax = 600;

// What the graph says of one kernel parameter.
struct ParamSpec {
  std::string name;
  bool is_buffer = true;
  bool is_writable = true;           // Buffers.
  ir::Type scalar = ir::Type::kI32;  // Scalars.
  bool is_read = true;               // Buffers; for people alone (explain): false where a kernel only writes.
};

enum class Abi : uint8_t {
  kHpvm = 0,     // One parameter per port or scalar.
  kHpvmWeb = 1,  // (pointer, size) pairs and scalars, then idx_x, idx_y, idx_z, dim_x, dim_y, dim_z.
};

// Text for people beside an explained compile: the kernel IR after the passes, LLVM IR, assembly, or what a GPU's
// driver gets (OpenCL C, PTX, SPIR-V disassembled).
enum class Listing : uint8_t { kNone = 0, kIr = 1, kLlvm = 2, kAssembly = 3, kDevice = 4 };

// A SPIR-V module's constant, by its SpecId. Documents have numbers without a type; the module's constant says which it
// becomes.
struct SpecialisationConstant {
  uint32_t id = 0;
  bool is_float = false;  // `bits` are a double's; else a signed 64-bit integer's.
  uint64_t bits = 0;
};

struct CompileRequest {
  ModuleKind module_kind = ModuleKind::kWasm;
  std::string module_name;          // As the graph names it; for messages.
  Sha256 module_hash;               // Of `module`; the cache's key holds it.
  std::span<const uint8_t> module;  // Borrowed until Compile returns.
  int module_memfd = -1;            // One with just these bytes, likewise; -1: there is none yet.
  std::string entry;
  std::vector<ParamSpec> params;
  // Only with `explain`: `params` is empty, and what they are is inferred from what the entry does with them
  // (compiler/driver/explain.h). Artifact::params says what came of it.
  bool infers_params = false;
  Abi abi = Abi::kHpvm;
  ArtifactKind target = ArtifactKind::kCpuImage;
  GpuTarget gpu;                                  // IsGpuCode(target): the device; others ignore it.
  bool fast_math = false;                         // A node's "math": "fast".
  std::string options;                            // OpenCL C: build options, as the document has them.
  std::vector<SpecialisationConstant> constants;  // SPIR-V.
  // The artifact carries remarks and the listing, and is for people: such a compile does not use the cache, and may be
  // for another processor than this one (CpuTarget::level; empty: this one).
  bool explain = false;
  Listing listing = Listing::kNone;
  std::string level;  // IsGpuCode(target), explained or not: the device by its name, "h200"; empty: `gpu`.
  // Not zero: nobody wants the artifact any more, and Compile returns kCancelled. Borrowed until it does; may be null.
  const std::atomic<uint32_t>* stop = nullptr;
};

struct CompileOutcome {
  // Errors: the module or entry is refused, `artifact` is empty. Warnings may stand beside an artifact.
  Diagnostics diagnostics;
  std::optional<Artifact> artifact;
  // kResourceExhausted: a limit of the compiler's ended the compile. That is said in `diagnostics` as well, and says
  // nothing of the module: elsewhere, or at another time, it may compile.
  Status limit{};
  bool from_cache = false;
  Duration elapsed{0};  // As the caller waited.
  Duration cpu{0};      // What the compile used of processors; 0 when nothing was compiled.
};

// Also where devices leave what they have learnt of its artifacts.
class CompilerService : public LearntStore {
 public:
  // Blocks until the compile ends, its caps are reached (CompileOutcome::limit), `deadline` passes (kDeadlineExceeded),
  // or the request's stop word is set (kCancelled); in the last two cases the compiling process is killed, within 100
  // ms. A compile that crashes is a diagnostic. kUnavailable when the compiler process is gone. Any thread; requests
  // run in parallel.
  virtual StatusOr<CompileOutcome> Compile(const CompileRequest& request, Time deadline) = 0;
  // A service that keeps no artifacts keeps nothing of them.
  void Keep(const Sha256&, std::span<const uint8_t>) override {}
};

// The compiler at the other end of `socket`: a zygote (compiler/driver/zygote.h says the protocol) that forks once a
// compile. `key` checks the artifacts' tags; `cache_folder` is for a zygote that was not told on its command line.
// Linked without LLVM.
std::unique_ptr<CompilerService> ConnectCompiler(UniqueFd socket, const ArtifactKey& key,
                                                 const std::string& cache_folder = "");

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_SERVICE_H_
