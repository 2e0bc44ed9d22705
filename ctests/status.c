/* jfa_version(), jfa_status_string(), jfa_last_error(). */
#include <jfa/jfa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

#include "support/check.h"

/* The version that the build files say, as text. */
static void version(const char* expected) {
  char text[32];
  snprintf(text, sizeof(text), "%d.%d.%d", JFA_VERSION_MAJOR, JFA_VERSION_MINOR, JFA_VERSION_PATCH);
  CHECK(strcmp(text, expected) == 0);
  CHECK(jfa_version() == JFA_VERSION);
  CHECK(jfa_version() == JFA_VERSION_MAJOR * 10000 + JFA_VERSION_MINOR * 100 + JFA_VERSION_PATCH);
}

static void status_strings(void) {
  CHECK(strcmp(jfa_status_string(JFA_STATUS_SUCCESS), "success") == 0);
  for (int32_t a = JFA_STATUS_SUCCESS; a <= JFA_STATUS_INTERNAL; a++) {
    CHECK(strlen(jfa_status_string(a)) > 0 && strcmp(jfa_status_string(a), "unknown status") != 0);
    CHECK(jfa_status_string(a) == jfa_status_string(a));
    for (int32_t b = JFA_STATUS_SUCCESS; b < a; b++) {
      CHECK(strcmp(jfa_status_string(a), jfa_status_string(b)) != 0);
    }
  }
  CHECK(strcmp(jfa_status_string(JFA_STATUS_INTERNAL + 1), "unknown status") == 0);
  CHECK(strcmp(jfa_status_string(-1), "unknown status") == 0);
  CHECK(strcmp(jfa_status_string(INT32_MAX), "unknown status") == 0);
}

/* Fails with a message that holds `level`. */
static void fail(int32_t level) { CHECK(jfa_set_log_callback(level, NULL, NULL) == JFA_STATUS_INVALID_ARGUMENT); }

static int other_thread(void* unused) {
  (void)unused;
  const int empty = jfa_last_error()[0] == '\0';
  const int failed = jfa_set_log_callback(222, NULL, NULL) == JFA_STATUS_INVALID_ARGUMENT;
  return empty && failed && strstr(jfa_last_error(), "222") != NULL;
}

static void last_error(void) {
  CHECK(strcmp(jfa_last_error(), "") == 0);
  fail(111);
  CHECK(strstr(jfa_last_error(), "level is 111") != NULL);
  /* Success leaves the text, and so does another thread. */
  CHECK_OK(jfa_set_log_callback(0, NULL, NULL));
  CHECK(strstr(jfa_last_error(), "level is 111") != NULL);
  thrd_t thread;
  int result = 0;
  if (thrd_create(&thread, other_thread, NULL) != thrd_success || thrd_join(thread, &result) != thrd_success) {
    abort();
  }
  CHECK(result);
  CHECK(strstr(jfa_last_error(), "level is 111") != NULL);
  fail(-9);
  CHECK(strstr(jfa_last_error(), "level is -9") != NULL);
}

int main(void) {
  last_error();
  version(EXPECTED_VERSION);
  status_strings();
  return check_summary();
}
