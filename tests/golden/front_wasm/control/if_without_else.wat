;; An if without else that sets a local, and one that leaves the function.
(module
  (import "hpvm" "instance_id" (func $id (param i32) (result i32)))
  (memory 1)
  (func (export "run") (param $out i32)
    (local $i i32) (local $x i32)
    (local.set $i (call $id (i32.const 0)))
    (local.set $x (i32.const 3))
    (if (i32.and (local.get $i) (i32.const 1))
      (then (local.set $x (i32.mul (local.get $i) (i32.const 9)))))
    (if (i32.eq (local.get $i) (i32.const 6)) (then (return)))
    (i32.store (i32.add (local.get $out) (i32.shl (local.get $i) (i32.const 2))) (local.get $x))))
