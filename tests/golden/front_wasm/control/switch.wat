;; A br_table over blocks that set different locals, one of which falls through, with repeated and default targets.
(module
  (import "hpvm" "instance_id" (func $id (param i32) (result i32)))
  (memory 1)
  (func (export "run") (param $out i32)
    (local $i i32) (local $x i32) (local $y i32)
    (local.set $i (call $id (i32.const 0)))
    (local.set $x (i32.const 7))
    (block $default
      (block $two
        (block $one
          (block $zero
            (br_table $zero $one $two $one $default (local.get $i)))
          (local.set $x (i32.const 100))
          (br $default))
        (local.set $y (i32.const 200)))
      (local.set $x (i32.add (local.get $x) (i32.const 300))))
    (i32.store (i32.add (local.get $out) (i32.shl (local.get $i) (i32.const 2)))
      (i32.add (local.get $x) (local.get $y)))))
