// SPDX-License-Identifier: Apache-2.0
// Loads, stores and atomics of every width in every kind of memory, aligned or not, on every OpenCL and Vulkan device,
// against the interpreter.
#include <cstdio>
#include <cstring>
#include <map>

#include "gtest/gtest.h"

#include "backends/opencl/pocl.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "tests/gpu/device_run.h"

namespace hpvm::gpu_test {
namespace {

using ir::Launch;

// A kind of memory, and the code by which a kernel accesses it.
struct Memory {
  const char* name;
  const char* directives;  // Directives of the module.
  const char* base;        // Defines %base; each instance's bytes begin at %base + %mine.
  const char* space;
  bool is_own = false;       // Every instance has a private copy, so that %mine is 0.
  bool is_constant = false;  // Read-only.
};

constexpr char kStack[] = "memory 65536 65536\nglobal mut i32 0x8000\nstack_pointer g0\n";
constexpr char kData[] =
    "memory 65536 65536\ndata 1024 "
    "\"000102030405068788898a8b8c8d8e8ff0f1f2f3f4f57677787980a1a2a3a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5\"\n";
constexpr char kState[] =
    "state 512\nstate_data 0 "
    "\"000102030405068788898a8b8c8d8e8ff0f1f2f3f4f57677787980a1a2a3a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5\"\n";
constexpr Memory kMemories[] = {
    {"Buffer", "", "%base: i32 = add.i32 %m, %zero", "flat"},
    {"FoundByAddress", "", "%known: i32 = load.i32 flat %o\n%base: i32 = select.i32 %known, %m, %out", "flat"},
    {"Stack", kStack,
     "%sp: i32 = global_get.i32 g0\n%frame: i32 = const.i32 512\n%base: i32 = sub.i32 %sp, %frame\nglobal_set.i32 g0 "
     "%base",
     "flat", true},
    {"Data", kData, "%base: i32 = const.i32 1024", "flat", true, true},
    {"State", kState, "%base: i32 = const.i32 0", "state", true},
    {"Group", "uses group_memory\n", "%much: i32 = const.i32 4096\n%base: i32 = local_alloc %much", "flat"},
};

struct Access {
  const char* type;
  uint32_t width;
  bool is_signed = false;
};
constexpr Access kLoads[] = {{"i32", 1},       {"i32", 1, true}, {"i32", 2}, {"i32", 2, true}, {"i32", 4},
                             {"i64", 1},       {"i64", 1, true}, {"i64", 2}, {"i64", 2, true}, {"i64", 4},
                             {"i64", 4, true}, {"i64", 8},       {"f32", 4}, {"f64", 8}};
constexpr Access kStores[] = {{"i32", 1}, {"i32", 2}, {"i32", 4}, {"i64", 1}, {"i64", 2},
                              {"i64", 4}, {"i64", 8}, {"f32", 4}, {"f64", 8}};

constexpr uint64_t kInstances = 8;
constexpr uint64_t kBytesEach = 512;  // Bytes of each instance.
constexpr uint64_t kOutEach = 512;

// Writes kernels in the IR's text form.
class KernelText {
 public:
  // `align` is log2 of the known alignment of %p, each instance's address: the buffer %o holds an additional offset.
  KernelText(const Memory& memory, uint32_t align) : memory_(memory) {
    text_ =
        std::string("module \"access\"\n") + memory.directives +
        "param buffer inout \"m\"\nparam buffer inout \"out\"\nparam buffer in \"o\"\nentry f0\n"
        "func f0 \"access\" (%m: i32, %out: i32, %o: i32) -> () {\n%zero: i32 = const.i32 0\n%two: i32 = const.i32 2\n"
        "%nine: i32 = const.i32 9\n%id: i32 = instance_id.i32 %zero\n%ido: i32 = shl.i32 %id, %two\n"
        "%oa: i32 = add.i32 %o, %ido\n%raw: i32 = load.i32 flat %oa\n%mine: i32 = shl.i32 %id, %nine\n"
        "%to: i32 = add.i32 %out, %mine\n";
    Line(memory.base);
    Line("%shift: i32 = const.i32 " + std::to_string(align));
    Line("%offset: i32 = shl.i32 %raw, %shift");
    Line(memory.is_own ? "%begin: i32 = add.i32 %base, %zero" : "%begin: i32 = add.i32 %base, %mine");
    Line("%p: i32 = add.i32 %begin, %offset");
  }

