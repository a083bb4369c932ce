// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "compiler/ir/access.h"
#include "compiler/ir/text/text.h"
#include "compiler/pass/find_bounds.h"
#include "compiler/pass/testing/access_trace.h"
#include "compiler/pass/testing/golden_kernel.h"
#include "compiler/pass/testing/random_kernel.h"

namespace hpvm::pass {
namespace {

using ir::AccessRange;
using ir::InstanceBox;
using ir::ParamAccess;

constexpr uint64_t kStepsMax = 40'000;

bool operator==(const AccessRange& a, const AccessRange& b) {
  return (a.is_empty() && b.is_empty()) || (a.begin == b.begin && a.end == b.end);
}
std::string ToString(const AccessRange& r) {
  return r.is_empty() ? "[)" : "[" + std::to_string(r.begin) + ", " + std::to_string(r.end) + ")";
}
std::string ToString(const ParamAccess& a) {
  return "read " + ToString(a.read) + " written " + ToString(a.written) + (a.overwrites ? " overwrites" : "");
}

bool IsIn(const InstanceBox& box, const std::array<uint64_t, 3>& instance) {
  for (int i = 0; i < 3; ++i) {
    if (instance[i] < box.first[i] || instance[i] - box.first[i] >= box.count[i]) {
      return false;
    }
  }
  return true;
}

// The actual accesses of a box's instances to a parameter.
struct Truth {
  AccessRange read, written;
  std::set<uint64_t> stored;        // In bytes.
  std::set<uint64_t> read_unowned;  // Bytes that an instance read before it had stored to them.
};
Truth TruthOf(const testing::AccessTrace& trace, const InstanceBox& box, uint32_t param) {
  Truth truth;
  std::map<std::array<uint64_t, 3>, std::set<uint64_t>> own;
  const auto include = [](const testing::TracedAccess& access, AccessRange* hull) {
    *hull = hull->is_empty() ? AccessRange{access.begin, access.end}
                             : AccessRange{std::min(hull->begin, access.begin), std::max(hull->end, access.end)};
  };
  for (const testing::TracedAccess& access : trace.accesses) {
    if (access.param != param || !IsIn(box, access.instance)) {
      continue;
    }
    std::set<uint64_t>& mine = own[access.instance];
    if (access.is_load) {
      include(access, &truth.read);
      for (uint64_t byte = access.begin; byte < access.end; ++byte) {
        if (!mine.contains(byte)) {
          truth.read_unowned.insert(byte);
        }
      }
    }
    if (access.is_store) {
      include(access, &truth.written);
      for (uint64_t byte = access.begin; byte < access.end; ++byte) {
        mine.insert(byte);
        truth.stored.insert(byte);
      }
    }
  }
  return truth;
}

bool Holds(const AccessRange& hull, const AccessRange& inner) {
  return inner.is_empty() || (hull.begin <= inner.begin && inner.end <= hull.end);
}

// Returns why a claim about a box is wrong; empty when it is right.
std::string FaultOf(const ParamAccess& claimed, const Truth& truth, bool has_ended) {
  if (!Holds(claimed.read, truth.read) || !Holds(claimed.written, truth.written)) {
    return "read " + ToString(truth.read) + " written " + ToString(truth.written);
  }
  if (!claimed.overwrites || !has_ended) {
    return "";
  }
  for (uint64_t byte = claimed.written.begin; byte < claimed.written.end; ++byte) {
    if (!truth.stored.contains(byte)) {
      return "byte " + std::to_string(byte) + " is not written";
    }
    if (truth.read_unowned.contains(byte)) {
      return "byte " + std::to_string(byte) + " is read before it is written";
    }
  }
  return "";
}

class Boxes {
 public:
  explicit Boxes(uint32_t seed) : random_(seed) {}
  InstanceBox Of(const std::array<uint64_t, 3>& extent) {
    InstanceBox box;
    for (int i = 0; i < 3; ++i) {
      const bool is_whole = random_() % 3 == 0;
      box.first[i] = is_whole ? 0 : random_() % extent[i];
      box.count[i] = is_whole ? extent[i] : 1 + random_() % (extent[i] - box.first[i]);
    }
    return box;
  }

