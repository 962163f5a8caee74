/* settings.c: what the environment asks of devices: how long they may take, and for tests what they
 * lack and what goes wrong. */
#include "base/util.h"

#if defined(LOCKSTEP_HAS_VULKAN)
#include "device/device_internal.h"

#include "base/program.h"

#include <stdio.h>
#include <stdlib.h>

/* Devices of other makers, as far as another device can stand for them. */
static const struct {
    const char *name, *without;
    bool flushes;
} profiles[] = {{"apple", "fma,fma-khr,f64,int64,dot,matrix", true}};

static const struct {
    const char *name;
    enum device_fault_kind kind;
    bool has_kernel, has_number; /* what stands behind a colon */
} faults[] = {
    {"fma", DEVICE_FAULT_FMA, true, false},
    {"division", DEVICE_FAULT_DIVISION, true, false},
    {"flush", DEVICE_FAULT_FLUSH, false, false},
    {"memory", DEVICE_FAULT_MEMORY, false, true},
    {"open", DEVICE_FAULT_OPEN, false, true},
    {"hang", DEVICE_FAULT_HANG, false, true},
};

/* ARRAY_LEN(profiles): none, or no such. */
static size_t find_profile(void) {
    const char *text = env_get("LOCKSTEP_DEVICE_PROFILE");
    size_t i = 0;
    while (i < ARRAY_LEN(profiles) && (text == NULL || !str_eq(text, profiles[i].name)))
        i++;
    return i;
}

bool device_is_without(const char *feature) {
    const char *without = env_get("LOCKSTEP_DEVICE_WITHOUT");
    size_t i = find_profile();
    return (without != NULL && str_list_has(without, feature)) ||
           (i < ARRAY_LEN(profiles) && str_list_has(profiles[i].without, feature));
}

uint32_t device_emulated_matrix(void) {
    const char *text = env_get("LOCKSTEP_DEVICE_MATRIX");
    return text == NULL ? 0 : str_eq(text, "16") ? 16 : str_eq(text, "32") ? 32 : 0;
}

static bool is_number(const char *text, unsigned long *out, unsigned long most) {
    char *end = NULL;
    *out = strtoul(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && *out >= 1 && *out <= most;
}

static enum status read_number(unsigned long *out, const char *name, const char *what,
                               unsigned long most, struct err *err) {
    const char *text = env_get(name);
    if (text != NULL && !is_number(text, out, most))
        return err_set(err, ST_BAD_INPUT, "%s=%.40s: expected %s from 1 to %lu", name, text,
                       what, most);
    return ST_OK;
}

static bool parse_fault(const char *text, struct device_fault *out) {
    const size_t n = strcspn(text, ":");
    const char *more = text[n] == ':' ? text + n + 1 : NULL;
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        if (strlen(faults[i].name) != n || memcmp(faults[i].name, text, n) != 0)
            continue;
        out->kind = faults[i].kind;
        if (faults[i].has_number)
            return more != NULL && is_number(more, &out->n, 1000000000);
        if (more != NULL)
            snprintf(out->kernel, sizeof out->kernel, "%s", more);
        return more == NULL || faults[i].has_kernel;
    }
    return false;
}

static enum status read_fault(struct device_fault *out, struct err *err) {
    const char *text = env_get("LOCKSTEP_DEVICE_FAULT");
    if (text == NULL || parse_fault(text, out))
        return ST_OK;
    return err_set(err, ST_BAD_INPUT,
                   "LOCKSTEP_DEVICE_FAULT is %.60s: expected fma or division, and :KERNEL, or "
                   "flush, or memory, open or hang and :NUMBER",
                   text);
}

enum status device_settings(struct device *d, struct err *err) {
    const char *profile = env_get("LOCKSTEP_DEVICE_PROFILE");
    const char *matrix = env_get("LOCKSTEP_DEVICE_MATRIX");
    const size_t i = find_profile();
    TRY(read_number(&d->timeout_s, "LOCKSTEP_DEVICE_TIMEOUT", "seconds", 86400, err));
    TRY(read_number(&d->lost_after, "LOCKSTEP_DEVICE_LOST_AFTER", "submissions", 1000000000,
                    err));
    TRY(read_number(&d->piece_most, "LOCKSTEP_DEVICE_PIECE", "pages of 4096 bytes", 1000000000,
                    err));
    TRY(read_fault(&d->fault, err));
    if (matrix != NULL && device_emulated_matrix() == 0)
        return err_set(err, ST_BAD_INPUT, "LOCKSTEP_DEVICE_MATRIX is %.60s: expected 16 or 32",
                       matrix);
    if (profile != NULL && i == ARRAY_LEN(profiles))
        return err_set(err, ST_BAD_INPUT, "LOCKSTEP_DEVICE_PROFILE is %.60s: expected apple",
                       profile);
    d->flushes =
        d->fault.kind == DEVICE_FAULT_FLUSH || (i < ARRAY_LEN(profiles) && profiles[i].flushes);
    return ST_OK;
}
#endif
