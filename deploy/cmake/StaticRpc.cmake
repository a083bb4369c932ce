# gRPC, Protocol Buffers and Abseil come as sixty shared libraries. A program that lives for a tenth of a second spends more time on
# mapping and relocating them than on its work. Such programs link the static archives instead (docs/decisions/0041).
#   hpvmd_rpc_libraries(VARIABLE LIBRARY...)   libraries to link: these, or the archives in programs that link archives
#   hpvmd_static_rpc(PROGRAM)                  the program links archives, in release builds

function(hpvmd_rpc_libraries variable)
  list(TRANSFORM ARGN REPLACE "(.+)" "$<IF:$<BOOL:$<TARGET_PROPERTY:HPVMD_STATIC_RPC>>,hpvmd_rpc_archives,\\1>")
  set(${variable} ${ARGN} PARENT_SCOPE)
endfunction()

function(hpvmd_static_rpc program)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Release")
    return()
  endif()
  set_target_properties(${program} PROPERTIES HPVMD_STATIC_RPC ON)
  target_link_options(${program} PRIVATE -Wl,--gc-sections)
  if(TARGET hpvmd_rpc_archives)
    return()
  endif()
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(HPVMD_RPC REQUIRED grpc++ protobuf)
  list(REMOVE_DUPLICATES HPVMD_RPC_STATIC_LIBRARIES)
  set(archives)
  foreach(name IN LISTS HPVMD_RPC_STATIC_LIBRARIES)
    if(name MATCHES "^(absl_.*|grpc.*|gpr|protobuf|upb|cares|address_sorting|re2)$")
      find_library(HPVMD_ARCHIVE_${name} lib${name}.a REQUIRED)
      list(APPEND archives ${HPVMD_ARCHIVE_${name}})
    endif()
  endforeach()
  string(REPLACE ";" "," archives "${archives}")
  add_library(hpvmd_rpc_archives INTERFACE)
  target_link_libraries(hpvmd_rpc_archives INTERFACE "$<LINK_GROUP:RESCAN,${archives}>" ssl crypto z)
endfunction()
