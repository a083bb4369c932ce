// SPDX-License-Identifier: Apache-2.0
// Receives wabt's reading of a module: every callback first calls wabt's validator, then records. wabt's ReadBinaryIr
// is not used because it aborts on some malformed modules.
//
// wabt calls a single object. The callbacks are therefore spread over three classes that inherit from each other;
// they store their results in Reading and CodeRecorder.
#ifndef HPVMD_COMPILER_FRONT_WASM_READ_DELEGATE_H_
#define HPVMD_COMPILER_FRONT_WASM_READ_DELEGATE_H_

#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "wabt/binary-reader-nop.h"

#include "compiler/front/wasm/read/code_recorder.h"

namespace hpvm::wasm {

// Callbacks for memory, table and vector instructions.
class AccessCallbacks : public wabt::BinaryReaderNop {
 public:
  using Result = wabt::Result;
  using Index = wabt::Index;
  using Offset = wabt::Offset;
  using Address = wabt::Address;
  using Opcode = wabt::Opcode;

  // Borrowed.
  AccessCallbacks(Reading& reading, CodeRecorder& code) : r_(reading), code_(code) {}

  Result OnSimdLaneOpExpr(Opcode opcode, uint64_t lane) override {
    return code_.RecordSimd(validator_.OnSimdLaneOp(Here(), opcode, lane), lane, nullptr);
  }
  Result OnSimdShuffleOpExpr(Opcode opcode, v128 lanes) override {
    const SimdImmediates immediates{lanes.u64(0), lanes.u64(1)};
    return code_.RecordSimd(validator_.OnSimdShuffleOp(Here(), opcode, lanes), 0, &immediates);
  }
  Result OnSimdLoadLaneExpr(Opcode opcode, Index memory, Address align_log2, Address offset, uint64_t lane) override {
    return code_.RecordAccess(validator_.OnSimdLoadLane(Here(), opcode, At(memory), Alignment(align_log2), lane),
                              offset, lane);
  }
  Result OnSimdStoreLaneExpr(Opcode opcode, Index memory, Address align_log2, Address offset, uint64_t lane) override {
    return code_.RecordAccess(validator_.OnSimdStoreLane(Here(), opcode, At(memory), Alignment(align_log2), lane),
                              offset, lane);
  }
  Result OnLoadSplatExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override {
    return code_.RecordAccess(validator_.OnLoadSplat(Here(), opcode, At(memory), Alignment(align_log2)), offset);
  }
  Result OnLoadZeroExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override {
    return code_.RecordAccess(validator_.OnLoadZero(Here(), opcode, At(memory), Alignment(align_log2)), offset);
  }
  Result OnRefNullExpr(wabt::Type type) override {
    if (!r_.TypeOf(type, "A null reference")) {
      return Result::Error;
    }
    code_.SetConstant({});
    return code_.Record(validator_.OnRefNull(Here(), type));
  }
  Result OnRefIsNullExpr() override { return code_.Record(validator_.OnRefIsNull(Here())); }
  Result OnRefFuncExpr(Index function) override {
    code_.SetConstant({.kind = Constant::Kind::kFunction, .index = function});
    return code_.Record(validator_.OnRefFunc(Here(), At(function)), function);
  }
  Result OnTableGetExpr(Index table) override {
    return code_.RecordTable(validator_.OnTableGet(Here(), At(table)), table, table);
  }
  Result OnTableSetExpr(Index table) override {
    return code_.RecordTable(validator_.OnTableSet(Here(), At(table)), table, table);
  }
  Result OnTableSizeExpr(Index table) override {
    return code_.RecordTable(validator_.OnTableSize(Here(), At(table)), table, table);
  }
  Result OnTableGrowExpr(Index table) override {
    return code_.RecordTable(validator_.OnTableGrow(Here(), At(table)), table, table);
  }
  Result OnTableFillExpr(Index table) override {
    return code_.RecordTable(validator_.OnTableFill(Here(), At(table)), table, table);
  }
  Result OnTableCopyExpr(Index target, Index source) override {
    return code_.RecordTable(validator_.OnTableCopy(Here(), At(target), At(source)),
                             r_.IsTable64(source) ? source : target, target | uint64_t{source} << 32);
  }
  Result OnTableInitExpr(Index segment, Index table) override {
    return code_.RecordTable(validator_.OnTableInit(Here(), At(segment), At(table)), table,
                             segment | uint64_t{table} << 32);
  }
  Result OnElemDropExpr(Index segment) override {
    return code_.Record(validator_.OnElemDrop(Here(), At(segment)), segment);
  }
  Result OnLoadExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override {
    return code_.RecordAccess(validator_.OnLoad(Here(), opcode, At(memory), Alignment(align_log2)), offset);
  }
  Result OnStoreExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override {
    return code_.RecordAccess(validator_.OnStore(Here(), opcode, At(memory), Alignment(align_log2)), offset);
  }
  Result OnAtomicLoadExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override {
    return code_.RecordAccess(validator_.OnAtomicLoad(Here(), opcode, At(memory), Alignment(align_log2)), offset);
  }
  Result OnAtomicStoreExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override {
    return code_.RecordAccess(validator_.OnAtomicStore(Here(), opcode, At(memory), Alignment(align_log2)), offset);
  }
  Result OnAtomicRmwExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override {
    return code_.RecordAccess(validator_.OnAtomicRmw(Here(), opcode, At(memory), Alignment(align_log2)), offset);
  }
  Result OnAtomicRmwCmpxchgExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override {
    return code_.RecordAccess(validator_.OnAtomicRmwCmpxchg(Here(), opcode, At(memory), Alignment(align_log2)), offset);
  }
  Result OnAtomicFenceExpr(uint32_t model) override { return code_.Record(validator_.OnAtomicFence(Here(), model)); }
  Result OnMemorySizeExpr(Index memory) override { return code_.Record(validator_.OnMemorySize(Here(), At(memory))); }
  Result OnMemoryGrowExpr(Index memory) override { return code_.Record(validator_.OnMemoryGrow(Here(), At(memory))); }
  Result OnMemoryCopyExpr(Index source, Index target) override {
    return code_.Record(validator_.OnMemoryCopy(Here(), At(source), At(target)));
  }
  Result OnMemoryFillExpr(Index memory) override { return code_.Record(validator_.OnMemoryFill(Here(), At(memory))); }
  Result OnMemoryInitExpr(Index segment, Index memory) override {
    return code_.Record(validator_.OnMemoryInit(Here(), At(segment), At(memory)), segment);
  }
  Result OnDataDropExpr(Index segment) override {
    return code_.Record(validator_.OnDataDrop(Here(), At(segment)), segment);
  }
  Result OnAtomicNotifyExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override {
    return code_.RecordAccess(validator_.OnAtomicNotify(Here(), opcode, At(memory), Alignment(align_log2)), offset);
  }
  Result OnAtomicWaitExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override {
    return code_.RecordAccess(validator_.OnAtomicWait(Here(), opcode, At(memory), Alignment(align_log2)), offset);
  }

