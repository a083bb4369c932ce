// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/spirv/types.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "compiler/front/spirv/limits.h"

#include <spirv/unified1/spirv.hpp>

namespace hpvm::spirv {
namespace {

using Kind = Type::Kind;

uint64_t AddSaturating(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

uint64_t MultiplySaturating(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

Kind KindOf(uint16_t opcode) {
  constexpr std::pair<spv::Op, Kind> kKinds[] = {
      {spv::OpTypeVoid, Kind::kVoid},         {spv::OpTypeBool, Kind::kBool},
      {spv::OpTypeInt, Kind::kInt},           {spv::OpTypeFloat, Kind::kFloat},
      {spv::OpTypeVector, Kind::kVector},     {spv::OpTypeMatrix, Kind::kMatrix},
      {spv::OpTypeArray, Kind::kArray},       {spv::OpTypeRuntimeArray, Kind::kRuntimeArray},
      {spv::OpTypeStruct, Kind::kStruct},     {spv::OpTypePointer, Kind::kPointer},
      {spv::OpTypeFunction, Kind::kFunction}, {spv::OpTypeEvent, Kind::kOther},
  };
  const auto found = std::ranges::find(kKinds, static_cast<spv::Op>(opcode), &std::pair<spv::Op, Kind>::first);
  return found == std::end(kKinds) ? Kind::kNone : found->second;
}

}  // namespace

std::optional<uint64_t> IntegerOf(const Module& module, const Types& types, uint32_t id) {
  const Instruction* constant = module.Find(id);
  if (constant == nullptr || types.of(*constant).kind != Kind::kInt) {
    return std::nullopt;
  }
  if (constant->opcode == spv::OpConstantNull) {
    return 0;
  }
  if (constant->opcode != spv::OpConstant && constant->opcode != spv::OpSpecConstant) {
    return std::nullopt;
  }
  const uint32_t width = types.of(*constant).width;
  const uint64_t low = module.Word(*constant, 2);
  return width > 32   ? low | uint64_t{module.Word(*constant, 3)} << 32
         : width < 32 ? low & ((uint64_t{1} << width) - 1)
                      : low;
}

void Types::ReadType(const Module& module, const Instruction& instruction, ModuleFaults& faults) {
  const Kind kind = KindOf(instruction.opcode);
  if (kind == Kind::kNone) {
    return;
  }
  Type type;
  type.kind = kind;
  const auto fail = [&](const std::string& what) { faults.AddAt(instruction.at, Describe(instruction) + what); };
  // Every type but a pointer refers only to types before it, so that no type contains itself.
  const auto inner = [&](uint32_t id) -> const Type& {
    const Type& part = of(id);
    if (part.kind == Kind::kNone) {
      fail(" names id " + std::to_string(id) + ", which is not a type that is defined before it.");
    }
    type.depth = std::max(type.depth, part.depth + 1);
    return part;
  };
  switch (kind) {
    case Kind::kInt:
    case Kind::kFloat:
      type.width = module.Word(instruction, 1);
      if (type.width != 8 && type.width != 16 && type.width != 32 && type.width != 64) {
        return fail(" has a width of " + std::to_string(type.width) + " bits; 8, 16, 32 and 64 are accepted.");
      }
      type.bytes = type.width / 8;
      break;
    case Kind::kBool:
      type.bytes = 1;
      break;
    case Kind::kVector:
    case Kind::kMatrix:
      type.element = module.Word(instruction, 1);
      type.count = module.Word(instruction, 2);
      if (type.count < 2 || type.count > 16) {
        return fail(" has " + std::to_string(type.count) + " components; 2 to 16 are possible.");
      }
      type.bytes = MultiplySaturating(inner(type.element).bytes, type.count);
      break;
    case Kind::kArray: {
      type.element = module.Word(instruction, 1);
      const std::optional<uint64_t> length = IntegerOf(module, *this, module.Word(instruction, 2));
      if (!length.has_value()) {
        return fail(" has a length that is not a simple integer constant.");
      }
      type.count = *length;
      type.bytes = MultiplySaturating(inner(type.element).bytes, type.count);
      break;
    }
    case Kind::kRuntimeArray:
      type.element = module.Word(instruction, 1);
      type.bytes = inner(type.element).bytes;  // A lower bound.
      break;
    case Kind::kStruct:
      if (instruction.count - 2u > limits::kMembersMax) {
        return fail(" has " + std::to_string(instruction.count - 2) + " members; the limit is " +
                    std::to_string(limits::kMembersMax) + ".");
      }
      for (uint32_t i = 1; i + 1 < instruction.count; ++i) {
        type.members.push_back(module.Word(instruction, i));
        type.bytes = AddSaturating(type.bytes, inner(type.members.back()).bytes);
      }
      break;
    case Kind::kPointer:
      type.storage = module.Word(instruction, 1);
      type.element = module.Word(instruction, 2);
      inner(type.element);
      type.bytes = 8;
      break;
    case Kind::kFunction:
      type.element = module.Word(instruction, 1);
      inner(type.element);
      for (uint32_t i = 2; i + 1 < instruction.count; ++i) {
        type.members.push_back(module.Word(instruction, i));
        inner(type.members.back());
      }
      break;
    default:
      break;
  }
  if (type.depth > limits::kTypeDepthMax) {
    return fail(" nests types " + std::to_string(type.depth) + " deep; the limit is " +
                std::to_string(limits::kTypeDepthMax) + ".");
  }
  types_[instruction.result] = std::move(type);
}

Types Types::Read(const Module& module, ModuleFaults& faults) {
  Types types;
  types.types_.resize(module.bound);
  // A type of a few words can have thousands of members; the words of the module bound all members together.
  for (const Instruction& instruction : module.instructions) {
    if (instruction.opcode == spv::OpFunction || faults.any()) {
      break;
    }
    types.ReadType(module, instruction, faults);
  }
  return types;
}

std::string Types::Name(uint32_t id) const {
  const Type& type = of(id);
  const std::string width = std::to_string(type.width) + "-bit ";
  switch (type.kind) {
    case Kind::kVoid:
      return "nothing";
    case Kind::kBool:
      return "a truth value";
    case Kind::kInt:
      return "a " + width + "integer";
    case Kind::kFloat:
      return "a " + width + "float";
    case Kind::kVector:
      return "a vector of " + std::to_string(type.count) + " x " + Name(type.element).substr(2);
    case Kind::kMatrix:
      return "a matrix of " + std::to_string(type.count) + " columns";
    case Kind::kArray:
      return "an array of " + std::to_string(type.count) + " elements";
    case Kind::kRuntimeArray:
      return "an array without a length";
    case Kind::kStruct:
      return "a struct of " + std::to_string(type.members.size()) + " members";
    case Kind::kPointer:
      return "a pointer";
    case Kind::kFunction:
      return "a function";
    default:
      return "a type that cannot be passed";
  }
}

}  // namespace hpvm::spirv
