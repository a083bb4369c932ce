/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of trig.c. */
#ifndef HPVMD_COMPILER_MATH_TRIG_H_
#define HPVMD_COMPILER_MATH_TRIG_H_

double hpvm_sin(double x);
double hpvm_cos(double x);
double hpvm_tan(double x);
float hpvm_sinf(float x);
float hpvm_cosf(float x);
float hpvm_tanf(float x);

#endif /* HPVMD_COMPILER_MATH_TRIG_H_ */
