/* How nodes find each other: the beacon and whatever may pretend to be one, and discoveries
 * that meet on the loopback interface. test_discovery_hosts.sh has several machines. Bounds in
 * time only catch hanging.
 * labels: waits */
#include "base/clock.h"
#include "base/util.h"
#include "cluster/discovery.h"
#include "cluster/multicast.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the beacon -------------------------------------------------------------------------- */

static const uint8_t count_key[BEACON_KEY_BYTES] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                                    11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                                    22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

static struct beacon anna(void) {
    struct beacon b = {.kind = BEACON_HERE,
                       .count = 0x0102030405060708,
                       .port = 7343,
                       .name = "anna",
                       .version = "0.1.0"};
    for (int i = 0; i < BEACON_ID_BYTES; i++) {
        b.node[i] = (uint8_t)(0xa0 + i);
        b.machine[i] = (uint8_t)(0x50 + i);
    }
    return b;
}

/* The layout in beacon.h; the MAC from Python's hmac, SHA-512, cut to 32 bytes. */
static const uint8_t anna_bytes[] = {
    0x6c, 0x6f, 0x63, 0x6b, 0x73, 0x74, 0x65, 0x70, 0x00, 0x02, 0x01, 0xa0, 0xa1, 0xa2,
    0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf, 0x50,
    0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d, 0x5e,
    0x5f, 0x1c, 0xaf, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x04, 0x61, 0x6e,
    0x6e, 0x61, 0x05, 0x30, 0x2e, 0x31, 0x2e, 0x30, 0xf9, 0x65, 0x1e, 0x84, 0x30, 0x78,
    0x4b, 0x49, 0x02, 0xa5, 0x07, 0x33, 0x1e, 0x4f, 0x44, 0xc0, 0xc4, 0x6a, 0xd2, 0xf5,
    0x8c, 0x9c, 0xc2, 0xfb, 0x9d, 0xfa, 0x83, 0xce, 0xcf, 0xd5, 0xba, 0x77};
#define NAME_AT 53

static void assert_same_beacon(const struct beacon *a, const struct beacon *b) {
    assert_int_equal(a->kind, b->kind);
    assert_memory_equal(a->node, b->node, BEACON_ID_BYTES);
    assert_memory_equal(a->machine, b->machine, BEACON_ID_BYTES);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->port, b->port);
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->version, b->version);
}

static void its_bytes_are_the_documented_ones(void **state) {
    (void)state;
    uint8_t bytes[BEACON_BYTES_MAX];
    struct beacon b = anna(), back;
    assert_int_equal(beacon_write(bytes, &b, count_key), sizeof anna_bytes);
    assert_memory_equal(bytes, anna_bytes, sizeof anna_bytes);
    assert_int_equal(beacon_read(&back, anna_bytes, sizeof anna_bytes, count_key, NULL), ST_OK);
    assert_same_beacon(&back, &b);
}

static void what_is_written_is_read(void **state) {
    (void)state;
    static const struct beacon beacons[] = {
        {.kind = BEACON_HERE, .port = 1, .name = "a", .version = ""},
        {.kind = BEACON_LEAVING, .port = 65535, .name = "K\303\274che 2", .version = "1.2.3"},
        {.kind = BEACON_ASK, .port = 0, .name = "", .version = ""},
        {.kind = BEACON_ASK,
         .port = 7,
         .name = "sixty-three bytes sixty-three bytes sixty-three bytes sixty-thr",
         .version = "fifteen bytes 15"},
    };
    for (size_t i = 0; i < ARRAY_LEN(beacons); i++) {
        uint8_t bytes[BEACON_BYTES_MAX];
        struct beacon back, b = beacons[i];
        b.version[sizeof b.version - 1] = '\0';
        size_t n = beacon_write(bytes, &b, count_key);
        assert_int_equal(beacon_read(&back, bytes, n, count_key, NULL), ST_OK);
        assert_same_beacon(&back, &b);
    }
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *map =
        mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(mprotect(map + page, page, PROT_NONE), 0);
    for (size_t n = 0; n < sizeof anna_bytes; n++) {
        struct beacon b;
        struct err err;
        memcpy(map + page - n, anna_bytes, n);
        enum status st = beacon_read(&b, map + page - n, n, count_key, &err);
        assert_true(st == ST_BAD_INPUT || (n >= 10 && st == ST_REFUSED));
    }
    munmap(map, 2 * page);
}

