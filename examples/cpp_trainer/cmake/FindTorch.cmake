# The target `torch`: libtorch, from its own archive or from a Python package, below CMAKE_PREFIX_PATH.
#
# libtorch brings a CMake package of its own. Where libtorch was built with CUDA, that package asks for the whole CUDA
# toolkit with its compiler, which this program does not need.

find_path(TORCH_INCLUDE_DIR torch/script.h PATH_SUFFIXES torch/include)
find_path(TORCH_API_INCLUDE_DIR torch/torch.h PATH_SUFFIXES include/torch/csrc/api/include
                                                            torch/include/torch/csrc/api/include)
foreach(library torch torch_cpu c10)
  string(TOUPPER "${library}" upper)
  find_library(${upper}_LIBRARY ${library} PATH_SUFFIXES torch/lib)
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Torch REQUIRED_VARS TORCH_LIBRARY TORCH_CPU_LIBRARY C10_LIBRARY TORCH_INCLUDE_DIR
                                                      TORCH_API_INCLUDE_DIR)

if(Torch_FOUND AND NOT TARGET torch)
  add_library(torch INTERFACE IMPORTED)
  target_include_directories(torch SYSTEM INTERFACE "${TORCH_INCLUDE_DIR}" "${TORCH_API_INCLUDE_DIR}")
  target_compile_features(torch INTERFACE cxx_std_17)
  # libtorch.so has no symbols: it only stands for the devices that this libtorch was built for, and must be kept for that.
  target_link_libraries(torch INTERFACE -Wl,--push-state,--no-as-needed "${TORCH_LIBRARY}" -Wl,--pop-state
                                        "${TORCH_CPU_LIBRARY}" "${C10_LIBRARY}")
endif()
