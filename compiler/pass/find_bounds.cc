// SPDX-License-Identifier: Apache-2.0
// Finder walks the entry once, in the order of the text. It maps values to polynomials, and keeps a stack of facts:
// the constraints that hold at the current operation. Each region removes its facts when it ends. Invariants: an atom
// refers to earlier atoms only, except through a loop's end; a constraint or value that is dropped at a limit makes
// the program less precise, never unsound. Finally SetHopelessApart classifies the accesses.
#include "compiler/pass/find_bounds.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/relevant_values.h"
#include "compiler/ir/launch.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/find_paths.h"

namespace hpvm::pass {
namespace {

using ir::Atom;
using ir::AtomId;
using ir::Constraint;
using ir::Polynomial;

constexpr auto kGroupBytesMax = static_cast<int64_t>(ir::kGroupMemoryBytesMax);
constexpr uint32_t kNoLoop = 0xffffffffu;
constexpr size_t kEdgesMax = 8;  // Maximum number of edges of a merge that is followed.
constexpr int kScalesMax = 4;    // Maximum number of operations between two values of a loop's parameter.

uint8_t Bits(ir::Type type) { return static_cast<uint8_t>(8 * ir::Bytes(type)); }
ir::Interval UnsignedRange(int bits) { return {0, (ir::Wide{1} << bits) - 1}; }

// A fact that holds at the current operation: a constraint, or a polynomial that is not 0 modulo 2^bits.
struct Fact {
  std::optional<uint32_t> constraint;
  Polynomial nonzero;
  uint8_t bits = 32;
};

// The values that an edge brings to a merge, and the facts that hold on it beyond those that hold where the merge's
// owner begins.
struct Edge {
  std::vector<Polynomial> values;  // Values of floats are meaningless.
  std::vector<Fact> facts;
};

// BoundabilityCheck identifies the offsets that no launch can bound, because they depend on memory or on operations
// that are not modelled. One such access in the program would prevent the proofs of all others. A wrong answer costs
// only time.
class BoundabilityCheck {
 public:
  // `knows_words`: assumes a launch that knows the words of buffers.
  explicit BoundabilityCheck(const ir::BoundsProgram& program, bool knows_words)
      : program_(program), knows_words_(knows_words), is_unbounded_(program.atoms.size()) {}

  bool IsUnboundable(const Polynomial& polynomial, const std::vector<uint32_t>& context) {
    return std::ranges::any_of(polynomial, [&](const ir::Term& term) {
      return std::ranges::any_of(
          term.atoms, [&](AtomId atom) { return IsUnbounded(atom) && !IsBoundedByConditions(atom, context); });
    });
  }

 private:
  // Returns true if a term with a factor of this sign mentions the atom; 0: of any sign.
  static bool Mentions(const Polynomial& polynomial, AtomId atom, int sign) {
    return std::ranges::any_of(polynomial, [&](const ir::Term& term) {
      return (sign == 0 || (term.factor > 0) == (sign > 0)) && std::ranges::find(term.atoms, atom) != term.atoms.end();
    });
  }
  bool AnyUnbounded(const Polynomial& polynomial, AtomId except = AtomId()) {
    return std::ranges::any_of(polynomial, [&](const ir::Term& term) {
      return std::ranges::any_of(term.atoms, [&](AtomId atom) { return !(atom == except) && IsUnbounded(atom); });
    });
  }
  // Returns true if conditions bound the atom, above and below, by values that a launch knows.
  bool IsBoundedByConditions(AtomId atom, const std::vector<uint32_t>& context, bool has_least = false) {
    bool has_most = false;
    for (const uint32_t index : context) {
      const Constraint& c = program_.constraints[index];
      if (AnyUnbounded(c.less, atom) || AnyUnbounded(c.more, atom)) {
        continue;
      }
      // An unsigned comparison with an upper bound also implies that the value is not negative.
      const bool is_between = !c.is_signed && Mentions(c.less, atom, 0);
      has_least |= is_between || Mentions(c.more, atom, 1) || Mentions(c.less, atom, -1);
      has_most |= is_between || Mentions(c.less, atom, 1) || Mentions(c.more, atom, -1);
    }
    return has_least && has_most;
  }
  bool IsUnbounded(AtomId atom) {
    std::optional<bool>& known = is_unbounded_[atom.index];
    if (!known) {
      known = false;  // Ends the recursion for a loop's trip that its own end mentions.
      const bool wild = Compute(program_.atoms[atom.index]);
      known = wild;
    }
    return *known;
  }
  bool Compute(const Atom& atom) {
    constexpr ir::Wide kRangeMax = ir::Wide{1} << 20;
    switch (atom.kind) {
      case Atom::Kind::kRange:
        return !atom.range.is_bounded() || *atom.range.hi() - *atom.range.lo() >= kRangeMax;
      case Atom::Kind::kWord:
        return !knows_words_;
      case Atom::Kind::kTrip:
        return IsEndless(program_.loops[atom.index]);
      case Atom::Kind::kCarried:
        return IsEscaping(program_.loops[atom.index], AtomId(static_cast<uint32_t>(&atom - program_.atoms.data())));
      case Atom::Kind::kOperation:
        return IsWildOperation(atom);
      case Atom::Kind::kEither:
        for (size_t i = 0; i < atom.operands.size(); ++i) {
          if (IsUnboundable(atom.operands[i], atom.contexts[i])) {
            return true;
          }
        }
        return false;
      default:
        return false;
    }
  }
  bool IsWildOperation(const Atom& atom) {
    switch (atom.code) {
      case Opcode::kAnd:
        return AnyUnbounded(atom.operands[0]) && AnyUnbounded(atom.operands[1]);
      case Opcode::kRemU:
      case Opcode::kRemS:
        return AnyUnbounded(atom.operands[1]);
      case Opcode::kExtend8:
      case Opcode::kExtend16:
        return false;
      default:
        return std::ranges::any_of(atom.operands, [&](const Polynomial& p) { return AnyUnbounded(p); });
    }
  }
  // Returns true unless the carried value starts from a value that a launch knows, and then falls or is compared.
  bool IsEscaping(const ir::BoundsLoop& loop, AtomId atom) {
    const auto place = std::ranges::find(loop.carried, atom, &ir::Carried::atom) - loop.carried.begin();
    const auto falls = [&](const Polynomial& next) {
      return next.size() == 1 && std::ranges::any_of(next[0].atoms, [&](AtomId a) {
               return program_.atoms[a.index].kind == Atom::Kind::kOperation;
             });
    };
    return IsUnboundable(loop.carried[place].first, loop.context) ||
           !std::ranges::all_of(loop.ends, [&](const ir::LoopEnd& end) {
             return falls(end.next[place]) || IsBoundedByConditions(atom, end.goes_on, /*has_least=*/true);
           });
  }
  bool IsEndless(const ir::BoundsLoop& loop) {
    if (loop.ends.size() != 1) {
      return !loop.ends.empty();
    }
    const ir::LoopEnd& end = loop.ends[0];
    const auto ends_by = [&](uint32_t index) {
      const Constraint& c = program_.constraints[index];
      return !IsUnboundable(c.less, loop.context) && !IsUnboundable(c.more, loop.context);
    };
    return std::ranges::none_of(end.goes_on, ends_by) &&
           std::ranges::none_of(end.distances,
                                [&](const ir::Distance& d) { return !IsUnboundable(d.polynomial, loop.context); });
  }

