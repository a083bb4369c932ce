// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/testing/access_trace.h"

#include <functional>
#include <string>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/op_syntax.h"

namespace hpvm::pass::testing {
namespace {

constexpr auto kNothing = static_cast<uint32_t>(-1);

// Adds a print before every operation for which `wants` returns true; the print shows the operation's first operand if
// `with_operand`. Returns the operation of each new format.
std::vector<OpId> AddPrints(ir::Module& module, bool with_operand,
                            const std::function<bool(const ir::Region&, size_t)>& wants) {
  ir::Function& f = module.function(module.entry);
  std::vector<OpId> printed(module.formats.size());
  for (ir::Region& region : f.regions) {
    std::vector<OpId> ops;
    for (size_t i = 0; i < region.ops.size(); ++i) {
      const OpId id = region.ops[i];
      if (wants(region, i)) {
        Op print{.code = Opcode::kPrint, .imm = module.formats.size()};
        print.first_operand = static_cast<uint32_t>(f.operands.size());
        if (with_operand) {
          const ir::ValueId address = f.operands_of(f.op(id))[0];
          print.operand_count = 1;
          f.operands.push_back(address);
          module.formats.emplace_back(f.type_of(address) == ir::Type::kI64 ? "%lld" : "%d");
        } else {
          module.formats.emplace_back("");
        }
        printed.push_back(id);
        ops.push_back(OpId(f.ops.size()));
        f.ops.push_back(print);
      }
      ops.push_back(id);
    }
    region.ops = std::move(ops);
  }
  return printed;
}

class Sink final : public ir::PrintSink {
 public:
  explicit Sink(std::function<void(const std::array<uint64_t, 3>&, uint32_t, std::span<const uint64_t>)> take)
      : take_(std::move(take)) {}
  void Print(const std::array<uint64_t, 3>& instance, uint32_t format, std::span<const uint64_t> values) override {
    take_(instance, format, values);
  }

 private:
  std::function<void(const std::array<uint64_t, 3>&, uint32_t, std::span<const uint64_t>)> take_;
};

// Returns the bytes that an access touches; the parameter is kNothing if they are in no buffer.
TracedAccess Landing(const ir::Module& module, const ir::Launch& launch, const ir::AddressSpace& space, const Op& op,
                     uint64_t address) {
  TracedAccess access;
  access.param = kNothing;
  const auto lands = [&](uint32_t param, uint64_t offset) {
    if (op.width <= launch.arguments[param].bytes && offset <= launch.arguments[param].bytes - op.width) {
      access.param = param;
      access.begin = offset;
      access.end = offset + op.width;
    }
  };
  uint64_t at = 0;
  if (!__builtin_add_overflow(address, op.imm, &at)) {
    lands(op.space_index, at);
  }
  if (access.param != kNothing || space.separate) {
    return access;
  }
  const uint64_t mask = module.is_memory64 ? ~uint64_t{0} : 0xffffffffu;
  if (__builtin_add_overflow((space.base[op.space_index] + address) & mask, op.imm, &at)) {
    return access;
  }
  for (uint32_t i = 0; i < launch.arguments.size(); ++i) {
    if (module.params[i].is_buffer && at >= space.base[i]) {
      lands(i, at - space.base[i]);
    }
  }
  return access;
}

}  // namespace

StatusOr<AccessTrace> TraceAccesses(const ir::Module& module, const ir::Launch& launch, uint64_t steps_max) {
  ir::Module traced = module;
  const ir::Function& f = module.function(module.entry);
  const std::vector<OpId> printed = AddPrints(traced, true, [&](const ir::Region& region, size_t i) {
    const Op& op = f.op(region.ops[i]);
    return ir::HasSpace(op.code) && op.space == ir::Space::kParam;
  });
  HPVMD_ASSIGN_OR_RETURN(const ir::AddressSpace space, ir::AssignAddresses(module, launch.arguments));
  AccessTrace trace;
  bool last_landed = false;
  Sink sink([&](const std::array<uint64_t, 3>& instance, uint32_t format, std::span<const uint64_t> values) {
    if (format < module.formats.size()) {
      return;
    }
    const Op& op = f.op(printed[format]);
    const uint64_t mask = module.is_memory64 ? ~uint64_t{0} : 0xffffffffu;
    TracedAccess access = Landing(module, launch, space, op, values[0] & mask);
    access.instance = instance;
    access.op = printed[format];
    access.is_load = (ir::Info(op.code).effects & ir::kReads) != 0;
    access.is_store = (ir::Info(op.code).effects & ir::kWrites) != 0;
    last_landed = access.param != kNothing;
    if (last_landed) {
      trace.accesses.push_back(access);
    }
  });
  ir::Launch seen = launch;
  seen.print = &sink;
  HPVMD_ASSIGN_OR_RETURN(trace.end, ir::Interpret(traced, seen, {.steps_max = steps_max}));
  if (trace.end.code == ir::TrapCode::kReadOnlyBuffer && last_landed) {
    trace.accesses.pop_back();
  }
  return trace;
}

StatusOr<std::vector<uint64_t>> CountOperations(const ir::Module& module, const ir::Launch& launch,
                                                uint64_t steps_max) {
  ir::Module traced = module;
  const ir::Function& f = module.function(module.entry);
  const auto is_start = [&](const ir::Region& region, size_t i) {
    return i == 0 || ir::Info(f.op(region.ops[i - 1]).code).family == ir::Family::kControl;
  };
  const std::vector<OpId> printed = AddPrints(traced, false, is_start);
  std::vector<uint64_t> counts(f.ops.size());
  Sink sink([&](const std::array<uint64_t, 3>&, uint32_t format, std::span<const uint64_t>) {
    if (format >= module.formats.size()) {
      ++counts[printed[format].index];
    }
  });
  ir::Launch seen = launch;
  seen.print = &sink;
  HPVMD_ASSIGN_OR_RETURN(const ir::TrapReport end, ir::Interpret(traced, seen, {.steps_max = steps_max}));
  if (end.code != ir::TrapCode::kNone) {
    return FailedPrecondition(ToString(end, module));
  }
  for (const ir::Region& region : f.regions) {
    for (size_t i = 0; i < region.ops.size(); ++i) {
      if (!is_start(region, i)) {
        counts[region.ops[i].index] = counts[region.ops[i - 1].index];
      }
    }
  }
  return counts;
}

}  // namespace hpvm::pass::testing
