/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of exp_log.c. */
#ifndef HPVMD_COMPILER_MATH_EXP_LOG_H_
#define HPVMD_COMPILER_MATH_EXP_LOG_H_

float hpvm_expf(float x);
float hpvm_exp2f(float x);
float hpvm_logf(float x);
float hpvm_log2f(float x);

#endif /* HPVMD_COMPILER_MATH_EXP_LOG_H_ */
