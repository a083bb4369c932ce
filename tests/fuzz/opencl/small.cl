-DA=1 -cl-std=CL1.2
#define B(x) x##1
#pragma unroll 4
/* c */ kernel void k(global int* a, int n) { a[0] = n + %:1; } // \
#include
