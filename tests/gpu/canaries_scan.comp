// SPDX-License-Identifier: Apache-2.0
// build.sh makes canaries_scan.spv of it.
#version 450
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) buffer Out { uint data[]; } result;
shared uint memory[4096];
void main() {
  uint count = 0;
  for (uint i = gl_LocalInvocationID.x; i < 4096; i += 64) {
    count += memory[i] != 0 ? 1 : 0;
  }
  result.data[gl_GlobalInvocationID.x] = count;
}
