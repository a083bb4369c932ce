/* SPDX-License-Identifier: Apache-2.0 */
/* -DEXACT builds the kernels without contraction, as ours are. */
#ifdef EXACT
#pragma OPENCL FP_CONTRACT OFF
#endif
#include "kernels.h"
