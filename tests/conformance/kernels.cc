// SPDX-License-Identifier: Apache-2.0
// The suite's kernels, in the IR's text form (compiler/ir/text/text.h).
#include <array>
#include <string>

#include "tests/conformance/conformance.h"

namespace hpvm::conformance {
namespace {

struct Kernel {
  std::string_view name;
  std::string_view text;
};

constexpr Kernel kKernels[] = {
    // y[i] = alpha * x[i] + y[i]
    {"saxpy", R"(
module "saxpy"
param buffer inout "y"
param buffer in "x"
param f32 "alpha"
entry f0
func f0 "saxpy" (%y: i32, %x: i32, %alpha: f32) -> () {
  %d: i32 = const.i32 0
  %two: i32 = const.i32 2
  %i: i32 = instance_id.i32 %d
  %offset: i32 = shl.i32 %i, %two
  %ya: i32 = add.i32 %y, %offset
  %xv: f32 = load.f32 param(1) %offset
  %yv: f32 = load.f32 flat %ya
  %ax: f32 = fmul.f32 %alpha, %xv
  %r: f32 = fadd.f32 %ax, %yv
  store.f32 flat %ya, %r
  return ()
}
)"},
    // out[16 * linear + 0..] = id x y z, group id x y z, local id x y z, count x y z, group size x y z, buffer size
    {"ids", R"(
module "ids"
param buffer inout "out"
entry f0
func f0 "ids" (%out: i32) -> () {
  %x: i32 = const.i32 0
  %y: i32 = const.i32 1
  %z: i32 = const.i32 2
  %six: i32 = const.i32 6
  %ix: i32 = instance_id.i32 %x
  %iy: i32 = instance_id.i32 %y
  %iz: i32 = instance_id.i32 %z
  %nx: i32 = instance_count.i32 %x
  %ny: i32 = instance_count.i32 %y
  %nz: i32 = instance_count.i32 %z
  %a: i32 = mul.i32 %iz, %ny
  %b: i32 = add.i32 %a, %iy
  %c: i32 = mul.i32 %b, %nx
  %linear: i32 = add.i32 %c, %ix
  %offset: i32 = shl.i32 %linear, %six
  %at: i32 = add.i32 %out, %offset
  store.i32 flat %at, %ix
  store.i32 flat %at + 4, %iy
  store.i32 flat %at + 8, %iz
  %gx: i32 = group_id.i32 %x
  %gy: i32 = group_id.i32 %y
  %gz: i32 = group_id.i32 %z
  store.i32 flat %at + 12, %gx
  store.i32 flat %at + 16, %gy
  store.i32 flat %at + 20, %gz
  %lx: i32 = local_id.i32 %x
  %ly: i32 = local_id.i32 %y
  %lz: i32 = local_id.i32 %z
  store.i32 flat %at + 24, %lx
  store.i32 flat %at + 28, %ly
  store.i32 flat %at + 32, %lz
  store.i32 flat %at + 36, %nx
  store.i32 flat %at + 40, %ny
  store.i32 flat %at + 44, %nz
  %sx: i32 = group_size.i32 %x
  %sy: i32 = group_size.i32 %y
  %sz: i32 = group_size.i32 %z
  store.i32 flat %at + 48, %sx
  store.i32 flat %at + 52, %sy
  store.i32 flat %at + 56, %sz
  %bytes: i32 = buffer_size.i32 %x
  store.i32 flat %at + 60, %bytes
  return ()
}
)"},
    // out[i] = i * k + c, the scalars i64 and f64 in one kernel
    {"scalars", R"(
module "scalars"
param buffer inout "out"
param i64 "k"
param f64 "c"
param i32 "shift"
entry f0
func f0 "scalars" (%out: i32, %k: i64, %c: f64, %shift: i32) -> () {
  %d: i32 = const.i32 0
  %three: i32 = const.i32 3
  %i: i32 = instance_id.i32 %d
  %offset: i32 = shl.i32 %i, %three
  %at: i32 = add.i32 %out, %offset
  %wide: i64 = extend_u.i32 %i
  %s: i64 = extend_u.i32 %shift
  %p: i64 = mul.i64 %wide, %k
  %q: i64 = shl.i64 %p, %s
  %f: f64 = convert_s.i64 %q
  %r: f64 = fadd.f64 %f, %c
  store.f64 flat %at, %r
  return ()
}
)"},
    // out[group] = sum of the group's x[i], a tree over group memory with a barrier in a loop; groups may be partial
    {"reduce", R"(
module "reduce"
uses barrier
uses group_memory
param buffer inout "out"
param buffer in "x"
entry f0
func f0 "reduce" (%out: i32, %x: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %i: i32 = instance_id.i32 %zero
  %n: i32 = instance_count.i32 %zero
  %g: i32 = group_id.i32 %zero
  %size: i32 = group_size.i32 %zero
  %l: i32 = local_id.i32 %zero
  %bytes: i32 = shl.i32 %size, %two
  %shared: i32 = local_alloc %bytes
  %lo: i32 = shl.i32 %l, %two
  %mine: i32 = add.i32 %shared, %lo
  %io: i32 = shl.i32 %i, %two
  %xa: i32 = add.i32 %x, %io
  %v: i32 = load.i32 flat %xa
  store.i32 group %mine, %v
  barrier
  %start: i32 = mul.i32 %g, %size
  %left: i32 = sub.i32 %n, %start
  %half: i32 = shr_u.i32 %size, %one
  loop rounds (%stride: i32 = %half) {
    %done: i32 = eqz.i32 %stride
    if ends %done {
      br rounds ()
    } else {
      br ends ()
    }
    %other: i32 = add.i32 %l, %stride
    %inside: i32 = lt_u.i32 %other, %left
    %active: i32 = lt_u.i32 %l, %stride
    %both: i32 = and.i32 %inside, %active
    if adds %both {
      %oo: i32 = shl.i32 %other, %two
      %oa: i32 = add.i32 %shared, %oo
      %ov: i32 = load.i32 group %oa
      %mv: i32 = load.i32 group %mine
      %sum: i32 = add.i32 %ov, %mv
      store.i32 group %mine, %sum
      br adds ()
    } else {
      br adds ()
    }
    barrier
    %next: i32 = shr_u.i32 %stride, %one
    continue rounds (%next)
  }
  %first: i32 = eqz.i32 %l
  if writes %first {
    %go: i32 = shl.i32 %g, %two
    %oa2: i32 = add.i32 %out, %go
    %total: i32 = load.i32 group %mine
    store.i32 flat %oa2, %total
    br writes ()
  } else {
    br writes ()
  }
  return ()
}
)"},
    // bins[x[i]] += 1
    {"histogram", R"(
module "histogram"
param buffer inout "bins"
param buffer in "x"
entry f0
func f0 "histogram" (%bins: i32, %x: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %i: i32 = instance_id.i32 %zero
  %xa: i32 = add.i32 %x, %i
  %v: i32 = load.i32 w1 flat %xa
  %o: i32 = shl.i32 %v, %two
  %at: i32 = add.i32 %bins, %o
  %old: i32 = atomic_add.i32 flat %at, %one
  return ()
}
)"},
    // out[i] = how many instances of the group counted before, in group memory without any barrier
    {"group_count", R"(
module "group_count"
uses group_memory
param buffer inout "out"
entry f0
func f0 "group_count" (%out: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %bytes: i32 = const.i32 4
  %i: i32 = instance_id.i32 %zero
  %shared: i32 = local_alloc %bytes
  %old: i32 = atomic_add.i32 group %shared, %one
  %o: i32 = shl.i32 %i, %two
  %at: i32 = add.i32 %out, %o
  store.i32 flat %at, %old
  return ()
}
)"},
    // Module memory and globals are private to an instance: out[i] = table[i % 4] + 1000 * (++scratch) + 100000 * (g0
    // as first seen), and then the table's entry and the global are overwritten.
    {"private_state", R"(
module "private_state"
memory 65536 65536
data 1024 "0a000000140000001e00000028000000"
global mut i32 7
param buffer inout "out"
entry f0
func f0 "private_state" (%out: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %three: i32 = const.i32 3
  %thousand: i32 = const.i32 1000
  %far: i32 = const.i32 60000
  %i: i32 = instance_id.i32 %zero
  %k: i32 = and.i32 %i, %three
  %ko: i32 = shl.i32 %k, %two
  %entry: i32 = load.i32 flat %ko + 1024
  %before: i32 = load.i32 module %far
  %after: i32 = add.i32 %before, %one
  store.i32 module %far, %after
  %seen: i32 = load.i32 flat %far
  %g: i32 = global_get.i32 g0
  %hundred: i32 = const.i32 100000
  %a: i32 = mul.i32 %seen, %thousand
  %b: i32 = mul.i32 %g, %hundred
  %c: i32 = add.i32 %entry, %a
  %r: i32 = add.i32 %c, %b
  %o: i32 = shl.i32 %i, %two
  %at: i32 = add.i32 %out, %o
  store.i32 flat %at, %r
  store.i32 flat %ko + 1024, %zero
  %g2: i32 = add.i32 %g, %i
  %g3: i32 = add.i32 %g2, %one
  global_set.i32 g0 %g3
  return ()
}
)"},
    // The shadow stack that compiled C uses: moves the global down, fills an array there, sums it, and puts the global
    // back. out[i] = sum over j < 16 of (i + j) + stale, where stale is what the array held before.
    {"shadow_stack", R"(
module "shadow_stack"
memory 65536 65536
global mut i32 65536
param buffer inout "out"
entry f0
func f0 "shadow_stack" (%out: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %frame: i32 = const.i32 64
  %count: i32 = const.i32 16
  %i: i32 = instance_id.i32 %zero
  %top: i32 = global_get.i32 g0
  %sp: i32 = sub.i32 %top, %frame
  global_set.i32 g0 %sp
  %stale: i32 = loop fill (%j: i32 = %zero, %s: i32 = %zero) {
    %jo: i32 = shl.i32 %j, %two
    %ja: i32 = add.i32 %sp, %jo
    %old: i32 = load.i32 flat %ja
    %s2: i32 = add.i32 %s, %old
    %v: i32 = add.i32 %i, %j
    store.i32 flat %ja, %v
    %j2: i32 = add.i32 %j, %one
    %more: i32 = lt_u.i32 %j2, %count
    if again %more {
      continue fill (%j2, %s2)
    } else {
      br fill (%s2)
    }
    trap 1
  }
  %sum: i32 = loop add (%m: i32 = %zero, %t: i32 = %stale) {
    %mo: i32 = shl.i32 %m, %two
    %ma: i32 = add.i32 %sp, %mo
    %w: i32 = load.i32 flat %ma
    %t2: i32 = add.i32 %t, %w
    %m2: i32 = add.i32 %m, %one
    %more2: i32 = lt_u.i32 %m2, %count
    if again2 %more2 {
      continue add (%m2, %t2)
    } else {
      br add (%t2)
    }
    trap 1
  }
  global_set.i32 g0 %top
  %o: i32 = shl.i32 %i, %two
  %at: i32 = add.i32 %out, %o
  store.i32 flat %at, %sum
  return ()
}
)"},
    // Grows memory by a page and uses it: out[i] = old pages + 10 * what the new page held + 100 * pages now
    {"grow", R"(
module "grow"
memory 65536 131072
param buffer inout "out"
entry f0
func f0 "grow" (%out: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %ten: i32 = const.i32 10
  %hundred: i32 = const.i32 100
  %new: i32 = const.i32 131000
  %i: i32 = instance_id.i32 %zero
  %old: i32 = memory_grow %one
  %held: i32 = load.i32 flat %new
  store.i32 flat %new, %one
  %pages: i32 = memory_size
  %a: i32 = mul.i32 %held, %ten
  %b: i32 = mul.i32 %pages, %hundred
  %c: i32 = add.i32 %old, %a
  %r: i32 = add.i32 %c, %b
  %o: i32 = shl.i32 %i, %two
  %at: i32 = add.i32 %out, %o
  store.i32 flat %at, %r
  return ()
}
)"},
    // y[i] = 100 / x[i]; traps where x[i] is 0
    {"divide", R"(
module "divide"
param buffer inout "y"
param buffer in "x"
entry f0
func f0 "divide" (%y: i32, %x: i32) -> () {
  %zero: i32 = const.i32 0
  %two: i32 = const.i32 2
  %hundred: i32 = const.i32 100
  %i: i32 = instance_id.i32 %zero
  %o: i32 = shl.i32 %i, %two
  %v: i32 = load.i32 param(1) %o
  %q: i32 = div_s.i32 %hundred, %v @1234
  store.i32 param(0) %o, %q
  return ()
}
)"},
    // Stores 4 bytes at out + distance.
    {"poke", R"(
module "poke"
param buffer inout "out"
param i32 "distance"
entry f0
func f0 "poke" (%out: i32, %distance: i32) -> () {
  %one: i32 = const.i32 1
  %at: i32 = add.i32 %out, %distance
  store.i32 flat %at, %one
  return ()
}
)"},
    // Does nothing, to measure the cost of a dispatch.
    {"poke_nothing", R"(
module "poke_nothing"
param buffer inout "out"
entry f0
func f0 "poke_nothing" (%out: i32) -> () {
  return ()
}
)"},
    // Stores into a buffer that the graph passed read-only.
    {"write_input", R"(
module "write_input"
param buffer in "x"
entry f0
func f0 "write_input" (%x: i32) -> () {
  %one: i32 = const.i32 1
  store.i32 flat %x, %one
  return ()
}
)"},
    // Never ends, unless x[0] is 0.
    {"endless", R"(
module "endless"
param buffer inout "x"
entry f0
func f0 "endless" (%x: i32) -> () {
  loop forever () {
    %v: i32 = load.i32 flat %x
    if goes_on %v {
      continue forever ()
    } else {
      br forever ()
    }
    trap 1
  }
  return ()
}
)"},
    // Calls itself until x[0] has counted to x[1], with work after each call.
    {"recurse", R"(
module "recurse"
param buffer inout "x"
entry f0
func f0 "recurse" (%x: i32) -> () {
  %r: i32 = call f1 (%x)
  store.i32 flat %x + 8, %r
  return ()
}
func f1 "deeper" (%x: i32) -> (i32) {
  %v: i32 = load.i32 flat %x
  %one: i32 = const.i32 1
  %v1: i32 = add.i32 %v, %one
  store.i32 flat %x, %v1
  %last: i32 = load.i32 flat %x + 4
  %deep: i32 = eq.i32 %v, %last
  if ends %deep {
    return (%v)
  } else {
    br ends ()
  }
  %r: i32 = call f1 (%x)
  %s: i32 = rotl.i32 %v, %r
  return (%s)
}
)"},
    // Calls itself for ever in tail position: a compiler may turn it into a loop.
    {"tail_call", R"(
module "tail_call"
param buffer inout "x"
entry f0
func f0 "tail_call" (%x: i32) -> () {
  call f1 (%x)
  return ()
}
func f1 "deeper" (%x: i32) -> () {
  %v: i32 = load.i32 flat %x
  %one: i32 = const.i32 1
  %v1: i32 = add.i32 %v, %one
  store.i32 flat %x, %v1
  call f1 (%x)
  return ()
}
)"},
    // The first instance of each group does not reach the barrier.
    {"diverge", R"(
module "diverge"
uses barrier
param buffer inout "out"
entry f0
func f0 "diverge" (%out: i32) -> () {
  %zero: i32 = const.i32 0
  %l: i32 = local_id.i32 %zero
  if waits %l {
    barrier
    br waits ()
  } else {
    br waits ()
  }
  return ()
}
)"},
};

// "reduce" with room for 256 instances, whatever the group: GPUs must know the size when the kernel is compiled.
std::string FixedReduce() {
  constexpr std::string_view kFound = "%bytes: i32 = shl.i32 %size, %two";
  std::string text(KernelText("reduce"));
  text.replace(text.find(kFound), kFound.size(), "%bytes: i32 = const.i32 1024");
  return text;
}

}  // namespace

std::string_view KernelText(std::string_view name) {
  if (name == "reduce_fixed") {
    static const std::string text = FixedReduce();
    return text;
  }
  for (const Kernel& kernel : kKernels) {
    if (kernel.name == name) {
      return kernel.text;
    }
  }
  ADD_FAILURE() << "No kernel is named " << name;
  return "";
}

}  // namespace hpvm::conformance
