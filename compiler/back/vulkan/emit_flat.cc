// SPDX-License-Identifier: Apache-2.0
// Accesses that are resolved by address: module memory, state, and accesses of unknown provenance. They are functions,
// one per kind of access, that leave a trap's code in a variable when no range holds the access.

#include "compiler/back/vulkan/memory.h"

namespace hpvm::vulkan {

using Kind = GpuArgument::Kind;

namespace {

SpvId Code32(TrapCode code, Code& c) { return c.K(static_cast<uint32_t>(code)); }

}  // namespace

SpvId Search::FaultVariable() {
  if (fault_ == 0) {
    fault_ = w.GlobalVariable(spv::StorageClassPrivate, w.Int(32), w.U32(0));
  }
  v_.Use(fault_);
  return fault_;
}

Memory Search::MemoryOf(gpu::Reach reach) {
  return reach == gpu::Reach::kModule ? Memory::kModule : reach == gpu::Reach::kState ? Memory::kState : Memory::kFlat;
}

SpvId Search::AddressTypeOf(Memory memory) { return memory == Memory::kState ? c.U32() : v_.WordsType(); }

// Returns operand plus immediate; a sum that overflows becomes the highest address, which no range holds.
SpvId Search::AddressOf(const ir::Op& op) {
  const SpvId operand = values_.Operand(op, 0);
  if (op.imm == 0) {
    return operand;
  }
  const bool is_wide = v_.module.is_memory64 && !ir::IsState(op.space);
  const Type type = is_wide ? Type::kI64 : Type::kI32;
  const SpvId last = v_.K(type, is_wide ? ~uint64_t{0} : 0xffffffffu);
  if (!is_wide && op.imm > 0xffffffffu) {
    return last;
  }
  const SpvId sum = w.Op(spv::OpIAdd, v_.m.TypeOf(type), {operand, v_.K(type, op.imm)});
  return c.Select(v_.m.TypeOf(type), c.Below(sum, operand), last, sum);
}

std::vector<Search::RangeSource> Search::SourcesOf(Memory memory) const {
  std::vector<RangeSource> sources;
  for (const WordArray& words : memory == Memory::kState ? arrays_.state() : arrays_.module_memory()) {
    sources.push_back({&words, 0, false});
  }
  if (memory == Memory::kFlat) {
    for (uint32_t k = 0; k < v_.module.params.size(); ++k) {
      if (v_.module.params[k].is_buffer) {
        sources.push_back({nullptr, k, false});
      }
    }
    if (arrays_.group() != nullptr) {
      sources.push_back({arrays_.group(), 0, true});
    }
  }
  return sources;
}

Search::Range Search::MakeRange(const RangeSource& from, Memory memory) {
  const bool is_wide = memory != Memory::kState && v_.module.is_memory64;
  const Type type = is_wide ? Type::kI64 : Type::kI32;
  Range range;
  range.spot.words = from.words;
  range.spot.param = from.param;
  if (from.words == nullptr) {
    const SpvId base = v_.Argument(Kind::kBufferBase, from.param, is_wide ? 8 : 4);
    range.begin = is_wide ? c.Bits(v_.m.TypeOf(type), base) : base;
    const SpvId bytes = v_.Argument32(Kind::kBufferBytes, from.param);
    range.bytes = is_wide ? w.Op(spv::OpUConvert, v_.m.TypeOf(type), {bytes}) : bytes;
    range.offset = v_.Argument32(Kind::kBufferStart, from.param);
    range.is_writable = v_.module.params[from.param].is_writable;
    return range;
  }
  v_.Use(from.words->variable);
  range.begin = from.is_group ? arrays_.GroupBase() : v_.K(type, from.words->begin);
  range.bytes = v_.K(type, from.words->end - from.words->begin);
  range.offset = c.K(0);
  range.is_writable = from.words->is_writable;
  return range;
}

// Returns true if the range holds [address, address + bytes); `place` receives the distance from its beginning.
SpvId Search::Holds(const Range& range, SpvId type, SpvId address, SpvId bytes, SpvId* place) {
  *place = w.Op(spv::OpISub, type, {address, range.begin});  // Wraps to a large distance below the range.
  const SpvId fits = c.Test(spv::OpULessThanEqual, bytes, range.bytes);
  const SpvId room = w.Op(spv::OpISub, type, {range.bytes, bytes});
  const SpvId begins = c.Test(spv::OpUGreaterThanEqual, address, range.begin);
  const SpvId ends = c.Test(spv::OpULessThanEqual, *place, room);
  return c.Both(c.Both(fits, begins), ends);
}

void Search::ForEachRange(const std::vector<RangeSource>& sources, Memory memory, bool is_write, SpvId address,
                          absl::FunctionRef<SpvId()> bytes, absl::FunctionRef<void(const Range&, SpvId)> found) {
  for (const RangeSource& from : sources) {
    const Range range = MakeRange(from, memory);
    if (is_write && !range.is_writable && from.words != nullptr) {
      continue;
    }
    SpvId place = 0;
    const SpvId holds = Holds(range, AddressTypeOf(memory), address, bytes(), &place);
    c.If(holds, [&] {
      found(range, place);
      return false;
    });
  }
}

Spot Search::SpotIn(const Range& range, SpvId type, SpvId place, uint32_t alignment) {
  Spot spot = range.spot;
  const SpvId narrow = type == c.U32() ? place : w.Op(spv::OpUConvert, c.U32(), {place});
  spot.address = c.Add(narrow, range.offset);
  spot.alignment = alignment;
  return spot;
}

// Returns a byte of module memory or state; bytes outside the kept parts are zero.
SpvId Search::SearchByte(Memory memory) {
  const SpvId type = AddressTypeOf(memory);
  const char* name = memory == Memory::kState ? "state_byte" : "module_byte";
  return functions_.Function(name, c.U32(), {type}, [&](std::span<const SpvId> params) {
    const Type address_type = type == c.U32() ? Type::kI32 : Type::kI64;
    ForEachRange(
        SourcesOf(memory == Memory::kState ? memory : Memory::kModule), memory, false, params[0],
        [&] { return v_.K(address_type, 1); },
        [&](const Range& range, SpvId place) {
          w.Do(spv::OpReturnValue, {access_.LoadRaw(SpotIn(range, type, place, 0), 1)});
        });
    w.Do(spv::OpReturnValue, {c.K(0)});
  });
}

// Loads bytes that straddle the borders of kept parts.
SpvId Search::LoadByBytes(Memory memory, SpvId address, uint32_t width) {
  const SpvId type = AddressTypeOf(memory);
  const Type address_type = type == c.U32() ? Type::kI32 : Type::kI64;
  const SpvId function = SearchByte(memory);
  std::vector<SpvId> words;
  for (uint32_t i = 0; i < width; ++i) {
    const SpvId at = i == 0 ? address : w.Op(spv::OpIAdd, type, {address, v_.K(address_type, i)});
    const SpvId byte = functions_.Call(c.U32(), function, {at});
    if (i % 4 == 0) {
      words.push_back(byte);
    } else {
      words.back() = c.Or(words.back(), c.ShlK(byte, i % 4 * 8));
    }
  }
  return width <= 4 ? words[0] : w.Op(spv::OpCompositeConstruct, access_.RawType(width), words);
}

std::string Search::SearchName(const char* what, Memory memory, uint32_t width, uint32_t alignment) {
  const char* where = memory == Memory::kFlat ? "flat" : memory == Memory::kModule ? "module" : "state";
  return std::string(where) + "_" + what + std::to_string(width) + "_" + std::to_string(alignment);
}

SpvId Search::SearchLoad(Memory memory, uint32_t width, uint32_t alignment, bool is_once) {
  const SpvId type = AddressTypeOf(memory), result = access_.RawType(width);
  const std::string name = SearchName(is_once ? "load_once" : "load", memory, width, alignment);
  return functions_.Function(name, result, {type}, [&](std::span<const SpvId> params) {
    const Type address_type = type == c.U32() ? Type::kI32 : Type::kI64;
    const auto bytes_of = [&] { return v_.K(address_type, width); };
    ForEachRange(SourcesOf(memory), memory, false, params[0], bytes_of, [&](const Range& range, SpvId place) {
      Spot spot = SpotIn(range, type, place, alignment);
      spot.is_once = is_once;
      w.Do(spv::OpReturnValue, {access_.LoadRaw(spot, width)});
    });
    const uint64_t bytes = memory == Memory::kState ? v_.module.state_bytes : v_.module.memory_bytes;
    if (bytes >= width) {
      const SpvId last = v_.K(address_type, bytes - width);
      c.If(c.Test(spv::OpULessThanEqual, params[0], last), [&] {
        w.Do(spv::OpReturnValue, {LoadByBytes(memory, params[0], width)});
        return false;
      });
    }
    c.Store(FaultVariable(), Code32(TrapCode::kOutOfBounds, c));
    w.Do(spv::OpReturnValue, {w.Null(result)});
  });
}

SpvId Search::SearchStore(Memory memory, uint32_t width, uint32_t alignment) {
  const SpvId type = AddressTypeOf(memory);
  const std::string name = SearchName("store", memory, width, alignment);
  return functions_.Function(name, w.Void(), {type, access_.RawType(width)}, [&](std::span<const SpvId> params) {
    const Type address_type = type == c.U32() ? Type::kI32 : Type::kI64;
    const auto bytes_of = [&] { return v_.K(address_type, width); };
    ForEachRange(SourcesOf(memory), memory, true, params[0], bytes_of, [&](const Range& range, SpvId place) {
      if (range.is_writable) {
        access_.StoreRaw(SpotIn(range, type, place, alignment), width, params[1]);
      } else {
        c.Store(FaultVariable(), Code32(TrapCode::kReadOnlyBuffer, c));
      }
      w.Do(spv::OpReturn, {});
    });
    c.Store(FaultVariable(), Code32(TrapCode::kOutOfBounds, c));
    w.Do(spv::OpReturn, {});
  });
}

// Returns the reason why [address, address + bytes) may not be accessed, or 0.
SpvId Search::FindFault(bool is_write) {
  const SpvId type = v_.WordsType();
  return functions_.Function(
      is_write ? "write_fault" : "read_fault", c.U32(), {type, type}, [&](std::span<const SpvId> params) {
        const Type address_type = v_.module.address_type();
        ForEachRange(
            SourcesOf(Memory::kFlat), Memory::kFlat, is_write, params[0], [&] { return params[1]; },
            [&](const Range& range, SpvId) {
              const bool allowed = !is_write || range.is_writable;
              w.Do(spv::OpReturnValue, {allowed ? c.K(0) : Code32(TrapCode::kReadOnlyBuffer, c)});
            });
        // All of module memory can be read; only a write of no bytes is allowed to it.
        Range all;
        all.begin = v_.K(address_type, 0);
        all.bytes = v_.K(address_type, v_.module.memory_bytes);
        SpvId place = 0;
        SpvId holds = Holds(all, type, params[0], params[1], &place);
        if (is_write) {
          holds = c.Both(holds, c.Equal(params[1], v_.K(address_type, 0)));
        }
        w.Do(spv::OpReturnValue, {c.Select(c.U32(), holds, c.K(0), Code32(TrapCode::kOutOfBounds, c))});
      });
}

// Traps with the code that a search left in the variable, and with the access's width for the report.
void Search::TrapIfFault(const ir::Op& op, Memory memory, SpvId address) {
  const SpvId fault = c.Load(c.U32(), FaultVariable());
  c.If(c.Differ(fault, c.K(0)), [&] {
    if (memory == Memory::kState) {
      traps_.TrapWith(fault, op, 0);  // The state has no flat address.
    } else {
      const SpvId code = c.Or(fault, c.K(uint32_t{op.width} << 16));
      traps_.TrapWith(code, op, v_.Narrow(address));
    }
    return false;
  });
}

void MemoryOps::TrapIfBulkFault(const ir::Op& op, SpvId function, SpvId address, SpvId bytes) {
  const SpvId fault = functions_.Call(c.U32(), function, {address, bytes});
  c.If(c.Differ(fault, c.K(0)), [&] {
    // The record has room for lengths of 16 bits.
    const SpvId length = v_.Narrow(bytes);
    const SpvId fits = c.Test(spv::OpULessThanEqual, length, c.K(0xffff));
    const SpvId upper = c.Select(c.U32(), fits, c.ShlK(length, 16), c.K(0));
    const SpvId code = c.Or(fault, upper);
    traps_.TrapWith(code, op, v_.Narrow(address));
    return false;
  });
}

// Copies byte by byte, because the alignment is unknown and kernels that copy are rare.
bool MemoryOps::EmitBulk(const ir::Op& op) {
  const SpvId type = v_.WordsType();
  const SpvId to = values_.Operand(op, 0);
  const bool is_init = op.code == Opcode::kMemoryInit;
  SpvId bytes = values_.Operand(op, 2);
  const auto widen = [&](SpvId index) { return v_.module.is_memory64 ? w.Op(spv::OpUConvert, type, {index}) : index; };
  const WordArray* segment = nullptr;
  if (is_init) {
    const std::vector<uint8_t>& content = v_.module.passive_segments[op.imm];
    segment = arrays_.SegmentArray(op.imm);
    const SpvId size = c.K(static_cast<uint32_t>(content.size()));
    const SpvId fits = c.Test(spv::OpULessThanEqual, bytes, size);
    const SpvId begins = c.Test(spv::OpULessThanEqual, values_.Operand(op, 1), c.Sub(size, bytes));
    traps_.TrapIf(c.Neither(c.Both(fits, begins)), TrapCode::kOutOfBounds, op);
    bytes = widen(bytes);
  }
  TrapIfBulkFault(op, search_.FindFault(true), to, bytes);
  if (op.code == Opcode::kMemoryCopy) {
    TrapIfBulkFault(op, search_.FindFault(false), values_.Operand(op, 1), bytes);
  }
  const SpvId count = v_.Narrow(bytes);
  const SpvId store = search_.SearchStore(Memory::kFlat, 1, 0);
  const SpvId reached = c.For(c.K(0), count, c.K(1), [&](SpvId i) {
    SpvId byte = 0, at = i;
    if (op.code == Opcode::kMemoryCopy) {
      // Copies towards higher addresses start from the last byte, so that no byte is overwritten before it is read.
      const SpvId is_up = c.Test(spv::OpUGreaterThan, to, values_.Operand(op, 1));
      const SpvId from_end = c.Sub(c.Sub(count, c.K(1)), i);
      at = c.Select(c.U32(), is_up, from_end, i);
      const SpvId source = w.Op(spv::OpIAdd, type, {values_.Operand(op, 1), widen(at)});
      byte = functions_.Call(c.U32(), search_.SearchLoad(Memory::kFlat, 1, 0), {source});
    } else if (is_init) {
      Spot spot;
      spot.words = segment;
      spot.address = c.Add(values_.Operand(op, 1), i);
      byte = access_.LoadRaw(spot, 1);
    } else {
      byte = values_.Operand(op, 1);
    }
    const SpvId target = w.Op(spv::OpIAdd, type, {to, widen(at)});
    functions_.Call(w.Void(), store, {target, byte});
  });
  if (v_.cuts_loops) {
    traps_.TrapIf(c.Below(c.Load(c.U32(), reached), count), ir::kLoopsCut, op);
  }
  return true;
}

}  // namespace hpvm::vulkan
