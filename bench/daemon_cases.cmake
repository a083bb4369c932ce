# The cases that need the daemon, the client library and gRPC; included by bench/CMakeLists.txt.
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
set(out ${CMAKE_BINARY_DIR}/generated/bench/service)
set(peer_proto ${CMAKE_CURRENT_SOURCE_DIR}/service/peer.proto)
file(MAKE_DIRECTORY ${out})
add_custom_command(
  OUTPUT ${out}/peer.pb.cc ${out}/peer.pb.h ${out}/peer.grpc.pb.cc ${out}/peer.grpc.pb.h
  COMMAND protobuf::protoc --proto_path=${CMAKE_SOURCE_DIR} --cpp_out=${CMAKE_BINARY_DIR}/generated
          --grpc_out=${CMAKE_BINARY_DIR}/generated --plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin> ${peer_proto}
  DEPENDS ${peer_proto}
  VERBATIM)
add_library(bench_peer_proto STATIC ${out}/peer.pb.cc ${out}/peer.grpc.pb.cc)
target_include_directories(bench_peer_proto SYSTEM PUBLIC ${CMAKE_BINARY_DIR}/generated)
target_compile_options(bench_peer_proto PRIVATE -w)
target_link_libraries(bench_peer_proto PUBLIC gRPC::grpc++ protobuf::libprotobuf)

find_package(SQLite3 REQUIRED)
target_sources(hpvm-bench PRIVATE
  service/connections.cc service/daemon_cases.cc executor_cases.cc service/local_cases.cc service/peer_server.cc
  service/clients.cc service/python_cases.cc service/ring_cases.cc service/ring_echo.cc service/run_calls.cc service/thread_calls.cc service/service.cc service/service_daemon.cc service/service_load.cc service/service_many.cc
  service/service_overload.cc
  service/service_restart.cc service/service_run.cc service/service_setup.cc service/service_sqlite.cc
    service/service_submit.cc
  tenants/tenant_executor.cc tenants/tenants.cc tenants/tenants_memory.cc tenants/tenants_sandbox.cc
    tenants/tenants_share.cc tenants/tenants_spawn.cc)
target_compile_definitions(hpvm-bench PRIVATE HPVMD_BENCH_DAEMON)
target_link_libraries(hpvm-bench PRIVATE hpvm_client executor_link bench_peer_proto absl::synchronization SQLite::SQLite3)
foreach(program hpvmd hpvm-executor hpvm-compiler)
  if(TARGET ${program})
    add_dependencies(hpvm-bench ${program})
  endif()
endforeach()
# Runs every case of `hpvm-bench service` with a few calls: checks the results and the form of the output, not times.
if(TARGET hpvmd AND TARGET hpvm-executor AND TARGET hpvm-compiler)
  add_test(NAME bench_service_check COMMAND /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/service/service_check.py ${CMAKE_BINARY_DIR}/bin)
  set_tests_properties(bench_service_check PROPERTIES TIMEOUT 300)
  add_test(NAME bench_clients_check COMMAND hpvm-bench clients --quick)
  set_tests_properties(bench_clients_check PROPERTIES TIMEOUT 300)
  # Compares the daemon with itself, because a daemon that counts nothing needs another build.
  add_test(NAME bench_connections_check COMMAND hpvm-bench connections --quick --direct $<TARGET_FILE:hpvmd>)
  set_tests_properties(bench_connections_check PROPERTIES TIMEOUT 300)
  add_test(NAME bench_tenants_check COMMAND /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/tenants/tenants_check.py ${CMAKE_BINARY_DIR}/bin)
  set_tests_properties(bench_tenants_check PROPERTIES TIMEOUT 300)
endif()
configure_file(${CMAKE_CURRENT_SOURCE_DIR}/service/python_calls.py ${CMAKE_BINARY_DIR}/bin/python_calls.py COPYONLY)
if(TARGET python_package)
  add_dependencies(hpvm-bench python_package)
endif()
