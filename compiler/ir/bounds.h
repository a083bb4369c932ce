// SPDX-License-Identifier: Apache-2.0
// Proof at launch that a kernel's accesses stay inside their buffers.
//
// The compiler (compiler/pass/find_bounds.h) writes down, for every access that it understands, the offset as a
// polynomial over *atoms*: the instance's id, scalars, sizes, how often a loop has run, and what it does not
// understand. A launch knows the scalars, sizes and extents, so intervals of the atoms follow, and from them the
// interval of every offset. ProveBounds says whether all of them fit; the device then runs code without checks.
//
// Integers. A polynomial stands for a value of the kernel modulo 2^bits: sums, differences and products are exact in
// the ring, so nothing need be known of wrapping for them. Where the value's canonical form matters (comparisons,
// shifts, divisions, extensions) its interval must show that it is canonical, else nothing is concluded. The final
// question is whether the interval lies in [0, bytes): then the offset, taken modulo 2^bits, does too.
//
// Powers of two. A loop's parameter that is doubled or halved is bounded by induction (BoundsProver::FindCarried),
// which also tells that it stays a power of two. Of such an s, x & (s - 1) leaves a multiple of s, so that both halves
// of a butterfly, x + (x - (x & (s - 1))) and that + s, are bounded.
//
// Indices. An offset that rests on words from memory (`x[columns[k]]`) is bounded once somebody knows the least and the
// greatest word of the buffer that they come from. ProveByWords asks for those, too. The caller that brings them must
// be sure that nobody writes to the buffer between looking at the words and the kernel's end.
//
// This guards memory safety: compiler/pass/find_bounds_test.cc compares it with brute force.
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
  std::vector<AtomId> atoms;  // Sorted; a repeated one is a power; none: the constant term.
};
// Sorted by atoms, no two alike, no factor 0.
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
    kTrip,         // `index` is the loop: iterations before this one.
    kWord,         // A word of buffer `index`, whichever: 32 bits at a multiple of 4, with its sign, in `bits`.
    kRange,        // Anything in `range`.
    kOperation,    // `code` of `operands`.
    kEither,       // One of `operands`.
    kCarried,      // The value of one of loop `index`'s BoundsLoop::carried; canonical, without a sign.
  };
  Kind kind = Kind::kRange;
  uint8_t bits = 32;  // 32 or 64: of the value; kOperation: of the operands.
  Opcode code = Opcode::kConst;
  uint32_t index = 0;
  Interval range{};
  std::vector<Polynomial> operands{};
  std::vector<std::vector<uint32_t>> contexts{};  // kEither: constraints that hold where the operand is taken.
};

// What a branch that was taken says of two values: less < more, or less <= more.
struct Constraint {
  bool is_signed = false;
  bool or_equal = false;
  uint8_t bits = 32;
  Polynomial less, more;
};

// Why a loop ends: on an edge back to its beginning all of `goes_on` hold, and no distance is 0.
struct Distance {
  Polynomial polynomial;  // But for the loop's trip, of atoms that stay while the loop runs.
  uint8_t bits = 32;      // Modulo 2^bits.
};
struct LoopEnd {
  std::vector<uint32_t> goes_on;  // In BoundsProgram::constraints.
  std::vector<Distance> distances;
  // Those of `goes_on` of whose atoms none but the loop's trip changes while it runs.
  std::vector<uint32_t> steady{};
  // One a BoundsLoop::carried: what the edge brings to the next iteration, modulo the atom's 2^bits.
  std::vector<Polynomial> next{};
};
// A parameter of a loop that each edge back multiplies or divides: known by induction.
struct Carried {
  AtomId atom;       // A kCarried.
  Polynomial first;  // In the first iteration, modulo the atom's 2^bits.
};
struct BoundsLoop {
  AtomId trip;
  std::vector<uint32_t> context;  // Constraints that hold where the loop begins.
  std::vector<LoopEnd> ends;      // One an edge back.
  // Exactly when these hold, an iteration is followed by another; nothing is known of it unless `is_exact`.
  std::vector<uint32_t> goes_on_when{};
  bool is_exact = false;
  std::vector<Carried> carried{};
};

