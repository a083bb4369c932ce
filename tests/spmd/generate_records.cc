// SPDX-License-Identifier: Apache-2.0
// Kernels that read and write fields of records, with constants added to an address and subtracted again, so that it
// wraps around 2^32 in between: drivers' compilers get this wrong (docs/GPU.md).
#include <algorithm>

#include "base/status.h"
#include "compiler/ir/text/text.h"
#include "tests/diff/random.h"
#include "tests/spmd/generate.h"

namespace hpvm::spmd {
namespace {

class RecordsGenerator {
 public:
  explicit RecordsGenerator(uint64_t seed) : random_(seed), seed_(seed) {}

  Kernel Generate() && {
    stride_ = 16 * random_.Between(1, 8);
    is_memory64_ = random_.Percent(25);
    is_flat_ = random_.Percent(70);
    turns_ = random_.Percent(30) ? random_.Between(2, 4) : 1;
    const uint32_t instances = 64 * random_.Between(1, 8);
    const uint32_t before = 16 * random_.Below(256);  // Bytes before the first record.
    records_ = instances * turns_;
    Line("%zero: i32 = const.i32 0");
    Line("%one: i32 = const.i32 1");
    Line("%turns: i32 = const.i32 " + std::to_string(turns_));
    Line("%id: i32 = instance_id.i32 %zero");
    Line("%word: i32 = mul.i32 %id, " + Constant(8));
    Line("%zeros: i32 = load.i32 " + Place("w", "%zero"));
    Line("%sixteen: i32 = mul.i32 %zeros, " + Constant(16));
    Line("%first: i32 = mul.i32 %id, %turns");
    Line("%nothing: i64 = const.i64 1");
    if (turns_ > 1) {
      Line("%sum: i64 = loop again (%turn: i32 = %zero, %so_far: i64 = %nothing) {");
      Line("%which: i32 = add.i32 %first, %turn");
    } else {
      Line("%which: i32 = add.i32 %first, %zero");
    }
    const std::string sum = Records(turns_ > 1 ? "%so_far" : "%nothing", before);
    if (turns_ > 1) {
      Line("%next: i32 = add.i32 %turn, %one");
      Line("%more: i32 = lt_u.i32 %next, %turns");
      Line("if on %more {\ncontinue again (%next, " + sum + ")\n} else {\nbr on ()\n}\nbr again (" + sum + ")\n}");
    }
    Line("store.i64 " + Place("d", "%word") + ", " + (turns_ > 1 ? "%sum" : sum));
    return Finish(instances, before);
  }

 private:
  void Line(const std::string& line) { body_ += line + "\n"; }
  std::string Fresh() { return "%t" + std::to_string(fresh_++); }
  std::string Constant(uint32_t value) {
    const std::string name = Fresh();
    Line(name + ": i32 = const.i32 " + std::to_string(value));
    return name;
  }
  std::string Sum(const std::string& a, const std::string& b) {
    const std::string name = Fresh();
    Line(name + ": i32 = add.i32 " + a + ", " + b);
    return name;
  }

  // Address of the access for an offset of 32 bits in the buffer.
  std::string Place(const std::string& buffer, const std::string& offset) {
    const std::string type = is_memory64_ ? "i64" : "i32";
    std::string wide = offset;
    if (is_memory64_) {
      wide = Fresh();
      Line(wide + ": i64 = extend_u.i32 " + offset);
    }
    if (!is_flat_) {
      return "param(" +
             std::string(buffer == "d"   ? "0"
                         : buffer == "r" ? "1"
                         : buffer == "x" ? "2"
                                         : "3") +
             ") " + wide;
    }
    const std::string name = Fresh();
    Line(name + ": " + type + " = add." + type + " %" + buffer + ", " + wide);
    return "flat " + name;
  }

