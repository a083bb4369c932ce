// SPDX-License-Identifier: Apache-2.0
// How ThreadSanitizer behaves in every program of its preset, those too that start without the test's environment: an
// executor in which it finds a race ends, so that a test notices.

extern "C" {

const char* __tsan_default_options() { return "halt_on_error=1:die_after_fork=0"; }

// Debian's Abseil is built without ThreadSanitizer: the count of a Status' copies is taken down inside the library, so
// that the sanitizer does not see that whoever frees it comes after all who read it.
const char* __tsan_default_suppressions() { return "race:absl::*::Status::Unref\n"; }

}  // extern "C"
