// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/lower/math.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/limits.h"
#include "base/status.h"
#include "compiler/front/wasm/lower/lower.h"
#include "compiler/front/wasm/read/decoded.h"
#include "compiler/front/wasm/read/reader.h"
#include "compiler/math/math_module.h"

namespace hpvm::wasm {
namespace {

constexpr uint64_t kStateAlignment = 16;

struct Library {
  Module module;  // Its functions have the stack pointer as a constant.
  // Function indices by MathForms and by index in MathFunctions().
  std::array<std::vector<uint32_t>, 3> forms;
  uint64_t memory_bytes = 0;  // Bytes of the stack and of the tables above it.
};

bool IsPlain(const Instr& instr, ir::Opcode opcode) {
  return instr.kind == InstrKind::kPlain && instr.opcode == opcode;
}

// Returns the number of bytes by which a function lowers the stack pointer: a function that uses the stack begins
// with global.get, i32.const, i32.sub.
uint64_t FrameBytes(const Function& function) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < function.code.size(); ++i) {
    if (function.code[i].kind != InstrKind::kGlobalGet) {
      continue;
    }
    HPVMD_CHECK(bytes == 0 && i + 2 < function.code.size());
    HPVMD_CHECK(IsPlain(function.code[i + 1], ir::Opcode::kConst) && IsPlain(function.code[i + 2], ir::Opcode::kSub));
    bytes = function.code[i + 1].imm;
  }
  return bytes;
}

// Lowers the stack pointers of the functions that `caller` calls below its frame. Terminates because no function is
// recursive: a cycle would lower the pointers until the check fails.
void PlaceFrames(const Module& module, uint32_t caller, uint64_t pointer, std::vector<uint64_t>& pointers) {
  if (pointers[caller] <= pointer) {
    return;
  }
  pointers[caller] = pointer;
  const uint64_t frame = FrameBytes(module.functions[caller]);
  HPVMD_CHECK(frame <= pointer);
  for (const Instr& instr : module.functions[caller].code) {
    HPVMD_CHECK(instr.kind != InstrKind::kCallIndirect);
    if (instr.kind == InstrKind::kCall) {
      PlaceFrames(module, static_cast<uint32_t>(instr.imm), pointer - frame, pointers);
    }
  }
}

void FixStackPointer(Function& function, uint64_t pointer) {
  for (Instr& instr : function.code) {
    if (instr.kind == InstrKind::kGlobalGet) {
      Instr constant;
      constant.kind = InstrKind::kPlain;
      constant.opcode = ir::Opcode::kConst;
      constant.has_result = true;
      constant.imm = pointer;
      instr = constant;
    } else if (instr.kind == InstrKind::kGlobalSet) {
      instr.kind = InstrKind::kDrop;
    }
  }
}

// The library imports the operations that a device computes by itself; calls of these imports become operations.
void UseDevice(const Module& module, Function& function) {
  for (Instr& instr : function.code) {
    if (instr.kind != InstrKind::kCall || !module.functions[instr.imm].import.has_value()) {
      continue;
    }
    Instr operation;
    HPVMD_CHECK(ir::OpcodeFromText(module.functions[instr.imm].import->name, &operation.opcode));
    HPVMD_CHECK(ir::Info(operation.opcode).family == ir::Family::kApprox);
    operation.kind = InstrKind::kPlain;
    operation.type = operation.result = ir::Type::kF32;
    operation.operands = 1;
    operation.has_result = true;
    instr = operation;
  }
}

Library ReadLibrary() {
  Diagnostics diagnostics;
  std::optional<Module> module = ReadModule(math::MathModule(), "the math library", diagnostics);
  HPVMD_CHECK(module.has_value());
  Library library;
  library.module = *std::move(module);
  std::unordered_map<std::string, uint32_t> by_name;
  for (const Export& item : library.module.exports) {
    by_name.emplace(item.name, item.index);
  }
  const auto find = [&](std::string_view name) {
    const auto found = by_name.find(std::string(name));
    HPVMD_CHECK(found != by_name.end());
    return found->second;
  };
  for (const math::MathFunction& function : math::MathFunctions()) {
    const std::string_view fast = function.fast_name.empty() ? function.name : function.fast_name;
    library.forms[0].push_back(find(function.name));
    library.forms[1].push_back(find(fast));
    library.forms[2].push_back(find(function.device_name.empty() ? fast : function.device_name));
  }
  for (const DataSegment& segment : library.module.data) {
    library.memory_bytes = std::max(library.memory_bytes, segment.offset.low + segment.bytes.size());
  }
  HPVMD_CHECK(library.module.globals.size() == 1);
  constexpr uint64_t kUncalled = ~uint64_t{0};
  std::vector<uint64_t> pointers(library.module.functions.size(), kUncalled);
  for (Function& function : library.module.functions) {
    UseDevice(library.module, function);
  }
  for (const std::vector<uint32_t>& list : library.forms) {
    for (const uint32_t index : list) {
      PlaceFrames(library.module, index, library.module.globals[0].init.low, pointers);
    }
  }
  for (size_t i = 0; i < pointers.size(); ++i) {
    FixStackPointer(library.module.functions[i], pointers[i]);
  }
  return library;
}

