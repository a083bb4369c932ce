// SPDX-License-Identifier: Apache-2.0
// Finds bytes by address, out of line: all ranges of an instance's space, and parts of its private memory.
#include "compiler/back/opencl/literal.h"
#include "compiler/back/opencl/memory.h"

namespace hpvm::opencl {
namespace {

using Kind = GpuArgument::Kind;

std::string Number(uint64_t value) { return Literal(Type::kI64, value); }

// Returns helpers for one private memory: a test that an access stays inside, and loads and stores of bytes.
std::string OwnText(const std::string& name, const std::string& suffix, const std::vector<gpu::OwnMemory>& parts,
                    uint64_t bytes, Helpers& helpers) {
  std::string holds, load, store;
  for (size_t i = 0; i < parts.size(); ++i) {
    const gpu::OwnMemory& part = parts[i];
    const std::string inside = Cat("at - ", Number(part.begin), " < ", Number(part.end - part.begin));
    if (part.is_written) {
      Append(holds, "  if (at - ", Number(part.begin), " <= ", Number(part.end - part.begin),
             " && bytes <= ", Number(part.end), " - at) return 1;\n");
      Append(load, "  if (", inside, ") return r->", name, i, "[at - ", Number(part.begin), "];\n");
      Append(store, "  if (", inside, ") r->", name, i, "[at - ", Number(part.begin), "] = (uchar)value;\n");
    } else {
      Append(load, "  if (", inside, ") return ((__constant const uchar*)", helpers.Constant(part.bytes), ")[at - ",
             Number(part.begin), "];\n");
    }
  }
  const std::string called = name + suffix;
  const std::string struct_name = "Ranges" + suffix;
  return Cat("\nint ", called, "_holds(ulong at, ulong bytes, int is_store) {\n  if (bytes > ", Number(bytes),
             " || at > ", Number(bytes), " - bytes) return 0;\n  if (!is_store || bytes == 0ul) return 1;\n", holds,
             "  return 0;\n}\nuint ", called, "_byte(const ", struct_name, "* r, ulong at) {\n", load,
             "  return 0u;\n}\nvoid ", called, "_set(const ", struct_name, "* r, ulong at, uint value) {\n", store,
             "}\nulong ", called, "_load(const ", struct_name,
             "* r, ulong at, uint bytes) {\n  ulong value = 0ul;\n  for (uint i = 0u; i < bytes; ++i) value |= "
             "(ulong)",
             called, "_byte(r, at + i) << (8u * i);\n  return value;\n}\nvoid ", called, "_store(const ", struct_name,
             "* r, ulong at, uint bytes, ulong value) {\n  for (uint i = 0u; i < bytes; ++i) ", called,
             "_set(r, at + i, (uint)(value >> (8u * i)) & 0xffu);\n}\n");
}

// Loads and stores at a place found. Kinds are 1: module memory, 2: a buffer, 3: a read-only buffer, 4: group memory.
constexpr char kFlat[] = R"(
ulong flat_load@(const Ranges@* r, Place@ place, ulong offset, uint bytes) {
  ulong value = 0ul;
  if (place.kind == 1u) return own@_load(r, place.at + offset, bytes);
  if (place.kind == 4u) {
    for (uint i = 0u; i < bytes; ++i) value |= (ulong)place.group[offset + i] << (8u * i);
    return value;
  }
  __global const uchar* p = place.p + offset;
  if (bytes == 4u) return load32_global(p);
  if (bytes == 8u) return load64_global(p);
  for (uint i = 0u; i < bytes; ++i) value |= (ulong)p[i] << (8u * i);
  return value;
}
void flat_store@(const Ranges@* r, Place@ place, ulong offset, uint bytes, ulong value) {
  if (place.kind == 1u) {
    own@_store(r, place.at + offset, bytes, value);
  } else if (place.kind == 4u) {
    for (uint i = 0u; i < bytes; ++i) place.group[offset + i] = (uchar)(value >> (8u * i));
  } else {
    __global uchar* p = place.p + offset;
    if (bytes == 4u) {
      store32_global(p, (uint)value);
    } else if (bytes == 8u) {
      store64_global(p, value);
    } else {
      for (uint i = 0u; i < bytes; ++i) p[i] = (uchar)(value >> (8u * i));
    }
  }
}
// In the order in which none of it overwrites what is still to be read.
void flat_copy@(const Ranges@* r, Place@ to, Place@ from, ulong bytes) {
  int backward = 0;
  if (to.kind == from.kind || (to.kind == 2u && from.kind == 3u)) {
    backward = to.kind == 1u ? to.at > from.at : to.kind == 4u ? to.group > from.group : to.p > from.p;
  }
  for (ulong i = 0ul; i < bytes; ++i) {
    const ulong at = backward ? bytes - 1ul - i : i;
    flat_store@(r, to, at, 1u, flat_load@(r, from, at, 1u));
  }
}
)";

std::string WithSuffix(std::string_view text, const std::string& suffix) {
  std::string copy;
  for (const char c : text) {
    c == '@' ? Append(copy, suffix) : Append(copy, std::string_view(&c, 1));
  }
  return copy;
}

}  // namespace

