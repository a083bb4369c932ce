// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/llvm/llvm_back.h"

#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

#include "base/clock.h"
#include "compiler/back/llvm/codegen.h"
#include "compiler/back/llvm/emitter.h"

namespace hpvm {
namespace {

// An optimised module with what it lives in.
struct Compiled {
  std::unique_ptr<llvm::LLVMContext> context = std::make_unique<llvm::LLVMContext>();
  std::unique_ptr<llvm::TargetMachine> machine;
  std::unique_ptr<llvm::Module> module;
};

StatusOr<Compiled> CompileToLlvm(const ir::Module& module, const CpuTarget& target) {
  Compiled compiled;
  HPVMD_ASSIGN_OR_RETURN(compiled.machine, cpu::CreateTargetMachine(target));
  HPVMD_ASSIGN_OR_RETURN(compiled.module, cpu::EmitModule(module, *compiled.context));
  compiled.module->setTargetTriple(compiled.machine->getTargetTriple());
  compiled.module->setDataLayout(compiled.machine->createDataLayout());
  compiled.module->setPICLevel(llvm::PICLevel::SmallPIC);
  cpu::Optimise(*compiled.module, *compiled.machine);
  return compiled;
}

}  // namespace

StatusOr<CpuTarget> HostCpuTarget() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4")) {
    return CpuTarget{"x86-64-v4"};
  }
  if (__builtin_cpu_supports("x86-64-v3")) {
    return CpuTarget{"x86-64-v3"};
  }
  if (__builtin_cpu_supports("x86-64-v2")) {
    return CpuTarget{"x86-64-v2"};
  }
  return FailedPrecondition("This processor lacks the instructions of x86-64-v2, which CPU kernels need.");
}

StatusOr<Artifact> EmitCpuImage(const ir::Module& module, const CpuTarget& target, const CpuOptions&) {
  Time begin = RealClock().Now();
  HPVMD_ASSIGN_OR_RETURN(Compiled compiled, CompileToLlvm(module, target));
  HPVMD_ASSIGN_OR_RETURN(std::string object,
                         cpu::GenerateCode(*compiled.module, *compiled.machine, cpu::FileKind::kObject));
  HPVMD_ASSIGN_OR_RETURN(cpu::Image image, cpu::LinkImage(object));
  Artifact artifact = DescribeModule(module);
  artifact.kind = ArtifactKind::kCpuImage;
  artifact.target = target.level;
  artifact.code = std::move(image.bytes);
  artifact.entry_offset = image.entry_offset;
  artifact.emit_ns = static_cast<uint64_t>((RealClock().Now() - begin).count());
  return artifact;
}

StatusOr<std::string> EmitCpuText(const ir::Module& module, const CpuTarget& target, CpuText text,
                                  const CpuOptions&) {
  HPVMD_ASSIGN_OR_RETURN(Compiled compiled, CompileToLlvm(module, target));
  if (text == CpuText::kAssembly) {
    return cpu::GenerateCode(*compiled.module, *compiled.machine, cpu::FileKind::kAssembly);
  }
  std::string out;
  llvm::raw_string_ostream stream(out);
  compiled.module->print(stream, nullptr);
  return out;
}

}  // namespace hpvm
