// SPDX-License-Identifier: Apache-2.0
// ThreadSanitizer's options in every program of its preset, including programs that start without the test's
// environment: an executor with a race ends, so that a test notices.

extern "C" {

const char* __tsan_default_options() { return "halt_on_error=1:die_after_fork=0"; }

// Debian's Abseil is built without ThreadSanitizer: a Status' reference count is decremented inside the library, so
// the sanitizer does not see that freeing it happens after all reads.
const char* __tsan_default_suppressions() { return "race:absl::*::Status::Unref\n"; }

}  // extern "C"
