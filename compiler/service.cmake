# Measurements of kernels, which devices and the engine write and the zygote keeps.
hpvmd_library(compiler_learnt SOURCES api/cost_record.cc api/tuning_record.cc DEPS base)
hpvmd_test(cost_record_test SOURCES api/cost_record_test.cc DEPS compiler_learnt LABELS fast)
# Definitions that GPU devices and their compilers share.
hpvmd_library(compiler_gpu SOURCES api/gpu_code.cc api/gpu_target.cc DEPS base)
# The engine's side of the compiler: artifacts and the connection to the zygote; free of LLVM and wabt.
hpvmd_library(compiler_service
  SOURCES api/artifact.cc api/artifact_bounds.cc api/service.cc api/variant_text.cc
          api/compile_message.cc
  DEPS base builder kernel_ir compiler_gpu compiler_learnt)
hpvmd_fuzzer(compile_message_fuzz SOURCES api/compile_message_fuzz.cc DEPS compiler_service
  CORPUS ${CMAKE_SOURCE_DIR}/tests/fuzz/compile_message)
hpvmd_test(artifact_test SOURCES api/artifact_test.cc api/variant_text_test.cc DEPS compiler_service LABELS fast)

# The zygote, which contains all code that links LLVM and wabt.
if(TARGET wasm_front)
  find_package(CLI11 REQUIRED)
  hpvmd_library(compiler_driver SOURCES driver/compile.cc driver/compile_native.cc driver/explain.cc
    driver/infer_params.cc
                DEPS base kernel_ir compiler_service kernel_pass llvm_back back_ends source_info source_place wasm_front spirv_front
                     opencl_front)
  if(TARGET kernel_il)
    target_link_libraries(compiler_driver PUBLIC kernel_il)
    target_compile_definitions(compiler_driver PUBLIC HPVMD_HAS_KERNEL_IL=1)
  endif()
  hpvmd_library(compiler_zygote
    SOURCES driver/zygote.cc driver/cache_key.cc driver/zygote_child.cc
    DEPS compiler_driver sandbox)
  hpvmd_binary(hpvm-compiler SOURCES driver/zygote_main.cc DEPS compiler_zygote CLI11::CLI11)
endif()
if(TARGET compiler_driver AND TARGET wasm_front_testing)
  hpvmd_test(compile_test SOURCES driver/compile_test.cc
             DEPS compiler_driver wasm_front_testing spirv_front_testing LABELS fast)
endif()
if(TARGET hpvm-compiler)
  hpvmd_test(zygote_test SOURCES driver/zygote_test.cc DEPS compiler_service spirv_front_testing)
  add_dependencies(zygote_test hpvm-compiler)
  hpvmd_test(cache_key_test SOURCES driver/cache_key_test.cc DEPS compiler_zygote LABELS fast)
endif()
