// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/artifact_bounds.h"

#include <algorithm>
#include <string>

#include "base/limits.h"

namespace hpvm {
namespace {

using ir::Atom;
using ir::AtomId;
using ir::Polynomial;

constexpr auto kLastAtomKind = static_cast<uint8_t>(Atom::Kind::kEither);
constexpr size_t kOpcodes = 0
#define HPVM_OP(name, text, effects, family) +1
#include "compiler/ir/opcodes.def"
#undef HPVM_OP
    ;

void WriteWide(ir::Wide value, WireWriter& out) {
  const auto bits = static_cast<unsigned __int128>(value);
  out.U64(static_cast<uint64_t>(bits));
  out.U64(static_cast<uint64_t>(bits >> 64));
}
ir::Wide ReadWide(WireReader& in) {
  const uint64_t low = in.U64();
  const uint64_t high = in.U64();
  return static_cast<ir::Wide>(static_cast<unsigned __int128>(high) << 64 | low);
}

void WriteEnd(const ir::Exact& end, WireWriter& out) {
  out.U8(end ? 1 : 0);
  if (end) {
    WriteWide(*end, out);
  }
}
ir::Exact ReadEnd(WireReader& in) {
  if (!in.Flag()) {
    return {};
  }
  const ir::Wide value = ReadWide(in);
  if (!ir::IsKept(value)) {
    in.Fail();
  }
  return value;
}

void WriteIndices(const std::vector<uint32_t>& indices, WireWriter& out) {
  out.U32(static_cast<uint32_t>(indices.size()));
  for (uint32_t index : indices) {
    out.U32(index);
  }
}
std::vector<uint32_t> ReadIndices(WireReader& in) {
  std::vector<uint32_t> indices(in.Count(4));
  for (uint32_t& index : indices) {
    index = in.U32();
  }
  return indices;
}

void WritePolynomial(const Polynomial& polynomial, WireWriter& out) {
  out.U32(static_cast<uint32_t>(polynomial.size()));
  for (const ir::Term& term : polynomial) {
    out.U64(static_cast<uint64_t>(term.factor));
    out.U32(static_cast<uint32_t>(term.atoms.size()));
    for (AtomId atom : term.atoms) {
      out.U32(atom.index);
    }
  }
}
Polynomial ReadPolynomial(WireReader& in) {
  Polynomial polynomial(in.Count(12));
  for (ir::Term& term : polynomial) {
    term.factor = static_cast<int64_t>(in.U64());
    term.atoms.resize(in.Count(4));
    for (AtomId& atom : term.atoms) {
      atom = AtomId(in.U32());
    }
  }
  return polynomial;
}

void WriteAtom(const Atom& atom, WireWriter& out) {
  out.U8(static_cast<uint8_t>(atom.kind));
  out.U8(atom.bits);
  out.U8(static_cast<uint8_t>(atom.code));
  out.U32(atom.index);
  WriteEnd(atom.range.lo(), out);
  WriteEnd(atom.range.hi(), out);
  out.U32(static_cast<uint32_t>(atom.operands.size()));
  for (const Polynomial& operand : atom.operands) {
    WritePolynomial(operand, out);
  }
  out.U32(static_cast<uint32_t>(atom.contexts.size()));
  for (const std::vector<uint32_t>& context : atom.contexts) {
    WriteIndices(context, out);
  }
}
Atom ReadAtom(WireReader& in) {
  Atom atom;
  const uint8_t kind = in.U8();
  atom.bits = in.U8();
  const uint8_t code = in.U8();
  if (kind > kLastAtomKind || code >= kOpcodes) {
    in.Fail();
    return atom;
  }
  atom.kind = static_cast<Atom::Kind>(kind);
  atom.code = static_cast<ir::Opcode>(code);
  atom.index = in.U32();
  const ir::Exact lo = ReadEnd(in);
  atom.range = {lo, ReadEnd(in)};
  atom.operands.resize(in.Count(4));
  for (Polynomial& operand : atom.operands) {
    operand = ReadPolynomial(in);
  }
  atom.contexts.resize(in.Count(4));
  for (std::vector<uint32_t>& context : atom.contexts) {
    context = ReadIndices(in);
  }
  return atom;
}

void WriteLoop(const ir::BoundsLoop& loop, WireWriter& out) {
  out.U32(loop.trip.index);
  WriteIndices(loop.context, out);
  out.U32(static_cast<uint32_t>(loop.ends.size()));
  for (const ir::LoopEnd& end : loop.ends) {
    WriteIndices(end.goes_on, out);
    out.U32(static_cast<uint32_t>(end.distances.size()));
    for (const ir::Distance& distance : end.distances) {
      WritePolynomial(distance.polynomial, out);
      out.U8(distance.bits);
    }
  }
  WriteIndices(loop.goes_on_when, out);
  out.U8(loop.is_exact);
}
ir::BoundsLoop ReadLoop(WireReader& in) {
  ir::BoundsLoop loop;
  loop.trip = AtomId(in.U32());
  loop.context = ReadIndices(in);
  loop.ends.resize(in.Count(8));
  for (ir::LoopEnd& end : loop.ends) {
    end.goes_on = ReadIndices(in);
    end.distances.resize(in.Count(5));
    for (ir::Distance& distance : end.distances) {
      distance.polynomial = ReadPolynomial(in);
      distance.bits = in.U8();
    }
  }
  loop.goes_on_when = ReadIndices(in);
  loop.is_exact = in.Flag();
  return loop;
}

void WriteAccesses(const std::vector<ir::BoundsAccess>& accesses, WireWriter& out) {
  out.U32(static_cast<uint32_t>(accesses.size()));
  for (const ir::BoundsAccess& access : accesses) {
    out.U32(access.op.index);
    out.U32(access.param);
    out.U64(access.reach);
    out.U8(access.is_store);
    out.U64(access.group_bytes);
    WritePolynomial(access.offset, out);
    WriteIndices(access.context, out);
    out.U8(access.width);
    out.U8(access.is_load);
    out.U8(access.reads_own);
    out.U8(access.is_certain);
    WriteIndices(access.happens_when, out);
    WriteIndices(access.loops, out);
  }
}
std::vector<ir::BoundsAccess> ReadAccesses(WireReader& in) {
  std::vector<ir::BoundsAccess> accesses(in.Count(45));
  for (ir::BoundsAccess& access : accesses) {
    access.op = ir::OpId(in.U32());
    access.param = in.U32();
    access.reach = in.U64();
    access.is_store = in.Flag();
    access.group_bytes = in.U64();
    access.offset = ReadPolynomial(in);
    access.context = ReadIndices(in);
    access.width = in.U8();
    access.is_load = in.Flag();
    access.reads_own = in.Flag();
    access.is_certain = in.Flag();
    access.happens_when = ReadIndices(in);
    access.loops = ReadIndices(in);
  }
  return accesses;
}

bool IsBits(uint8_t bits) { return bits == 32 || bits == 64; }

class Validator {
 public:
  Validator(const ir::BoundsProgram& program, std::span<const ir::KernelParam> params)
      : program_(program), params_(params) {}