 private:
  std::mt19937 random_;
};

struct Tally {
  int boxes = 0, known = 0, overwritten = 0, with_loops = 0, tight = 0;
};

// Compares the result of FindAccesses for random boxes of a launch with the interpreter's accesses. Skips accesses
// that leave their buffer in a kernel with separate buffers, because FindAccesses claims nothing about them.
void CompareBoxes(const ir::Module& module, const ir::BoundsProgram& program, const ir::Launch& launch, uint32_t seed,
                  int box_count, Tally* tally, uint64_t steps_max = kStepsMax) {
  StatusOr<testing::AccessTrace> trace = testing::TraceAccesses(module, launch, steps_max);
  ASSERT_TRUE(trace.ok()) << trace.status();
  const ir::Function& f = module.function(module.entry);
  if (program.is_separate) {
    std::erase_if(trace->accesses, [&](const testing::TracedAccess& a) { return f.op(a.op).space_index != a.param; });
  }
  const ir::BoundsFacts facts = testing::FactsOf(module, launch);
  Boxes boxes(seed);
  for (int i = 0; i < box_count; ++i) {
    const InstanceBox box = boxes.Of(launch.extent);
    std::vector<ParamAccess> claimed;
    ++tally->boxes;
    if (!ir::FindAccesses(program, facts, box, &claimed)) {
      continue;
    }
    ++tally->known;
    for (uint32_t param = 0; param < module.params.size(); ++param) {
      if (!module.params[param].is_buffer) {
        continue;
      }
      const Truth truth = TruthOf(*trace, box, param);
      const std::string fault = FaultOf(claimed[param], truth, trace->end.code == ir::TrapCode::kNone);
      ASSERT_EQ(fault, "") << "box (" << box.first[0] << ", " << box.first[1] << ", " << box.first[2] << ") of "
                           << box.count[0] << " x " << box.count[1] << " x " << box.count[2] << ": param " << param
                           << " " << ToString(claimed[param]) << "\nextent " << launch.extent[0] << " x "
                           << launch.extent[1] << ", bytes " << facts.params[param].value << "\n"
                           << ir::Print(module);
      tally->overwritten += claimed[param].overwrites ? 1 : 0;
      tally->with_loops += claimed[param].overwrites && !program.loops.empty() ? 1 : 0;
      tally->tight += claimed[param].read == truth.read && claimed[param].written == truth.written ? 1 : 0;
    }
  }
}

// The buffer starts as zeros.
void CompareKernel(const std::string& body, const testing::KernelLaunch& facts, bool is_separate, uint32_t seed,
                   Tally* tally) {
  const ir::Module module = testing::BoundsKernel(body, is_separate);
  const ir::BoundsProgram program = FindBounds(module);
  std::vector<uint64_t> data(facts.bytes / 8 + 1);
  ir::Launch launch;
  launch.extent = facts.extent;
  launch.arguments = {
      {reinterpret_cast<uint8_t*>(data.data()), facts.bytes, 0}, {nullptr, 0, facts.n}, {nullptr, 0, facts.m}};
  CompareBoxes(module, program, launch, seed, 4, tally);
}

uint32_t Seeds(uint32_t usual) {
  const char* seeds = std::getenv("HPVMD_ACCESS_SEEDS");
  return seeds != nullptr ? static_cast<uint32_t>(std::atoi(seeds)) : usual;
}

// Random kernels access only bytes inside the hulls.
TEST(FindAccessTest, HullsHoldRandomKernels) {
  Tally tally;
  for (uint32_t seed = 0; seed < Seeds(500) && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    testing::KernelGenerator generator(seed);
    const std::string body = generator.Body();
    for (int i = 0; i < 2; ++i) {
      CompareKernel(body, generator.Facts(), seed % 3 != 0, seed, &tally);
    }
  }
  std::printf("%d boxes, %d known, %d overwritten, %d tight\n", tally.boxes, tally.known, tally.overwritten,
              tally.tight);
  EXPECT_GT(tally.known, tally.boxes / 4);  // Otherwise nothing is tested.
}

// StoreGenerator generates kernels that mostly store, at offsets linear in ids and loop counters, under conditions and
// in loops of all forms.
class StoreGenerator {
 public:
  explicit StoreGenerator(uint32_t seed) : random_(seed) {}

  std::string Body() {
    text_.clear();
    linear_ = {"x", "x", "y"};
    Statements(3);
    return text_;
  }
  testing::KernelLaunch Facts() {
    const auto scalar = [&] { return Chance(12) ? 0xffffffffu : Below(8); };
    return {{1 + Below(6), 1 + Below(4), 1}, 4 * (1 + Below(80)), scalar(), scalar()};
  }

 private:
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool Chance(uint32_t n) { return Below(n) == 0; }
  std::string Name() { return "v" + std::to_string(++names_); }
  std::string Let(const std::string& op, const std::string& a, const std::string& b) {
    const std::string name = Name();
    text_ += " %" + name + ": i32 = " + op + ".i32 %" + a + ", %" + b + "\n";
    return name;
  }
  std::string Constant() { return "c" + std::to_string(Below(7)); }
  std::string Bound() { return Chance(2) ? "n" : Chance(2) ? "m" : Constant(); }
  std::string Variable() { return linear_[Below(static_cast<uint32_t>(linear_.size()))]; }

