;; Custom sections and names: what they hold never matters, unless a name is not text.
(module
  (func $a-name_with.odd!chars (export "plain") (result i32) (i32.const 1))
  (func (export "with space") (result i32) (i32.const 2))
  (func (export "\u{1F600}\u{304B}") (result i32) (i32.const 3))
  (func (export "\00\01\7f") (result i32) (i32.const 4))
  (func (export "__proto__") (result i32) (i32.const 5))
  (func (export "\22quotes\22 and \5cbackslashes\5c") (result i32) (i32.const 6))
  (func (export "plain ") (result i32) (i32.const 7))
  (func (export "Plain") (result i32) (i32.const 8))
)
(assert_return (invoke "plain") (i32.const 1))
(assert_return (invoke "with space") (i32.const 2))
(assert_return (invoke "\u{1F600}\u{304B}") (i32.const 3))
(assert_return (invoke "\00\01\7f") (i32.const 4))
(assert_return (invoke "__proto__") (i32.const 5))
(assert_return (invoke "\22quotes\22 and \5cbackslashes\5c") (i32.const 6))
(assert_return (invoke "plain ") (i32.const 7))
(assert_return (invoke "Plain") (i32.const 8))

;; A name section that says nothing true: wrong sizes, indices out of range, names twice. It is ignored.
(module binary "\00asm\01\00\00\00"
  "\01\05\01\60\00\01\7f" "\03\02\01\00" "\07\05\01\01f\00\00" "\0a\06\01\04\00\41\2a\0b"
  "\00\0b\04name\01\04\01\63\01x")
(assert_return (invoke "f") (i32.const 42))
(module binary "\00asm\01\00\00\00"
  "\01\05\01\60\00\01\7f" "\03\02\01\00" "\07\05\01\01f\00\00" "\0a\06\01\04\00\41\2b\0b"
  "\00\08\04name\01\ff\ff")
(assert_return (invoke "f") (i32.const 43))
;; Sections that tools write and that do not hold what they say.
(module binary "\00asm\01\00\00\00"
  "\01\05\01\60\00\01\7f" "\03\02\01\00" "\07\05\01\01f\00\00" "\0a\06\01\04\00\41\2c\0b"
  "\00\0c\0b.debug_line" "\00\0e\0b.debug_info\ff\ff" "\00\0c\09producers\ff\ff" "\00\11\10sourceMappingURL")
(assert_return (invoke "f") (i32.const 44))
