// SPDX-License-Identifier: Apache-2.0
// Tests linked modules in the interpreter: one store, selectors, segments, start functions, calls of other modules.
#include "compiler/front/wasm/testing/link.h"

#include <array>
#include <cstring>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "compiler/front/wasm/testing/wabt.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::wasm {
namespace {

using ir::TrapCode;
using testing::ElementsAre;

// A store of modules that import from each other by name.
class Store : public ir::HostCalls {
 public:
  Store() : state_(static_cast<uint8_t*>(calloc(kStoreStateBytes, 1)), free) {}

  struct Instance {
    std::string name;
    ModuleOutline outline;
    LinkedModule linked;
    std::unique_ptr<ir::Interpreter> interpreter;
    std::vector<uint8_t> memory;
    ir::InstanceStorage storage;
  };

  // Links and instantiates a module; returns how the instantiation ended.
  TrapCode Add(const std::string& name, const std::string& wat) {
    const std::vector<uint8_t> bytes = Assemble(wat);
    Diagnostics diagnostics;
    auto instance = std::make_unique<Instance>();
    instance->name = name;
    instance->outline = OutlineModule(bytes, diagnostics).value_or(ModuleOutline());
    Linkage linkage;
    linkage.signatures = &signatures_;
    linkage.memory_pages_max = 16;
    linkage.first_reference = next_reference_;
    linkage.state_begin = state_end_;
    for (const ModuleImport& import : instance->outline.imports) {
      Resolve(import, linkage, *instance);
    }
    auto linked = LinkModule(bytes, linkage, diagnostics);
    EXPECT_TRUE(linked) << ToString(diagnostics);
    if (!linked) {
      return TrapCode::kHost;
    }
    instance->linked = *std::move(linked);
    const Diagnostics faults = ir::Verify(instance->linked.module);
    EXPECT_TRUE(faults.empty()) << ToString(faults) << ir::Print(instance->linked.module);
    const ir::Module& module = instance->linked.module;
    for (const ir::DataSegment& segment : module.state) {
      EXPECT_GE(segment.address, state_end_);
      EXPECT_LE(segment.address + segment.bytes.size(), instance->linked.state_end);
      std::memcpy(state_.get() + segment.address, segment.bytes.data(), segment.bytes.size());
    }
    state_end_ = instance->linked.state_end;
    next_reference_ += static_cast<uint32_t>(module.references.size());
    if (instance->storage.memory == nullptr) {
      instance->memory.resize(module.memory_bytes_max);
      instance->storage = {instance->memory.data(), module.memory_bytes, module.memory_bytes_max, nullptr, nullptr};
    }
    instance->storage.state = state_.get();
    auto interpreter = ir::Interpreter::Create(module);
    EXPECT_TRUE(interpreter.ok()) << interpreter.status();
    instance->interpreter = std::make_unique<ir::Interpreter>(*std::move(interpreter));
    instances_.push_back(std::move(instance));
    return Run(*instances_.back(), 0);
  }

  TrapCode Run(Instance& instance, uint32_t selector) {
    ir::Launch launch;
    launch.arguments = {{nullptr, 0, selector}};
    launch.host = this;
    launch.instance = &instance.storage;
    const auto report = instance.interpreter->Run(launch);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->code : TrapCode::kHost;
  }

  // Calls an export with `slots`, which receive the results.
  TrapCode Call(const std::string& module, const std::string& name, std::vector<uint64_t>& slots) {
    for (const auto& instance : instances_) {
      for (const ModuleExport& item : instance->outline.exports) {
        if (instance->name == module && item.name == name) {
          std::memcpy(state_.get() + kCallArea, slots.data(), slots.size() * 8);
          const TrapCode code = Run(*instance, item.index + 1);
          slots.resize(8);
          std::memcpy(slots.data(), state_.get() + kCallArea, 64);
          return code;
        }
      }
    }
    ADD_FAILURE() << name;
    return TrapCode::kHost;
  }
  // Returns the low 32 bits of the only result.
  uint32_t Value(const std::string& module, const std::string& name, std::vector<uint64_t> slots = {}) {
    EXPECT_EQ(Call(module, name, slots), TrapCode::kNone) << name;
    return static_cast<uint32_t>(slots.empty() ? 0 : slots[0]);
  }

