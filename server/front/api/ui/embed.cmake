# Joins a page's files into one and writes it as a C array, with the values for its headers:
#   cmake -DIN=PAGE.html -DNAME=NAME -DOUT=FILE.c -P embed.cmake
# "@FILE@" in the page is replaced by the file in its folder, or in this one. The policy names the style and the script by their hashes, so
# that a browser runs nothing else.
cmake_path(GET IN PARENT_PATH here)

# SHA-256 of text in base64, which CMake does not provide: 3 bytes are 4 digits.
function(hash_base64 text out)
  set(digits ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  string(SHA256 hex "${text}")
  string(APPEND hex 00) # 33 bytes
  set(result "")
  foreach(at RANGE 0 60 6)
    string(SUBSTRING ${hex} ${at} 6 three)
    foreach(shift 18 12 6 0)
      math(EXPR digit "(0x${three} >> ${shift}) & 63")
      string(SUBSTRING ${digits} ${digit} 1 digit)
      string(APPEND result ${digit})
    endforeach()
  endforeach()
  string(REGEX REPLACE "A$" "=" result ${result})
  set(${out} ${result} PARENT_SCOPE)
endfunction()

# The text between the tags, with the placeholders replaced.
function(part tag out)
  string(REGEX MATCH "<${tag}>(@[a-z.@]+@)</${tag}>" _ "${page}")
  set(names "${CMAKE_MATCH_1}")
  string(REGEX MATCHALL "[a-z.]+" files "${names}")
  set(text "")
  foreach(name IN LISTS files)
    if(EXISTS ${here}/${name})
      file(READ ${here}/${name} content)
    else()
      file(READ ${CMAKE_CURRENT_LIST_DIR}/${name} content)
    endif()
    string(APPEND text "\n${content}")
  endforeach()
  string(REPLACE "${names}" "${text}" joined "${page}")
  set(page "${joined}" PARENT_SCOPE)
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

file(READ ${IN} page)
part(style style)
part(script script)
hash_base64("${style}" style_hash)
hash_base64("${script}" script_hash)
string(SHA256 etag "${page}")

string(CONCAT policy
  "default-src 'none'; script-src 'sha256-${script_hash}'; style-src 'sha256-${style_hash}'; img-src data:; connect-src 'self'; "
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
string(HEX "${page}" bytes)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REPEAT "0x..," 20 line)
string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "/* Made by server/front/api/ui/embed.cmake. */
#include \"server/front/api/ui_page.h\"

static const unsigned char html[] = {
${bytes}
};
const struct ui_page ${NAME} = {html, sizeof html, \"${policy}\", \"\\\"${etag}\\\"\"};
")
