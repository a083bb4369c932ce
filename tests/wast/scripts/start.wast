;; A start function runs once, after the active segments, before anything is called.
(module $started
  (memory (export "memory") 1)
  (data (i32.const 0) "A")
  (global $runs (mut i32) (i32.const 0))
  (func $bump
    (global.set $runs (i32.add (global.get $runs) (i32.const 1)))
    (i32.store8 (i32.const 1) (i32.add (i32.load8_u (i32.const 0)) (i32.const 1))))
  (start $bump)
  (func (export "runs") (result i32) (global.get $runs))
  (func (export "bytes") (result i32) (i32.load (i32.const 0)))
)
(assert_return (invoke "runs") (i32.const 1))
(assert_return (invoke "bytes") (i32.const 0x4241))

;; An imported function may be the start; it may change its own module.
(module $target
  (global $n (mut i32) (i32.const 0))
  (func (export "touch") (global.set $n (i32.add (global.get $n) (i32.const 7))))
  (func (export "n") (result i32) (global.get $n))
)
(register "target" $target)
(module (import "target" "touch" (func $f)) (start $f))
(assert_return (invoke $target "n") (i32.const 7))
(module (import "spectest" "print" (func $f)) (start $f))

;; A start function that traps: the module is of no use, but what it did before stays.
(assert_trap
  (module
    (import "target" "touch" (func $touch))
    (func $main (call $touch) (unreachable))
    (start $main))
  "unreachable")
(assert_return (invoke $target "n") (i32.const 14))
(assert_trap (module (func $main (drop (i32.div_u (i32.const 1) (i32.const 0)))) (start $main)) "integer divide by zero")
(assert_trap (module (func $main (call $main)) (start $main)) "call stack exhausted")
(assert_invalid (module (func $main (param i32)) (start $main)) "start function")
(assert_invalid (module (func $main (result i32) (i32.const 0)) (start $main)) "start function")
(assert_invalid (module (start 1) (func)) "unknown function")
