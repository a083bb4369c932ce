// SPDX-License-Identifier: Apache-2.0
// The frame of a kernel: its launch, buffers, helpers and the layout of each instance's cells.
#include "tests/spmd/generate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "tests/spmd/generator.h"

namespace hpvm::spmd {
namespace {

constexpr Type kI32 = Type::kI32;

// Extents around the widths of vectors, where tails begin and end.
uint64_t PickExtent(diff::Random& random, uint64_t most) {
  static constexpr uint32_t kNear[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 127, 128, 129, 160};
  const uint64_t extent = random.Percent(50) ? kNear[random.Below(std::size(kNear))] : random.Between(1, 150);
  return std::clamp<uint64_t>(extent, 1, most);
}

}  // namespace

void Generator::PickTraits() {
  traits_.dimensions = random_.Percent(50) ? 1 : random_.Between(2, 3);
  traits_.risk = random_.Percent(70) ? 0 : random_.Between(1, 40);
  traits_.is_memory64 = random_.Percent(20);
  traits_.has_flat = random_.Percent(70);
  traits_.has_tables = random_.Percent(20);
  traits_.is_refused = random_.Percent(2);
  traits_.has_groups = !traits_.is_refused && random_.Percent(20);
  kernel_.module.name = "spmd";
  kernel_.module.uses_barrier = kernel_.module.uses_group_memory = traits_.has_groups;
  kernel_.module.is_memory64 = traits_.is_memory64;
  kernel_.extent[0] = PickExtent(random_, traits_.dimensions == 1 ? 200 : traits_.dimensions == 2 ? 70 : 20);
  if (traits_.dimensions >= 2) {
    kernel_.extent[1] = random_.Between(1, traits_.dimensions == 2 ? 11 : 5);
  }
  if (traits_.dimensions == 3) {
    kernel_.extent[2] = random_.Between(1, 4);
  }
  for (size_t d = 0; d < 3; ++d) {
    kernel_.group[d] = random_.Percent(50) ? 1 : random_.Between(1, d == 0 ? 40 : 4);
  }
}

void Generator::AddBuffer(BufferInfo info, Binding::Fill fill) {
  ir::Module& m = kernel_.module;
  info.param = static_cast<uint32_t>(m.params.size());
  info.mask = static_cast<uint32_t>(std::bit_floor(info.count) - 1);
  const bool is_input = info.role == BufferInfo::Role::kInput;
  m.params.push_back({"b" + std::to_string(info.param), true, !is_input || random_.Percent(20), m.address_type()});
  Binding binding;
  binding.bytes = info.count * info.width;
  binding.fill = fill;
  binding.seed = random_.Next();
  binding.float_bytes = info.float_bytes;
  kernel_.bindings.push_back(binding);
  buffers_.push_back(info);
}

void Generator::AddInput(bool is_permutation) {
  BufferInfo info;
  const uint64_t instances = kernel_.instances();
  if (is_permutation) {
    info.count = instances;
    AddBuffer(info, Binding::Fill::kPermutation);
    return;
  }
  static constexpr Binding::Fill kFills[] = {Binding::Fill::kIntegers, Binding::Fill::kF32, Binding::Fill::kF64};
  const Binding::Fill fill = kFills[random_.Below(3)];
  info.width = fill == Binding::Fill::kF64 ? 8 : 4;
  info.count = random_.Percent(30) ? std::bit_ceil(instances + 2)
                                   : instances * random_.Between(1, 3) + (random_.Percent(60) ? 0 : random_.Below(6));
  AddBuffer(info, fill);
}

void Generator::AddOwn() {
  BufferInfo info;
  info.role = BufferInfo::Role::kOwn;
  info.float_bytes = random_.Percent(45) ? (random_.Percent(70) ? 4 : 8) : 0;
  static constexpr uint32_t kWidths[] = {1, 2, 4, 4, 4, 8};
  info.width = info.float_bytes != 0 ? info.float_bytes : kWidths[random_.Below(6)];
  info.elements = random_.Percent(55) ? 1 : random_.Between(2, 4);
  info.layout = random_.Percent(50) ? BufferInfo::Layout::kStraight : static_cast<BufferInfo::Layout>(random_.Below(6));
  const uint64_t cells =
      info.layout == BufferInfo::Layout::kSpread ? std::bit_ceil(kernel_.instances()) : kernel_.instances();
  info.count = cells * info.elements;
  AddBuffer(info, info.float_bytes == 8   ? Binding::Fill::kF64
                  : info.float_bytes == 4 ? Binding::Fill::kF32
                                          : Binding::Fill::kIntegers);
}

void Generator::AddShared() {
  static constexpr Opcode kAtomics[] = {Opcode::kAtomicAdd,  Opcode::kAtomicSub,  Opcode::kAtomicAnd,
                                        Opcode::kAtomicOr,   Opcode::kAtomicXor,  Opcode::kAtomicMinS,
                                        Opcode::kAtomicMinU, Opcode::kAtomicMaxS, Opcode::kAtomicMaxU};
  static constexpr uint32_t kWidths[] = {4, 4, 4, 8, 1, 2};
  BufferInfo info;
  info.role = BufferInfo::Role::kShared;
  if (random_.Percent(25)) {
    info.atomic = Opcode::kAtomicFAdd;
    info.width = info.float_bytes = random_.Percent(60) ? 4 : 8;
    info.is_denormal = random_.Percent(40);
    info.count = uint64_t{1} << random_.Below(6);
    return AddBuffer(info, Binding::Fill::kZero);
  }
  info.atomic = kAtomics[random_.Below(std::size(kAtomics))];
  info.width = kWidths[random_.Below(6)];
  info.count = uint64_t{1} << random_.Below(6);
  AddBuffer(info, Binding::Fill::kIntegers);
}

void Generator::AddScalars() {
  for (uint32_t i = random_.Below(4); i > 0; --i) {
    const Type type = AnyType();
    ir::Module& m = kernel_.module;
    scalars_.emplace_back(static_cast<uint32_t>(m.params.size()), type);
    m.params.push_back({"s" + std::to_string(m.params.size()), false, true, type});
    Binding binding;
    static constexpr uint64_t kSmall[] = {0, 1, 2, 3, 5, 8, 16, 33, 100};
    binding.scalar = kSmall[random_.Below(9)];
    if (type == Type::kF32) {
      binding.scalar = std::bit_cast<uint32_t>(static_cast<float>(binding.scalar) * 0.5f);
    } else if (type == Type::kF64) {
      binding.scalar = std::bit_cast<uint64_t>(static_cast<double>(binding.scalar) * 0.5);
    }
    kernel_.bindings.push_back(binding);
  }
}

void Generator::PickBuffers() {
  for (uint32_t i = random_.Between(1, 3); i > 0; --i) {
    AddInput(/*is_permutation=*/false);
  }
  for (uint32_t i = random_.Between(1, 3); i > 0; --i) {
    AddOwn();
  }
  if (random_.Percent(25)) {
    AddShared();
  }
  digest_ = static_cast<uint32_t>(buffers_.size());
  BufferInfo digest;
  digest.role = BufferInfo::Role::kDigest;
  digest.width = 8;
  digest.count = kernel_.instances();
  AddBuffer(digest, Binding::Fill::kZero);
  const bool needs_permutation = std::any_of(buffers_.begin(), buffers_.end(), [](const BufferInfo& buffer) {
    return buffer.role == BufferInfo::Role::kOwn && buffer.layout == BufferInfo::Layout::kPermuted;
  });
  if (needs_permutation) {
    AddInput(/*is_permutation=*/true);
  }
}

// 64 words that every instance may read, at the beginning of module memory's second KiB.
void Generator::AddTable() {
  ir::Module& m = kernel_.module;
  if (!traits_.has_tables && !traits_.is_refused) {
    return;
  }
  m.memory_bytes = m.memory_bytes_max = 65536;
  ir::DataSegment segment{1024, {}};
  for (int i = 0; i < 256; ++i) {
    segment.bytes.push_back(static_cast<uint8_t>(random_.Next()));
  }
  m.data.push_back(std::move(segment));
  m.globals.push_back({kI32, false, random_.Below(100)});
  m.globals.push_back({kI32, true, 7});
}

void Generator::PickHelpers() {
  if (!random_.Percent(35)) {
    return;
  }
  for (uint32_t i = random_.Between(1, 2); i > 0; --i) {
    Helper helper;
    helper.index = static_cast<uint32_t>(helpers_.size()) + 1;
    helper.is_recursive = random_.Percent(40);
    if (helper.is_recursive) {
      helper.type.params.push_back(kI32);
    }
    for (uint32_t count = random_.Between(1, 3); count > 0; --count) {
      helper.type.params.push_back(AnyType());
    }
    if (random_.Percent(40)) {
      helper.input = PickBuffer(BufferInfo::Role::kInput);
      helper.type.params.push_back(kernel_.module.address_type());
    }
    for (uint32_t count = random_.Between(1, 2); count > 0; --count) {
      helper.type.results.push_back(AnyType());
    }
    helpers_.push_back(std::move(helper));
  }
}

void Generator::BuildHelper(const Helper& helper) {
  Body body;
  body.helper = &helper;
  body.function.name = "helper";
  body.function.type = helper.type;
  body.builder.emplace(body.function);
  body.addresses.resize(buffers_.size());
  body_ = &body;
  const std::span<const ValueId> opened = b().BeginBody();
  const std::vector<ValueId> params(opened.begin(), opened.end());
  for (size_t i = 0; i < params.size(); ++i) {
    if (helper.input && i + 1 == params.size()) {
      body.addresses[*helper.input] = params[i];
    } else {
      Keep(params[i], helper.type.params[i]);
    }
  }
  budget_ = random_.Between(1, 6);
  if (helper.is_recursive) {
    const ValueId ends = Compare(Opcode::kLeS, kI32, params[0], Int(kI32, 0));
    const OpId choice = b().BeginIf(ends, {});
    b().Return(Values(helper.type.results));
    b().Else();
    b().Leave(choice, {});
    b().End();
    Statements(random_.Between(1, 2));
    std::vector<ValueId> arguments{Binary(Opcode::kSub, kI32, params[0], Int(kI32, 1))};
    for (size_t i = 1; i < params.size(); ++i) {
      const bool is_address = helper.input && i + 1 == params.size();
      arguments.push_back(is_address ? params[i] : Value(helper.type.params[i], 1));
    }
    Op call{.code = Opcode::kCall};
    call.imm = helper.index;
    const OpId made = Emit(call, arguments, helper.type.results);
    const std::vector<ValueId> results = b().Results(made);
    for (size_t i = 0; i < results.size(); ++i) {
      Keep(results[i], helper.type.results[i]);
    }
  }
  Statements(random_.Between(1, 4));
  b().Return(Values(helper.type.results));
  b().End();
  kernel_.module.functions.push_back(std::move(body.function));
  body_ = nullptr;
}

ValueId Generator::CellIndex(BufferInfo& buffer, ValueId x, ValueId y, ValueId z, ValueId linear) {
  const auto instances = static_cast<uint32_t>(kernel_.instances());
  ValueId cell = linear;
  switch (buffer.layout) {
    case BufferInfo::Layout::kReversed:
      cell = Binary(Opcode::kSub, kI32, Int(kI32, instances - 1), linear);
      break;
    case BufferInfo::Layout::kByElement:
      buffer.stride = instances;
      return linear;
    case BufferInfo::Layout::kTransposed: {
      const ValueId row = Binary(Opcode::kMul, kI32, Int(kI32, static_cast<uint32_t>(kernel_.extent[0])), z);
      const ValueId column = Binary(Opcode::kAdd, kI32, x, row);
      cell = Binary(Opcode::kAdd, kI32, y,
                    Binary(Opcode::kMul, kI32, column, Int(kI32, static_cast<uint32_t>(kernel_.extent[1]))));
      break;
    }
    case BufferInfo::Layout::kPermuted: {
      const auto order = static_cast<uint32_t>(buffers_.size() - 1);
      ValueId address;
      Op load = Access(Opcode::kLoad, kI32, order, 4, linear, &address);
      cell = Emit1(load, {address}, kI32);
      break;
    }
    case BufferInfo::Layout::kSpread: {
      const ValueId spread = Binary(Opcode::kMul, kI32, linear, Int(kI32, random_.Below(500) * 2 + 1));
      cell = Masked(spread, static_cast<uint32_t>(buffer.count / buffer.elements - 1));
      break;
    }
    case BufferInfo::Layout::kStraight:
      break;
  }
  return buffer.elements == 1 ? cell : Binary(Opcode::kMul, kI32, cell, Int(kI32, buffer.elements));
}

void Generator::PlaceCells(ValueId x, ValueId y, ValueId z) {
  ValueId linear = x;
  if (traits_.dimensions >= 2) {
    const auto count = [&](uint32_t d) {
      return random_.Percent(50) ? Emit1({.code = Opcode::kInstanceCount}, {Int(kI32, d)}, kI32)
                                 : Int(kI32, static_cast<uint32_t>(kernel_.extent[d]));
    };
    ValueId row = y;
    if (traits_.dimensions == 3) {
      row = Binary(Opcode::kAdd, kI32, y, Binary(Opcode::kMul, kI32, z, count(1)));
    }
    linear = Binary(Opcode::kAdd, kI32, x, Binary(Opcode::kMul, kI32, row, count(0)));
  }
  linear_ = linear;
  Keep(linear, kI32);
  for (BufferInfo& buffer : buffers_) {
    if (buffer.role == BufferInfo::Role::kOwn) {
      buffer.index = CellIndex(buffer, x, y, z, linear);
    }
  }
}

void Generator::AddQueries() {
  static constexpr Opcode kQueries[] = {Opcode::kInstanceCount, Opcode::kGroupId,    Opcode::kGroupSize,
                                        Opcode::kLocalId,       Opcode::kInstanceId, Opcode::kBufferSize};
  for (uint32_t i = random_.Below(3); i > 0; --i) {
    const Opcode code = kQueries[random_.Below(std::size(kQueries))];
    const Type type = random_.Percent(70) ? kI32 : Type::kI64;
    Op op{.code = code};
    op.type = type;
    Keep(Emit1(op, {Int(kI32, random_.Below(4))}, type), type);
  }
}

// Loads a value of each type that differs between instances, so that few values are constants.
void Generator::LoadSeeds() {
  for (Type type : {kI32, Type::kF32, Type::kI64, Type::kF64}) {
    if (random_.Percent(25)) {
      continue;
    }
    const auto picked = static_cast<uint32_t>(PickBuffer(BufferInfo::Role::kInput).value());
    const uint64_t count = buffers_[picked].count * buffers_[picked].width / ir::Bytes(type);
    if (count < kernel_.instances()) {
      continue;
    }
    ValueId address;
    const Op load = Access(Opcode::kLoad, type, picked, ir::Bytes(type), linear_, &address);
    Keep(Emit1(load, {address}, type), type);
  }
}

// Ends the kernel: values that would otherwise be dead are combined into the last buffer's cell.
void Generator::StoreResults() {
  for (uint32_t i = random_.Between(1, 2); i > 0; --i) {
    StoreOwn();
  }
  ValueId digest = Int(Type::kI64, 1);
  const size_t count = std::min<size_t>(body_->pool.size(), 9);
  const std::vector<Slot> last(body_->pool.end() - static_cast<ptrdiff_t>(count), body_->pool.end());
  for (const Slot& slot : last) {
    ValueId bits = slot.id;
    if (!ir::IsInt(slot.type)) {
      bits =
          Convert(Opcode::kReinterpret, slot.type, NoNan(slot.type, bits), slot.type == Type::kF32 ? kI32 : Type::kI64);
    }
    if (ir::Bytes(slot.type) == 4) {
      bits = Convert(Opcode::kExtendU, kI32, bits, Type::kI64);
    }
    digest = Binary(Opcode::kAdd, Type::kI64,
                    Binary(Opcode::kMul, Type::kI64, digest, Int(Type::kI64, 0x9e3779b97f4a7c15)), bits);
  }
  ValueId address;
  const Op store = Access(Opcode::kStore, Type::kI64, digest_, 8, linear_, &address);
  Emit(store, std::array{address, digest}, {});
}

void Generator::BuildEntry() {
  Body body;
  body.function.name = "spmd";
  for (const ir::KernelParam& param : kernel_.module.params) {
    body.function.type.params.push_back(param.type);
  }
  body.builder.emplace(body.function);
  body.addresses.resize(buffers_.size());
  body.calls_left = 3;
  body_ = &body;
  const std::span<const ValueId> params = b().BeginBody();
  for (size_t i = 0; i < buffers_.size(); ++i) {
    body.addresses[i] = params[buffers_[i].param];
  }
  for (const auto& [param, type] : scalars_) {
    Keep(params[param], type, /*is_uniform=*/true);
  }
  std::array<ValueId, 3> ids;
  for (uint32_t d = 0; d < 3; ++d) {
    ids[d] = d < traits_.dimensions ? Emit1({.code = Opcode::kInstanceId}, {Int(kI32, d)}, kI32) : Int(kI32, 0);
    Keep(ids[d], kI32);
  }
  PlaceCells(ids[0], ids[1], ids[2]);
  OpenStack();
  AddQueries();
  LoadSeeds();
  AddEdges(ids[0]);
  budget_ = random_.Percent(60) ? random_.Between(3, 12) : random_.Between(10, 40);
  if (traits_.has_groups) {
    AllocateGroupMemory();
    GroupStatements(random_.Between(2, 6));
  } else {
    Statements(random_.Between(3, 14));
  }
  StoreResults();
  CloseStack();
  b().Return({});
  b().End();
  kernel_.module.functions[0] = std::move(body.function);
  body_ = nullptr;
}

Kernel Generator::Generate() && {
  PickTraits();
  PickBuffers();
  AddScalars();
  AddTable();
  AddStack();
  PickHelpers();
  kernel_.module.entry = ir::FunctionId(uint32_t{0});
  kernel_.module.functions.emplace_back();
  for (const Helper& helper : helpers_) {
    BuildHelper(helper);
  }
  BuildEntry();
  return std::move(kernel_);
}

Kernel Generate(uint64_t seed) { return Generator(seed).Generate(); }

}  // namespace hpvm::spmd