  void Line(const std::string& line) { text_ += line + "\n"; }
  std::string Fresh() { return "%t" + std::to_string(count_++); }
  // Appends `value` of `type` to the instance's output.
  void Out(const std::string& value, const std::string& type) {
    Line("store." + type + " flat %to + " + std::to_string(out_) + ", " + value);
    out_ += 8;
  }
  std::string Constant(const std::string& type, uint64_t bits) {
    const std::string name = Fresh();
    Line(name + ": " + type + " = const." + type + " " +
         (type == "i32" ? "0x" + Hex(bits & 0xffffffffu) : "0x" + Hex(type == "f32" ? bits & 0x3fffffffu : bits)));
    return name;
  }
  std::string Finish() { return text_ + "return ()\n}\n"; }
  const Memory& memory() const { return memory_; }

 private:
  static std::string Hex(uint64_t bits) {
    char text[32];
    std::snprintf(text, sizeof(text), "%llx", static_cast<unsigned long long>(bits));
    return text;
  }

  const Memory& memory_;
  std::string text_;
  int count_ = 0;
  uint32_t out_ = 0;
};

std::string Narrow(const Access& access) {
  const uint32_t full = access.type[1] == '3' ? 4 : 8;
  return access.width == full ? "" : " w" + std::to_string(access.width);
}

// All loads at %p + 16 k, or within a few bytes where memory is small.
std::string Loads(const Memory& memory, uint32_t align) {
  KernelText text(memory, align);
  uint32_t at = 0;
  for (const Access& access : kLoads) {
    const std::string value = text.Fresh();
    text.Line(value + ": " + access.type + " = load." + access.type + Narrow(access) +
              (access.is_signed ? " signed" : "") + " " + memory.space + " %p + " + std::to_string(at));
    text.Out(value, access.type);
    at = (at + 16) % 32;
  }
  text.Line("%l0: i32, %l1: i32, %l2: i32, %l3: i32 = load128 " + std::string(memory.space) + " %p + 16");
  for (const char* lane : {"%l0", "%l1", "%l2", "%l3"}) {
    text.Out(lane, "i32");
  }
  return text.Finish();
}

// All stores, each to 16 bytes of its own, which are read back completely.
std::string Stores(const Memory& memory, uint32_t align) {
  KernelText text(memory, align);
  uint32_t at = 0;
  for (const Access& access : kStores) {
    const std::string value = text.Constant(access.type, 0x8182838485868788 + at);
    text.Line("store." + std::string(access.type) + Narrow(access) + " " + memory.space + " %p + " +
              std::to_string(at) + ", " + value);
    at += 16;
  }
  text.Line("store128 " + std::string(memory.space) + " %p + " + std::to_string(at) + ", %id, %two, %raw, %nine");
  for (uint32_t back = 0; back <= at; back += 16) {
    for (uint32_t half : {0u, 8u}) {
      const std::string value = text.Fresh();
      text.Line(value + ": i64 = load.i64 " + memory.space + " %p + " + std::to_string(back + half));
      text.Out(value, "i64");
    }
  }
  return text.Finish();
}

constexpr const char* kUpdates[] = {"atomic_add",  "atomic_sub",   "atomic_and",   "atomic_or",    "atomic_xor",
                                    "atomic_xchg", "atomic_min_s", "atomic_min_u", "atomic_max_s", "atomic_max_u"};

// Every atomic operation of a width, each on a separate cell that is initialised before; outputs its old value and
// the new one.
std::string Atomics(const Memory& memory, const Access& access) {
  KernelText text(memory, 4);
  const std::string type(access.type), narrow = Narrow(access);
  uint32_t at = 0;
  const auto cell = [&] { return " " + std::string(memory.space) + " %p + " + std::to_string(at); };
  const auto look = [&](const std::string& old) {
    text.Out(old, type);
    const std::string now = text.Fresh();
    text.Line(now + ": " + type + " = atomic_load." + type + narrow + cell());
    text.Out(now, type);
    at += 8;
  };
  const std::string low = text.Constant(type, 0x7192a3b4c5d68796), high = text.Constant(type, 0xa1b2c3d4e5f60718);
  for (const char* update : kUpdates) {
    const std::string old = text.Fresh();
    text.Line("atomic_store." + type + narrow + cell() + ", " + low);
    text.Line(old + ": " + type + " = " + update + "." + type + narrow + cell() + ", " + high);
    look(old);
  }
  for (const std::string& expected : {low, high}) {
    const std::string old = text.Fresh();
    text.Line("atomic_store." + type + narrow + cell() + ", " + low);
    text.Line(old + ": " + type + " = atomic_cmpxchg." + type + narrow + cell() + ", " + expected + ", " + high);
    look(old);
  }
  return text.Finish();
}

std::string FloatAtomics(const Memory& memory, const std::string& type) {
  KernelText text(memory, 4);
  const std::string cell = " " + std::string(memory.space) + " %p";
  const std::string addend = text.Constant(type, type == "f32" ? 0x3fc00000 : 0x3ff8000000000000);
  text.Line("store." + type + cell + ", " + addend);
  const std::string old = text.Fresh(), now = text.Fresh();
  text.Line(old + ": " + type + " = atomic_fadd." + type + cell + ", " + addend);
  text.Line(now + ": " + type + " = load." + type + cell);
  text.Out(old, type);
  text.Out(now, type);
  return text.Finish();
}

class AccessTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { device_ = std::make_unique<DeviceRun>(GetParam()); }

