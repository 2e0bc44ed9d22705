/* jfa_set_log_callback(). */
#include <jfa/jfa.h>
#include <string.h>

#include "support/check.h"

/* What a callback saw. */
typedef struct {
  int messages;
  int32_t most_detailed;
  int errors;
  int names_head_dim;
  int names_plan;
} seen;

static void record(int32_t level, const char* message, void* user) {
  seen* s = user;
  s->messages++;
  s->most_detailed = level > s->most_detailed ? level : s->most_detailed;
  s->errors += level == 1;
  s->names_head_dim += strstr(message, "head_dim is 7") != NULL;
  s->names_plan += strstr(message, "plan created") != NULL;
}

static jfa_plan_desc description(void) {
  jfa_plan_desc desc = JFA_PLAN_DESC_INIT;
  desc.dtype = JFA_DTYPE_FP32;
  desc.heads_q = desc.heads_kv = 1;
  desc.head_dim = 8;
  return desc;
}

static void succeed(void) {
  const jfa_plan_desc desc = description();
  jfa_plan* plan = NULL;
  CHECK_OK(jfa_plan_create(&desc, &plan));
  jfa_plan_destroy(plan);
}

static void fail(void) {
  jfa_plan_desc desc = description();
  jfa_plan* plan = NULL;
  desc.head_dim = 7;
  CHECK_ERROR(jfa_plan_create(&desc, &plan), JFA_STATUS_INVALID_ARGUMENT, "head_dim is 7");
}

int main(void) {
  seen all = {0};
  seen errors = {0};
  seen none = {0};
  fail(); /* no callback yet */

  CHECK_OK(jfa_set_log_callback(5, record, &all));
  succeed();
  CHECK(all.messages > 0 && all.names_plan == 1 && all.errors == 0);
  CHECK(all.most_detailed >= 4 && all.most_detailed <= 5);
  fail();
  CHECK(all.errors == 1 && all.names_head_dim == 1);

  /* A replaced callback hears nothing more, the new one only its levels. */
  const int before = all.messages;
  CHECK_OK(jfa_set_log_callback(1, record, &errors));
  succeed();
  CHECK(errors.messages == 0);
  fail();
  CHECK(errors.messages == 1 && errors.most_detailed == 1 && errors.names_head_dim == 1);
  CHECK(all.messages == before);

  CHECK_OK(jfa_set_log_callback(0, record, &none));
  fail();
  CHECK(none.messages == 0);
  CHECK_OK(jfa_set_log_callback(5, NULL, &none));
  fail();
  CHECK(none.messages == 0 && errors.messages == 1);

  /* A refused level changes nothing. */
  CHECK_OK(jfa_set_log_callback(1, record, &none));
  CHECK_ERROR(jfa_set_log_callback(6, NULL, NULL), JFA_STATUS_INVALID_ARGUMENT, "level is 6", "0 to 5");
  CHECK_ERROR(jfa_set_log_callback(-1, NULL, NULL), JFA_STATUS_INVALID_ARGUMENT, "level is -1", "0 to 5");
  CHECK(none.messages == 2);
  CHECK_OK(jfa_set_log_callback(0, NULL, NULL));
  return check_summary();
}
