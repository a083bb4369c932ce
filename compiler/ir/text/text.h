// SPDX-License-Identifier: Apache-2.0
// The strict text form of a module: tests are written in it, people read it, and the interpreter device loads it.
//
//   module "saxpy"                        `module "x" memory64` when addresses are i64
//   memory 65536 65536                    initial bytes, maximum; omitted when both are 0
//   uses barrier                          and `group_memory`, `separate_buffers`, `linked`, one per line
//   data 1024 "00ff10"                    address, bytes in hexadecimal
//   global mut i32 0x10000                `mut` when mutable; the bits
//   stack_pointer g0                      the global that points to the shadow stack
//   stack_frame 65264 65536 4             begin, end and unit of the memory of space `stack`
//   state 4096                            bytes of space `state`; omitted when 0
//   state_data 16 "00ff"                  offset, bytes
//   segment "0102"                        a passive segment: s0, s1 ... in order
//   reftype (i32) -> ()                   a type of references: r0, r1 ... in order; types may look alike
//   first_reference 7                     omitted when 1
//   ref f1 r0                             the target of the next reference: a function and its type
//   format "%d\0a"                        a format of prints: p0, p1 ... in order
//   param buffer in "x"                   `in` or `inout`, or a scalar's type: `param f32 "alpha"`
//   entry f0
//   func f0 "saxpy" (%0: i32, %1: f32) -> () {
//     %2: i32 = const.i32 4               integers signed or 0x bits; floats print as 0x bits, decimals are accepted
//     %3: f32 = load.f32 param(0) %2 + 16 @117
//                                         space (flat, param(k), module, stack, private(k), group, state, scratch),
//                                         base, immediate, source (`@117 in f2`: inlined from function 2)
//     %4: i32 = load.i32 w1 signed flat %0           w1, w2, w4: width when narrower than the type
//     %5: i64 = extend_s.i32 %4           `.type` is Op::type; the results' types are on the left
//     %6: i32 = call f1 (%2)              call_ref r0 (%reference, ...)
//     print p0 (%6)
//     memory_init s0 %0, %4, %6           to, from, bytes
//     store128 flat %0 + 16, %4, %4, %4, %4
//     %7: i32 = loop b0 (%8: i32 = %2, %9: i32 = %4) {
//       %10: i32 = if b1 %8 {
//         continue b0 (%9, %8)
//       } else {
//         br b1 (%8)
//       }
//       br_table %10 [b0, continue b0, b0] (%10)
//     }
//     store.i32 flat %0 + 8, %7
//     global_set.i32 g0 %7
//     trap 1
//   }
//   func f1 "exp" contract () -> () ...   how far fast math may change it: `contract`, or `exact` for not at all
//
// A comment runs from `;;` to the end of the line. Directives come in the order above. When printed, values, blocks
// and functions are numbered in order of appearance; the reader accepts any name of letters, digits and underscores
// for values and blocks. `= results` and `@source` are omitted where there are none; an operation without a type in
// its name (control, calls, barrier, copies) has Op::type i32.
#ifndef HPVMD_COMPILER_IR_TEXT_TEXT_H_
#define HPVMD_COMPILER_IR_TEXT_TEXT_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "compiler/ir/ir.h"

namespace hpvm::ir {

// Requires ids in range and regions that form a tree, as the builder and the parser create them; the module need not
// verify. For modules that verify, Print(*ParseModule(Print(m))) == Print(m), and the parsed module behaves alike.
std::string Print(const Module& module);
std::string Print(const Module& module, FunctionId function);

// Any bytes give a module or a kInvalidArgument that names the line. The module meets the requirements of Print;
// Verify it before use.
StatusOr<Module> ParseModule(std::string_view text);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_TEXT_TEXT_H_
