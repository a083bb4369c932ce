// SPDX-License-Identifier: Apache-2.0
// The kernel of voronoi.comp for devices that run no shaders.
#include "hpvm.h"

HPVM_KERNEL void voronoi(const int* sites, int* nearest, int* distances, int width, int site_count) {
  int x = hpvm_instance_id(0), y = hpvm_instance_id(1), best = 0, shortest = 0x7fffffff;
  for (int i = 0; i < site_count; ++i) {
    int dx = sites[2 * i] - x, dy = sites[2 * i + 1] - y;
    int far = (dx < 0 ? -dx : dx) + (dy < 0 ? -dy : dy);
    best = far < shortest ? i : best;
    shortest = far < shortest ? far : shortest;
  }
  nearest[y * width + x] = best;
  distances[y * width + x] = shortest;
}