  TrapCode Call(uint32_t reference, uint32_t type, std::span<uint64_t> values) override {
    for (const auto& instance : instances_) {
      const ir::Module& m = instance->linked.module;
      if (reference - m.first_reference >= m.references.size()) {
        continue;
      }
      if (m.references[reference - m.first_reference].type != type) {
        return TrapCode::kIndirectCall;
      }
      std::vector<uint8_t> saved(state_.get() + kCallArea, state_.get() + kCallArea + kCallAreaBytes);
      std::memcpy(state_.get() + kCallArea, values.data(), values.size_bytes());
      const auto imports = instance->linked.functions.size() - m.references.size();
      const TrapCode code = Run(*instance, static_cast<uint32_t>(1 + imports + reference - m.first_reference));
      std::memcpy(values.data(), state_.get() + kCallArea, values.size_bytes());
      std::memcpy(state_.get() + kCallArea, saved.data(), saved.size());
      return code;
    }
    return TrapCode::kUninitializedElement;
  }

 private:
  void Resolve(const ModuleImport& import, Linkage& linkage, Instance& user) {
    for (const auto& instance : instances_) {
      for (const ModuleExport& item : instance->outline.exports) {
        if (instance->name != import.module || item.name != import.name) {
          continue;
        }
        const LinkedModule& from = instance->linked;
        switch (item.kind) {
          case ExternKind::kFunction:
            linkage.functions.push_back(from.functions[item.index]);
            return;
          case ExternKind::kGlobal:
            linkage.globals.push_back(from.globals[item.index]);
            return;
          case ExternKind::kTable:
            linkage.tables.push_back(from.tables[item.index]);
            linkage.table_capacities.push_back(from.table_capacities[item.index]);
            return;
          case ExternKind::kMemory:
            linkage.memory = instance->outline.memories[item.index].limits;
            user.storage = instance->storage;
            return;
        }
      }
    }
    ADD_FAILURE() << import.module << "." << import.name;
  }

