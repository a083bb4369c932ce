// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_TESTS_SPMD_TIME_LIMIT_H_
#define HPVMD_TESTS_SPMD_TIME_LIMIT_H_

#include <signal.h>
#include <time.h>
#include <unistd.h>

namespace hpvm::spmd {

// Ends this process by SIGALRM after so many seconds of its processor time from now, or ten times as many of real
// time, so that nothing hangs on a busy machine. 0 removes the limit. A forked process has no limit until it sets
// one. Must be called by one thread only.
inline void LimitSeconds(unsigned seconds) {
  static timer_t timer;
  static pid_t owner = 0;
  if (owner != getpid()) {
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGALRM;
    if (timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) != 0) {
      alarm(seconds);
      return;
    }
    owner = getpid();
  }
  itimerspec limit{};
  limit.it_value.tv_sec = seconds;
  timer_settime(timer, 0, &limit, nullptr);
  alarm(10 * seconds);
}

}  // namespace hpvm::spmd

#endif  // HPVMD_TESTS_SPMD_TIME_LIMIT_H_
