; SPDX-License-Identifier: Apache-2.0
; Functions that every image carries if it uses them: the search of an address, dirty granules, the trap record, copies
; and fills, and the search for several lanes. Offsets and codes are CpuContext's and TrapCode's, as helpers.cc asserts.
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

; What lies at [a, a + w), w 1, 2, 4 or 8, zero-extended: {bits, 0} or {-, trap code}. A function of its own, so that
; LLVM cannot merge this load with the fast path's into one through a pointer that it would have to compute on both
; paths.
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

; The search for several lanes: those whose bits are set in %lanes, in order, at the addresses in an array, with values
; of 8 bytes (16 for load128 and store128) in another. {0, -} or {trap code, lane}. Each width has functions of its own:
; an image carries those that it uses.
define internal { i32, i32 } @hpvm.gang.load(ptr %c, ptr %addresses, i64 %lanes, ptr %values, i64 %w) #1 {
  br label %loop
loop:
  %rest = phi i64 [ %lanes, %0 ], [ %rest.next, %hit ]
  %none = icmp eq i64 %rest, 0
  br i1 %none, label %done, label %one
one:
  %lane = call i64 @llvm.cttz.i64(i64 %rest, i1 true)
  %address.p = getelementptr i64, ptr %addresses, i64 %lane
  %address = load i64, ptr %address.p
  %found = call { i64, i32 } @hpvm.load(ptr %c, i64 %address, i64 %w)
  %code = extractvalue { i64, i32 } %found, 1
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %miss, label %hit
hit:
  %value = extractvalue { i64, i32 } %found, 0
  %value.p = getelementptr i64, ptr %values, i64 %lane
  store i64 %value, ptr %value.p
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

define internal { i32, i32 } @hpvm.gang.load128(ptr %c, ptr %addresses, i64 %lanes, ptr %values) #1 {
  br label %loop
loop:
  %rest = phi i64 [ %lanes, %0 ], [ %rest.next, %hit ]
  %none = icmp eq i64 %rest, 0
  br i1 %none, label %done, label %one
one:
  %lane = call i64 @llvm.cttz.i64(i64 %rest, i1 true)
  %address.p = getelementptr i64, ptr %addresses, i64 %lane
  %address = load i64, ptr %address.p
  %found = call { i64, i64, i32 } @hpvm.load128(ptr %c, i64 %address)
  %code = extractvalue { i64, i64, i32 } %found, 2
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %miss, label %hit
hit:
  %low = extractvalue { i64, i64, i32 } %found, 0
  %high = extractvalue { i64, i64, i32 } %found, 1
  %low.p = getelementptr [16 x i8], ptr %values, i64 %lane
  store i64 %low, ptr %low.p
  %high.p = getelementptr i8, ptr %low.p, i64 8
  store i64 %high, ptr %high.p
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

define internal { i32, i32 } @hpvm.gang.store(ptr %c, ptr %addresses, i64 %lanes, ptr %values, i64 %w) #1 {
  br label %loop
loop:
  %rest = phi i64 [ %lanes, %0 ], [ %rest.next, %next ]
  %none = icmp eq i64 %rest, 0
  br i1 %none, label %done, label %one
one:
  %lane = call i64 @llvm.cttz.i64(i64 %rest, i1 true)
  %address.p = getelementptr i64, ptr %addresses, i64 %lane
  %address = load i64, ptr %address.p
  %found = call { ptr, i32 } @hpvm.gang.resolve(ptr %c, i64 %address, i64 %w)
  %host = extractvalue { ptr, i32 } %found, 0
  %code = extractvalue { ptr, i32 } %found, 1
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %miss, label %hit
hit:
  %value.p = getelementptr i64, ptr %values, i64 %lane
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
next:
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

define internal { i32, i32 } @hpvm.gang.store128(ptr %c, ptr %addresses, i64 %lanes, ptr %values) #1 {
  br label %loop
loop:
  %rest = phi i64 [ %lanes, %0 ], [ %rest.next, %hit ]
  %none = icmp eq i64 %rest, 0
  br i1 %none, label %done, label %one
one:
  %lane = call i64 @llvm.cttz.i64(i64 %rest, i1 true)
  %address.p = getelementptr i64, ptr %addresses, i64 %lane
  %address = load i64, ptr %address.p
  %found = call { ptr, i32 } @hpvm.gang.resolve(ptr %c, i64 %address, i64 16)
  %host = extractvalue { ptr, i32 } %found, 0
  %code = extractvalue { ptr, i32 } %found, 1
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %miss, label %hit
hit:
  %low.p = getelementptr [16 x i8], ptr %values, i64 %lane
  %low = load i64, ptr %low.p
  %high.p = getelementptr i8, ptr %low.p, i64 8
  %high = load i64, ptr %high.p
  store i64 %low, ptr %host, align 1
  %host.high = getelementptr i8, ptr %host, i64 8
  store i64 %high, ptr %host.high, align 1
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

declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.umin.i64(i64, i64)

attributes #0 = { cold noinline nounwind willreturn memory(read) "no-builtins" "probe-stack"="inline-asm" }
attributes #1 = { cold noinline nounwind "no-builtins" "probe-stack"="inline-asm" }
attributes #2 = { alwaysinline nounwind "no-builtins" }