  // Runs the kernel on both engines with the offsets; `width` is that of a misaligned access that is to be reported.
  void Compare(const std::string& text, const std::vector<uint32_t>& offsets) {
    StatusOr<ir::Module> module = ir::ParseModule(text);
    ASSERT_TRUE(module.ok()) << module.status() << text;
    const StatusOr<Artifact> artifact = device_->Compile(*module);
    if (!artifact.ok()) {
      // The device lacks a type or operation, which the error must name.
      EXPECT_NE(Message(artifact.status()).find("operation"), std::string::npos) << artifact.status();
      std::printf("%s: refused: %s\n", GetParam().c_str(), Message(artifact.status()).c_str());
      return;
    }
    for (uint32_t variant = 0; variant < artifact->gpu.variants.size(); ++variant) {
      SCOPED_TRACE(artifact->gpu.variants[variant].entry);
      Artifact one = *artifact;
      one.gpu.variants = {artifact->gpu.variants[variant]};
      if (variant + 1 != artifact->gpu.variants.size()) {
        one.gpu.variants.push_back(artifact->gpu.variants.back());  // For launches that are not proven.
      }
      StatusOr<std::unique_ptr<Executable>> executable = device_->Load(std::move(one));
      ASSERT_TRUE(executable.ok()) << executable.status() << text;
      Content wanted(offsets), found(offsets);
      const StatusOr<ir::TrapReport> want = ir::Interpret(*module, wanted.launch);
      ASSERT_TRUE(want.ok()) << want.status();
      const StatusOr<ir::TrapReport> got = device_->Launch(**executable, found.launch);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(Name(got->code), Name(want->code)) << text;
      if (want->code == ir::TrapCode::kNone) {
        EXPECT_EQ(found.out, wanted.out) << text;
        EXPECT_EQ(found.memory, wanted.memory) << text;
      }
    }
  }

  struct Content {
    explicit Content(const std::vector<uint32_t>& raw)
        : memory(kInstances * kBytesEach), out(kInstances * kOutEach), offsets(raw) {
      for (size_t i = 0; i < memory.size(); ++i) {
        memory[i] = static_cast<uint8_t>(i * 131 + i / 256 + 17);
      }
      launch.extent = {kInstances, 1, 1};
      launch.group = {kInstances, 1, 1};
      launch.arguments = {{memory.data(), memory.size(), 0},
                          {out.data(), out.size(), 0},
                          {reinterpret_cast<uint8_t*>(offsets.data()), offsets.size() * 4, 0}};
    }
    std::vector<uint8_t> memory, out;
    std::vector<uint32_t> offsets;
    Launch launch;
  };

