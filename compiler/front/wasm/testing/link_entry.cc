// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/testing/link_entry.h"

#include <array>
#include <vector>

#include "compiler/front/wasm/lower/state_code.h"
#include "compiler/front/wasm/testing/link.h"

namespace hpvm::wasm {
namespace {

using ir::Opcode;
using ir::TrapCode;
using ir::Type;
using ir::ValueId;

constexpr uint32_t kSlotBytes = 8;

class EntryCode {
 public:
  EntryCode(LowerContext& context, ir::Function& out)
      : context_(context), module_(context.module), builder_(out), code_(context.table_functions, out, builder_) {}

  // Applies the active segments and runs the start function.
  void Instantiate() {
    builder_.BeginBody();
    CopyGlobals();
    for (size_t i = 0; i < module_.elems.size(); ++i) {
      if (module_.elems[i].mode == SegmentMode::kActive) {
        ApplyElems(module_.elems[i], context_.layout.elems[i]);
      }
    }
    for (size_t i = 0; i < module_.data.size(); ++i) {
      if (module_.data[i].mode == SegmentMode::kActive) {
        ApplyData(module_.data[i], context_.layout.data[i]);
      }
    }
    if (module_.start) {
      Call(*module_.start, {});
    }
    builder_.Return({});
  }

  void Select(ir::FunctionId instantiate) {
    const ValueId selector = builder_.BeginBody()[0];
    const auto count = static_cast<uint32_t>(module_.functions.size()) + 1;
    code_.TrapUnless(code_.Binary(Opcode::kLtU, selector, code_.Const(count)), TrapCode::kUndefinedElement, 0);
    Search(selector, 0, count, instantiate);
  }

 private:
  void CopyGlobals() {
    for (size_t i = 0; i < module_.globals.size(); ++i) {
      const Global& global = module_.globals[i];
      if (global.import || global.init.kind != Constant::Kind::kGlobal) {
        continue;
      }
      for (uint32_t half : {0, 8}) {
        code_.Store(context_.layout.globals[i] + half,
                    code_.Load(context_.layout.globals[global.init.index] + half, Type::kI64));
      }
    }
  }

  ValueId Value(const Constant& constant, Type type) {
    return constant.kind == Constant::Kind::kGlobal ? code_.Load(context_.layout.globals[constant.index], type)
                                                    : builder_.Const(type, constant.low);
  }

  void ApplyElems(const ElemSegment& segment, const TableLayout& source) {
    const TableLayout& table = context_.layout.tables[segment.table];
    const auto offset_source = static_cast<uint32_t>(segment.source);
    ValueId at;
    if (module_.tables[segment.table].limits.is_64) {
      const ValueId wide = Value(segment.offset, Type::kI64);
      const ValueId limit = builder_.Const(Type::kI64, uint64_t{1} << 32);
      code_.TrapUnless(code_.Binary(Opcode::kLtU, wide, limit, Type::kI64), TrapCode::kTableOutOfBounds, offset_source);
      at = code_.Convert(Opcode::kWrap, wide, Type::kI64, Type::kI32);
    } else {
      at = Value(segment.offset, Type::kI32);
    }
    const ValueId count = code_.Const(segment.functions.size());
    code_.CheckRange(at, count, code_.SizeOf(table), TrapCode::kTableOutOfBounds, offset_source);
    code_.Copy(table, at, source, code_.Const(0), count);
    code_.Store(source.offset, code_.Const(0));
  }

  void ApplyData(const DataSegment& segment, uint32_t index) {
    ir::Op op{.code = Opcode::kMemoryInit};
    op.imm = index;
    op.source = static_cast<uint32_t>(segment.source);
    const ValueId at = Value(segment.offset, module_.address_type());
    builder_.Append(op, std::array{at, code_.Const(0), code_.Const(segment.bytes.size())}, {});
  }

  std::vector<ValueId> Call(uint32_t index, std::vector<ValueId> operands) {
    const Function& function = module_.functions[index];
    ir::Op op{.code = Opcode::kCall};
    if (function.import) {
      op.code = Opcode::kCallRef;
      op.imm = context_.types[function.signature];
      operands.insert(operands.begin(), code_.Const(context_.layout.references[index]));
    } else {
      op.imm = context_.ids[index].index;
    }
    return builder_.Results(builder_.Append(op, operands, module_.type_of(function).results));
  }

  // Every path ends in a return.
  void Search(ValueId selector, uint32_t begin, uint32_t end, ir::FunctionId instantiate) {
    if (end - begin > 1) {
      const uint32_t middle = begin + (end - begin) / 2;
      builder_.BeginIf(code_.Binary(Opcode::kLtU, selector, code_.Const(middle)), {});
      Search(selector, begin, middle, instantiate);
      builder_.Else();
      Search(selector, middle, end, instantiate);
      builder_.End();
      builder_.Trap(TrapCode::kUnreachable);
      return;
    }
    if (begin == 0) {
      ir::Op op{.code = Opcode::kCall};
      op.imm = instantiate.index;
      builder_.Append(op, {}, {});
    } else {
      Invoke(begin - 1);
    }
    builder_.Return({});
  }

  void Invoke(uint32_t index) {
    const ir::FunctionType& type = module_.type_of(module_.functions[index]);
    std::vector<ValueId> arguments;
    for (const Type param : type.params) {
      const auto slot = static_cast<uint32_t>(arguments.size());
      arguments.push_back(code_.Load(kCallArea + uint64_t{kSlotBytes} * slot, param));
    }
    uint64_t at = kCallArea;
    for (const ValueId result : Call(index, std::move(arguments))) {
      code_.Store(at, result);
      at += kSlotBytes;
    }
  }

  LowerContext& context_;
  const Module& module_;
  ir::Builder builder_;
  StateCode code_;
};

}  // namespace

void AppendLinkedEntry(LowerContext& context, ir::Module& out) {
  ir::Function instantiate;
  instantiate.name = "(instantiate)";
  EntryCode(context, instantiate).Instantiate();
  context.table_functions.AppendTo(out);
  const ir::FunctionId instantiate_id(out.functions.size());
  out.functions.push_back(std::move(instantiate));
  ir::Function entry;
  entry.name = "(entry)";
  entry.type.params = {Type::kI32};
  EntryCode(context, entry).Select(instantiate_id);
  out.entry = ir::FunctionId(out.functions.size());
  out.functions.push_back(std::move(entry));
  out.params.push_back({.name = "selector", .is_buffer = false, .type = Type::kI32});
}

}  // namespace hpvm::wasm
