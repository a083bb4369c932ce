// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <vector>

#include "compiler/ir/op_syntax.h"
#include "compiler/ir/text/text.h"

namespace hpvm::ir {
namespace {

constexpr uint32_t kUnnumbered = 0xffffffffu;
// Deeper regions are not indented further, so that the text grows linearly with depth.
constexpr size_t kIndentMax = 24;

std::string Hex(uint64_t bits) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof(digits), bits, 16).ptr;
  return "0x" + std::string(digits, end);
}

std::string HexBytes(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// Printable ASCII is copied; any other byte becomes \hh.
std::string Quoted(std::string_view name) {
  std::string text = "\"";
  for (const char c : name) {
    if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
      text += c;
    } else {
      const uint8_t byte = static_cast<uint8_t>(c);
      text += '\\';
      text += HexBytes({&byte, 1});
    }
  }
  return text + '"';
}

std::string Types(std::span<const Type> types) {
  std::string text = "(";
  for (size_t i = 0; i < types.size(); ++i) {
    text += i == 0 ? "" : ", ";
    text += Name(types[i]);
  }
  return text + ")";
}

class FunctionPrinter {
 public:
  FunctionPrinter(const Function& function, std::string& out)
      : f_(function),
        out_(out),
        values_(function.values.size(), kUnnumbered),
        blocks_(function.ops.size(), kUnnumbered) {}

  void Body() {
    out_ += '{';
    if (f_.body.valid()) {
      open_.push_back({f_.body});
    }
    // Not recursive, because the module's regions may nest deeply.
    while (!open_.empty()) {
      Open& top = open_.back();
      const Region& region = f_.region(top.region);
      if (top.next == region.ops.size()) {
        CloseRegion();
        continue;
      }
      const OpId id = region.ops[top.next++];
      const Op& op = f_.op(id);
      Line();
      if (OwnsRegions(op.code)) {
        BlockHeader(id);
        continue;
      }
      IsTerminator(op.code) ? Terminator(op) : Plain(op);
      PrintSource(op);
    }
    out_ += f_.body.valid() ? "\n" : "}\n";
  }
  // Prints "(%0: i32, %1: f32)" and numbers these values.
  void Params() {
    out_ += '(';
    for (uint32_t i = 0; f_.body.valid() && i < f_.region(f_.body).param_count; ++i) {
      out_ += i == 0 ? "" : ", ";
      Define(ValueId(f_.region(f_.body).first_param.index + i));
    }
    out_ += ')';
  }

 private:
  struct Open {
    RegionId region;
    size_t next = 0;
  };

