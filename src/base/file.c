#include "base/file.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum status file_read_text(char **out, size_t *n_bytes, const char *path, size_t max_bytes,
                           struct err *err) {
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return err_set(err, ST_NOT_FOUND, "%s: %s", path, strerror(errno));
    char *text = mem_alloc(max_bytes + 1);
    size_t n = text != NULL ? fread(text, 1, max_bytes + 1, f) : 0;
    enum status st = ST_OK;
    if (text == NULL)
        st = err_set(err, ST_NO_MEMORY, "no memory to read %s", path);
    else if (ferror(f))
        st = err_set(err, ST_IO, "%s: %s", path, strerror(errno));
    else if (n > max_bytes)
        st = err_set(err, ST_BAD_INPUT, "%s: larger than %zu bytes", path, max_bytes);
    fclose(f);
    if (st != ST_OK) {
        mem_free(text);
        return st;
    }
    text[n] = '\0';
    *out = text;
    if (n_bytes != NULL)
        *n_bytes = n;
    return ST_OK;
}
