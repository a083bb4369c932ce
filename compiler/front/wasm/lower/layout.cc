// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/lower/layout.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/limits.h"
#include "compiler/front/wasm/read/fault.h"

namespace hpvm::wasm {
namespace {

constexpr uint64_t kWordBytes = 4;

void Store(std::vector<uint8_t>& state, uint64_t at, uint32_t word) {
  std::memcpy(state.data() + at, &word, kWordBytes);  // The compiling machines are little-endian.
}

class KernelLayout {
 public:
  KernelLayout(const Module& module, const Reach& reach, const std::string& place, ir::Module& out,
               Diagnostics& diagnostics)
      : module_(module), reach_(reach), place_(place), out_(out), diagnostics_(diagnostics) {}

  Layout Make() && {
    layout_.references.resize(module_.functions.size());
    for (size_t i = 0; i < reach_.references.size(); ++i) {
      layout_.references[reach_.references[i]] = static_cast<uint32_t>(i) + 1;
    }
    Globals();
    Tables();
    Segments();
    if (bytes_ > limits::kWasmStateBytesMax) {
      Fail(module_.tables.empty() ? 0 : module_.tables[0].source,
           "The module's tables and element segments need more bytes (" + std::to_string(bytes_) +
               ") than the limit (" + std::to_string(limits::kWasmStateBytesMax) + ").");
      return std::move(layout_);
    }
    state_.resize(bytes_);
    Fill();
    out_.state_bytes = bytes_;
    out_.state = *Compact(state_, bytes_);
    return std::move(layout_);
  }

 private:
  void Fail(uint64_t source, std::string message) {
    if (diagnostics_.size() < limits::kDiagnosticsMax) {
      diagnostics_.push_back(Fault(place_, source, std::move(message)));
    }
  }

  // Returns the offset of `words` u32; the offset is meaningless once the limit has been exceeded.
  uint32_t Take(uint64_t words) {
    const uint64_t at = bytes_;
    bytes_ += words * kWordBytes;  // No overflow: each call takes fewer than 2^32 words, and there are few calls.
    return static_cast<uint32_t>(at);
  }

  void Globals() {
    for (const Global& global : module_.globals) {
      layout_.globals.push_back(static_cast<uint32_t>(out_.globals.size()));
      const bool is_function = global.init.kind == Constant::Kind::kFunction;
      AppendGlobal(global, is_function ? layout_.references[global.init.index] : global.init.low, global.init.high,
                   out_.globals);
    }
  }

  void Tables() {
    for (size_t i = 0; i < module_.tables.size(); ++i) {
      const Table& table = module_.tables[i];
      TableLayout& place = layout_.tables.emplace_back();
      if (!reach_.tables[i]) {
        continue;
      }
      if (table.limits.initial > limits::kWasmTableEntriesMax) {
        Fail(table.source, "Table " + std::to_string(i) + " has more entries (" + std::to_string(table.limits.initial) +
                               ") than the limit (" + std::to_string(limits::kWasmTableEntriesMax) + ").");
        continue;
      }
      place.capacity = static_cast<uint32_t>(table.limits.initial);
      if (reach_.grown[i]) {
        const uint64_t maximum = table.limits.maximum.value_or(limits::kWasmTableEntriesMax);
        place.capacity = static_cast<uint32_t>(std::min<uint64_t>(maximum, limits::kWasmTableEntriesMax));
      } else {
        place.fixed_size = place.capacity;
      }
      place.offset = Take(1 + uint64_t{place.capacity});
    }
  }

  void Segments() {
    for (size_t i = 0; i < module_.elems.size(); ++i) {
      TableLayout& place = layout_.elems.emplace_back();
      if (reach_.elems[i]) {
        const bool is_passive = module_.elems[i].mode == SegmentMode::kPassive;
        place.capacity = is_passive ? static_cast<uint32_t>(module_.elems[i].functions.size()) : 0;
        place.offset = Take(1 + uint64_t{place.capacity});
      }
    }
    for (size_t i = 0; i < module_.data.size(); ++i) {
      layout_.data.push_back(kNowhere);
      layout_.data_left.push_back(kNowhere);
      if (!reach_.data[i]) {
        continue;
      }
      const DataSegment& segment = module_.data[i];
      const bool is_passive = segment.mode == SegmentMode::kPassive;  // Active segments keep no bytes for
                                                                      // memory.init.
      layout_.data[i] = static_cast<uint32_t>(out_.passive_segments.size());
      out_.passive_segments.emplace_back(segment.bytes.begin(),
                                         is_passive ? segment.bytes.end() : segment.bytes.begin());
      if (is_passive && reach_.data_dropped[i]) {
        layout_.data_left[i] = Take(1);
      }
    }
  }

