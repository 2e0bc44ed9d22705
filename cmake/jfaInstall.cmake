# The install tree: library, headers, CMake package and pkg-config file, all of it relocatable.

include(CMakePackageConfigHelpers)

install(PROGRAMS "${JFA_LIBRARY_DIR}/libjfa.so.${PROJECT_VERSION}" DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(FILES "${JFA_LIBRARY_DIR}/libjfa.so.${JFA_SOVERSION}" "${JFA_LIBRARY_DIR}/libjfa.so"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(FILES include/jfa/jfa.h include/jfa/jfa.hpp DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/jfa")

# An imported library cannot be exported by CMake itself, hence a written config.
set(jfa_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/jfa")
configure_package_config_file(cmake/jfaConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/jfaConfig.cmake"
                              INSTALL_DESTINATION "${jfa_package_dir}"
                              PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(jfa_compatibility SameMinorVersion)
else()
  set(jfa_compatibility SameMajorVersion)
endif()
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/jfaConfigVersion.cmake"
                                 COMPATIBILITY ${jfa_compatibility})
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/jfaConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/jfaConfigVersion.cmake"
        DESTINATION "${jfa_package_dir}")

# The prefix is found from where the .pc file lies, so the folders must be relative to it.
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_LIBDIR jfa_libdir_absolute)
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_INCLUDEDIR jfa_includedir_absolute)
if(jfa_libdir_absolute)
  set(jfa_pc_prefix "${CMAKE_INSTALL_PREFIX}")
  set(jfa_pc_libdir "${CMAKE_INSTALL_LIBDIR}")
else()
  file(RELATIVE_PATH jfa_pc_up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" jfa_pc_up "${jfa_pc_up}")
  set(jfa_pc_prefix "\${pcfiledir}/${jfa_pc_up}")
  set(jfa_pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
if(jfa_includedir_absolute)
  set(jfa_pc_includedir "${CMAKE_INSTALL_INCLUDEDIR}")
else()
  set(jfa_pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(cmake/jfa.pc.in "${CMAKE_CURRENT_BINARY_DIR}/jfa.pc" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/jfa.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