  const ir::BoundsProgram& program_;
  const bool knows_words_;
  std::vector<std::optional<bool>> is_unbounded_;  // Indexed by AtomId.
};

// Moves the accesses that no launch can bound to the second list.
void SetHopelessApart(BoundabilityCheck hope, std::vector<ir::BoundsAccess>* accesses,
                      std::vector<ir::BoundsAccess>* hopeless) {
  const auto lost = std::stable_partition(accesses->begin(), accesses->end(), [&](const ir::BoundsAccess& access) {
    return !hope.IsUnboundable(access.offset, access.context);
  });
  hopeless->assign(std::make_move_iterator(lost), std::make_move_iterator(accesses->end()));
  accesses->erase(lost, accesses->end());
}

bool SameTerms(const Polynomial& a, const Polynomial& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const ir::Term& x, const ir::Term& y) { return x.factor == y.factor && x.atoms == y.atoms; });
}

bool SameAtom(const Atom& a, const Atom& b) {
  return a.kind == b.kind && a.code == b.code && a.bits == b.bits && a.contexts == b.contexts &&
         std::equal(a.operands.begin(), a.operands.end(), b.operands.begin(), b.operands.end(), SameTerms);
}

// Returns the number of low bits of the value that are certainly 0: the minimum over the factors of all terms. The
// result also holds modulo 2^bits.
int ZerosBelow(const Polynomial& polynomial) {
  int zeros = 62;
  for (const ir::Term& term : polynomial) {
    zeros = std::min(zeros, std::countr_zero(static_cast<uint64_t>(term.factor)));
  }
  return zeros;
}

class Finder {
 public:
  // `relevant` (borrowed): the values that matter to accesses, for a kernel that is too large to be analysed whole;
  // null: all values matter.
  explicit Finder(const ir::Module& module, const analysis::RelevantValues* relevant = nullptr)
      : module_(module),
        f_(module.function(module.entry)),
        relevant_(relevant),
        known_(f_.values.size()),
        definitions_(f_) {
    ir::ForEachOp(f_, [&](OpId id) {
      for (const ir::Target& target : f_.targets_of(f_.op(id))) {
        if (target.is_continue) {
          edges_back_[target.op.index].push_back(id);
        }
      }
    });
    if (relevant_ != nullptr) {
      Atom lost;
      lost.kind = Atom::Kind::kRange;
      lost.bits = 64;
      lost_ = NewAtom(std::move(lost), kNoLoop);
    }
  }

  // Returns nothing when the kernel is too large and `relevant` is null.
  std::optional<ir::BoundsProgram> Run(BoundsTrace* trace) {
    const ir::Region& body = f_.region(f_.body);
    for (uint32_t k = 0; k < body.param_count; ++k) {
      const ValueId value(body.first_param.index + k);
      if (IsRelevant(value)) {
        const ir::KernelParam& param = module_.params[k];
        known_[value.index] =
            param.is_buffer ? Fresh(UnsignedRange(Bits(param.type))) : Leaf(Atom::Kind::kScalar, k, Bits(param.type));
      }
    }
    if (OthersTakeGroupMemory()) {
      group_given_ = std::nullopt;
    }
    program_.is_separate = module_.has_separate_buffers;
    program_.is_wide = module_.is_memory64;
    program_.is_complete = !CalleesReachBuffers();
    Walk(f_.body);
    if (is_too_large_) {
      return std::nullopt;
    }
    AddPaths(f_, trace_, &program_);
    SetHopelessApart(BoundabilityCheck(program_, /*knows_words=*/false), &program_.accesses, &program_.by_words);
    SetHopelessApart(BoundabilityCheck(program_, /*knows_words=*/true), &program_.by_words, &program_.others);
    if (trace != nullptr) {
      *trace = std::move(trace_);
    }
    return std::move(program_);
  }

 private:
  struct Open {
    OpId owner;
    size_t first_fact = 0;  // Index of the first fact that was added inside.
    uint32_t loop = kNoLoop;
    std::vector<uint32_t> carried{};  // Indexed by BoundsLoop::carried: the index of the parameter.
    std::vector<Edge> edges;          // The edges that leave; at most kEdgesMax + 1, which means too many.
  };

  // Returns true for an integer that matters to accesses.
  bool IsRelevant(ValueId value) const {
    return ir::IsInt(f_.type_of(value)) && (relevant_ == nullptr || relevant_->IsRelevant(value));
  }
  // Returns true if the value depends on a value that exceeded the limit of atoms. All such values share one atom but
  // are unrelated, so the analysis does not compute with them.
  bool IsUnboundable(const Polynomial& polynomial) const {
    return lost_.valid() && std::ranges::any_of(polynomial, [&](const ir::Term& term) {
             return std::ranges::find(term.atoms, lost_) != term.atoms.end();
           });
  }
  Polynomial Lost() const { return ir::AtomPolynomial(lost_); }

