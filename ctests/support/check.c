#include "check.h"

#include <stdio.h>
#include <string.h>

static unsigned checks = 0;
static unsigned failures = 0;

static void fail(const char* file, int line, const char* text) {
  failures++;
  fprintf(stderr, "%s:%d: %s\n", file, line, text);
}

void check_true(const char* file, int line, const char* text, int holds) {
  checks++;
  if (!holds) {
    fail(file, line, text);
  }
}

void check_ok(const char* file, int line, const char* text, jfa_status status) {
  checks++;
  if (status != JFA_STATUS_SUCCESS) {
    fail(file, line, text);
    fprintf(stderr, "  failed with %d: %s: %s\n", (int)status, jfa_status_string(status), jfa_last_error());
  }
}

void check_error(const char* file, int line, const char* text, jfa_status status, jfa_status expected,
                 const char* const words[4]) {
  checks++;
  if (status != expected) {
    fail(file, line, text);
    fprintf(stderr, "  returned %d (%s), expected %d (%s); last error: %s\n", (int)status, jfa_status_string(status),
            (int)expected, jfa_status_string(expected), jfa_last_error());
    return;
  }
  for (size_t i = 0; words[i] != NULL; i++) {
    if (strstr(jfa_last_error(), words[i]) == NULL) {
      fail(file, line, text);
      fprintf(stderr, "  \"%s\" is not in the message: %s\n", words[i], jfa_last_error());
    }
  }
}

int check_summary(void) {
  printf("%u checks, %u failed\n", checks, failures);
  return failures == 0 && checks > 0 ? 0 : 1;
}