  std::unique_ptr<DeviceRun> device_;
};

const std::vector<uint32_t> kUnaligned = {1, 2, 3, 4, 5, 6, 7, 8};
const std::vector<uint32_t> kAligned = {1, 0, 0, 0, 0, 0, 0, 1};  // Multiplied by 8 or 16.

// The last bytes of the memory, and one byte more; an immediate that passes the end of all addresses.
TEST_P(AccessTest, TheLastByteCounts) {
  for (const Memory& memory : kMemories) {
    const std::string name(memory.name);
    if (name == "Stack" || name == "Data") {
      continue;  // More of module memory follows.
    }
    SCOPED_TRACE(memory.name);
    KernelText text(memory, 0);
    text.Line("%v: i64 = load.i64 " + std::string(memory.space) + " %p");
    text.Out("%v", "i64");
    const uint32_t last = name == "State" ? 512 - 8 : (kInstances - 3) * kBytesEach - 8;  // For the fourth instance.
    const std::string kernel = text.Finish();
    Compare(kernel, {0, 0, 0, last, 0, 0, 0, 0});
    Compare(kernel, {0, 0, 0, last + 1, 0, 0, 0, 0});
    KernelText far(memory, 0);
    far.Line("%v: i64 = load.i64 " + std::string(memory.space) + " %p + 4294967040");
    far.Out("%v", "i64");
    Compare(far.Finish(), std::vector<uint32_t>(kInstances, 256));
  }
}

// A buffer that is smaller than an access has no room for it, whatever the width of addresses.
TEST_P(AccessTest, BuffersSmallerThanAnAccess) {
  for (const std::string type : {"i32", "i64"}) {
    const StatusOr<ir::Module> module = ir::ParseModule(
        "module \"small\"" + std::string(type == "i64" ? " memory64" : "") +
        "\nparam buffer in \"m\"\nparam buffer inout \"out\"\nentry f0\nfunc f0 \"small\" (%m: " + type +
        ", %out: " + type + ") -> () {\n%v: i64 = load.i64 flat %m\nstore.i64 flat %out, %v\nreturn ()\n}\n");
    ASSERT_TRUE(module.ok()) << module.status();
    StatusOr<Artifact> artifact = device_->Compile(*module);
    if (!artifact.ok()) {
      continue;  // The device lacks 64-bit integers.
    }
    artifact->gpu.variants = {artifact->gpu.variants.back()};
    StatusOr<std::unique_ptr<Executable>> executable = device_->Load(*std::move(artifact));
    ASSERT_TRUE(executable.ok()) << executable.status();
    for (const uint64_t bytes : {1, 4, 7, 8}) {
      SCOPED_TRACE(type + " " + std::to_string(bytes));
      std::vector<uint8_t> memory(8, 7), out(8);
      Launch launch;
      launch.extent = {1, 1, 1};
      launch.arguments = {{memory.data(), bytes, 0}, {out.data(), 8, 0}};
      const StatusOr<ir::TrapReport> trap = device_->Launch(**executable, launch);
      ASSERT_TRUE(trap.ok()) << trap.status();
      EXPECT_EQ(trap->code, bytes < 8 ? ir::TrapCode::kOutOfBounds : ir::TrapCode::kNone);
      EXPECT_EQ(out == memory, bytes == 8);
    }
  }
}

// A store by an address that needs a search, which lies in a read-only buffer.
TEST_P(AccessTest, StoresToWhatMustNotBeWrittenTrap) {
  const Memory memory = {"ToBeRead", "", "%base: i32 = select.i32 %raw, %o, %m", "flat"};
  KernelText text(memory, 0);
  text.Line("store.i32 flat %p, %id");
  const std::string kernel = text.Finish();
  Compare(kernel, {1, 0, 0, 0, 0, 0, 0, 0});
  Compare(kernel, {0, 0, 0, 0, 0, 0, 0, 0});
}

// Accesses of 16 bytes, where buffers begin at a multiple of 8.
TEST_P(AccessTest, ViewsBeginAtMultiplesOfEight) {
  const StatusOr<ir::Module> module = ir::ParseModule(
      "module \"views\"\nparam buffer in \"all\"\nparam buffer in \"m\"\nparam buffer inout \"out\"\nentry f0\n"
      "func f0 \"views\" (%all: i32, %m: i32, %out: i32) -> () {\n%zero: i32 = const.i32 0\n%four: i32 = const.i32 4\n"
      "%id: i32 = instance_id.i32 %zero\n%at: i32 = shl.i32 %id, %four\n%p: i32 = add.i32 %m, %at\n"
      "%q: i32 = add.i32 %out, %at\n%first: i32 = load.i32 flat %all\n"
      "%a: i32, %b: i32, %c: i32, %d: i32 = load128 flat %p\n%e: i32 = add.i32 %a, %first\n"
      "store128 flat %q, %e, %b, %c, %d\nreturn ()\n}\n");
  ASSERT_TRUE(module.ok()) << module.status();
  const StatusOr<Artifact> artifact = device_->Compile(*module);
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  StatusOr<std::unique_ptr<Executable>> executable = device_->Load(*artifact);
  ASSERT_TRUE(executable.ok()) << executable.status();
  std::vector<uint64_t> words(2 * kInstances + 1), want(2 * kInstances), found(2 * kInstances);
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = i * 0x100000003u;
  }
  for (std::vector<uint64_t>* out : {&want, &found}) {
    Launch launch;
    launch.extent = {kInstances, 1, 1};
    launch.arguments = {{reinterpret_cast<uint8_t*>(words.data()), words.size() * 8, 0},
                        {reinterpret_cast<uint8_t*>(words.data() + 1), want.size() * 8, 0},
                        {reinterpret_cast<uint8_t*>(out->data()), want.size() * 8, 0}};
    const StatusOr<ir::TrapReport> trap =
        out == &want ? ir::Interpret(*module, launch) : device_->Launch(**executable, launch);
    ASSERT_TRUE(trap.ok()) << trap.status();
    EXPECT_EQ(trap->code, ir::TrapCode::kNone);
  }
  EXPECT_EQ(found, want);
}

