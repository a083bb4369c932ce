# The engine's side of the compiler: artifacts and the connection to the zygote. Neither LLVM nor wabt.
hpvmd_library(compiler_service SOURCES artifact.cc service.cc zygote_wire.cc DEPS base kernel_ir)
hpvmd_test(artifact_test SOURCES artifact_test.cc DEPS compiler_service LABELS fast)
