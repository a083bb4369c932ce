// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "llvm/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"

#include "compiler/back/llvm/emit/emitter.h"
#include "compiler/ir/cpu_abi.h"
#include "compiler/ir/walk.h"

namespace hpvm::cpu {
namespace {

// Finds the functions that the entry can reach by direct calls or by references of a called type.
std::vector<bool> Reachable(const ir::Module& module) {
  std::vector<bool> reached(module.functions.size(), false);
  std::vector<uint32_t> work;
  auto reach = [&](ir::FunctionId id) {
    if (id.valid() && !reached[id.index]) {
      reached[id.index] = true;
      work.push_back(id.index);
    }
  };
  std::vector<bool> called_types(module.reference_types.size(), false);
  reach(module.entry);
  while (!work.empty()) {
    const ir::Function& function = module.functions[work.back()];
    work.pop_back();
    ir::ForEachOp(function, [&](ir::OpId id) {
      const ir::Op& op = function.op(id);
      if (op.code == ir::Opcode::kCall) {
        reach(ir::FunctionId(static_cast<uint32_t>(op.imm)));
      } else if (op.code == ir::Opcode::kCallRef && !called_types[op.imm]) {
        called_types[op.imm] = true;
        for (const ir::Reference& reference : module.references) {
          if (reference.type == op.imm) {
            reach(reference.function);
          }
        }
      }
    });
  }
  return reached;
}

// Most kernels need few of the helpers, and LLVM would optimise all of them before removing any.
void RemoveUnused(llvm::Module& module) {
  for (bool removed = true; removed;) {
    removed = false;
    for (llvm::Function& function : llvm::make_early_inc_range(module)) {
      if (function.use_empty() && function.hasLocalLinkage()) {
        function.eraseFromParent();
        removed = true;
      }
    }
  }
}

void MakeTags(ModuleEmitter& m) {
  llvm::MDBuilder builder(m.context());
  llvm::MDNode* root = builder.createTBAARoot("hpvm");
  llvm::MDNode* kernel = builder.createTBAAScalarTypeNode("kernel memory", root);
  llvm::MDNode* context = builder.createTBAAScalarTypeNode("context", root);
  m.kernel_tag = builder.createTBAAStructTagNode(kernel, kernel, 0);
  m.context_tag = builder.createTBAAStructTagNode(context, context, 0);
}

// Up to this number of globals are compared after each instance, so that a kernel that moves its stack pointer down
// and up again need not be restored.
constexpr size_t kComparedGlobalsMax = 8;

// Records effects of the reached functions on which the emitted code depends.
void NoteEffects(ModuleEmitter& m, const ir::Function& function) {
  ir::ForEachOp(function, [&](ir::OpId id) {
    const ir::Op& op = function.op(id);
    m.has_grow = m.has_grow || op.code == ir::Opcode::kMemoryGrow;
    if (op.code == ir::Opcode::kGlobalSet) {
      m.written_globals.insert(op.imm);
    }
    m.writes_state =
        m.writes_state || (op.space == ir::Space::kState && (ir::Info(op.code).effects & ir::kWrites) != 0);
  });
}

// The compiler chooses the vector width: LLVM would split vectors of 512 bits to keep up the clock of some processors.
void SetProcessor(llvm::Function& function, Machine::Kind kind) {
  if (kind == Machine::Kind::kX86V4) {
    function.addFnAttr("prefer-vector-width", "512");
    function.addFnAttr("min-legal-vector-width", "512");
    function.addFnAttr("tune-cpu", "znver4");
  } else if (kind == Machine::Kind::kX86V3) {
    function.addFnAttr("tune-cpu", "haswell");  // Considers gathers profitable.
  }
}

}  // namespace

void ModuleEmitter::ExchangeCode(ModuleEmitter& other) {
  std::swap(module, other.module);
  std::swap(functions, other.functions);
  std::swap(reference_callers, other.reference_callers);
  std::swap(host_callers, other.host_callers);
  std::swap(printers, other.printers);
  std::swap(segments, other.segments);
  std::swap(has_grow, other.has_grow);
  std::swap(writes_state, other.writes_state);
  std::swap(written_globals, other.written_globals);
  std::swap(marks_globals, other.marks_globals);
  std::swap(group_value_bytes, other.group_value_bytes);
  std::swap(cut_from, other.cut_from);
  std::swap(cut_functions, other.cut_functions);
  std::swap(kernel_tag, other.kernel_tag);
  std::swap(context_tag, other.context_tag);
}

llvm::Type* ModuleEmitter::TypeOf(ir::Type type) const { return cpu::TypeOf(type, context()); }

llvm::Type* ModuleEmitter::ResultOf(const ir::FunctionType& type) const {
  llvm::Type* status = llvm::Type::getInt32Ty(context());
  if (type.results.empty()) {
    return status;
  }
  std::vector<llvm::Type*> fields = {status};
  for (ir::Type result : type.results) {
    fields.push_back(TypeOf(result));
  }
  return llvm::StructType::get(context(), fields);
}

llvm::Function* ModuleEmitter::Helper(const char* name) const {
  llvm::Function* helper = module->getFunction(name);
  HPVMD_CHECK(helper != nullptr);
  return helper;
}

llvm::Function* ModuleEmitter::Declare(const ir::FunctionType& type, const std::string& name) {
  llvm::Type* i64 = llvm::Type::getInt64Ty(context());
  llvm::Type* pointer = llvm::PointerType::get(context(), 0);
  std::vector<llvm::Type*> params = {pointer, pointer, i64, i64, i64};
  for (ir::Type param : type.params) {
    params.push_back(TypeOf(param));
  }
  llvm::Function* function = llvm::Function::Create(llvm::FunctionType::get(ResultOf(type), params, false),
                                                    llvm::GlobalValue::InternalLinkage, name, module.get());
  function->setCallingConv(llvm::CallingConv::Fast);
  SetAttributes(function);
  if (!source.params.empty()) {
    uint64_t bytes = source.params.size() * sizeof(ir::CpuArgument);
    function->addParamAttr(1, llvm::Attribute::getWithDereferenceableBytes(context(), bytes));
    function->addParamAttr(1, llvm::Attribute::getWithAlignment(context(), llvm::Align(alignof(ir::CpuArgument))));
  }
  return function;
}

void ModuleEmitter::SetAttributes(llvm::Function* function) const {
  function->addFnAttr(llvm::Attribute::NoUnwind);
  function->addFnAttr("no-builtins");
  // Recursion must not become a loop, which would never reach the stack limit.
  function->addFnAttr("disable-tail-calls", "true");
  function->addFnAttr("probe-stack", "inline-asm");
  function->addParamAttr(0, llvm::Attribute::getWithDereferenceableBytes(context(), sizeof(ir::CpuContext)));
  function->addParamAttr(0, llvm::Attribute::getWithAlignment(context(), llvm::Align(8)));
  function->addParamAttr(0, llvm::Attribute::NoUndef);
}

llvm::FastMathFlags ModuleEmitter::FastMathOf(uint32_t function) const {
  llvm::FastMathFlags flags;
  if (!machine.fast_math || source.functions[function].fast_math == ir::FastMath::kNone) {
    return flags;
  }
  flags.setAllowContract(true);
  if (source.functions[function].fast_math == ir::FastMath::kAll) {
    flags.setAllowReassoc();
    flags.setAllowReciprocal();
    flags.setNoSignedZeros();
    flags.setApproxFunc();
  }
  return flags;  // NaNs and infinities keep their meaning.
}

llvm::Value* ModuleEmitter::StackPointer(llvm::IRBuilder<>& b) const {
  llvm::Metadata* name = llvm::MDString::get(context(), machine.kind == Machine::Kind::kAarch64 ? "sp" : "rsp");
  llvm::Value* where = llvm::MetadataAsValue::get(context(), llvm::MDNode::get(context(), {name}));
  return b.CreateIntrinsic(llvm::Intrinsic::read_register, {b.getInt64Ty()}, {where});
}

llvm::Value* ModuleEmitter::IsOnStack(llvm::IRBuilder<>& b, const ir::Op& op, llvm::Value* address) const {
  llvm::Type* type = address->getType();
  llvm::Value* from = b.CreateSub(address, llvm::ConstantInt::get(type, source.stack_frame->lowest(op.width)));
  return b.CreateICmpULT(from, llvm::ConstantInt::get(type, source.stack_frame->places(op.width)));
}

Status EmitFunctions(ModuleEmitter& m, llvm::LLVMContext& context) {
  const ir::Module& source = m.source;
  HPVMD_ASSIGN_OR_RETURN(m.module, ParseHelpers(context));
  MakeTags(m);
  std::vector<bool> reached = Reachable(source);
  m.functions.resize(source.functions.size(), nullptr);
  m.reference_callers.resize(source.reference_types.size(), nullptr);
  m.host_callers.resize(source.reference_types.size(), nullptr);
  m.segments.resize(source.passive_segments.size(), nullptr);
  m.has_grow = source.is_linked;  // Other modules may grow the memory.
  for (size_t i = 0; i < source.functions.size(); ++i) {
    if (reached[i]) {
      m.functions[i] = m.Declare(source.functions[i].type, "f" + std::to_string(i));
      NoteEffects(m, source.functions[i]);
    }
  }
  m.marks_globals = m.written_globals.size() > kComparedGlobalsMax;
  for (size_t i = 0; i < source.functions.size(); ++i) {
    if (reached[i]) {
      FunctionEmitter function(m, static_cast<uint32_t>(i));
      HPVMD_RETURN_IF_ERROR(function.Emit());
    }
  }
  EmitEntry(m, kEntryName, m.functions[source.entry.index]);
  return absl::OkStatus();
}

Status FinishModule(ModuleEmitter& m) {
  RemoveUnused(*m.module);
  for (llvm::Function& function : *m.module) {
    if (!function.isDeclaration()) {
      SetProcessor(function, m.machine.kind);
    }
  }
  std::string fault;
  llvm::raw_string_ostream stream(fault);
  if (llvm::verifyModule(*m.module, &stream)) {
    return Internal("The back end made malformed LLVM IR: " + fault.substr(0, 2000));
  }
  return absl::OkStatus();
}

llvm::Value* ContextFields::Address(uint64_t offset) {
  return b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), context_, offset);
}