static void every_flipped_bit_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < 8 * sizeof anna_bytes; i++) {
        uint8_t bytes[sizeof anna_bytes];
        struct beacon b;
        memcpy(bytes, anna_bytes, sizeof bytes);
        bytes[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_int_not_equal(beacon_read(&b, bytes, sizeof bytes, count_key, NULL), ST_OK);
    }
}

/* Signs n bytes that need not be a beacon, and says what reading them says. */
static enum status read_signed(const void *body, size_t n, struct err *err) {
    uint8_t bytes[1024];
    struct beacon b;
    assert_true(n + crypto_auth_BYTES <= sizeof bytes);
    memcpy(bytes, body, n);
    crypto_auth(bytes + n, bytes, n, count_key);
    return beacon_read(&b, bytes, n + crypto_auth_BYTES, count_key, err);
}

static void assert_bad(const void *body, size_t n, const char *why) {
    struct err err = {.text = ""};
    assert_int_equal(read_signed(body, n, &err), ST_BAD_INPUT);
    if (strstr(err.text, why) == NULL)
        fail_msg("said \"%s\", expected \"%s\"", err.text, why);
}

/* A beacon with these texts, not signed. */
static size_t body_of(uint8_t *out, const void *name, size_t n_name, const void *version,
                      size_t n_version) {
    memcpy(out, anna_bytes, NAME_AT);
    out[NAME_AT] = (uint8_t)n_name;
    memcpy(out + NAME_AT + 1, name, n_name);
    uint8_t *at = out + NAME_AT + 1 + n_name;
    *at = (uint8_t)n_version;
    memcpy(at + 1, version, n_version);
    return (size_t)(at + 1 + n_version - out);
}

static void fields_that_break_the_rules_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t n;
    } names[] = {
        {"a\0b", 3},     /* its end is told by its length */
        {"a\nb", 3},     /* would forge a line of a list */
        {"\033[2J", 4},  /* drives terminals */
        {"\177", 1},     /* delete */
        {"\302\233", 2}, /* U+009B, a control character too */
        {"a\342\200\256b", 5} /* U+202E turns the rest of the line around */,
        {"\342\200\250", 3}, /* U+2028, a line's end */
        {"\303", 1},         /* half a character */
        {"\300\257", 2},     /* an overlong "/" */
        {"\355\240\200", 3}, /* half a surrogate pair */
        {"\364\220\200\200", 4} /* beyond Unicode */,
        {"\356\200\200", 3}, /* private use: nobody knows what that looks like */
    };
    uint8_t body[512];
    char longest[300];
    memset(longest, 'x', sizeof longest);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        assert_bad(body, body_of(body, names[i].text, names[i].n, "1", 1), "name is no");
        assert_bad(body, body_of(body, "a", 1, names[i].text, names[i].n), "version is no");
    }
    assert_bad(body, body_of(body, "", 0, "1", 1), "needs a name");
    assert_bad(body, body_of(body, longest, 64, "1", 1), "at most 63 bytes");
    assert_bad(body, body_of(body, longest, 255, "1", 1), "at most 63 bytes");
    assert_bad(body, body_of(body, "a", 1, longest, 16), "at most 15 bytes");

    static const uint8_t kinds[] = {0, 4, 255};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        size_t n = body_of(body, "a", 1, "1", 1);
        body[10] = kinds[i];
        assert_bad(body, n, "no kind");
    }
    for (int kind = BEACON_HERE; kind <= BEACON_LEAVING; kind += 2) {
        size_t n = body_of(body, "a", 1, "1", 1);
        body[10] = (uint8_t)kind;
        body[43] = body[44] = 0;
        assert_bad(body, n, "needs a port");
    }
}

