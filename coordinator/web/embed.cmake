# Writes a C++ file that holds the page's files: cmake -DOUTPUT=… -DFILES=a;b -P embed.cmake
set(arrays "")
set(table "")
set(number 0)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} hex HEX)
  string(LENGTH "${hex}" digits)
  math(EXPR bytes "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  string(APPEND arrays "constexpr unsigned char kFile${number}[] = {${hex}0};\n")
  string(APPEND table "      PageFile{\"${name}\", {reinterpret_cast<const char*>(kFile${number}), ${bytes}}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT}.new "// Made by coordinator/web/embed.cmake.
#include \"coordinator/web/page_files.hpp\"

namespace atl::coordinator {
namespace {
${arrays}}  // namespace

std::span<const PageFile> page_files() {
  static const PageFile kFiles[] = {
${table}  };
  return kFiles;
}

}  // namespace atl::coordinator
")
file(RENAME ${OUTPUT}.new ${OUTPUT})
