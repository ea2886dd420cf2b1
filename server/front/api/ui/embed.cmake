# Joins the page's files into one and writes it as a C array, with the values for its headers:
#   cmake -DOUT=FILE.c -P embed.cmake
# "@NAME@" in page.html is replaced by the file NAME in this folder. The policy names the style and the script by their hashes, so
# that a browser runs nothing else.
set(here ${CMAKE_CURRENT_LIST_DIR})

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
    file(READ ${here}/${name} content)
    string(APPEND text "\n${content}")
  endforeach()
  string(REPLACE "${names}" "${text}" joined "${page}")
  set(page "${joined}" PARENT_SCOPE)
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

file(READ ${here}/page.html page)
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

const char ui_page_policy[] = \"${policy}\";
const char ui_page_etag[] = \"\\\"${etag}\\\"\";
const unsigned char ui_page[] = {
${bytes}
};
const size_t ui_page_bytes = sizeof ui_page;
")
