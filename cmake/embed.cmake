# embed.cmake - turns a file into a C array that ends with a zero byte.
#
# cmake -DFILE=page.html -DNAME=symbol -DOUT=page.c -P embed.cmake

file(READ ${FILE} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR bytes "${digits} / 2")
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
file(WRITE ${OUT} "#include <stddef.h>
extern const unsigned char ${NAME}[];
extern const size_t ${NAME}_bytes;
const unsigned char ${NAME}[] = {
${hex}0x00};
const size_t ${NAME}_bytes = ${bytes};
")
