# Code that the OpenCL and Vulkan devices share, and its tests.
target_sources(backends PRIVATE
  gpu/arrivals.cc
  gpu/defect_probe.cc
  gpu/dispatch.cc
  gpu/flight_board.cc
  gpu/host_copy.cc
  gpu/known_defects.cc
  gpu/known_words.cc
  gpu/lanes.cc
  gpu/near_cpus.cc
  gpu/small_copies.cc
  gpu/speeds.cc
  gpu/staging_ring.cc
  gpu/submit_thread.cc
  gpu/timed_groups.cc
  gpu/trap_records.cc)
# Our emitters write the kernels that test drivers for their defects.
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/gpu)
add_custom_command(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/gpu/probe_code.inc
  COMMAND hpvm-probe-code ${CMAKE_CURRENT_BINARY_DIR}/gpu/probe_code.inc
  DEPENDS hpvm-probe-code VERBATIM)
target_sources(backends PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/gpu/probe_code.inc)
hpvmd_embed(backends gpu/branch_barrier.bc)
hpvmd_embed(backends gpu/wrap_shader.spv)
hpvmd_test(gpu_known_defects_test SOURCES gpu/known_defects_test.cc DEPS backends compiler_service LABELS fast)
hpvmd_test(gpu_known_words_test SOURCES gpu/known_words_test.cc DEPS backends LABELS fast)
hpvmd_test(gpu_host_copy_test SOURCES gpu/host_copy_test.cc DEPS backends LABELS fast)
hpvmd_test(gpu_near_cpus_test SOURCES gpu/near_cpus_test.cc DEPS backends LABELS fast)
hpvmd_test(gpu_small_copies_test SOURCES gpu/small_copies_test.cc DEPS backends LABELS fast)
hpvmd_test(gpu_speeds_test SOURCES gpu/speeds_test.cc DEPS backends LABELS fast)
hpvmd_test(gpu_staging_ring_test SOURCES gpu/staging_ring_test.cc DEPS backends LABELS fast)
hpvmd_test(gpu_submit_thread_test SOURCES gpu/submit_thread_test.cc DEPS backends LABELS fast)
hpvmd_test(gpu_timed_groups_test SOURCES gpu/timed_groups_test.cc DEPS backends LABELS fast)
hpvmd_test(gpu_trap_records_test SOURCES gpu/trap_records_test.cc DEPS backends LABELS fast)
