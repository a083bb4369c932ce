// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/known_defects.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "backends/gpu/probe_code.inc"

namespace hpvm::gpu {
namespace {

using Kind = GpuArgument::Kind;

constexpr uint64_t kWrapInstances = 256;  // The first 84 of them wrap.

ir::KernelParam Param(std::string name, bool is_buffer, bool is_writable) {
  ir::KernelParam param;
  param.name = std::move(name);
  param.is_buffer = is_buffer;
  param.is_writable = is_writable;
  param.type = ir::Type::kI32;
  return param;
}

GpuArgument Buffer(uint32_t index, bool is_writable) {
  GpuArgument argument;
  argument.kind = Kind::kBuffer;
  argument.index = argument.binding = index;
  argument.is_writable = is_writable;
  return argument;
}

// A module as a tenant would write it for the device.
Artifact Native(ArtifactKind kind, GpuFormat format, std::string entry) {
  Artifact artifact;
  artifact.kind = kind;
  artifact.module_name = "probe";
  artifact.entry = entry;
  artifact.params = {Param("x", true, false), Param("out", true, true), Param("extra", false, false)};
  artifact.gpu.format = format;
  artifact.gpu.is_native = true;
  GpuVariant& variant = artifact.gpu.variants.emplace_back();
  variant.entry = std::move(entry);
  variant.can_trap = false;
  GpuArgument extra;
  extra.kind = Kind::kScalar;
  extra.index = 2;
  variant.arguments = {Buffer(0, false), Buffer(1, true), extra};
  return artifact;
}

Artifact OpenClC(std::string_view text, std::string entry) {
  Artifact artifact = Native(ArtifactKind::kOpenCl, GpuFormat::kOpenClC, std::move(entry));
  artifact.code.assign(text.begin(), text.end());
  return artifact;
}

// Each constant inside a sum is subtracted again, so that a 32-bit sum wraps for small ids. `addresses` writes out the
// addresses instead of reading from them: on a driver that loses the wrap, a read 4 GiB too far ends the context.
constexpr std::string_view kWrapText = R"(
__kernel void addresses(__global const ulong* x, __global ulong* out, uint extra) {
  __global const uchar* p = (__global const uchar*)x;
  uint i = get_global_id(0), t = (4096u + i * 48u) + extra * 16u, u = (i + 16u) * 48u + extra * 16u;
  out[4u * i] = (ulong)(p + (ulong)(t - 4008u));
  out[4u * i + 1u] = (ulong)(p + (ulong)(t - 4016u));
  out[4u * i + 2u] = (ulong)(p + (ulong)(u - 680u));
  out[4u * i + 3u] = (ulong)(p + (ulong)(u - 688u));
}
__kernel void loads(__global const ulong* x, __global ulong* out, uint extra) {
  __global const uchar* p = (__global const uchar*)x;
  uint i = get_global_id(0), t = (4096u + i * 48u) + extra * 16u, u = (i + 16u) * 48u + extra * 16u;
  out[2u * i] = *(__global const ulong*)(p + (ulong)(t - 4008u)) + *(__global const ulong*)(p + (ulong)(t - 4016u));
  out[2u * i + 1u] = *(__global const ulong*)(p + (ulong)(u - 680u)) + *(__global const ulong*)(p + (ulong)(u - 688u));
}
)";

Artifact WrapAddresses() { return OpenClC(kWrapText, "addresses"); }
Artifact WrapLoads() { return OpenClC(kWrapText, "loads"); }

// A counter from 0 to x[4] = 4, always below the other limit, 2^32 - 1.
constexpr std::string_view kCountersText = R"(
__kernel void counters(__global const ulong* x, __global ulong* out, uint extra) {
  int end = (int)x[4];
  uint limit = (uint)x[3] - 4u + extra;
  if (end != 0) {
    uint i = 0u;
    for (;;) {
      if ((int)i >= end) break;
      if (limit > i) out[i] = 1ul;
      i = i + 1u;
    }
  }
}
)";

Artifact Counters() { return OpenClC(kCountersText, "counters"); }

// Shows barriers inside branches computed wrongly: SPIR bitcode as produced by llvm-spirv 15 (--spirv-max-version=1.0,
// then -r --emit-opaque-pointers=0) from the output of clang 15 -O0 -target spir64 for
//
//   kernel void sum(global const ulong* x, global ulong* out, uint extra) {
//     local ulong s[64];
//     uint l = get_local_id(0);
//     s[l] = x[get_global_id(0)];
//     barrier(CLK_LOCAL_MEM_FENCE);
//     if (extra == 0) {
//       s[l] += 1;
//       barrier(CLK_LOCAL_MEM_FENCE);
//       if (l == 0) s[l] += s[l + 1];
//     }
//     if (l == 0) out[get_group_id(0)] = s[0];
//   }
constexpr uint8_t kBranchBarrier[] = {
#include "backends/gpu/branch_barrier.inc"
};

Artifact BranchBarrier() {
  Artifact artifact = Native(ArtifactKind::kOpenCl, GpuFormat::kSpirBitcode, "sum");
  artifact.code.assign(std::begin(kBranchBarrier), std::end(kBranchBarrier));
  artifact.uses_barrier = artifact.uses_group_memory = true;
  artifact.gpu.variants[0].local_bytes = 64 * sizeof(uint64_t);
  return artifact;
}