  std::unique_ptr<uint8_t, void (*)(void*)> state_;
  std::vector<Signature> signatures_;
  std::vector<std::unique_ptr<Instance>> instances_;
  uint32_t next_reference_ = 1;
  uint32_t state_end_ = kCallArea + kCallAreaBytes;
};

// An outline lists a module's imports and exports.
TEST(LinkTest, Outlines) {
  Diagnostics diagnostics;
  const auto outline = OutlineModule(
      Assemble("(module (import \"a\" \"f\" (func (param i32 v128) (result externref)))"
               " (import \"a\" \"t\" (table 1 5 externref)) (import \"a\" \"m\" (memory 1 2 shared))"
               " (import \"b\" \"g\" (global (mut f64))) (table 7 funcref) (global v128 (v128.const i64x2 1 2))"
               " (export \"x\" (table 1)) (func (export \"y\") (param i64)))"),
      diagnostics);
  ASSERT_TRUE(outline) << ToString(diagnostics);
  ASSERT_EQ(outline->imports.size(), 4u);
  EXPECT_EQ(outline->imports[0].module, "a");
  EXPECT_EQ(outline->functions[0].signature.params, (std::vector{ValueType::kI32, ValueType::kV128}));
  EXPECT_EQ(outline->functions[0].signature.results, std::vector{ValueType::kExternRef});
  EXPECT_EQ(outline->functions[1].signature.params, std::vector{ValueType::kI64});
  ASSERT_EQ(outline->tables.size(), 2u);
  EXPECT_EQ(outline->tables[0].value, ValueType::kExternRef);
  EXPECT_EQ(outline->tables[0].limits.maximum, 5u);
  EXPECT_EQ(outline->tables[1].limits.initial, 7u);
  EXPECT_FALSE(outline->tables[1].limits.maximum);
  EXPECT_TRUE(outline->memories[0].limits.is_shared);
  EXPECT_TRUE(outline->globals[0].is_mutable);
  EXPECT_EQ(outline->globals[1].value, ValueType::kV128);
  ASSERT_EQ(outline->exports.size(), 2u);
  EXPECT_EQ(outline->exports[0].kind, ExternKind::kTable);
  EXPECT_EQ(outline->exports[0].index, 1u);
  EXPECT_EQ(outline->exports[1].index, 1u);
}

constexpr char kTables[] =
    "(module (type $i (func (result i32))) (type $l (func (result i64)))"
    " (table $t (export \"t\") 4 12 funcref) (table $x 2 externref) (table $g 0 funcref)"
    " (elem (table $t) (i32.const 1) func $one $two) (elem $p func $two $three) (elem $d declare func $wide)"
    " (func $one (result i32) (i32.const 1)) (func $two (result i32) (i32.const 2))"
    " (func $three (result i32) (i32.const 3)) (func $wide (result i64) (i64.const 4))"
    " (func (export \"call\") (param i32) (result i32) (call_indirect $t (type $i) (local.get 0)))"
    " (func (export \"size\") (result i32) (table.size $t))"
    " (func (export \"null\") (param i32) (result i32) (ref.is_null (table.get $t (local.get 0))))"
    " (func (export \"wide\") (param i32) (table.set $t (local.get 0) (ref.func $wide)))"
    " (func (export \"init\") (param i32 i32 i32) (table.init $t $p (local.get 0) (local.get 1) (local.get 2)))"
    " (func (export \"drop\") (elem.drop $p))"
    " (func (export \"copy\") (param i32 i32 i32) (table.copy $t $t (local.get 0) (local.get 1) (local.get 2)))"
    " (func (export \"copy_to_g\") (param i32 i32 i32) (table.copy $g $t (local.get 0) (local.get 1) (local.get 2)))"
    " (func (export \"fill\") (param i32 i32) (table.fill $t (local.get 0) (ref.func $two) (local.get 1)))"
    " (func (export \"grow\") (param i32) (result i32) (table.grow $t (ref.func $one) (local.get 0)))"
    " (func (export \"grow_g\") (param i32) (result i32) (table.grow $g (ref.null func) (local.get 0)))"
    " (func (export \"x\") (param externref) (result externref) (table.set $x (i32.const 1) (local.get 0))"
    "   (table.get $x (i32.const 1))))";

// Table instructions work and trap.
TEST(LinkTest, Tables) {
  Store store;
  ASSERT_EQ(store.Add("m", kTables), TrapCode::kNone);
  const auto call = [&](const std::string& name, std::vector<uint64_t> slots) { return store.Call("m", name, slots); };
  EXPECT_EQ(store.Value("m", "call", {1}), 1u);
  EXPECT_EQ(store.Value("m", "call", {2}), 2u);
  EXPECT_EQ(call("call", {0}), TrapCode::kUninitializedElement);
  EXPECT_EQ(call("call", {4}), TrapCode::kUndefinedElement);
  EXPECT_EQ(call("call", {0xffffffff}), TrapCode::kUndefinedElement);
  EXPECT_EQ(call("wide", {3}), TrapCode::kNone);
  EXPECT_EQ(call("call", {3}), TrapCode::kIndirectCall);
  EXPECT_EQ(call("wide", {4}), TrapCode::kTableOutOfBounds);
  EXPECT_EQ(store.Value("m", "null", {0}), 1u);
  EXPECT_EQ(store.Value("m", "null", {1}), 0u);
  EXPECT_EQ(call("null", {4}), TrapCode::kTableOutOfBounds);
  EXPECT_EQ(store.Value("m", "x", {77}), 77u);

  EXPECT_EQ(call("init", {0, 1, 1}), TrapCode::kNone);
  EXPECT_EQ(store.Value("m", "call", {0}), 3u);
  EXPECT_EQ(call("init", {3, 0, 2}), TrapCode::kTableOutOfBounds);
  EXPECT_EQ(call("call", {3}), TrapCode::kIndirectCall);  // Nothing was written.
  EXPECT_EQ(call("init", {0, 2, 1}), TrapCode::kTableOutOfBounds);
  EXPECT_EQ(call("init", {4, 2, 0}), TrapCode::kNone);
  EXPECT_EQ(call("drop", {}), TrapCode::kNone);
  EXPECT_EQ(call("init", {0, 0, 1}), TrapCode::kTableOutOfBounds);
  EXPECT_EQ(call("init", {0, 0, 0}), TrapCode::kNone);

  EXPECT_EQ(store.Value("m", "grow", {8}), 4u);
  EXPECT_EQ(store.Value("m", "grow", {1}), 0xffffffffu);
  EXPECT_EQ(store.Value("m", "grow", {0xffffffff}), 0xffffffffu);
  EXPECT_EQ(store.Value("m", "size"), 12u);
  EXPECT_EQ(store.Value("m", "call", {11}), 1u);
  // 3 1 2 w 1 1 1 1 1 1 1 1
  EXPECT_EQ(call("copy", {5, 0, 3}), TrapCode::kNone);
  EXPECT_EQ(call("copy", {6, 5, 3}), TrapCode::kNone);  // Overlapping upwards: 3 1 2 w 1 3 3 1 2 1 1 1
  EXPECT_EQ(store.Value("m", "call", {6}), 3u);
  EXPECT_EQ(store.Value("m", "call", {7}), 1u);
  EXPECT_EQ(store.Value("m", "call", {8}), 2u);
  EXPECT_EQ(call("copy", {5, 6, 3}), TrapCode::kNone);  // Downwards.
  EXPECT_EQ(store.Value("m", "call", {7}), 2u);
  EXPECT_EQ(call("copy", {10, 0, 3}), TrapCode::kTableOutOfBounds);
  EXPECT_EQ(call("copy", {0xffffffff, 0, 1}), TrapCode::kTableOutOfBounds);
  EXPECT_EQ(call("fill", {9, 3}), TrapCode::kNone);
  EXPECT_EQ(store.Value("m", "call", {11}), 2u);
  EXPECT_EQ(call("fill", {10, 3}), TrapCode::kTableOutOfBounds);
  EXPECT_EQ(store.Value("m", "grow_g", {2}), 0u);
  EXPECT_EQ(call("copy_to_g", {0, 0, 3}), TrapCode::kTableOutOfBounds);
  EXPECT_EQ(call("copy_to_g", {0, 0, 2}), TrapCode::kNone);
}

// A module imports functions, tables, globals and memories of another.
TEST(LinkTest, Imports) {
  Store store;
  ASSERT_EQ(
      store.Add("a",
                "(module (global $g (export \"g\") (mut i32) (i32.const 5)) (global (export \"c\") i32 (i32.const 2))"
                " (global (export \"v\") v128 (v128.const i32x4 1 2 3 4))"
                " (memory (export \"m\") 1 2) (table (export \"t\") 4 funcref)"
                " (type $i (func (result i32)))"
                " (func (export \"add\") (param i32 i64 v128) (result i64 v128)"
                "   (global.set $g (i32.add (global.get $g) (local.get 0))) (local.get 1) (local.get 2))"
                " (func (export \"trap\") (unreachable))"
                " (func (export \"call\") (param i32) (result i32) (call_indirect (type $i) (local.get 0))))"),
      TrapCode::kNone);
  ASSERT_EQ(store.Add("b",
                      "(module (import \"a\" \"add\" (func $add (param i32 i64 v128) (result i64 v128)))"
                      " (import \"a\" \"trap\" (func $trap)) (import \"a\" \"t\" (table $t 2 funcref))"
                      " (import \"a\" \"m\" (memory 1)) (import \"a\" \"g\" (global $g (mut i32)))"
                      " (import \"a\" \"c\" (global $c i32)) (import \"a\" \"v\" (global $v v128))"
                      " (global $own v128 (global.get $v)) (global $f funcref (ref.func $seven))"
                      " (elem (table $t) (global.get $c) func $seven) (data (global.get $c) \"xyz\")"
                      " (func $seven (result i32) (i32.const 7))"
                      " (func (export \"run\") (result i32 i64 v128) (local i64 v128)"
                      "   (call $add (i32.const 3) (i64.const 1234567890123) (global.get $own))"
                      "   (local.set 1) (local.set 0) (global.get $g) (local.get 0) (local.get 1))"
                      " (func (export \"byte\") (param i32) (result i32) (i32.load8_u (local.get 0)))"
                      " (func (export \"trap\") (call $trap))"
                      " (func (export \"put\") (param i32) (table.set $t (local.get 0) (global.get $f)))"
                      " (export \"again\" (func $add)))"),
            TrapCode::kNone);
  std::vector<uint64_t> slots;
  ASSERT_EQ(store.Call("b", "run", slots), TrapCode::kNone);
  EXPECT_EQ(static_cast<uint32_t>(slots[0]), 8u);
  EXPECT_EQ(slots[1], 1234567890123u);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(static_cast<uint32_t>(slots[2 + i]), i + 1);
  }
  EXPECT_EQ(store.Value("b", "byte", {3}), 'y');
  EXPECT_EQ(store.Value("a", "call", {2}), 7u);
  slots = {3};
  EXPECT_EQ(store.Call("a", "call", slots), TrapCode::kUninitializedElement);
  slots = {3};
  EXPECT_EQ(store.Call("b", "put", slots), TrapCode::kNone);
  EXPECT_EQ(store.Value("a", "call", {3}), 7u);
  slots = {};
  EXPECT_EQ(store.Call("b", "trap", slots), TrapCode::kUnreachable);
  slots = {1, 99, 0, 0, 0, 6};
  ASSERT_EQ(store.Call("b", "again", slots), TrapCode::kNone);
  EXPECT_EQ(slots[0], 99u);
  EXPECT_EQ(static_cast<uint32_t>(slots[4]), 6u);
}

