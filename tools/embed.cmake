# cmake -DIN=FILE -DOUT=FILE.c -DNAME=SYMBOL -P embed.cmake: a file's bytes as a C array, NAME[], and their
# number, NAME_bytes.
file(READ "${IN}" hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(................................................................................)" "\\1\n"
  bytes "${bytes}")
file(WRITE "${OUT}" "#include <stddef.h>\nextern const unsigned char ${NAME}[];\nextern const size_t ${NAME}_bytes;\n"
  "const unsigned char ${NAME}[] = {\n${bytes}\n};\nconst size_t ${NAME}_bytes = sizeof ${NAME};\n")
