// SPDX-License-Identifier: Apache-2.0
// One step of bodies that attract each other. One instance per body; the instances of a group read the others tile by
// tile through memory that the group shares, so that a group reads each position once.
#include "hpvm.h"

enum { kTile = 64 };  // The group size of the graph's node.

// A position has x, y, z and the mass; a velocity has x, y, z and an unused element.
HPVM_KERNEL void step(const hpvm_f32x4* positions, const hpvm_f32x4* velocities, hpvm_f32x4* positions_next,
                      hpvm_f32x4* velocities_next, int count, float time, float softening) {
  hpvm_f32x4* tile = hpvm_local_alloc(kTile * sizeof(hpvm_f32x4));
  int i = hpvm_instance_id(0), lane = hpvm_local_id(0);
  hpvm_f32x4 here = positions[i];
  float ax = 0, ay = 0, az = 0;
  for (int first = 0; first < count; first += kTile) {
    tile[lane] = positions[first + lane];
    hpvm_barrier();  // The tile is complete.
    for (int j = 0; j < kTile; ++j) {
      float dx = tile[j].x - here.x, dy = tile[j].y - here.y, dz = tile[j].z - here.z;
      float near = 1 / __builtin_sqrtf(((dx * dx + dy * dy) + dz * dz) + softening);
      float pull = tile[j].w * ((near * near) * near);
      ax += dx * pull;
      ay += dy * pull;
      az += dz * pull;
    }
    hpvm_barrier();  // All instances have read the tile.
  }
  hpvm_f32x4 velocity = velocities[i];
  velocity.x += ax * time;
  velocity.y += ay * time;
  velocity.z += az * time;
  here.x += velocity.x * time;
  here.y += velocity.y * time;
  here.z += velocity.z * time;
  velocities_next[i] = velocity;
  positions_next[i] = here;
}
