// SPDX-License-Identifier: Apache-2.0
// Kernels with counted loops over rows of a buffer and over positions that another buffer holds, which
// compiler/pass/tile/guard_loops.h writes twice. Some iterations leave their buffers.
#include <string>

#include "base/status.h"
#include "compiler/ir/text/text.h"
#include "tests/diff/random.h"
#include "tests/spmd/generate.h"

namespace hpvm::spmd {
namespace {

class RowsGenerator {
 public:
  explicit RowsGenerator(uint64_t seed) : random_(seed), seed_(seed) {}

  Kernel Generate() && {
    for (const uint32_t number : {0, 1, 2, 3, 4, 8, 15}) {
      Line("%k" + std::to_string(number) + ": i32 = const.i32 " + std::to_string(number));
    }
    Line("%id: i32 = instance_id.i32 %k0");
    Line("%own: i32 = shl.i32 %id, %k2");
    Line("%begin: i32 = " + Begin());
    Line("%bound: i32 = " + Bound());
    const uint32_t log2 = random_.Below(4);
    Line("%at: i32 = shl.i32 %begin, " + Number(log2));
    Loop(log2);
    Line("store.i32 param(0) %own, %sum");
    return Finish();
  }

 private:
  void Line(const std::string& line) { body_ += line + " @" + std::to_string(++source_) + "\n"; }
  void Bare(const std::string& line) { body_ += line + "\n"; }
  std::string Fresh() { return "%t" + std::to_string(fresh_++); }
  static std::string Number(uint32_t value) { return "%k" + std::to_string(value); }
  std::string Any(std::initializer_list<const char*> texts) { return texts.begin()[random_.Below(texts.size())]; }

  std::string Begin() {
    return Any({"load.i32 param(1) %own", "mul.i32 %id, %k4", "and.i32 %n, %k15", "add.i32 %id, %k0",
                "sub.i32 %k2, %id", "load.i32 param(1) %own + 4"});
  }
  std::string Bound() {
    return Any({"load.i32 param(1) %own + 4", "add.i32 %begin, %k8", "and.i32 %m, %k15", "add.i32 %begin, %k1",
                "sub.i32 %begin, %k3", "load.i32 param(1) %own + 8"});
  }

  // The loop's counter starts at %begin, its pointer at %at in steps of its step << log2.
  void Loop(uint32_t log2) {
    const bool is_up = random_.Percent(80);
    const uint32_t step = random_.Percent(70) ? 1 : random_.Percent(70) ? 2 : 4;
    Line("%sum: i32 = loop again (%i: i32 = %begin, %p: i32 = %at, %so_far: i32 = %k1)");
    body_.insert(body_.rfind(" @"), " {");
    body_.erase(body_.rfind(" @"));
    body_ += "\n";
    sum_ = "%so_far";
    const uint32_t accesses = random_.Between(1, 4);
    // A pointer that leaves the buffer if the loop does not end.
    Linear("%p", random_.Below(3));
    for (uint32_t i = 0; i < accesses; ++i) {
      Access();
    }
    if (random_.Percent(10)) {
      Add(Defined("div_u.i32 %k15, " + sum_));
    }
    if (random_.Percent(10)) {
      Line("store.i32 param(0) %own, " + sum_);
    }
    Line("%j: i32 = " + std::string(is_up ? "add" : "sub") + ".i32 %i, " + Number(step));
    const std::string stride = Defined("shl.i32 " + Number(step) + ", " + Number(log2));
    Line("%q: i32 = " + std::string(is_up ? "add" : "sub") + ".i32 %p, " + stride);
    const std::string tested = random_.Percent(70) ? "%j" : "%i";
    const std::string test = random_.Percent(25) ? "ne"
                             : is_up             ? Any({"lt_s", "lt_u", "le_s", "le_u"})
                                                 : Any({"gt_s", "gt_u", "ge_s", "ge_u"});
    Line("%goes_on: i32 = " + test + ".i32 " + tested + ", %bound");
    Bare("if on %goes_on {\ncontinue again (%j, %q, " + sum_ + ")\n} else {\nbr on ()\n}\nbr again (" + sum_ + ")\n}");
  }

