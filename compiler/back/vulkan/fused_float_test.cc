// SPDX-License-Identifier: Apache-2.0
// Interprets the emitted functions for quotients and roots with fma word by word: for any InverseSqrt within 4 ulp the
// bits are those of IEEE 754. tests/gpu/vulkan_float_test.cc tests the functions on devices.
//   HPVMD_FLOATS=all vulkan_fused_float_test     every significand of roots, with every start
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/back/vulkan/vulkan_back.h"
#include "compiler/ir/text/text.h"
#include "compiler/pass/pipeline.h"

#include <spirv/unified1/GLSL.std.450.h>
#include <spirv/unified1/spirv.hpp>

namespace hpvm::vulkan {
namespace {

constexpr size_t kLanes = 256;
using Lanes = std::array<uint32_t, kLanes>;

float Float(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

GpuTarget Target() {
  GpuTarget target;
  target.has_int64 = target.has_fp64 = target.rounds_to_even = target.exact_fma = true;
  target.group_size_max = 64;
  target.group_extent_max = {64, 64, 64};
  target.group_count_max = {65535, 65535, 65535};
  target.buffer_bytes_max = 1u << 27;
  target.buffers_max = 8;
  target.push_bytes_max = 128;
  target.api_version = 12;
  return target;
}

// Returns the words of a kernel that computes %c from %a and %b.
std::vector<uint32_t> Emit(const std::string& operation) {
  const StatusOr<ir::Module> parsed = ir::ParseModule(
      "module \"m\"\nparam buffer inout \"r\"\nparam f32 \"a\"\nparam f32 \"b\"\nentry f0\n"
      "func f0 \"f\" (%r: i32, %a: f32, %b: f32) -> () {\n  %c: f32 = " +
      operation + "\n  store.f32 flat %r, %c\n  return ()\n}\n");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  ir::Module module = *parsed;
  EXPECT_TRUE(pass::RunGpuPipeline(module, {.verify_each = true}).ok());
  Diagnostics diagnostics;
  const std::optional<Artifact> artifact = EmitVulkan(module, Target(), {}, diagnostics);
  EXPECT_TRUE(artifact.has_value()) << ToString(diagnostics);
  std::vector<uint32_t> words(artifact->code.size() / 4);
  std::memcpy(words.data(), artifact->code.data(), artifact->code.size());
  return words;
}

// UsualWay computes a function of floats that is a condition and two branches; only the first branch is computed.
class UsualWay {
 public:
  UsualWay(std::vector<uint32_t> words, std::string_view name) : words_(std::move(words)) {
    uint32_t function = 0;
    bool is_inside = false;
    for (size_t at = 5; at < words_.size(); at += words_[at] >> 16) {
      const std::span<const uint32_t> op(&words_[at], words_[at] >> 16);
      switch (op[0] & 0xffff) {
        case spv::OpName:
          function = reinterpret_cast<const char*>(&op[2]) == name ? op[1] : function;
          break;
        case spv::OpDecorate:
          if (op[2] == spv::DecorationNoContraction) {
            alone_.insert(op[1]);
          }
          break;
        case spv::OpConstant:
          values_[op[2]].fill(op[3]);
          break;
        case spv::OpFunction:
          is_inside = op[2] == function;
          break;
        case spv::OpFunctionParameter:
          if (is_inside) {
            params_.push_back(op[2]);
          }
          break;
        default:
          if (is_inside) {
            body_.push_back(op);
          }
      }
    }
    EXPECT_FALSE(body_.empty()) << "No function \"" << name << "\".";
  }

  // Results of InverseSqrt are perturbed by `ulps`.
  void Run(const Lanes& x, const Lanes& y, const std::array<int, kLanes>& ulps) {
    values_[params_[0]] = x;
    if (params_.size() > 1) {
      values_[params_[1]] = y;
    }
    uint32_t wanted = 0;  // The label that control goes to.
    for (const std::span<const uint32_t> op : body_) {
      const uint32_t code = op[0] & 0xffff;
      if (code == spv::OpLabel) {
        wanted = wanted == op[1] ? 0 : wanted;
      } else if (wanted != 0) {
        continue;
      } else if (code == spv::OpBranchConditional) {
        is_usual = values_[op[1]];
        wanted = op[2];
      } else if (code == spv::OpBranch) {
        return;
      } else if (code == spv::OpStore) {
        result = values_[op[2]];
      } else if (code != spv::OpVariable && code != spv::OpSelectionMerge) {
        Compute(code, op, ulps);
      }
    }
    FAIL() << "The first way has no end.";
  }

  Lanes is_usual{}, result{};

 private:
  void Compute(uint32_t code, std::span<const uint32_t> op, const std::array<int, kLanes>& ulps) {
    Lanes& out = values_[op[2]];
    if (code == spv::OpExtInst && op[4] == GLSLstd450InverseSqrt) {
      const Lanes& a = values_[op[5]];
      for (size_t i = 0; i < kLanes; ++i) {
        out[i] =
            Bits(static_cast<float>(1 / std::sqrt(static_cast<double>(Float(a[i]))))) + static_cast<uint32_t>(ulps[i]);
      }
      return;
    }
    const bool is_fma = code == spv::OpExtInst && op[4] == GLSLstd450Fma;
    if (is_fma || code == spv::OpFMul) {
      EXPECT_TRUE(alone_.contains(op[2])) << "An operation may be contracted.";
    }
    const size_t first = is_fma ? 5 : 3;
    const Lanes& a = values_[op[first]];
    const Lanes& b = values_[op[first + 1 < op.size() ? first + 1 : first]];
    const Lanes& c = values_[op[first + 2 < op.size() ? first + 2 : first]];
    const auto each = [&](auto&& make) {
      for (size_t i = 0; i < kLanes; ++i) {
        out[i] = make(a[i], b[i], c[i]);
      }
    };
    if (is_fma) {
      return each([](uint32_t p, uint32_t q, uint32_t r) { return Bits(std::fma(Float(p), Float(q), Float(r))); });
    }
    switch (code) {
      case spv::OpBitcast:
        return each([](uint32_t p, uint32_t, uint32_t) { return p; });
      case spv::OpFMul:
        return each([](uint32_t p, uint32_t q, uint32_t) { return Bits(Float(p) * Float(q)); });
      case spv::OpFNegate:
        return each([](uint32_t p, uint32_t, uint32_t) { return p ^ 0x80000000; });
      case spv::OpIAdd:
        return each([](uint32_t p, uint32_t q, uint32_t) { return p + q; });
      case spv::OpISub:
        return each([](uint32_t p, uint32_t q, uint32_t) { return p - q; });
      case spv::OpBitwiseAnd:
      case spv::OpLogicalAnd:
        return each([](uint32_t p, uint32_t q, uint32_t) { return p & q; });
      case spv::OpBitwiseOr:
        return each([](uint32_t p, uint32_t q, uint32_t) { return p | q; });
      case spv::OpULessThan:
        return each([](uint32_t p, uint32_t q, uint32_t) -> uint32_t { return p < q; });
      case spv::OpFOrdLessThanEqual:
        return each([](uint32_t p, uint32_t q, uint32_t) -> uint32_t { return Float(p) <= Float(q); });
      case spv::OpFOrdGreaterThan:
        return each([](uint32_t p, uint32_t q, uint32_t) -> uint32_t { return Float(p) > Float(q); });
      case spv::OpSelect:
        return each([](uint32_t p, uint32_t q, uint32_t r) { return p != 0 ? q : r; });
      default:
        FAIL() << "Opcode " << code << " is none that this test computes.";
    }
  }

  const std::vector<uint32_t> words_;
  std::set<uint32_t> alone_;
  std::map<uint32_t, Lanes> values_;
  std::vector<uint32_t> params_;
  std::vector<std::span<const uint32_t>> body_;
};

// Checker collects operands until there are enough for a run.
class Checker {
 public:
  explicit Checker(bool divides)
      : divides_(divides),
        way_(Emit(divides ? "fdiv.f32 %a, %b" : "fsqrt.f32 %a"), divides ? "divide" : "square_root") {}

  void Add(float x, float y, int ulps) {
    x_[count_] = Bits(x);
    y_[count_] = Bits(y);
    ulps_[count_] = ulps;
    if (++count_ == kLanes) {
      Flush();
    }
  }
  // Remaining lanes of an earlier run are computed once more.
  void Flush() {
    way_.Run(x_, y_, ulps_);
    for (size_t i = 0; i < count_; ++i) {
      const float x = Float(x_[i]), y = Float(y_[i]), want = divides_ ? x / y : std::sqrt(x);
      ++runs;
      usual += way_.is_usual[i];
      if (way_.is_usual[i] != 0 && way_.result[i] != Bits(want) && ++wrong_ <= 5) {
        ADD_FAILURE() << std::hexfloat << x << ", " << y << ", start off by " << ulps_[i]
                      << " ulp: " << Float(way_.result[i]) << ", not " << want;
      }
    }
    count_ = 0;
  }
  bool IsUsual(float x, float y) {
    Flush();
    x_.fill(Bits(x));
    y_.fill(Bits(y));
    way_.Run(x_, y_, {});
    return way_.is_usual[0] != 0;
  }
  uint64_t runs = 0, usual = 0;

 private:
  const bool divides_;
  UsualWay way_;
  Lanes x_{}, y_{};
  std::array<int, kLanes> ulps_{};
  size_t count_ = 0;
  uint64_t wrong_ = 0;
};

constexpr int kUlpsMax = 4;
int AnyUlps(std::mt19937& random) { return static_cast<int>(random() % (2 * kUlpsMax + 1)) - kUlpsMax; }

// Returns 1 / y modulo a power of two, for odd y.
uint64_t Inverse(uint64_t y) {
  uint64_t inverse = y;
  for (int i = 0; i < 6; ++i) {
    inverse *= 2 - y * inverse;
  }
  return inverse;
}

// Returns an x with x / y as near as possible to a midpoint of two floats: x 2^k = y m +- `off` for an odd m of 25
// bits. Returns 0 when there is none.
float Hard(uint32_t y, int off, int k) {
  const uint64_t mask = (uint64_t{1} << k) - 1;
  const uint64_t m = (Inverse(y) * static_cast<uint64_t>(-off) & mask) | uint64_t{1} << 24;
  const uint64_t x = (y * m + static_cast<uint64_t>(off)) >> k;
  return m >> 25 == 0 && x >> 23 == 1 ? static_cast<float>(x) : 0;
}

void AddHard(Checker& checker, uint32_t y, std::mt19937& random) {
  for (const int off : {-1, 1, -3, 3}) {
    for (const int k : {24, 25}) {
      if (const float x = Hard(y, off, k); x != 0) {
        const int scale = static_cast<int>(random() % 60);
        const float sign = random() % 2 == 0 ? -1.0f : 1.0f;
        checker.Add(std::ldexp(x, scale - 23), sign * std::ldexp(static_cast<float>(y), 30 - scale), AnyUlps(random));
      }
    }
  }
}

// Covers values of y around the topmost, which the rare branch handles, with every start; and random values.
TEST(FusedFloatTest, DividesNearMidpoints) {
  Checker checker(true);
  std::mt19937 random(1);
  for (uint32_t y = (1 << 24) - 1; y > (1 << 24) - 8192; y -= 2) {
    for (int i = 0; i < 24; ++i) {
      AddHard(checker, y, random);
    }
  }
  for (uint32_t i = 0; i < 600'000; ++i) {
    AddHard(checker, static_cast<uint32_t>(random()) >> 9 | 0x00800001, random);
  }
  checker.Flush();
  EXPECT_GT(checker.runs, 1'000'000u);
  EXPECT_GT(checker.usual, checker.runs * 9 / 10);
}

TEST(FusedFloatTest, DividesAnything) {
  Checker checker(true);
  std::mt19937 random(2);
  for (uint32_t i = 0; i < 2'000'000; ++i) {
    const auto x = static_cast<uint32_t>(random()), y = static_cast<uint32_t>(random());
    checker.Add(Float(x), Float(y), AnyUlps(random));
    // Operands near one, whose quotients are near a power of two.
    checker.Add(Float(0x3f800000 + x % 64 - 32), Float(0x3f800000 + y % 4096 - 2048), AnyUlps(random));
  }
  checker.Flush();
  EXPECT_GT(checker.usual, checker.runs * 2 / 5);
}

// Covers every significand with both parities of the exponent, which determine the result, also near both ends.
TEST(FusedFloatTest, TakesRoots) {
  const char* const floats = std::getenv("HPVMD_FLOATS");
  const bool has_all = floats != nullptr && std::string_view(floats) == "all";
  Checker checker(false);
  std::mt19937 random(3);
  const float scales[] = {1.0f, std::ldexp(1.0f, 124), std::ldexp(1.0f, -76)};
  for (uint32_t i = 0; i < 1 << 24; i += has_all ? 1 : 1 + random() % 12) {
    const float x = Float(0x3f800000 + i);
    for (int ulps = -kUlpsMax; has_all && ulps <= kUlpsMax; ++ulps) {
      checker.Add(x, 0, ulps);
    }
    checker.Add(x * scales[random() % 3], 0, AnyUlps(random));
  }
  // Covers roots that are numbers of 12 bits and their neighbours, and operands beside powers of two.
  for (uint32_t g = 1 << 11; g < 1 << 12; ++g) {
    for (int ulps = -kUlpsMax; ulps <= kUlpsMax; ++ulps) {
      for (const int off : {-1, 0, 1}) {
        checker.Add(Float(Bits(static_cast<float>(g * g)) + static_cast<uint32_t>(off)), 0, ulps);
        checker.Add(Float((g % 100 + 90) << 23) + static_cast<float>(off), 0, ulps);
      }
    }
  }
  checker.Flush();
  EXPECT_GT(checker.runs, 2'000'000u);
  EXPECT_GT(checker.usual, checker.runs * 99 / 100);
}

// The rare branch gets exactly its operands.
TEST(FusedFloatTest, LeavesTheRest) {
  const float infinity = INFINITY, least = std::ldexp(1.0f, -62), beyond = std::ldexp(1.0f, 62);
  const float below = std::nextafter(least, 0.0f), most = std::nextafter(beyond, 0.0f);
  Checker divide(true);
  for (const float sign : {1.0f, -1.0f}) {
    for (const float x : {0.0f, 1e-40f, below, beyond, infinity, std::nanf("")}) {
      EXPECT_FALSE(divide.IsUsual(sign * x, 1)) << x;
      EXPECT_FALSE(divide.IsUsual(1, sign * x)) << x;
    }
    for (const float x : {least, 1.0f, most}) {
      EXPECT_TRUE(divide.IsUsual(sign * x, 1)) << x;
    }
    EXPECT_TRUE(divide.IsUsual(1, sign * least));
    EXPECT_FALSE(divide.IsUsual(1, sign * most));  // Its significand is the topmost.
    EXPECT_FALSE(divide.IsUsual(1, sign * Float(0x3ffffc00)));
    EXPECT_TRUE(divide.IsUsual(1, sign * Float(0x3ffffbff)));
  }
  Checker root(false);
  const float root_least = std::ldexp(1.0f, -76), root_end = std::ldexp(1.0f, 126);
  for (const float x : {0.0f, -0.0f, 1e-40f, std::nextafter(root_least, 0.0f), root_end, infinity, std::nanf(""),
                        -std::nanf(""), -1.0f, -1e-40f, -1e38f, -infinity, Float(0xffffffff)}) {
    EXPECT_FALSE(root.IsUsual(x, 0)) << x;
  }
  for (const float x : {root_least, 1.0f, std::nextafter(root_end, 0.0f)}) {
    EXPECT_TRUE(root.IsUsual(x, 0)) << x;
  }
}

}  // namespace
}  // namespace hpvm::vulkan