  // Why the program is refused; nothing when it is not.
  std::string Run() {
    if (program_.atoms.size() > limits::kBoundsAtomsMax || program_.constraints.size() > limits::kBoundsItemsMax ||
        program_.loops.size() > limits::kBoundsItemsMax || program_.accesses.size() > limits::kBoundsItemsMax ||
        program_.others.size() > limits::kBoundsItemsMax) {
      return "has more parts than the limit";
    }
    // Constraints first: choices ask how far they reach.
    for (const ir::Constraint& constraint : program_.constraints) {
      reach_.push_back(std::max(ReachOf(constraint.less), ReachOf(constraint.more)));
      if (!IsBits(constraint.bits) || reach_.back() > program_.atoms.size()) {
        return "has a malformed constraint (" + std::to_string(reach_.size() - 1) + ")";
      }
    }
    for (size_t i = 0; i < program_.atoms.size(); ++i) {
      if (!IsValid(program_.atoms[i], i)) {
        return "has a malformed atom (" + std::to_string(i) + ")";
      }
    }
    if (!std::all_of(program_.loops.begin(), program_.loops.end(), [&](const auto& loop) { return IsValid(loop); })) {
      return "has a malformed loop";
    }
    const auto is_valid = [&](const ir::BoundsAccess& access) { return IsValid(access); };
    if (!std::all_of(program_.accesses.begin(), program_.accesses.end(), is_valid) ||
        !std::all_of(program_.others.begin(), program_.others.end(), is_valid)) {
      return "has a malformed access";
    }
    return "";
  }

 private:
  // One more than the latest atom in it; too large for any program when it has too many terms or powers.
  static size_t ReachOf(const Polynomial& polynomial) {
    size_t reach = polynomial.size() > ir::kTermsMax ? SIZE_MAX : 0;
    for (const ir::Term& term : polynomial) {
      reach = term.atoms.size() > limits::kBoundsDegreeMax ? SIZE_MAX : reach;
      for (AtomId atom : term.atoms) {
        reach = std::max(reach, size_t{atom.index} + 1);
      }
    }
    return reach;
  }
  bool HasAtoms(const Polynomial& polynomial) const { return ReachOf(polynomial) <= program_.atoms.size(); }
  bool AreConstraints(const std::vector<uint32_t>& context) const {
    return context.size() <= limits::kBoundsItemsMax &&
           std::all_of(context.begin(), context.end(), [&](uint32_t c) { return c < program_.constraints.size(); });
  }

