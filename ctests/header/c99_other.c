/* A second unit with the header, after CUDA's own declaration of its stream. */
typedef struct CUstream_st* CUstream;
#include <jfa/jfa.h>

uint32_t version_of_other_unit(void);
uint32_t version_of_other_unit(void) {
  CUstream stream = NULL;
  jfa_stream same = stream;
  return same == NULL ? jfa_version() : 0;
}