static void lengths_that_do_not_fit_are_refused(void **state) {
    (void)state;
    uint8_t body[600];
    size_t n = body_of(body, "anna", 4, "0.1.0", 5);
    assert_bad(body, n - 1, "do not fill");
    body[n] = 0;
    assert_bad(body, n + 1, "do not fill");
    for (unsigned length = 0; length < 256; length++) {
        body_of(body, "anna", 4, "0.1.0", 5);
        body[NAME_AT] = (uint8_t)length;
        if (length != 4)
            assert_bad(body, n, "");
        body_of(body, "anna", 4, "0.1.0", 5);
        body[NAME_AT + 5] = (uint8_t)length;
        if (length != 5)
            assert_bad(body, n, "do not fill");
    }
}

static void other_keys_and_versions_are_named(void **state) {
    (void)state;
    uint8_t key[BEACON_KEY_BYTES], bytes[sizeof anna_bytes];
    struct beacon b;
    struct err err;
    memcpy(key, count_key, sizeof key);
    key[31] ^= 1;
    assert_int_equal(beacon_read(&b, anna_bytes, sizeof anna_bytes, key, &err), ST_REFUSED);
    assert_non_null(strstr(err.text, "key has not signed"));
    memcpy(bytes, anna_bytes, sizeof bytes);
    bytes[8] = 1; /* version 258, whatever follows */
    assert_int_equal(beacon_read(&b, bytes, 10, count_key, &err), ST_REFUSED);
    assert_non_null(strstr(err.text, "version 258"));
    assert_non_null(strstr(err.text, "speaks 2"));
    assert_int_equal(beacon_read(&b, (const uint8_t *)"lockstop\0\2", 10, count_key, &err),
                     ST_BAD_INPUT);
}

/* ---- discoveries ------------------------------------------------------------------------- */

static char loopback[IF_NAMESIZE];
static int udp_port;
static uint8_t key[BEACON_KEY_BYTES], other_key[BEACON_KEY_BYTES];

static int find_loopback(void **state) {
    (void)state;
    struct ifaddrs *all, *i;
    if (sodium_init() < 0 || getifaddrs(&all) != 0)
        return -1;
    for (i = all; i != NULL; i = i->ifa_next)
        if (i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_INET &&
            (i->ifa_flags & IFF_LOOPBACK) && (i->ifa_flags & IFF_UP))
            snprintf(loopback, sizeof loopback, "%s", i->ifa_name);
    freeifaddrs(all);
    /* Another run of this test beside it is full of strangers, no more. */
    udp_port = 20000 + (int)getpid() % 20000;
    randombytes_buf(key, sizeof key);
    randombytes_buf(other_key, sizeof other_key);
    return 0;
}

static struct beacon somebody(const char *name) {
    struct beacon b = {.kind = BEACON_HERE, .port = 7343, .version = "0.1.0"};
    snprintf(b.name, sizeof b.name, "%s", name);
    randombytes_buf(b.node, sizeof b.node);
    memset(b.machine, 7, sizeof b.machine);
    return b;
}

/* name NULL: not to be seen. */
static struct discovery *open_with(const char *name, const uint8_t *with, int interval_ms) {
    struct beacon self = somebody(name ? name : "");
    struct discovery_config cfg = {.self = name ? &self : NULL,
                                   .interface = loopback,
                                   .port = udp_port,
                                   .interval_ms = interval_ms};
    struct discovery *d = NULL;
    struct err err = {.text = ""};
    if (loopback[0] == '\0') {
        print_message("skip: no loopback interface is up\n");
        skip();
    }
    memcpy(cfg.key, with, sizeof cfg.key);
    if (discovery_open(&d, &cfg, &err) != ST_OK)
        fail_msg("%s", err.text);
    return d;
}

