// SPDX-License-Identifier: Apache-2.0
// Links an image: a few sections of one object, with PC-relative references between them.
#include <algorithm>
#include <cstring>
#include <map>

#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/DataExtractor.h"
#include "llvm/Support/MemoryBuffer.h"

#include "compiler/back/llvm/codegen.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {
namespace {

using Object = llvm::object::ELFObjectFile<llvm::object::ELF64LE>;
using llvm::object::ELFSectionRef;
using llvm::object::SectionRef;
using llvm::object::SymbolRef;

Status FromLlvm(llvm::Error error, const char* doing) {
  return Internal(std::string(doing) + ": " + llvm::toString(std::move(error)));
}

class ImageLinker {
 public:
  explicit ImageLinker(const Object& object) : object_(object) {}
  StatusOr<LinkedImage> Link(std::span<const std::string> entries) {
    HPVMD_RETURN_IF_ERROR(PlaceSections(true));
    HPVMD_RETURN_IF_ERROR(PlaceSections(false));
    for (const SectionRef& section : object_.sections()) {
      HPVMD_RETURN_IF_ERROR(Relocate(section));
    }
    std::map<std::string, uint64_t> offsets;
    for (const SymbolRef& symbol : object_.symbols()) {
      llvm::Expected<llvm::StringRef> name = symbol.getName();
      if (!name) {
        return FromLlvm(name.takeError(), "Reading a symbol's name");
      }
      if (std::ranges::find(entries, *name) != entries.end()) {
        HPVMD_ASSIGN_OR_RETURN(offsets[name->str()], OffsetOf(symbol));
      }
    }
    for (const std::string& entry : entries) {
      auto found = offsets.find(entry);
      if (found == offsets.end()) {
        return Internal("The object lacks the entry \"" + entry + "\".");
      }
      image_.entry_offsets.push_back(found->second);
    }
    return std::move(image_);
  }

 private:
  Status PlaceSections(bool is_code) {
    for (ELFSectionRef section : object_.sections()) {
      uint64_t flags = section.getFlags();
      // An empty section may be referenced as well, by a jump table all of whose entries are unreachable.
      const bool is_empty_data = section.getSize() == 0 && (flags & llvm::ELF::SHF_WRITE) != 0;
      bool is_loaded = (flags & llvm::ELF::SHF_ALLOC) != 0 && !is_empty_data;
      if (is_loaded && is_code == ((flags & llvm::ELF::SHF_EXECINSTR) != 0)) {
        HPVMD_RETURN_IF_ERROR(Place(section));
      }
    }
    return absl::OkStatus();
  }
  Status Place(const ELFSectionRef& section) {
    if ((section.getFlags() & llvm::ELF::SHF_WRITE) != 0) {
      return Internal("The object has writable data, which an image cannot hold.");
    }
    llvm::Expected<llvm::StringRef> contents = section.getContents();
    if (!contents) {
      return FromLlvm(contents.takeError(), "Reading a section");
    }
    uint64_t align = std::max<uint64_t>(section.getAlignment().value(), 16);
    if (align > 4096) {
      return Internal("A section's alignment (" + std::to_string(align) + ") is larger than a page.");
    }
    // 0xcc traps; no code runs into it.
    image_.bytes.resize((image_.bytes.size() + align - 1) / align * align, 0xcc);
    offsets_[section.getIndex()] = image_.bytes.size();
    image_.bytes.insert(image_.bytes.end(), contents->bytes_begin(), contents->bytes_end());
    return absl::OkStatus();
  }
  Status Relocate(const SectionRef& relocations) {
    llvm::Expected<llvm::object::section_iterator> of = relocations.getRelocatedSection();
    if (!of) {
      return FromLlvm(of.takeError(), "Reading relocations");
    }
    auto placed = *of == object_.section_end() ? offsets_.end() : offsets_.find((*of)->getIndex());
    if (placed == offsets_.end()) {
      return absl::OkStatus();  // The section is not loaded.
    }
    for (const llvm::object::RelocationRef& relocation : relocations.relocations()) {
      HPVMD_RETURN_IF_ERROR(RelocateOne(relocation, placed->second, (*of)->getSize()));
    }
    return absl::OkStatus();
  }
  Status RelocateOne(const llvm::object::ELFRelocationRef& relocation, uint64_t section_offset,
                     uint64_t section_bytes) {
    uint64_t type = relocation.getType();
    if (type != llvm::ELF::R_X86_64_PC32 && type != llvm::ELF::R_X86_64_PLT32) {
      return Internal("The object has a relocation of type " + std::to_string(type) + ", which an image cannot hold.");
    }
    if (relocation.getSymbol() == object_.symbol_end() || section_bytes < 4 ||
        relocation.getOffset() > section_bytes - 4) {
      return Internal("The object has a malformed relocation.");
    }
    llvm::Expected<int64_t> addend = relocation.getAddend();
    if (!addend) {
      return FromLlvm(addend.takeError(), "Reading a relocation");
    }
    HPVMD_ASSIGN_OR_RETURN(uint64_t target, OffsetOf(*relocation.getSymbol()));
    uint64_t place = section_offset + relocation.getOffset();
    int64_t value = static_cast<int64_t>(target) + *addend - static_cast<int64_t>(place);
    int32_t narrow = static_cast<int32_t>(value);
    if (narrow != value) {
      return Internal("The image is too large for a relative reference (" + std::to_string(value) + ").");
    }
    std::memcpy(image_.bytes.data() + place, &narrow, sizeof(narrow));
    return absl::OkStatus();
  }
  StatusOr<uint64_t> OffsetOf(const SymbolRef& symbol) {
    llvm::Expected<llvm::object::section_iterator> section = symbol.getSection();
    llvm::Expected<uint64_t> value = symbol.getValue();
    llvm::Expected<llvm::StringRef> name = symbol.getName();
    if (!section || !value || !name) {
      llvm::consumeError(section.takeError());
      llvm::consumeError(value.takeError());
      llvm::consumeError(name.takeError());
      return Internal("The object has a malformed symbol.");
    }
    auto placed = *section == object_.section_end() ? offsets_.end() : offsets_.find((*section)->getIndex());
    if (placed == offsets_.end()) {
      return Internal("The code refers to \"" + name->str() + "\", which the object does not contain.");
    }
    return placed->second + *value;
  }

