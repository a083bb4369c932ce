// SPDX-License-Identifier: Apache-2.0
#include <llvm/ADT/SmallString.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/Demangle/Demangle.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Linker/Linker.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CodeGen.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/IPO/Internalize.h>

#include <memory>

#include "compiler/back/kernel_il/address_spaces.h"
#include "compiler/back/kernel_il/kernel_il.h"
#include "compiler/back/kernel_il/libclc.h"

namespace hpvm::kernel_il {
namespace {

constexpr char kTriple[] = "nvptx64-unknown-nvcl";

// Complaints collects LLVM's error diagnostics instead of ending the process.
struct Complaints : llvm::DiagnosticHandler {
  explicit Complaints(std::string* text) : text(text) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() == llvm::DS_Error && text->empty()) {
      llvm::raw_string_ostream out(*text);
      llvm::DiagnosticPrinterRawOStream printer(out);
      info.print(printer);
    }
    return true;
  }
  std::string* text;
};

std::string TextOf(llvm::Error error) { return llvm::toString(std::move(error)); }

StatusOr<std::unique_ptr<llvm::TargetMachine>> CreateMachine(const std::string& arch) {
  std::string error;
  const llvm::Triple triple(kTriple);
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (target == nullptr) {
    return Internal("LLVM cannot write PTX: " + error + ".");
  }
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(triple, arch, "", options, llvm::Reloc::PIC_, {}, llvm::CodeGenOptLevel::Default));
  if (machine == nullptr) {
    return Internal("LLVM cannot write PTX for \"" + arch + "\".");
  }
  return machine;
}

// Adapts the translator's kernels to LLVM's back end: sets its calling conventions instead of SPIR's.
void Adapt(llvm::Module& module, const llvm::TargetMachine& machine, const PtxOptions& options) {
  module.setTargetTriple(machine.getTargetTriple());
  module.setDataLayout(machine.createDataLayout());
  for (llvm::Function& function : module) {
    const bool is_kernel = function.getCallingConv() == llvm::CallingConv::SPIR_KERNEL;
    function.setCallingConv(is_kernel ? llvm::CallingConv::PTX_Kernel : llvm::CallingConv::C);
    function.clearMetadata();
    if (is_kernel && options.group[0] != 0) {
      // LLVM allocates registers so that such a group fits.
      function.addFnAttr("nvvm.reqntid", std::to_string(options.group[0]) + "," + std::to_string(options.group[1]) +
                                             "," + std::to_string(options.group[2]));
    }
    for (llvm::BasicBlock& block : function) {
      for (llvm::Instruction& instruction : block) {
        if (auto* call = llvm::dyn_cast<llvm::CallBase>(&instruction)) {
          call->setCallingConv(llvm::CallingConv::C);
        }
      }
    }
  }
  while (!module.named_metadata_empty()) {
    module.eraseNamedMetadata(&*module.named_metadata_begin());
  }
}

// LLVM cannot emit the intrinsics that libclc's native versions of these functions use on this processor; the full
// functions are accurate enough for both.
void ReplaceNative(llvm::Module& module) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"_Z10native_exp", "_Z3exp"},
                                                                      {"_Z10native_log", "_Z3log"},
                                                                      {"_Z11native_log2", "_Z4log2"},
                                                                      {"_Z12native_log10", "_Z5log10"}};
  for (llvm::Function& function : llvm::make_early_inc_range(module)) {
    const std::string name = function.getName().str();
    for (const auto& [native, full] : kNames) {
      if (!function.isDeclaration() || !name.starts_with(native)) {
        continue;
      }
      const std::string wanted = std::string(full) + name.substr(native.size());
      if (llvm::Function* known = module.getFunction(wanted)) {
        function.replaceAllUsesWith(known);
        function.eraseFromParent();
      } else {
        function.setName(wanted);
      }
      break;
    }
  }
}