/* So long an interval that what happens happens for another reason. */
#define NEVER_MS 600000

static struct discovered seen[DISCOVERY_NODES_MAX + 1];

static int find(struct discovery *d, const char *name) {
    size_t n = discovery_nodes(d, seen, ARRAY_LEN(seen));
    for (size_t i = 0; i < n; i++)
        if (str_eq(seen[i].beacon.name, name))
            return (int)i;
    return -1;
}

static uint64_t in_a_minute(void) {
    return clock_ns() + 60000000000u;
}

static void sleep_before(uint64_t deadline_ns, const char *waiting_for) {
    if (clock_ns() > deadline_ns)
        fail_msg("a minute of waiting for %s", waiting_for);
    usleep(2000);
}

static void wait_for(struct discovery *d, const char *name, bool there) {
    for (uint64_t end = in_a_minute(); (find(d, name) >= 0) != there;)
        sleep_before(end, name);
}

static void two_and_three_find_each_other(void **state) {
    (void)state;
    struct discovery *a = open_with("anna", key, 50), *b = open_with("ben", key, 50);
    wait_for(a, "ben", true);
    wait_for(b, "anna", true);
    assert_int_equal(find(a, "anna"), -1);
    struct discovery *c = open_with("carla", key, 50);
    wait_for(a, "carla", true);
    wait_for(b, "carla", true);
    wait_for(c, "anna", true);
    wait_for(c, "ben", true);
    discovery_close(c);
    discovery_close(b);
    discovery_close(a);
}

static void what_is_found_says_who_and_where(void **state) {
    (void)state;
    struct discovery *a = open_with("anna", key, NEVER_MS), *b = open_with(NULL, key, NEVER_MS);
    char text[NET_TEXT_BYTES];
    wait_for(b, "anna", true);
    assert_int_equal(find(b, "anna"), 0);
    assert_int_equal(seen[0].beacon.port, 7343);
    assert_string_equal(seen[0].beacon.version, "0.1.0");
    assert_int_equal(seen[0].beacon.machine[0], 7);
    assert_int_equal(seen[0].n_addresses, 1);
    net_text(&seen[0].addresses[0], text);
    assert_string_equal(text, "127.0.0.1:7343");
    assert_string_equal(seen[0].interfaces[0], loopback);
    assert_true(seen[0].age_s >= 0 && seen[0].age_s < 60);
    discovery_close(a);
    discovery_close(b);
}

/* Who comes asks, and who is there answers; who has no port is not seen. */
static void nobody_waits_for_an_interval(void **state) {
    (void)state;
    struct discovery *a = open_with("anna", key, NEVER_MS),
                     *b = open_with("ben", key, NEVER_MS);
    struct discovery *listener = open_with(NULL, key, NEVER_MS);
    wait_for(a, "ben", true);
    wait_for(b, "anna", true);
    wait_for(listener, "anna", true);
    wait_for(listener, "ben", true);
    assert_int_equal(discovery_nodes(a, seen, ARRAY_LEN(seen)), 1);
    assert_int_equal(discovery_nodes(listener, seen, ARRAY_LEN(seen)), 2);

    /* What was heard long ago is new again for an answer only. */
    uint64_t end = in_a_minute();
    while (find(listener, "anna") < 0 || seen[0].age_s < 0.2)
        sleep_before(end, "time to pass");
    discovery_ask(listener);
    while (find(listener, "anna") < 0 || seen[0].age_s >= 0.2)
        sleep_before(end, "an answer");
    discovery_close(listener);
    discovery_close(b);
    discovery_close(a);
}

