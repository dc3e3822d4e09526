# What a portable program is linked with: static libraries in the place of Debian's shared ones, and nothing of them to be seen from outside.
# Only the link differs. Sources are compiled as for any other build, so a compiler's cache gives the same objects.
# ATOLL_PORTABLE_LIBRARIES is the folder that libraries.sh filled.
set(ATOLL_PORTABLE_LIBRARIES ${CMAKE_SOURCE_DIR}/build/portable-libraries CACHE PATH "what examples/packaging/portable/libraries.sh built")
if(NOT EXISTS ${ATOLL_PORTABLE_LIBRARIES}/recipe)
  message(FATAL_ERROR "a portable build needs static libraries: run examples/packaging/portable/libraries.sh ${ATOLL_PORTABLE_LIBRARIES}")
endif()

# atoll_static(TARGET FILE [OTHERS…]): that imported target is this archive from now on, with what the archive itself needs.
function(atoll_static target file)
  find_library(ATOLL_STATIC_${file} ${file} HINTS ${ATOLL_PORTABLE_LIBRARIES}/lib REQUIRED)
  set(archive ${ATOLL_STATIC_${file}})
  get_target_property(kind ${target} TYPE)
  if(kind STREQUAL INTERFACE_LIBRARY)
    set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${archive};${ARGN}")
  else()
    get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
    foreach(configuration ${configurations})
      if(configuration)
        set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${configuration} ${archive})
      endif()
    endforeach()
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${archive} INTERFACE_LINK_LIBRARIES "${ARGN}")
  endif()
endfunction()

foreach(name sodium brotlidec brotlienc brotlicommon)
  find_library(ATOLL_STATIC_${name} lib${name}.a REQUIRED)
endforeach()
set(before ${CMAKE_FIND_LIBRARY_SUFFIXES})
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
atoll_static(OpenSSL::Crypto crypto Threads::Threads ${CMAKE_DL_LIBS})
atoll_static(OpenSSL::SSL ssl OpenSSL::Crypto)
atoll_static(ZLIB::ZLIB z)
atoll_static(PNG::PNG png16 ZLIB::ZLIB m)
atoll_static(JPEG::JPEG jpeg)
atoll_static(SQLite::SQLite3 sqlite3 Threads::Threads m ${CMAKE_DL_LIBS})
atoll_static(PkgConfig::ZSTD zstd)
atoll_static(PkgConfig::ZMQ zmq ${ATOLL_STATIC_sodium} Threads::Threads)
atoll_static(CURL::libcurl curl OpenSSL::SSL OpenSSL::Crypto Threads::Threads)
atoll_static(fmt::fmt fmt)
atoll_static(spdlog::spdlog spdlog fmt::fmt Threads::Threads)
atoll_static(PkgConfig::HTTPLIB cpp-httplib ${ATOLL_STATIC_brotlidec} ${ATOLL_STATIC_brotlienc} ${ATOLL_STATIC_brotlicommon} OpenSSL::SSL
  OpenSSL::Crypto ZLIB::ZLIB Threads::Threads)
set(CMAKE_FIND_LIBRARY_SUFFIXES ${before})

set(CMAKE_SKIP_RPATH ON)
# libgcc_s stays shared: exceptions may pass through what is loaded later, and glibc's part of unwinding is newer than the floor in the static one.
add_link_options(-static-libstdc++ -shared-libgcc -Wl,--exclude-libs,ALL -Wl,--as-needed -Wl,--gc-sections)