// Shows lost wrap-around in modules written for Vulkan: glslangValidator's words for
//
//   layout(local_size_x = 64) in;
//   layout(set = 0, binding = 0) readonly buffer X { uint64_t x[]; };
//   layout(set = 0, binding = 1) buffer Out { uint64_t o[]; };
//   layout(push_constant) uniform P { uint extra; };
//   void main() {
//     uint i = gl_GlobalInvocationID.x, t = (4096u + i * 48u) + extra * 16u, u = (i + 16u) * 48u + extra * 16u;
//     o[2u * i] = x[(t - 4008u) >> 3] + x[(t - 4016u) >> 3];
//     o[2u * i + 1u] = x[(u - 680u) >> 3] + x[(u - 688u) >> 3];
//   }
constexpr uint8_t kWrapShader[] = {
#include "backends/gpu/wrap_shader.inc"
};

Artifact WrapShader() {
  Artifact artifact = Native(ArtifactKind::kVulkan, GpuFormat::kSpirvShader, "main");
  artifact.code.assign(std::begin(kWrapShader), std::end(kWrapShader));
  GpuVariant& variant = artifact.gpu.variants[0];
  variant.group = {64, 1, 1};
  variant.push_bytes = 4;
  return artifact;
}

Artifact Emitted(std::span<const uint8_t> bytes, bool is_checked) {
  StatusOr<Artifact> artifact = ParseArtifact(bytes, ArtifactKey{});
  HPVMD_CHECK(artifact.ok());  // Written by this build.
  if (is_checked) {
    std::erase_if(artifact->gpu.variants, [](const GpuVariant& variant) { return variant.needs_proof; });
  }
  return *std::move(artifact);
}

Artifact WrapEmittedOpenCl() { return Emitted(kWrapOpenCl, false); }
Artifact WrapCheckedOpenCl() { return Emitted(kWrapOpenCl, true); }
Artifact WrapEmittedVulkan() { return Emitted(kWrapVulkan, false); }
Artifact WrapCheckedVulkan() { return Emitted(kWrapVulkan, true); }

// The first instance accesses 88, 80, 88 and 80; each further one 48 bytes later.
bool AddressesAreRight(std::span<const uint64_t> out) {
  const uint64_t x = out[0] - 88;
  for (uint64_t i = 0; i < kWrapInstances; ++i) {
    const uint64_t high = x + 48 * i + 88;
    if (out[4 * i] != high || out[4 * i + 1] != high - 8 || out[4 * i + 2] != high || out[4 * i + 3] != high - 8) {
      return false;
    }
  }
  return true;
}

bool LoadsAreRight(std::span<const uint64_t> out) {
  for (uint64_t i = 0; i < 2 * kWrapInstances; ++i) {
    if (out[i] != 12 * (i / 2) + 21) {
      return false;
    }
  }
  return true;
}

bool CountersAreRight(std::span<const uint64_t> out) {
  return std::all_of(out.begin(), out.end(), [](uint64_t word) { return word == 1; });
}

// Two groups of 64: the sum of the first two words of each, each increased by one.
bool SumsAreRight(std::span<const uint64_t> out) { return out[0] == 3 && out[1] == 131; }

constexpr uint64_t kWrapWords = 6 * kWrapInstances + 16;
constexpr DefectProbe Wrap(Artifact (*code)()) {
  return {code, kWrapInstances, 1, kWrapWords, 2 * kWrapInstances, LoadsAreRight};
}

constexpr std::string_view kNvidia = "OpenCL, NVIDIA 580.159.04";
constexpr std::string_view kWrapReason =
    "The driver's compiler moves a constant out of a 32-bit sum that wraps, so that an access through a pointer lands "
    "4 GiB too "
    "far: in another buffer or outside of all buffers.";
constexpr std::string_view kNoDriver = "no known driver";

}  // namespace

std::span<const KnownDefect> KnownDefects() {
  static constexpr KnownDefect kDefects[] = {
      {"wrapped-address",
       kNvidia,
       kWrapReason,
       false,
       {WrapAddresses, kWrapInstances, 1, kWrapWords, 4 * kWrapInstances, AddressesAreRight}},
      {"wrapped-address", kNvidia, kWrapReason, false, Wrap(WrapLoads)},
      {"wrapped-address", kNoDriver, kWrapReason, false, Wrap(WrapShader)},
      {"signed-counters",
       kNvidia,
       "The driver's compiler treats an unsigned comparison of a loop's counter as a signed comparison if a signed "
       "comparison "
       "of the counter ends the loop, so that limits from 2^31 on count as negative.",
       false,
       {Counters, 1, 1, 8, 4, CountersAreRight}},
      {"barriers-in-branches",
       "OpenCL, PoCL 3.1 (LLVM 15)",
       "The driver's compiler miscompiles barriers inside branches in SPIR-V modules that were compiled without "
       "optimisation: "
       "after such a barrier, all work items of a group execute code that a condition reserves for one of them.",
       false,
       {BranchBarrier, 128, 64, 128, 2, SumsAreRight}},
      {"wrapped-address-in-our-code", kNoDriver, kWrapReason, true, Wrap(WrapEmittedOpenCl)},
      {"wrapped-address-in-our-code", kNoDriver, kWrapReason, true, Wrap(WrapCheckedOpenCl)},
      {"wrapped-address-in-our-code", kNoDriver, kWrapReason, true, Wrap(WrapEmittedVulkan)},
      {"wrapped-address-in-our-code", kNoDriver, kWrapReason, true, Wrap(WrapCheckedVulkan)},
  };
  return kDefects;
}

}  // namespace hpvm::gpu
