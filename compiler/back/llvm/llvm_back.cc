// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/llvm/llvm_back.h"

#include <algorithm>

#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

#include "base/clock.h"
#include "compiler/back/llvm/codegen.h"
#include "compiler/back/llvm/emit/emitter.h"
#include "compiler/back/llvm/variants.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {
namespace {

// An optimised module with the context that owns it.
struct Compiled {
  std::unique_ptr<llvm::LLVMContext> context = std::make_unique<llvm::LLVMContext>();
  std::unique_ptr<llvm::Module> module;
  std::vector<EmittedVariant> variants;
};

// Compiler compiles a kernel, and again with other variants when the frames of some are too large.
class Compiler {
 public:
  static StatusOr<Compiler> Create(const ir::Module& module, const CpuTarget& target, const CpuOptions& options) {
    Compiler compiler(module);
    compiler.options_ = options;
    HPVMD_ASSIGN_OR_RETURN(compiler.machine_, MachineOf(target));
    compiler.machine_.fast_math = options.fast_math;
    compiler.machine_.audits_proofs = options.audits_proofs;
    HPVMD_ASSIGN_OR_RETURN(compiler.target_, CreateTargetMachine(target));
    compiler.choice_ = ChooseVariants(module, compiler.machine_, options, &compiler.chosen_);
    return compiler;
  }
  StatusOr<Compiled> ToLlvm() {
    emitted_.remarks.clear();
    Compiled compiled;
    ModuleEmitter m(module_, machine_);
    HPVMD_RETURN_IF_ERROR(EmitFunctions(m, *compiled.context));
    compiled.variants = EmitVariants(m, choice_, &emitted_);
    HPVMD_RETURN_IF_ERROR(FinishModule(m));
    compiled.module = std::move(m.module);
    compiled.module->setTargetTriple(target_->getTargetTriple());
    compiled.module->setDataLayout(target_->createDataLayout());
    compiled.module->setPICLevel(llvm::PICLevel::SmallPIC);
    Optimise(*compiled.module, *target_);
    return compiled;
  }
  // Returns the object; `variants` receives the variants in it.
  StatusOr<std::string> ToObject(std::vector<EmittedVariant>* variants) {
    while (true) {
      HPVMD_ASSIGN_OR_RETURN(Compiled compiled, ToLlvm());
      HPVMD_ASSIGN_OR_RETURN(std::string object, GenerateCode(*compiled.module, *target_, FileKind::kObject));
      HPVMD_ASSIGN_OR_RETURN(std::vector<Frame> large, LargeFrames(object));
      if (large.empty()) {
        *variants = std::move(compiled.variants);
        return object;
      }
      // Each round removes or shrinks a shape, so the loop ends.
      if (!Shrink(compiled.variants, large.front())) {
        return ResourceExhausted("A function's stack frame (" + std::to_string(large.front().bytes) +
                                 " bytes) is larger than the limit (" + std::to_string(ir::kCpuFrameBytesMax) + ").");
      }
    }
  }
  llvm::TargetMachine& target() { return *target_; }
  const ir::BoundsProgram& bounds() const { return choice_.bounds; }
  // Adds the remarks on the last module that was made.
  void Report() {
    if (options_.report == nullptr) {
      return;
    }
    for (const KernelReport* report : {&chosen_, &emitted_}) {
      options_.report->remarks.insert(options_.report->remarks.end(), report->remarks.begin(), report->remarks.end());
    }
  }

 private:
  explicit Compiler(const ir::Module& module) : module_(module) {}
  // Returns true if it replaced a variant.
  bool Shrink(const std::vector<EmittedVariant>& variants, const Frame& frame) {
    bool found = false;
    // Goes backwards, so that the choice's indices of earlier variants remain valid.
    for (auto variant = variants.rbegin(); variant != variants.rend(); ++variant) {
      const std::vector<std::string>& functions = variant->functions;
      const bool uses_it =
          variant->entry == frame.function || std::ranges::find(functions, frame.function) != functions.end();
      if (uses_it && variant->variant.unit != CpuVariant::Unit::kInstance) {
        chosen_.Add(KernelRemark::Kind::kRefused, 0,
                    "The stack frame of \"" + frame.function + "\" has " + std::to_string(frame.bytes) +
                        " bytes, more than the limit (" + std::to_string(ir::kCpuFrameBytesMax) + ").");
        ReplaceBySmaller(choice_, *variant);
        return true;
      }
      found = found || uses_it;
    }
    return found;
  }

  const ir::Module& module_;
  CpuOptions options_;
  Machine machine_;
  std::unique_ptr<llvm::TargetMachine> target_;
  VariantChoice choice_;
  KernelReport chosen_, emitted_;
};

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

StatusOr<Artifact> EmitCpuImage(const ir::Module& module, const CpuTarget& target, const CpuOptions& options) {
  Time begin = RealClock().Now();
  if (target.level == "aarch64") {
    return Unimplemented("Images are made for x86-64 only; for aarch64 ask for a listing.");
  }
  HPVMD_ASSIGN_OR_RETURN(Compiler compiler, Compiler::Create(module, target, options));
  std::vector<EmittedVariant> variants;
  HPVMD_ASSIGN_OR_RETURN(std::string object, compiler.ToObject(&variants));
  std::vector<std::string> entries = {kEntryName};
  for (const EmittedVariant& variant : variants) {
    entries.push_back(variant.entry);
  }
  HPVMD_ASSIGN_OR_RETURN(LinkedImage image, LinkImage(object, entries));
  Artifact artifact = DescribeModule(module);
  artifact.kind = ArtifactKind::kCpuImage;
  artifact.target = target.level;
  artifact.fast_math = options.fast_math;
  artifact.code = std::move(image.bytes);
  artifact.entry_offset = image.entry_offsets[0];
  bool needs_proof = false;
  for (size_t i = 0; i < variants.size(); ++i) {
    artifact.variants.push_back(variants[i].variant);
    artifact.variants.back().entry_offset = image.entry_offsets[i + 1];
    needs_proof = needs_proof || variants[i].variant.needs_proof;
  }
  if (needs_proof) {
    artifact.bounds = compiler.bounds();
  }
  compiler.Report();
  artifact.emit_ns = static_cast<uint64_t>((RealClock().Now() - begin).count());
  return artifact;
}

StatusOr<std::string> EmitCpuText(const ir::Module& module, const CpuTarget& target, CpuText text,
                                  const CpuOptions& options) {
  HPVMD_ASSIGN_OR_RETURN(Compiler compiler, Compiler::Create(module, target, options));
  HPVMD_ASSIGN_OR_RETURN(Compiled compiled, compiler.ToLlvm());
  compiler.Report();
  if (text == CpuText::kAssembly) {
    return GenerateCode(*compiled.module, compiler.target(), FileKind::kAssembly);
  }
  std::string out;
  llvm::raw_string_ostream stream(out);
  compiled.module->print(stream, nullptr);
  return out;
}

}  // namespace hpvm::cpu