  // Atoms and polynomials.
  AtomId NewAtom(Atom atom, uint32_t loop) {
    if (program_.atoms.size() >= kBoundsAtomsMax) {
      is_too_large_ = relevant_ == nullptr;
      return relevant_ == nullptr ? AtomId(0u) : lost_;
    }
    program_.atoms.push_back(std::move(atom));
    atom_loop_.push_back(loop);
    return AtomId(program_.atoms.size() - 1);
  }
  Polynomial Fresh(const ir::Interval& range, uint8_t bits = 64) {
    Atom atom;
    atom.kind = Atom::Kind::kRange;
    atom.bits = bits;
    atom.range = range;
    return ir::AtomPolynomial(NewAtom(std::move(atom), CurrentLoop()));
  }
  Polynomial Leaf(Atom::Kind kind, uint32_t index, uint8_t bits) {
    const auto [at, is_new] = leaves_.try_emplace({kind, index}, AtomId());
    if (is_new) {
      Atom atom;
      atom.kind = kind;
      atom.bits = bits;
      atom.index = index;
      at->second = NewAtom(std::move(atom), kNoLoop);
    }
    return ir::AtomPolynomial(at->second);
  }
  Polynomial OperationAtom(Opcode code, uint8_t bits, std::vector<Polynomial> operands) {
    Atom atom;
    atom.kind = Atom::Kind::kOperation;
    atom.bits = bits;
    atom.code = code;
    uint32_t loop = kNoLoop;
    for (const Polynomial& operand : operands) {
      const uint32_t inner = LoopOf(operand);
      loop = loop == kNoLoop || (inner != kNoLoop && inner > loop) ? inner : loop;
    }
    atom.operands = std::move(operands);
    for (const auto& [known, id] : operations_) {
      if (SameAtom(known, atom)) {
        return ir::AtomPolynomial(id);
      }
    }
    const AtomId id = NewAtom(atom, loop);
    operations_.emplace_back(std::move(atom), id);
    return ir::AtomPolynomial(id);
  }
  Polynomial EitherAtom(std::vector<Polynomial> operands, std::vector<std::vector<uint32_t>> contexts) {
    Atom atom;
    atom.kind = Atom::Kind::kEither;
    atom.operands = std::move(operands);
    atom.contexts = std::move(contexts);
    return ir::AtomPolynomial(NewAtom(std::move(atom), CurrentLoop()));
  }
  // Loops are numbered in order of their start and nest properly, so of two loops that are open or have ended here the
  // later one changes more often.
  uint32_t LoopOf(const Polynomial& polynomial) const {
    uint32_t inner = kNoLoop;
    for (const ir::Term& term : polynomial) {
      for (AtomId atom : term.atoms) {
        const uint32_t loop = atom_loop_[atom.index];
        inner = inner == kNoLoop || (loop != kNoLoop && loop > inner) ? loop : inner;
      }
    }
    return inner;
  }
  // Returns true if no value in the polynomial changes while the loop runs.
  bool IsInvariant(const Polynomial& polynomial, uint32_t loop) const {
    const uint32_t inner = LoopOf(polynomial);
    return inner == kNoLoop || inner < loop;
  }
  uint32_t CurrentLoop() const {
    for (size_t i = open_.size(); i-- > 0;) {
      if (open_[i].loop != kNoLoop) {
        return open_[i].loop;
      }
    }
    return kNoLoop;
  }

