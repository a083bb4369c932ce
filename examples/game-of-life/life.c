// SPDX-License-Identifier: Apache-2.0
// One generation of Conway's game of life on a torus; one instance per cell.
#include "hpvm.h"

HPVM_KERNEL void generation(const unsigned char* cells, unsigned char* next, int width, int height) {
  int x = hpvm_instance_id(0), y = hpvm_instance_id(1);
  int left = (x + width - 1) % width, right = (x + 1) % width;
  int above = (y + height - 1) % height * width, here = y * width, below = (y + 1) % height * width;
  int alive = cells[above + left] + cells[above + x] + cells[above + right] + cells[here + left] + cells[here + right] +
              cells[below + left] + cells[below + x] + cells[below + right];
  next[here + x] = alive == 3 || (alive == 2 && cells[here + x]);
}
