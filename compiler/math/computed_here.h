/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HPVMD_COMPILER_MATH_COMPUTED_HERE_H_
#define HPVMD_COMPILER_MATH_COMPUTED_HERE_H_

/* The compiler would move what only one side of a branch needs behind the branch. */
#define COMPUTED_HERE(value) __asm__ volatile("" : "+r"(value))

#endif /* HPVMD_COMPILER_MATH_COMPUTED_HERE_H_ */
