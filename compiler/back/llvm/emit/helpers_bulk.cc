// SPDX-License-Identifier: Apache-2.0
// The helpers (helpers.cc) for copies, fills and what constant segments give.
#include "compiler/back/llvm/emit/emitter.h"

namespace hpvm::cpu {

const char kBulkHelpers[] = R"(
; 1 when the stop word is set.
define internal i1 @hpvm.stopped(ptr %c) #2 {
  %stop.p = getelementptr i8, ptr %c, i64 72
  %stop = load ptr, ptr %stop.p
  %word = load atomic i32, ptr %stop monotonic, align 4
  %set = icmp ne i32 %word, 0
  ret i1 %set
}

; Copies n bytes, n <= 1 MiB, as memmove does. Sixteen at a time, from the end that keeps overlapping bytes.
define internal void @hpvm.move(ptr %to, ptr %from, i64 %n) #1 {
  %to.int = ptrtoint ptr %to to i64
  %from.int = ptrtoint ptr %from to i64
  %distance = sub i64 %to.int, %from.int
  %forward = icmp uge i64 %distance, %n
  %wide = and i64 %n, -16
  br i1 %forward, label %up.wide, label %down
up.wide:
  %u = phi i64 [ 0, %0 ], [ %u.next, %up.wide.step ]
  %u.more = icmp ult i64 %u, %wide
  br i1 %u.more, label %up.wide.step, label %up.tail
up.wide.step:
  %u.from = getelementptr i8, ptr %from, i64 %u
  %u.to = getelementptr i8, ptr %to, i64 %u
  %u.value = load <2 x i64>, ptr %u.from, align 1
  store <2 x i64> %u.value, ptr %u.to, align 1
  %u.next = add i64 %u, 16
  br label %up.wide
up.tail:
  %t = phi i64 [ %wide, %up.wide ], [ %t.next, %up.tail.step ]
  %t.more = icmp ult i64 %t, %n
  br i1 %t.more, label %up.tail.step, label %done
up.tail.step:
  %t.from = getelementptr i8, ptr %from, i64 %t
  %t.to = getelementptr i8, ptr %to, i64 %t
  %t.value = load i8, ptr %t.from
  store i8 %t.value, ptr %t.to
  %t.next = add i64 %t, 1
  br label %up.tail
down:
  %d = phi i64 [ %n, %0 ], [ %d.next, %down.step ]
  %d.more = icmp ugt i64 %d, %wide
  br i1 %d.more, label %down.step, label %down.wide
down.step:
  %d.next = sub i64 %d, 1
  %d.from = getelementptr i8, ptr %from, i64 %d.next
  %d.to = getelementptr i8, ptr %to, i64 %d.next
  %d.value = load i8, ptr %d.from
  store i8 %d.value, ptr %d.to
  br label %down
down.wide:
  %e = phi i64 [ %wide, %down ], [ %e.next, %down.wide.step ]
  %e.more = icmp ne i64 %e, 0
  br i1 %e.more, label %down.wide.step, label %done
down.wide.step:
  %e.next = sub i64 %e, 16
  %e.from = getelementptr i8, ptr %from, i64 %e.next
  %e.to = getelementptr i8, ptr %to, i64 %e.next
  %e.value = load <2 x i64>, ptr %e.from, align 1
  store <2 x i64> %e.value, ptr %e.to, align 1
  br label %down.wide
done:
  ret void
}

; As hpvm.move for any n: in pieces of 1 MiB with a look at the stop word before each. 0, or the trap code "stopped".
define internal i32 @hpvm.transfer(ptr %c, ptr %to, ptr %from, i64 %n) #1 {
  %to.int = ptrtoint ptr %to to i64
  %from.int = ptrtoint ptr %from to i64
  %distance = sub i64 %to.int, %from.int
  %forward = icmp uge i64 %distance, %n
  br label %loop
loop:
  %done = phi i64 [ 0, %0 ], [ %done.next, %piece ]
  %rest = sub i64 %n, %done
  %size = call i64 @llvm.umin.i64(i64 %rest, i64 1048576)
  %finished = icmp eq i64 %rest, 0
  br i1 %finished, label %ok, label %check
check:
  %stopped = call i1 @hpvm.stopped(ptr %c)
  br i1 %stopped, label %stop, label %piece
piece:
  %rest.down = sub i64 %rest, %size
  %at = select i1 %forward, i64 %done, i64 %rest.down
  %piece.to = getelementptr i8, ptr %to, i64 %at
  %piece.from = getelementptr i8, ptr %from, i64 %at
  call void @hpvm.move(ptr %piece.to, ptr %piece.from, i64 %size)
  %done.next = add i64 %done, %size
  br label %loop
stop:
  ret i32 100
ok:
  ret i32 0
}

; memory_copy. Status.
define internal i32 @hpvm.copy(ptr %c, i64 %to, i64 %from, i64 %n, i32 %function, i32 %source) #1 {
  %written = call { ptr, i32 } @hpvm.resolve.store(ptr %c, i64 %to, i64 %n)
  %write.code = extractvalue { ptr, i32 } %written, 1
  %to.host = extractvalue { ptr, i32 } %written, 0
  %write.bad = icmp ne i32 %write.code, 0
  br i1 %write.bad, label %failed, label %read