  // Returns a sum of few variables, with the strides that make rows.
  std::string Index() {
    std::string sum = Variable();
    for (uint32_t i = Below(3); i > 0; --i) {
      const std::string stride = Chance(3) ? "n" : Chance(3) ? "m" : Constant();
      sum = Let("add", Let("mul", Variable(), stride), sum);
    }
    return Chance(4) ? Let(Chance(4) ? "sub" : "add", sum, Constant()) : sum;
  }

  void Store() {
    const bool is_wide = Chance(6), is_narrow = !is_wide && Chance(8);
    const std::string shift = is_wide ? "c4" : is_narrow ? "c1" : Chance(8) ? "c3" : "c2";
    if (last_.empty() || !Chance(5)) {
      last_ = Let("shl", Index(), shift);
    }
    const std::string immediate = Chance(3) ? " + " + std::to_string(4 * Below(4)) : "";
    text_ += is_wide
                 ? " store128 param(0) %" + last_ + immediate + ", %x, %x, %x, %x\n"
                 : " store.i32" + std::string(is_narrow ? " w2" : "") + " param(0) %" + last_ + immediate + ", %x\n";
  }
  void Load() {
    const std::string offset = !last_.empty() && Chance(2) ? last_ : Let("shl", Index(), "c2");
    text_ += " %" + Name() + ": i32 = load.i32 param(0) %" + offset + "\n";
  }

  std::string Condition() {
    constexpr const char* kCompares[] = {"lt_u", "lt_u", "lt_s", "ge_u", "ge_s", "ne", "eq", "gt_u", "le_s"};
    if (Chance(8)) {
      const std::string a = Condition();
      return Let(Chance(2) ? "and" : "or", a, Condition());
    }
    if (Chance(16)) {
      const std::string name = Name();
      text_ += " %" + name + ": i32 = load.i32 param(0) %c0\n";
      return name;
    }
    const std::string value = Chance(4) ? Let("sub", Variable(), Constant()) : Variable();
    const std::string right = Chance(4) ? Variable() : Bound();
    const std::string name = Let(kCompares[Below(9)], value, right);
    if (!Chance(8)) {
      return name;
    }
    const std::string negated = Name();
    text_ += " %" + negated + ": i32 = eqz.i32 %" + name + "\n";
    return negated;
  }

  void Nested(int depth) {
    const std::string last = last_;
    const size_t count = linear_.size();
    Statements(depth);
    linear_.resize(count);
    last_ = last;
  }

  void If(int depth) {
    const std::string label = Name(), condition = Condition();
    text_ += " if " + label + " %" + condition + " {\n";
    Nested(depth - 1);
    text_ += " br " + label + " ()\n} else {\n";
    if (Chance(3)) {
      Nested(depth - 1);
    }
    text_ += Chance(6) ? " return ()\n}\n" : " br " + label + " ()\n}\n";
  }

  void Guard() {
    const std::string label = Name(), condition = Condition();
    text_ += " if " + label + " %" + condition + " {\n return ()\n} else {\n br " + label + " ()\n}\n";
  }

  // Skips the rest of a block.
  void Block(int depth) {
    const std::string block = Name(), label = Name();
    text_ += " block " + block + " () {\n";
    const std::string condition = Condition();
    text_ += " if " + label + " %" + condition + " {\n br " + block + " ()\n} else {\n br " + label + " ()\n}\n";
    Nested(depth - 1);
    text_ += " br " + block + " ()\n}\n";
  }

  // Writes a loop in the form that compilers emit: the counter is tested at the end, or at the beginning.
  void Loop(int depth) {
    const std::string loop = Name(), i = Name(), exit = Name(), bound = Bound();
    const bool is_tested_first = Chance(2), counts_down = !is_tested_first && Chance(4);
    // The loop may end by a jump out of a block around it.
    const bool has_block = Chance(3);
    const std::string end = has_block ? Name() : loop;
    if (has_block) {
      text_ += " block " + end + " () {\n";
    }
    const std::string step = Chance(5) ? "c2" : "c1";
    const auto leave_unless = [&](const std::string& condition) {
      text_ += " if " + exit + " %" + condition + " {\n br " + exit + " ()\n} else {\n br " + end + " ()\n}\n";
    };
    text_ += " loop " + loop + " (%" + i + ": i32 = %" + (counts_down ? bound : Chance(4) ? "c1" : "c0") + ") {\n";
    linear_.push_back(i);
    linear_.push_back(i);
    if (is_tested_first) {
      leave_unless(Let(Chance(3) ? "lt_s" : Chance(4) ? "ne" : "lt_u", i, bound));
    }
    const std::string last = last_;
    Statements(depth - 1);
    last_ = last;
    linear_.resize(linear_.size() - 2);
    const std::string next = Let(counts_down ? "sub" : "add", i, step);
    if (!is_tested_first) {
      leave_unless(counts_down ? next : Let(Chance(3) ? "ne" : "lt_u", next, bound));
    }
    text_ += " continue " + loop + " (%" + next + ")\n}\n";
    if (has_block) {
      text_ += " br " + end + " ()\n}\n";
    }
  }

