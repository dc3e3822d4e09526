# Writes a C++ file that holds files: cmake -DOUTPUT=… -DHEADER=… -DFUNCTION=… "-DFILES=name=path;name=path" -P embed.cmake
# HEADER declares FUNCTION in namespace atl: std::span<const EmbeddedFile> (transport/base/embedded_file.hpp), in the order of FILES.
set(arrays "")
set(table "")
set(number 0)
foreach(file ${FILES})
  string(FIND "${file}" "=" equals)
  string(SUBSTRING "${file}" 0 ${equals} name)
  math(EXPR equals "${equals} + 1")
  string(SUBSTRING "${file}" ${equals} -1 path)
  file(READ ${path} hex HEX)
  string(LENGTH "${hex}" digits)
  math(EXPR bytes "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  string(APPEND arrays "constexpr unsigned char kFile${number}[] = {${hex}0};\n")
  string(APPEND table "      EmbeddedFile{\"${name}\", {reinterpret_cast<const char*>(kFile${number}), ${bytes}}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT}.new "// Made by transport/base/embed.cmake.
#include \"${HEADER}\"

namespace atl {
namespace {
${arrays}}  // namespace

std::span<const EmbeddedFile> ${FUNCTION}() {
  static const EmbeddedFile kFiles[] = {
${table}  };
  return kFiles;
}

}  // namespace atl
")
file(RENAME ${OUTPUT}.new ${OUTPUT})
