;; Binary modules that cannot be read, each with one fault; and some that look odd but are well formed.
(module binary "\00asm\01\00\00\00")
;; Numbers may be longer than they need be, up to their width.
(module binary "\00asm\01\00\00\00" "\05\07\01\00\82\80\80\80\00")
;; An unknown custom section, an empty one but for its name, anywhere.
(module binary "\00asm\01\00\00\00" "\00\06\03abcde" "\01\04\01\60\00\00" "\00\01\00" "\03\02\01\00" "\0a\04\01\02\00\0b" "\00\02\01z")
;; Sections with no entries.
(module binary "\00asm\01\00\00\00" "\01\01\00" "\02\01\00" "\03\01\00" "\04\01\00" "\05\01\00" "\06\01\00" "\07\01\00" "\09\01\00" "\0a\01\00" "\0b\01\00")

;; The header.
(assert_malformed (module binary "") "unexpected end")
(assert_malformed (module binary "\00") "unexpected end")
(assert_malformed (module binary "\00as") "unexpected end")
(assert_malformed (module binary "asm\00") "magic header not detected")
(assert_malformed (module binary "\00asm") "unexpected end")
(assert_malformed (module binary "\00asm\01\00\00") "unexpected end")
(assert_malformed (module binary "\00asm\02\00\00\00") "unknown binary version")
(assert_malformed (module binary "\00asm\01\00\00\01") "unknown binary version")
(assert_malformed (module binary "\7fELF\01\00\00\00") "magic header not detected")

;; Sections: unknown, out of order, twice, too long, too short.
(assert_malformed (module binary "\00asm\01\00\00\00" "\0d\00") "malformed section id")
(assert_malformed (module binary "\00asm\01\00\00\00" "\7f\01\00") "malformed section id")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01") "unexpected end")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\01") "length out of bounds")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\05\01\60\00\00") "length out of bounds")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\04\00\60\00\00") "section size mismatch")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\03\01\60\00\00") "unexpected end")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\01\00" "\01\01\00") "unexpected content after last section")
(assert_malformed (module binary "\00asm\01\00\00\00" "\05\03\01\00\00" "\04\04\01\70\00\00") "unexpected content after last section")
(assert_malformed (module binary "\00asm\01\00\00\00" "\00") "unexpected end")
(assert_malformed (module binary "\00asm\01\00\00\00" "\00\00") "unexpected end")
(assert_malformed (module binary "\00asm\01\00\00\00" "\00\02\05a") "unexpected end")

;; Numbers too long or too large.
(assert_malformed (module binary "\00asm\01\00\00\00" "\05\08\01\00\82\80\80\80\80\00") "integer representation too long")
(assert_malformed (module binary "\00asm\01\00\00\00" "\05\07\01\00\82\80\80\80\10") "integer too large")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\85\80\80\80\80\00") "integer representation too long")
(assert_malformed (module binary "\00asm\01\00\00\00" "\06\0a\01\7f\00\41\80\80\80\80\10\0b") "integer too large")
(assert_malformed (module binary "\00asm\01\00\00\00" "\06\0a\01\7f\00\41\ff\ff\ff\ff\4f\0b") "integer too large")
(assert_malformed (module binary "\00asm\01\00\00\00" "\06\0f\01\7e\00\42\80\80\80\80\80\80\80\80\80\01\0b") "integer too large")
(module binary "\00asm\01\00\00\00" "\06\0a\01\7f\00\41\ff\ff\ff\ff\7f\0b")

;; Types.
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\04\01\40\00\00") "integer representation too long")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\05\01\60\01\00\00") "malformed value type")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\05\01\60\01\6e\00") "malformed value type")
(assert_malformed (module binary "\00asm\01\00\00\00" "\04\04\01\7f\00\00") "malformed reference type")
(assert_malformed (module binary "\00asm\01\00\00\00" "\04\04\01\70\08\00") "malformed limits flags")
(assert_malformed (module binary "\00asm\01\00\00\00" "\05\03\01\10\00") "malformed limits flags")
(assert_malformed (module binary "\00asm\01\00\00\00" "\06\06\01\7f\02\41\00\0b") "malformed mutability")

