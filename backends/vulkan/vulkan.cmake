# The Vulkan device and its tests. The loader is opened at run time: only the headers are needed here.
target_sources(backends PRIVATE
  vulkan/api.cc
  vulkan/buffer.cc
  vulkan/build.cc
  vulkan/clock.cc
  vulkan/context.cc
  vulkan/device.cc
  vulkan/executable.cc
  vulkan/facts.cc
  vulkan/flight.cc
  vulkan/instance.cc
  vulkan/launch.cc
  vulkan/memory.cc
  vulkan/slot.cc
  vulkan/staging.cc
  vulkan/transfer.cc
  vulkan/writer.cc)
