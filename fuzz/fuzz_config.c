/* fuzz_config: a folder of hostile JSON is refused with a sentence, or becomes a model whose
 * every row can be made and whose sizes the model and tokenizer rooms accept or refuse. The
 * input is cut at zero bytes: config.json, tokenizer.json (tiktoken.model if it does not begin
 * with a brace), tokenizer_config.json, the header of model.safetensors (whose data are a hole
 * of DATA_BYTES). Seeds: corpus/config. */
#include "arch/hparams.h"
#include "base/status.h"
#include "format/rows.h"
#include "hf/hf_folder.h"
#include "tokenizer/tokenizer.h"
#include "weights/weights.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA_BYTES (1 << 20)

static const char *const names[] = {"config.json", "tokenizer.json", "tokenizer_config.json",
                                    "model.safetensors", "tiktoken.model"};
enum { TOKENIZER = 1, SHARD = 3, TIKTOKEN = 4, N_NAMES = 5 };
static char dir[64];
static volatile uint64_t sink;

static void path_of(const char *name, char *path, size_t size) {
    snprintf(path, size, "%s/%s", dir, name);
}

static void remove_dir(void) {
    char path[128];
    for (size_t i = 0; i < N_NAMES; i++) {
        path_of(names[i], path, sizeof path);
        unlink(path);
    }
    rmdir(dir);
}

static void make_dir(void) {
    snprintf(dir, sizeof dir, "%s/lockstep-fuzz-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (mkdtemp(dir) == NULL)
        abort();
    atexit(remove_dir);
}

static void put(const char *name, const void *head, size_t n_head, const void *text, size_t n,
                size_t hole) {
    char path[128];
    path_of(name, path, sizeof path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, head, n_head) != (ssize_t)n_head ||
        write(fd, text, n) != (ssize_t)n || ftruncate(fd, (off_t)(n_head + n + hole)) != 0)
        abort();
    close(fd);
}

static void read_rows(const struct gguf_tensor *t) {
    size_t row_bytes;
    uint64_t n_rows = t->dims[1] * t->dims[2] * t->dims[3];
    if (!qtype_row_bytes(t->type, t->dims[0], &row_bytes) || row_bytes > (64 << 20))
        return;
    uint8_t *buf = malloc(row_bytes);
    for (uint64_t r = 0; r < n_rows; r += 1 + n_rows / 64) {
        const uint8_t *row = tensor_row(t, r, 0, t->dims[0], buf);
        for (size_t i = 0; i < row_bytes; i++)
            sink = sink + row[i];
    }
    if (n_rows > 0)
        sink = sink + *tensor_row(t, n_rows - 1, 0, t->dims[0], buf);
    free(buf);
}

static void use(const struct gguf *g) {
    struct err err = {.text = ""};
    struct hparams hp;
    struct tokenizer *t;
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        read_rows(gguf_tensor_at(g, i));
    if (hparams_read(&hp, g, &err) == ST_OK)
        (void)weights_check(g, &hp, &err);
    if (tokenizer_open(&t, g, &err) == ST_OK)
        tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (dir[0] == '\0')
        make_dir();
    for (size_t i = 0; i <= SHARD; i++) {
        const uint8_t *end = i < SHARD ? memchr(data, 0, size) : NULL;
        size_t n = end != NULL ? (size_t)(end - data) : size;
        uint64_t len = n;
        bool shard = i == SHARD, ranks = i == TOKENIZER && n > 0 && data[0] != '{';
        if (i == TOKENIZER) {
            char other[128];
            path_of(names[ranks ? TOKENIZER : TIKTOKEN], other, sizeof other);
            unlink(other);
        }
        put(names[ranks ? TIKTOKEN : i], &len, shard ? sizeof len : 0, data, n,
            shard ? DATA_BYTES : 0);
        data += n + (end != NULL);
        size -= n + (end != NULL);
    }
    struct gguf *g;
    struct err err = {.text = ""};
    if (hf_open(&g, dir, &err) != ST_OK) {
        if (strlen(err.text) < 10)
            abort();
        return 0;
    }
    use(g);
    gguf_close(g);
    return 0;
}
