;; Leaves out of one, two and three blocks, each with its own locals set before.
(module
  (import "hpvm" "instance_id" (func $id (param i32) (result i32)))
  (memory 1)
  (func (export "run") (param $out i32)
    (local $i i32) (local $x i32) (local $y i32)
    (local.set $i (call $id (i32.const 0)))
    (block $a
      (local.set $x (i32.const 1))
      (block $b
        (local.set $y (i32.const 2))
        (block $c
          (br_if $a (i32.eq (i32.rem_u (local.get $i) (i32.const 4)) (i32.const 0)))
          (local.set $x (i32.const 10))
          (br_if $b (i32.eq (i32.rem_u (local.get $i) (i32.const 4)) (i32.const 1)))
          (local.set $y (i32.const 20))
          (br_if $c (i32.eq (i32.rem_u (local.get $i) (i32.const 4)) (i32.const 2)))
          (local.set $x (i32.const 100)))
        (local.set $y (i32.add (local.get $y) (i32.const 1000))))
      (local.set $x (i32.add (local.get $x) (i32.const 5000))))
    (i32.store (i32.add (local.get $out) (i32.shl (local.get $i) (i32.const 2)))
      (i32.add (local.get $x) (i32.mul (local.get $y) (i32.const 100000))))))