  const Polynomial& Of(ValueId value) {
    std::optional<Polynomial>& known = known_[value.index];
    if (!known) {
      known = Fresh(UnsignedRange(Bits(f_.type_of(value))));  // Not an integer, or not modelled.
    }
    return *known;
  }
  const Polynomial& Operand(const Op& op, uint32_t index) { return Of(f_.operands_of(op)[index]); }
  bool ConstantOf(ValueId value, int64_t* constant) {
    if (!known_[value.index]) {
      return false;
    }
    const Polynomial& polynomial = *known_[value.index];
    if (polynomial.empty()) {
      *constant = 0;
      return true;
    }
    *constant = polynomial[0].factor;
    return polynomial.size() == 1 && polynomial[0].atoms.empty();
  }
  Polynomial Compute(const Op& op) {
    switch (ir::Info(op.code).family) {
      case ir::Family::kConst: {
        const int64_t value =
            op.type == ir::Type::kI32 ? int64_t{static_cast<int32_t>(op.imm)} : static_cast<int64_t>(op.imm);
        const bool is_small = value > -(int64_t{1} << 62) && value < (int64_t{1} << 62);
        return is_small ? ir::ConstantPolynomial(value) : Fresh(UnsignedRange(Bits(op.type)));
      }
      case ir::Family::kIntUnary:
      case ir::Family::kIntBinary:
        return Arithmetic(op);
      case ir::Family::kConvert:
        return ir::IsInt(op.type) ? Arithmetic(op) : Fresh(RangeOf(op));
      case ir::Family::kQuery:
        return Query(op);
      case ir::Family::kSelect:
        return SelectOf(op);
      default:
        return IsWord(op) ? Word(op) : Fresh(RangeOf(op));
    }
  }
  // Returns true for a load of a word that is constant while the kernel runs, at an offset that is certainly a
  // multiple of 4.
  bool IsWord(const Op& op) {
    const bool is_whole = op.width == 4 && (op.type == ir::Type::kI32 || (op.type == ir::Type::kI64 && op.sign));
    return op.code == Opcode::kLoad && is_whole && op.space == ir::Space::kParam && op.imm % 4 == 0 &&
           !module_.params[op.space_index].is_writable && !IsUnboundable(Operand(op, 0)) &&
           ZerosBelow(Operand(op, 0)) >= 2;
  }
  // Makes a new atom for each load, because loads may find different words.
  Polynomial Word(const Op& op) {
    Atom atom;
    atom.kind = Atom::Kind::kWord;
    atom.bits = Bits(op.type);
    atom.index = op.space_index;
    return ir::AtomPolynomial(NewAtom(std::move(atom), CurrentLoop()));
  }
  Polynomial Arithmetic(const Op& op) {
    const uint8_t bits = Bits(op.type);
    const Polynomial a = Operand(op, 0);
    const Polynomial b = op.operand_count > 1 ? Operand(op, 1) : Polynomial();
    if (IsUnboundable(a) || IsUnboundable(b)) {
      return Lost();
    }
    Polynomial result;
    int64_t count = 0;
    switch (op.code) {
      case Opcode::kAdd:
        return ir::Add(a, b, 1, &result) ? FoldIds(std::move(result)) : Fresh(RangeOf(op));
      case Opcode::kSub:
        return ir::Add(a, b, -1, &result) ? result : Fresh(RangeOf(op));
      case Opcode::kMul:
        return ir::Multiply(a, b, &result) ? result : Fresh(RangeOf(op));
      case Opcode::kShl: {
        const bool is_power = ConstantOf(f_.operands_of(op)[1], &count);
        count = ((count % bits) + bits) % bits;
        if (!is_power) {
          return OperationAtom(op.code, bits, {a, b});
        }
        const bool fits = count < 62 && ir::Multiply(a, ir::ConstantPolynomial(int64_t{1} << count), &result);
        return fits ? result : Fresh(RangeOf(op));
      }
      case Opcode::kWrap:
        return a;
      case Opcode::kAnd:
      case Opcode::kOr:
      case Opcode::kXor:
        return Bitwise(op, a, b);
      case Opcode::kShrS:
      case Opcode::kShrU:
      case Opcode::kDivS:
      case Opcode::kDivU:
      case Opcode::kRemS:
      case Opcode::kRemU:
        return OperationAtom(op.code, bits, {a, b});
      case Opcode::kExtendS:
      case Opcode::kExtendU:
      case Opcode::kExtend8:
      case Opcode::kExtend16:
      case Opcode::kExtend32:
        return OperationAtom(op.code, bits, {a});
      default:
        return Fresh(RangeOf(op));
    }
  }
  // Replaces the group's first id plus the local id by the instance's id; this holds in any ring.
  Polynomial FoldIds(Polynomial sum) {
    for (uint32_t d = 0; d < 3; ++d) {
      const auto local = leaves_.find({Atom::Kind::kLocalId, d}), group = leaves_.find({Atom::Kind::kGroupId, d});
      const auto size = leaves_.find({Atom::Kind::kGroupSize, d});
      if (local == leaves_.end() || group == leaves_.end() || size == leaves_.end()) {
        continue;
      }
      const auto [low, high] = std::minmax(group->second, size->second);
      const auto factor_of = [&](const std::vector<AtomId>& atoms) {
        const auto term = std::ranges::find_if(sum, [&](const ir::Term& t) { return t.atoms == atoms; });
        return term == sum.end() ? 0 : term->factor;
      };
      const int64_t factor = factor_of({local->second});
      if (factor == 0 || factor != factor_of({low, high})) {
        continue;
      }
      const Polynomial begin = {{1, {low, high}}}, place = {{1, {local->second}}};
      const Polynomial id = Leaf(Atom::Kind::kInstanceId, d, 64);
      Polynomial rest, folded;
      if (ir::Add(sum, begin, -factor, &rest) && ir::Add(rest, place, -factor, &folded) &&
          ir::Add(folded, id, factor, &rest)) {
        sum = std::move(rest);
      }
    }
    return sum;
  }
  // Recognises sums and multiples in disguise: LLVM writes -1 - x as an exclusive or, and additions to aligned values
  // as `or`.
  Polynomial Bitwise(const Op& op, const Polynomial& a, const Polynomial& b) {
    const uint8_t bits = Bits(op.type);
    for (uint32_t side = 0; side < 2; ++side) {
      const Polynomial& value = side == 0 ? a : b;
      int64_t constant = 0;
      Polynomial result;
      if (!ConstantOf(f_.operands_of(op)[1 - side], &constant)) {
        continue;
      }
      if (bits == 32) {
        constant = static_cast<int32_t>(constant);
      }
      const int64_t aligned = int64_t{1} << ZerosBelow(value);  // The value is a multiple of this.
      if (op.code == Opcode::kXor && constant == -1) {
        return ir::Add(ir::ConstantPolynomial(-1), value, -1, &result) ? result : Fresh(RangeOf(op));
      }
      if (op.code != Opcode::kAnd && constant >= 0 && constant < aligned &&
          ir::Add(value, ir::ConstantPolynomial(constant), 1, &result)) {
        return result;
      }
      if (op.code == Opcode::kAnd && constant >= 0 && constant < aligned) {
        return Polynomial();
      }
      if (op.code == Opcode::kAnd && constant < 0 && (-constant & (-constant - 1)) == 0 && -constant <= aligned) {
        return value;
      }
    }
    Polynomial result;
    for (const auto& [value, mask] : {std::pair(a, b), std::pair(b, a)}) {
      // x & ~m = x - (x & m); the subtraction never borrows, so the identity holds for all x and m.
      if (op.code == Opcode::kAnd && IsComplement(mask) && ir::Add(ir::ConstantPolynomial(-1), mask, -1, &result) &&
          ir::Add(value, OperationAtom(op.code, bits, {value, result}), -1, &result)) {
        return result;
      }
    }
    return OperationAtom(op.code, bits, {a, b});
  }
  // Returns true for -1 - m, where all atoms of m have positive factors.
  static bool IsComplement(const Polynomial& mask) {
    bool has_atoms = false;
    for (const ir::Term& term : mask) {
      has_atoms |= !term.atoms.empty();
      if (!term.atoms.empty() && term.factor > 0) {
        return false;
      }
    }
    return has_atoms;
  }
  Polynomial Query(const Op& op) {
    const uint8_t bits = Bits(f_.type_of(op.first_result));
    int64_t which = 0;
    const bool is_known = ConstantOf(f_.operands_of(op)[0], &which) && which >= 0;
    if (op.code == Opcode::kBufferSize) {
      const bool is_buffer =
          is_known && which < static_cast<int64_t>(module_.params.size()) && module_.params[which].is_buffer;
      return is_buffer ? Leaf(Atom::Kind::kBufferBytes, static_cast<uint32_t>(which), bits)
                       : Fresh(UnsignedRange(bits));
    }
    if (!is_known || which > 2) {
      return Fresh(UnsignedRange(bits));
    }
    const auto dimension = static_cast<uint32_t>(which);
    switch (op.code) {
      case Opcode::kInstanceId:
        return Leaf(Atom::Kind::kInstanceId, dimension, bits);
      case Opcode::kGroupId:
        return Leaf(Atom::Kind::kGroupId, dimension, bits);
      case Opcode::kLocalId:
        return Leaf(Atom::Kind::kLocalId, dimension, bits);
      case Opcode::kInstanceCount:
        return Leaf(Atom::Kind::kInstanceCount, dimension, bits);
      default:
        return Leaf(Atom::Kind::kGroupSize, dimension, bits);
    }
  }
  Polynomial SelectOf(const Op& op) {
    std::vector<std::vector<uint32_t>> contexts;
    for (bool holds : {true, false}) {
      const size_t first = facts_.size();
      Assume(f_.operands_of(op)[0], holds);
      contexts.push_back(Context(first));
      facts_.resize(first);
    }
    const Polynomial a = Operand(op, 1), b = Operand(op, 2);
    if (IsUnboundable(a) || IsUnboundable(b)) {
      return Lost();
    }
    return SameTerms(a, b) ? a : EitherAtom({a, b}, std::move(contexts));
  }
  // Returns the range of all values that the result can have.
  ir::Interval RangeOf(const Op& op) const {
    const int bits = Bits(f_.type_of(op.first_result));
    switch (op.code) {
      case Opcode::kLoad:
      case Opcode::kAtomicLoad:
        if (op.width < ir::Bytes(op.type)) {
          const ir::Wide half = ir::Wide{1} << (8 * op.width - 1);
          return op.sign ? ir::Interval{-half, half - 1} : UnsignedRange(8 * op.width);
        }
        return UnsignedRange(bits);
      case Opcode::kClz:
      case Opcode::kCtz:
      case Opcode::kPopcnt:
        return {0, bits};
      default: {
        const ir::Family family = ir::Info(op.code).family;
        const bool is_truth = family == ir::Family::kIntCompare || family == ir::Family::kFloatCompare;
        return is_truth ? ir::Interval{0, 1} : UnsignedRange(bits);
      }
    }
  }