llvm::Value* ContextFields::Load(llvm::Type* type, uint64_t offset) {
  llvm::LoadInst* load = b_.CreateLoad(type, Address(offset));
  load->setMetadata(llvm::LLVMContext::MD_tbaa, m_.context_tag);
  return load;
}

llvm::Value* ContextFields::LoadInvariant(llvm::Type* type, uint64_t offset) {
  llvm::LoadInst* load = b_.CreateLoad(type, Address(offset));
  load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(m_.context(), {}));
  return load;
}

void ContextFields::Store(llvm::Value* value, uint64_t offset) {
  b_.CreateStore(value, Address(offset))->setMetadata(llvm::LLVMContext::MD_tbaa, m_.context_tag);
}

llvm::Value* ContextFields::LoadArguments() {
  auto* load = llvm::cast<llvm::LoadInst>(LoadInvariant(b_.getPtrTy(), offsetof(ir::CpuContext, arguments)));
  auto note = [&](unsigned kind, uint64_t value) {
    load->setMetadata(kind, llvm::MDNode::get(m_.context(), {llvm::ConstantAsMetadata::get(b_.getInt64(value))}));
  };
  if (!m_.source.params.empty()) {
    note(llvm::LLVMContext::MD_dereferenceable, m_.source.params.size() * sizeof(ir::CpuArgument));
    note(llvm::LLVMContext::MD_align, alignof(ir::CpuArgument));
  }
  arguments_ = load;
  return load;
}

