// SPDX-License-Identifier: Apache-2.0
// The search for several lanes: those whose bits are set in %lanes, in order, at the addresses in an array, with values
// of 8 bytes (16 for the last two) in another. {0, -} or {trap code, lane}. Appended to helpers.cc.
#include "absl/strings/substitute.h"

#include "compiler/back/llvm/emit/emitter.h"

namespace hpvm::cpu {
namespace {

// What is done for each lane: $0 its name and what it takes besides, $1 how the lane's trap code is found, $2 what is
// done when there is none, $3 the block in which that ends.
constexpr char kEachLane[] = R"(
define internal { i32, i32 } @hpvm.gang.$0) #1 {
  br label %loop
loop:
  %rest = phi i64 [ %lanes, %0 ], [ %rest.next, %$3 ]
  %none = icmp eq i64 %rest, 0
  br i1 %none, label %done, label %one
one:
  %lane = call i64 @llvm.cttz.i64(i64 %rest, i1 true)
  %address.p = getelementptr i64, ptr %addresses, i64 %lane
  %address = load i64, ptr %address.p
$1
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %miss, label %hit
hit:
$2
  %less = sub i64 %rest, 1
  %rest.next = and i64 %rest, %less
  br label %loop
done:
  ret { i32, i32 } zeroinitializer
miss:
  %lane.32 = trunc i64 %lane to i32
  %bad.1 = insertvalue { i32, i32 } poison, i32 %code, 0
  %bad.2 = insertvalue { i32, i32 } %bad.1, i32 %lane.32, 1
  ret { i32, i32 } %bad.2
}
)";

constexpr char kResolve[] = R"(
; Where a store of lanes goes: {host address, 0} or {-, trap code}. Module memory belongs to one instance, and lanes
; share the worker's copy: no kernel that runs so stores there on purpose, so such an address is out of bounds.
define internal { ptr, i32 } @hpvm.gang.resolve(ptr %c, i64 %a, i64 %w) #0 {
  %found = call { ptr, i32 } @hpvm.find(ptr %c, i64 %a, i64 %w)
  %kind = extractvalue { ptr, i32 } %found, 1
  %is.writable = icmp eq i32 %kind, 2
  %is.read.only = icmp eq i32 %kind, 1
  %bad = select i1 %is.read.only, i32 12, i32 2
  %code = select i1 %is.writable, i32 0, i32 %bad
  %result = insertvalue { ptr, i32 } %found, i32 %code, 1
  ret { ptr, i32 } %result
}
)";

}  // namespace

std::string GangHelpers() {
  return "\ndeclare i64 @llvm.cttz.i64(i64, i1)\n" +
         absl::Substitute(kEachLane, "load(ptr %c, ptr %addresses, i64 %lanes, ptr %values, i64 %w",
                          R"(  %found = call { i64, i32 } @hpvm.load(ptr %c, i64 %address, i64 %w)
  %code = extractvalue { i64, i32 } %found, 1)",
                          R"(  %value = extractvalue { i64, i32 } %found, 0
  %value.p = getelementptr i64, ptr %values, i64 %lane
  store i64 %value, ptr %value.p)",
                          "hit") +
         absl::Substitute(kEachLane, "load128(ptr %c, ptr %addresses, i64 %lanes, ptr %values",
                          R"(  %found = call { i64, i64, i32 } @hpvm.load128(ptr %c, i64 %address)
  %code = extractvalue { i64, i64, i32 } %found, 2)",
                          R"(  %low = extractvalue { i64, i64, i32 } %found, 0
  %high = extractvalue { i64, i64, i32 } %found, 1
  %low.p = getelementptr [16 x i8], ptr %values, i64 %lane
  store i64 %low, ptr %low.p
  %high.p = getelementptr i8, ptr %low.p, i64 8
  store i64 %high, ptr %high.p)",
                          "hit") +
         kResolve +
         absl::Substitute(kEachLane, "store(ptr %c, ptr %addresses, i64 %lanes, ptr %values, i64 %w",
                          R"(  %found = call { ptr, i32 } @hpvm.gang.resolve(ptr %c, i64 %address, i64 %w)
  %host = extractvalue { ptr, i32 } %found, 0
  %code = extractvalue { ptr, i32 } %found, 1)",
                          R"(  %value.p = getelementptr i64, ptr %values, i64 %lane
  %value = load i64, ptr %value.p
  switch i64 %w, label %eight [ i64 1, label %byte
                                i64 2, label %half
                                i64 4, label %word ]
byte:
  %v1 = trunc i64 %value to i8
  store i8 %v1, ptr %host
  br label %next
half:
  %v2 = trunc i64 %value to i16
  store i16 %v2, ptr %host, align 1
  br label %next
word:
  %v4 = trunc i64 %value to i32
  store i32 %v4, ptr %host, align 1
  br label %next
eight:
  store i64 %value, ptr %host, align 1
  br label %next
next:)",
                          "next") +
         absl::Substitute(kEachLane, "store128(ptr %c, ptr %addresses, i64 %lanes, ptr %values",
                          R"(  %found = call { ptr, i32 } @hpvm.gang.resolve(ptr %c, i64 %address, i64 16)
  %host = extractvalue { ptr, i32 } %found, 0
  %code = extractvalue { ptr, i32 } %found, 1)",
                          R"(  %low.p = getelementptr [16 x i8], ptr %values, i64 %lane
  %low = load i64, ptr %low.p
  %high.p = getelementptr i8, ptr %low.p, i64 8
  %high = load i64, ptr %high.p
  store i64 %low, ptr %host, align 1
  %host.high = getelementptr i8, ptr %host, i64 8
  store i64 %high, ptr %host.high, align 1)",
                          "hit");
}

}  // namespace hpvm::cpu
