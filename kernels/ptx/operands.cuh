// Lists of registers for instructions with many operands: placeholders %0, %1, ... and the operands of an array.
#pragma once

#define JFA_LIST8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define JFA_LIST16 JFA_LIST8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define JFA_LIST32 JFA_LIST16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define JFA_LIST64                                                                                             \
  JFA_LIST32                                                                                                   \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%" \
  "58,%59,%60,%61,%62,%63"

// Elements i, i + 1, ... of `r` with the constraint `c`.
#define JFA_OPERANDS8(c, r, i) \
  c(r[i]), c(r[i + 1]), c(r[i + 2]), c(r[i + 3]), c(r[i + 4]), c(r[i + 5]), c(r[i + 6]), c(r[i + 7])
#define JFA_OPERANDS16(c, r, i) JFA_OPERANDS8(c, r, i), JFA_OPERANDS8(c, r, i + 8)
#define JFA_OPERANDS32(c, r, i) JFA_OPERANDS16(c, r, i), JFA_OPERANDS16(c, r, i + 16)
#define JFA_OPERANDS64(c, r, i) JFA_OPERANDS32(c, r, i), JFA_OPERANDS32(c, r, i + 32)
