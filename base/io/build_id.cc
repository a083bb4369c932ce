// SPDX-License-Identifier: Apache-2.0
#include "base/io/build_id.h"

#include <elf.h>
#include <link.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

namespace hpvm {
namespace {

constexpr std::string_view kGnu{"GNU", 4};  // Includes the terminating zero byte.

std::span<const uint8_t> SegmentOf(const dl_phdr_info& object, const ElfW(Phdr) & header, uint64_t bytes) {
  return {reinterpret_cast<const uint8_t*>(object.dlpi_addr + header.p_vaddr), static_cast<size_t>(bytes)};
}

uint64_t RoundUp(uint64_t value, uint64_t alignment) { return (value + alignment - 1) & ~(alignment - 1); }

// Returns the description of the note of type NT_GNU_BUILD_ID; empty when this segment has none.
std::span<const uint8_t> BuildIdIn(std::span<const uint8_t> notes, uint64_t alignment) {
  ElfW(Nhdr) note;
  while (notes.size() >= sizeof(note)) {
    std::memcpy(&note, notes.data(), sizeof(note));
    const uint64_t description = RoundUp(sizeof(note) + note.n_namesz, alignment);
    const uint64_t end = description + note.n_descsz;
    if (end > notes.size()) {
      return {};
    }
    const std::string_view name(reinterpret_cast<const char*>(notes.data()) + sizeof(note), note.n_namesz);
    if (note.n_type == NT_GNU_BUILD_ID && name == kGnu) {
      return notes.subspan(description, note.n_descsz);
    }
    notes = notes.subspan(std::min<uint64_t>(RoundUp(end, alignment), notes.size()));
  }
  return {};
}

bool IsKernels(const dl_phdr_info& object) {
  const uint64_t vdso = getauxval(AT_SYSINFO_EHDR);
  for (size_t i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object.dlpi_phdr[i];
    if (header.p_type == PT_LOAD) {
      return vdso != 0 && object.dlpi_addr + header.p_vaddr == vdso;
    }
  }
  return false;
}

// Hashes the segments that no relocation changes: those that are readable or executable and never written.
Sha256 HashOfReadOnly(const dl_phdr_info& object) {
  Hasher hasher;
  for (size_t i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object.dlpi_phdr[i];
    if (header.p_type == PT_LOAD && (header.p_flags & PF_W) == 0 && (header.p_flags & PF_R) != 0) {
      hasher.Add(SegmentOf(object, header, header.p_filesz));
    }
  }
  return hasher.Finish();
}

int AddObject(dl_phdr_info* info, size_t, void* objects) {
  if (IsKernels(*info)) {
    return 0;
  }
  MappedObject object;
  object.path = info->dlpi_name;
  for (size_t i = 0; i < info->dlpi_phnum && !object.has_build_id; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type == PT_NOTE) {
      const std::span<const uint8_t> id =
          BuildIdIn(SegmentOf(*info, header, header.p_memsz), header.p_align == 8 ? 8 : 4);
      object.id.assign(id.begin(), id.end());
      object.has_build_id = !id.empty();
    }
  }
  if (!object.has_build_id) {
    const Sha256 hash = HashOfReadOnly(*info);
    object.id.assign(hash.bytes.begin(), hash.bytes.end());
  }
  static_cast<std::vector<MappedObject>*>(objects)->push_back(std::move(object));
  return 0;
}

}  // namespace

std::vector<MappedObject> MappedObjects() {
  std::vector<MappedObject> objects;
  dl_iterate_phdr(AddObject, &objects);
  return objects;
}

Sha256 BuildIdentityOf(const std::vector<MappedObject>& objects) {
  Hasher hasher;
  for (const MappedObject& object : objects) {
    hasher.AddField({reinterpret_cast<const char*>(object.id.data()), object.id.size()});
  }
  return hasher.Finish();
}

}  // namespace hpvm