  std::string Defined(const std::string& expression) {
    const std::string name = Fresh();
    Line(name + ": i32 = " + expression);
    return name;
  }
  void Add(const std::string& value) {
    const std::string three = Defined("mul.i32 " + sum_ + ", %k3");
    sum_ = Defined("add.i32 " + three + ", " + value);
  }
  // No immediate offset: an access that wraps around by one lies in another buffer on a CPU, and nowhere on a GPU
  // (docs/KERNELS.md).
  std::string Place(const std::string& pointer, uint32_t bytes) {
    return Defined("add.i32 " + pointer + ", " + Defined("const.i32 " + std::to_string(bytes)));
  }
  std::string Linear(const std::string& pointer, uint32_t words) {
    const std::string place = words == 0 ? pointer : Place(pointer, 4 * words);
    const std::string value = Defined("load.i32 param(" + Any({"1", "2", "2", "3"}) + ") " + place);
    Add(value);
    return value;
  }
  void Access() {
    switch (random_.Below(6)) {
      case 0:
        Linear(Defined("add.i32 %p, " + Any({"%k4", "%k8", "%own"})), random_.Below(2));
        return;
      case 1: {  // A record of four words.
        const std::string first = Defined("shl.i32 %i, %k4");
        for (uint32_t word = 0; word < 4; ++word) {
          Add(Defined("load.i32 param(2) " + first + (word == 0 ? "" : " + " + std::to_string(4 * word))));
        }
        return;
      }
      case 2:
      case 3: {  // A position that a buffer holds.
        // Below the next buffer's address, which a CPU would access.
        const std::string near = Defined("and.i32 " + Linear("%p", 0) + ", " + Defined("const.i32 8191"));
        const std::string place = Defined("shl.i32 " + near + ", " + Any({"%k2", "%k1", "%k0"}));
        Add(Defined("load.i32 param(" + Any({"2", "3"}) + ") " + Place(place, 4 * random_.Below(2))));
        return;
      }
      case 4: {  // In some iterations only.
        const std::string odd = Defined("and.i32 " + sum_ + ", " + Any({"%k1", "%k3"}));
        const std::string name = Fresh(), label = "b" + std::to_string(fresh_++);
        Bare(name + ": i32 = if " + label + " " + odd + " {");
        const std::string before = sum_;
        Linear("%p", random_.Below(4));
        Bare("br " + label + " (" + sum_ + ")\n} else {\nbr " + label + " (%i)\n}");
        sum_ = before;
        Add(name);
        return;
      }
      default: {
        const std::string narrow = Any({"w1 ", "w2 ", "w2 signed "});
        Add(Defined("load.i32 " + narrow + "param(2) " + Place("%p", random_.Below(6))));
      }
    }
  }

  Kernel Finish() {
    StatusOr<ir::Module> module = ir::ParseModule(
        "module \"rows\"\nuses separate_buffers\nparam buffer inout \"d\"\nparam buffer in \"r\"\nparam buffer in "
        "\"x\"\n"
        "param buffer in \"w\"\nparam i32 \"n\"\nparam i32 \"m\"\nentry f0\n"
        "func f0 \"rows\" (%d: i32, %r: i32, %x: i32, %w: i32, %n: i32, %m: i32) -> () {\n" +
        body_ + "return ()\n}\n");
    HPVMD_CHECK(module.ok());
    Kernel kernel;
    kernel.seed = seed_;
    kernel.module = *std::move(module);
    const uint64_t instances = random_.Between(1, 12);
    kernel.extent = {instances, 1, 1};
    const auto bind = [&](uint64_t size, Binding::Fill fill) {
      Binding binding;
      binding.bytes = size;
      binding.fill = fill;
      binding.seed = random_.Next();
      binding.scalar = random_.Percent(80) ? random_.Below(40) : random_.Next() & 0xffffffffu;
      kernel.bindings.push_back(binding);
    };
    bind(4 * instances, Binding::Fill::kZero);
    bind(4 * instances + 8 + 4 * random_.Below(60), Binding::Fill::kPermutation);
    bind(random_.Percent(70) ? 1024 : random_.Below(400), Binding::Fill::kIntegers);
    bind(random_.Percent(70) ? 600 : 4 * random_.Below(60), Binding::Fill::kPermutation);
    bind(0, Binding::Fill::kZero);
    bind(0, Binding::Fill::kZero);
    return kernel;
  }

  diff::Random random_;
  const uint64_t seed_;
  uint32_t fresh_ = 0, source_ = 0;
  std::string body_, sum_;
};

}  // namespace

Kernel GenerateRows(uint64_t seed) { return RowsGenerator(seed).Generate(); }

}  // namespace hpvm::spmd
