// SPDX-License-Identifier: Apache-2.0
// Describes a plan in words, for `hpvmctl kernel explain`.
#include <array>
#include <string>

#include "compiler/ir/walk.h"
#include "compiler/pass/gang/gang_plan.h"

namespace hpvm::pass {
namespace {

// Numbers of values by the kind of their layout.
struct Kinds {
  std::array<size_t, 3> count{};  // Indexed by Layout::Kind.
  size_t by_row = 0;
  size_t sum() const { return count[0] + count[1] + count[2]; }
  void Add(const Layout& layout) {
    ++count[static_cast<size_t>(layout.kind)];
    by_row += layout.by_row ? 1 : 0;
  }
};

std::string ToString(const Kinds& kinds) {
  std::string text = std::to_string(kinds.count[0]) + " are one scalar for all lanes, " +
                     std::to_string(kinds.count[1]) + " grow by a constant from lane to lane, " +
                     std::to_string(kinds.count[2]) + " are vectors";
  return kinds.by_row == 0 ? text + "." : text + "; " + std::to_string(kinds.by_row) + " differ from row to row.";
}

class Explainer {
 public:
  Explainer(const ir::Module& module, const GangPlan& plan, KernelReport* report)
      : f_(module.function(module.entry)), plan_(plan), report_(report) {}
  void Run();

 private:
  void Say(KernelRemark::Kind kind, uint32_t source, std::string text) { report_->Add(kind, source, std::move(text)); }
  bool IsOne(ValueId id) const {
    return plan_.layouts[id.index].kind == Layout::Kind::kUniform && !plan_.layouts[id.index].by_row;
  }
  void Control(const Op& op, OpId id);

  const ir::Function& f_;
  const GangPlan& plan_;
  KernelReport* report_;
};

void Explainer::Control(const Op& op, OpId id) {
  constexpr auto kControl = KernelRemark::Kind::kControl;
  const bool is_masked = plan_.is_masked[id.index];
  if (op.code == Opcode::kLoop) {
    Say(kControl, op.source,
        is_masked
            ? "Lanes leave the loop, or begin its next iteration, separately: it runs under a mask as long as some "
              "lane goes on."
            : "All lanes run the loop together.");
    Kinds kinds;
    const ir::Region& body = f_.region(op.body);
    for (uint32_t i = 0; i < body.param_count; ++i) {
      kinds.Add(plan_.layouts[body.first_param.index + i]);
    }
    if (kinds.sum() != 0) {
      Say(KernelRemark::Kind::kShape, op.source,
          "The loop carries " + std::to_string(kinds.sum()) + " values, of which " + ToString(kinds));
    }
  } else if (op.code == Opcode::kIf && plan_.is_assumed[id.index]) {
    Say(kControl, op.source,
        "A guard of ids: the tile evaluates it once, and runs under masks where its instances disagree.");
  } else if (op.code == Opcode::kIf) {
    Say(kControl, op.source,
        IsOne(f_.operands_of(op)[0]) ? "All lanes take the same branch."
                                     : "Lanes may take different branches, under masks.");
  } else if (op.code == Opcode::kBrTable && !IsOne(f_.operands_of(op)[0])) {
    Say(kControl, op.source, "Lanes may take different targets of the table, under masks.");
  }
}

void Explainer::Run() {
  Kinds kinds;
  ir::ForEachOp(f_, [&](OpId id) {
    const Op& op = f_.op(id);
    if (ir::Info(op.code).family == ir::Family::kControl) {
      return Control(op, id);
    }
    if (plan_.is_assumed[id.index] && op.code != Opcode::kExtendS && op.code != Opcode::kExtendU) {
      Say(KernelRemark::Kind::kControl, op.source,
          "An index that is assumed not to meet an edge of an extent: the tile checks this once, and runs under masks "
          "where an instance meets an edge.");
    }
    for (uint32_t i = 0; i < op.result_count && op.code != Opcode::kConst; ++i) {
      kinds.Add(plan_.layouts[op.first_result.index + i]);
    }
  });
  Say(KernelRemark::Kind::kShape, 0,
      "A tile computes " + std::to_string(kinds.sum()) + " results, of which " + ToString(kinds));
  if (plan_.body_is_masked) {
    Say(KernelRemark::Kind::kControl, 0,
        "Lanes return separately; the code that follows runs as long as some lane is left.");
  }
}

}  // namespace

void ExplainGang(const ir::Module& module, const GangPlan& plan, KernelReport* report) {
  Explainer(module, plan, report).Run();
}

}  // namespace hpvm::pass
