// SPDX-License-Identifier: Apache-2.0
#include "tests/spmd/memory.h"

#include <sys/mman.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "base/status.h"

namespace hpvm::spmd {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint8_t kPattern = 0xa5;

bool IsNan(uint64_t bits, uint32_t bytes) {
  return bytes == 4 ? (bits & 0x7fffffff) > 0x7f800000 : (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
}

uint64_t ReadBits(const uint8_t* at, uint32_t bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, bytes);
  return bits;
}

}  // namespace

Buffers::Buffers(const Kernel& kernel, bool at_end) : kernel_(kernel) {
  for (size_t k = 0; k < kernel.bindings.size(); ++k) {
    Area area;
    if (kernel.module.params[k].is_buffer) {
      const Binding& binding = kernel.bindings[k];
      const uint64_t inner = (binding.bytes + kPage - 1) / kPage * kPage;
      area.bytes = binding.bytes;
      area.mapped_bytes = inner + 2 * kPage;
      void* mapped = mmap(nullptr, area.mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      HPVMD_CHECK(mapped != MAP_FAILED);
      area.mapped = static_cast<uint8_t*>(mapped);
      area.data = area.mapped + kPage;
      if (inner > 0) {
        HPVMD_CHECK(mprotect(area.data, inner, PROT_READ | PROT_WRITE) == 0);
        std::memset(area.data, kPattern, inner);
      }
      area.data += at_end ? (inner - binding.bytes) / 8 * 8 : 0;
      const std::vector<uint64_t> words = Content(binding);
      if (!words.empty()) {
        std::memcpy(area.data, words.data(), binding.bytes);
      }
    }
    areas_.push_back(area);
  }
}

Buffers::~Buffers() {
  for (const Area& area : areas_) {
    if (area.mapped != nullptr) {
      munmap(area.mapped, area.mapped_bytes);
    }
  }
}

std::vector<ir::Argument> Buffers::Arguments() const {
  std::vector<ir::Argument> arguments;
  for (size_t k = 0; k < areas_.size(); ++k) {
    const Area& area = areas_[k];
    arguments.push_back({area.data, area.bytes, area.mapped == nullptr ? kernel_.bindings[k].scalar : 0});
  }
  return arguments;
}

std::string Buffers::FindStray() const {
  for (size_t k = 0; k < areas_.size(); ++k) {
    const Area& area = areas_[k];
    if (area.mapped == nullptr) {
      continue;
    }
    const uint8_t* end = area.mapped + area.mapped_bytes - kPage;
    for (const uint8_t* at = area.mapped + kPage; at < end; ++at) {
      if (at == area.data) {
        at += area.bytes;
        if (at >= end) {
          break;
        }
      }
      if (*at != kPattern) {
        return "A byte at " + std::to_string(at - area.data) + " of buffer " + std::to_string(k) + " (" +
               std::to_string(area.bytes) + " bytes) was written.";
      }
    }
  }
  return "";
}

std::string Buffers::FindDifference(const Buffers& expected) const {
  for (size_t k = 0; k < areas_.size(); ++k) {
    const Area& area = areas_[k];
    const uint32_t float_bytes = kernel_.bindings[k].float_bytes;
    const uint32_t step = float_bytes != 0 ? float_bytes : 1;
    for (uint64_t i = 0; area.mapped != nullptr && i + step <= area.bytes; i += step) {
      const uint64_t got = ReadBits(area.data + i, step);
      const uint64_t want = ReadBits(expected.areas_[k].data + i, step);
      if (got != want && !(float_bytes != 0 && IsNan(got, step) && IsNan(want, step))) {
        char text[160];
        std::snprintf(text, sizeof(text),
                      "Buffer %zu at byte %" PRIu64 " has 0x%" PRIx64 ", interpreted 0x%" PRIx64 ".", k, i, got, want);
        return text;
      }
    }
  }
  return "";
}

ir::Launch LaunchOf(const Kernel& kernel, const Buffers& buffers) {
  ir::Launch launch;
  launch.extent = kernel.extent;
  launch.group = kernel.group;
  launch.arguments = buffers.Arguments();
  return launch;
}

}  // namespace hpvm::spmd
