# Writes a file as a C array:
#   cmake -DIN=FILE -DNAME=NAME -DOUT=FILE.c -P embed.cmake
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REPEAT "0x..," 20 line)
string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "/* Made by server/front/embed.cmake. */
#include <stddef.h>

extern const unsigned char ${NAME}[];
extern const size_t ${NAME}_bytes;
const unsigned char ${NAME}[] = {
${bytes}
};
const size_t ${NAME}_bytes = sizeof ${NAME};
")
