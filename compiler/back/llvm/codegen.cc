// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/llvm/codegen.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/CodeGen/Passes.h"
#include "llvm/CodeGen/RegAllocRegistry.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"

#include "compiler/back/llvm/emit/emitter.h"

namespace hpvm::cpu {

void InitializeLlvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    // LLVM 22 may move a prologue below code that keeps a value in r11. The loop that probes a frame of more than 32
    // KiB page by page then overwrites the value: the context's address, in an observed case. At a function's start
    // r11 is free.
    const char* arguments[] = {"hpvm", "-enable-shrink-wrap=false"};
    llvm::cl::ParseCommandLineOptions(2, arguments);
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
}

void SetOutOfMemoryHandler(void (*handler)()) {
  static void (*out_of_memory)() = nullptr;
  out_of_memory = handler;
  std::set_new_handler(handler);
  llvm::remove_bad_alloc_error_handler();
  llvm::install_bad_alloc_error_handler([](void*, const char*, bool) { out_of_memory(); });
}

namespace {

// Aarch64 is only needed for text output, so the zygote does not initialize it.
void InitializeAarch64() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
  });
}

// These passes take a quarter of the time of LLVM's O2 on kernels and give faster code: O2's later passes merge the
// fast path and the search path of accesses. They simplify each function, inline, then rotate loops so that loads of
// bounds are hoisted, and do so again after redundant checks are gone.
constexpr char kPasses[] =
    "function(sroa,early-cse,simplifycfg,instcombine<no-verify-fixpoint>),"
    "cgscc(inline),"
    "function(sroa,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,reassociate,"
    "loop-mssa(loop-rotate,licm),simplifycfg,instcombine<no-verify-fixpoint>,"
    "loop(indvars,loop-deletion),gvn,loop-mssa(licm),"
    "dse,adce,simplifycfg,instcombine<no-verify-fixpoint>),"
    "globaldce";

// Above this size of one function the default register allocator takes quadratic time.
constexpr unsigned kLargeFunctionInstructions = 20'000;

bool HasLargeFunction(const llvm::Module& module) {
  return std::ranges::any_of(module, [](const llvm::Function& function) {
    return function.getInstructionCount() > kLargeFunctionInstructions;
  });
}

// While alive, makes passes that are added use the basic register allocator. The setting is per process, so only one
// compile may run at a time.
class BasicRegisterAllocation {
 public:
  BasicRegisterAllocation() : before_(llvm::RegisterRegAlloc::getDefault()) {
    llvm::RegisterRegAlloc::setDefault(llvm::createBasicRegisterAllocator);
  }
  ~BasicRegisterAllocation() { llvm::RegisterRegAlloc::setDefault(before_); }
  BasicRegisterAllocation(const BasicRegisterAllocation&) = delete;
  BasicRegisterAllocation& operator=(const BasicRegisterAllocation&) = delete;

 private:
  const llvm::RegisterRegAlloc::FunctionPassCtor before_;
};

}  // namespace

StatusOr<Machine> MachineOf(const CpuTarget& target) {
  using Kind = Machine::Kind;
  const std::pair<const char*, Kind> levels[] = {{"x86-64-v2", Kind::kX86V2},
                                                 {"x86-64-v3", Kind::kX86V3},
                                                 {"x86-64-v4", Kind::kX86V4},
                                                 {"aarch64", Kind::kAarch64}};
  for (const auto& [level, kind] : levels) {
    if (target.level == level) {
      return Machine{.kind = kind};
    }
  }
  return InvalidArgument("The compiler knows no processor level \"" + target.level + "\".");
}

StatusOr<std::unique_ptr<llvm::TargetMachine>> CreateTargetMachine(const CpuTarget& target) {
  InitializeLlvm();
  const bool is_aarch64 = target.level == "aarch64";
  if (is_aarch64) {
    InitializeAarch64();
  }
  const llvm::Triple triple(is_aarch64 ? "aarch64-unknown-linux-gnu" : "x86_64-unknown-linux-gnu");
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (found == nullptr) {
    return Internal("LLVM lacks the target " + triple.str() + ": " + error);
  }
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;  // Never fuses a multiply and an add of the kernel.
  options.EmitStackSizeSection = true;                 // LinkImage checks it.
  std::unique_ptr<llvm::TargetMachine> machine(
      found->createTargetMachine(triple, is_aarch64 ? "generic" : target.level, "", options, llvm::Reloc::PIC_,
                                 llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
  if (machine == nullptr) {
    return Internal("LLVM cannot generate code for \"" + target.level + "\".");
  }
  return machine;
}

void Optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  // An image links no library, so no loop may become a call of memcpy.
  llvm::TargetLibraryInfoImpl library(module.getTargetTriple());
  library.disableAllFunctions();
  functions.registerPass([&] { return llvm::TargetLibraryAnalysis(library); });
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  llvm::ModulePassManager passes;
  llvm::Error error = builder.parsePassPipeline(passes, kPasses);
  HPVMD_CHECK(!error);
  passes.run(module, modules);
}

StatusOr<std::string> GenerateCode(llvm::Module& module, llvm::TargetMachine& machine, FileKind kind) {
  StoreOneLanePlainly(module);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  std::optional<BasicRegisterAllocation> basic;
  if (HasLargeFunction(module)) {
    basic.emplace();
  }
  llvm::TargetLibraryInfoImpl library(module.getTargetTriple());
  library.disableAllFunctions();
  passes.add(new llvm::TargetLibraryInfoWrapperPass(library));
  if (machine.addPassesToEmitFile(
          passes, stream, nullptr,
          kind == FileKind::kObject ? llvm::CodeGenFileType::ObjectFile : llvm::CodeGenFileType::AssemblyFile,
          /*DisableVerify=*/true)) {
    return Internal("LLVM cannot emit this kind of file.");
  }
  passes.run(module);
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace hpvm::cpu