  // Returns the record's offset plus a superfluous constant, which is stored in `extra`.
  std::string Begin(uint32_t* extra) {
    std::string which = "%which";
    *extra = 0;
    if (random_.Percent(50)) {
      const uint32_t later = random_.Between(1, 40);
      which = Sum(which, Constant(later));
      *extra = later * stride_;
    }
    const std::string at = Fresh();
    Line(at + ": i32 = mul.i32 " + which + ", " + Constant(stride_));
    std::string sum = at;
    if (random_.Percent(60)) {
      const uint32_t more = 16 * random_.Between(1, 512);
      sum = random_.Percent(50) ? Sum(Constant(more), sum) : Sum(sum, Constant(more));
      *extra += more;
    }
    return random_.Percent(85) ? Sum(sum, "%sixteen") : sum;
  }

  // Subtracts the constant and adds the field's offset in one step.
  std::string Field(const std::string& begin, uint32_t extra, uint32_t at) {
    const std::string name = Fresh();
    const bool is_less = at < extra;
    Line(name + ": i32 = " + (is_less ? "sub" : "add") + ".i32 " + begin + ", " +
         Constant(is_less ? extra - at : at - extra));
    return name;
  }

  // Loads of neighbouring fields, and stores to the same fields of the instance's own record; returns the new sum.
  std::string Records(std::string sum, uint32_t before) {
    const uint32_t width = random_.Percent(50) ? 8 : random_.Percent(60) ? 4 : random_.Between(1, 2);
    const uint32_t apart = std::max(width, random_.Percent(50) ? 8u : 4u);
    const uint32_t fields = std::min(random_.Between(2, 3), stride_ / apart);
    const uint32_t low = apart * random_.Below(stride_ / apart - fields + 1);
    const std::string narrow = width == 8 ? "" : " w" + std::to_string(width);
    uint32_t extra = 0, own_extra = 0;
    const std::string begin = Begin(&extra);
    const bool stores = random_.Percent(50);
    const std::string own = stores ? Begin(&own_extra) : "";
    for (uint32_t i = 0; i < fields; ++i) {
      const uint32_t at = before + low + apart * (fields - 1 - i);
      const std::string place = Place("x", Field(begin, extra, at));
      const std::string value = Fresh(), scaled = Fresh(), next = Fresh();
      Line(value + ": i64 = load.i64" + narrow + " " + place);
      Line(scaled + ": i64 = add.i64 " + sum + ", " + sum);
      Line(next + ": i64 = add.i64 " + scaled + ", " + value);
      sum = next;
      if (stores) {
        const std::string to = Place("r", Field(own, own_extra, at));
        Line("store.i64" + narrow + " " + to + ", " + sum);
      }
    }
    return sum;
  }

  Kernel Finish(uint32_t instances, uint32_t before) {
    const std::string type = is_memory64_ ? "i64" : "i32";
    StatusOr<ir::Module> module = ir::ParseModule(
        "module \"records\"" + std::string(is_memory64_ ? " memory64" : "") +
        "\nparam buffer inout \"d\"\nparam buffer inout \"r\"\nparam buffer in \"x\"\nparam buffer in \"w\"\nentry f0\n"
        "func f0 \"records\" (%d: " +
        type + ", %r: " + type + ", %x: " + type + ", %w: " + type + ") -> () {\n" + body_ + "return ()\n}\n");
    HPVMD_CHECK(module.ok());
    Kernel kernel;
    kernel.seed = seed_;
    kernel.module = *std::move(module);
    kernel.extent = {instances, 1, 1};
    const uint64_t bytes = before + uint64_t{records_} * stride_;
    const auto bind = [&](uint64_t size, Binding::Fill fill) {
      Binding binding;
      binding.bytes = size;
      binding.fill = fill;
      binding.seed = random_.Next();
      kernel.bindings.push_back(binding);
    };
    bind(uint64_t{instances} * 8, Binding::Fill::kZero);
    bind(bytes, Binding::Fill::kIntegers);
    bind(bytes, Binding::Fill::kIntegers);
    bind(16, Binding::Fill::kZero);
    return kernel;
  }

  diff::Random random_;
  const uint64_t seed_;
  uint32_t stride_ = 16, turns_ = 1, records_ = 1, fresh_ = 0;
  bool is_memory64_ = false, is_flat_ = true;
  std::string body_;
};

}  // namespace

Kernel GenerateRecords(uint64_t seed) { return RecordsGenerator(seed).Generate(); }

}  // namespace hpvm::spmd
