/* devices.c: lockstep devices: lists what a rank could compute on instead of the processor. */
#include "base/mem.h"
#include "base/util.h"
#include "cli/cli.h"
#include "shaders/shaders.h"

#include <stdio.h>

static bool test, json;

static const struct cli_option options[] = {
    CLI_FLAG(0, "test", &test,
             "compares what the devices compute with the processor, bit by\n"
             "bit, for all types of weights"),
    CLI_FLAG(0, "json", &json, "prints a JSON array; without a device it is empty"), CLI_END};

static const struct cli_command command = {
    "devices", "lists the devices of this machine (GPUs), by Vulkan",
    "Each has a number, which stands for it wherever a device is named; a part of its name does\n"
    "so, too. There and back is the time from a submission to its result: the median of 20\n"
    "empty ones. How fast it reads its memory and multiplies is measured with shaders that do\n"
    "nothing else. --test takes a driver seconds, a software device a minute: it compiles all\n"
    "that could be used.",
    options};

/* What opening the device says beyond the list. */
struct finding {
    struct device_info info;
    double crossing_us; /* 0: not measured */
    struct device_roofs roofs;
    double test_s;       /* 0: not tested */
    char no_matrix[512]; /* why its matrix units are not used, if it has been tested */
    char sentence[512];  /* why it cannot be used; "": it can */
};

static enum status measure(struct finding *f, struct device *d, struct err *err) {
    struct shaders *shaders;
    uint64_t ns = 0;
    TRY(device_crossing(d, &ns, err));
    f->crossing_us = (double)ns * 1e-3;
    enum status st = device_roofs(d, &f->roofs, err);
    if (st != ST_OK && st != ST_NO_MEMORY) /* for measuring; a model may be smaller */
        return st;
    if (!test)
        return ST_OK;
    TRY(shaders_open(&shaders, d, err));
    st = ST_OK;
    for (int type = 0; type < QT_N && st == ST_OK; type++)
        if (wmat_type_supported((enum qtype)type))
            st = shaders_prepare(shaders, (enum qtype)type, err);
    for (int type = 0; type < KV_N_TYPES; type++)
        for (uint32_t group = 1; group <= SHADERS_HEADS_MOST && st == ST_OK; group++)
            st = shaders_prepare_attention(shaders, (enum kv_type)type, group, err);
    if (st == ST_OK)
        f->test_s = (double)shaders_test_ns(shaders) * 1e-9;
    snprintf(f->no_matrix, sizeof f->no_matrix, "%s", shaders_why_no_matrix(shaders));
    shaders_close(shaders);
    return st;
}

static void look_at(struct finding *f, size_t number, const struct device_info *info) {
    struct device *d;
    struct err err = {0};
    char name[24];
    *f = (struct finding){.info = *info};
    snprintf(name, sizeof name, "%zu", number);
    enum status st = device_open(&d, name, &err);
    if (st == ST_OK) {
        f->info = *device_info(d);
        st = measure(f, d, &err);
        device_close(d);
    }
    snprintf(f->sentence, sizeof f->sentence, "%s", st != ST_OK ? err.text : "");
}

/* ---- what is printed ------------------------------------------------------------------------- */

static json_t *text(const char *s) {
    return cli_json_text(s, strlen(s));
}

static json_t *measured(double x) {
    return x > 0 ? json_real(x) : json_null();
}

static json_t *to_json(const struct finding *f, size_t number) {
    const struct device_info *i = &f->info;
    json_t *features = json_array();
    for (int k = 0; k < DEVICE_N_FEATURES; k++)
        if (i->features[k])
            json_array_append_new(features,
                                  json_string(device_feature_name((enum device_feature)k)));
    return json_pack(
        "{s:I, s:o, s:o, s:s, s:I, s:b, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "number", (json_int_t)number, "name", text(i->name), "driver", text(i->driver), "kind",
        device_kind_name(i->kind), "memory_bytes", (json_int_t)i->memory_bytes, "unified",
        i->unified, "features", features, "subgroup", (json_int_t)i->subgroup, "vulkan",
        (json_int_t)i->api_version, "crossing_us", measured(f->crossing_us), "read_gbs",
        measured(f->roofs.read_gbs), "int8_gops", measured(f->roofs.int8_gops), "f32_gops",
        measured(f->roofs.f32_gops), "matrix_gops", measured(f->roofs.matrix_gops),
        "matrix_error", f->no_matrix[0] != '\0' ? text(f->no_matrix) : json_null(), "test_s",
        measured(f->test_s), "error", f->sentence[0] != '\0' ? text(f->sentence) : json_null());
}

static void print(const struct finding *f, size_t number) {
    const struct device_info *i = &f->info;
    char memory[32];
    printf("%zu: %s\n", number, i->name);
    printf("   %s, %s, Vulkan %u.%u, %u lanes\n", device_kind_name(i->kind), i->driver,
           i->api_version / 1000, i->api_version % 1000, i->subgroup);
    printf("   memory: %s%s\n", cli_bytes(i->memory_bytes, memory),
           i->unified ? ", the host's" : "");
    printf("   features:");
    bool any = false;
    for (int k = 0; k < DEVICE_N_FEATURES; k++)
        if (i->features[k])
            any = printf(" %s", device_feature_name((enum device_feature)k)) > 0;
    printf("%s\n", any ? "" : " none");
    if (f->crossing_us > 0)
        printf("   there and back: %.1f us\n", f->crossing_us);
    if (f->roofs.read_gbs > 0)
        printf("   reads %.1f GB/s, multiplies %.3f TOP/s of int8 and %.3f of f32\n",
               f->roofs.read_gbs, f->roofs.int8_gops * 1e-3, f->roofs.f32_gops * 1e-3);
    if (f->roofs.matrix_gops > 0)
        printf("   multiplies %.3f TOP/s of int8 by matrix units\n",
               f->roofs.matrix_gops * 1e-3);
    if (f->no_matrix[0] != '\0')
        printf("   matrix units are not used: %s\n", f->no_matrix);
    if (f->test_s > 0)
        printf("   computes the processor's bits: tested in %.2f s\n", f->test_s);
    if (f->sentence[0] != '\0')
        printf("   not usable: %s\n", f->sentence);
}

static enum status list(json_t *all, struct err *err) {
    struct device_info *infos;
    struct finding f;
    size_t n;
    char why[256];
    TRY(device_list(&infos, &n, why, sizeof why, err));
    if (n == 0 && all == NULL)
        printf("no devices: %s\n", why);
    for (size_t i = 0; i < n; i++) {
        look_at(&f, i, &infos[i]);
        if (all != NULL)
            json_array_append_new(all, to_json(&f, i));
        else
            print(&f, i);
    }
    mem_free(infos);
    return ST_OK;
}

int cmd_devices(int argc, char **argv) {
    struct err err;
    int status = cli_parse(&command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    json_t *all = json ? json_array() : NULL;
    enum status st = list(all, &err);
    if (st != ST_OK) {
        json_decref(all);
        return cli_fail(st, "%s", err.text);
    }
    if (json)
        return cli_print_json(all);
    status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}
