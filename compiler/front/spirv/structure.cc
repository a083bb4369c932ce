// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/spirv/structure.h"

#include "compiler/front/spirv/limits.h"

#include <spirv/unified1/spirv.hpp>

namespace hpvm::spirv {
namespace {

uint64_t AddSaturating(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

bool IsConstant(uint16_t opcode) { return opcode >= spv::OpConstantTrue && opcode <= spv::OpSpecConstantOp; }

std::string Above(const char* what, uint64_t value, uint64_t limit, const char* unit) {
  return std::string(what) + " (" + std::to_string(value) + (*unit == 0 ? "" : " ") + unit + ") exceeds the limit (" +
         std::to_string(limit) + ").";
}

// Makes one pass over all instructions and keeps the state that is needed between them.
class Scan {
 public:
  Scan(const Module& module, const Types& types, const GpuTarget& target, ModuleFaults& faults)
      : module_(module), types_(types), target_(target), faults_(faults) {}

  Structure Run() {
    result_.function_of.resize(module_.bound);
    for (uint32_t i = 0; i < module_.instructions.size() && !faults_.any(); ++i) {
      Visit(i, module_.instructions[i]);
    }
    if (in_function_ && !faults_.any()) {
      faults_.Add("The module ends inside a function: it is cut off.");
    }
    if (!faults_.any()) {
      ResolveCalls();
    }
    return std::move(result_);
  }

 private:
  void Fail(const Instruction& at, const std::string& what) { faults_.AddAt(at.at, Describe(at) + what); }

  void Visit(uint32_t index, const Instruction& instruction) {
    CheckValue(instruction);
    switch (instruction.opcode) {
      case spv::OpVariable:
        return AddVariable(instruction);
      case spv::OpFunction:
        if (in_function_) {
          return Fail(instruction, " begins inside another function.");
        }
        in_function_ = true;
        result_.functions.push_back({.id = instruction.result, .first = index, .last = index, .calls = {}});
        result_.function_of[instruction.result] = static_cast<uint32_t>(result_.functions.size());
        return;
      case spv::OpFunctionEnd:
        if (!in_function_) {
          return Fail(instruction, " ends no function.");
        }
        in_function_ = false;
        merges_.clear();
        result_.functions.back().last = index;
        return;
      case spv::OpFunctionCall:
        if (!in_function_) {
          return Fail(instruction, " stands outside every function.");
        }
        // Calls are recorded by id for now, because callees may follow their callers.
        result_.functions.back().calls.push_back(module_.Word(instruction, 2));
        call_sites_.push_back(index);
        return;
      case spv::OpSwitch:
        if (instruction.count / 2u > limits::kSwitchCasesMax) {
          Fail(instruction, Above(" has cases whose number", instruction.count / 2u, limits::kSwitchCasesMax, ""));
        }
        return;
      case spv::OpLoopMerge:
      case spv::OpSelectionMerge:
        merges_.push_back(module_.Word(instruction, 0));
        if (merges_.size() > limits::kNestingMax) {
          Fail(instruction, " nests constructs " + std::to_string(merges_.size()) + " deep; the limit is " +
                                std::to_string(limits::kNestingMax) + ".");
        }
        return;
      case spv::OpLabel:
        return LeaveConstructs(instruction.result);
      default:
        return;
    }
  }

  // Blocks stand in an order of dominance, so that a merge block ends every construct opened since its merge
  // instruction.
  void LeaveConstructs(uint32_t label) {
    for (size_t i = merges_.size(); i > 0; --i) {
      if (merges_[i - 1] == label) {
        merges_.resize(i - 1);
      }
    }
  }

  void CheckValue(const Instruction& instruction) {
    const Type& type = types_.of(instruction);
    if (instruction.type != 0 && type.kind == Type::Kind::kNone) {
      return Fail(instruction, " names id " + std::to_string(instruction.type) + " as its type, which is not a type.");
    }
    if (IsConstant(instruction.opcode)) {
      constant_bytes_ = AddSaturating(constant_bytes_, type.bytes);
      if (constant_bytes_ > limits::kConstantBytesMax) {
        Fail(instruction,
             Above(": the size of all constants up to here", constant_bytes_, limits::kConstantBytesMax, "bytes"));
      }
    } else if (type.bytes > limits::kValueBytesMax) {
      Fail(instruction, Above(" computes a value whose size", type.bytes, limits::kValueBytesMax, "bytes"));
    }
  }

  void AddVariable(const Instruction& instruction) {
    const Type& pointer = types_.of(instruction);
    if (pointer.kind != Type::Kind::kPointer || pointer.storage != module_.Word(instruction, 2)) {
      return Fail(instruction, " is of a type that is not a pointer to its storage class.");
    }
    const uint64_t bytes = types_.of(pointer.element).bytes;
    switch (pointer.storage) {
      case spv::StorageClassFunction:
      case spv::StorageClassPrivate:
        result_.private_bytes = AddSaturating(result_.private_bytes, bytes);
        if (result_.private_bytes > limits::kPrivateBytesMax) {
          Fail(instruction, Above(": the private memory of all variables up to here", result_.private_bytes,
                                  limits::kPrivateBytesMax, "bytes"));
        }
        return;
      case spv::StorageClassWorkgroup:
        result_.local_bytes = AddSaturating(result_.local_bytes, bytes);
        if (result_.local_bytes > target_.local_bytes_max) {
          Fail(instruction, ": the group memory of all variables up to here (" + std::to_string(result_.local_bytes) +
                                " bytes) is more than the device has (" + std::to_string(target_.local_bytes_max) +
                                " bytes).");
        }
        return;
      default:
        if (module_.flavour == Flavour::kKernel && bytes > limits::kConstantBytesMax) {
          Fail(instruction, Above(" is a variable whose size", bytes, limits::kConstantBytesMax, "bytes"));
        }
    }
  }

  // Turns ids into indices; then visits callees before callers, which finds recursion and adds up costs.
  void ResolveCalls() {
    size_t site = 0;
    for (Function& function : result_.functions) {
      for (uint32_t& call : function.calls) {
        const Instruction& at = module_.instructions[call_sites_[site++]];
        const uint32_t callee = call < result_.function_of.size() ? result_.function_of[call] : 0;
        if (callee == 0) {
          return Fail(at, " calls id " + std::to_string(call) + ", which is not a function of the module.");
        }
        call = callee - 1;
      }
    }
    CostFunctions();
  }

  void CostFunctions() {
    enum class State : uint8_t { kNew, kOpen, kDone };
    std::vector<State> state(result_.functions.size(), State::kNew);
    std::vector<uint64_t> cost(result_.functions.size());
    std::vector<std::pair<uint32_t, size_t>> open;  // Pairs of a function and the number of its calls that are done.
    for (uint32_t root = 0; root < result_.functions.size() && !faults_.any(); ++root) {
      if (state[root] == State::kNew) {
        open.push_back({root, 0});
        state[root] = State::kOpen;
      }
      while (!open.empty()) {
        auto& [index, done] = open.back();
        const Function& function = result_.functions[index];
        if (done == function.calls.size()) {
          cost[index] = function.last - function.first;
          for (const uint32_t call : function.calls) {
            cost[index] = AddSaturating(cost[index], cost[call]);
          }
          if (cost[index] > limits::kInlinedInstructionsMax) {
            return Fail(module_.instructions[function.first],
                        Above(" begins a function whose instructions, once calls stand for their callees,", cost[index],
                              limits::kInlinedInstructionsMax, ""));
          }
          state[index] = State::kDone;
          open.pop_back();
          continue;
        }
        const uint32_t callee = function.calls[done++];
        if (state[callee] == State::kOpen) {
          return Fail(module_.instructions[function.first],
                      " begins a function that calls itself, directly or through other functions; devices have no "
                      "stack for recursion.");
        }
        if (state[callee] == State::kNew) {
          state[callee] = State::kOpen;
          open.push_back({callee, 0});
        }
      }
    }
  }

  const Module& module_;
  const Types& types_;
  const GpuTarget& target_;
  ModuleFaults& faults_;
  Structure result_;
  bool in_function_ = false;
  uint64_t constant_bytes_ = 0;
  std::vector<uint32_t> merges_;
  std::vector<uint32_t> call_sites_;
};

}  // namespace

std::vector<bool> Structure::ReachedFrom(uint32_t index) const {
  std::vector<bool> reached(functions.size());
  std::vector<uint32_t> open{index};
  reached[index] = true;
  while (!open.empty()) {
    const uint32_t at = open.back();
    open.pop_back();
    for (const uint32_t call : functions[at].calls) {
      if (!reached[call]) {
        reached[call] = true;
        open.push_back(call);
      }
    }
  }
  return reached;
}

Structure CheckStructure(const Module& module, const Types& types, const GpuTarget& target, ModuleFaults& faults) {
  return Scan(module, types, target, faults).Run();
}

}  // namespace hpvm::spirv
