# Devices behind OpenCL drivers. The loader (libOpenCL.so.1) is linked; it finds drivers at run time, and a machine may
# have none.
find_package(OpenCL REQUIRED)
target_sources(backends PRIVATE
  opencl/buffer.cc
  opencl/build.cc
  opencl/cl.cc
  opencl/device.cc
  opencl/executable.cc
  opencl/fill.cc
  opencl/flight.cc
  opencl/flight_finish.cc
  opencl/health.cc
  opencl/kernel_check.cc
  opencl/platform.cc
  opencl/program.cc
  opencl/queue.cc
  opencl/staging.cc
  opencl/traps.cc)
target_link_libraries(backends PRIVATE OpenCL::OpenCL)
hpvmd_test(opencl_device_test SOURCES opencl/opencl_device_test.cc DEPS backends LABELS fast)
target_link_libraries(opencl_device_test PRIVATE OpenCL::OpenCL)
hpvmd_test(opencl_launch_calls_test SOURCES opencl/launch_calls_test.cc DEPS backends LABELS fast)
target_link_libraries(opencl_launch_calls_test PRIVATE OpenCL::OpenCL)
