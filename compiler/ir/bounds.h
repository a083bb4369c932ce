// SPDX-License-Identifier: Apache-2.0
// Proves at launch that a kernel's accesses stay inside their buffers.
//
// The compiler (compiler/pass/find_bounds.h) records, for every access that it understands, the offset as a
// polynomial over *atoms*: the instance's id, scalars, sizes, iteration counts of loops, and opaque values. A launch
// knows the scalars, sizes and extents, which give intervals of the atoms, and these give the interval of every
// offset. ProveBounds returns whether all accesses fit; the device then runs code without checks.
//
// Integers. A polynomial stands for a value of the kernel modulo 2^bits: sums, differences and products are exact in
// the ring, so wrapping does not matter for them. Comparisons, shifts, divisions and extensions depend on the value's
// canonical form: its interval must show that it is canonical; otherwise nothing is concluded. Finally, an access
// fits when its interval lies in [0, bytes): then the offset modulo 2^bits does, too.
//
// Powers of two. A loop parameter that is doubled or halved is bounded by induction (BoundsProver::FindCarried),
// which also shows that it stays a power of two. For such an s, x - (x & (s - 1)) is a multiple of s, which bounds
// both halves of a butterfly, x + (x - (x & (s - 1))) and the same + s.
//
// Indices. An offset that depends on words from memory (`x[columns[k]]`) is bounded when the least and the greatest
// word of the buffer are known. ProveByWords also covers such accesses. The caller that provides the words must
// ensure that nobody writes to the buffer between reading the words and the kernel's end.
//
// Memory safety depends on this code: compiler/pass/find_bounds_test.cc compares it with brute force.
#ifndef HPVMD_COMPILER_IR_BOUNDS_H_
#define HPVMD_COMPILER_IR_BOUNDS_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/ir/interval.h"
#include "compiler/ir/ir.h"

namespace hpvm::ir {

using AtomId = Id<struct AtomTag>;

struct Term {
  int64_t factor = 0;
  std::vector<AtomId> atoms;  // Sorted; a repeated atom is a power; empty for the constant term.
};
// Sorted by atoms, without duplicates and without factors 0.
using Polynomial = std::vector<Term>;

struct Atom {
  enum class Kind : uint8_t {
    kInstanceId,
    kGroupId,
    kLocalId,
    kInstanceCount,
    kGroupSize,  // `index` is the dimension.
    kScalar,
    kBufferBytes,  // `index` is the parameter.
    kTrip,         // `index` is the loop; the number of iterations before the current one.
    kWord,         // Any word of buffer `index`: 32 bits at a multiple of 4, sign-extended to `bits`.
    kRange,        // Any value in `range`.
    kOperation,    // `code` of `operands`.
    kEither,       // Any of `operands`.
    kCarried,      // The value of one of the BoundsLoop::carried of loop `index`; canonical and unsigned.
  };
  Kind kind = Kind::kRange;
  uint8_t bits = 32;  // 32 or 64: width of the value; for kOperation, of the operands.
  Opcode code = Opcode::kConst;
  uint32_t index = 0;
  Interval range{};
  std::vector<Polynomial> operands{};
  std::vector<std::vector<uint32_t>> contexts{};  // For kEither: constraints that hold where the operand is chosen.
};

// The relation between two values that a taken branch implies: less < more, or less <= more.
struct Constraint {
  bool is_signed = false;
  bool or_equal = false;
  uint8_t bits = 32;
  Polynomial less, more;
};

// The conditions under which a loop ends: on an edge back to its beginning all of `goes_on` hold, and no distance is
// 0.
struct Distance {
  Polynomial polynomial;  // Except for the loop's trip, its atoms do not change while the loop runs.
  uint8_t bits = 32;      // Modulo 2^bits.
};
struct LoopEnd {
  std::vector<uint32_t> goes_on;  // Indices in BoundsProgram::constraints.
  std::vector<Distance> distances;
  // The elements of `goes_on` in which no atom but the loop's trip changes while the loop runs.
  std::vector<uint32_t> steady{};
  // One per BoundsLoop::carried: the value that the edge passes to the next iteration, modulo the atom's 2^bits.
  std::vector<Polynomial> next{};
};
// A parameter of a loop that each back edge multiplies or divides; induction bounds it.
struct Carried {
  AtomId atom;       // A kCarried atom.
  Polynomial first;  // The value in the first iteration, modulo the atom's 2^bits.
};
struct BoundsLoop {
  AtomId trip;
  std::vector<uint32_t> context;  // Constraints that hold where the loop begins.
  std::vector<LoopEnd> ends;      // One per back edge.
  // When `is_exact`, an iteration is followed by another exactly when these constraints hold; otherwise nothing is
  // known.
  std::vector<uint32_t> goes_on_when{};
  bool is_exact = false;
  std::vector<Carried> carried{};
};

struct BoundsAccess {
  // Value of `param` for group memory, of which `group_bytes` are allocated; `offset` counts from its beginning.
  static constexpr uint32_t kGroupMemory = 0xffffffffu;