  void FillEntries(const TableLayout& place, uint64_t first, const std::vector<uint32_t>& functions) {
    for (size_t i = 0; i < functions.size(); ++i) {
      const uint32_t reference = functions[i] == kNullFunction ? 0 : layout_.references[functions[i]];
      Store(state_, place.offset + kWordBytes * (1 + first + i), reference);
    }
  }

  void Fill() {
    for (const TableLayout& place : layout_.tables) {
      if (place.offset != kNowhere) {
        Store(state_, place.offset,
              static_cast<uint32_t>(module_.tables[&place - layout_.tables.data()].limits.initial));
      }
    }
    for (size_t i = 0; i < module_.elems.size(); ++i) {
      const ElemSegment& segment = module_.elems[i];
      if (const TableLayout& place = layout_.elems[i]; place.offset != kNowhere) {
        Store(state_, place.offset, place.capacity);
        if (place.capacity > 0) {
          FillEntries(place, 0, segment.functions);
        }
      }
      if (segment.mode == SegmentMode::kActive) {
        ApplyElems(segment);
      }
    }
    for (size_t i = 0; i < module_.data.size(); ++i) {
      if (layout_.data_left[i] != kNowhere) {
        Store(state_, layout_.data_left[i], static_cast<uint32_t>(module_.data[i].bytes.size()));
      }
    }
  }

  void ApplyElems(const ElemSegment& segment) {
    const uint64_t entries = module_.tables[segment.table].limits.initial;
    if (segment.offset.low > entries || segment.functions.size() > entries - segment.offset.low) {
      return Fail(segment.source, "An element segment at entry " + std::to_string(segment.offset.low) + " (" +
                                      std::to_string(segment.functions.size()) +
                                      " functions) does not fit the table (" + std::to_string(entries) + " entries).");
    }
    if (const TableLayout& place = layout_.tables[segment.table]; place.offset != kNowhere) {
      FillEntries(place, segment.offset.low, segment.functions);
    }
  }

  const Module& module_;
  const Reach& reach_;
  const std::string& place_;
  ir::Module& out_;
  Diagnostics& diagnostics_;
  Layout layout_;
  uint64_t bytes_ = 0;
  std::vector<uint8_t> state_;
};

}  // namespace

Layout LayOutKernel(const Module& module, const Reach& reach, const std::string& place, ir::Module& out,
                    Diagnostics& diagnostics) {
  return KernelLayout(module, reach, place, out, diagnostics).Make();
}

std::optional<std::vector<ir::DataSegment>> Compact(std::span<const uint8_t> bytes, uint64_t bytes_max) {
  constexpr size_t kGapMax = 32;  // About the size of a segment's header.
  constexpr uint8_t kZeros[4096] = {};
  std::vector<ir::DataSegment> segments;
  uint64_t kept = 0;
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t chunk = std::min(sizeof(kZeros), bytes.size() - at);
    if (std::memcmp(bytes.data() + at, kZeros, chunk) == 0) {
      at += chunk;
      continue;
    }
    for (size_t end = at + chunk; at < end; ++at) {
      if (bytes[at] == 0) {
        continue;
      }
      if (segments.empty() || at - (segments.back().address + segments.back().bytes.size()) > kGapMax) {
        segments.push_back({at, {}});
      }
      ir::DataSegment& last = segments.back();
      kept += at + 1 - last.address - last.bytes.size();
      last.bytes.resize(at - last.address);
      last.bytes.push_back(bytes[at]);
    }
    if (kept > bytes_max) {
      return std::nullopt;
    }
  }
  return segments;
}

void AppendGlobal(const Global& global, uint64_t low, uint64_t high, std::vector<ir::Global>& globals) {
  if (global.type != ValueType::kV128) {
    globals.push_back({.type = IrType(global.type), .is_mutable = global.is_mutable, .init = low});
    return;
  }
  for (const uint64_t bits : {low & 0xffffffff, low >> 32, high & 0xffffffff, high >> 32}) {
    globals.push_back({.type = ir::Type::kI32, .is_mutable = global.is_mutable, .init = bits});
  }
}

}  // namespace hpvm::wasm
