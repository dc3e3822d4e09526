# The LibTorch inside a Python package torch, as ATOLL_TORCH names it, ON for that of build/python: TORCH_INCLUDE_DIRS and TORCH_LIBRARIES,
# which is a target of our own.
#
# The package's own TorchConfig.cmake is not asked: that of a CUDA wheel wants a CUDA toolkit, which a program that is linked with LibTorch
# does not need, and it takes libraries from other folders where they have the same names. Here everything is of the one folder, and what is
# linked finds it there, built or installed, without LD_LIBRARY_PATH.
if(ATOLL_TORCH STREQUAL "python")
  execute_process(COMMAND python3 -c "import torch; print(torch.__path__[0])" OUTPUT_VARIABLE torch_package OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_VARIABLE torch_missing RESULT_VARIABLE torch_failed)
  if(torch_failed)
    message(FATAL_ERROR "ATOLL_TORCH is python, and python3 imports no torch (pip install torch, or -DATOLL_TORCH=FOLDER): ${torch_missing}")
  endif()
elseif(ATOLL_TORCH MATCHES "/")
  set(torch_package "${ATOLL_TORCH}")
else()
  file(GLOB torch_package "${CMAKE_CURRENT_LIST_DIR}/../../build/python/lib/python3*/site-packages/torch")
  if(NOT torch_package)
    message(FATAL_ERROR "There is no LibTorch of 2.6 or newer: neither the system's nor one in build/python. examples/install-packages.sh "
      "installs one; -DATOLL_TORCH=FOLDER takes that of a Python package torch; -DATOLL_TORCH=OFF leaves the built-in trainer out")
  endif()
  cmake_path(NORMAL_PATH torch_package)
endif()
foreach(needed include/ATen/ATen.h include/torch/csrc/api/include/torch/version.h lib/libtorch.so lib/libtorch_cpu.so lib/libc10.so)
  if(NOT EXISTS "${torch_package}/${needed}")
    message(FATAL_ERROR "ATOLL_TORCH: ${torch_package} is no folder of a Python package torch: it has no ${needed}")
  endif()
endforeach()
# Everything else here is compiled with the present ABI, so std::string would be two types.
file(STRINGS "${torch_package}/share/cmake/Torch/TorchConfig.cmake" torch_old_abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
if(torch_old_abi)
  message(FATAL_ERROR "ATOLL_TORCH: ${torch_package} is compiled with C++'s old ABI (_GLIBCXX_USE_CXX11_ABI=0), as wheels before 2.6 are; "
    "take a newer torch")
endif()

set(torch_libraries "")
foreach(library c10 c10_cuda torch_cpu torch_cuda torch)
  if(EXISTS "${torch_package}/lib/lib${library}.so")
    string(APPEND torch_libraries ",${torch_package}/lib/lib${library}.so")
  endif()
endforeach()
add_library(atoll_torch_package INTERFACE)
# Nothing calls libtorch_cuda by name, and it must be loaded all the same: it says by itself what it can do. Its own libraries are looked
# for when it is loaded.
target_link_libraries(atoll_torch_package INTERFACE "-Wl,--push-state,--no-as-needed${torch_libraries},--pop-state")
target_link_options(atoll_torch_package INTERFACE "-Wl,-rpath,${torch_package}/lib" "-Wl,--allow-shlib-undefined")
set(TORCH_INCLUDE_DIRS "${torch_package}/include" "${torch_package}/include/torch/csrc/api/include")
target_include_directories(atoll_torch_package SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
set(TORCH_LIBRARIES atoll_torch_package)
message(STATUS "The built-in trainer is for the LibTorch in ${torch_package}")
