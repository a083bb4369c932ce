# Compiles headers that most sources read once (deploy/cmake/precompiled), which halves clang's work on a source that reads gRPC's or
# GoogleTest's headers. GCC gains nothing: it maps and relocates hundreds of megabytes for each source. Sources still include what they use:
# the presets `clang` and `gcc`, which compile each source separately and without this, find missing includes.

option(HPVMD_PRECOMPILED "Compile common headers once (clang only)" ON)
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(HPVMD_PRECOMPILED OFF)
endif()
if(HPVMD_PRECOMPILED)
  # Lets ccache recognise unchanged headers.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
  # With a precompiled header clang reports the standard library's own uses of deprecated declarations.
  add_compile_options(-pthread $<$<COMPILE_LANGUAGE:CXX>:-Wno-deprecated-declarations>)
  # Programs and libraries are compiled alike, so that they share one form of the headers.
  set(CMAKE_CXX_COMPILE_OPTIONS_PIE -fPIC)
endif()

# Folders whose sources read gRPC's headers.
set(HPVMD_RPC_FOLDERS server client)

# Optimising tests would take longer than it would save at run time.
set(HPVMD_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)

# hpvmd_precompiled(TARGET [test]): the target's C++ sources begin with the precompiled header of its kind.
function(hpvmd_precompiled name)
  if(NOT HPVMD_PRECOMPILED)
    return()
  endif()
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE path)
  string(REGEX REPLACE "/.*" "" folder ${path})
  set(kind)
  set(libraries)
  if(folder IN_LIST HPVMD_RPC_FOLDERS AND TARGET proto_v1)
    list(APPEND kind rpc)
    list(APPEND libraries proto_v1)
  endif()
  if("test" IN_LIST ARGN)
    list(APPEND kind test)
    list(APPEND libraries GTest::gmock GTest::gtest)
  endif()
  string(REPLACE ";" "_" kind "${kind}")
  if(NOT kind)
    set(kind std)
  endif()
  if(NOT TARGET precompiled_${kind})
    set(source ${CMAKE_BINARY_DIR}/precompiled_${kind}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "// Holds nothing: what is wanted of its target is its header.\n")
    add_library(precompiled_${kind} OBJECT ${source})
    target_include_directories(precompiled_${kind} PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(precompiled_${kind} PRIVATE ${libraries} absl::statusor Threads::Threads)
    if("test" IN_LIST ARGN)
      target_compile_options(precompiled_${kind} PRIVATE ${HPVMD_TEST_OPTIONS})
    endif()
    target_precompile_headers(precompiled_${kind} PRIVATE ${CMAKE_SOURCE_DIR}/deploy/cmake/precompiled/${kind}.h)
  endif()
  target_precompile_headers(${name} REUSE_FROM precompiled_${kind})
endfunction()
