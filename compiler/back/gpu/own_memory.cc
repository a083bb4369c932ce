// SPDX-License-Identifier: Apache-2.0
// Method: each access's address range (from value range analysis) is noted as a read or a write of its memory.
// Ranges are rounded to multiples of 8, and the narrowest gaps are closed until at most kPartsMax are left. Written
// ranges become private copies of each work item; the data segments that are read and never written become constant
// arrays.
// Invariants: parts of one memory are disjoint and sorted, and constants are cut where a written part lies. An
// access whose bytes lie in one part is marked with it, as certainly inside. A write at an unknown address that is
// no pointer is refused; if some addresses can be any pointer, the whole stack is a written part.
// Closing gaps removes one range a round, in quadratic time.
#include "compiler/back/gpu/own_memory.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"

namespace hpvm::gpu {
namespace {

using Base = analysis::ValueRange::Base;

// Limit on the parts of one memory, because each part adds a comparison to every access.
constexpr size_t kPartsMax = 8;

struct Span {
  uint64_t begin = 0, end = 0;
};

// Returns the spans sorted, rounded to multiples of 8 and at least 8 bytes apart.
std::vector<Span> Merged(std::vector<Span> spans, uint64_t bytes) {
  for (Span& span : spans) {
    span.begin &= ~uint64_t{7};
    span.end = std::min((span.end + 7) & ~uint64_t{7}, (bytes + 7) & ~uint64_t{7});
  }
  std::ranges::sort(spans, [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::vector<Span> merged;
  for (const Span& span : spans) {
    if (span.begin >= span.end) {
      continue;
    }
    if (!merged.empty() && span.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, span.end);
    } else {
      merged.push_back(span);
    }
  }
  return merged;
}

// Closes the narrowest gaps until at most parts_max spans remain. The bytes of the gaps are included; constant bytes
// may be duplicated.
void CloseGaps(std::vector<Span>& spans, size_t parts_max) {
  while (spans.size() > parts_max) {
    size_t narrowest = 1;
    for (size_t i = 2; i < spans.size(); ++i) {
      if (spans[i].begin - spans[i - 1].end < spans[narrowest].begin - spans[narrowest - 1].end) {
        narrowest = i;
      }
    }
    spans[narrowest - 1].end = spans[narrowest].end;
    spans.erase(spans.begin() + static_cast<ptrdiff_t>(narrowest));
  }
}

std::vector<uint8_t> Content(const std::vector<ir::DataSegment>& data, const Span& span) {
  std::vector<uint8_t> bytes(span.end - span.begin);
  for (const ir::DataSegment& segment : data) {
    const uint64_t begin = std::max(span.begin, segment.address);
    const uint64_t end = std::min(span.end, segment.address + segment.bytes.size());
    if (begin < end) {
      std::copy_n(segment.bytes.begin() + static_cast<ptrdiff_t>(begin - segment.address), end - begin,
                  bytes.begin() + static_cast<ptrdiff_t>(begin - span.begin));
    }
  }
  return bytes;
}

// Layout collects the reads and writes of one memory (module memory or the state) and divides it into parts.
class Layout {
 public:
  Layout(const std::vector<ir::DataSegment>& data, uint64_t bytes) : data_(data), bytes_(bytes) {}

  void Read(const Span& span) { reads_.push_back(Cut(span)); }
  void Write(const Span& span, bool is_scratch) {
    writes_.push_back(Cut(span));
    only_scratch_ = only_scratch_ && is_scratch;
  }
  void ReadAll() { reads_.push_back({0, bytes_}); }

  // Returns the parts sorted by address.
  std::vector<OwnMemory> Run() {
    std::vector<Span> writes = Merged(writes_, bytes_);
    CloseGaps(writes, kPartsMax);
    std::vector<OwnMemory> parts;
    for (const Span& span : writes) {
      std::vector<uint8_t> content = Content(data_, span);
      const bool is_zero = std::ranges::all_of(content, [](uint8_t byte) { return byte == 0; });
      parts.push_back({span.begin, span.end, true, only_scratch_ && is_zero, std::move(content)});
    }
    for (const Span& span : Constants(writes)) {
      parts.push_back({span.begin, span.end, false, false, Content(data_, span)});
    }
    std::ranges::sort(parts, [](const OwnMemory& a, const OwnMemory& b) { return a.begin < b.begin; });
    return parts;
  }

 private:
  Span Cut(const Span& span) const { return {std::min(span.begin, bytes_), std::min(span.end, bytes_)}; }

  // Returns the ranges of the data segments that are read and never written.
  std::vector<Span> Constants(const std::vector<Span>& writes) const {
    const std::vector<Span> reads = Merged(reads_, bytes_);
    std::vector<Span> constants;
    for (const ir::DataSegment& segment : data_) {
      for (const Span& read : reads) {
        const Span both{std::max(read.begin, segment.address),
                        std::min(read.end, segment.address + segment.bytes.size())};
        if (both.begin < both.end) {
          constants.push_back(both);
        }
      }
    }
    constants = Merged(std::move(constants), bytes_);
    CloseGaps(constants, kPartsMax);
    std::vector<Span> left;
    for (Span span : constants) {
      for (const Span& write : writes) {
        if (write.end <= span.begin || write.begin >= span.end) {
          continue;
        }
        if (span.begin < write.begin) {
          left.push_back({span.begin, write.begin});
        }
        span.begin = std::min(span.end, write.end);
      }
      if (span.begin < span.end) {
        left.push_back(span);
      }
    }
    return left;
  }

  const std::vector<ir::DataSegment>& data_;
  const uint64_t bytes_;
  std::vector<Span> reads_, writes_;
  bool only_scratch_ = true;
};

class OwnMemoryPlanner {
 public:
  OwnMemoryPlanner(const ir::Module& module, const std::vector<analysis::ValueRange>& ranges, GpuPlan& plan,
                   Diagnostics& diagnostics)
      : module_(module),
        function_(module.function(module.entry)),
        ranges_(ranges),
        plan_(plan),
        diagnostics_(diagnostics),
        memory_(module.data, module.memory_bytes),
        state_(module.state, module.state_bytes) {}

  void Run() {
    plan_.reach.assign(function_.ops.size(), Reach::kNone);
    FindStack();
    ir::ForEachOp(function_, [&](OpId id) { Visit(id, function_.op(id)); });
    if (plan_.uses_flat && stack_.begin < stack_.end && stack_.end <= module_.memory_bytes) {
      memory_.Write(stack_, false);  // Addresses of local arrays may have escaped.
    }
    plan_.module_memory = memory_.Run();
    plan_.state = state_.Run();
    plan_.part.assign(function_.ops.size(), -1);
    plan_.is_inside.assign(function_.ops.size(), false);
    ir::ForEachOp(function_, [&](OpId id) { FindPart(id, function_.op(id)); });
    CountBytes();
  }

 private:
  // Finds the part of the shadow stack that is delimited by constants subtracted from its pointer.
  void FindStack() {
    const std::optional<uint32_t> pointer = analysis::StackPointerOf(module_);
    if (!pointer.has_value()) {
      return;
    }
    const uint64_t top = module_.globals[*pointer].init;
    stack_ = {top, top};
    for (const analysis::ValueRange& range : ranges_) {
      if (range.Is(Base::kStack) && range.is_constant() && range.lo < stack_.begin) {
        stack_.begin = range.lo;
      }
    }
  }

  void Refuse(const Op& op, std::string message) {
    diagnostics_.push_back({Severity::kError, "module \"" + module_.name + "\"", op.source, std::move(message)});
  }

  void Visit(OpId id, const Op& op) {
    if (op.code == Opcode::kMemoryCopy || op.code == Opcode::kMemoryFill || op.code == Opcode::kMemoryInit) {
      return VisitBulk(op);
    }
    if (!ir::HasSpace(op.code)) {
      return;
    }
    const bool is_write = (ir::Info(op.code).effects & ir::kWrites) != 0;
    switch (op.space) {
      case Space::kParam:
        plan_.reach[id.index] = Reach::kParam;
        return;
      case Space::kGroup:
        plan_.reach[id.index] = Reach::kGroup;
        return;
      case Space::kState:
      case Space::kScratch:
        plan_.reach[id.index] = Reach::kState;
        return VisitState(op, is_write);
      default:
        plan_.reach[id.index] = VisitAddress(op, is_write);
        plan_.uses_flat = plan_.uses_flat || plan_.reach[id.index] == Reach::kFlat;
    }
  }

  // Finds the bytes that an access may touch. Returns true if they are known to lie below `bytes`.
  bool Bounded(const Op& op, uint64_t bytes, Span* span) const {
    const analysis::ValueRange& range = ranges_[function_.operands_of(op)[0].index];
    const std::optional<uint64_t> end = range.EndOf(op.imm, op.width);
    *span = {range.lo + op.imm, end.value_or(0)};
    return end && *end <= bytes;
  }

  Reach VisitAddress(const Op& op, bool is_write) {
    const analysis::ValueRange& range = ranges_[function_.operands_of(op)[0].index];
    Span span;
    const bool is_bounded = Bounded(op, module_.memory_bytes, &span);
    if (range.Is(Base::kStack)) {
      if (!UsesStack(op)) {
        return Reach::kModule;
      }
      memory_.Write(stack_, false);
      return Reach::kModule;
    }
    if (is_bounded) {
      is_write ? memory_.Write(span, false) : memory_.Read(span);
      return Reach::kModule;
    }
    if (!is_write) {
      memory_.ReadAll();
    } else if (range.Is(Base::kNumber)) {
      Refuse(op,
             "An instance stores to its own memory at an address that is not known at compile time; on a GPU such "
             "memory must be small and its addresses known. Use a local array, or a buffer.");
    }
    return op.space == Space::kModule ? Reach::kModule : Reach::kFlat;
  }

  static int32_t PartWith(const std::vector<OwnMemory>& parts, const Span& span) {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (span.begin >= parts[i].begin && span.end <= parts[i].end) {
        return static_cast<int32_t>(i);
      }
    }
    return -1;
  }

  void FindPart(OpId id, const Op& op) {
    const Reach reach = plan_.reach[id.index];
    if (reach != Reach::kModule && reach != Reach::kState) {
      return;
    }
    const bool is_state = reach == Reach::kState;
    const std::vector<OwnMemory>& parts = is_state ? plan_.state : plan_.module_memory;
    Span span;
    if (Bounded(op, is_state ? module_.state_bytes : module_.memory_bytes, &span)) {
      plan_.part[id.index] = PartWith(parts, span);
      plan_.is_inside[id.index] = plan_.part[id.index] >= 0;
    }
    if (plan_.part[id.index] < 0 && !is_state && ranges_[function_.operands_of(op)[0].index].Is(Base::kStack)) {
      plan_.part[id.index] = PartWith(parts, stack_);
    }
    const bool is_write = (ir::Info(op.code).effects & ir::kWrites) != 0;
    if (plan_.part[id.index] < 0 && op.space == Space::kScratch && is_write) {
      plan_.part[id.index] = PartWith(parts, ScratchSpan());
    }
  }

  // Requires that the stack pointer is a constant minus constants.
  bool UsesStack(const Op& op) {
    if (stack_.begin >= stack_.end || stack_.end > module_.memory_bytes) {
      Refuse(op,
             "The stack of this kernel has no fixed size (a variable-length array, alloca or a stack pointer that "
             "differs between paths); on a GPU the size must be known at compile time.");
      return false;
    }
    return true;
  }

  void VisitState(const Op& op, bool is_write) {
    Span span;
    if (Bounded(op, module_.state_bytes, &span)) {
      is_write ? state_.Write(span, op.space == Space::kScratch) : state_.Read(span);
    } else if (!is_write) {
      state_.ReadAll();
    } else if (op.space == Space::kScratch) {
      state_.Write(ScratchSpan(), true);
    } else {
      state_.Write({0, module_.state_bytes}, false);
    }
  }

  // The math library's stack lies below its constant tables, and both lie at the end of the state.
  Span ScratchSpan() const {
    if (module_.state.empty()) {
      return {0, module_.state_bytes};
    }
    const ir::DataSegment& tables = module_.state.back();
    const uint64_t begin = module_.state.size() == 1 ? 0
                                                     : module_.state[module_.state.size() - 2].address +
                                                           module_.state[module_.state.size() - 2].bytes.size();
    return {begin, tables.address};
  }

  void VisitBulk(const Op& op) {
    plan_.uses_flat = true;
    const auto operands = function_.operands_of(op);
    VisitRange(op, operands[0].index, true);
    if (op.code == Opcode::kMemoryCopy) {
      VisitRange(op, operands[1].index, false);
    }
  }

  void VisitRange(const Op& op, uint32_t address, bool is_write) {
    const analysis::ValueRange& range = ranges_[address];
    const analysis::ValueRange& bytes = ranges_[function_.operands_of(op)[2].index];
    const std::optional<uint64_t> end = range.EndOf(0, bytes.hi);
    const bool is_bounded = end && *end <= module_.memory_bytes;
    if (range.Is(Base::kStack)) {
      if (UsesStack(op)) {
        memory_.Write(stack_, false);
      }
    } else if (is_bounded) {
      is_write ? memory_.Write({range.lo, *end}, false) : memory_.Read({range.lo, *end});
    } else if (!is_write) {
      memory_.ReadAll();
    } else if (range.Is(Base::kNumber)) {
      Refuse(op,
             "A fill or copy writes an instance's own memory at an address that is not known at compile time; on a GPU "
             "such memory must be small and its addresses known. Use a local array, or a buffer.");
    }
  }

  void CountBytes() {
    for (const std::vector<OwnMemory>* parts : {&plan_.module_memory, &plan_.state}) {
      for (const OwnMemory& part : *parts) {
        const OwnMemory::Filled filled = part.filled();
        plan_.private_bytes += part.is_written ? part.end - part.begin : 0;
        plan_.constant_bytes += part.is_written ? filled.end - filled.begin : part.end - part.begin;
      }
    }
    if (plan_.private_bytes > kPrivateBytesMax) {
      Refuse({}, "Each instance writes " + std::to_string(plan_.private_bytes) +
                     " bytes of its own memory; on a GPU at most " + std::to_string(kPrivateBytesMax) +
                     " bytes are possible.");
    }
    if (plan_.constant_bytes > kConstantBytesMax) {
      Refuse({}, "The kernel reads " + std::to_string(plan_.constant_bytes) +
                     " bytes of constant data; on a GPU at most " + std::to_string(kConstantBytesMax) +
                     " bytes are possible. Pass the data in a buffer.");
    }
  }

  const ir::Module& module_;
  const ir::Function& function_;
  const std::vector<analysis::ValueRange>& ranges_;
  GpuPlan& plan_;
  Diagnostics& diagnostics_;
  Layout memory_, state_;
  Span stack_;
};

}  // namespace

OwnMemory::Filled OwnMemory::filled() const {
  const auto is_set = [](uint8_t byte) { return byte != 0; };
  const auto first = std::ranges::find_if(bytes, is_set);
  if (first == bytes.end()) {
    return {};
  }
  const auto last = std::find_if(bytes.rbegin(), bytes.rend(), is_set);
  const auto begin = static_cast<uint64_t>(first - bytes.begin()), end = static_cast<uint64_t>(bytes.rend() - last);
  return {begin & ~uint64_t{7}, (end + 7) & ~uint64_t{7}};
}

void PlanOwnMemory(const ir::Module& module, const std::vector<analysis::ValueRange>& ranges, GpuPlan& plan,
                   Diagnostics& diagnostics) {
  OwnMemoryPlanner(module, ranges, plan, diagnostics).Run();
}

}  // namespace hpvm::gpu