  const Object& object_;
  LinkedImage image_;
  std::map<uint64_t, uint64_t> offsets_;  // Offsets of placed sections, by section index.
};

// Reads .stack_sizes: {u64 address, ULEB128 bytes} per function; a relocation against the function's section gives the
// address.
Status ReadFrames(const SectionRef& section, std::vector<Frame>& frames) {
  llvm::Expected<llvm::StringRef> contents = section.getContents();
  if (!contents) {
    return FromLlvm(contents.takeError(), "Reading the stack sizes");
  }
  llvm::DataExtractor data(*contents, true, 8);
  llvm::DataExtractor::Cursor cursor(0);
  while (cursor && cursor.tell() < contents->size()) {
    Frame frame;
    frame.place = cursor.tell();
    data.getU64(cursor);
    frame.bytes = data.getULEB128(cursor);
    if (cursor) {
      frames.push_back(std::move(frame));
    }
  }
  if (!cursor) {
    return FromLlvm(cursor.takeError(), "Reading the stack sizes");
  }
  return absl::OkStatus();
}

// Names the functions by the relocations of their frames' entries.
void NameFrames(const Object& object, const SectionRef& relocations, std::vector<Frame>& frames) {
  std::map<std::pair<uint64_t, uint64_t>, std::string> functions;  // Keyed by section and address.
  for (const llvm::object::ELFSymbolRef symbol : object.symbols()) {
    llvm::Expected<llvm::object::section_iterator> section = symbol.getSection();
    llvm::Expected<llvm::StringRef> name = symbol.getName();
    if (section && name && symbol.getELFType() == llvm::ELF::STT_FUNC && *section != object.section_end()) {
      functions[{(*section)->getIndex(), llvm::cantFail(symbol.getValue())}] = name->str();
    }
    llvm::consumeError(section.takeError());
    llvm::consumeError(name.takeError());
  }
  for (const llvm::object::ELFRelocationRef relocation : relocations.relocations()) {
    if (relocation.getSymbol() == object.symbol_end()) {
      continue;
    }
    llvm::Expected<llvm::object::section_iterator> section = relocation.getSymbol()->getSection();
    llvm::Expected<int64_t> addend = relocation.getAddend();
    llvm::Expected<uint64_t> value = relocation.getSymbol()->getValue();
    for (Frame& frame : frames) {
      if (section && addend && value && *section != object.section_end() && frame.place == relocation.getOffset()) {
        auto found = functions.find({(*section)->getIndex(), *value + static_cast<uint64_t>(*addend)});
        frame.function = found == functions.end() ? "" : found->second;
      }
    }
    llvm::consumeError(section.takeError());
    llvm::consumeError(addend.takeError());
    llvm::consumeError(value.takeError());
  }
}

StatusOr<Object> ParseObject(std::string_view object) {
  llvm::MemoryBufferRef buffer(llvm::StringRef(object.data(), object.size()), "kernel");
  llvm::Expected<Object> parsed = Object::create(buffer);
  if (!parsed) {
    return FromLlvm(parsed.takeError(), "Reading the object");
  }
  return std::move(*parsed);
}

}  // namespace

StatusOr<std::vector<Frame>> LargeFrames(std::string_view bytes) {
  HPVMD_ASSIGN_OR_RETURN(Object object, ParseObject(bytes));
  std::vector<Frame> frames;
  bool has_frames = false;
  for (const SectionRef& section : object.sections()) {
    llvm::Expected<llvm::StringRef> name = section.getName();
    if (!name) {
      return FromLlvm(name.takeError(), "Reading a section's name");
    }
    if (*name != ".stack_sizes") {
      continue;
    }
    has_frames = true;
    std::vector<Frame> here;
    HPVMD_RETURN_IF_ERROR(ReadFrames(section, here));
    std::erase_if(here, [](const Frame& frame) { return frame.bytes <= ir::kCpuFrameBytesMax; });
    for (const SectionRef& other : object.sections()) {
      llvm::Expected<llvm::object::section_iterator> of = other.getRelocatedSection();
      if (!here.empty() && of && *of != object.section_end() && **of == section) {
        NameFrames(object, other, here);
      }
      llvm::consumeError(of.takeError());
    }
    frames.insert(frames.end(), here.begin(), here.end());
  }
  if (!has_frames) {
    return Internal("The object does not state the sizes of its stack frames.");
  }
  return frames;
}

StatusOr<LinkedImage> LinkImage(std::string_view object, std::span<const std::string> entries) {
  HPVMD_ASSIGN_OR_RETURN(Object parsed, ParseObject(object));
  return ImageLinker(parsed).Link(entries);
}

}  // namespace hpvm::cpu