  // Control.
  void Walk(RegionId region) {
    const size_t first_fact = facts_.size();
    for (OpId id : f_.region(region).ops) {
      if (is_too_large_) {
        break;
      }
      Visit(id, f_.op(id));
    }
    facts_.resize(std::min(facts_.size(), first_fact));
  }
  void Visit(OpId id, const Op& op) {
    if (relevant_ != nullptr && relevant_->IsQuiet(id)) {
      return;  // `Of` creates fresh atoms for its results on demand.
    }
    switch (op.code) {
      case Opcode::kBlock:
      case Opcode::kLoop:
        return EnterBlock(id, op);
      case Opcode::kIf:
        return If(id, op);
      case Opcode::kBr:
      case Opcode::kContinue:
      case Opcode::kBrTable:
        for (const ir::Target& target : f_.targets_of(op)) {
          Jump(op, target);
        }
        return;
      case Opcode::kReturn:
      case Opcode::kTrap:
        return;
      default:
        break;
    }
    Access(id, op);
    if (op.code == Opcode::kLocalAlloc) {
      known_[op.first_result.index] = LocalAlloc(op);
      return;
    }
    if (op.result_count == 1 && IsRelevant(op.first_result)) {
      known_[op.first_result.index] = Compute(op);
    }
  }
  // Returns kNoLoop when no atom is left for the loop's trip: then all values that change in the loop are unknown.
  uint32_t AddLoop(OpId id) {
    const auto index = static_cast<uint32_t>(program_.loops.size());
    Atom trip;
    trip.kind = Atom::Kind::kTrip;
    trip.bits = 64;
    trip.index = index;
    ir::BoundsLoop loop;
    loop.trip = NewAtom(std::move(trip), index);
    if (lost_.valid() && loop.trip == lost_) {
      return kNoLoop;
    }
    loop.context = Context();
    trace_.loops.emplace(id.index, index);
    program_.loops.push_back(std::move(loop));
    return index;
  }
  void EnterBlock(OpId id, const Op& op) {
    Open open;
    open.owner = id;
    open.first_fact = facts_.size();
    if (op.code == Opcode::kLoop) {
      open.loop = AddLoop(id);
      open_.push_back(std::move(open));
      LoopParams(id, op, open_.back());
    } else {
      const ir::Region& body = f_.region(op.body);
      for (uint32_t i = 0; i < body.param_count; ++i) {
        if (IsRelevant(ValueId(body.first_param.index + i))) {
          known_[body.first_param.index + i] = Operand(op, i);
        }
      }
      open_.push_back(std::move(open));
    }
    Walk(op.body);
    Merge(op);
  }
  void If(OpId id, const Op& op) {
    Open open;
    open.owner = id;
    open.first_fact = facts_.size();
    open_.push_back(std::move(open));
    const size_t first = facts_.size();
    const auto enter = [&](bool holds) {
      facts_.resize(first);
      const bool is_exact = Assume(f_.operands_of(op)[0], holds);
      return BoundsTrace::Way{Context(first), is_exact};
    };
    BoundsTrace::Branch branch;
    branch.taken = enter(true);
    Walk(op.body);
    branch.otherwise = enter(false);
    Walk(op.otherwise);
    facts_.resize(first);
    trace_.branches.emplace(id.index, std::move(branch));
    Merge(op);
  }
  void LoopParams(OpId id, const Op& op, Open& open) {
    const uint32_t loop = open.loop;
    const ir::Region& body = f_.region(op.body);
    for (uint32_t i = 0; i < body.param_count; ++i) {
      const ValueId param(body.first_param.index + i);
      if (!IsRelevant(param)) {
        continue;
      }
      if (loop == kNoLoop) {
        known_[param.index] = Lost();
        continue;
      }
      Polynomial grown, value;
      const std::optional<Polynomial> step = CommonStep(id, i, loop);
      const bool is_linear = step && !IsUnboundable(Operand(op, i)) &&
                             ir::Multiply(*step, ir::AtomPolynomial(program_.loops[loop].trip), &grown) &&
                             ir::Add(Operand(op, i), grown, 1, &value);
      known_[param.index] = is_linear         ? value
                            : IsScaled(id, i) ? CarriedAtom(op, i, open)
                                              : Fresh(UnsignedRange(Bits(f_.type_of(param))));
    }
  }
  Polynomial CarriedAtom(const Op& loop, uint32_t index, Open& open) {
    Atom atom;
    atom.kind = Atom::Kind::kCarried;
    atom.bits = Bits(f_.type_of(f_.operands_of(loop)[index]));
    atom.index = open.loop;
    const Polynomial first = Operand(loop, index);
    const AtomId id = NewAtom(std::move(atom), open.loop);
    if (is_too_large_ || (lost_.valid() && id == lost_)) {
      return ir::AtomPolynomial(id);
    }
    open.carried.push_back(index);
    program_.loops[open.loop].carried.push_back({id, first});
    return ir::AtomPolynomial(id);
  }
  // Returns true if each back edge brings the loop's parameter number `index`, multiplied or divided by constants.
  bool IsScaled(OpId id, uint32_t index) {
    const ValueId param(f_.region(f_.op(id).body).first_param.index + index);
    return std::ranges::all_of(edges_back_[id.index], [&](OpId back) {
      const Op& edge = f_.op(back);
      ValueId value = f_.operands_of(edge)[ir::FirstBrought(edge.code) + index];
      for (int depth = 0; depth < kScalesMax && value != param; ++depth) {
        const Op* op = definitions_.OpOf(value);
        if (op == nullptr || !IsScale(*op)) {
          return false;
        }
        value = f_.operands_of(*op)[0];
      }
      return value == param;
    });
  }
  bool IsScale(const Op& op) const {
    switch (op.code) {
      case Opcode::kAdd:
        return f_.operands_of(op)[0] == f_.operands_of(op)[1];
      case Opcode::kMul:
      case Opcode::kShl:
      case Opcode::kShrS:
      case Opcode::kShrU:
      case Opcode::kDivS:
      case Opcode::kDivU:
        return definitions_.OpOf(f_.operands_of(op)[1], Opcode::kConst) != nullptr;
      default:
        return false;
    }
  }
  // Returns the step by which `value` differs from the loop's parameter, if it is the parameter plus a loop invariant.
  std::optional<Polynomial> StepOf(ValueId value, ValueId param, uint32_t loop, int depth = 0) {
    constexpr int kDepthMax = 8;
    if (value == param) {
      return Polynomial();
    }
    const Op* definition = definitions_.OpOf(value);
    if (definition == nullptr || depth > kDepthMax ||
        (definition->code != Opcode::kAdd && definition->code != Opcode::kSub)) {
      return std::nullopt;
    }
    const Op& op = *definition;
    const auto operands = f_.operands_of(op);
    for (uint32_t side = 0; side < (op.code == Opcode::kAdd ? 2u : 1u); ++side) {
      const std::optional<Polynomial> step = StepOf(operands[side], param, loop, depth + 1);
      if (!step) {
        continue;
      }
      // Values computed in the body are not known yet, except constants.
      const ValueId other = operands[1 - side];
      const Op* constant = definitions_.OpOf(other, Opcode::kConst);
      if (!known_[other.index] && constant != nullptr) {
        known_[other.index] = Compute(*constant);
      }
      Polynomial sum;
      if (known_[other.index] && !IsUnboundable(*known_[other.index]) && IsInvariant(*known_[other.index], loop) &&
          ir::Add(*step, *known_[other.index], op.code == Opcode::kAdd ? 1 : -1, &sum)) {
        return sum;
      }
    }
    return std::nullopt;
  }
  // Returns the step of the loop's parameter number `index`, if it is the same on every back edge.
  std::optional<Polynomial> CommonStep(OpId id, uint32_t index, uint32_t loop) {
    const ValueId param(f_.region(f_.op(id).body).first_param.index + index);
    std::optional<Polynomial> common;
    for (OpId back : edges_back_[id.index]) {
      const Op& edge = f_.op(back);
      const ValueId next = f_.operands_of(edge)[ir::FirstBrought(edge.code) + index];
      const std::optional<Polynomial> step = StepOf(next, param, loop);
      if (!step || (common && !SameTerms(*common, *step))) {
        return std::nullopt;
      }
      common = step;
    }
    return common;
  }
  void Jump(const Op& op, const ir::Target& target) {
    Open& open = *std::find_if(open_.rbegin(), open_.rend(), [&](const Open& o) { return o.owner == target.op; });
    if (target.is_continue) {
      return EndLoopEdge(open, op);
    }
    if (open.edges.size() > kEdgesMax) {
      return;
    }
    Edge edge;
    const uint32_t first = ir::FirstBrought(op.code);
    for (uint32_t i = first; i < op.operand_count; ++i) {
      const ValueId result(f_.op(target.op).first_result.index + i - first);
      edge.values.push_back(IsRelevant(result) ? Operand(op, i) : Polynomial());
    }
    edge.facts.assign(facts_.begin() + static_cast<ptrdiff_t>(open.first_fact), facts_.end());
    open.edges.push_back(std::move(edge));
  }
  bool IsSteady(const Constraint& constraint, uint32_t loop) const {
    const AtomId trip = program_.loops[loop].trip;
    const auto stays = [&](AtomId atom) {
      return atom == trip || atom_loop_[atom.index] == kNoLoop || atom_loop_[atom.index] < loop;
    };
    const auto is_steady = [&](const ir::Term& term) { return std::ranges::all_of(term.atoms, stays); };
    return std::ranges::all_of(constraint.less, is_steady) && std::ranges::all_of(constraint.more, is_steady);
  }
  // Records a back edge: the facts since the start of the iteration determine when the loop ends.
  void EndLoopEdge(const Open& open, const Op& edge) {
    if (open.loop == kNoLoop) {
      return;
    }
    ir::LoopEnd end;
    for (const uint32_t param : open.carried) {
      end.next.push_back(Operand(edge, ir::FirstBrought(edge.code) + param));
    }
    const ir::Polynomial trip = ir::AtomPolynomial(program_.loops[open.loop].trip);
    for (size_t i = open.first_fact; i < facts_.size(); ++i) {
      const Fact& fact = facts_[i];
      if (fact.constraint) {
        end.goes_on.push_back(*fact.constraint);
        if (IsSteady(program_.constraints[*fact.constraint], open.loop)) {
          end.steady.push_back(*fact.constraint);
        }
        continue;
      }
      Polynomial rest;
      for (const ir::Term& term : fact.nonzero) {
        if (term.atoms != trip[0].atoms) {
          rest.push_back(term);
        }
      }
      if (rest.size() < fact.nonzero.size() && IsInvariant(rest, open.loop)) {
        end.distances.push_back({fact.nonzero, fact.bits});
      }
    }
    program_.loops[open.loop].ends.push_back(std::move(end));
  }
  // Ends the innermost block, loop or if: its results merge the values of its edges.
  void Merge(const Op& op) {
    const Open open = std::move(open_.back());
    open_.pop_back();
    for (uint32_t i = 0; i < op.result_count; ++i) {
      const ValueId result(op.first_result.index + i);
      if (!IsRelevant(result)) {
        continue;
      }
      if (open.edges.empty() || open.edges.size() > kEdgesMax) {
        known_[result.index] = Fresh(UnsignedRange(Bits(f_.type_of(result))));
        continue;
      }
      std::vector<Polynomial> values;
      std::vector<std::vector<uint32_t>> contexts;
      bool is_same = true, is_lost = false;
      for (const Edge& edge : open.edges) {
        values.push_back(edge.values[i]);
        contexts.emplace_back();
        for (const Fact& fact : edge.facts) {
          if (fact.constraint) {
            contexts.back().push_back(*fact.constraint);
          }
        }
        is_same &= SameTerms(values[0], edge.values[i]);
        is_lost |= IsUnboundable(edge.values[i]);
      }
      known_[result.index] = is_lost   ? Lost()
                             : is_same ? values[0]
                                       : EitherAtom(std::move(values), std::move(contexts));
    }
    if (open.edges.size() == 1) {  // Only one edge leads here, so its facts still hold.
      facts_.insert(facts_.end(), open.edges[0].facts.begin(), open.edges[0].facts.end());
    }
  }

