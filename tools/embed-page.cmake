# cmake -DFOLDER=src/api -DOUT=FILE.c -DWORK=FOLDER -P embed-page.cmake: page.html and page/* of the folder as the
# table page_files[] of src/api/page.h, compressed; page.html also as it is, for clients that take nothing else.

# NAME[] in `text`: the file's bytes. Those of a gzip file without the time at which it was made.
function(add_array file name text)
  file(READ "${file}" hex HEX)
  string(REGEX REPLACE "^(1f8b08..)........" "\\100000000" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n"
    bytes "${bytes}")
  set(${text} "${${text}}static const unsigned char ${name}[] = {\n${bytes}\n};\n" PARENT_SCOPE)
endfunction()

file(GLOB files LIST_DIRECTORIES false RELATIVE "${FOLDER}" "${FOLDER}/page/*")
set(arrays "")
set(rows "")
set(n 0)
foreach(file page.html ${files})
  file(SHA256 "${FOLDER}/${file}" digest)
  string(SUBSTRING ${digest} 0 16 tag)
  get_filename_component(name "${file}" NAME)
  file(ARCHIVE_CREATE OUTPUT "${WORK}/${name}.gz" PATHS "${FOLDER}/${file}" FORMAT raw COMPRESSION GZip
    COMPRESSION_LEVEL 9)
  add_array("${WORK}/${name}.gz" zipped_${n} arrays)
  set(path "/${file}")
  set(plain "NULL, 0")
  if(file STREQUAL page.html)
    add_array("${FOLDER}/${file}" plain_${n} arrays)
    set(path "/")
    set(plain "plain_${n}, sizeof plain_${n}")
  endif()
  string(APPEND rows "    {\"${path}\", \"\\\"${tag}\\\"\", zipped_${n}, sizeof zipped_${n}, ${plain}},\n")
  math(EXPR n "${n} + 1")
endforeach()
file(WRITE "${OUT}" "#include \"api/page.h\"\n\n${arrays}\n"
  "const struct page_file page_files[] = {\n${rows}};\nconst size_t n_page_files = ${n};\n")