static void who_leaves_is_gone_at_once(void **state) {
    (void)state;
    struct discovery *a = open_with("anna", key, NEVER_MS),
                     *b = open_with("ben", key, NEVER_MS);
    wait_for(a, "ben", true);
    discovery_close(b);
    wait_for(a, "ben", false);
    b = open_with("ben", key, NEVER_MS); /* another daemon of that name */
    wait_for(a, "ben", true);
    discovery_close(b);
    discovery_close(a);
}

static void nodes_are_sorted_by_name(void **state) {
    (void)state;
    static const char *const names[] = {"carla", "anna", "dora", "ben"}, order[] = "abcd";
    struct discovery *nodes[4], *listener;
    for (int i = 0; i < 4; i++)
        nodes[i] = open_with(names[i], key, NEVER_MS);
    listener = open_with(NULL, key, NEVER_MS);
    for (int i = 0; i < 4; i++)
        wait_for(listener, names[i], true);
    for (size_t max = 0; max <= 5; max++) {
        assert_int_equal(discovery_nodes(listener, seen, max), MIN(max, (size_t)4));
        for (size_t i = 0; i < MIN(max, (size_t)4); i++)
            assert_int_equal(seen[i].beacon.name[0], order[i]);
    }
    discovery_close(listener);
    for (int i = 0; i < 4; i++)
        discovery_close(nodes[i]);
}

/* ---- datagrams by hand ------------------------------------------------------------------- */

/* A socket that sends to the group on loopback, from 127.0.0.`host`; -1 where the system has no
 * such address. */
static int sender(int host) {
    struct ip_mreqn interface = {.imr_ifindex = (int)if_nametoindex(loopback)};
    struct sockaddr_in from = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    from.sin_addr.s_addr = htonl((uint32_t)(0x7f000000 + host));
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface),
                     0);
    if (bind(fd, (struct sockaddr *)&from, sizeof from) == 0)
        return fd;
    close(fd);
    return -1;
}

static void send_bytes(int fd, const char *to, const void *bytes, size_t n) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)udp_port)};
    inet_pton(AF_INET, to, &a.sin_addr);
    /* refused or dropped is all right */
    ssize_t ignored = sendto(fd, bytes, n, 0, (struct sockaddr *)&a, sizeof a);
    (void)ignored;
}

static void send_beacon(int fd, enum beacon_kind kind, const struct beacon *b_,
                        const uint8_t *with) {
    uint8_t bytes[BEACON_BYTES_MAX];
    static uint64_t count;
    struct beacon b = *b_;
    b.kind = kind;
    b.count = b_->count != 0 ? b_->count : ++count;
    send_bytes(fd, MULTICAST_GROUP_V4, bytes, beacon_write(bytes, &b, with));
}

static void who_is_silent_is_gone(void **state) {
    (void)state;
    struct discovery *a = open_with("anna", key, 50);
    struct beacon b = somebody("ben");
    int fd = sender(1);
    for (uint64_t end = in_a_minute(); find(a, "ben") < 0;) {
        send_beacon(fd, BEACON_HERE, &b, key);
        sleep_before(end, "ben");
    }
    wait_for(a, "ben", false);
    close(fd);
    discovery_close(a);
}

/* A beacon from before may wait at another interface's socket while the leave is read. */
static void who_has_left_does_not_come_back(void **state) {
    (void)state;
    struct discovery *a = open_with(NULL, key, NEVER_MS);
    struct beacon b = somebody("ben"), c = somebody("carla"), marker = somebody("marker");
    int fd = sender(1);
    send_beacon(fd, BEACON_HERE, &b, key);
    send_beacon(fd, BEACON_LEAVING, &b, key);
    send_beacon(fd, BEACON_HERE, &b, key);
    send_beacon(fd, BEACON_LEAVING, &c, key); /* never seen before */
    send_beacon(fd, BEACON_HERE, &c, key);
    send_beacon(fd, BEACON_HERE, &marker, key);
    wait_for(a, "marker", true);
    assert_int_equal(find(a, "ben"), -1);
    assert_int_equal(find(a, "carla"), -1);
    close(fd);
    discovery_close(a);
}