// Segments apply in order until one traps; otherwise the start function runs.
TEST(LinkTest, Instantiation) {
  Store store;
  const std::string base =
      "(module (memory (export \"m\") 1) (table (export \"t\") 4 funcref)"
      " (func (export \"byte\") (param i32) (result i32) (i32.load8_u (local.get 0)))"
      " (func (export \"null\") (param i32) (result i32) (ref.is_null (table.get 0 (local.get 0)))))";
  const std::string imports =
      "(module (import \"a\" \"m\" (memory 1)) (import \"a\" \"t\" (table 4 funcref)) (func $f)";
  ASSERT_EQ(store.Add("a", base), TrapCode::kNone);
  EXPECT_EQ(store.Add("b", imports + "(elem (i32.const 0) $f) (elem (i32.const 4) $f) (data (i32.const 0) \"a\"))"),
            TrapCode::kTableOutOfBounds);
  EXPECT_EQ(store.Value("a", "null", {0}), 0u);
  EXPECT_EQ(store.Value("a", "byte", {0}), 0u);
  EXPECT_EQ(
      store.Add("c", imports + "(elem (i32.const 1) $f) (data (i32.const 0) \"a\") (data (i32.const 65535) \"bc\")"
                               " (func $s (i32.store8 (i32.const 1) (i32.const 9))) (start $s))"),
      TrapCode::kOutOfBounds);
  EXPECT_EQ(store.Value("a", "null", {1}), 0u);
  EXPECT_EQ(store.Value("a", "byte", {0}), 'a');
  EXPECT_EQ(store.Value("a", "byte", {1}), 0u);
  EXPECT_EQ(store.Value("a", "byte", {65535}), 0u);
  EXPECT_EQ(store.Add("d", imports + "(data (i32.const 0) \"z\") (func $s (i32.store8 (i32.const 1) (i32.load8_u"
                                     " (i32.const 0)))) (start $s))"),
            TrapCode::kNone);
  EXPECT_EQ(store.Value("a", "byte", {1}), 'z');
}