  // Conditions.
  //
  // Adds the facts that follow from the condition being nonzero (or zero, if not `holds`). Returns true if the added
  // constraints are equivalent to that.
  bool Assume(ValueId condition, bool holds, int depth = 0) {
    constexpr int kDepthMax = 16;
    if (!ir::IsInt(f_.type_of(condition)) || depth > kDepthMax) {
      return false;
    }
    const Op none{.code = Opcode::kConst};
    const Op* definition = definitions_.OpOf(condition);
    const Op& op = definition != nullptr ? *definition : none;
    const auto operands = f_.operands_of(op);
    const auto is_truth = [&](ValueId value) {
      const Op* by = definitions_.OpOf(value);
      return by != nullptr && ir::Info(by->code).family == ir::Family::kIntCompare;
    };
    const auto less = [&](uint32_t a, uint32_t b, bool is_signed, bool or_equal) {
      return holds ? AssumeLess(operands[a], operands[b], is_signed, or_equal, op.type)
                   : AssumeLess(operands[b], operands[a], is_signed, !or_equal, op.type);
    };
    switch (op.code) {
      case Opcode::kEqz:
        return Assume(operands[0], !holds, depth + 1);
      case Opcode::kEq:
        return AssumeEqual(op, holds);
      case Opcode::kNe:
        return AssumeEqual(op, !holds);
      case Opcode::kLtS:
        return less(0, 1, true, false);
      case Opcode::kLtU:
        return less(0, 1, false, false);
      case Opcode::kGtS:
        return less(1, 0, true, false);
      case Opcode::kGtU:
        return less(1, 0, false, false);
      case Opcode::kLeS:
        return less(0, 1, true, true);
      case Opcode::kLeU:
        return less(0, 1, false, true);
      case Opcode::kGeS:
        return less(1, 0, true, true);
      case Opcode::kGeU:
        return less(1, 0, false, true);
      case Opcode::kAnd:
      case Opcode::kOr:
        if (holds == (op.code == Opcode::kAnd) && is_truth(operands[0]) && is_truth(operands[1])) {
          const bool is_exact = Assume(operands[0], holds, depth + 1);
          return Assume(operands[1], holds, depth + 1) && is_exact;
        }
        break;
      default:
        break;
    }
    const uint8_t bits = Bits(f_.type_of(condition));
    return holds ? AssumeNonzero(Of(condition), bits)
                 : AddConstraint({false, true, bits, Of(condition), ir::ConstantPolynomial(0)});
  }
  // Returns false when the constraint is dropped: constraints only add precision, but a dropped one cannot be exact.
  bool AddConstraint(Constraint constraint) {
    if (program_.constraints.size() >= kBoundsConstraintsMax) {
      is_too_large_ = relevant_ == nullptr;
      return false;
    }
    if (IsUnboundable(constraint.less) || IsUnboundable(constraint.more)) {
      return false;
    }
    Fact fact;
    fact.constraint = static_cast<uint32_t>(program_.constraints.size());
    program_.constraints.push_back(std::move(constraint));
    facts_.push_back(std::move(fact));
    return true;
  }
  bool AssumeLess(ValueId less, ValueId more, bool is_signed, bool or_equal, ir::Type type) {
    return AddConstraint({is_signed, or_equal, Bits(type), Of(less), Of(more)});
  }
  bool AssumeNonzero(Polynomial polynomial, uint8_t bits) {
    if (IsUnboundable(polynomial)) {
      return false;
    }
    // As a constraint the fact identifies code that a launch never reaches, such as the remainder of an unrolled loop.
    const bool is_kept = AddConstraint({false, true, bits, ir::ConstantPolynomial(1), polynomial});
    Fact fact;
    fact.nonzero = std::move(polynomial);
    fact.bits = bits;
    facts_.push_back(std::move(fact));
    return is_kept;
  }
  bool AssumeEqual(const Op& op, bool equal) {
    const auto operands = f_.operands_of(op);
    if (equal) {
      const bool is_kept = AssumeLess(operands[0], operands[1], false, true, op.type);
      return AssumeLess(operands[1], operands[0], false, true, op.type) && is_kept;
    }
    const Polynomial a = Of(operands[0]), b = Of(operands[1]);
    Polynomial difference, negated;
    if (IsUnboundable(a) || IsUnboundable(b) || !ir::Add(b, a, -1, &difference) || !ir::Add(a, b, -1, &negated)) {
      return false;
    }
    // Only the difference that is nonnegative at a launch excludes an end of a range.
    const bool is_kept = AddConstraint({false, true, Bits(op.type), ir::ConstantPolynomial(1), std::move(negated)});
    return AssumeNonzero(std::move(difference), Bits(op.type)) && is_kept;
  }
  std::vector<uint32_t> Context(size_t first_fact = 0) const {
    std::vector<uint32_t> context;
    for (size_t i = first_fact; i < facts_.size(); ++i) {
      if (facts_[i].constraint) {
        context.push_back(*facts_[i].constraint);
      }
    }
    return context;
  }

