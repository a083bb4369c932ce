// SPDX-License-Identifier: Apache-2.0
// Compares memory, atomics, and the dirty granules of module memory and their restoring with the interpreter.
#include <gtest/gtest.h>

#include "compiler/back/llvm/testing/compare.h"

namespace hpvm::cpu {
namespace {

using ir::Opcode;
using ir::Space;
using ir::TrapCode;
using ir::Type;
using testing::Compared;
using testing::ImageRun;

// One access: r[0] = op(p + offset, ...), p being parameter 1's address in the given space.
struct AccessForm {
  Opcode code = Opcode::kLoad;
  Type type = Type::kI32;
  uint8_t width = 4;
  bool sign = false;
  Space space = Space::kFlat;
  uint64_t imm = 0;
  bool is_memory64 = false;
  bool is_writable = true;
};

std::string ToString(const AccessForm& form) {
  return std::string(ir::Info(form.code).text) + "." + std::string(ir::Name(form.type)) + " w" +
         std::to_string(form.width) + (form.sign ? " signed " : " ") + std::string(ir::Name(form.space)) + " + " +
         std::to_string(form.imm) + (form.is_memory64 ? " memory64" : "");
}

// Parameters: r (results), p (the buffer), o (offset or address), v and w (operands). Flat: address = p + o; param: o;
// module: o.
ir::Module KernelOf(const AccessForm& form) {
  ir::Module module;
  module.name = "access";
  module.is_memory64 = form.is_memory64;
  module.memory_bytes = module.memory_bytes_max = 65536;
  Type address = module.address_type();
  module.params = {{"r", true, true, address},
                   {"p", true, form.is_writable, address},
                   {"o", false, true, address},
                   {"v", false, true, form.type},
                   {"w", false, true, form.type}};
  ir::Function function;
  function.name = "access";
  function.type.params = {address, address, address, form.type, form.type};
  ir::Builder b(function);
  std::span<const ir::ValueId> span = b.BeginBody();
  std::vector<ir::ValueId> params(span.begin(), span.end());
  std::vector<ir::ValueId> operands = {params[2]};
  if (form.space == Space::kFlat) {
    ir::Op add{.code = Opcode::kAdd};
    add.type = address;
    operands[0] = b.Append1(add, std::vector{params[1], params[2]}, address);
  }
  bool has_result = form.code != Opcode::kStore && form.code != Opcode::kAtomicStore;
  if (form.code != Opcode::kLoad && form.code != Opcode::kAtomicLoad) {
    operands.push_back(params[3]);
  }
  if (form.code == Opcode::kAtomicCmpxchg) {
    operands.push_back(params[4]);
  }
  ir::Op op{.code = form.code};
  op.type = form.type;
  op.width = form.width;
  op.sign = form.sign;
  op.space = form.space;
  op.space_index = form.space == Space::kParam ? 1 : 0;
  op.imm = form.imm;
  op.source = 42;
  const Type results[] = {form.type};
  ir::OpId id = b.Append(op, operands, has_result ? std::span(results) : std::span<const Type>());
  if (has_result) {
    ir::Op store{.code = Opcode::kStore};
    store.type = form.type;
    store.width = static_cast<uint8_t>(ir::Bytes(form.type));
    b.Append(store, std::vector{params[0], b.Results(id)[0]}, {});
  }
  b.Return({});
  module.functions.push_back(std::move(function));
  module.entry = ir::FunctionId(0u);
  return module;
}

constexpr uint64_t kWords = 4;  // The buffer has 32 bytes.

void CheckAccess(const AccessForm& form, bool with_passes) {
  SCOPED_TRACE(ToString(form));
  Compared kernel(KernelOf(form), with_passes);
  ASSERT_TRUE(kernel.ok());
  uint64_t size = form.space == Space::kModule ? 65536 : kWords * 8;
  std::vector<uint64_t> offsets = {0,
                                   1,
                                   2,
                                   8,
                                   511,
                                   512 - form.width / 2u,
                                   size - form.width - form.imm,
                                   size - form.width - form.imm + 1,
                                   size - form.width,
                                   size - form.width + 1,
                                   size - 1,
                                   size,
                                   size + 65536,
                                   0x7fffffff,
                                   0x80000000,
                                   0xffffffff,
                                   0xfffffffc,
                                   0 - form.imm,
                                   0 - form.imm - 1,
                                   ~uint64_t{0},
                                   1ull << 63};
  for (uint64_t offset : offsets) {
    SCOPED_TRACE(::testing::Message() << "offset 0x" << std::hex << offset);
    Compared::Input input;
    input.buffers = {{0x1111111111111111},
                     {0x8182838485868788, 0x0102030405060708, 0xff7f00803f800000, 0x4000000000000000},
                     {},
                     {},
                     {}};
    uint64_t mask = form.is_memory64 ? ~uint64_t{0} : 0xffffffff;
    input.scalars = {0, 0, offset & mask, 0x40490fdb3f9d70a4 & (ir::Bytes(form.type) == 4 ? 0xffffffff : ~uint64_t{0}),
                     0x85868788};
    kernel.Check(input);
    if (::testing::Test::HasFailure()) {
      return;
    }
  }
}

// Covers every width of load and store, in every space, at and around the buffer's ends, with small and huge
// immediates.
TEST(MemoryTest, LoadsAndStoresAgree) {
  for (bool is_memory64 : {false, true}) {
    for (Space space : {Space::kFlat, Space::kParam, Space::kModule}) {
      for (Type type : {Type::kI32, Type::kI64, Type::kF32, Type::kF64}) {
        for (uint32_t width = ir::IsInt(type) ? 1 : ir::Bytes(type); width <= ir::Bytes(type); width *= 2) {
          uint64_t imms[] = {0, 8, is_memory64 ? ~uint64_t{0} - 7 : 0xfffffff8};
          AccessForm form{Opcode::kStore,  type,       static_cast<uint8_t>(width), false, space,
                          imms[width % 3], is_memory64};
          CheckAccess(form, true);
          form.code = Opcode::kLoad;
          CheckAccess(form, true);
          form.imm = 3;
          form.sign = width < ir::Bytes(type);
          CheckAccess(form, true);
        }
      }
    }
  }
}

// Covers atomics of every kind and width, aligned and not.
TEST(MemoryTest, AtomicsAgree) {
  for (Opcode code :
       {Opcode::kAtomicLoad, Opcode::kAtomicStore, Opcode::kAtomicAdd, Opcode::kAtomicSub, Opcode::kAtomicAnd,
        Opcode::kAtomicOr, Opcode::kAtomicXor, Opcode::kAtomicXchg, Opcode::kAtomicMinS, Opcode::kAtomicMinU,
        Opcode::kAtomicMaxS, Opcode::kAtomicMaxU, Opcode::kAtomicCmpxchg}) {
    CheckAccess({code, Type::kI32, 1, false, Space::kParam}, true);
    CheckAccess({code, Type::kI32, 2, false, Space::kFlat, 2}, true);
    CheckAccess({code, Type::kI32, 4, false, Space::kFlat}, true);
    CheckAccess({code, Type::kI32, 4, false, Space::kModule, 4}, true);
    CheckAccess({code, Type::kI64, 4, false, Space::kParam, 4}, true);
    CheckAccess({code, Type::kI64, 8, false, Space::kParam, 0, true}, true);
  }
  CheckAccess({Opcode::kAtomicFAdd, Type::kF32, 4, false, Space::kParam}, true);
  CheckAccess({Opcode::kAtomicFAdd, Type::kF64, 8, false, Space::kFlat}, true);
}

// A store into an `in` buffer traps, by its parameter or by a flat address; loads work.
TEST(MemoryTest, RefusesToWriteReadOnlyBuffers) {
  for (Space space : {Space::kFlat, Space::kParam}) {
    for (Opcode code : {Opcode::kStore, Opcode::kAtomicStore, Opcode::kAtomicAdd, Opcode::kLoad}) {
      AccessForm form{code, Type::kI32, 4, false, space};
      form.is_writable = false;
      CheckAccess(form, true);
      CheckAccess(form, false);
    }
  }
}

// Without the provenance pass every flat access searches, with the same outcome.
TEST(MemoryTest, FlatAccessesSearchAlike) {
  for (Opcode code : {Opcode::kLoad, Opcode::kStore, Opcode::kAtomicAdd}) {
    CheckAccess({code, Type::kI32, 4, false, Space::kFlat}, false);
    CheckAccess({code, Type::kI64, 8, false, Space::kFlat, 16, true}, false);
  }
}

// An offset past one buffer's end by the distance to the next reaches the next buffer; provenance must not change
// that.
TEST(MemoryTest, OutOfOneBufferIntoAnother) {
  Compared kernel(std::string(R"(module "stray"
param buffer inout "a"
param buffer inout "b"
entry f0
func f0 "stray" (%a: i32, %b: i32) -> () {
  %d: i32 = sub.i32 %b, %a
  %p: i32 = add.i32 %a, %d
  %v: i32 = load.i32 flat %p
  %k: i32 = const.i32 5
  %w: i32 = add.i32 %v, %k
  store.i32 flat %p, %w
  store.i32 param(0) %d + 4, %w
  return ()
}
)"));
  Compared::Input input;
  input.buffers = {{0, 0}, {37, 0}};
  ImageRun run = kernel.Check(input);
  EXPECT_EQ(run.trap.code, TrapCode::kNone);
  EXPECT_EQ(input.buffers[1][0], 42u + (42ull << 32));
}

// Each instance finds module memory, globals and the size in their initial state, whatever earlier instances did.
TEST(MemoryTest, RestoresBetweenInstances) {
  Compared kernel(std::string(R"(module "dirty"
memory 65536 262144
data 1022 "aabbccdd"
global mut i32 7
param buffer inout "r"
entry f0
func f0 "dirty" (%r: i32) -> () {
  %z: i32 = const.i32 0
  %i: i32 = instance_id.i32 %z
  %s: i32 = const.i32 4
  %o: i32 = shl.i32 %i, %s
  %q: i32 = add.i32 %r, %o
  %a: i32 = const.i32 1022
  %v: i32 = load.i32 flat %a
  store.i32 flat %q, %v
  %g: i32 = global_get.i32 g0
  store.i32 flat %q + 4, %g
  %n: i32 = memory_size
  store.i32 flat %q + 8, %n
  %b: i32 = const.i32 65000
  %w: i32 = load.i32 module %b
  store.i32 flat %q + 12, %w
  store.i32 flat %a, %i
  store.i32 module %b, %a
  %g1: i32 = add.i32 %g, %i
  global_set.i32 g0 %g1
  %one: i32 = const.i32 1
  %old: i32 = memory_grow %one
  %new: i32 = const.i32 65540
  store.i32 module %new, %a
  return ()
}
)"));
  Compared::Input input;
  input.buffers = {std::vector<uint64_t>(16)};
  input.extent = {4, 2, 1};
  ImageRun run = kernel.Check(input);
  EXPECT_EQ(run.restores, 8u);
  EXPECT_EQ(run.dirty_count, 0u);
  EXPECT_EQ(input.buffers[0][6], 0x7ddccbbaaull);
  EXPECT_EQ(input.buffers[0][7], 1u);  // One page, and 65000 is cleared.
}

// A kernel that only reads module memory, or restores a global itself, is not restored; grown memory alone requires
// it.
TEST(MemoryTest, RestoresOnlyWhenNeeded) {
  struct Case {
    const char* name;
    const char* body;
    uint32_t restores;
  };
  const Case kCases[] = {
      {"Reads", "%v: i32 = load.i32 flat %z\n store.i32 flat %r, %v", 0},
      {"GlobalPutBack", "%g: i32 = global_get.i32 g0\n global_set.i32 g0 %z\n global_set.i32 g0 %g", 0},
      {"GlobalChanged", "global_set.i32 g0 %z", 3},
      {"Writes", "store.i32 w1 flat %z, %z", 3},
      {"Grows", "%o: i32 = const.i32 1\n %p: i32 = memory_grow %o", 3},
      {"GrowsByNothing", "%p: i32 = memory_grow %z", 0},
      {"Fills", "%o: i32 = const.i32 1\n memory_fill %z, %o, %o", 3},
      {"FillsNothing", "memory_fill %z, %z, %z", 0},
      {"WritesBuffer", "store.i32 flat %r, %z", 0},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Compared kernel(
        std::string("module \"m\"\nmemory 65536 131072\nglobal mut i32 9\nparam buffer inout \"r\"\nentry f0\n"
                    "func f0 \"f\" (%r: i32) -> () {\n %z: i32 = const.i32 0\n ") +
        c.body + "\n return ()\n}\n");
    Compared::Input input;
    input.buffers = {{1}};
    input.extent = {3, 1, 1};
    EXPECT_EQ(kernel.Check(input).restores, c.restores);
  }
}

// Every instance finds the state in its initial content; it is restored only after a write. Scratch is the same bytes
// and never restored.
TEST(MemoryTest, StateAgrees) {
  struct Case {
    const char* name;
    const char* body;
    uint32_t restores;
  };
  const Case kCases[] = {
      {"Reads", "%v: i32 = load.i32 state %z + 4\n store.i32 flat %r, %v", 0},
      {"Counts",
       "%v: i32 = load.i32 state %z + 4\n %w: i32 = add.i32 %v, %one\n"
       " store.i32 state %z + 4, %w\n %old: i32 = atomic_add.i32 flat %r, %w",
       3},
      {"Wide",
       "%v0: i32, %v1: i32, %v2: i32, %v3: i32 = load128 state %z\n store128 state %z + 1, %v1, %v1, %v2, %v3\n"
       " store128 flat %r, %v3, %v2, %v1, %v0",
       3},
      {"Scratch", "store.i32 scratch %z + 8, %one\n %v: i32 = load.i32 state %z + 8\n store.i32 flat %r, %v", 0},
      {"Outside", "store.i32 w1 state %one + 63, %one", 0},
      {"OutsideWide", "%v: i64 = load.i64 state %z + 57", 0},
      {"Far", "store.i32 w1 state %z + 4294967296, %one", 0},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Compared kernel(std::string("module \"m\"\nstate 64\nstate_data 4 \"05000000\"\nparam buffer inout \"r\"\n"
                                "entry f0\nfunc f0 \"f\" (%r: i32) -> () {\n %z: i32 = const.i32 0\n"
                                " %one: i32 = const.i32 1\n ") +
                    c.body + "\n return ()\n}\n");
    Compared::Input input;
    input.buffers = {{1, 2}};
    input.extent = {3, 1, 1};
    EXPECT_EQ(kernel.Check(input).restores, c.restores);
  }
}

// Covers accesses of sixteen bytes in every space, across the ends of ranges and of dirty granules.
TEST(MemoryTest, WideAccessesAgree) {
  for (const char* space : {"flat", "module", "param(0)"}) {
    for (bool is_store : {false, true}) {
      for (const char* imm : {"", " + 7"}) {
        SCOPED_TRACE(std::string(space) + (is_store ? " store" : " load") + imm);
        std::string access = is_store ? std::string("store128 ") + space + " %o" + imm + ", %p0, %p1, %p2, %p3 @42\n"
                                      : std::string("%v0: i32, %v1: i32, %v2: i32, %v3: i32 = load128 ") + space +
                                            " %o" + imm + " @42\n store128 flat %r, %v0, %v1, %v2, %v3\n";
        Compared kernel(std::string("module \"m\"\nmemory 65536 65536\ndata 500 \"") +
                            "000102030405060708090a0b0c0d0e0f10" +
                            "\"\nparam buffer inout \"p\"\nparam buffer inout \"r\"\nparam i32 \"o\"\nentry f0\n"
                            "func f0 \"f\" (%p: i32, %r: i32, %o: i32) -> () {\n %p0: i32 = const.i32 1\n"
                            " %p1: i32 = const.i32 -2\n %p2: i32 = const.i32 3\n %p3: i32 = const.i32 -4\n " +
                            access + " return ()\n}\n",
                        false);
        for (uint64_t offset : {0u, 500u, 503u, 509u, 15u, 16u, 17u, 9u, 10u, 65520u, 65521u, 65513u, 65514u, 131072u,
                                131088u, 131089u, 0xffffffffu, 0xfffffff0u}) {
          SCOPED_TRACE(offset);
          Compared::Input input;
          input.buffers = {{0x1122334455667788, 2, 3, 4}, {0, 0}, {}};
          input.scalars = {0, 0, offset};
          input.extent = {2, 1, 1};
          kernel.Check(input);
        }
      }
    }
  }
}

// In a launch whose buffers have separate address spaces, an access outside its buffer traps, even where the same
// addresses belong to another buffer, module memory or group memory; flat accesses find no buffer.
TEST(MemoryTest, SeparateBuffersAgree) {
  const char* kBodies[] = {
      "%v: i32 = load.i32 param(0) %o @42\n store.i32 param(1) %z, %v",
      "store.i32 param(0) %o, %o @42",
      "store.i32 param(2) %o, %o @42",
      "store.i32 param(2) %o + 4294967290, %o @42",
      "%v: i32 = atomic_add.i32 param(0) %o, %o @42",
      "%v: i32 = load.i32 flat %o @42\n store.i32 param(1) %z, %v",
      "store128 param(1) %o, %o, %o, %o, %o @42",
  };
  for (const char* body : kBodies) {
    SCOPED_TRACE(body);
    Compared kernel(std::string("module \"m\"\nmemory 65536 65536\nuses separate_buffers\nparam buffer inout \"p\"\n"
                                "param buffer inout \"q\"\nparam buffer in \"i\"\nparam buffer in \"huge\"\n"
                                "param i32 \"o\"\nentry f0\n"
                                "func f0 \"f\" (%p: i32, %q: i32, %i: i32, %h: i32, %o: i32) -> () {\n"
                                " %z: i32 = const.i32 0\n ") +
                        body + "\n return ()\n}\n",
                    false);
    for (bool is_large : {false, true}) {
      for (uint64_t offset :
           {0u, 4u, 12u, 13u, 16u, 65536u, 131072u, 196608u, 262144u, 0xffff0000u, 0xfffe0000u, 0xfffffffcu}) {
        SCOPED_TRACE(offset);
        Compared::Input input;
        input.buffers = {{1, 2}, {3, 4}, {5, 6}, {7}, {}};
        // Its bytes are never accessed, so they need not exist.
        input.bytes = {0, 0, 0, is_large ? 0xfffd0000 : 0, 0};
        input.scalars = {0, 0, 0, 0, offset};
        kernel.Check(input);
      }
    }
  }
}

// Covers copies and fills: within module memory, between it and buffers, overlapping both ways, empty, out of bounds,
// larger than one piece.
TEST(MemoryTest, BulkAgrees) {
  Compared kernel(std::string(R"(module "bulk"
memory 4194304 4194304
param buffer inout "r"
param buffer in "p"
param i32 "fill_at"
param i32 "fill_n"
param i32 "to"
param i32 "from"
param i32 "n"
entry f0
func f0 "bulk" (%r: i32, %p: i32, %fa: i32, %fn: i32, %to: i32, %from: i32, %n: i32) -> () {
  %z: i32 = const.i32 0
  %eight: i32 = const.i32 8
  %byte: i32 = const.i32 0x1a5
  memory_copy %z, %p, %eight
  memory_fill %fa, %byte, %fn @7
  memory_copy %to, %from, %n @9
  %end: i32 = const.i32 64
  memory_copy %r, %z, %end
  return ()
}
)"));
  struct Case {
    uint32_t fill_at, fill_n, to, from, n;
  };
  const Case kCases[] = {
      {8, 37, 100, 0, 50},      {16, 16, 3, 0, 40},       {16, 16, 0, 3, 40},          {0, 0, 9, 9, 9},
      {5, 1, 1, 0, 63},         {20, 3, 0, 1, 63},        {0, 3000000, 1, 0, 3000001}, {0, 4194304, 0, 7, 4194297},
      {0, 4194305, 0, 0, 0},    {4194304, 1, 0, 0, 0},    {0, 0, 4194300, 0, 5},       {0, 0, 0, 4194300, 5},
      {0, 0, 0xffffffff, 0, 1}, {0, 0, 0, 0xffffffff, 2}, {0xfffffff0, 0, 0, 0, 0},    {0, 0, 4194304, 99, 0},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.fill_at << " " << c.fill_n << " " << c.to << " " << c.from << " " << c.n);
    Compared::Input input;
    input.buffers = {std::vector<uint64_t>(8), {0x0807060504030201}, {}, {}, {}, {}, {}};
    input.scalars = {0, 0, c.fill_at, c.fill_n, c.to, c.from, c.n};
    kernel.Check(input);
  }
}

// A set stop word ends a long fill between two pieces.
TEST(MemoryTest, BulkLooksAtTheStopWord) {
  StatusOr<ir::Module> module = ir::ParseModule(R"(module "m"
memory 16777216 16777216
entry f0
func f0 "f" () -> () {
  %z: i32 = const.i32 0
  %n: i32 = const.i32 16777216
  memory_fill %z, %z, %n
  return ()
}
)");
  ASSERT_TRUE(module.ok());
  StatusOr<Artifact> artifact = EmitCpuImage(*module, *HostCpuTarget());
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  testing::ImageRunner image(*artifact);
  std::atomic<uint32_t> stop{1};
  ir::Launch launch;
  launch.stop = &stop;
  EXPECT_EQ(image.Run(launch, {}, 0, 1).trap.code, TrapCode::kStopped);
}

// Group memory that local_alloc handed out is reachable, the rest is not; each instance starts anew.
TEST(MemoryTest, GroupMemoryAgrees) {
  Compared kernel(std::string(R"(module "group"
uses group_memory
param buffer inout "r"
param i32 "bytes"
param i32 "at"
entry f0
func f0 "group" (%r: i32, %bytes: i32, %at: i32) -> () {
  %k: i32 = const.i32 5
  %first: i32 = local_alloc %k @3
  %p: i32 = local_alloc %bytes @4
  %d: i32 = sub.i32 %p, %first
  store.i32 flat %r, %d
  %q: i32 = add.i32 %p, %at
  store.i32 group %q + 4, %k @5
  %v: i32 = load.i32 flat %q + 4 @6
  store.i32 flat %r + 4, %v
  return ()
}
)"));
  for (uint64_t bytes : {0u, 8u, 16u, 65520u, 65521u, 0xffffffffu}) {
    for (uint64_t at : {0u, 4u, 8u, 12u, 65512u, 0xfffffff0u, 0xfffffffcu}) {
      SCOPED_TRACE(::testing::Message() << bytes << " at " << at);
      Compared::Input input;
      input.buffers = {{0}, {}, {}};
      input.scalars = {0, bytes, at};
      input.extent = {2, 1, 1};
      kernel.Check(input);
    }
  }
}

}  // namespace
}  // namespace hpvm::cpu
