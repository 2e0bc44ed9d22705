# Builds a program with what pkg-config says, and runs it.
# Arguments: PC_FILE, COMPILER, SOURCE, PROGRAM.

find_program(pkg_config NAMES pkg-config pkgconf)
if(NOT pkg_config)
  message("not run: there is no pkg-config")
  return()
endif()
get_filename_component(folder "${PC_FILE}" DIRECTORY)
set(ENV{PKG_CONFIG_PATH} "${folder}")
execute_process(COMMAND "${pkg_config}" --cflags --libs jfa OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${pkg_config}" --variable=libdir jfa OUTPUT_VARIABLE libdir COMMAND_ERROR_IS_FATAL ANY
                OUTPUT_STRIP_TRAILING_WHITESPACE)
separate_arguments(flags UNIX_COMMAND "${flags}")
execute_process(COMMAND "${COMPILER}" "${SOURCE}" -o "${PROGRAM}" ${flags} COMMAND_ECHO STDOUT
                COMMAND_ERROR_IS_FATAL ANY)
set(ENV{LD_LIBRARY_PATH} "${libdir}")
execute_process(COMMAND "${PROGRAM}" COMMAND_ERROR_IS_FATAL ANY)