std::string Ranges::Use() {
  if (!uses_ranges_) {
    uses_ranges_ = true;
    Need();
  }
  return "&ranges";
}

void Ranges::Need() {
  for (uint32_t k = 0; v_.plan.uses_flat && k < v_.module.params.size(); ++k) {
    if (v_.module.params[k].is_buffer) {
      facts_.Buffer(k);
      facts_.BufferBytes(k);
      facts_.Fact(Kind::kBufferBase, k);
    }
  }
  if (v_.plan.uses_flat && v_.plan.local_bytes != 0) {
    facts_.Fact(Kind::kGroupBase);
  }
  for (const bool is_state : {false, true}) {
    const std::vector<gpu::OwnMemory>& parts = is_state ? v_.plan.state : v_.plan.module_memory;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].is_written) {
        parts_.insert({is_state, static_cast<int32_t>(i)});
      }
    }
  }
  v_.helpers.Need("load64_global");
  v_.helpers.Need("store64_global");
  v_.helpers.Add("Ranges" + v_.options.suffix, Definition());
}

std::string Ranges::Definition() const {
  const std::string& suffix = v_.options.suffix;
  std::string fields, searches;
  for (const bool is_state : {false, true}) {
    const std::vector<gpu::OwnMemory>& parts = is_state ? v_.plan.state : v_.plan.module_memory;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].is_written) {
        Append(fields, "  __private uchar* ", is_state ? "state" : "own", i, ";\n");
      }
    }
  }
  for (uint32_t k = 0; v_.plan.uses_flat && k < v_.module.params.size(); ++k) {
    if (!v_.module.params[k].is_buffer) {
      continue;
    }
    Append(fields, "  __global uchar* p", k, ";\n  ulong n", k, ", a", k, ";\n");
    Append(searches, "  if (at >= r->a", k, " && bytes <= r->n", k, " && at - r->a", k, " <= r->n", k,
           " - bytes) {\n    place.kind = ", v_.module.params[k].is_writable ? "2u" : "3u",
           ";\n    place.p = AT(__global, r->p", k, ", at - r->a", k, ");\n    return place;\n  }\n");
  }
  if (v_.plan.uses_flat && v_.plan.local_bytes != 0) {
    fields += "  __local uchar* group;\n  ulong group_base;\n";
    Append(searches, "  if (at >= r->group_base && bytes <= ", Number(v_.plan.local_bytes),
           " && at - r->group_base <= ", Number(v_.plan.local_bytes),
           " - bytes) {\n    place.kind = 4u;\n    place.group = r->group + (at - "
           "r->group_base);\n  }\n");
  }
  if (fields.empty()) {
    fields = "  int nothing;\n";
  }
  std::string text =
      Cat("\n// This struct holds the addresses of an instance's memory.\ntypedef struct {\n", fields, "} Ranges",
          suffix, ";\n", OwnText("own", suffix, v_.plan.module_memory, v_.module.memory_bytes, v_.helpers),
          v_.module.state_bytes != 0 ? OwnText("state", suffix, v_.plan.state, v_.module.state_bytes, v_.helpers) : "");
  if (v_.plan.uses_flat) {
    Append(text,
           "\ntypedef struct {\n  uint kind;\n  ulong at;\n  __global uchar* p;\n  __local uchar* group;\n} Place",
           suffix, ";\nPlace", suffix, " find", suffix, "(const Ranges", suffix,
           "* r, ulong at, ulong bytes, int is_store) {\n  Place", suffix,
           " place;\n  place.kind = 0u;\n  place.at = "
           "at;\n  place.p = 0;\n  place.group = 0;\n  if (own",
           suffix, "_holds(at, bytes, 0)) {\n    place.kind = own", suffix,
           "_holds(at, bytes, is_store) ? 1u : 0u;\n    return place;\n  }\n", searches, "  return place;\n}\n",
           WithSuffix(kFlat, suffix));
  }
  return text;
}

