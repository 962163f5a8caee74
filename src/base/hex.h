/* hex.h: parses a hexadecimal digit. */
#ifndef LOCKSTEP_BASE_HEX_H
#define LOCKSTEP_BASE_HEX_H

/* 0 to 15; -1 if c is not a hexadecimal digit. */
static inline int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

#endif
