// SPDX-License-Identifier: Apache-2.0
// The nearest of some sites to a pixel, and its distance. One invocation per pixel.
#version 450

// The group size: constants 0 and 1, which the graph does not set, so that the launcher chooses them.
layout(local_size_x_id = 0, local_size_y_id = 1) in;
// Constant 2, which the graph sets, selects straight distances, or distances along rows and columns.
layout(constant_id = 2) const bool along_streets = false;

// Bindings follow the order of the ports.
layout(set = 0, binding = 0) readonly buffer Sites { ivec2 sites[]; };
layout(set = 0, binding = 1) writeonly buffer Nearest { int nearest[]; };
layout(set = 0, binding = 2) writeonly buffer Distances { int distances[]; };
// Scalars are push constants.
layout(push_constant) uniform Scalars { int width; int site_count; };

void main() {
  ivec2 here = ivec2(gl_GlobalInvocationID.xy);
  int best = 0, shortest = 0x7fffffff;
  for (int i = 0; i < site_count; ++i) {
    ivec2 way = abs(sites[i] - here);
    int squared = way.x * way.x + way.y * way.y;
    int far = along_streets ? way.x + way.y : squared;
    if (far < shortest) {
      best = i;
      shortest = far;
    }
  }
  nearest[here.y * width + here.x] = best;
  distances[here.y * width + here.x] = shortest;
}