// memory.init and data.drop work; active segments are empty after instantiation.
TEST(LinkTest, PassiveData) {
  Store store;
  ASSERT_EQ(
      store.Add("m",
                "(module (memory 1) (data $p \"abc\") (data $a (i32.const 8) \"de\")"
                " (func (export \"init\") (param i32 i32 i32)"
                "   (memory.init $p (local.get 0) (local.get 1) (local.get 2)))"
                " (func (export \"active\") (param i32) (memory.init $a (i32.const 0) (i32.const 0) (local.get 0)))"
                " (func (export \"drop\") (data.drop $p) (data.drop $a))"
                " (func (export \"byte\") (param i32) (result i32) (i32.load8_u (local.get 0))))"),
      TrapCode::kNone);
  const auto call = [&](const std::string& name, std::vector<uint64_t> slots) { return store.Call("m", name, slots); };
  EXPECT_EQ(store.Value("m", "byte", {9}), 'e');
  EXPECT_EQ(call("init", {0, 1, 2}), TrapCode::kNone);
  EXPECT_EQ(store.Value("m", "byte", {1}), 'c');
  EXPECT_EQ(call("init", {0, 2, 2}), TrapCode::kOutOfBounds);
  EXPECT_EQ(call("init", {65535, 0, 2}), TrapCode::kOutOfBounds);
  EXPECT_EQ(call("active", {1}), TrapCode::kOutOfBounds);
  EXPECT_EQ(call("active", {0}), TrapCode::kNone);
  EXPECT_EQ(call("drop", {}), TrapCode::kNone);
  EXPECT_EQ(call("init", {0, 0, 1}), TrapCode::kOutOfBounds);
  EXPECT_EQ(call("init", {0, 0, 0}), TrapCode::kNone);
}