Status LinkLibrary(llvm::Module& module) {
  llvm::LLVMContext& context = module.getContext();
  auto library = llvm::getLazyBitcodeModule(llvm::MemoryBufferRef(LibclcBitcode(), "libclc"), context);
  if (!library) {
    return Internal("libclc cannot be read: " + TextOf(library.takeError()) + ".");
  }
  (*library)->setTargetTriple(module.getTargetTriple());
  (*library)->setDataLayout(module.getDataLayout());
  if (llvm::Linker::linkModules(module, std::move(*library), llvm::Linker::LinkOnlyNeeded)) {
    return InvalidArgument("The module's functions clash with OpenCL's built-in functions; rename them.");
  }
  llvm::SMDiagnostic error;
  std::unique_ptr<llvm::Module> rest =
      llvm::parseAssembly(llvm::MemoryBufferRef(LibclcRest(), "libclc-rest"), error, context);
  if (rest == nullptr) {
    return Internal("The library of functions that libclc lacks cannot be read: " + error.getMessage().str() + ".");
  }
  rest->setTargetTriple(module.getTargetTriple());
  rest->setDataLayout(module.getDataLayout());
  if (llvm::Linker::linkModules(module, std::move(rest), llvm::Linker::LinkOnlyNeeded)) {
    return InvalidArgument("The module's functions clash with OpenCL's built-in functions; rename them.");
  }
  return absl::OkStatus();
}

// PTX is not linked: without this check an undefined function would only show when the driver loads the program.
Status CheckResolved(const llvm::Module& module) {
  std::string names;
  for (const llvm::Function& function : module) {
    if (function.isDeclaration() && !function.isIntrinsic() && !function.use_empty()) {
      names += (names.empty() ? "" : ", ") + llvm::demangle(function.getName());
    }
  }
  return names.empty() ? absl::OkStatus()
                       : InvalidArgument("The kernel calls built-in functions that this device does not have: " +
                                         names.substr(0, 1000) + ".");
}

void Optimise(llvm::Module& module, llvm::TargetMachine& machine, const std::string& entry) {
  llvm::internalizeModule(module, [&](const llvm::GlobalValue& value) { return value.getName() == entry; });
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager calls;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(calls);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, calls, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
}

StatusOr<std::string> WritePtx(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream out(text);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, out, nullptr, llvm::CodeGenFileType::AssemblyFile)) {
    return Internal("LLVM cannot write PTX.");
  }
  passes.run(module);
  return std::string(text);
}

}  // namespace

StatusOr<std::string> SpirvToPtx(std::span<const uint8_t> spirv, const PtxOptions& options) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  const std::vector<uint8_t> global = ConstantsToGlobal(spirv);
  HPVMD_ASSIGN_OR_RETURN(const std::vector<uint8_t> bitcode, SpirvToBitcode(global));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<llvm::TargetMachine> machine, CreateMachine(options.arch));
  std::string complaint;
  llvm::LLVMContext context;
  context.setDiagnosticHandler(std::make_unique<Complaints>(&complaint), true);
  auto module = llvm::parseBitcodeFile(
      llvm::MemoryBufferRef({reinterpret_cast<const char*>(bitcode.data()), bitcode.size()}, "module"), context);
  if (!module) {
    return InvalidArgument("The translated module cannot be read: " + TextOf(module.takeError()) + ".");
  }
  Adapt(**module, *machine, options);
  ReplaceNative(**module);
  HPVMD_RETURN_IF_ERROR(LinkLibrary(**module));
  Optimise(**module, *machine, options.entry);
  HPVMD_RETURN_IF_ERROR(CheckResolved(**module));
  if (llvm::verifyModule(**module)) {
    return Internal("The translated module is not valid LLVM IR.");
  }
  StatusOr<std::string> text = WritePtx(**module, *machine);
  if (!complaint.empty()) {
    return InvalidArgument("The kernel cannot be written as PTX: " + complaint + ".");
  }
  return text;
}

}  // namespace hpvm::kernel_il