 protected:
  static uint32_t Alignment(Address align_log2) { return align_log2 < 32 ? 1u << align_log2 : ~0u; }
  wabt::Location Here() const { return r_.Here(); }
  wabt::Var At(Index index) const { return r_.At(index); }

  Reading& r_;
  CodeRecorder& code_;
  wabt::SharedValidator& validator_ = r_.validator;
};

// Calls for all other instructions, and around bodies.
class CodeCallbacks : public AccessCallbacks {
 public:
  using AccessCallbacks::AccessCallbacks;

  Result BeginFunctionBody(Index index, Offset size) override { return code_.BeginBody(index, size); }
  Result OnLocalDecl(Index, Index count, wabt::Type type) override { return code_.DeclareLocals(count, type); }
  Result EndFunctionBody(Index) override { return code_.EndBody(); }
  Result OnOpcode(Opcode opcode) override { return code_.BeginInstruction(opcode); }
  Result OnUnaryExpr(Opcode opcode) override { return code_.RecordPlain(validator_.OnUnary(Here(), opcode)); }
  Result OnBinaryExpr(Opcode opcode) override { return code_.RecordPlain(validator_.OnBinary(Here(), opcode)); }
  Result OnCompareExpr(Opcode opcode) override { return code_.RecordPlain(validator_.OnCompare(Here(), opcode)); }
  Result OnConvertExpr(Opcode opcode) override { return code_.RecordPlain(validator_.OnConvert(Here(), opcode)); }
  Result OnI32ConstExpr(uint32_t bits) override { return code_.RecordConst(wabt::Type::I32, bits); }
  Result OnI64ConstExpr(uint64_t bits) override { return code_.RecordConst(wabt::Type::I64, bits); }
  Result OnF32ConstExpr(uint32_t bits) override { return code_.RecordConst(wabt::Type::F32, bits); }
  Result OnF64ConstExpr(uint64_t bits) override { return code_.RecordConst(wabt::Type::F64, bits); }
  Result OnV128ConstExpr(v128 bits) override { return code_.RecordConst(wabt::Type::V128, bits.u64(0), bits.u64(1)); }
  Result OnTernaryExpr(Opcode opcode) override { return code_.RecordPlain(validator_.OnTernary(Here(), opcode)); }
  Result OnLocalGetExpr(Index local) override {
    return code_.RecordLocal(validator_.OnLocalGet(Here(), At(local)), local);
  }
  Result OnLocalSetExpr(Index local) override {
    return code_.RecordLocal(validator_.OnLocalSet(Here(), At(local)), local);
  }
  Result OnLocalTeeExpr(Index local) override {
    return code_.RecordLocal(validator_.OnLocalTee(Here(), At(local)), local);
  }
  Result OnGlobalGetExpr(Index global) override {
    code_.SetConstant({.kind = Constant::Kind::kGlobal, .index = global});
    return code_.Record(validator_.OnGlobalGet(Here(), At(global)), global);
  }
  Result OnGlobalSetExpr(Index global) override {
    return code_.Record(validator_.OnGlobalSet(Here(), At(global)), global);
  }
  Result OnBlockExpr(wabt::Type signature) override {
    return code_.RecordBlock(validator_.OnBlock(Here(), signature), signature);
  }
  Result OnLoopExpr(wabt::Type signature) override {
    return code_.RecordBlock(validator_.OnLoop(Here(), signature), signature);
  }
  Result OnIfExpr(wabt::Type signature) override {
    return code_.RecordBlock(validator_.OnIf(Here(), signature), signature);
  }
  Result OnElseExpr() override { return code_.Record(validator_.OnElse(Here())); }
  Result OnEndExpr() override { return code_.RecordEnd(); }
  Result OnBrExpr(Index depth) override { return code_.Record(validator_.OnBr(Here(), At(depth)), depth); }
  Result OnBrIfExpr(Index depth) override { return code_.Record(validator_.OnBrIf(Here(), At(depth)), depth); }
  Result OnBrTableExpr(Index count, Index* depths, Index default_depth) override {
    return code_.RecordBrTable(count, depths, default_depth);
  }
  Result OnReturnExpr() override { return code_.Record(validator_.OnReturn(Here())); }
  Result OnCallExpr(Index function) override {
    if (Failed(validator_.OnCall(Here(), At(function)))) {
      return Result::Error;
    }
    return code_.RecordTyped(Result::Ok, r_.module.functions[function].signature, function);
  }
  Result OnCallIndirectExpr(Index signature, Index table) override {
    // The validator does not check the table's element type.
    if (table < r_.module.tables.size() && r_.module.tables[table].type != ValueType::kFuncRef) {
      return r_.Refuse(r_.source,
                       "An indirect call goes through table " + std::to_string(table) + ", which holds no functions.");
    }
    // The validator supports only 32-bit tables.
    if (r_.IsTable64(table) && Failed(validator_.OnConvert(Here(), Opcode::I32WrapI64))) {
      return Result::Error;
    }
    const uint32_t index = kInlineSignatures + signature;
    return code_.RecordTyped(validator_.OnCallIndirect(Here(), At(signature), At(table)), index,
                             index | uint64_t{table} << 32);
  }
  Result OnDropExpr() override { return code_.Record(validator_.OnDrop(Here())); }
  Result OnSelectExpr(Index result_count, wabt::Type* result_types) override {
    return code_.Record(validator_.OnSelect(Here(), result_count, result_types));
  }
  Result OnNopExpr() override { return code_.Record(validator_.OnNop(Here())); }
  Result OnUnreachableExpr() override { return code_.Record(validator_.OnUnreachable(Here())); }
};

// Callbacks for sections and for the whole module (delegate_sections.cc).
class Delegate : public CodeCallbacks {
 public:
  // `is_64` marks tables whose flag NarrowTables cleared. `globals` is the result of ReplaceElementGlobals. Data
  // segments become spans of `bytes` at their offsets in the bytes that wabt reads.
  Delegate(Reading& reading, CodeRecorder& code, std::vector<bool> is_64,
           std::unordered_map<uint64_t, uint32_t> globals, std::span<const uint8_t> bytes);