read:
  %from.found = call { ptr, i32 } @hpvm.resolve.load(ptr %c, i64 %from, i64 %n)
  %read.code = extractvalue { ptr, i32 } %from.found, 1
  %from.host = extractvalue { ptr, i32 } %from.found, 0
  %read.bad = icmp ne i32 %read.code, 0
  br i1 %read.bad, label %failed, label %transfer
transfer:
  %stop.code = call i32 @hpvm.transfer(ptr %c, ptr %to.host, ptr %from.host, i64 %n)
  %stopped = icmp ne i32 %stop.code, 0
  br i1 %stopped, label %failed, label %ok
failed:
  %code = phi i32 [ %write.code, %0 ], [ %read.code, %read ], [ %stop.code, %transfer ]
  %address = phi i64 [ %to, %0 ], [ %from, %read ], [ 0, %transfer ]
  %bytes = phi i64 [ %n, %0 ], [ %n, %read ], [ 0, %transfer ]
  call void @hpvm.record(ptr %c, i32 %code, i32 %function, i32 %source, i64 %address, i64 %bytes)
  ret i32 1
ok:
  ret i32 0
}

; memory_init from a segment of `size` bytes. Status. A trap at the segment has no address.
define internal i32 @hpvm.init(ptr %c, i64 %to, ptr %segment, i64 %size, i64 %from, i64 %n, i32 %function,
                               i32 %source) #1 {
  %below = icmp ule i64 %from, %size
  %left = sub i64 %size, %from
  %fits = icmp ule i64 %n, %left
  %inside = and i1 %below, %fits
  br i1 %inside, label %write, label %failed
write:
  %written = call { ptr, i32 } @hpvm.resolve.store(ptr %c, i64 %to, i64 %n)
  %write.code = extractvalue { ptr, i32 } %written, 1
  %to.host = extractvalue { ptr, i32 } %written, 0
  %write.bad = icmp ne i32 %write.code, 0
  br i1 %write.bad, label %failed, label %transfer
transfer:
  %from.host = getelementptr i8, ptr %segment, i64 %from
  %stop.code = call i32 @hpvm.transfer(ptr %c, ptr %to.host, ptr %from.host, i64 %n)
  %stopped = icmp ne i32 %stop.code, 0
  br i1 %stopped, label %failed, label %ok
failed:
  %code = phi i32 [ 2, %0 ], [ %write.code, %write ], [ %stop.code, %transfer ]
  %address = phi i64 [ 0, %0 ], [ %to, %write ], [ 0, %transfer ]
  %bytes = phi i64 [ 0, %0 ], [ %n, %write ], [ 0, %transfer ]
  call void @hpvm.record(ptr %c, i32 %code, i32 %function, i32 %source, i64 %address, i64 %bytes)
  ret i32 1
ok:
  ret i32 0
}

; memory_fill. Status.
define internal i32 @hpvm.fill(ptr %c, i64 %to, i32 %byte, i64 %n, i32 %function, i32 %source) #1 {
  %written = call { ptr, i32 } @hpvm.resolve.store(ptr %c, i64 %to, i64 %n)
  %write.code = extractvalue { ptr, i32 } %written, 1
  %host = extractvalue { ptr, i32 } %written, 0
  %write.bad = icmp ne i32 %write.code, 0
  br i1 %write.bad, label %failed, label %begin
begin:
  %narrow = trunc i32 %byte to i8
  %one = insertelement <16 x i8> poison, i8 %narrow, i64 0
  %all = shufflevector <16 x i8> %one, <16 x i8> poison, <16 x i32> zeroinitializer
  br label %loop
loop:
  %done = phi i64 [ 0, %begin ], [ %end, %tail ]
  %rest = sub i64 %n, %done
  %finished = icmp eq i64 %rest, 0
  br i1 %finished, label %ok, label %check
check:
  %stopped = call i1 @hpvm.stopped(ptr %c)
  br i1 %stopped, label %failed, label %piece
piece:
  %size = call i64 @llvm.umin.i64(i64 %rest, i64 1048576)
  %end = add i64 %done, %size
  %wide = and i64 %size, -16
  %wide.end = add i64 %done, %wide
  br label %wide.loop
wide.loop:
  %i = phi i64 [ %done, %piece ], [ %i.next, %wide.step ]
  %i.more = icmp ult i64 %i, %wide.end
  br i1 %i.more, label %wide.step, label %tail
wide.step:
  %i.p = getelementptr i8, ptr %host, i64 %i
  store <16 x i8> %all, ptr %i.p, align 1
  %i.next = add i64 %i, 16
  br label %wide.loop
tail:
  %t = phi i64 [ %wide.end, %wide.loop ], [ %t.next, %tail.step ]
  %t.more = icmp ult i64 %t, %end
  br i1 %t.more, label %tail.step, label %loop
tail.step:
  %t.p = getelementptr i8, ptr %host, i64 %t
  store i8 %narrow, ptr %t.p
  %t.next = add i64 %t, 1
  br label %tail
failed:
  %code = phi i32 [ %write.code, %0 ], [ 100, %check ]
  %address = phi i64 [ %to, %0 ], [ 0, %check ]
  %bytes = phi i64 [ %n, %0 ], [ 0, %check ]
  call void @hpvm.record(ptr %c, i32 %code, i32 %function, i32 %source, i64 %address, i64 %bytes)
  ret i32 1
ok:
  ret i32 0
}
)";

}  // namespace hpvm::cpu
