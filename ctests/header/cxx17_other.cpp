// A second unit with both headers: nothing in them is defined twice.
#include <jfa/jfa.h>

#include <jfa/jfa.hpp>

unsigned version_of_other_unit();
unsigned version_of_other_unit() {
  jfa::check(JFA_STATUS_SUCCESS);
  return jfa_version();
}