;; Imports and exports.
(assert_malformed (module binary "\00asm\01\00\00\00" "\02\05\01\01a\01b") "unexpected end")
(assert_malformed (module binary "\00asm\01\00\00\00" "\02\07\01\01a\01b\05\00") "malformed import kind")
(assert_malformed (module binary "\00asm\01\00\00\00" "\02\08\01\02\ff\41\01b\03\7f") "malformed UTF-8 encoding")
(assert_malformed (module binary "\00asm\01\00\00\00" "\02\09\01\01a\02\c0\80\03\7f\00") "malformed UTF-8 encoding")
(assert_malformed (module binary "\00asm\01\00\00\00" "\05\03\01\00\00" "\07\05\01\01a\07\00") "malformed export kind")
(assert_malformed (module binary "\00asm\01\00\00\00" "\05\03\01\00\00" "\07\07\01\03\ed\a0\80\02\00") "malformed UTF-8 encoding")
(assert_malformed (module binary "\00asm\01\00\00\00" "\00\03\02\c3\28") "malformed UTF-8 encoding")

;; Functions without code, code without functions.
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\04\01\60\00\00" "\03\02\01\00") "function and code section have inconsistent lengths")
(assert_malformed (module binary "\00asm\01\00\00\00" "\0a\04\01\02\00\0b") "function and code section have inconsistent lengths")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\04\01\60\00\00" "\03\03\02\00\00" "\0a\04\01\02\00\0b") "function and code section have inconsistent lengths")

;; Bodies: without an end, with something after it, too short, with too many locals, with unknown instructions.
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\04\01\60\00\00" "\03\02\01\00" "\0a\04\01\02\00\01") "END opcode expected")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\04\01\60\00\00" "\03\02\01\00" "\0a\06\01\04\00\0b\01\0b") "section size mismatch")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\04\01\60\00\00" "\03\02\01\00" "\0a\06\01\04\00\02\40\0b") "END opcode expected")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\04\01\60\00\00" "\03\02\01\00" "\0a\04\01\03\00\0b") "unexpected end")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\04\01\60\00\00" "\03\02\01\00" "\0a\10\01\0e\02\ff\ff\ff\ff\0f\7f\ff\ff\ff\ff\0f\7e\0b") "too many locals")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\04\01\60\00\00" "\03\02\01\00" "\0a\05\01\03\00\ff\0b") "illegal opcode")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\04\01\60\00\00" "\03\02\01\00" "\0a\06\01\04\00\fc\7f\0b") "illegal opcode")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\04\01\60\00\00" "\03\02\01\00" "\0a\05\01\03\00\05\0b") "END opcode expected")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\04\01\60\00\00" "\03\02\01\00" "\05\03\01\00\01" "\0a\08\01\06\00\3f\01\1a\01\0b") "zero byte expected")
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\04\01\60\00\00" "\03\02\01\00" "\0a\05\01\03\00\41\80") "unexpected end")

;; Segments.
(assert_malformed (module binary "\00asm\01\00\00\00" "\05\03\01\00\01" "\0b\06\01\03\41\00\0b\00") "malformed data segment kind")
(assert_malformed (module binary "\00asm\01\00\00\00" "\05\03\01\00\01" "\0b\07\01\00\41\00\0b\05a") "unexpected end")
(assert_malformed (module binary "\00asm\01\00\00\00" "\05\03\01\00\01" "\0c\01\02" "\0b\06\01\00\41\00\0b\00") "data count and data section have inconsistent lengths")
(assert_malformed (module binary "\00asm\01\00\00\00" "\05\03\01\00\01" "\0c\01\01") "data count and data section have inconsistent lengths")
(assert_malformed (module binary "\00asm\01\00\00\00" "\04\04\01\70\00\01" "\09\06\01\08\41\00\0b\00") "malformed elements segment kind")
;; memory.init and data.drop need the data count section.
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\04\01\60\00\00" "\03\02\01\00" "\05\03\01\00\01" "\0a\07\01\05\00\fc\09\00\0b" "\0b\03\01\01\00") "data count section required")
;; An initial value that does not end within its section.
(assert_malformed (module binary "\00asm\01\00\00\00" "\01\04\01\60\00\00" "\03\02\01\00" "\06\05\01\7f\00\41\00" "\0a\04\01\02\00\0b") "unexpected end")
