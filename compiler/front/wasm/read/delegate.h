// SPDX-License-Identifier: Apache-2.0
// Receives wabt's reading of a module: every callback first asks wabt's validator, then records. wabt's ReadBinaryIr is
// not used because it aborts on some malformed modules.
//
// wabt calls one object with all of it. So the callbacks stand in three classes on top of each other, each with those
// of its own; what they make of a module is in Reading and CodeRecorder.
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

// Callbacks of memory, tables and vectors (delegate_code.cc).
class AccessCallbacks : public wabt::BinaryReaderNop {
 public:
  using Result = wabt::Result;
  using Index = wabt::Index;
  using Offset = wabt::Offset;
  using Address = wabt::Address;
  using Opcode = wabt::Opcode;

  // Borrowed.
  AccessCallbacks(Reading& reading, CodeRecorder& code) : r_(reading), code_(code) {}

  Result OnSimdLaneOpExpr(Opcode opcode, uint64_t lane) override;
  Result OnSimdShuffleOpExpr(Opcode opcode, v128 lanes) override;
  Result OnSimdLoadLaneExpr(Opcode opcode, Index memory, Address align_log2, Address offset, uint64_t lane) override;
  Result OnSimdStoreLaneExpr(Opcode opcode, Index memory, Address align_log2, Address offset, uint64_t lane) override;
  Result OnLoadSplatExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override;
  Result OnLoadZeroExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override;
  Result OnRefNullExpr(wabt::Type type) override;
  Result OnRefIsNullExpr() override;
  Result OnRefFuncExpr(Index function) override;
  Result OnTableGetExpr(Index table) override;
  Result OnTableSetExpr(Index table) override;
  Result OnTableSizeExpr(Index table) override;
  Result OnTableGrowExpr(Index table) override;
  Result OnTableFillExpr(Index table) override;
  Result OnTableCopyExpr(Index target, Index source) override;
  Result OnTableInitExpr(Index segment, Index table) override;
  Result OnElemDropExpr(Index segment) override;
  Result OnLoadExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override;
  Result OnStoreExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override;
  Result OnAtomicLoadExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override;
  Result OnAtomicStoreExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override;
  Result OnAtomicRmwExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override;
  Result OnAtomicRmwCmpxchgExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override;
  Result OnAtomicFenceExpr(uint32_t model) override;
  Result OnMemorySizeExpr(Index memory) override;
  Result OnMemoryGrowExpr(Index memory) override;
  Result OnMemoryCopyExpr(Index source, Index target) override;
  Result OnMemoryFillExpr(Index memory) override;
  Result OnMemoryInitExpr(Index segment, Index memory) override;
  Result OnDataDropExpr(Index segment) override;
  Result OnAtomicNotifyExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override;
  Result OnAtomicWaitExpr(Opcode opcode, Index memory, Address align_log2, Address offset) override;

 protected:
  wabt::Location Here() const { return r_.Here(); }
  wabt::Var At(Index index) const { return r_.At(index); }

  Reading& r_;
  CodeRecorder& code_;
  wabt::SharedValidator& validator_ = r_.validator;
};

// Calls for all other instructions, and around bodies (delegate_code.cc).
class CodeCallbacks : public AccessCallbacks {
 public:
  using AccessCallbacks::AccessCallbacks;

  Result BeginFunctionBody(Index index, Offset size) override { return code_.BeginBody(index, size); }
  Result OnLocalDecl(Index, Index count, wabt::Type type) override { return code_.DeclareLocals(count, type); }
  Result EndFunctionBody(Index) override { return code_.EndBody(); }
  Result OnOpcode(Opcode opcode) override { return code_.BeginInstruction(opcode); }
  Result OnUnaryExpr(Opcode opcode) override;
  Result OnBinaryExpr(Opcode opcode) override;
  Result OnCompareExpr(Opcode opcode) override;
  Result OnConvertExpr(Opcode opcode) override;
  Result OnI32ConstExpr(uint32_t bits) override;
  Result OnI64ConstExpr(uint64_t bits) override;
  Result OnF32ConstExpr(uint32_t bits) override;
  Result OnF64ConstExpr(uint64_t bits) override;
  Result OnV128ConstExpr(v128 bits) override;
  Result OnTernaryExpr(Opcode opcode) override;
  Result OnLocalGetExpr(Index local) override;
  Result OnLocalSetExpr(Index local) override;
  Result OnLocalTeeExpr(Index local) override;
  Result OnGlobalGetExpr(Index global) override;
  Result OnGlobalSetExpr(Index global) override;
  Result OnBlockExpr(wabt::Type signature) override;
  Result OnLoopExpr(wabt::Type signature) override;
  Result OnIfExpr(wabt::Type signature) override;
  Result OnElseExpr() override;
  Result OnEndExpr() override { return code_.RecordEnd(); }
  Result OnBrExpr(Index depth) override;
  Result OnBrIfExpr(Index depth) override;
  Result OnBrTableExpr(Index count, Index* depths, Index default_depth) override {
    return code_.RecordBrTable(count, depths, default_depth);
  }
  Result OnReturnExpr() override;
  Result OnCallExpr(Index function) override;
  Result OnCallIndirectExpr(Index signature, Index table) override;
  Result OnDropExpr() override;
  Result OnSelectExpr(Index result_count, wabt::Type* result_types) override;
  Result OnNopExpr() override;
  Result OnUnreachableExpr() override;
};

// Calls for sections and for the whole module (delegate_sections.cc).
class Delegate : public CodeCallbacks {
 public:
  // `is_64`: tables whose flag NarrowTables cleared. `globals`: what ReplaceElementGlobals found. Data segments are
  // spans of `bytes` at the offsets that they have in what is read.
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
  // The function's type is known; the validator is asked, and a function without a body appended.
  Result AddFunction(Index signature, std::optional<ImportDecl> import);
  ImportDecl ImportOf(std::string_view module, std::string_view name) const;
  Result AddElementGlobal(uint32_t global, wabt::Type type);
  Result AddTable(wabt::Type type, const wabt::Limits& entries, std::optional<ImportDecl> import);
  Result CheckPages(const wabt::Limits& pages);
  Result AddMemory(const wabt::Limits& pages, std::optional<ImportDecl> import);
  Result AddGlobal(wabt::Type type, bool is_mutable, std::optional<ImportDecl> import);

  uint64_t signature_values_ = 0;             // Parameters and results of all functions.
  wabt::Type global_type_ = wabt::Type::I32;  // Of the global at hand.
  std::unordered_map<uint64_t, uint32_t> element_globals_;
  std::vector<bool> is_64_;
  size_t tables_defined_ = 0;
  std::span<const uint8_t> bytes_;
  std::optional<Index> data_count_;
  bool has_global_names_ = false;
};

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_READ_DELEGATE_H_
