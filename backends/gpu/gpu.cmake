# What the OpenCL and Vulkan devices share, and their tests.
target_sources(backends PRIVATE
  gpu/dispatch.cc
  gpu/flight_board.cc
  gpu/host_copy.cc
  gpu/lanes.cc
  gpu/speeds.cc
  gpu/submit_thread.cc
  gpu/trap_records.cc)
hpvmd_test(gpu_host_copy_test SOURCES gpu/host_copy_test.cc DEPS backends LABELS fast)
hpvmd_test(gpu_speeds_test SOURCES gpu/speeds_test.cc DEPS backends LABELS fast)
hpvmd_test(gpu_submit_thread_test SOURCES gpu/submit_thread_test.cc DEPS backends LABELS fast)
hpvmd_test(gpu_trap_records_test SOURCES gpu/trap_records_test.cc DEPS backends LABELS fast)
