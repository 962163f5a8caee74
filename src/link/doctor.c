/* doctor.c: Checks what the links of this host need, and says how to fix what is missing. */
#include "link/doctor.h"

#include "base/util.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>

#if __has_include(<infiniband/verbs.h>)
#include "link/verbs_device.h"
#endif
#if defined(LOCKSTEP_HAS_UCX)
#include "link/ucx_lib.h"
#endif

struct notes {
    struct finding *list;
    int n, n_rdma_devices;
};

__attribute__((format(printf, 4, 5))) static void
note(struct notes *notes, enum finding_kind kind, const char *mend, const char *fmt, ...) {
    if (notes->n >= DOCTOR_MAX_FINDINGS)
        return;
    struct finding *f = &notes->list[notes->n++];
    f->kind = kind;
    snprintf(f->mend, sizeof f->mend, "%s", mend);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->what, sizeof f->what, fmt, ap);
    va_end(ap);
}

/* ---- RDMA ---------------------------------------------------------------------------------- */

#if __has_include(<infiniband/verbs.h>)
static bool has_ipv4_gid(const struct verbs_lib *lib, struct ibv_context *c, int n) {
    union ibv_gid gid;
    for (int i = 0; i < n; i++)
        if (lib->query_gid(c, 1, i, &gid) == 0 && verbs_gid_is_ipv4(&gid))
            return true;
    return false;
}

static void look_at_device(struct notes *notes, const struct verbs_lib *lib,
                           struct ibv_device *device) {
    const char *name = lib->get_device_name(device);
    struct ibv_context *c = lib->open_device(device);
    struct ibv_port_attr port = {0};
    if (c == NULL) {
        note(notes, FINDING_BAD, "check the permissions of /dev/infiniband",
             "RDMA device %s does not open: %s", name, strerror(errno));
        return;
    }
    if (lib->query_port(c, 1, &port) != 0 || port.state != IBV_PORT_ACTIVE)
        note(notes, FINDING_BAD, "check the cable; ip link set its interface up",
             "RDMA device %s: port 1 is not active", name);
    else
        note(notes, FINDING_GOOD, "", "RDMA device %s: port 1 active, MTU %d, %s", name,
             128 << port.active_mtu,
             port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
    if (port.link_layer == IBV_LINK_LAYER_ETHERNET && !has_ipv4_gid(lib, c, port.gid_tbl_len))
        note(notes, FINDING_BAD, "give its interface an IPv4 address",
             "RDMA device %s has no IPv4 address in its GID table", name);
    lib->close_device(c);
}

static void look_at_rdma(struct notes *notes) {
    const struct verbs_lib *lib;
    struct err err;
    int n = 0;
    if (verbs_lib_get(&lib, &err) != ST_OK) {
        note(notes, FINDING_FACT, "", "no RDMA: %.120s", err.text);
        return;
    }
    struct ibv_device **list = lib->get_device_list(&n);
    if (list == NULL || n == 0)
        note(notes, FINDING_FACT, "", "no RDMA devices%s",
#ifdef __APPLE__
             " (rdma_ctl enable from Recovery; macOS 26.3 or later, Thunderbolt 5)"
#else
             ""
#endif
        );
    notes->n_rdma_devices = n;
    for (int i = 0; i < n; i++)
        look_at_device(notes, lib, list[i]);
    if (list != NULL)
        lib->free_device_list(list);
}
#else
static void look_at_rdma(struct notes *notes) {
    note(notes, FINDING_FACT, "", "built without RDMA (no <infiniband/verbs.h>)");
}
#endif

/* ---- memory --------------------------------------------------------------------------------- */

/* A slab for each device while cables are looked for, and as much for the library's own. */
static size_t locked_needed(const struct notes *notes) {
    return ((size_t)MAX(notes->n_rdma_devices, 1) + 1) * ((size_t)32 << 20);
}

static void look_at_memory(struct notes *notes) {
    struct rlimit limit;
    const size_t needed = locked_needed(notes);
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        enum finding_kind kind = FINDING_GOOD;
        if (limit.rlim_cur < needed) /* without a device, no memory needs to be locked */
            kind = notes->n_rdma_devices > 0 ? FINDING_BAD : FINDING_FACT;
        if (limit.rlim_cur == RLIM_INFINITY)
            note(notes, FINDING_GOOD, "", "locked memory: unlimited");
        else
            note(notes, kind,
                 kind == FINDING_BAD
                     ? "ulimit -l unlimited, or memlock in /etc/security/limits.conf"
                     : "",
                 "locked memory: %llu KiB (RDMA needs %zu)",
                 (unsigned long long)limit.rlim_cur / 1024, needed / 1024);
    }
#ifdef __linux__
    char text[64] = "";
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (f != NULL) {
        if (fgets(text, sizeof text, f) != NULL)
            text[strcspn(text, "\n")] = '\0';
        fclose(f);
    }
    bool never = strstr(text, "[never]") != NULL;
    note(notes, never ? FINDING_BAD : FINDING_GOOD,
         never ? "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled" : "",
         "huge pages: %s", text[0] ? text : "unknown");
#endif
}