std::string Ranges::Value() {
  std::string text = Cat("  Ranges", v_.options.suffix, " ranges;\n");
  for (const auto& [is_state, part] : parts_) {
    if ((is_state ? v_.plan.state : v_.plan.module_memory)[static_cast<size_t>(part)].is_written) {
      const std::string name = Cat(is_state ? "state" : "own", part);
      Append(text, "  ranges.", name, " = (__private uchar*)", name, ";\n");
    }
  }
  for (uint32_t k = 0; v_.plan.uses_flat && k < v_.module.params.size(); ++k) {
    if (v_.module.params[k].is_buffer) {
      Append(text, "  ranges.p", k, " = (__global uchar*)p", k, ";\n  ranges.n", k, " = n", k, ";\n  ranges.a", k,
             " = a", k, ";\n");
    }
  }
  if (v_.plan.uses_flat && v_.plan.local_bytes != 0) {
    text += "  ranges.group = (__local uchar*)group_memory;\n  ranges.group_base = group_base;\n";
  }
  return text;
}

std::string Ranges::PartPointer(bool is_state, int32_t part, const gpu::OwnMemory& memory) {
  if (!memory.is_written) {
    return Cat("(__constant const uchar*)", v_.helpers.Constant(memory.bytes));
  }
  parts_.insert({is_state, part});
  return Cat("(__private uchar*)", is_state ? "state" : "own", part);
}

void Ranges::WriteParts() {
  for (const auto& [is_state, part] : parts_) {
    const gpu::OwnMemory& own = (is_state ? v_.plan.state : v_.plan.module_memory)[static_cast<size_t>(part)];
    if (!own.is_written) {
      continue;
    }
    const std::string name = Cat(is_state ? "state" : "own", part);
    const uint64_t count = (own.end - own.begin) / 8;
    text_.Line("ulong ", name, "[", count, "]", own.is_scratch ? ";" : " = {0ul};");
    if (own.is_scratch) {
      continue;
    }
    const gpu::OwnMemory::Filled filled = own.filled();
    if (filled.end != filled.begin) {
      const std::vector<uint8_t> bytes(own.bytes.begin() + static_cast<ptrdiff_t>(filled.begin),
                                       own.bytes.begin() + static_cast<ptrdiff_t>(filled.end));
      text_.Line("for (uint i = 0u; i < ", bytes.size() / 8, "u; ++i) ", name, "[i + ", filled.begin / 8,
                 "u] = ", v_.helpers.Constant(bytes), "[i];");
    }
  }
}

void Ranges::WriteValue() {
  if (uses_ranges_) {
    text_.Raw(Value());
  }
}

}  // namespace hpvm::opencl