// An instance waits and notifies alone.
TEST(LinkTest, WaitAndNotify) {
  Store store;
  const std::string body =
      " (data (i32.const 8) \"\\05\")"
      " (func (export \"notify\") (param i32) (result i32) (memory.atomic.notify (local.get 0) (i32.const 1)))"
      " (func (export \"wait32\") (param i32 i32 i64) (result i32)"
      "   (memory.atomic.wait32 (local.get 0) (local.get 1) (local.get 2)))"
      " (func (export \"wait64\") (param i32 i64 i64) (result i32)"
      "   (memory.atomic.wait64 (local.get 0) (local.get 1) (local.get 2))))";
  ASSERT_EQ(store.Add("own", "(module (memory 1)" + body), TrapCode::kNone);
  ASSERT_EQ(store.Add("shared", "(module (memory 1 1 shared)" + body), TrapCode::kNone);
  const auto call = [&](const std::string& module, const std::string& name, std::vector<uint64_t> slots) {
    return store.Call(module, name, slots);
  };
  for (const char* module : {"own", "shared"}) {
    EXPECT_EQ(store.Value(module, "notify", {8}), 0u);
    EXPECT_EQ(call(module, "notify", {65536}), TrapCode::kOutOfBounds);
    EXPECT_EQ(call(module, "notify", {9}), TrapCode::kMisalignedAtomic);
  }
  EXPECT_EQ(call("own", "wait32", {8, 5, 0}), TrapCode::kExpectedShared);
  EXPECT_EQ(call("own", "wait64", {8, 5, 0}), TrapCode::kExpectedShared);
  EXPECT_EQ(store.Value("shared", "wait32", {8, 4, ~uint64_t{0}}), 1u);
  EXPECT_EQ(store.Value("shared", "wait32", {8, 5, 0}), 2u);
  EXPECT_EQ(store.Value("shared", "wait64", {8, 5, 1000}), 2u);
  EXPECT_EQ(call("shared", "wait64", {8, 5, ~uint64_t{0}}), TrapCode::kWaitsForever);
  EXPECT_EQ(call("shared", "wait64", {4, 5, 0}), TrapCode::kMisalignedAtomic);
  EXPECT_EQ(call("shared", "wait32", {65536, 5, 0}), TrapCode::kOutOfBounds);
}

}  // namespace
}  // namespace hpvm::wasm
