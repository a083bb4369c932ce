// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/image.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

namespace hpvm::cpu {
namespace {

struct Feature {
  std::string_view name;
  bool had;
};

// __builtin_cpu_supports requires literals; it also checks what the system saves on a context switch.
bool HasFeature(std::string_view name) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const Feature features[] = {
#define HPVMD_CPU_FEATURE(name) {name, __builtin_cpu_supports(name) != 0}
      HPVMD_CPU_FEATURE("x86-64"),          HPVMD_CPU_FEATURE("x86-64-v2"),
      HPVMD_CPU_FEATURE("x86-64-v3"),       HPVMD_CPU_FEATURE("x86-64-v4"),
      HPVMD_CPU_FEATURE("sse2"),            HPVMD_CPU_FEATURE("sse3"),
      HPVMD_CPU_FEATURE("ssse3"),           HPVMD_CPU_FEATURE("sse4.1"),
      HPVMD_CPU_FEATURE("sse4.2"),          HPVMD_CPU_FEATURE("popcnt"),
      HPVMD_CPU_FEATURE("lzcnt"),           HPVMD_CPU_FEATURE("bmi"),
      HPVMD_CPU_FEATURE("bmi2"),            HPVMD_CPU_FEATURE("avx"),
      HPVMD_CPU_FEATURE("avx2"),            HPVMD_CPU_FEATURE("fma"),
      HPVMD_CPU_FEATURE("f16c"),            HPVMD_CPU_FEATURE("movbe"),
      HPVMD_CPU_FEATURE("avx512f"),         HPVMD_CPU_FEATURE("avx512cd"),
      HPVMD_CPU_FEATURE("avx512bw"),        HPVMD_CPU_FEATURE("avx512dq"),
      HPVMD_CPU_FEATURE("avx512vl"),        HPVMD_CPU_FEATURE("avx512vnni"),
      HPVMD_CPU_FEATURE("avx512vbmi"),      HPVMD_CPU_FEATURE("avx512vbmi2"),
      HPVMD_CPU_FEATURE("avx512bitalg"),    HPVMD_CPU_FEATURE("avx512vpopcntdq"),
      HPVMD_CPU_FEATURE("avx512ifma"),      HPVMD_CPU_FEATURE("avx512bf16"),
#undef HPVMD_CPU_FEATURE
  };
  for (const Feature& feature : features) {
    if (feature.name == name) {
      return feature.had;
    }
  }
#endif
  return false;
}

uint64_t PageRounded(uint64_t bytes) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

Status CheckEntry(uint64_t offset, const Artifact& artifact) {
  if (offset < artifact.code.size()) {
    return absl::OkStatus();
  }
  return InvalidArgument("Entry offset (" + std::to_string(offset) + ") lies outside the image (" +
                         std::to_string(artifact.code.size()) + " bytes).");
}

}  // namespace

Status CheckTarget(std::string_view target) {
  while (!target.empty()) {
    const size_t comma = target.find(',');
    std::string_view name = target.substr(0, comma);
    target = comma == std::string_view::npos ? std::string_view() : target.substr(comma + 1);
    if (name.empty() || name[0] == '-') {
      continue;
    }
    if (name[0] == '+') {
      name.remove_prefix(1);
    }
    if (!HasFeature(name)) {
      return FailedPrecondition("The image needs processor feature \"" + std::string(name) +
                                "\", which this machine does not have.");
    }
  }
  return absl::OkStatus();
}

StatusOr<Image> Image::Map(const Artifact& artifact) {
  if (artifact.kind != ArtifactKind::kCpuImage) {
    return InvalidArgument("The artifact of kernel \"" + artifact.entry + "\" is not a CPU image.");
  }
  HPVMD_RETURN_IF_ERROR(CheckTarget(artifact.target));
  HPVMD_RETURN_IF_ERROR(CheckEntry(artifact.entry_offset, artifact));
  for (const CpuVariant& variant : artifact.variants) {
    HPVMD_RETURN_IF_ERROR(CheckEntry(variant.entry_offset, artifact));
  }
  Image image;
  image.bytes_ = PageRounded(artifact.code.size());
  void* data = mmap(nullptr, image.bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("Memory for an image of " + std::to_string(image.bytes_) + " bytes is not available.");
  }
  image.data_ = static_cast<uint8_t*>(data);
  std::memcpy(image.data_, artifact.code.data(), artifact.code.size());
  if (mprotect(data, image.bytes_, PROT_READ | PROT_EXEC) != 0) {
    return FromErrno(errno, "Protecting an image of machine code");
  }
  __builtin___clear_cache(reinterpret_cast<char*>(image.data_), reinterpret_cast<char*>(image.data_) + image.bytes_);
  // Safety: the image is tagged by this project's compiler, and the entries lie inside it.
  const auto at = [&](uint64_t offset) {
    return reinterpret_cast<ir::CpuEntry>(reinterpret_cast<uintptr_t>(image.data_) + offset);
  };
  image.entry_ = at(artifact.entry_offset);
  for (const CpuVariant& variant : artifact.variants) {
    image.entries_.push_back(at(variant.entry_offset));
  }
  image.entries_.push_back(image.entry_);
  return image;
}

Image::Image(Image&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      entry_(std::exchange(other.entry_, nullptr)),
      entries_(std::move(other.entries_)) {}

Image& Image::operator=(Image&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(entry_, other.entry_);
  std::swap(entries_, other.entries_);
  return *this;
}

Image::~Image() {
  if (data_ != nullptr) {
    munmap(data_, bytes_);
  }
}

}  // namespace hpvm::cpu
