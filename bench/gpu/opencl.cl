/* SPDX-License-Identifier: Apache-2.0 */
/* -DEXACT builds the kernels without contraction, as ours are. */
#ifdef EXACT
#pragma OPENCL FP_CONTRACT OFF
#endif
/* OpenCL C has a function named step; PoCL makes no kernel of that name. */
#define step tiny_step
#include "kernels.h"
