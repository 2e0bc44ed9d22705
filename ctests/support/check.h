/* The checks that the test programs share. A failed one is printed and counted; the program goes on. */
#ifndef JFA_TEST_CHECK_H
#define JFA_TEST_CHECK_H

#include <jfa/jfa.h>
#include <stddef.h>

/* Checks that `condition` holds. */
#define CHECK(condition) check_true(__FILE__, __LINE__, #condition, (condition) ? 1 : 0)

/* Checks that `call` succeeds. */
#define CHECK_OK(call) check_ok(__FILE__, __LINE__, #call, (call))

/* Checks that `call` fails with `status` and that jfa_last_error() contains each of the words, at most three. */
#define CHECK_ERROR(call, status, ...) \
  check_error(__FILE__, __LINE__, #call, (call), (status), (const char* [4]){__VA_ARGS__, NULL})

void check_true(const char* file, int line, const char* text, int holds);
void check_ok(const char* file, int line, const char* text, jfa_status status);
void check_error(const char* file, int line, const char* text, jfa_status status, jfa_status expected,
                 const char* const words[4]);

/* Prints how many checks ran and failed; returns the exit status of the program. */
int check_summary(void);

#endif