  // Returns true if a call may allocate group memory between two operations of the entry.
  bool OthersTakeGroupMemory() const {
    bool found = false;
    for (const ir::Function& function : module_.functions) {
      if (&function != &f_) {
        ir::ForEachOp(function, [&](OpId id) { found = found || function.op(id).code == Opcode::kLocalAlloc; });
      }
    }
    return found;
  }
  // Returns true if functions that the entry calls, or could call through a reference, access buffers.
  bool CalleesReachBuffers() const {
    std::vector<bool> is_seen(module_.functions.size());
    std::vector<uint32_t> open;
    const auto reach = [&](uint32_t function) {
      if (!is_seen[function]) {
        is_seen[function] = true;
        open.push_back(function);
      }
    };
    bool found = false;
    const auto look = [&](const ir::Function& function, bool is_entry) {
      ir::ForEachOp(function, [&](OpId id) {
        const Op& op = function.op(id);
        found = found || (!is_entry && analysis::MayReachBuffers(op));
        if (op.code == Opcode::kCall) {
          reach(static_cast<uint32_t>(op.imm));
        } else if (op.code == Opcode::kCallRef) {
          found = found || module_.is_linked;
          for (const ir::Reference& reference : module_.references) {
            reach(reference.function.index);
          }
        }
      });
    };
    look(f_, true);
    while (!open.empty() && !found) {
      const uint32_t function = open.back();
      open.pop_back();
      look(module_.functions[function], false);
    }
    return found;
  }
  // Returns the address: the start of group memory plus the bytes allocated before, which are known as long as every
  // instance has made the same requests: in straight-line code of the body.
  Polynomial LocalAlloc(const Op& op) {
    constexpr int64_t kAlign = 16;
    int64_t bytes = 0;
    const bool is_known = ConstantOf(f_.operands_of(op)[0], &bytes) && bytes >= 0 && bytes <= kGroupBytesMax;
    if (!is_known || !open_.empty() || !group_given_ || *group_given_ > kGroupBytesMax) {
      group_given_ = std::nullopt;
      return Fresh(UnsignedRange(Bits(f_.type_of(op.first_result))));
    }
    if (!group_base_) {
      group_base_ = Fresh(UnsignedRange(Bits(f_.type_of(op.first_result))));
    }
    if (IsUnboundable(*group_base_)) {
      group_given_ = std::nullopt;
      return Lost();
    }
    Polynomial address;
    ir::Add(*group_base_, ir::ConstantPolynomial(*group_given_), 1, &address);
    *group_given_ += (bytes + kAlign - 1) / kAlign * kAlign;
    return address;
  }
  // Finds the access's offset from the start of its buffer or of group memory; returns false when it is unknown.
  bool FindOffset(const Op& op, ir::BoundsAccess* access) {
    if (op.space == ir::Space::kParam) {
      access->param = op.space_index;
      access->offset = Operand(op, 0);
      return true;
    }
    if (op.space != ir::Space::kGroup || !group_given_ || !group_base_) {
      return false;
    }
    access->param = ir::BoundsAccess::kGroupMemory;
    access->group_bytes = static_cast<uint64_t>(*group_given_);
    if (IsUnboundable(Operand(op, 0))) {
      access->offset = Lost();
      return true;
    }
    return ir::Add(Operand(op, 0), *group_base_, -1, &access->offset);
  }
  void Access(OpId id, const Op& op) {
    ir::BoundsAccess access;
    if (!ir::HasSpace(op.code) || program_.accesses.size() >= kBoundsAccessesMax || op.imm > (uint64_t{1} << 62) ||
        !FindOffset(op, &access)) {
      // If buffers are separate, accesses to group memory cannot reach them.
      program_.is_complete &= !analysis::MayReachBuffers(op) || (op.space == ir::Space::kGroup && program_.is_separate);
      return;
    }
    access.op = id;
    access.reach = op.imm + op.width;
    access.width = op.width;
    access.is_store = (ir::Info(op.code).effects & ir::kWrites) != 0;
    access.is_load = (ir::Info(op.code).effects & ir::kReads) != 0;
    access.context = Context();
    program_.accesses.push_back(std::move(access));
  }

