// SPDX-License-Identifier: Apache-2.0
// Functions that every image carries if it uses them, written in LLVM's own language: the search of an address, dirty
// granules, the trap record; helpers_bulk.cc has bulk memory. Offsets are CpuContext's (compiler/ir/cpu_abi.h),
// asserted below.
#include "llvm/AsmParser/Parser.h"
#include "llvm/Support/SourceMgr.h"

#include "base/status.h"
#include "compiler/back/llvm/emit/emitter.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {
namespace {

static_assert(offsetof(CpuContext, arguments) == 0 && offsetof(CpuContext, argument_count) == 8 &&
              offsetof(CpuContext, memory) == 16 && offsetof(CpuContext, memory_bytes) == 24 &&
              offsetof(CpuContext, dirty_bits) == 40 && offsetof(CpuContext, dirty_list) == 48 &&
              offsetof(CpuContext, dirty_count) == 56 && offsetof(CpuContext, stop) == 72 &&
              offsetof(CpuContext, group_memory) == 128 && offsetof(CpuContext, group_memory_base) == 136 &&
              offsetof(CpuContext, group_memory_used) == 144 && offsetof(CpuContext, trap_code) == 168 &&
              offsetof(CpuContext, trap_function) == 172 && offsetof(CpuContext, trap_source) == 176 &&
              offsetof(CpuContext, trap_address) == 208 && offsetof(CpuContext, trap_bytes) == 216);
static_assert(sizeof(CpuArgument) == 32 && offsetof(CpuArgument, bytes) == 8 && offsetof(CpuArgument, base) == 16 &&
              offsetof(CpuArgument, writable) == 24);
static_assert(ir::kDirtyGranuleBytes == 512);
static_assert(static_cast<uint32_t>(ir::TrapCode::kOutOfBounds) == 2 &&
              static_cast<uint32_t>(ir::TrapCode::kReadOnlyBuffer) == 12 &&
              static_cast<uint32_t>(ir::TrapCode::kStopped) == 100);

constexpr char kHelpers[] = R"(
target triple = "x86_64-unknown-linux-gnu"

; Where [a, a + w) lies, also if w is 0: {host address, 0 module memory, 1 read-only buffer, 2 writable, 3 nowhere}.
; Scalars among the arguments are no range: their `writable` is above 1.
define internal { ptr, i32 } @hpvm.find(ptr %c, i64 %a, i64 %w) #0 {
  %memory.bytes.p = getelementptr i8, ptr %c, i64 24
  %memory.bytes = load i64, ptr %memory.bytes.p
  %below = icmp ule i64 %a, %memory.bytes
  %left = sub i64 %memory.bytes, %a
  %fits = icmp ule i64 %w, %left
  %in.memory = and i1 %below, %fits
  br i1 %in.memory, label %module, label %params
module:
  %memory.p = getelementptr i8, ptr %c, i64 16
  %memory = load ptr, ptr %memory.p
  %memory.host = getelementptr i8, ptr %memory, i64 %a
  %module.1 = insertvalue { ptr, i32 } poison, ptr %memory.host, 0
  %module.2 = insertvalue { ptr, i32 } %module.1, i32 0, 1
  ret { ptr, i32 } %module.2
params:
  %arguments = load ptr, ptr %c
  %count.p = getelementptr i8, ptr %c, i64 8
  %count = load i64, ptr %count.p
  br label %loop
loop:
  %i = phi i64 [ 0, %params ], [ %i.next, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %param, label %group
param:
  %argument = getelementptr [32 x i8], ptr %arguments, i64 %i
  %bytes.p = getelementptr i8, ptr %argument, i64 8
  %bytes = load i64, ptr %bytes.p
  %base.p = getelementptr i8, ptr %argument, i64 16
  %base = load i64, ptr %base.p
  %offset = sub i64 %a, %base
  %param.below = icmp ule i64 %offset, %bytes
  %param.left = sub i64 %bytes, %offset
  %param.fits = icmp ule i64 %w, %param.left
  %writable.p = getelementptr i8, ptr %argument, i64 24
  %writable = load i64, ptr %writable.p
  %is.buffer = icmp ule i64 %writable, 1
  %in.range = and i1 %param.below, %param.fits
  %in.param = and i1 %in.range, %is.buffer
  br i1 %in.param, label %hit, label %next
next:
  %i.next = add i64 %i, 1
  br label %loop
hit:
  %data = load ptr, ptr %argument
  %data.host = getelementptr i8, ptr %data, i64 %offset
  %is.writable = icmp ne i64 %writable, 0
  %kind = select i1 %is.writable, i32 2, i32 1
  %hit.1 = insertvalue { ptr, i32 } poison, ptr %data.host, 0
  %hit.2 = insertvalue { ptr, i32 } %hit.1, i32 %kind, 1
  ret { ptr, i32 } %hit.2
group:
  %group.base.p = getelementptr i8, ptr %c, i64 136
  %group.base = load i64, ptr %group.base.p
  %group.used.p = getelementptr i8, ptr %c, i64 144
  %group.used = load i64, ptr %group.used.p
  %group.offset = sub i64 %a, %group.base
  %group.below = icmp ule i64 %group.offset, %group.used
  %group.left = sub i64 %group.used, %group.offset
  %group.fits = icmp ule i64 %w, %group.left
  %in.group = and i1 %group.below, %group.fits
  %group.p = getelementptr i8, ptr %c, i64 128
  %group.memory = load ptr, ptr %group.p
  %group.host = getelementptr i8, ptr %group.memory, i64 %group.offset
  %group.kind = select i1 %in.group, i32 2, i32 3
  %group.1 = insertvalue { ptr, i32 } poison, ptr %group.host, 0
  %group.2 = insertvalue { ptr, i32 } %group.1, i32 %group.kind, 1
  ret { ptr, i32 } %group.2
}

; {host address, 0} or {-, trap code}.
define internal { ptr, i32 } @hpvm.resolve.load(ptr %c, i64 %a, i64 %w) #0 {
  %found = call { ptr, i32 } @hpvm.find(ptr %c, i64 %a, i64 %w)
  %kind = extractvalue { ptr, i32 } %found, 1
  %missed = icmp eq i32 %kind, 3
  %code = select i1 %missed, i32 2, i32 0
  %result = insertvalue { ptr, i32 } %found, i32 %code, 1
  ret { ptr, i32 } %result
}