  OpId op{};
  uint32_t param = 0;
  uint64_t reach = 0;  // Bytes from the offset to the end of the access: the immediate plus the width.
  bool is_store = false;
  Polynomial offset;
  std::vector<uint32_t> context;
  uint64_t group_bytes = 0;
  // The following members are for FindAccesses.
  uint8_t width = 0;       // Width in bytes; `reach` - `width` is the immediate.
  bool is_load = false;    // Atomic operations both load and store.
  bool reads_own = false;  // The instance reads only bytes that it has stored before, whatever its data.
  // When `is_certain`, the access happens exactly when these constraints hold, in an iteration of all of `loops`
  // (outermost first), if nothing traps; otherwise nothing is known about when it happens.
  std::vector<uint32_t> happens_when{};
  std::vector<uint32_t> loops{};
  bool is_certain = false;
};

struct BoundsProgram {
  std::vector<Atom> atoms;  // Operands name only earlier atoms.
  std::vector<Constraint> constraints;
  std::vector<BoundsLoop> loops;  // Outer loops precede inner ones; kTrip's index refers to this list.
  std::vector<BoundsAccess> accesses;
  // Accesses that are bounded once the words are known on which their offsets depend.
  std::vector<BoundsAccess> by_words{};
  // Accesses that no launch can bound, or not for all instances: they are not proven, but FindAccesses computes the
  // bytes that they may touch.
  std::vector<BoundsAccess> others;
  bool is_complete = false;  // Every access to a buffer is in one of the three lists.
  bool is_separate = false;  // Module::has_separate_buffers: an access that leaves its buffer reaches no other
                             // buffer.
  bool is_wide = false;      // Offsets are values modulo 2^64, not 2^32.
};

// The least and the greatest of some words, as signed integers; unknown, or without words, when lo > hi.
struct WordRange {
  int32_t lo = 0, hi = -1;
  bool is_known() const { return lo <= hi; }
  friend bool operator==(const WordRange&, const WordRange&) = default;
};

struct BoundsFacts {
  std::array<uint64_t, 3> extent{1, 1, 1}, group{1, 1, 1};
  struct Param {
    bool is_buffer = true, is_writable = true;
    uint64_t value = 0;  // For buffers: size in bytes; for scalars: the bits.
    uint8_t bits = 32;   // For scalars.
    // For read-only buffers: the range of exactly the words at multiples of 4.
    WordRange words{};
  };
  std::vector<Param> params;  // One per kernel parameter.
};

// Returns true when no access of the program, in any instance, can leave its buffer or store into a read-only one.
// `failed`, if not null, receives the first access that may. Takes time linear in the program's size, in a few
// passes, and gives up after a fixed number of steps.
bool ProveBounds(const BoundsProgram& program, const BoundsFacts& facts, uint32_t* failed = nullptr);
// Does the same for `accesses` and `by_words` together; `by_words` must not be empty.
bool ProveByWords(const BoundsProgram& program, const BoundsFacts& facts);
// Returns, indexed by parameter, true when ProveByWords needs the buffer's words; ends with the last such parameter.
std::vector<bool> FindWordParams(const BoundsProgram& program);

// The claims of ProveBounds about one access.
struct BoundsClaim {
  bool is_never = false;  // No instance reaches the access.
  bool fits = false;      // The access stays inside its buffer, and stores only into writable buffers.
  Interval offset;        // For reached accesses: modulo 2^32, or 2^64 when the program is wide.
};
// Returns one claim for each of `accesses`, which belong to the program; for tests that check the claims
// (tests/bounds). The extent and the group hold at least one instance.
std::vector<BoundsClaim> ClaimBounds(const BoundsProgram& program, std::span<const BoundsAccess> accesses,
                                     const BoundsFacts& facts);

// Compute sums and products of polynomials; fail when the result has more than kTermsMax terms, a term more than
// kDegreeMax atoms, or a factor exceeds 2^62.
inline constexpr size_t kTermsMax = 64;
inline constexpr size_t kDegreeMax = 4;
bool Add(const Polynomial& a, const Polynomial& b, int64_t b_factor, Polynomial* sum);
bool Multiply(const Polynomial& a, const Polynomial& b, Polynomial* product);
Polynomial ConstantPolynomial(int64_t value);
Polynomial AtomPolynomial(AtomId atom);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_BOUNDS_H_
