# The target jfa::jfa: the library as cargo builds it, laid out in the build tree as in an installation.

find_program(JFA_CARGO cargo HINTS "$ENV{CARGO_HOME}/bin" "$ENV{HOME}/.cargo/bin" REQUIRED
             DOC "Cargo, which builds jfa")

# A target folder of the caller's own is respected: he may have built jfa there already.
if(DEFINED ENV{CARGO_TARGET_DIR} AND NOT "$ENV{CARGO_TARGET_DIR}" STREQUAL "")
  get_filename_component(jfa_cargo_dir "$ENV{CARGO_TARGET_DIR}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
else()
  set(jfa_cargo_dir "${CMAKE_CURRENT_BINARY_DIR}/cargo")
endif()

# The ABI's epoch, as build.rs has it: a minor version before 1.0, a major version after.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(JFA_SOVERSION "0.${PROJECT_VERSION_MINOR}")
else()
  set(JFA_SOVERSION "${PROJECT_VERSION_MAJOR}")
endif()

set(JFA_LIBRARY_DIR "${CMAKE_CURRENT_BINARY_DIR}/lib")
set(jfa_file "libjfa.so.${PROJECT_VERSION}")
file(MAKE_DIRECTORY "${JFA_LIBRARY_DIR}")

set(jfa_environment "CARGO_TARGET_DIR=${jfa_cargo_dir}")
if(NOT JFA_CUDA_ARCHS STREQUAL "")
  # A CMake list would fall apart in a list of arguments.
  string(REPLACE ";" "," jfa_archs "${JFA_CUDA_ARCHS}")
  list(APPEND jfa_environment "JFA_CUDA_ARCHS=${jfa_archs}")
endif()
separate_arguments(jfa_cargo_flags UNIX_COMMAND "${JFA_CARGO_FLAGS}")

# Cargo knows best what is stale, so the target always runs. The link that bears the soname is what programs of the
# build tree load; BYPRODUCTS tells Ninja where the library comes from.
set(jfa_all "")
if(JFA_INSTALL)
  set(jfa_all ALL)
endif()
add_custom_target(
  jfa_cargo ${jfa_all}
  COMMAND "${CMAKE_COMMAND}" -E env ${jfa_environment} "${JFA_CARGO}" build --release --locked --lib --package jfa
          ${jfa_cargo_flags}
  COMMAND "${CMAKE_COMMAND}" -E copy_if_different "${jfa_cargo_dir}/release/libjfa.so" "${JFA_LIBRARY_DIR}/${jfa_file}"
  COMMAND "${CMAKE_COMMAND}" -E create_symlink "${jfa_file}" "${JFA_LIBRARY_DIR}/libjfa.so.${JFA_SOVERSION}"
  COMMAND "${CMAKE_COMMAND}" -E create_symlink "libjfa.so.${JFA_SOVERSION}" "${JFA_LIBRARY_DIR}/libjfa.so"
  BYPRODUCTS "${JFA_LIBRARY_DIR}/${jfa_file}"
  WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
  COMMENT "Building libjfa.so with cargo"
  USES_TERMINAL VERBATIM)

add_library(jfa SHARED IMPORTED GLOBAL)
add_library(jfa::jfa ALIAS jfa)
add_dependencies(jfa jfa_cargo)
set_target_properties(
  jfa
  PROPERTIES IMPORTED_LOCATION "${JFA_LIBRARY_DIR}/${jfa_file}"
             IMPORTED_SONAME "libjfa.so.${JFA_SOVERSION}"
             INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_SOURCE_DIR}/include")