  void OnSetState(const State* now) override {
    state = now;
    r_.state = now;
  }
  bool OnError(const wabt::Error& error) override { return r_.AddError(error); }
  Result BeginSection(Index, wabt::BinarySection section, Offset) override;
  Result EndModule() override;
  Result OnFuncType(Index index, Index param_count, wabt::Type* params, Index result_count,
                    wabt::Type* results) override;
  Result OnImportFunc(Index, std::string_view module, std::string_view name, Index, Index signature) override;
  Result OnImportTable(Index, std::string_view module, std::string_view name, Index index, wabt::Type type,
                       const wabt::Limits* entries) override;
  Result OnImportMemory(Index, std::string_view module, std::string_view name, Index index,
                        const wabt::Limits* pages) override;
  Result OnImportGlobal(Index, std::string_view module, std::string_view name, Index index, wabt::Type type,
                        bool is_mutable) override;
  Result OnImportTag(Index, std::string_view module, std::string_view name, Index, Index) override;
  Result OnFunction(Index, Index signature) override;
  Result OnTable(Index, wabt::Type type, const wabt::Limits* entries) override;
  Result OnMemory(Index, const wabt::Limits* pages) override;
  Result BeginGlobal(Index, wabt::Type type, bool is_mutable) override;
  Result BeginGlobalInitExpr(Index) override;
  Result EndGlobalInitExpr(Index) override;
  Result OnExport(Index, wabt::ExternalKind kind, Index item, std::string_view name) override;
  Result OnStartFunction(Index function) override;
  Result BeginElemSegment(Index, Index table, uint8_t flags) override;
  Result BeginElemSegmentInitExpr(Index) override;
  Result EndElemSegmentInitExpr(Index) override;
  Result OnElemSegmentElemType(Index, wabt::Type type) override;
  Result OnElemSegmentElemExpr_RefNull(Index, wabt::Type type) override;
  Result OnElemSegmentElemExpr_RefFunc(Index, Index function) override;
  Result OnDataCount(Index count) override;
  Result BeginDataSegment(Index, Index memory, uint8_t flags) override;
  Result BeginDataSegmentInitExpr(Index) override;
  Result EndDataSegmentInitExpr(Index) override;
  Result OnDataSegmentData(Index, const void* data, Address size) override;
  Result OnModuleName(std::string_view name) override;
  Result OnFunctionName(Index function, std::string_view name) override;
  Result OnNameEntry(wabt::NameSectionSubsection kind, Index index, std::string_view name) override;

 private:
  // Validates a function whose type is known, and appends it without a body.
  Result AddFunction(Index signature, std::optional<ImportDecl> import);
  ImportDecl ImportOf(std::string_view module, std::string_view name) const;
  Result AddElementGlobal(uint32_t global, wabt::Type type);
  Result AddTable(wabt::Type type, const wabt::Limits& entries, std::optional<ImportDecl> import);
  Result CheckPages(const wabt::Limits& pages);
  Result AddMemory(const wabt::Limits& pages, std::optional<ImportDecl> import);
  Result AddGlobal(wabt::Type type, bool is_mutable, std::optional<ImportDecl> import);

  uint64_t signature_values_ = 0;             // Number of parameters and results of all functions.
  wabt::Type global_type_ = wabt::Type::I32;  // Type of the current global.
  std::unordered_map<uint64_t, uint32_t> element_globals_;
  std::vector<bool> is_64_;
  size_t tables_defined_ = 0;
  std::span<const uint8_t> bytes_;
  std::optional<Index> data_count_;
  bool has_global_names_ = false;
};

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_DELEGATE_H_