const Library& TheLibrary() {
  static const auto* const kLibrary = new Library(ReadLibrary());
  return *kLibrary;
}

// Returns the functions that `roots` reach, in order of discovery, and numbers them from `first` in `ids`.
std::vector<uint32_t> Reached(const Library& library, std::span<const uint32_t> roots, size_t first,
                              std::vector<ir::FunctionId>& ids) {
  std::vector<uint32_t> order;
  const auto add = [&](uint32_t index) {
    if (!ids[index].valid()) {
      ids[index] = ir::FunctionId(first + order.size());
      order.push_back(index);
    }
  };
  for (const uint32_t index : roots) {
    add(index);
  }
  for (size_t next = 0; next < order.size(); ++next) {
    for (const Instr& instr : library.module.functions[order[next]].code) {
      if (instr.kind == InstrKind::kCall) {
        add(static_cast<uint32_t>(instr.imm));
      }
    }
  }
  return order;
}

// Returns true for the functions of fast.c; musl's functions must not be contracted, because they compute rounding
// errors from separate products and sums.
bool BearsContraction(std::string_view name) { return name.starts_with("fast_") || name.starts_with("device_"); }

// Moves memory accesses from the library's memory at address 0 to the state at `base`. Clears source offsets, because
// offsets in the library's file mean nothing to the kernel's author.
void MoveMemory(ir::Function& function, uint64_t base) {
  for (ir::Op& op : function.ops) {
    op.source = 0;
    if (ir::Info(op.code).family == ir::Family::kMemory) {
      HPVMD_CHECK(op.code == ir::Opcode::kLoad || op.code == ir::Opcode::kStore);
      op.space = op.code == ir::Opcode::kLoad ? ir::Space::kState : ir::Space::kScratch;
      op.imm += base;
    }
    HPVMD_CHECK(ir::Info(op.code).family != ir::Family::kGlobal);
  }
}

}  // namespace

std::vector<ir::FunctionId> AppendMath(std::span<const uint32_t> needed, MathForms forms, ir::Module& out) {
  std::vector<ir::FunctionId> ids_by_index(math::MathFunctions().size());
  if (needed.empty()) {
    return ids_by_index;
  }
  const Library& library = TheLibrary();
  const Layout layout;
  LowerContext context{library.module, layout, std::vector<ir::FunctionId>(library.module.functions.size()), {}};
  context.values_left = limits::kKernelIrValuesMax;  // The library is small.
  const std::vector<uint32_t>& exports = library.forms[static_cast<size_t>(forms)];
  std::vector<uint32_t> roots;
  for (const uint32_t index : needed) {
    roots.push_back(exports[index]);
  }
  const std::vector<uint32_t> order = Reached(library, roots, out.functions.size(), context.ids);

  const uint64_t base = (out.state_bytes + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
  out.state_bytes = base + library.memory_bytes;
  for (const DataSegment& segment : library.module.data) {
    out.state.push_back({base + segment.offset.low, {segment.bytes.begin(), segment.bytes.end()}});
  }
  for (const uint32_t index : order) {
    const Function& function = library.module.functions[index];
    ir::Function lowered;
    lowered.name = function.name;
    lowered.type = library.module.type_of(function);
    if (forms != MathForms::kExact) {
      lowered.fast_math = BearsContraction(function.name) ? ir::FastMath::kContract : ir::FastMath::kNone;
    }
    HPVMD_CHECK(LowerFunction(context, function, lowered));
    MoveMemory(lowered, base);
    out.functions.push_back(std::move(lowered));
  }
  for (const uint32_t index : needed) {
    ids_by_index[index] = context.ids[exports[index]];
  }
  return ids_by_index;
}

void PrepareMath() { TheLibrary(); }

}  // namespace hpvm::wasm