  bool IsValid(const Atom& atom, size_t number) const {
    const auto is_earlier = [&](const Polynomial& operand) { return ReachOf(operand) <= number; };
    if (!IsBits(atom.bits) || !std::all_of(atom.operands.begin(), atom.operands.end(), is_earlier)) {
      return false;
    }
    switch (atom.kind) {
      case Atom::Kind::kInstanceId:
      case Atom::Kind::kGroupId:
      case Atom::Kind::kLocalId:
      case Atom::Kind::kInstanceCount:
      case Atom::Kind::kGroupSize:
        return atom.index < 3;
      case Atom::Kind::kScalar:
        return atom.index < params_.size() && !params_[atom.index].is_buffer;
      case Atom::Kind::kBufferBytes:
        return atom.index < params_.size() && params_[atom.index].is_buffer;
      case Atom::Kind::kTrip:
        return atom.index < program_.loops.size();
      case Atom::Kind::kRange:
        return true;
      case Atom::Kind::kOperation:
        return atom.operands.size() == 1 || atom.operands.size() == 2;
      case Atom::Kind::kEither:
        return IsChoice(atom, number);
    }
    return false;
  }
  // A constraint that named the choice itself, or a later atom, would be evaluated without end.
  bool IsChoice(const Atom& atom, size_t number) const {
    if (atom.operands.empty() || atom.operands.size() > limits::kBoundsChoicesMax ||
        atom.contexts.size() != atom.operands.size()) {
      return false;
    }
    return std::all_of(atom.contexts.begin(), atom.contexts.end(), [&](const std::vector<uint32_t>& context) {
      return AreConstraints(context) &&
             std::all_of(context.begin(), context.end(), [&](uint32_t c) { return reach_[c] <= number; });
    });
  }
  bool IsValid(const ir::BoundsAccess& access) const {
    const bool has_place = access.param == ir::BoundsAccess::kGroupMemory ||
                           (access.param < params_.size() && params_[access.param].is_buffer);
    return has_place && access.width <= access.reach && HasAtoms(access.offset) && AreConstraints(access.context) &&
           AreConstraints(access.happens_when) && access.loops.size() <= limits::kBoundsItemsMax &&
           std::all_of(access.loops.begin(), access.loops.end(),
                       [&](uint32_t loop) { return loop < program_.loops.size(); });
  }
  bool IsValid(const ir::BoundsLoop& loop) const {
    return loop.trip.index < program_.atoms.size() && AreConstraints(loop.context) &&
           AreConstraints(loop.goes_on_when) && loop.ends.size() <= limits::kBoundsItemsMax &&
           std::all_of(loop.ends.begin(), loop.ends.end(), [&](const ir::LoopEnd& end) {
             return AreConstraints(end.goes_on) && end.distances.size() <= limits::kBoundsItemsMax &&
                    std::all_of(end.distances.begin(), end.distances.end(), [&](const ir::Distance& distance) {
                      return IsBits(distance.bits) && HasAtoms(distance.polynomial);
                    });
           });
  }

  const ir::BoundsProgram& program_;
  const std::span<const ir::KernelParam> params_;
  std::vector<size_t> reach_;  // By constraint.
};

}  // namespace

void WriteBounds(const ir::BoundsProgram& program, WireWriter& out) {
  out.U32(static_cast<uint32_t>(program.atoms.size()));
  for (const Atom& atom : program.atoms) {
    WriteAtom(atom, out);
  }
  out.U32(static_cast<uint32_t>(program.constraints.size()));
  for (const ir::Constraint& constraint : program.constraints) {
    out.U8(constraint.is_signed);
    out.U8(constraint.or_equal);
    out.U8(constraint.bits);
    WritePolynomial(constraint.less, out);
    WritePolynomial(constraint.more, out);
  }
  out.U32(static_cast<uint32_t>(program.loops.size()));
  for (const ir::BoundsLoop& loop : program.loops) {
    WriteLoop(loop, out);
  }
  WriteAccesses(program.accesses, out);
  WriteAccesses(program.others, out);
  out.U8(program.is_complete);
  out.U8(program.is_separate);
  out.U8(program.is_wide);
}

ir::BoundsProgram ReadBounds(WireReader& in) {
  ir::BoundsProgram program;
  program.atoms.resize(in.Count(17));
  for (Atom& atom : program.atoms) {
    atom = ReadAtom(in);
  }
  program.constraints.resize(in.Count(11));
  for (ir::Constraint& constraint : program.constraints) {
    constraint.is_signed = in.Flag();
    constraint.or_equal = in.Flag();
    constraint.bits = in.U8();
    constraint.less = ReadPolynomial(in);
    constraint.more = ReadPolynomial(in);
  }
  program.loops.resize(in.Count(17));
  for (ir::BoundsLoop& loop : program.loops) {
    loop = ReadLoop(in);
  }
  program.accesses = ReadAccesses(in);
  program.others = ReadAccesses(in);
  program.is_complete = in.Flag();
  program.is_separate = in.Flag();
  program.is_wide = in.Flag();
  return program;
}

Status ValidateBounds(const ir::BoundsProgram& program, std::span<const ir::KernelParam> params) {
  const std::string fault = Validator(program, params).Run();
  if (!fault.empty()) {
    return InvalidArgument("The artifact's bounds program " + fault + ".");
  }
  return absl::OkStatus();
}

}  // namespace hpvm
