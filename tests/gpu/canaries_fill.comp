// SPDX-License-Identifier: Apache-2.0
// The same for Vulkan drivers; build.sh makes canaries_fill.spv of it.
#version 450
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) buffer Out { uint data[]; } result;
shared uint memory[4096];
void main() {
  for (uint i = gl_LocalInvocationID.x; i < 4096; i += 64) {
    memory[i] = 0xc0ffee11u;
  }
  barrier();
  result.data[gl_GlobalInvocationID.x] = memory[(gl_LocalInvocationID.x * 37) % 4096];
}
