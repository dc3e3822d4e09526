# Where Red Hat's systems have another place than Debian for the same file, and what they want to know of a package.
set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/atoll/usr/share)
file(RENAME ${share}/zsh/vendor-completions ${share}/zsh/site-functions)
file(REMOVE ${share}/doc/atoll/changelog.gz)  # Debian's
file(COPY ${CMAKE_CURRENT_LIST_DIR}/../../../LICENSE DESTINATION ${share}/licenses/atoll)