  void Line() {
    out_ += '\n';
    out_.append(2 * std::min(open_.size(), kIndentMax), ' ');
  }
  void Define(ValueId value) {
    values_[value.index] = next_value_++;
    Use(value);
    out_ += ": ";
    out_ += Name(f_.type_of(value));
  }
  void Use(ValueId value) {
    const uint32_t number = value.index < values_.size() ? values_[value.index] : kUnnumbered;
    out_ += '%';
    out_ += number == kUnnumbered ? "undefined" : std::to_string(number);
  }
  void Uses(std::span<const ValueId> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      out_ += i == 0 ? "" : ", ";
      Use(values[i]);
    }
  }
  void Label(OpId op) {
    const uint32_t number = op.index < blocks_.size() ? blocks_[op.index] : kUnnumbered;
    out_ += 'b';
    out_ += number == kUnnumbered ? "_undefined" : std::to_string(number);
  }
  void Results(const Op& op) {
    for (uint32_t i = 0; i < op.result_count; ++i) {
      out_ += i == 0 ? "" : ", ";
      Define(ValueId(op.first_result.index + i));
    }
    out_ += op.result_count == 0 ? "" : " = ";
  }
  void Plain(const Op& op) {
    Results(op);
    out_ += Info(op.code).text;
    if (HasType(op.code)) {
      out_ += '.';
      out_ += Name(op.type);
    }
    Immediate(op);
    if (HasSpace(op.code)) {
      if (op.width != UsualWidth(op)) {
        out_ += " w" + std::to_string(op.width);
      }
      out_ += op.sign ? " signed" : "";
      out_ += op.is_inside ? " inside " : " ";
      out_ += Name(op.space);
      if (op.space == Space::kParam || op.space == Space::kPrivate) {
        out_ += '(' + std::to_string(op.space_index) + ')';
      }
    }
    const bool is_call = Info(op.code).family == Family::kCall;
    out_ += is_call ? " (" : op.operand_count > 0 ? " " : "";
    const auto operands = f_.operands_of(op);
    if (HasSpace(op.code) && op.imm != 0 && !operands.empty()) {
      Use(operands[0]);
      out_ += " + " + std::to_string(op.imm) + (operands.size() > 1 ? ", " : "");
      Uses(operands.subspan(1));
    } else {
      Uses(operands);
    }
    out_ += is_call ? ")" : "";
  }
  void Immediate(const Op& op) {
    if (op.code == Opcode::kConst) {
      out_ += ' ';
      if (op.type == Type::kI32 && op.imm <= 0xffffffffu) {
        out_ += std::to_string(static_cast<int32_t>(op.imm));
      } else if (op.type == Type::kI64) {
        out_ += std::to_string(static_cast<int64_t>(op.imm));
      } else {
        out_ += Hex(op.imm);
      }
    }
    if (const char prefix = IndexPrefix(op.code); prefix != 0) {
      out_ += ' ';
      out_ += prefix;
      out_ += std::to_string(op.imm);
    }
  }
  void BlockHeader(OpId id) {
    const Op& op = f_.op(id);
    Results(op);
    out_ += Info(op.code).text;
    out_ += ' ';
    blocks_[id.index] = next_block_++;
    Label(id);
    if (op.code == Opcode::kIf) {
      out_ += ' ';
      Uses(f_.operands_of(op));
    } else {
      const Region& body = f_.region(op.body);
      const auto arguments = f_.operands_of(op);
      out_ += " (";
      for (uint32_t i = 0; i < body.param_count; ++i) {
        out_ += i == 0 ? "" : ", ";
        Define(ValueId(body.first_param.index + i));
        out_ += " = ";
        Use(i < arguments.size() ? arguments[i] : ValueId());
      }
      out_ += ')';
    }
    PrintSource(op);
    out_ += " {";
    open_.push_back({op.body});
  }
  void Terminator(const Op& op) {
    out_ += Info(op.code).text;
    auto values = f_.operands_of(op);
    const auto targets = f_.targets_of(op);
    if (op.code == Opcode::kTrap) {
      out_ += ' ' + std::to_string(op.imm);
      return;
    }
    if (op.code == Opcode::kBrTable) {
      out_ += ' ';
      Use(values.empty() ? ValueId() : values[0]);
      values = values.subspan(values.empty() ? 0 : 1);
      out_ += " [";
      for (size_t i = 0; i < targets.size(); ++i) {
        out_ += i == 0 ? "" : ", ";
        PrintTarget(targets[i]);
      }
      out_ += ']';
    } else if (op.code != Opcode::kReturn) {
      out_ += ' ';
      Label(targets.empty() ? OpId() : targets[0].op);
    }
    out_ += " (";
    Uses(values);
    out_ += ')';
  }
  void PrintTarget(const Target& target) {
    out_ += target.is_continue ? "continue " : "";
    Label(target.op);
  }
  void PrintSource(const Op& op) {
    if (op.source != 0 || op.origin != 0) {
      out_ += " @" + std::to_string(op.source);
    }
    if (op.origin != 0) {
      out_ += " in f" + std::to_string(op.origin - 1);
    }
  }
  void CloseRegion() {
    const RegionId closed = open_.back().region;
    open_.pop_back();
    const OpId owner = f_.region(closed).owner;
    Line();
    if (owner.valid() && f_.op(owner).code == Opcode::kIf && f_.op(owner).body == closed) {
      out_ += "} else {";
      open_.push_back({f_.op(owner).otherwise});
    } else {
      out_ += '}';
    }
  }

  const Function& f_;
  std::string& out_;
  std::vector<uint32_t> values_;
  std::vector<uint32_t> blocks_;
  uint32_t next_value_ = 0;
  uint32_t next_block_ = 0;
  std::vector<Open> open_;
};