define internal { ptr, i32 } @hpvm.resolve.store(ptr %c, i64 %a, i64 %w) #1 {
  %found = call { ptr, i32 } @hpvm.find(ptr %c, i64 %a, i64 %w)
  %kind = extractvalue { ptr, i32 } %found, 1
  switch i32 %kind, label %done [ i32 0, label %module
                                  i32 1, label %done.read.only
                                  i32 3, label %done.nowhere ]
module:
  %none = icmp eq i64 %w, 0
  br i1 %none, label %done, label %mark
mark:
  call void @hpvm.mark(ptr %c, i64 %a, i64 %w)
  br label %done
done.read.only:
  br label %done
done.nowhere:
  br label %done
done:
  %code = phi i32 [ 0, %module ], [ 0, %mark ], [ 12, %done.read.only ], [ 2, %done.nowhere ], [ 0, %0 ]
  %result = insertvalue { ptr, i32 } %found, i32 %code, 1
  ret { ptr, i32 } %result
}

; What lies at [a, a + w), w 1, 2, 4 or 8, zero-extended: {bits, 0} or {-, trap code}. A function of its own,
; so that LLVM cannot merge this
; load with the fast path's into one through a pointer that it would have to compute on both paths.
define internal { i64, i32 } @hpvm.load(ptr %c, i64 %a, i64 %w) #0 {
  %found = call { ptr, i32 } @hpvm.find(ptr %c, i64 %a, i64 %w)
  %host = extractvalue { ptr, i32 } %found, 0
  %kind = extractvalue { ptr, i32 } %found, 1
  %missed = icmp eq i32 %kind, 3
  br i1 %missed, label %miss, label %hit
hit:
  switch i64 %w, label %eight [ i64 1, label %one
                                i64 2, label %two
                                i64 4, label %four ]
one:
  %v1 = load i8, ptr %host
  %z1 = zext i8 %v1 to i64
  br label %done
two:
  %v2 = load i16, ptr %host, align 1
  %z2 = zext i16 %v2 to i64
  br label %done
four:
  %v4 = load i32, ptr %host, align 1
  %z4 = zext i32 %v4 to i64
  br label %done
eight:
  %v8 = load i64, ptr %host, align 1
  br label %done
done:
  %bits = phi i64 [ %z1, %one ], [ %z2, %two ], [ %z4, %four ], [ %v8, %eight ]
  %good.1 = insertvalue { i64, i32 } poison, i64 %bits, 0
  %good = insertvalue { i64, i32 } %good.1, i32 0, 1
  ret { i64, i32 } %good
miss:
  %bad = insertvalue { i64, i32 } poison, i32 2, 1
  ret { i64, i32 } %bad
}

; Stores the low w bytes: 0 or a trap code.
define internal i32 @hpvm.store(ptr %c, i64 %a, i64 %w, i64 %bits) #1 {
  %found = call { ptr, i32 } @hpvm.resolve.store(ptr %c, i64 %a, i64 %w)
  %host = extractvalue { ptr, i32 } %found, 0
  %code = extractvalue { ptr, i32 } %found, 1
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %done, label %hit
hit:
  switch i64 %w, label %eight [ i64 1, label %one
                                i64 2, label %two
                                i64 4, label %four ]
one:
  %v1 = trunc i64 %bits to i8
  store i8 %v1, ptr %host
  br label %done
two:
  %v2 = trunc i64 %bits to i16
  store i16 %v2, ptr %host, align 1
  br label %done
four:
  %v4 = trunc i64 %bits to i32
  store i32 %v4, ptr %host, align 1
  br label %done
eight:
  store i64 %bits, ptr %host, align 1
  br label %done
