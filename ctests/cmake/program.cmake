# A program finds jfa by its soname, not by the path where it was linked.
# Arguments: PROGRAM, SOVERSION, READELF.

execute_process(COMMAND "${READELF}" -d "${PROGRAM}" OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
if(NOT dynamic MATCHES "\\(NEEDED\\)[^\n]*\\[libjfa\\.so\\.${SOVERSION}\\]")
  message(FATAL_ERROR "the program does not need libjfa.so.${SOVERSION}:\n${dynamic}")
endif()