TEST_P(AccessTest, LoadsOfEveryWidth) {
  for (const Memory& memory : kMemories) {
    SCOPED_TRACE(memory.name);
    Compare(Loads(memory, 0), kUnaligned);
    Compare(Loads(memory, 3), kAligned);
  }
}

TEST_P(AccessTest, StoresOfEveryWidth) {
  for (const Memory& memory : kMemories) {
    SCOPED_TRACE(memory.name);
    if (!memory.is_constant) {
      Compare(Stores(memory, 0), kUnaligned);
      Compare(Stores(memory, 4), kAligned);
    }
  }
}

TEST_P(AccessTest, AtomicsOfEveryWidth) {
  for (const Memory& memory : kMemories) {
    SCOPED_TRACE(memory.name);
    if (memory.is_constant || std::string(memory.space) == "state") {
      continue;
    }
    for (const Access& access :
         {Access{"i32", 1}, Access{"i32", 2}, Access{"i32", 4}, Access{"i64", 4}, Access{"i64", 8}}) {
      Compare(Atomics(memory, access), kAligned);
    }
    Compare(FloatAtomics(memory, "f32"), kAligned);
    Compare(FloatAtomics(memory, "f64"), kAligned);
  }
}

// One byte beyond the memory, and far beyond, in both directions; the same trap.
TEST_P(AccessTest, MissesTrap) {
  const uint32_t kFar[] = {0xffffffffu, 0x80000000u, 0xfffffff0u};
  for (const Memory& memory : kMemories) {
    if (std::string(memory.name) == "Data") {
      continue;  // Zeros follow it.
    }
    SCOPED_TRACE(memory.name);
    for (const uint32_t far : kFar) {
      if (std::string(memory.name) == "Stack" && far != kFar[1]) {
        continue;  // The rest of module memory precedes it.
      }
      KernelText text(memory, 0);
      text.Line("%v: i64 = load.i64 " + std::string(memory.space) + " %p");
      text.Out("%v", "i64");
      Compare(text.Finish(), {0, 0, 0, far, 0, 0, 0, 0});
    }
  }
}

// A misaligned atomic operation traps whatever its address.
TEST_P(AccessTest, MisalignedAtomicsTrap) {
  for (const Memory& memory : kMemories) {
    if (memory.is_constant || std::string(memory.space) == "state") {
      continue;
    }
    SCOPED_TRACE(memory.name);
    KernelText text(memory, 0);
    text.Line("%v: i32 = atomic_add.i32 " + std::string(memory.space) + " %p + 4, %two");
    text.Out("%v", "i32");
    Compare(text.Finish(), {0, 4, 0, 2, 0, 0, 0, 0});
    Compare(text.Finish(), {0, 4, 8, 12, 4, 0, 0, 0});
  }
}

// Many instances update one cell: no update is lost.
TEST_P(AccessTest, AtomicsAreAtomic) {
  for (const char* type : {"i32 w1", "i32 w2", "i32", "i64"}) {
    const std::string name(type), value = name.substr(0, 3);
    const std::string width = name.size() > 3 ? name.substr(3) : "";
    KernelText text(kMemories[0], 0);
    const std::string one = text.Constant(value, 3);
    text.Line("%old: " + value + " = atomic_add." + value + width + " flat %m, " + one);
    text.Line("%more: " + value + " = atomic_xor." + value + width + " flat %m + 8, " + one);
    SCOPED_TRACE(type);
    Compare(text.Finish(), kAligned);
  }
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  name[name.find(':')] = '_';
  return name;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AccessTest);
INSTANTIATE_TEST_SUITE_P(All, AccessTest, ::testing::ValuesIn(Devices()), TestName);

}  // namespace
}  // namespace hpvm::gpu_test

int main(int argc, char** argv) {
  hpvm::opencl::SetPoclEnvironment(/*keeps=*/true);  // As executors do.
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