done:
  ret i32 %code
}

; 16 bytes: {low half, high half, 0} or {-, -, trap code}.
define internal { i64, i64, i32 } @hpvm.load128(ptr %c, i64 %a) #0 {
  %found = call { ptr, i32 } @hpvm.find(ptr %c, i64 %a, i64 16)
  %host = extractvalue { ptr, i32 } %found, 0
  %kind = extractvalue { ptr, i32 } %found, 1
  %missed = icmp eq i32 %kind, 3
  br i1 %missed, label %miss, label %hit
hit:
  %low = load i64, ptr %host, align 1
  %high.p = getelementptr i8, ptr %host, i64 8
  %high = load i64, ptr %high.p, align 1
  %good.1 = insertvalue { i64, i64, i32 } poison, i64 %low, 0
  %good.2 = insertvalue { i64, i64, i32 } %good.1, i64 %high, 1
  %good = insertvalue { i64, i64, i32 } %good.2, i32 0, 2
  ret { i64, i64, i32 } %good
miss:
  %bad = insertvalue { i64, i64, i32 } poison, i32 2, 2
  ret { i64, i64, i32 } %bad
}

; Stores 16 bytes: 0 or a trap code.
define internal i32 @hpvm.store128(ptr %c, i64 %a, i64 %low, i64 %high) #1 {
  %found = call { ptr, i32 } @hpvm.resolve.store(ptr %c, i64 %a, i64 16)
  %host = extractvalue { ptr, i32 } %found, 0
  %code = extractvalue { ptr, i32 } %found, 1
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %done, label %hit
hit:
  store i64 %low, ptr %host, align 1
  %high.p = getelementptr i8, ptr %host, i64 8
  store i64 %high, ptr %high.p, align 1
  br label %done
done:
  ret i32 %code
}

; Notes that [a, a + w) of module memory is written, w >= 1.
define internal void @hpvm.mark(ptr %c, i64 %a, i64 %w) #1 {
  %end = add i64 %a, %w
  %last.byte = sub i64 %end, 1
  %first = lshr i64 %a, 9
  %last = lshr i64 %last.byte, 9
  %bits.p = getelementptr i8, ptr %c, i64 40
  %bits = load ptr, ptr %bits.p
  %list.p = getelementptr i8, ptr %c, i64 48
  %list = load ptr, ptr %list.p
  %count.p = getelementptr i8, ptr %c, i64 56
  br label %loop
loop:
  %g = phi i64 [ %first, %0 ], [ %g.next, %next ]
  %word.index = lshr i64 %g, 6
  %word.p = getelementptr i64, ptr %bits, i64 %word.index
  %word = load i64, ptr %word.p
  %shift = and i64 %g, 63
  %bit = shl i64 1, %shift
  %seen = and i64 %word, %bit
  %is.new = icmp eq i64 %seen, 0
  br i1 %is.new, label %note, label %next
note:
  %word.new = or i64 %word, %bit
  store i64 %word.new, ptr %word.p
  %count = load i64, ptr %count.p
  %slot = getelementptr i32, ptr %list, i64 %count
  %g.32 = trunc i64 %g to i32
  store i32 %g.32, ptr %slot
  %count.new = add i64 %count, 1
  store i64 %count.new, ptr %count.p
  br label %next
next:
  %g.next = add i64 %g, 1
  %more = icmp ult i64 %g, %last
  br i1 %more, label %loop, label %done
done:
  ret void
}

define internal void @hpvm.record(ptr %c, i32 %code, i32 %function, i32 %source, i64 %address, i64 %bytes) #1 {
  %code.p = getelementptr i8, ptr %c, i64 168
  store i32 %code, ptr %code.p
  %function.p = getelementptr i8, ptr %c, i64 172
  store i32 %function, ptr %function.p
  %source.p = getelementptr i8, ptr %c, i64 176
  store i32 %source, ptr %source.p
  %address.p = getelementptr i8, ptr %c, i64 208
  store i64 %address, ptr %address.p
  %bytes.p = getelementptr i8, ptr %c, i64 216
  store i64 %bytes, ptr %bytes.p
  ret void
}

declare i64 @llvm.umin.i64(i64, i64)

attributes #0 = { cold noinline nounwind willreturn memory(read) "no-builtins" "probe-stack"="inline-asm" }
attributes #1 = { cold noinline nounwind "no-builtins" "probe-stack"="inline-asm" }
attributes #2 = { alwaysinline nounwind "no-builtins" }
)";

}  // namespace

StatusOr<std::unique_ptr<llvm::Module>> ParseHelpers(llvm::LLVMContext& context) {
  llvm::SMDiagnostic error;
  const std::string text = std::string(kHelpers) + kBulkHelpers + GangHelpers();
  std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(text, error, context);
  if (module == nullptr) {
    return Internal("The back end's helpers do not parse: line " + std::to_string(error.getLineNo()) + ": " +
                    error.getMessage().str());
  }
  return module;
}

}  // namespace hpvm::cpu
