# What CPack reads before it packs an rpm (CPACK_PROJECT_CONFIG_FILE): the package `atoll`, for RHEL 9, Fedora and what is made of them. Library and
# Python package go there by the tarball and the wheel, because the folders of Python and of libraries are others in each of these systems.
if(NOT CPACK_GENERATOR STREQUAL "RPM")
  return()
endif()
set(CPACK_COMPONENTS_ALL atoll)
set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_ATOLL_PACKAGE_NAME atoll)
set(CPACK_RPM_ATOLL_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_RELEASE 1)
set(CPACK_PACKAGE_RELOCATABLE OFF)  # its units name /usr/bin
set(CPACK_RPM_PACKAGE_LICENSE "Apache-2.0 AND MIT")
set(CPACK_RPM_PACKAGE_GROUP "Unspecified")
string(REGEX REPLACE "\n.*" "" CPACK_RPM_ATOLL_PACKAGE_SUMMARY "${CPACK_COMPONENT_ATOLL_DESCRIPTION}")
set(CPACK_RPM_ATOLL_PACKAGE_DESCRIPTION "Coordinator, agent and commands in one program, with units for systemd.")
if(NOT CPACK_RPM_COMPRESSION_TYPE)
  set(CPACK_RPM_COMPRESSION_TYPE zstd)
endif()
# What the program itself needs is read out of it by rpmbuild. Examples are to be read: what they would need to run is none of the package's.
set(CPACK_RPM_PACKAGE_AUTOPROV OFF)
set(CPACK_RPM_REQUIRES_EXCLUDE_FROM "/usr/share/.*")
set(CPACK_RPM_ATOLL_PACKAGE_REQUIRES_PRE "shadow-utils")
set(CPACK_RPM_ATOLL_PRE_INSTALL_SCRIPT_FILE ${CMAKE_CURRENT_LIST_DIR}/pre)
set(CPACK_RPM_ATOLL_POST_INSTALL_SCRIPT_FILE ${CMAKE_CURRENT_LIST_DIR}/post)
set(CPACK_RPM_ATOLL_PRE_UNINSTALL_SCRIPT_FILE ${CMAKE_CURRENT_LIST_DIR}/preun)
set(CPACK_RPM_ATOLL_POST_UNINSTALL_SCRIPT_FILE ${CMAKE_CURRENT_LIST_DIR}/postun)
set(CPACK_RPM_ATOLL_USER_FILELIST "%config(noreplace) /etc/atoll/agent.toml" "%config(noreplace) /etc/atoll/coordinator.toml")
# Folders of other packages.
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/lib/systemd /usr/lib/systemd/system /usr/share/man /usr/share/man/man1 /usr/share/licenses
  /usr/share/bash-completion /usr/share/bash-completion/completions /usr/share/zsh /usr/share/zsh/site-functions /usr/share/fish
  /usr/share/fish/vendor_completions.d)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/arrange.cmake)
# The same files and SOURCE_DATE_EPOCH give the same package: no machine's name, no time of its own, and nothing changed after what CPack installed.
set(CPACK_RPM_SPEC_MORE_DEFINE "%define use_source_date_epoch_as_buildtime 1\n%define clamp_mtime_to_source_date_epoch 1\n%define _buildhost atoll\n%define _build_id_links none\n%global __os_install_post %{nil}")