llvm::Value* ContextFields::LoadArgument(llvm::Type* type, uint32_t param, uint64_t offset) {
  llvm::Value* address =
      b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), arguments_, param * sizeof(ir::CpuArgument) + offset);
  llvm::LoadInst* load = b_.CreateLoad(type, address);
  load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(m_.context(), {}));
  return load;
}

llvm::Value* ContextFields::IsStopped() {
  llvm::Value* stop = LoadInvariant(b_.getPtrTy(), offsetof(ir::CpuContext, stop));
  llvm::LoadInst* word = b_.CreateLoad(b_.getInt32Ty(), stop);
  word->setAtomic(llvm::AtomicOrdering::Monotonic);
  word->setAlignment(llvm::Align(4));
  word->setMetadata(llvm::LLVMContext::MD_tbaa, m_.context_tag);
  return b_.CreateICmpNE(word, b_.getInt32(0));
}

llvm::Value* ContextFields::BufferSize(llvm::Value* param) {
  auto like = [&](llvm::Value* scalar) {
    auto* vector = llvm::dyn_cast<llvm::VectorType>(param->getType());
    return vector != nullptr ? b_.CreateVectorSplat(vector->getElementCount(), scalar) : scalar;
  };
  llvm::Value* result = like(b_.getInt64(0));
  auto* constant = llvm::dyn_cast<llvm::ConstantInt>(param);
  for (uint32_t k = 0; k < m_.source.params.size(); ++k) {
    if (!m_.source.params[k].is_buffer || (constant != nullptr && constant->getZExtValue() != k)) {
      continue;
    }
    llvm::Value* bytes = like(LoadArgument(b_.getInt64Ty(), k, offsetof(CpuArgument, bytes)));
    result = constant != nullptr ? bytes : b_.CreateSelect(b_.CreateICmpEQ(param, like(b_.getInt32(k))), bytes, result);
  }
  return result;
}

llvm::Value* ContextFields::LacksStack(const ir::Function& function) {
  if (std::ranges::none_of(function.ops,
                           [](const ir::Op& op) { return ir::Info(op.code).family == ir::Family::kCall; })) {
    return nullptr;
  }
  llvm::Value* stack = m_.StackPointer(b_);
  return b_.CreateICmpULT(stack, LoadInvariant(b_.getInt64Ty(), offsetof(CpuContext, stack_limit)));
}

}  // namespace hpvm::cpu