/* With a beacon that came first and the last one, from other addresses. */
static void recorded_beacons_add_no_address(void **state) {
    (void)state;
    struct discovery *a = open_with(NULL, key, NEVER_MS);
    struct beacon b = somebody("ben"), marker = somebody("marker");
    int fd = sender(1);
    for (b.count = 8; b.count <= 9; b.count++)
        send_beacon(fd, BEACON_HERE, &b, key);
    wait_for(a, "ben", true);
    for (int i = 2; i <= 9; i++) {
        int other = sender(i);
        b.count = 8;
        send_beacon(other, BEACON_HERE, &b, key);
        close(other);
    }
    send_beacon(fd, BEACON_HERE, &marker, key);
    wait_for(a, "marker", true);
    assert_int_equal(seen[find(a, "ben")].n_addresses, 1);
    close(fd);
    discovery_close(a);
}

static void who_is_gone_comes_back_with_a_new_beacon_alone(void **state) {
    (void)state;
    struct discovery *a = open_with(NULL, key, 20);
    struct beacon b = somebody("ben"), marker = somebody("marker");
    int fd = sender(1);
    b.count = 9;
    send_beacon(fd, BEACON_HERE, &b, key);
    wait_for(a, "ben", true);
    wait_for(a, "ben", false);
    send_beacon(fd, BEACON_HERE, &b, key);
    send_beacon(fd, BEACON_HERE, &marker, key);
    wait_for(a, "marker", true);
    assert_int_equal(find(a, "ben"), -1);
    b.count = 10;
    send_beacon(fd, BEACON_HERE, &b, key);
    wait_for(a, "ben", true);
    close(fd);
    discovery_close(a);
}

static void another_key_is_a_stranger(void **state) {
    (void)state;
    struct discovery *a = open_with("anna", key, NEVER_MS);
    struct discovery *b = open_with("ben", other_key, NEVER_MS);
    struct discovery *marker = open_with("marker", key, NEVER_MS);
    char text[DISCOVERY_STRANGERS_MAX][NET_TEXT_BYTES];
    uint64_t end = in_a_minute();
    wait_for(a, "marker", true);
    /* Each has a thread of its own, which speaks when it runs. */
    while (discovery_strangers(a, text, 1) == 0)
        sleep_before(end, "a stranger");
    assert_int_equal(find(a, "ben"), -1);
    assert_int_equal(find(b, "anna"), -1);
    assert_int_equal(discovery_strangers(a, text, ARRAY_LEN(text)), 1);
    assert_string_equal(text[0], "127.0.0.1");
    assert_int_equal(discovery_strangers(a, text, 0), 0);
    discovery_close(marker);
    discovery_close(b);
    discovery_close(a);
}

static void another_protocol_version_is_a_stranger(void **state) {
    (void)state;
    struct discovery *a = open_with(NULL, key, NEVER_MS);
    char text[1][NET_TEXT_BYTES];
    uint64_t end = in_a_minute();
    int fd = sender(1);
    send_bytes(fd, MULTICAST_GROUP_V4, "lockstep\0\1 and more", 19);
    while (discovery_strangers(a, text, 1) == 0)
        sleep_before(end, "a stranger");
    assert_string_equal(text[0], "127.0.0.1");
    assert_int_equal(discovery_nodes(a, seen, ARRAY_LEN(seen)), 0);
    close(fd);
    discovery_close(a);
}