/* ---- UCX ------------------------------------------------------------------------------------ */

static void look_at_ucx(struct notes *notes) {
#if defined(LOCKSTEP_HAS_UCX)
    const struct ucx_lib *lib;
    struct err why;
    if (ucx_lib_get(&lib, &why) == ST_OK)
        note(notes, FINDING_FACT, "", "UCX: there (--link ucx)");
    else
        note(notes, FINDING_FACT, "", "UCX: %s", why.text);
#else
    note(notes, FINDING_FACT, "", "UCX: built without its headers");
#endif
}

/* ---- network -------------------------------------------------------------------------------- */

static int speed_mbit(const char *interface) {
    char path[96];
    int mbit = -1;
    snprintf(path, sizeof path, "/sys/class/net/%.40s/speed", interface);
    FILE *f = fopen(path, "r");
    if (f != NULL) {
        if (fscanf(f, "%d", &mbit) != 1)
            mbit = -1;
        fclose(f);
    }
    return mbit;
}

static void look_at_interface(struct notes *notes, const struct ifaddrs *a) {
    char host[64], speed[32] = "";
    socklen_t len = a->ifa_addr->sa_family == AF_INET ? 16 : 28; /* of the two sockaddrs */
    if (getnameinfo(a->ifa_addr, len, host, sizeof host, NULL, 0, NI_NUMERICHOST) != 0)
        return;
    int mbit = speed_mbit(a->ifa_name);
    if (mbit > 0)
        snprintf(speed, sizeof speed, ", %d Mbit/s", mbit);
    note(notes, FINDING_FACT, "", "interface %.32s: %.60s, %s%s", a->ifa_name, host,
         a->ifa_flags & IFF_UP ? "up" : "down", speed);
#ifdef __APPLE__
    if (str_starts(a->ifa_name, "bridge") && a->ifa_flags & IFF_UP)
        note(notes, FINDING_BAD,
             "networksetup -setnetworkserviceenabled \"Thunderbolt Bridge\" off",
             "the Thunderbolt Bridge is up: RDMA needs it off where cables form a loop");
#endif
}

static void look_at_interfaces(struct notes *notes) {
    struct ifaddrs *list;
    if (getifaddrs(&list) != 0)
        return;
    for (const struct ifaddrs *a = list; a != NULL; a = a->ifa_next)
        if (a->ifa_addr != NULL &&
            (a->ifa_addr->sa_family == AF_INET || a->ifa_addr->sa_family == AF_INET6))
            look_at_interface(notes, a);
    freeifaddrs(list);
}

int doctor_look(struct finding findings[DOCTOR_MAX_FINDINGS]) {
    struct notes notes = {.list = findings};
    look_at_rdma(&notes);
    look_at_ucx(&notes);
    look_at_memory(&notes);
    look_at_interfaces(&notes);
    return notes.n;
}
