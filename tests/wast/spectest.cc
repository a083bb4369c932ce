// SPDX-License-Identifier: Apache-2.0
// The modules are assembled as bytes, so that the tool needs no text parser; their meaning is beside them.
#include "tests/wast/spectest.h"

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace hpvm::wast {
namespace {

using ByteList = std::vector<uint8_t>;

// Value types of the binary format, kinds of exports, and other bytes.
enum : uint8_t { kI32 = 0x7f, kI64 = 0x7e, kF32 = 0x7d, kF64 = 0x7c, kFuncRef = 0x70, kFunctionType = 0x60 };
enum : uint8_t { kFunction = 0, kTable = 1, kMemory = 2, kGlobal = 3 };
enum : uint8_t { kConstant = 0, kHasMaximum = 1, kShared = 2, kEnd = 0x0b };
enum : uint8_t { kTypes = 1, kFunctions = 3, kTables = 4, kMemories = 5, kGlobals = 6, kExports = 7, kCode = 10 };

void Append(ByteList& to, const ByteList& from) { to.insert(to.end(), from.begin(), from.end()); }

// Numbers of at most 14 bits are enough here.
void AppendNumber(ByteList& to, size_t number) {
  if (number >= 128) {
    to.push_back(static_cast<uint8_t>(0x80 | (number & 0x7f)));
    number >>= 7;
  }
  to.push_back(static_cast<uint8_t>(number));
}

void AppendSection(ByteList& module, uint8_t id, std::initializer_list<ByteList> entries) {
  ByteList content;
  AppendNumber(content, entries.size());
  for (const ByteList& entry : entries) {
    Append(content, entry);
  }
  module.push_back(id);
  AppendNumber(module, content.size());
  Append(module, content);
}

ByteList Header() { return {0, 'a', 's', 'm', 1, 0, 0, 0}; }

ByteList Function(std::initializer_list<uint8_t> params) {
  ByteList type{kFunctionType, static_cast<uint8_t>(params.size())};
  Append(type, params);
  type.push_back(0);  // No results.
  return type;
}

ByteList Export(std::string_view name, uint8_t kind, uint8_t index) {
  ByteList entry{static_cast<uint8_t>(name.size())};
  entry.insert(entry.end(), name.begin(), name.end());
  entry.insert(entry.end(), {kind, index});
  return entry;
}

// A constant: the instruction, its operand's bytes.
template <typename T>
ByteList FloatGlobal(uint8_t type, uint8_t instruction, T value) {
  ByteList entry{type, kConstant, instruction};
  uint8_t bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  entry.insert(entry.end(), bytes, bytes + sizeof(T));
  entry.push_back(kEnd);
  return entry;
}

ByteList MainModule() {
  ByteList module = Header();
  AppendSection(module, kTypes,
                {Function({}), Function({kI32}), Function({kI64}), Function({kF32}), Function({kF64}),
                 Function({kI32, kF32}), Function({kF64, kF64})});
  AppendSection(module, kFunctions, {{0}, {1}, {2}, {3}, {4}, {5}, {6}});
  AppendSection(module, kTables, {{kFuncRef, kHasMaximum, 10, 20}});
  AppendSection(module, kMemories, {{kHasMaximum, 1, 2}});
  const ByteList i666 = {0x9a, 0x05};
  AppendSection(module, kGlobals,
                {{kI32, kConstant, 0x41, i666[0], i666[1], kEnd},
                 {kI64, kConstant, 0x42, i666[0], i666[1], kEnd},
                 FloatGlobal(kF32, 0x43, 666.6f),
                 FloatGlobal(kF64, 0x44, 666.6)});
  AppendSection(module, kExports,
                {Export("print", kFunction, 0), Export("print_i32", kFunction, 1), Export("print_i64", kFunction, 2),
                 Export("print_f32", kFunction, 3), Export("print_f64", kFunction, 4),
                 Export("print_i32_f32", kFunction, 5), Export("print_f64_f64", kFunction, 6),
                 Export("table", kTable, 0), Export("memory", kMemory, 0), Export("global_i32", kGlobal, 0),
                 Export("global_i64", kGlobal, 1), Export("global_f32", kGlobal, 2), Export("global_f64", kGlobal, 3)});
  const ByteList nothing = {2, 0, kEnd};  // A body of two bytes: no locals, end.
  AppendSection(module, kCode, {nothing, nothing, nothing, nothing, nothing, nothing, nothing});
  return module;
}

// A separate module, because a module has one memory.
ByteList SharedMemoryModule() {
  ByteList module = Header();
  AppendSection(module, kMemories, {{kHasMaximum | kShared, 1, 2}});
  AppendSection(module, kExports, {Export("shared_memory", kMemory, 0)});
  return module;
}

}  // namespace

Status AddSpectest(Store& store) {
  Exports exports;
  for (const ByteList& module : {MainModule(), SharedMemoryModule()}) {
    const Instantiation made = store.Instantiate(module);
    if (made.instance == nullptr) {
      return Internal("The module \"spectest\" was refused. " + made.text);
    }
    exports.insert(made.instance->exports.begin(), made.instance->exports.end());
  }
  store.Register("spectest", exports);
  return absl::OkStatus();
}

}  // namespace hpvm::wast
