/* fixture.h: files of the golden set, read whole. */
#ifndef LOCKSTEP_TESTS_FIXTURE_H
#define LOCKSTEP_TESTS_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* SHARED_DIR "/golden/" + name in a static buffer. */
static inline const char *golden_path(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/golden/%s", SHARED_DIR, name);
    return path;
}

/* Ends the program as skipped if the golden set is not there. */
static inline void golden_or_skip(const char *name) {
    if (access(golden_path(name), R_OK) != 0) {
        printf("skip: %s is not there\n", golden_path(name));
        exit(77);
    }
}

/* The caller frees; NULL if it cannot be read. */
static inline uint8_t *read_whole(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    *len = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = malloc(*len + 1);
    bool ok = fread(bytes, 1, *len, f) == *len;
    fclose(f);
    return ok ? bytes : (free(bytes), NULL);
}

#endif