/* With the right key even. */
static void the_tables_are_bounded(void **state) {
    (void)state;
    struct discovery *a = open_with(NULL, key, NEVER_MS);
    char text[2 * DISCOVERY_STRANGERS_MAX][NET_TEXT_BYTES];
    struct beacon twice = somebody("00 several addresses"), b;
    uint64_t end = in_a_minute();
    int fds[50], n = 0;
    while (n < 50 && (fds[n] = sender(n + 1)) >= 0)
        n++;
    assert_true(n >= 1);
    while (find(a, twice.name) < 0 || seen[0].n_addresses != MIN(n, DISCOVERY_ADDRESSES_MAX)) {
        for (int i = 0; i < n; i++)
            send_beacon(fds[i], BEACON_HERE, &twice, key);
        sleep_before(end, "addresses");
    }
    while (discovery_nodes(a, seen, ARRAY_LEN(seen)) < DISCOVERY_NODES_MAX) {
        b = somebody("of many");
        send_beacon(fds[0], BEACON_HERE, &b, key);
        sleep_before(end, "a full table");
    }
    for (int i = 0; i < n; i++)
        send_beacon(fds[i], BEACON_HERE, &b, other_key);
    while (discovery_strangers(a, text, ARRAY_LEN(text)) <
           (size_t)MIN(n, DISCOVERY_STRANGERS_MAX))
        sleep_before(end, "strangers");
    b = somebody("one too many");
    send_beacon(fds[0], BEACON_HERE, &b, key);
    send_beacon(fds[0], BEACON_LEAVING, &twice, key); /* a place */
    wait_for(a, twice.name, false);
    assert_int_equal(discovery_nodes(a, seen, ARRAY_LEN(seen)), DISCOVERY_NODES_MAX - 1);
    assert_int_equal(find(a, "one too many"), -1);
    assert_true(discovery_is_full(a));
    send_beacon(fds[0], BEACON_HERE, &b, key);
    wait_for(a, "one too many", true);
    assert_int_equal(discovery_nodes(a, seen, ARRAY_LEN(seen)), DISCOVERY_NODES_MAX);
    assert_true(discovery_strangers(a, text, ARRAY_LEN(text)) <= DISCOVERY_STRANGERS_MAX);
    for (int i = 0; i < n; i++)
        close(fds[i]);
    discovery_close(a);
}

struct flood {
    pthread_t thread;
    _Atomic bool stop;
    _Atomic uint64_t n_sent;
};

/* All sizes, half of them beginning like a beacon, to the group and to the port. */
static void *flood_main(void *arg) {
    struct flood *f = arg;
    uint8_t bytes[1500];
    int fd = sender(1);
    randombytes_buf(bytes, sizeof bytes);
    for (uint64_t i = 0; !f->stop; i++) {
        memcpy(bytes, i % 2 ? "lockstep\0\1" : "garbage   ", 10);
        send_bytes(fd, i % 3 ? MULTICAST_GROUP_V4 : "127.0.0.1", bytes, i % sizeof bytes);
        f->n_sent = i;
    }
    close(fd);
    return NULL;
}

static void a_flood_of_garbage_does_no_harm(void **state) {
    (void)state;
    struct discovery *a = open_with("anna", key, 50);
    struct flood f = {.stop = false};
    assert_int_equal(pthread_create(&f.thread, NULL, flood_main, &f), 0);
    struct discovery *b = open_with("ben", key, 50);
    wait_for(a, "ben", true); /* in the middle of it */
    wait_for(b, "anna", true);
    uint64_t end = in_a_minute();
    while (f.n_sent < 20000)
        sleep_before(end, "garbage");
    f.stop = true;
    pthread_join(f.thread, NULL);
    wait_for(a, "ben", true); /* and after it */
    wait_for(b, "anna", true);
    assert_true(discovery_nodes(a, seen, ARRAY_LEN(seen)) <= 1);
    discovery_close(b);
    discovery_close(a);
}