void PrintFunction(const Module& module, FunctionId id, std::string& out) {
  const Function& function = module.function(id);
  out += "func f" + std::to_string(id.index) + ' ' + Quoted(function.name) + ' ';
  if (function.fast_math != FastMath::kAll) {
    out += function.fast_math == FastMath::kContract ? "contract " : "exact ";
  }
  FunctionPrinter printer(function, out);
  printer.Params();
  out += " -> " + Types(function.type.results) + ' ';
  printer.Body();
}

std::string FunctionName(FunctionId id) { return id.valid() ? 'f' + std::to_string(id.index) : "null"; }

void PrintStateAndReferences(const Module& module, std::string& out) {
  if (module.stack_pointer.has_value()) {
    out += "stack_pointer g" + std::to_string(*module.stack_pointer) + '\n';
  }
  if (module.stack_frame.has_value()) {
    out += "stack_frame " + std::to_string(module.stack_frame->begin) + ' ' + std::to_string(module.stack_frame->end) +
           ' ' + std::to_string(module.stack_frame->unit) + '\n';
  }
  if (module.state_bytes != 0) {
    out += "state " + std::to_string(module.state_bytes) + '\n';
  }
  for (const DataSegment& segment : module.state) {
    out += "state_data " + std::to_string(segment.address) + " \"" + HexBytes(segment.bytes) + "\"\n";
  }
  for (const std::vector<uint8_t>& segment : module.passive_segments) {
    out += "segment \"" + HexBytes(segment) + "\"\n";
  }
  for (const FunctionType& type : module.reference_types) {
    out += "reftype " + Types(type.params) + " -> " + Types(type.results) + '\n';
  }
  if (module.first_reference != 1) {
    out += "first_reference " + std::to_string(module.first_reference) + '\n';
  }
  for (const Reference& reference : module.references) {
    out += "ref " + FunctionName(reference.function) + " r" + std::to_string(reference.type) + '\n';
  }
  for (const std::string& format : module.formats) {
    out += "format " + Quoted(format) + '\n';
  }
}

void PrintTables(const Module& module, std::string& out) {
  for (const DataSegment& segment : module.data) {
    out += "data " + std::to_string(segment.address) + " \"" + HexBytes(segment.bytes) + "\"\n";
  }
  for (const Global& global : module.globals) {
    out += global.is_mutable ? "global mut " : "global ";
    out += std::string(Name(global.type)) + ' ' + Hex(global.init) + '\n';
  }
  PrintStateAndReferences(module, out);
  for (const KernelParam& param : module.params) {
    const std::string_view access = param.is_writable ? "buffer inout" : "buffer in";
    const std::string_view kind = param.is_buffer ? access : Name(param.type);
    out += "param " + std::string(kind) + ' ' + Quoted(param.name) + '\n';
  }
}

}  // namespace

std::string Print(const Module& module) {
  std::string out = "module " + Quoted(module.name) + (module.is_memory64 ? " memory64\n" : "\n");
  if (module.memory_bytes != 0 || module.memory_bytes_max != 0) {
    out += "memory " + std::to_string(module.memory_bytes) + ' ' + std::to_string(module.memory_bytes_max) + '\n';
  }
  out += module.uses_barrier ? "uses barrier\n" : "";
  out += module.uses_group_memory ? "uses group_memory\n" : "";
  out += module.has_separate_buffers ? "uses separate_buffers\n" : "";
  out += module.is_linked ? "uses linked\n" : "";
  PrintTables(module, out);
  out += "entry " + FunctionName(module.entry) + '\n';
  for (uint32_t i = 0; i < module.functions.size(); ++i) {
    PrintFunction(module, FunctionId(i), out);
  }
  return out;
}

std::string Print(const Module& module, FunctionId function) {
  std::string out;
  PrintFunction(module, function, out);
  return out;
}

}  // namespace hpvm::ir
