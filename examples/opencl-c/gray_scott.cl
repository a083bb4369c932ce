// SPDX-License-Identifier: Apache-2.0
// One step of Gray and Scott's reaction: v consumes u, u is fed, v decays, both diffuse. One work item per cell of a
// torus. A group first loads its cells, and the cells around them, into local memory.
// The module's "options" in the graph define FEED and DECAY.
#pragma OPENCL FP_CONTRACT OFF

#define SIDE 16  // The group size of the graph's node.
#define PADDED (SIDE + 2)

float diffused(local const float* tile, int at) {
  return ((tile[at - 1] + tile[at + 1]) + (tile[at - PADDED] + tile[at + PADDED])) - 4.0f * tile[at];
}

kernel void gray_scott(global const float* u, global const float* v, global float* u_next, global float* v_next,
                       int width, int height) {
  local float tile_u[PADDED * PADDED], tile_v[PADDED * PADDED];
  int left = (int)get_group_id(0) * SIDE - 1, top = (int)get_group_id(1) * SIDE - 1;
  for (int i = get_local_id(1) * SIDE + get_local_id(0); i < PADDED * PADDED; i += SIDE * SIDE) {
    int x = (left + i % PADDED + width) % width, y = (top + i / PADDED + height) % height;
    tile_u[i] = u[y * width + x];
    tile_v[i] = v[y * width + x];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  int at = (get_local_id(1) + 1) * PADDED + get_local_id(0) + 1;
  float a = tile_u[at], b = tile_v[at], eaten = a * b * b;
  int cell = get_global_id(1) * width + get_global_id(0);
  u_next[cell] = a + (0.16f * diffused(tile_u, at) - eaten + FEED * (1.0f - a));
  v_next[cell] = b + (0.08f * diffused(tile_v, at) + eaten - (FEED + DECAY) * b);
}
