// SPDX-License-Identifier: Apache-2.0
// The same kernels as a tenant writes them for the device's own compiler: none of our code is between them and the memory.
#define LOCAL_WORDS 8192

__kernel void fill_group(__global uint* out, int value) {
  __local volatile uint memory[LOCAL_WORDS];
  for (uint i = get_local_id(0); i < LOCAL_WORDS; i += get_local_size(0)) {
    memory[i] = (uint)value;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  out[get_global_id(0)] = memory[(get_local_id(0) * 37) % LOCAL_WORDS];
}

__kernel void scan_group(__global uint* out) {
  __local volatile uint memory[LOCAL_WORDS];
  uint count = 0;
  for (uint i = get_local_id(0); i < LOCAL_WORDS; i += get_local_size(0)) {
    count += memory[i] != 0;
  }
  out[get_global_id(0)] = count;
}
