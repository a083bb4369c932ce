# Compiler settings, and the three functions that every folder uses:
#   hpvmd_library(NAME SOURCES ... DEPS ... [PRIVATE_DEPS ...])   a static library, included from the repository root
#   hpvmd_binary(NAME SOURCES ... DEPS ...)     a program in bin/
#   hpvmd_test(NAME SOURCES ... DEPS ... [LABELS ...])   a GoogleTest program known to ctest

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Paths below the source folder count as relative, so that clones in different folders share cached objects.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

add_compile_options(-Wall -Wextra -Wno-unused-parameter -fno-omit-frame-pointer)
if(HPVMD_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these inside the standard library and Abseil at -O2 with sanitizers.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized> -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Debian's Abseil is compiled by GCC 12, which omits a template's constraints from its mangled name, as clang did until 17.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fclang-abi-compat=17>)
endif()
if(HPVMD_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=address,undefined)
endif()
if(HPVMD_TSAN)
  # With the compiler's own macro, Protobuf's headers add members to maps that the library lacks, because it is built without the macro.
  add_compile_options(-fsanitize=thread -U__SANITIZE_THREAD__ -DHPVMD_TSAN=1)
  add_link_options(-fsanitize=thread)
  add_library(tsan_options OBJECT ${CMAKE_SOURCE_DIR}/tests/tsan_options.cc)
  link_libraries(tsan_options)
endif()
if(NOT HPVMD_FAILPOINTS)
  add_compile_definitions(HPVMD_NO_FAILPOINTS=1)
endif()
if(HPVMD_MUTANTS)
  add_compile_definitions(HPVMD_MUTANTS=1)
endif()
if(HPVMD_AUDIT_PROOFS)
  add_compile_definitions(HPVMD_AUDIT_PROOFS=1)
endif()
if(HPVMD_FUZZ)
  # These three checks are a quarter of the short build's time. AddressSanitizer notices what `null` would; the dev preset, which builds
  # everything, has all checks.
  add_compile_options(-fno-sanitize=null,vptr,object-size)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
# Build ids identify the build that made a cached file (base/io/build_id.h); some compiler drivers do not request them.
add_link_options(-Wl,--as-needed -Wl,--build-id=sha1)

# LLVM 22 as compiler/ links it (${HPVMD_LLVM}): the shared library, or, for releases, the static libraries that the three targets need,
# which is a third of LLVM.
option(HPVMD_STATIC_LLVM "Link LLVM's static libraries" OFF)
set(HPVMD_LLVM LLVM)
if(HPVMD_STATIC_LLVM)
  set(HPVMD_LLVM LLVMX86CodeGen LLVMX86AsmParser LLVMX86Desc LLVMX86Info LLVMAArch64CodeGen LLVMAArch64AsmParser
                 LLVMAArch64Desc LLVMAArch64Info LLVMNVPTXCodeGen LLVMNVPTXDesc LLVMNVPTXInfo
                 LLVMPasses LLVMLinker LLVMBitReader LLVMBitWriter LLVMAsmParser LLVMIRReader LLVMObject
                 LLVMDebugInfoDWARF LLVMDemangle)
endif()