struct BoundsAccess {
  // As `param`: group memory, of which `group_bytes` have been given out; `offset` counts from its beginning.
  static constexpr uint32_t kGroupMemory = 0xffffffffu;

  OpId op{};
  uint32_t param = 0;
  uint64_t reach = 0;  // Bytes from the offset to the end of the access: the immediate and the width.
  bool is_store = false;
  Polynomial offset;
  std::vector<uint32_t> context;
  uint64_t group_bytes = 0;
  // For FindAccesses.
  uint8_t width = 0;       // Bytes; those before are the immediate.
  bool is_load = false;    // Atomic operations load and store.
  bool reads_own = false;  // Only what the same instance has stored before, whatever its data.
  // Exactly when these hold, in an iteration of all of `loops` (outermost first), does the access happen, if nothing
  // traps; nothing is known of it unless `is_certain`.
  std::vector<uint32_t> happens_when{};
  std::vector<uint32_t> loops{};
  bool is_certain = false;
};

struct BoundsProgram {
  std::vector<Atom> atoms;  // Operands name earlier ones only.
  std::vector<Constraint> constraints;
  std::vector<BoundsLoop> loops;  // Outer before inner; kTrip's index.
  std::vector<BoundsAccess> accesses;
  // Accesses that are bounded once the words are known that their offsets rest on.
  std::vector<BoundsAccess> by_words{};
  // Accesses that no launch can bound, or not for every one of its instances: they are not proven, but FindAccesses
  // asks what they may touch.
  std::vector<BoundsAccess> others;
  bool is_complete = false;  // Every access to a buffer is in one of the three.
  bool is_separate = false;  // Module::has_separate_buffers: what leaves a buffer lands in no other one.
  bool is_wide = false;      // Offsets are values modulo 2^64, not 2^32.
};

// The least and the greatest of some words, as signed integers; not known, or of no words, where lo > hi.
struct WordRange {
  int32_t lo = 0, hi = -1;
  bool is_known() const { return lo <= hi; }
  friend bool operator==(const WordRange&, const WordRange&) = default;
};

struct BoundsFacts {
  std::array<uint64_t, 3> extent{1, 1, 1}, group{1, 1, 1};
  struct Param {
    bool is_buffer = true, is_writable = true;
    uint64_t value = 0;  // Buffers: bytes; scalars: the bits.
    uint8_t bits = 32;   // Scalars.
    // Buffers that are not writable: of the words at multiples of 4, and of no others.
    WordRange words{};
  };
  std::vector<Param> params;  // One a kernel parameter.
};

// Whether no access of the program can leave its buffer, nor store into one that must not be written, in any instance.
// `failed`, if not null, receives the first access that may. Takes time linear in the program's size, a few passes, and
// gives up after a fixed number of steps.
bool ProveBounds(const BoundsProgram& program, const BoundsFacts& facts, uint32_t* failed = nullptr);
// The same of the accesses `by_words`, too, of which there must be some.
bool ProveByWords(const BoundsProgram& program, const BoundsFacts& facts);
// True, by parameter, where ProveByWords asks for the buffer's words; as long as the last of them needs.
std::vector<bool> FindWordParams(const BoundsProgram& program);

// What ProveBounds finds of one access.
struct BoundsClaim {
  bool is_never = false;  // No instance gets there.
  bool fits = false;      // The access stays inside, and stores only what may be written.
  Interval offset;        // Modulo 2^32, or 2^64 if the program is wide; of accesses that are reached.
};
// One for each of `accesses`, which are of the program, for tests that doubt them (tests/bounds). The extent and the
// group hold at least one instance.
std::vector<BoundsClaim> ClaimBounds(const BoundsProgram& program, std::span<const BoundsAccess> accesses,
                                     const BoundsFacts& facts);

// Sums and products of polynomials; nothing when they grow beyond kTermsMax terms of kDegreeMax atoms or their factors
// beyond 2^62.
inline constexpr size_t kTermsMax = 64;
inline constexpr size_t kDegreeMax = 4;
bool Add(const Polynomial& a, const Polynomial& b, int64_t b_factor, Polynomial* sum);
bool Multiply(const Polynomial& a, const Polynomial& b, Polynomial* product);
Polynomial ConstantPolynomial(int64_t value);
Polynomial AtomPolynomial(AtomId atom);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_BOUNDS_H_
