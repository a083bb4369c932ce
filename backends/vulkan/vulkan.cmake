# The Vulkan device and its tests. The loader is opened at run time, so that the build needs only the headers.
target_sources(backends PRIVATE
  vulkan/api.cc
  vulkan/buffer.cc
  vulkan/build.cc
  vulkan/clock.cc
  vulkan/context.cc
  vulkan/copy_kernel.cc
  vulkan/device.cc
  vulkan/early_compile.cc
  vulkan/executable.cc
  vulkan/facts.cc
  vulkan/flight.cc
  vulkan/fma_trial.cc
  vulkan/instance.cc
  vulkan/launch.cc
  vulkan/memory.cc
  vulkan/slot.cc
  vulkan/pin.cc
  vulkan/staging.cc
  vulkan/transfer.cc
  vulkan/shaders/watch_loops.cc
  vulkan/writer.cc
  vulkan/shaders/zero_groups.cc)
hpvmd_embed(backends vulkan/fma_trial.spv)
find_package(SPIRV-Tools REQUIRED)
hpvmd_test(vulkan_zero_groups_test SOURCES vulkan/shaders/zero_groups_test.cc DEPS backends LABELS fast)
hpvmd_test(vulkan_early_compile_test SOURCES vulkan/early_compile_test.cc vulkan/testing/shaders.cc
           DEPS backends SPIRV-Tools-static LABELS fast)
hpvmd_test(vulkan_memory_test SOURCES vulkan/memory_test.cc DEPS backends LABELS fast)
hpvmd_test(vulkan_sharing_test SOURCES vulkan/sharing_test.cc DEPS backends LABELS fast)
hpvmd_test(vulkan_device_test SOURCES vulkan/vulkan_device_test.cc vulkan/testing/shaders.cc DEPS backends
  SPIRV-Tools-static
           LABELS fast)