/* However often it is asked, a node answers ten times a second at most. */
static void questions_are_not_amplified(void **state) {
    (void)state;
    struct multicast raw;
    struct beacon asker = {.kind = BEACON_ASK}, got;
    uint8_t bytes[BEACON_BYTES_MAX];
    struct net_address from;
    size_t n, n_here = 0;
    multicast_init(&raw, (uint16_t)udp_port, loopback);
    multicast_look(&raw, NULL);
    struct discovery *a = open_with("anna", key, NEVER_MS);
    assert_true(raw.n_ports >= 1);
    uint64_t begin = clock_ns(), end = in_a_minute();
    for (int fd = sender(1), i = 0; i < 300; i++) {
        send_beacon(fd, BEACON_ASK, &asker, key);
        usleep(1000);
        while (multicast_recv(&raw.ports[0], bytes, sizeof bytes, &n, &from) != ST_AGAIN)
            n_here +=
                beacon_read(&got, bytes, n, key, NULL) == ST_OK && got.kind == BEACON_HERE;
        if (i == 299)
            close(fd);
    }
    assert_true(n_here <= 2 + (clock_ns() - begin) / 100000000u);
    while (n_here == 0) { /* one answer at least */
        if (multicast_recv(&raw.ports[0], bytes, sizeof bytes, &n, &from) == ST_OK)
            n_here +=
                beacon_read(&got, bytes, n, key, NULL) == ST_OK && got.kind == BEACON_HERE;
        else
            sleep_before(end, "an answer");
    }
    discovery_close(a);
    multicast_deinit(&raw);
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    struct beacon bad = somebody("two\nlines"), no_port = somebody("anna");
    struct discovery *d = NULL;
    struct err err;
    no_port.port = 0;
    const struct discovery_config cfgs[] = {
        {.self = &bad}, {.self = &no_port}, {.port = -1}, {.port = 65536}, {.interval_ms = -1}};
    for (size_t i = 0; i < ARRAY_LEN(cfgs); i++) {
        assert_int_equal(discovery_open(&d, &cfgs[i], &err), ST_BAD_INPUT);
        assert_null(d);
    }
    discovery_close(NULL);
}

/* Another program's port, which it does not share; and an interface that is not there (yet). */
static void a_port_that_is_taken_is_told(void **state) {
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    struct discovery_config cfg = {.interface = loopback, .port = ntohs(at.sin_port)};
    struct discovery *d = NULL;
    struct err err;
    assert_int_equal(discovery_open(&d, &cfg, &err), ST_IO);
    assert_non_null(strstr(err.text, strerror(EADDRINUSE)));
    cfg.interface = "nosuchif0";
    assert_int_equal(discovery_open(&d, &cfg, &err), ST_OK);
    discovery_ask(d);
    assert_int_equal(discovery_nodes(d, seen, ARRAY_LEN(seen)), 0);
    discovery_close(d);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_bytes_are_the_documented_ones),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(fields_that_break_the_rules_are_refused),
        cmocka_unit_test(lengths_that_do_not_fit_are_refused),
        cmocka_unit_test(other_keys_and_versions_are_named),
        cmocka_unit_test(two_and_three_find_each_other),
        cmocka_unit_test(what_is_found_says_who_and_where),
        cmocka_unit_test(nobody_waits_for_an_interval),
        cmocka_unit_test(who_leaves_is_gone_at_once),
        cmocka_unit_test(nodes_are_sorted_by_name),
        cmocka_unit_test(who_is_silent_is_gone),
        cmocka_unit_test(who_has_left_does_not_come_back),
        cmocka_unit_test(recorded_beacons_add_no_address),
        cmocka_unit_test(who_is_gone_comes_back_with_a_new_beacon_alone),
        cmocka_unit_test(another_key_is_a_stranger),
        cmocka_unit_test(another_protocol_version_is_a_stranger),
        cmocka_unit_test(the_tables_are_bounded),
        cmocka_unit_test(a_flood_of_garbage_does_no_harm),
        cmocka_unit_test(questions_are_not_amplified),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(a_port_that_is_taken_is_told),
    };
    return cmocka_run_group_tests(tests, find_loopback, NULL);
}
