/* words.h: a list of words with commas between them, as options and settings have them. */
#ifndef LOCKSTEP_BASE_WORDS_H
#define LOCKSTEP_BASE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The next word, *n bytes; *list moves behind it. Words may be empty, also the only one of an empty
 * list. NULL: no more; *list is NULL then, and may be before. */
static inline const char *words_next(const char **list, size_t *n) {
    const char *word = *list;
    if (word == NULL)
        return NULL;
    *n = strcspn(word, ",");
    *list = word[*n] == ',' ? word + *n + 1 : NULL;
    return word;
}

/* The next word, in out; "" where there is no room for it. False: no more. */
static inline bool words_take(const char **list, char *out, size_t size) {
    size_t n = 0;
    const char *word = words_next(list, &n);
    if (word != NULL)
        snprintf(out, size, "%.*s", n < size ? (int)n : 0, word);
    return word != NULL;
}

static inline size_t words_count(const char *list) {
    size_t count = 0, n;
    while (words_next(&list, &n) != NULL)
        count++;
    return count;
}

/* n bytes at `word` are that text. */
static inline bool words_equal(const char *word, size_t n, const char *text) {
    return strlen(text) == n && memcmp(word, text, n) == 0;
}

#endif