find_package(Threads REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_package(absl REQUIRED)
if(HPVMD_TESTS)
  find_package(GTest REQUIRED)
else()
  # Test targets exist, but nothing builds them.
  foreach(part gtest gtest_main gmock)
    add_library(GTest::${part} INTERFACE IMPORTED)
  endforeach()
endif()

include(Precompiled)
include(StaticRpc)

# Compiles a target's sources in batches, unless -DHPVMD_BATCHES=OFF, which finds missing includes.
function(hpvmd_batch name)
  get_target_property(folder ${name} SOURCE_DIR)
  get_target_property(sources ${name} SOURCES)
  set(alone)
  set(together)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder} NORMALIZE)
    cmake_path(IS_PREFIX CMAKE_SOURCE_DIR ${source} is_ours)
    cmake_path(IS_PREFIX CMAKE_BINARY_DIR ${source} is_made)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    get_source_file_property(is_alone ${source} HPVMD_ALONE)  # Set where another program replaces this source.
    if(is_ours AND NOT is_made AND NOT definitions AND NOT is_alone AND source MATCHES "\\.cc$")
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
      list(APPEND together ${source})
    else()
      list(APPEND alone ${source})
    endif()
  endforeach()
  execute_process(COMMAND ${Python3_EXECUTABLE} -S ${CMAKE_SOURCE_DIR}/deploy/cmake/batches.py ${CMAKE_SOURCE_DIR}
                          ${CMAKE_CURRENT_BINARY_DIR}/batches/${name} ${together}
                  OUTPUT_VARIABLE batches OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" batches "${batches}")
  set_target_properties(${name} PROPERTIES SOURCES "${alone};${batches}")
endfunction()

# Runs after the directory has been read, because sources are added until then.
function(hpvmd_batch_later name)
  list(LENGTH ARGN count)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE path)
  string(REGEX REPLACE "/.*" "" folder ${path})
  if(HPVMD_BATCHES AND count GREATER 1 AND folder IN_LIST HPVMD_BATCH_FOLDERS)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL hpvmd_batch [[${name}]])")
  endif()
endfunction()

function(hpvmd_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${A_DEPS} PRIVATE ${A_PRIVATE_DEPS})
  hpvmd_precompiled(${name})
  hpvmd_batch_later(${name} ${A_SOURCES})
endfunction()

function(hpvmd_binary name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${A_DEPS})
  hpvmd_precompiled(${name})
  hpvmd_batch_later(${name} ${A_SOURCES})
endfunction()

# hpvmd_embed(TARGET FILE): writes the file's bytes as a list for a C++ initialiser, which is included under the file's name with the ending
# ".inc".
function(hpvmd_embed target file)
  cmake_path(REPLACE_EXTENSION file LAST_ONLY inc OUTPUT_VARIABLE name)
  set(bytes ${CMAKE_CURRENT_BINARY_DIR}/${name})
  cmake_path(GET bytes PARENT_PATH folder)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${bytes}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${CMAKE_CURRENT_SOURCE_DIR}/${file} -DOUTPUT=${bytes}
            -P ${CMAKE_SOURCE_DIR}/deploy/cmake/embed.cmake
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${file} ${CMAKE_SOURCE_DIR}/deploy/cmake/embed.cmake VERBATIM)
  target_sources(${target} PRIVATE ${bytes})
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR})
endfunction()

# A header instead of a definition on the command line: ccache then shares tests that do not use the paths between folders.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/test_paths.h CONTENT
"#define HPVMD_SOURCE_DIR \"${CMAKE_SOURCE_DIR}\"
#define HPVMD_BINARY_DIR \"${CMAKE_BINARY_DIR}/bin\"
")

function(hpvmd_test name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE -include ${CMAKE_BINARY_DIR}/test_paths.h ${HPVMD_TEST_OPTIONS})
  target_link_libraries(${name} PRIVATE ${A_DEPS} GTest::gmock GTest::gtest_main)
  hpvmd_precompiled(${name} test)
  if(NOT HPVMD_TESTS)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS "${A_LABELS}")
  hpvmd_batch_later(${name} ${A_SOURCES})
endfunction()

# Builds every fuzzer and nothing else, for continuous integration.
add_custom_target(fuzzers)

# hpvmd_fuzzer(NAME SOURCES ... DEPS ... CORPUS folder): a libFuzzer program; ctest runs it briefly from the seed corpus.
function(hpvmd_fuzzer name)
  if(NOT HPVMD_FUZZ)
    return()
  endif()
  cmake_parse_arguments(A "" "CORPUS" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers ${name})
  target_link_libraries(${name} PRIVATE ${A_DEPS})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz/corpus/${name})
  add_test(NAME ${name}
           COMMAND ${name} -max_total_time=10 -rss_limit_mb=4096 -timeout=20
                   ${CMAKE_BINARY_DIR}/fuzz/corpus/${name} ${A_CORPUS})
  set_tests_properties(${name} PROPERTIES TIMEOUT 120 LABELS "fuzz")
endfunction()