  const ir::Module& module_;
  const ir::Function& f_;
  const analysis::RelevantValues* const relevant_;
  ir::BoundsProgram program_;
  AtomId lost_;  // Invalid if all values are analysed.
  BoundsTrace trace_;
  std::vector<std::optional<Polynomial>> known_;  // Indexed by ValueId.
  const analysis::Definitions definitions_;
  std::vector<uint32_t> atom_loop_;  // Indexed by AtomId: the innermost loop in which it changes.
  std::map<std::pair<Atom::Kind, uint32_t>, AtomId> leaves_;
  std::vector<std::pair<Atom, AtomId>> operations_;
  std::vector<Fact> facts_;
  std::vector<Open> open_;
  std::unordered_map<uint32_t, std::vector<OpId>> edges_back_;  // Keyed by loop's OpId: the jumps that continue it.
  std::optional<Polynomial> group_base_;                        // The address of group memory.
  std::optional<int64_t> group_given_ = 0;  // Bytes of group memory allocated so far; nothing when unknown.
  bool is_too_large_ = false;
};

}  // namespace

ir::BoundsProgram FindBounds(const ir::Module& module, BoundsTrace* trace) {
  if (std::optional<ir::BoundsProgram> program = Finder(module).Run(trace)) {
    return *std::move(program);
  }
  const analysis::RelevantValues relevant(module.function(module.entry));
  return *Finder(module, &relevant).Run(trace);
}

}  // namespace hpvm::pass
