// SPDX-License-Identifier: Apache-2.0
// Receives wabt's reading of a module: every callback first asks wabt's validator, then records. wabt's ReadBinaryIr is
// not used because it aborts on some malformed modules.
#ifndef HPVMD_COMPILER_FRONT_WASM_READ_DELEGATE_H_
#define HPVMD_COMPILER_FRONT_WASM_READ_DELEGATE_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "wabt/binary-reader-nop.h"
#include "wabt/shared-validator.h"

#include "base/diagnostic.h"
#include "compiler/front/wasm/read/decoded.h"
#include "compiler/front/wasm/read/opcode_map.h"

namespace hpvm::wasm {

class Delegate : public wabt::BinaryReaderNop {
 public:
  using Result = wabt::Result;
  using Index = wabt::Index;
  using Offset = wabt::Offset;
  using Address = wabt::Address;
  using Opcode = wabt::Opcode;

  // `is_64`: tables whose flag NarrowTables cleared. Data segments are spans of `bytes` at the offsets that they have
  // in what is read.
  Delegate(const wabt::Features& features, std::vector<bool> is_64, std::span<const uint8_t> bytes);
  // What ReplaceElementGlobals found.
  void SetElementGlobals(std::unordered_map<uint64_t, uint32_t> globals) { element_globals_ = std::move(globals); }

  bool HasFault() const { return refusal_.has_value() || !errors_.empty(); }
  // Requires that reading failed or HasFault: the first fault.
  Diagnostic TakeFault(const std::string& place) const;
  Module TakeModule() { return std::move(module_); }

  // Sections (delegate_sections.cc).
  bool OnError(const wabt::Error& error) override;
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

  // Bodies and initial values (delegate_code.cc).
  Result BeginFunctionBody(Index index, Offset) override;
  Result OnLocalDecl(Index, Index count, wabt::Type type) override;
  Result EndFunctionBody(Index) override;
  Result OnOpcode(Opcode opcode) override;
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
  Result OnLocalGetExpr(Index local) override;
  Result OnLocalSetExpr(Index local) override;
  Result OnLocalTeeExpr(Index local) override;
  Result OnGlobalGetExpr(Index global) override;
  Result OnGlobalSetExpr(Index global) override;
  Result OnBlockExpr(wabt::Type signature) override;
  Result OnLoopExpr(wabt::Type signature) override;
  Result OnIfExpr(wabt::Type signature) override;
  Result OnElseExpr() override;
  Result OnEndExpr() override;
  Result OnBrExpr(Index depth) override;
  Result OnBrIfExpr(Index depth) override;
  Result OnBrTableExpr(Index count, Index* depths, Index default_depth) override;
  Result OnReturnExpr() override;
  Result OnCallExpr(Index function) override;
  Result OnCallIndirectExpr(Index signature, Index table) override;
  Result OnDropExpr() override;
  Result OnSelectExpr(Index result_count, wabt::Type* result_types) override;
  Result OnNopExpr() override;
  Result OnUnreachableExpr() override;

 private:
  wabt::Location Here() const { return wabt::Location(source_); }
  wabt::Var At(Index index) const { return wabt::Var(index, Here()); }
  // Keeps the first fault of ours and stops the reader.
  Result Refuse(uint64_t offset, std::string message);
  // Refuses what would be one item of a kind too many.
  Result CheckCount(size_t count, std::string_view items);
  // The function's type is known; the validator is asked, and a function without a body appended.
  Result AddFunction(Index signature, std::optional<ImportDecl> import);
  ImportDecl ImportOf(std::string_view module, std::string_view name) const;
  // Nothing, and a refusal: types of proposals that are not taken.
  std::optional<ValueType> TypeOf(wabt::Type type, std::string_view what);
  // The instruction last announced, if the validator took it.
  Result Record(Result validated, uint64_t imm = 0);
  // Instructions whose validation takes as long as their signature is.
  Result RecordTyped(Result validated, uint32_t signature, uint64_t imm);
  Result RecordPlain(Result validated);
  Result RecordBlock(Result validated, wabt::Type signature);
  Result RecordLocal(Result validated, Index local);
  Result RecordTable(Result validated, Index table, uint64_t imm);
  // An access or an operation with the prefix 0xfd, or an ordinary one.
  Result RecordAccess(Result validated, Address offset, std::optional<uint64_t> lane = std::nullopt);
  // wabt takes unsigned 64-bit numbers with bits beyond the 64th and drops those. Refuses one whose encoding ends at
  // byte `end` of the module.
  Result CheckUnsigned64(uint64_t end);
  Result RecordSimd(Result validated, uint64_t lane, const SimdImmediates* immediates);
  Result OnConst(wabt::Type type, uint64_t low, uint64_t high = 0);
  Result AddElementGlobal(uint32_t global, wabt::Type type);
  // Around an initial value or a segment's offset.
  void BeginConstant();
  Result EndConstant();
  void AddLocals(uint32_t count, ValueType type);
  Result AddTable(wabt::Type type, const wabt::Limits& entries, std::optional<ImportDecl> import);
  Result CheckPages(const wabt::Limits& pages);
  Result AddMemory(const wabt::Limits& pages, std::optional<ImportDecl> import);
  Result AddGlobal(wabt::Type type, bool is_mutable, std::optional<ImportDecl> import);
  bool IsTable64(Index table) const { return table < module_.tables.size() && module_.tables[table].limits.is_64; }

  wabt::Errors errors_;
  wabt::SharedValidator validator_;
  std::optional<Diagnostic> refusal_;
  Module module_;

  uint64_t source_ = 0;  // Of the instruction or item at hand.
  const OpcodeRow* const rows_ = &MapOpcode(0);
  Opcode opcode_;                   // Of the instruction at hand.
  const OpcodeRow* row_ = nullptr;  // Of the instruction at hand.
  Function* function_ = nullptr;    // Whose body is read; null in initial values.
  uint32_t depth_ = 0;              // Open blocks of the body, with the function's own; 0 after its end.
  // The locals of the body. Slots differ from indices where there is a v128.
  struct LocalStart {
    uint32_t index, slot;
    ValueType type;
  };
  std::vector<LocalStart> local_starts_;
  uint64_t local_count_ = 0;
  uint64_t slot_count_ = 0;
  uint64_t instructions_ = 0;
  uint64_t signature_values_ = 0;             // Parameters and results of all functions.
  Constant constant_;                         // The last one, for constant expressions.
  bool constant_ended_ = false;               // Its `end` has been read.
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