  void Statements(int depth) {
    for (uint32_t i = 0, count = 1 + Below(2); i < count; ++i) {
      const uint32_t kind = Below(depth > 0 ? 12 : 5);
      kind < 4    ? Store()
      : kind == 4 ? Load()
      : kind < 7  ? If(depth)
      : kind == 7 ? Guard()
      : kind == 8 ? Block(depth)
                  : Loop(depth);
    }
  }

  std::mt19937 random_;
  std::string text_, last_;
  std::vector<std::string> linear_;
  int names_ = 0;
};

// Bytes that are claimed to be overwritten are overwritten, and are not read before.
TEST(FindAccessTest, OverwritesHoldRandomStores) {
  Tally tally;
  for (uint32_t seed = 0; seed < Seeds(1500) && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    StoreGenerator generator(seed);
    const std::string body = generator.Body();
    for (int i = 0; i < 3; ++i) {
      CompareKernel(body, generator.Facts(), seed % 4 != 0, seed, &tally);
    }
  }
  std::printf("%d boxes, %d known, %d overwritten (%d in kernels with loops), %d tight\n", tally.boxes, tally.known,
              tally.overwritten, tally.with_loops, tally.tight);
  EXPECT_GT(tally.overwritten, tally.boxes / 20);  // Otherwise nothing is tested.
  EXPECT_GT(tally.with_loops, tally.overwritten / 10);
}

// Kernels of the benchmarks, cut along their slowest dimension or whole: the hulls are exact to the byte.
TEST(FindAccessTest, CompiledKernelsAreTight) {
  struct Part {
    const char* kernel;
    InstanceBox box;
    std::vector<ParamAccess> want;  // The expected accesses of the first parameters, in order.
  };
  constexpr AccessRange kNone;
  const Part kParts[] = {
      {"nstream",
       {{334, 0, 0}, {250, 1, 1}},
       {{{2672, 4672}, {2672, 4672}, false}, {{2672, 4672}, kNone, false}, {{2672, 4672}, kNone, false}}},
      {"sgemm",
       {{0, 11, 0}, {47, 8, 1}},
       {{{880, 1520}, kNone, false}, {{0, 3760}, kNone, false}, {kNone, {2068, 3572}, true}}},
      {"sgemm",  // Columns: the written bytes have gaps.
       {{15, 0, 0}, {11, 33, 1}},
       {{{0, 2640}, kNone, false}, {{60, 3676}, kNone, false}, {kNone, {60, 6120}, false}}},
      {"dgemm",
       {{0, 11, 0}, {47, 8, 1}},
       {{{1760, 3040}, kNone, false}, {{0, 7520}, kNone, false}, {{4136, 7144}, {4136, 7144}, false}}},
      {"tiled_matmul",
       {{0, 16, 0}, {48, 16, 1}},
       {{{2048, 4096}, kNone, false}, {{0, 6144}, kNone, false}, {kNone, {3072, 6144}, true}}},
      {"heat", {{0, 0, 3}, {30, 20, 2}}, {{{8580, 19580}, kNone, false}, {kNone, {11396, 16764}, false}}},
      {"star",
       {{0, 19, 0}, {57, 14, 1}},
       {{{9288, 18040}, kNone, false}, {{16, 184}, kNone, false}, {{10264, 17064}, {10264, 17064}, false}}},
      {"transpose",
       {{0, 20, 0}, {61, 15, 1}},
       {{{160, 29560}, {160, 29560}, false}, {{9760, 17080}, {9760, 17080}, false}}},
      {"reduce", {{33, 0, 0}, {25, 1, 1}}, {{{264, 5264}, kNone, false}, {kNone, {264, 464}, true}}},
      {"tree_sum", {{768, 0, 0}, {512, 1, 1}}, {{{6144, 10240}, kNone, false}, {kNone, {12, 20}, false}}},
      {"n_body", {{33, 0, 0}, {25, 1, 1}}, {{{0, 1600}, kNone, false}, {kNone, {396, 696}, true}}},
      {"mandelbrot", {{0, 16, 0}, {64, 12, 1}}, {{kNone, {4096, 7168}, true}}},
      {"cutcp",  // Its lists are indexed by values from memory.
       {{0, 0, 6}, {20, 20, 5}},
       {{{0, 16000}, kNone, false}, {{0, 4000}, kNone, false}, {kNone, {9600, 17600}, true}}},
      {"spmv",
       {{33, 0, 0}, {25, 1, 1}},
       {{{132, 236}, kNone, false},
        {{0, 4000}, kNone, false},
        {{0, 4000}, kNone, false},
        {{0, 400}, kNone, false},
        {kNone, {132, 232}, true}}},
      {"histogram", {{333, 0, 0}, {250, 1, 1}}, {{{1332, 2332}, kNone, false}, {{0, 1024}, {0, 1024}, false}}},
  };
  for (const Part& part : kParts) {
    SCOPED_TRACE(part.kernel);
    const testing::GoldenKernel golden = testing::ReadGoldenKernel(part.kernel);
    std::vector<ParamAccess> found;
    ASSERT_TRUE(
        ir::FindAccesses(FindBounds(golden.module), testing::FactsOf(golden.module, golden.launch), part.box, &found));
    for (size_t i = 0; i < part.want.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(ToString(found[i]), ToString(part.want[i]));
    }
  }
}

// Random boxes of the same kernels, with zeroed buffers.
TEST(FindAccessTest, HullsHoldCompiledKernels) {
  Tally tally;
  for (const std::string& name : testing::GoldenKernelNames()) {
    SCOPED_TRACE(name);
    const testing::GoldenKernel golden = testing::ReadGoldenKernel(name);
    CompareBoxes(golden.module, FindBounds(golden.module), golden.launch, 17, 6, &tally, kStepsMax * 1000);
  }
  EXPECT_GE(tally.boxes, 60);
  EXPECT_EQ(tally.known, tally.boxes);
}

ParamAccess Found(const std::string& body, const testing::KernelLaunch& launch, const InstanceBox& box,
                  bool* is_known = nullptr, bool is_separate = true) {
  ir::BoundsFacts facts;
  facts.extent = launch.extent;
  facts.group = {4, 1, 1};
  facts.params = {{true, true, launch.bytes, 32}, {false, false, launch.n, 32}, {false, false, launch.m, 32}};
  std::vector<ParamAccess> found;
  const bool known = ir::FindAccesses(FindBounds(testing::BoundsKernel(body, is_separate)), facts, box, &found);
  if (is_known != nullptr) {
    *is_known = known;
  } else {
    EXPECT_TRUE(known);
  }
  return found.empty() ? ParamAccess() : found[0];
}

constexpr char kStore[] = " store.i32 param(0) %o, %x\n";
std::string At(const std::string& i) { return " %o: i32 = shl.i32 %" + i + ", %c2\n" + kStore; }
std::string If(const std::string& condition, const std::string& inside) {
  return " if g0 %" + condition + " {\n" + inside + " br g0 ()\n} else {\n br g0 ()\n}\n";
}

// Shapes of stores in kernels, and the bytes that count as overwritten.
TEST(FindAccessTest, KnownStores) {
  struct Case {
    const char* name;
    std::string body;
    testing::KernelLaunch launch;
    InstanceBox box;
    const char* want;
  };
  const std::string guard = " %g: i32 = lt_u.i32 %x, %n\n";
  const std::string row = " %r: i32 = mul.i32 %y, %n\n %i: i32 = add.i32 %r, %x\n";
  const auto loop = [](const std::string& inside, const std::string& from = "c0") {
    return " loop l (%i: i32 = %" + from + ") {\n" + inside +
           " %j: i32 = add.i32 %i, %c1\n %h: i32 = lt_u.i32 %j, %n\n if h0 %h {\n continue l (%j)\n} else {\n"
           " br h0 ()\n}\n br l ()\n}\n";
  };
  const std::string own_row = " %q: i32 = mul.i32 %x, %n\n %k: i32 = add.i32 %q, %i\n" + At("k");
  // Every `step`th element from `begin` on, `count` times.
  const auto stride = [](int begin, const std::string& count, const std::string& step = "c2") {
    std::string text = " loop l# (%i#: i32 = %c0) {\n %m#: i32 = mul.i32 %i#, %" + step +
                       "\n %o#: i32 = shl.i32 %m#, %c2\n store.i32 param(0) %o# + #, %x\n"
                       " %j#: i32 = add.i32 %i#, %c1\n %h#: i32 = lt_u.i32 %j#, %" +
                       count + "\n if h# %h# {\n continue l# (%j#)\n} else {\n br h# ()\n}\n br l# ()\n}\n";
    for (size_t at = text.find('#'); at != std::string::npos; at = text.find('#')) {
      text.replace(at, 1, std::to_string(begin));
    }
    return text;
  };
  const auto negated = [](std::string text) {
    for (int i = 0; i < 20; ++i) {
      text += " %z" + std::to_string(i + 1) + ": i32 = eqz.i32 %z" + std::to_string(i) + "\n";
    }
    return text;
  };
  const Case kCases[] = {
      {"Direct", At("x"), {{10, 1, 1}, 40, 0, 0}, {{2, 0, 0}, {3, 1, 1}}, "read [) written [8, 20) overwrites"},
      {"CutAtTheExtent",
       At("x"),
       {{10, 1, 1}, 40, 0, 0},
       {{8, 0, 0}, {30, 1, 1}},
       "read [) written [32, 40) overwrites"},
      {"Outside", At("x"), {{10, 1, 1}, 40, 0, 0}, {{10, 0, 0}, {3, 1, 1}}, "read [) written [)"},
      {"GuardThatHolds",
       guard + If("g", At("x")),
       {{10, 1, 1}, 40, 10, 0},
       {{0, 0, 0}, {10, 1, 1}},
       "read [) written [0, 40) overwrites"},
      {"GuardThatCuts",
       guard + If("g", At("x")),
       {{16, 1, 1}, 40, 10, 0},
       {{8, 0, 0}, {8, 1, 1}},
       "read [) written [32, 40) overwrites"},
      {"GuardThatFails",
       guard + If("g", At("x")),
       {{16, 1, 1}, 40, 10, 0},
       {{12, 0, 0}, {4, 1, 1}},
       "read [) written [)"},
      {"EarlyReturn",
       " %g: i32 = ge_u.i32 %x, %n\n if g0 %g {\n return ()\n} else {\n br g0 ()\n}\n" + At("x"),
       {{16, 1, 1}, 40, 10, 0},
       {{0, 0, 0}, {16, 1, 1}},
       "read [) written [0, 40) overwrites"},
      {"Inner",  // 1 <= x < n - 1 in one comparison.
       " %d: i32 = sub.i32 %x, %c1\n %w: i32 = sub.i32 %n, %c2\n %g: i32 = lt_u.i32 %d, %w\n" + If("g", At("x")),
       {{16, 1, 1}, 64, 10, 0},
       {{0, 0, 0}, {16, 1, 1}},
       "read [) written [4, 36) overwrites"},
      {"FromMemory",  // Only some instances store.
       " %g: i32 = load.i32 param(0) %c0\n" + If("g", At("x")),
       {{10, 1, 1}, 40, 0, 0},
       {{4, 0, 0}, {2, 1, 1}},
       "read [0, 4) written [16, 24)"},
      {"EveryOther",
       " %i: i32 = shl.i32 %x, %c1\n" + At("i"),
       {{10, 1, 1}, 80, 0, 0},
       {{0, 0, 0}, {10, 1, 1}},
       "read [) written [0, 76)"},
      {"PairsOfStores",
       " %i: i32 = shl.i32 %x, %c1\n" + At("i") + " store.i32 param(0) %o + 4, %x\n",
       {{10, 1, 1}, 80, 0, 0},
       {{0, 0, 0}, {10, 1, 1}},
       "read [) written [0, 80) overwrites"},
      {"Rows", row + At("i"), {{7, 5, 1}, 140, 7, 0}, {{0, 1, 0}, {7, 2, 1}}, "read [) written [28, 84) overwrites"},
      {"NarrowRows", row + At("i"), {{6, 5, 1}, 140, 7, 0}, {{0, 1, 0}, {6, 2, 1}}, "read [) written [28, 80)"},
      {"Reversed",
       " %k: i32 = sub.i32 %n, %x\n %i: i32 = sub.i32 %k, %c1\n" + At("i"),
       {{10, 1, 1}, 40, 10, 0},
       {{2, 0, 0}, {3, 1, 1}},
       "read [) written [20, 32) overwrites"},
      {"ReadsItself",
       " %o: i32 = shl.i32 %x, %c2\n %v: i32 = load.i32 param(0) %o\n" + std::string(kStore),
       {{10, 1, 1}, 40, 0, 0},
       {{2, 0, 0}, {3, 1, 1}},
       "read [8, 20) written [8, 20)"},
      {"ReadsBehindItsStore",
       At("x") + " %v: i32 = load.i32 param(0) %o\n",
       {{10, 1, 1}, 40, 0, 0},
       {{2, 0, 0}, {3, 1, 1}},
       "read [8, 20) written [8, 20) overwrites"},
      {"ReadsANeighbour",
       At("x") + " %v: i32 = load.i32 param(0) %o + 4\n",
       {{9, 1, 1}, 40, 0, 0},
       {{2, 0, 0}, {3, 1, 1}},
       "read [12, 24) written [8, 20)"},
      {"ReadsBehindAStoreThatMayBe",
       " %g: i32 = load.i32 param(0) %c0 + 40\n %o: i32 = shl.i32 %x, %c2\n" + If("g", kStore) +
           " %v: i32 = load.i32 param(0) %o\n" + kStore,
       {{10, 1, 1}, 44, 0, 0},
       {{2, 0, 0}, {3, 1, 1}},
       "read [8, 44) written [8, 20)"},
      {"ReadsElsewhere",
       At("x") + " %v: i32 = load.i32 param(0) %o + 40\n",
       {{10, 1, 1}, 80, 0, 0},
       {{0, 0, 0}, {10, 1, 1}},
       "read [40, 80) written [0, 40) overwrites"},
      {"Atomic",
       " %o: i32 = shl.i32 %x, %c2\n %v: i32 = atomic_add.i32 param(0) %o, %c1\n",
       {{10, 1, 1}, 40, 0, 0},
       {{2, 0, 0}, {3, 1, 1}},
       "read [8, 20) written [8, 20)"},
      {"CountedLoop",
       loop(own_row),
       {{4, 1, 1}, 160, 10, 0},
       {{1, 0, 0}, {2, 1, 1}},
       "read [) written [40, 120) overwrites"},
      {"LoopOfIds", loop(own_row, "x"), {{4, 1, 1}, 160, 10, 0}, {{1, 0, 0}, {2, 1, 1}}, "read [) written [44, 124)"},
      {"LoopLeftEarly",
       loop(" %v: i32 = load.i32 param(0) %c0 + 200\n if e %v {\n br l ()\n} else {\n br e ()\n}\n" + own_row),
       {{4, 1, 1}, 204, 10, 0},
       {{1, 0, 0}, {2, 1, 1}},
       "read [200, 204) written [40, 120)"},
      {"LoopUpToAnId",  // Adjacent rows, of 9 and 8 elements.
       loop(" %q: i32 = mul.i32 %x, %c9\n %d: i32 = sub.i32 %i, %x\n %k: i32 = add.i32 %q, %d\n" + At("k"), "x"),
       {{4, 1, 1}, 160, 10, 0},
       {{1, 0, 0}, {2, 1, 1}},
       "read [) written [36, 108)"},
      {"LoopThatMayReturn",
       loop(own_row + " %v: i32 = load.i32 param(0) %c0 + 200\n if e %v {\n %w: i32 = load.i32 param(0) %c0 + 204\n" +
            " if f %w {\n return ()\n} else {\n br f ()\n}\n br e ()\n} else {\n br e ()\n}\n"),
       {{4, 1, 1}, 208, 10, 0},
       {{1, 0, 0}, {2, 1, 1}},
       "read [200, 208) written [40, 120)"},
      {"StridesThatMeet",  // 0, 8, 16, 24 and 4, 12.
       stride(0, "n") + stride(4, "m"),
       {{1, 1, 1}, 40, 4, 2},
       {{0, 0, 0}, {1, 1, 1}},
       "read [) written [0, 28)"},
      {"StridesThatDiffer",  // 0, 8, 16, 24 and 4, 16.
       stride(0, "n") + stride(4, "m", "c3"),
       {{1, 1, 1}, 40, 4, 2},
       {{0, 0, 0}, {1, 1, 1}},
       "read [) written [0, 28)"},
      {"StridesThatFill",
       stride(0, "n") + stride(4, "m"),
       {{1, 1, 1}, 40, 4, 4},
       {{0, 0, 0}, {1, 1, 1}},
       "read [) written [0, 32) overwrites"},
      {"EverySecondByte",
       " %o: i32 = shl.i32 %x, %c1\n store.i32 w1 param(0) %o, %x\n",
       {{4, 1, 1}, 40, 0, 0},
       {{0, 0, 0}, {4, 1, 1}},
       "read [) written [0, 7)"},
      {"TwoGuards",  // 3 <= x < 7, and 0.
       " %d: i32 = sub.i32 %x, %c3\n %g: i32 = lt_u.i32 %d, %c4\n" + If("g", At("x")) +
           " %h: i32 = eq.i32 %x, %c0\n if h0 %h {\n store.i32 param(0) %c0, %x\n br h0 ()\n} else {\n"
           " br h0 ()\n}\n",
       {{10, 1, 1}, 40, 0, 0},
       {{0, 0, 0}, {10, 1, 1}},
       "read [) written [0, 28)"},
      {"GuardThatOverflows",
       " %k: i32 = add.i32 %n, %c1\n %g: i32 = lt_s.i32 %x, %k\n" + If("g", At("x")),
       {{10, 1, 1}, 40, 0x7fffffff, 0},
       {{0, 0, 0}, {10, 1, 1}},
       "read [) written [0, 40)"},
      {"DeeplyNegated",
       negated(" %t: i32 = load.i32 param(0) %c0 + 40\n %z0: i32 = eqz.i32 %t\n") + If("z20", At("x")),
       {{10, 1, 1}, 44, 0, 0},
       {{0, 0, 0}, {10, 1, 1}},
       "read [40, 44) written [0, 40)"},
      {"DeeplyNegatedInPart",
       negated(" %t: i32 = load.i32 param(0) %c0 + 40\n %z0: i32 = eqz.i32 %t\n") +
           " %u: i32 = lt_u.i32 %x, %n\n %g: i32 = and.i32 %u, %z20\n" + If("g", At("x")),
       {{10, 1, 1}, 44, 10, 0},
       {{0, 0, 0}, {10, 1, 1}},
       "read [40, 44) written [0, 40)"},
      {"ClampedStencil",  // The written bytes, and those read at x - 1, but not before 0.
       " %p: i32 = gt_s.i32 %x, %c0\n %d: i32 = sub.i32 %x, %c1\n %i: i32 = select.i32 %p, %d, %c0\n"
       " %s: i32 = shl.i32 %i, %c2\n %v: i32 = load.i32 param(0) %s + 400\n" +
           At("x"),
       {{100, 1, 1}, 800, 0, 0},
       {{50, 0, 0}, {50, 1, 1}},
       "read [596, 796) written [200, 400) overwrites"},
      {"GroupsAndPlaces",
       " %a: i32 = group_id.i32 %c0\n %s: i32 = group_size.i32 %c0\n %p: i32 = local_id.i32 %c0\n"
       " %t: i32 = mul.i32 %a, %s\n %i: i32 = add.i32 %t, %p\n" +
           At("i"),
       {{10, 1, 1}, 40, 0, 0},
       {{2, 0, 0}, {5, 1, 1}},
       "read [) written [8, 28) overwrites"},
      {"Gather",
       " %o: i32 = shl.i32 %x, %c2\n %k: i32 = load.i32 param(0) %o\n %v: i32 = load.i32 param(0) %k\n",
       {{10, 1, 1}, 400, 0, 0},
       {{2, 0, 0}, {3, 1, 1}},
       "read [0, 400) written [)"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(ToString(Found(c.body, c.launch, c.box)), c.want);
  }
}

// If some access may be anywhere, FindAccesses claims nothing.
TEST(FindAccessTest, WhatIsNotKnown) {
  struct Case {
    const char* name;
    std::string body;
    bool is_separate;
    bool is_known;
  };
  const Case kCases[] = {
      {"Inside", At("x"), false, true},
      {"PastTheEnd", " %i: i32 = add.i32 %x, %c1\n" + At("i"), true, true},
      // The access may land in another buffer.
      {"PastTheEndOfShared", " %i: i32 = add.i32 %x, %c1\n" + At("i"), false, false},
      {"Flat", " %o: i32 = shl.i32 %x, %c2\n store.i32 flat %o, %x\n", true, false},
      {"ModuleMemory", At("x") + " store.i32 module %o, %x\n", true, true},
      {"GroupMemory", " %q: i32 = local_alloc %c8\n %p: i32 = add.i32 %q, %c4\n store.i32 group %p, %x\n", false, true},
      {"PastGroupMemory", " %q: i32 = local_alloc %c4\n %p: i32 = add.i32 %q, %x\n store.i32 group %p + 16, %x\n",
       false, false},
      {"PastGroupMemoryOfItsOwn",
       " %q: i32 = local_alloc %c4\n %p: i32 = add.i32 %q, %x\n store.i32 group %p + 16, %x\n", true, true},
      {"Called",
       " call f1 (%b)\n" + At("x") + "return ()\n}\nfunc f1 \"g\" (%p: i32) -> () {\n store.i32 flat %p, %p\n", true,
       false},
      {"Fill", " memory_fill %b, %c0, %c4\n", true, false},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    bool is_known = false;
    Found(c.body, {{10, 1, 1}, 40, 0, 0}, {{0, 0, 0}, {10, 1, 1}}, &is_known, c.is_separate);
    EXPECT_EQ(is_known, c.is_known);
  }
  std::vector<ParamAccess> found;
  ir::BoundsFacts facts;
  facts.params = {{true, true, 40, 32}};
  EXPECT_FALSE(ir::FindAccesses(ir::BoundsProgram(), facts, {}, &found));
  EXPECT_EQ(found.size(), 1u);
}

}  // namespace
}  // namespace hpvm::pass
